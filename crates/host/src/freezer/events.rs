//! `cgroup.events` of a group, whose descriptor is kept: it is read on the way to each thaw, for which critical work waits.

use crate::Root;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// The file.
#[derive(Debug)]
pub(super) struct Events {
    path: PathBuf,
    file: RefCell<Option<File>>,
}

/// It has two lines.
const TEXT_BYTES_MAX: usize = 256;

impl Events {
    /// Of this group.
    pub(super) fn of(root: &Root, folder: &str) -> Self {
        Self { path: root.path(&format!("{folder}/cgroup.events")), file: RefCell::new(None) }
    }

    /// True if everybody in it stands still, by its own wish or by that of one above it.
    pub(super) fn read_frozen(&self) -> bool {
        let mut text = [0; TEXT_BYTES_MAX];
        let mut kept = self.file.borrow_mut();
        let mut read = kept.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        if read.is_none() {
            // A descriptor dies with its group, which may have come back since.
            *kept = File::open(&self.path).ok();
            read = kept.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        }
        text[..read.unwrap_or(0)].split(|byte| *byte == b'\n').any(|line| line == b"frozen 1")
    }
}
