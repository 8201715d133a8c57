//! Where there is no freezer: a signal to each process of a family, for as long as new ones are born.

use super::{FreezerError, Frozen};
use crate::Root;
use crate::journal::{ChangeError, Journal};
use crate::knob::{STOPPED, StopName, stands_still};
use crate::root::FileError;
use crate::service::family;
use std::collections::BTreeSet;

/// So many rounds of stopping processes that are born meanwhile: a few milliseconds. One that is in the middle of a disk transfer
/// stops, and bears nobody, only after it.
const ROUNDS_MAX: usize = 64;

/// Stops a process and all that descend from it, but for those that are stopped already.
pub(super) fn stop(
    root: &Root,
    journal: &mut Journal,
    process: u32,
    stopped: &mut Vec<String>,
) -> Result<Frozen, FreezerError> {
    let mut known = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let family = family(root, process)?;
        let born: Vec<u32> = family.into_iter().filter(|one| known.insert(*one)).collect();
        if born.is_empty() {
            // Only of one that has taken up its stop it is sure that it bears nobody any more.
            if known.iter().all(|&one| stands_still(one).unwrap_or(true)) {
                break;
            }
            std::thread::yield_now();
        }
        for one in born {
            // Ended, or stopped by somebody else.
            let Ok(name) = StopName::now(one) else { continue };
            if stands_still(one).unwrap_or(true) {
                continue;
            }
            match journal.set(&name.path(), STOPPED) {
                Ok(_) => stopped.push(name.path()),
                Err(ChangeError::File(FileError::Missing { .. })) => drop(journal.forget(&name.path())),
                Err(error) => return Err(error.into()),
            }
        }
    }
    let is_there = root.path(&format!("proc/{process}")).is_dir();
    Ok(match (stopped.is_empty(), is_there) {
        (false, _) => Frozen::Told,
        (true, true) => Frozen::Foreign,
        (true, false) => Frozen::Gone,
    })
}
