//! The right to be the arbiter of a machine: `run/roost/arbiter.lock`.

use crate::lock::{FileLock, LockError, Refusal, run_folder, take};
use crate::root::Root;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The right to be the arbiter. It is taken with the first knob, and held until the last handle is
/// dropped.
#[derive(Clone, Debug)]
pub struct ArbiterLock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: Root,
    name: String,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    lock: FileLock,
    /// The last holder was killed, or ended while other processes asked it.
    is_inherited: bool,
}

impl ArbiterLock {
    /// The lock of this machine, for a process with this name.
    pub fn new(root: &Root, name: &str) -> Self {
        Self(Arc::new(Inner { root: root.clone(), name: name.to_owned(), held: Mutex::default() }))
    }

    /// Takes the lock once. The error names the process that has it.
    pub fn take(&self) -> Result<(), LockError> {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        let path = run_folder(&self.0.root)?.join("arbiter.lock");
        let is_inherited = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        match take(&path, &self.0.name) {
            Ok(lock) => *held = Some(Held { lock, is_inherited }),
            Err(Refusal::Taken(holder)) => return Err(LockError::Arbiter { holder, path }),
            Err(refusal) => return Err(refusal.at(path)),
        }
        Ok(())
    }

    pub(super) fn root(&self) -> &Root {
        &self.0.root
    }

    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// True if other processes may have asked the last holder, and have not asked this one yet.
    pub(super) fn is_inherited(&self) -> bool {
        let held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().is_some_and(|held| held.is_inherited)
    }

    /// Records that no other process asks anything, so that the next holder need not wait.
    pub(super) fn leave_clean(&self) {
        if let Some(held) = &*self.0.held.lock().unwrap_or_else(PoisonError::into_inner) {
            // On failure the next holder waits for a moment without need.
            let _ = held.lock.0.set_len(0);
        }
    }
}

/// True if the holder of this lock releases it as soon as a daemon listens.
pub(crate) fn yields(lock: &Path) -> bool {
    fs::read_to_string(lock).is_ok_and(|text| text.lines().any(|line| line == YIELDS))
}

/// The line in a CPU's lock whose holder yields.
pub(crate) const YIELDS: &str = "yields to a daemon";
