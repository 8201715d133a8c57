//! The log of changes: a line for each, with author, time, old value, new value, reason and policy.

use linux::{SafeError, SafeFolder};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A change, or something else that an operator must know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Seconds since 1970.
    pub at_unix_s: f64,
    pub service: String,
    /// The changed setting: `cpus`, `idle limit of cpu3`, `goal`.
    pub what: String,
    pub old: String,
    pub new: String,
    pub why: String,
    /// The policy or the person that made the change.
    pub by: String,
}

impl Entry {
    /// For a person, on one line.
    pub fn line(&self) -> String {
        let Self { service, what, old, new, why, .. } = self;
        format!("{service}: {what} {old} -> {new} ({why})")
    }
}

/// Where entries go.
///
/// Lines that cannot be written are counted, and the count goes into the file as soon as it takes
/// lines again: a disk is full for an hour, and the audit of a daemon is for years. After a
/// rotation (logrotate) a new file is begun under the same name.
#[derive(Debug, Default)]
pub struct Audit {
    path: PathBuf,
    file: Option<File>,
    /// Since the last one that was written.
    lost: u64,
    /// The last line is not complete.
    is_torn: bool,
}

impl Audit {
    /// Appends to `path`, which only its owner may read: it tells how a service is used.
    pub fn append_to(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: Some(open(path)?), lost: 0, is_torn: false })
    }

    /// Writes one. Says so when entries begin to be lost, and when they are written again.
    pub fn write(&mut self, entry: &Entry) -> Option<String> {
        if self.path.as_os_str().is_empty() {
            return None;
        }
        match self.try_write(entry) {
            Ok(()) if self.lost == 0 => None,
            Ok(()) => {
                let lost = std::mem::take(&mut self.lost);
                Some(format!("the audit goes on; {lost} entries before this one are not in it"))
            }
            Err(error) => {
                self.lost += 1;
                (self.lost == 1).then(|| {
                    let path = self.path.display();
                    format!("the audit lacks what is done from here on: cannot append to {path}: {error}")
                })
            }
        }
    }

    fn try_write(&mut self, entry: &Entry) -> io::Result<()> {
        let named = fs::metadata(&self.path).map(|file| (file.dev(), file.ino()));
        let ours = self.file.as_ref().and_then(|file| file.metadata().ok());
        if ours.map(|file| (file.dev(), file.ino())) != named.ok() {
            // Until then the old one is written: its descriptor is good.
            match open(&self.path) {
                Ok(file) => (self.file, self.is_torn) = (Some(file), false),
                Err(error) if self.file.is_none() => return Err(error),
                Err(_) => {}
            }
        }
        let Some(mut file) = self.file.as_ref() else { return Err(io::ErrorKind::NotFound.into()) };
        let mut text = if self.is_torn { "\n".to_owned() } else { String::new() };
        if self.lost > 0 {
            let gap = Entry {
                service: "-".to_owned(),
                what: "audit".to_owned(),
                old: "-".to_owned(),
                new: format!("{} entries are missing here", self.lost),
                why: "they could not be written".to_owned(),
                by: "roost".to_owned(),
                ..entry.clone()
            };
            text += &(serde_json::to_string(&gap).expect("plain text and numbers") + "\n");
        }
        text += &(serde_json::to_string(entry).expect("plain text and numbers") + "\n");
        // A full disk takes a part.
        let length = file.metadata()?.len();
        let written = file.write_all(text.as_bytes());
        if written.is_err() {
            self.is_torn = file.metadata().map_or(true, |now| now.len() != length) || self.is_torn;
        } else {
            self.is_torn = false;
        }
        written
    }
}

fn open(path: &Path) -> io::Result<File> {
    SafeFolder::keep(path, 0o600).map_err(SafeError::into_io)
}

pub(crate) fn now_unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn entry() -> Entry {
        Entry {
            at_unix_s: 1.5,
            service: "cache".into(),
            what: "cpus".into(),
            old: "0-3".into(),
            new: "0-1".into(),
            why: "there is room: 210us".into(),
            by: "carb".into(),
        }
    }

    #[test]
    fn entries_are_lines_that_only_their_owner_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        for _ in 0..2 {
            assert_eq!(Audit::append_to(&path).unwrap().write(&entry()), None);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains(r#""old":"0-3","new":"0-1","why":"there is room: 210us""#), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_disk_that_was_full_is_told_and_the_audit_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut audit = Audit::append_to(&path).unwrap();
        let told = audit.write(&entry()).unwrap();
        assert!(told.contains("No space left on device"), "{told}");
        assert_eq!(audit.write(&entry()), None, "told once");
        assert_eq!(audit.write(&entry()), None);
        std::fs::remove_file(&path).unwrap();
        let told = audit.write(&entry()).unwrap();
        assert!(told.contains("goes on; 3 entries"), "{told}");
        assert_eq!(audit.write(&entry()), None);
        let lines = lines(&path);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["new"], "3 entries are missing here");
        assert_eq!(lines[2]["new"], "0-1");
    }

    #[test]
    fn a_line_that_a_full_disk_cut_off_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut audit = Audit::append_to(&path).unwrap();
        audit.write(&entry());
        audit.lost = 1;
        audit.is_torn = true;
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"at_un").unwrap();
        audit.write(&entry());
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        assert_eq!((text.lines().count(), text.lines().filter(whole).count()), (4, 3), "{text}");
    }

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
        let mut audit = Audit::append_to(&path).unwrap();
        assert_eq!(audit.write(&entry()), None);
        std::fs::rename(&path, &moved).unwrap();
        for _ in 0..2 {
            assert_eq!(audit.write(&entry()), None);
        }
        assert_eq!((lines(&moved).len(), lines(&path).len()), (1, 2));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
