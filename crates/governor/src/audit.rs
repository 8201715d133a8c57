//! Who changed what, when, from what to what, why and by which policy: a line for each change.

use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A change, or something else that an operator must know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Seconds since 1970.
    pub at_unix_s: f64,
    /// The service.
    pub service: String,
    /// What was changed: `cpus`, `idle limit of cpu3`, `goal`.
    pub what: String,
    /// What it was.
    pub old: String,
    /// What it is.
    pub new: String,
    /// Why.
    pub why: String,
    /// By which policy, or by whom.
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
#[derive(Debug, Default)]
pub struct Audit {
    file: Option<File>,
}

impl Audit {
    /// Appends to `path`, which only its owner may read: it tells how a service is used.
    pub fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        Ok(Self { file: Some(file) })
    }

    /// Writes one. A disk that is full is told once, and ends the file, not the daemon.
    pub fn write(&mut self, entry: &Entry) -> Option<String> {
        let file = self.file.as_mut()?;
        let mut line = serde_json::to_string(entry).expect("plain text and numbers");
        line.push('\n');
        let error = file.write_all(line.as_bytes()).err()?;
        self.file = None;
        Some(format!("the audit ends here: {error}"))
    }
}

/// Now, as entries write it.
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

    #[test]
    fn a_full_disk_is_told_once() {
        let mut audit = Audit { file: Some(OpenOptions::new().write(true).open("/dev/full").unwrap()) };
        assert!(audit.write(&entry()).unwrap().contains("the audit ends here"));
        assert_eq!(audit.write(&entry()), None);
    }
}
