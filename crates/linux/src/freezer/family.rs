//! Without a freezer: a signal to each process of a family, as long as new ones are born.
//!
//! A process takes up a stop when it next returns from the kernel, and one in the middle of a
//! `fork` finishes that first (`copy_process`): a child may be born after its parent was told to
//! stop. So a family is whole only if the look at it came *after* all known processes stood still.
//! The other way round misses a child that is born between the look and the stop, and the child
//! runs on.

use super::{FreezerError, Frozen};
use crate::Root;
use crate::journal::{ChangeError, Journal};
use crate::knob::{STOPPED, StopName, is_let_go, stands_still};
use crate::processes::service::family;
use crate::root::FileError;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The wait for stops to be taken up: a few of the scheduler's slices, since a process that waits
/// for a CPU takes a stop up only there. A process that is born later is stopped when the caller
/// asks again ([`super::Freezer::freeze`]). One in the middle of a disk transfer stops, and forks,
/// only after it.
const PATIENCE: Duration = Duration::from_millis(10);

/// Rounds that find new processes: a family that multiplies faster than it is stopped must not keep
/// us here.
const BIRTHS_MAX: usize = 64;

/// Stops a process and all its descendants, except those that are stopped already. A second call
/// stops those born since, unless another program has let one of them go on: then all its
/// descendants are as free.
pub(super) fn stop(
    root: &Root,
    journal: &mut Journal,
    process: u32,
    stopped: &mut Vec<String>,
) -> Result<Frozen, FreezerError> {
    let known = processes(stopped);
    if known.iter().any(|&one| is_let_go(one).unwrap_or(false)) {
        return Ok(Frozen::Told);
    }
    let patience = Instant::now() + if known.is_empty() { PATIENCE } else { Duration::ZERO };
    let stop = |one| {
        // It has ended, or another program stopped it.
        let Ok(name) = StopName::now(one) else { return Ok(()) };
        if stands_still(one).unwrap_or(true) {
            return Ok(());
        }
        match journal.set(&name.path(), STOPPED) {
            Ok(_) => stopped.push(name.path()),
            Err(ChangeError::File(FileError::Missing { .. })) => drop(journal.forget(&name.path())),
            Err(error) => return Err(FreezerError::from(error)),
        }
        Ok(())
    };
    let waits = || {
        std::thread::yield_now();
        Instant::now() < patience
    };
    stop_all(known, || Ok(family(root, process)?), |one| stands_still(one).unwrap_or(true), stop, waits)?;
    let is_there = root.path(&format!("proc/{process}")).is_dir();
    Ok(match (stopped.is_empty(), is_there) {
        (false, _) => Frozen::Told,
        (true, true) => Frozen::Foreign,
        (true, false) => Frozen::Gone,
    })
}

/// True once all its descendants stand still, whichever program stopped them.
pub(super) fn stands(root: &Root, process: u32, stopped: &[String]) -> bool {
    let all_stand =
        |processes: &BTreeSet<u32>| processes.iter().all(|&one| stands_still(one).unwrap_or(true));
    // In this order, as above.
    all_stand(&processes(stopped)) && family(root, process).is_ok_and(|family| all_stand(&family))
}

/// By their paths in the journal.
fn processes(stopped: &[String]) -> BTreeSet<u32> {
    stopped.iter().filter_map(|path| StopName::from_path(path)).map(|name| name.process).collect()
}

/// Until a look at the family, taken when all known processes stand, shows no new one; or until no
/// process is left to wait for. Families that do not settle are left after [`BIRTHS_MAX`] rounds.
fn stop_all<E>(
    mut known: BTreeSet<u32>,
    mut look: impl FnMut() -> Result<BTreeSet<u32>, E>,
    mut stands: impl FnMut(u32) -> bool,
    mut stop: impl FnMut(u32) -> Result<(), E>,
    mut waits: impl FnMut() -> bool,
) -> Result<(), E> {
    let mut births = 0;
    loop {
        let all_stood = !known.is_empty() && known.iter().all(|&one| stands(one));
        let born: Vec<u32> = look()?.into_iter().filter(|one| known.insert(*one)).collect();
        if born.is_empty() && (all_stood || !waits()) {
            return Ok(());
        }
        births += usize::from(!born.is_empty());
        for one in born {
            stop(one)?;
        }
        if births == BIRTHS_MAX {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::convert::Infallible;

    /// Process 1, which forks process 2 at one moment and takes up its stop at another. Each
    /// question takes a moment.
    #[derive(Default)]
    struct Village {
        moment: u32,
        told: BTreeSet<u32>,
    }

    impl Village {
        fn asked(&mut self) -> u32 {
            self.moment += 1;
            self.moment
        }
    }

    #[test]
    fn who_is_born_between_any_two_questions_is_stopped_too() {
        for born in 1..12 {
            for takes_up in born..14 {
                let village = RefCell::new(Village::default());
                let stood =
                    |one: u32, moment: u32, told: &BTreeSet<u32>| told.contains(&one) && moment > takes_up;
                stop_all(
                    BTreeSet::new(),
                    || {
                        let moment = village.borrow_mut().asked();
                        // A process that took up its stop before forks no more.
                        Ok::<_, Infallible>(if moment > born {
                            BTreeSet::from([1, 2])
                        } else {
                            BTreeSet::from([1])
                        })
                    },
                    |one| {
                        let mut village = village.borrow_mut();
                        let moment = village.asked();
                        stood(one, moment, &village.told)
                    },
                    |one| {
                        village.borrow_mut().told.insert(one);
                        Ok(())
                    },
                    || true,
                )
                .unwrap();
                assert_eq!(
                    village.into_inner().told,
                    BTreeSet::from([1, 2]),
                    "born {born}, stopped {takes_up}"
                );
            }
        }
    }

    #[test]
    fn who_never_stands_is_waited_for_only_so_long_and_no_new_one_is_left() {
        let (mut looks, mut told) = (0, Vec::new());
        stop_all(
            BTreeSet::new(),
            || {
                looks += 1;
                Ok::<_, Infallible>((1..=looks.min(4)).collect())
            },
            |_| false,
            |one| {
                told.push(one);
                Ok(())
            },
            || false,
        )
        .unwrap();
        assert_eq!(told, [1, 2, 3, 4]);
    }

    #[test]
    fn who_multiplies_without_end_is_left() {
        let (mut looks, mut told) = (0, 0);
        stop_all(
            BTreeSet::new(),
            || {
                looks += 1;
                Ok::<_, Infallible>((1..=looks).collect())
            },
            |_| true,
            |_| {
                told += 1;
                Ok(())
            },
            || true,
        )
        .unwrap();
        assert_eq!(told, BIRTHS_MAX);
    }
}
