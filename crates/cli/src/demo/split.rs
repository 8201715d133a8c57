//! Which CPUs serve and which send.
//!
//! With four CPUs and more the generator has CPUs of its own, the last third, whose energy and idle
//! time are left out of every figure. With fewer there is none to spare: the store has workers on
//! all of them, and the generator, which sends at fixed times whatever else runs, sits on the last
//! one beside its workers.

use machine::{CpuId, CpuList};

/// Workers at the least, however few CPUs there are: with two the scheduler could only halve.
const MIN_WORKERS: usize = 8;

/// With fewer CPUs the generator has none of its own.
const CPUS_TO_SPARE: usize = 4;

#[derive(Debug)]
pub struct Split {
    pub server: Vec<CpuId>,
    pub generator: CpuList,
}

impl Split {
    /// Of the CPUs that this process may use.
    pub fn of(allowed: &CpuList) -> Self {
        let all: Vec<CpuId> = allowed.0.iter().copied().collect();
        if all.len() < CPUS_TO_SPARE {
            let generator = CpuList(all.last().copied().into_iter().collect());
            return Self { server: all, generator };
        }
        let (server, generator) = all.split_at(all.len() - all.len() / 3);
        Self { server: server.to_vec(), generator: CpuList(generator.iter().copied().collect()) }
    }

    /// Whether the generator runs beside workers.
    pub fn is_shared(&self) -> bool {
        self.server.iter().any(|cpu| self.generator.0.contains(cpu))
    }

    /// The CPU of each worker.
    pub fn worker_cpus(&self) -> Vec<CpuId> {
        let workers = self.server.len().max(MIN_WORKERS);
        self.server.iter().copied().cycle().take(workers).collect()
    }

    /// The limits of a machine of this size.
    pub fn remark(&self) -> Option<String> {
        self.is_shared().then(|| {
            format!(
                "{} has no CPU to spare for the clients: they send from CPU {}, which they keep \
                 awake. So a CPU that is left alone is one on which no worker of the store runs; \
                 {} workers share {}.",
                if self.server.len() == 1 { "A single CPU" } else { "This machine" },
                self.generator,
                self.worker_cpus().len(),
                if self.server.len() == 1 { "it".to_owned() } else { format!("{} CPUs", self.server.len()) },
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(cpus: u16) -> Split {
        Split::of(&CpuList((0..cpus).map(CpuId).collect()))
    }

    #[test]
    fn where_there_is_room_the_generator_keeps_to_itself() {
        for (cpus, serving) in [(1, 1), (2, 2), (3, 3), (4, 3), (12, 8), (32, 22)] {
            let split = split(cpus);
            assert_eq!(split.server.len(), serving, "{cpus}");
            assert_eq!(split.is_shared(), cpus < 4, "{cpus}");
            assert_eq!(split.remark().is_some(), cpus < 4);
            assert!(!split.generator.0.is_empty());
            assert!(split.worker_cpus().len() >= 8);
            assert!(
                split.server.iter().all(|cpu| split.worker_cpus().contains(cpu)),
                "no CPU without a worker"
            );
        }
    }
}
