//! `cgroup.events` of a group, whose descriptor is kept: it is read on the way to each thaw, for which critical work waits.

use crate::Root;
use crate::files::persistent::PersistentFile;
use std::cell::RefCell;

/// The file.
#[derive(Debug)]
pub(super) struct Events(RefCell<PersistentFile>);

impl Events {
    /// Of this group.
    pub(super) fn of(root: &Root, folder: &str) -> Self {
        Self(RefCell::new(PersistentFile::new(root.path(&format!("{folder}/cgroup.events")))))
    }

    /// True if everybody in it stands still, by its own wish or by that of one above it.
    pub(super) fn read_frozen(&self) -> bool {
        let read = self.0.borrow_mut().read();
        read.is_ok_and(|text| text.lines().any(|line| line == "frozen 1"))
    }
}
