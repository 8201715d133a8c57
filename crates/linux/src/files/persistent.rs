//! A kernel file that is read again and again through one descriptor. Opening takes longer than
//! reading, and closing costs the kernel a grace period and with it some CPU a wake-up.
//!
//! Invariants:
//! - A reading is the file's present text, or an error.
//! - A descriptor dies with the process, cgroup or CPU that its file belongs to, and reading it
//!   fails. Then the path is opened once more, for another may have its name since.
//!
//! A file on a disk that is replaced does not die: this type is for kernel files only.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// Bytes of one call. The kernel fills the buffer if it can (`fs/seq_file.c`): a shorter read is
/// the last.
const AT_ONCE: usize = 4096;

#[derive(Debug)]
pub(crate) struct PersistentFile {
    path: PathBuf,
    file: Option<File>,
}

impl PersistentFile {
    /// The file at `path`, opened at the first reading.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// The present text, without the line feed at its end.
    pub(crate) fn read(&mut self) -> io::Result<String> {
        if let Some(Ok(text)) = self.file.as_ref().map(text_of) {
            return Ok(text);
        }
        self.file = None;
        text_of(self.file.insert(File::open(&self.path)?))
    }
}

/// The whole text of an open kernel file, without the line feed at its end.
pub(crate) fn text_of(file: &File) -> io::Result<String> {
    let (mut bytes, mut part) = (Vec::new(), [0; AT_ONCE]);
    loop {
        let read = file.read_at(&mut part, bytes.len() as u64)?;
        bytes.extend_from_slice(&part[..read]);
        if read < part.len() {
            return Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndsWithParent as _;

    #[test]
    fn a_process_that_has_ended_is_an_error_and_no_later_one() {
        let mut child = std::process::Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
        let mut kept = PersistentFile::new(format!("/proc/{}/comm", child.id()).into());
        // The child is this program until its exec.
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while kept.read().unwrap() != "sleep" {
            assert!(std::time::Instant::now() < patience, "{:?}", kept.read());
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(kept.read().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn one_descriptor_reads_what_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut kept = PersistentFile::new(path.clone());
        assert_eq!(kept.read().unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(kept.read().unwrap(), "one");
        std::fs::write(&path, "another\n").unwrap();
        let other = folder.path().join("other");
        std::fs::rename(&path, &other).unwrap();
        assert_eq!(kept.read().unwrap(), "another", "it was not opened again");
        std::fs::write(&other, "long ".repeat(AT_ONCE)).unwrap();
        assert_eq!(kept.read().unwrap().len(), 5 * AT_ONCE - 1);
    }
}
