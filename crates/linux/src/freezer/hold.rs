//! One holder per group: a lock in `/run/roost` that ends with its holder.

use super::FreezerError;
use super::place::Place;
use crate::Root;
use crate::lock::{FileLock, Refusal, run_folder, take_passing};
use crate::root::FileError;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// The lock of one group. The file goes with it.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    _lock: FileLock,
}

impl Lock {
    pub(super) fn take(root: &Root, unit: &str, place: &Place, holder: &str) -> Result<Self, FreezerError> {
        let name = match place {
            // A cgroup's inode is its number, and the device identifies the tree.
            Place::V2(folder) | Place::V1(folder) => {
                let about = fs::metadata(root.path(folder))
                    .map_err(|cause| FileError::unreadable(&root.path(folder), cause))?;
                format!("frozen-{}-{}.lock", about.dev(), about.ino())
            }
            Place::Family(process) => format!("stopped-{process}.lock"),
        };
        let path = run_folder(root)?.join(name);
        match take_passing(&path, holder) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(Refusal::Taken(holder)) => Err(FreezerError::Held { unit: unit.to_owned(), holder, path }),
            Err(refusal) => Err(refusal.at(path).into()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
