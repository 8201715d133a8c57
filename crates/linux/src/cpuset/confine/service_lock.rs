//! One holder per service: a lock for each of its processes, as each CPU has one.
//!
//! Two programs that confine one service would each record the other's CPUs as the ones to restore.
//! The lock of a CPU stays for good; processes are many, so these files go with their holder.

use super::ConfineError;
use crate::Root;
use crate::lock::{FileLock, Refusal, run_folder, take_passing};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct ServiceLocks(Vec<(PathBuf, FileLock)>);

impl ServiceLocks {
    /// Takes the locks of all `processes` or of none.
    pub(super) fn take(
        root: &Root,
        processes: &BTreeMap<u32, u64>,
        holder: &str,
    ) -> Result<Self, ConfineError> {
        let folder = run_folder(root)?;
        let mut locks = Self(Vec::new());
        for &process in processes.keys() {
            let path = folder.join(format!("process{process}.lock"));
            let lock = match take_passing(&path, holder) {
                Ok(lock) => lock,
                Err(Refusal::Taken(holder)) => return Err(ConfineError::Held { process, holder, path }),
                Err(refusal) => return Err(refusal.at(path).into()),
            };
            locks.0.push((path, lock));
        }
        Ok(locks)
    }
}

impl Drop for ServiceLocks {
    fn drop(&mut self) {
        for (path, _lock) in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
