//! CPU time by its users, while a service was watched.

use linux::service::Service;
use linux::{Peers, ThreadUse};
use sim::plan::Known;
use sim::plan::recording::{GENERATOR, KERNEL_THREADS, Other};
use std::collections::BTreeMap;

/// CPU time and turns of a group of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    pub cpu_s: f64,
    pub turns: u64,
}

/// The use of all CPUs between two readings, by the kind of its user.
#[derive(Debug, Default)]
pub struct Uses {
    pub service: Use,
    /// Turns of each thread of the service.
    pub threads: Vec<u64>,
    others: BTreeMap<&'static str, Use>,
    pub all_s: f64,
}

impl Uses {
    pub fn between(
        before: &BTreeMap<u32, ThreadUse>,
        after: &BTreeMap<u32, ThreadUse>,
        service: Option<&Service>,
        early: &Peers,
        late: &Peers,
    ) -> Self {
        let mut uses = Self::default();
        for (thread, now) in after {
            // A number that came to mean another thread begins at zero.
            let then = before.get(thread).filter(|then| then.process == now.process);
            let turns = now.turns.saturating_sub(then.map_or(0, |then| then.turns));
            let cpu_s = now.cpu_time.as_secs_f64() - then.map_or(0.0, |then| then.cpu_time.as_secs_f64());
            let cpu_s = cpu_s.max(0.0);
            uses.all_s += cpu_s;
            if service.is_some_and(|service| service.processes.contains(&now.process)) {
                uses.service.cpu_s += cpu_s;
                uses.service.turns += turns;
                uses.threads.push(turns);
                continue;
            }
            let is_peer = |peers: &Peers| peers.processes.contains_key(&now.process);
            let name = if now.process == std::process::id() {
                "this watcher"
            } else if is_peer(early) || is_peer(late) {
                GENERATOR
            } else if now.is_kernel {
                KERNEL_THREADS
            } else {
                "other programs"
            };
            let group = uses.others.entry(name).or_default();
            group.cpu_s += cpu_s;
            group.turns += turns;
        }
        uses
    }

    /// The work of all but the service.
    pub fn others(&self, length_s: f64) -> Vec<Other> {
        let used = self.others.iter().filter(|(_, group)| group.turns > 0);
        used.map(|(name, group)| Other {
            name: (*name).to_owned(),
            per_s: Known::measured(group.turns as f64 / length_s, "turns on a CPU, schedstat"),
            length_us: (group.cpu_s > 0.0).then(|| {
                Known::derived(group.cpu_s * 1e6 / group.turns as f64, "CPU time over turns, schedstat")
            }),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn used(process: u32, cpu_ms: u64, turns: u64) -> ThreadUse {
        let cpu_time = machine::Duration::from_millis(cpu_ms);
        ThreadUse { process, is_kernel: process == 2, cpu_time, turns }
    }

    #[test]
    fn cpu_time_goes_to_its_owner_once() {
        let service = Service { processes: BTreeSet::from([10]), ..Service::default() };
        let peers = Peers { connections: 1, processes: BTreeMap::from([(20, "load".to_owned())]) };
        let before = BTreeMap::from([(10, used(10, 100, 5)), (30, used(30, 50, 1))]);
        let after = BTreeMap::from([
            (10, used(10, 600, 1005)),
            (11, used(10, 100, 3)),
            (20, used(20, 250, 500)),
            (2, used(2, 10, 100)),
            // The number means another process now.
            (30, used(31, 40, 8)),
        ]);
        let uses = Uses::between(&before, &after, Some(&service), &peers, &Peers::default());
        assert!((uses.service.cpu_s - 0.6).abs() < 1e-9);
        assert_eq!((uses.service.turns, uses.threads.len()), (1003, 2));
        let others = uses.others(10.0);
        let of = |name: &str| others.iter().find(|other| other.name == name).unwrap();
        assert_eq!(of("generator").per_s.value, 50.0);
        assert!((of("generator").length_us.as_ref().unwrap().value - 500.0).abs() < 1e-9);
        assert_eq!(of("kernel threads").per_s.value, 10.0);
        assert_eq!(of("other programs").per_s.value, 0.8);
        assert!((uses.all_s - 0.9).abs() < 1e-9);
    }
}
