//! A log on disk with a bound on its size: segments that follow each other, of which the oldest go.
//!
//! A reader of a segment must not need those before it, so each begins with a line that the writer
//! gives: for a policy, its state. The lines' meaning is the writer's affair.
//!
//! Invariants:
//! - A run takes no more than `size x kept` bytes and one line.
//! - Files are readable by their owner alone, since they show how a service is used.

use os::{SafeError, SafeFolder};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentBounds {
    /// A segment is closed at this size, bytes.
    pub size: usize,
    pub kept: u64,
}

/// The log of one instance: `NAME.000042.jsonl` and so on.
#[derive(Debug)]
pub struct RotatingLog {
    folder: PathBuf,
    instance: String,
    bounds: SegmentBounds,
    number: u64,
    file: BufWriter<File>,
    size: usize,
}

impl RotatingLog {
    /// Makes the folder if need be, and begins the first segment with the line `first`.
    pub fn begin(folder: &Path, instance: &str, bounds: SegmentBounds, first: &str) -> io::Result<Self> {
        SafeFolder::make(folder, 0o700).map_err(SafeError::into_io)?;
        let file = open(folder, instance, 0)?;
        let (folder, instance) = (folder.to_owned(), instance.to_owned());
        let mut segments = Self { folder, instance, bounds, number: 0, file, size: 0 };
        segments.write(first)?;
        Ok(segments)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn write(&mut self, line: &str) -> io::Result<()> {
        self.size += line.len() + 1;
        writeln!(self.file, "{line}")
    }

    /// True when it is time for [`Self::rotate`].
    pub fn is_full(&self) -> bool {
        self.size >= self.bounds.size
    }

    /// Closes the segment, and begins the next with the line `first`.
    pub fn rotate(&mut self, first: &str) -> io::Result<()> {
        self.file.flush()?;
        self.number += 1;
        self.file = open(&self.folder, &self.instance, self.number)?;
        self.size = 0;
        if let Some(oldest) = self.number.checked_sub(self.bounds.kept) {
            let gone = path(&self.folder, &self.instance, oldest);
            let _ = SafeFolder::of_file(&gone, None).and_then(|(folder, name)| folder.remove(name));
        }
        self.write(first)
    }

    /// Brings all lines into the files.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open(folder: &Path, instance: &str, number: u64) -> io::Result<BufWriter<File>> {
    let path = path(folder, instance, number);
    let (folder, name) = SafeFolder::of_file(&path, None).map_err(SafeError::into_io)?;
    let file = folder.overwrite(name, 0o600).map_err(SafeError::into_io)?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}

fn path(folder: &Path, instance: &str, number: u64) -> PathBuf {
    folder.join(format!("{instance}.{number:06}.jsonl"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_oldest_go_and_each_begins_with_its_own_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let mut segments =
            RotatingLog::begin(&folder, "a", SegmentBounds { size: 100, kept: 3 }, "first 0").unwrap();
        for line in 0..200 {
            segments.write(&format!("line {line}")).unwrap();
            if segments.is_full() {
                segments.rotate(&format!("first {}", line + 1)).unwrap();
            }
        }
        segments.flush().unwrap();
        let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names.len(), 3);
        for name in &names {
            let text = fs::read_to_string(name).unwrap();
            assert!(text.starts_with("first ") && text.len() < 120, "{text}");
            assert_eq!(fs::metadata(name).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
