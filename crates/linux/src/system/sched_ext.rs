//! sched_ext: a scheduler in BPF, loaded in place of the kernel's own (Linux 6.12).
//!
//! `/sys/kernel/sched_ext/state` is `disabled` without one; `root/ops` has the name of the one that is
//! loaded. It decides where tasks run and when. The kernel ends one that runs a task on a CPU that the
//! task may not use, but not one that lets a bound task wait: so a thread of ours tries.
//!
//! Source: Documentation/scheduler/sched-ext.rst.

use crate::processes::affinity::{allowed_cpus, pin_current_thread};
use crate::root::{Gaps, Root};
use machine::{CpuId, CpuList, Duration};
use serde::Serialize;
use std::fmt;

const FOLDER: &str = "sys/kernel/sched_ext";

/// A scheduler in BPF that is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedExt {
    /// The kernel's word: `enabled`, `enabling` or `disabling`.
    pub state: String,
    /// Its name; `None` where the kernel does not tell it.
    pub name: Option<String>,
    /// It has all normal tasks, and not only those of its class.
    pub has_all: Option<bool>,
}

/// The scheduler that is loaded; `None` without one, and on kernels without sched_ext.
pub fn sched_ext(root: &Root, gaps: &mut Gaps) -> Option<SchedExt> {
    let state = gaps.text(root, &format!("{FOLDER}/state")).filter(|state| state != "disabled")?;
    let name = gaps.text(root, &format!("{FOLDER}/root/ops")).filter(|name| !name.is_empty());
    let has_all = gaps.parse::<u8>(root, &format!("{FOLDER}/switch_all"), "0 or 1").map(|all| all != 0);
    Some(SchedExt { state, name, has_all })
}

/// A thread bound to a CPU was not treated so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbound {
    /// It ran on another CPU than it was asked to.
    Strayed { asked: CpuId, seen: CpuId },
    /// It was ready and did not run there in time.
    Waited { asked: CpuId, waited: Duration },
}

impl fmt::Display for Unbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strayed { asked, seen } => write!(f, "a thread bound to {asked} ran on {seen}"),
            Self::Waited { asked, waited } => {
                write!(f, "a thread bound to {asked} waited for {waited} while it was ready")
            }
        }
    }
}

impl SchedExt {
    /// Whether threads run where they are bound: one of ours is bound to some of `cpus` in turn, and
    /// sleeps and works there.
    pub fn keeps_affinity(&self, cpus: &CpuList) -> Result<(), Unbound> {
        let cpus = cpus.clone();
        let tried = std::thread::Builder::new().name("affinity".to_owned()).spawn(move || {
            let own = allowed_cpus().unwrap_or_default();
            judged(cpus.0.intersection(&own.0).copied(), |cpu| {
                pin_current_thread(cpu).ok()?;
                let began = crate::now();
                std::thread::sleep(NAP.into());
                let waited = crate::now().since(began + NAP);
                Some((CpuId(rustix::thread::sched_getcpu() as u16), waited))
            })
        });
        // Without a thread nothing was found against it.
        tried.map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

/// `run` sleeps on a CPU: where it woke up and how late, `None` if it could not be tried.
fn judged(
    cpus: impl Iterator<Item = CpuId>,
    mut run: impl FnMut(CpuId) -> Option<(CpuId, Duration)>,
) -> Result<(), Unbound> {
    for asked in cpus.take(CPUS_TRIED) {
        let mut least = Duration::MAX;
        for _ in 0..TRIES {
            let Some((seen, waited)) = run(asked) else { break };
            if seen != asked {
                return Err(Unbound::Strayed { asked, seen });
            }
            least = least.min(waited);
        }
        if least != Duration::MAX && least > LATEST {
            return Err(Unbound::Waited { asked, waited: least });
        }
    }
    Ok(())
}

/// A sleep of this length ends in a placement by the scheduler.
const NAP: Duration = Duration::from_micros(100);
const TRIES: usize = 8;
const CPUS_TRIED: usize = 4;
/// So late each time is not a busy CPU, on which threads take turns of some milliseconds.
const LATEST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_judged_by_what_bound_threads_meet() {
        let cpus = || (0..9).map(CpuId);
        let ms = Duration::from_millis;
        let mut asked = Vec::new();
        let found = judged(cpus(), |cpu| {
            asked.push(cpu);
            Some((cpu, ms(if asked.len() % 3 == 0 { 1 } else { 900 })))
        });
        assert_eq!((found, asked.len()), (Ok(()), TRIES * CPUS_TRIED), "late now and then is a busy CPU");
        let strayed = judged(cpus(), |cpu| Some((CpuId(cpu.0.max(1)), ms(0))));
        assert_eq!(strayed, Err(Unbound::Strayed { asked: CpuId(0), seen: CpuId(1) }));
        let waited = judged(cpus(), |cpu| Some((cpu, ms(300))));
        assert_eq!(waited, Err(Unbound::Waited { asked: CpuId(0), waited: ms(300) }));
        assert_eq!(judged(cpus(), |_| None), Ok(()));
    }

    #[test]
    fn the_kernels_own_scheduler_keeps_threads_where_they_are_bound() {
        let none = SchedExt { state: "enabled".to_owned(), name: None, has_all: None };
        assert_eq!(none.keeps_affinity(&allowed_cpus().unwrap()), Ok(()));
    }
    use crate::fake::FakeMachine;

    #[test]
    fn a_loaded_scheduler_is_named_and_none_is_none() {
        let machine = FakeMachine::intel_server(2);
        let told = |machine: &FakeMachine| sched_ext(machine.root(), &mut Gaps::default());
        assert_eq!(told(&machine), None);
        machine.write("sys/kernel/sched_ext/state", "disabled\n");
        assert_eq!(told(&machine), None);
        machine.write("sys/kernel/sched_ext/state", "enabled\n");
        let unnamed = SchedExt { state: "enabled".to_owned(), name: None, has_all: None };
        assert_eq!(told(&machine), Some(unnamed.clone()));
        machine.write("sys/kernel/sched_ext/root/ops", "lavd_1.1.4\n");
        machine.write("sys/kernel/sched_ext/switch_all", "1\n");
        let named = SchedExt { name: Some("lavd_1.1.4".to_owned()), has_all: Some(true), ..unnamed };
        assert_eq!(told(&machine), Some(named));
    }
}
