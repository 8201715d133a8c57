//! `cgroup.events` of a group, by an open descriptor: it is read on the way to each thaw, and
//! critical work waits for that.

use crate::Root;
use crate::files::persistent::PersistentFile;
use std::cell::RefCell;

#[derive(Debug)]
pub(super) struct Events(RefCell<PersistentFile>);

impl Events {
    pub(super) fn of(root: &Root, folder: &str) -> Self {
        Self(RefCell::new(PersistentFile::new(root.path(&format!("{folder}/cgroup.events")))))
    }

    /// True if all its processes stand still, by a freeze of it or of a group above it.
    pub(super) fn read_frozen(&self) -> bool {
        let read = self.0.borrow_mut().read();
        read.is_ok_and(|text| text.lines().any(|line| line == "frozen 1"))
    }
}
