//! One kernel file that can be read and written: its descriptor is kept open between uses.

use crate::files::persistent::text_of;
use crate::root::FileError;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct FileKnob {
    path: PathBuf,
    file: Option<File>,
}

impl FileKnob {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// The present text, without the line feed.
    pub(crate) fn read(&mut self) -> Result<String, FileError> {
        // Opened for reading alone if writing is not allowed, so that a refusal can still show the
        // text in force.
        self.with_file(text_of).map_err(|cause| FileError::unreadable(&self.path, cause))
    }

    /// Writes `value` and returns the file's text then.
    pub(crate) fn write(&mut self, value: &str) -> Result<String, FileError> {
        let line = format!("{value}\n");
        let result = self.with_file(|file| {
            file.write_all_at(line.as_bytes(), 0)?;
            // Only a plain file has a longer earlier text to cut off; the kernel ignores this for
            // its own.
            let _ = file.set_len(line.len() as u64);
            Ok(())
        });
        result.map_err(|cause| FileError::unwritable(&self.path, value, cause))?;
        self.read()
    }

    /// Runs `act` on the open file. A descriptor dies with its CPU (ENODEV after a hotplug): then
    /// once more on a new one.
    fn with_file<T>(&mut self, act: impl Fn(&File) -> io::Result<T>) -> io::Result<T> {
        if let Some(file) = &self.file {
            match act(file) {
                Err(cause) if is_stale(&cause) => {}
                result => return result,
            }
        }
        let file = match OpenOptions::new().read(true).write(true).open(&self.path) {
            Err(cause) if is_forbidden(&cause) => {
                return File::open(&self.path).and_then(|file| act(&file)).map_err(|second| {
                    // A descriptor for reading answers a write with EBADF; the reason is the
                    // refused opening.
                    if second.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error()) {
                        cause
                    } else {
                        second
                    }
                });
            }
            result => result?,
        };
        act(self.file.insert(file))
    }
}

fn is_stale(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

fn is_forbidden(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_value_leaves_nothing_of_the_longer_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("knob");
        std::fs::write(&path, "2147483646\n").unwrap();
        let mut knob = FileKnob::new(path.clone());
        assert_eq!(knob.read().unwrap(), "2147483646");
        assert_eq!(knob.write("n/a").unwrap(), "n/a");
        assert_eq!(knob.write("0").unwrap(), "0");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "0\n");
    }

    #[test]
    fn a_missing_file_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("knob");
        let mut knob = FileKnob::new(path.clone());
        assert!(matches!(knob.write("0"), Err(FileError::Missing { .. })));
        assert!(!path.exists());
    }
}
