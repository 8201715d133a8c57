//! Learned load limits, kept from one run to the next (`--state FILE`).
//!
//! A store that restarts at night would otherwise take the night's load for its peak, and keep every core awake in
//! the morning until it has learned better. The file is small JSON, written whole to a temporary name and renamed, so
//! that a crash leaves the old one or the new one.

use crate::config::Log;
use crate::shared::Port;
use policy::peafowl::LearnedLimit;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The form of the file; another number is refused.
const VERSION: u32 = 1;

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It exists but cannot be read.
    #[error("cannot read the state file {}: {cause}\nhint: --state takes a file that this user may read and write", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        cause: std::io::Error,
    },
    /// It is something else.
    #[error("{} is no state file of roost serve: {cause}\nhint: remove it to learn the limits anew", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    /// In order of the workers' numbers.
    limits: Vec<LearnedLimit>,
}

/// The state file, if one is kept, and what it last held.
#[derive(Debug)]
pub(crate) struct Learned {
    path: Option<PathBuf>,
    limits: Vec<LearnedLimit>,
    complained: bool,
}

impl Learned {
    /// Reads the file; one that does not exist yet is empty.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, StateError> {
        let limits = match path {
            None => Vec::new(),
            Some(path) => match fs::read_to_string(path) {
                Ok(text) => {
                    parse(&text).map_err(|cause| StateError::Foreign { path: path.to_owned(), cause })?
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                Err(cause) => return Err(StateError::Unreadable { path: path.to_owned(), cause }),
            },
        };
        Ok(Self { path: path.map(Path::to_owned), limits, complained: false })
    }

    /// What the worker of that number learned in earlier runs.
    pub(crate) fn limit(&self, worker: usize) -> Option<LearnedLimit> {
        self.limits.get(worker).copied()
    }

    /// Forgets, in the file as well.
    pub(crate) fn forget(&mut self, log: &Log) {
        self.limits.clear();
        self.write(log);
    }

    /// Writes what the workers have learned by now, if that is anything new.
    pub(crate) fn save(&mut self, ports: &[Port], log: &Log) {
        let limits: Vec<_> = ports.iter().map(|port| port.published().learned).collect();
        if limits != self.limits {
            self.limits = limits;
            self.write(log);
        }
    }

    fn write(&mut self, log: &Log) {
        let Some(path) = &self.path else { return };
        let file = File { version: VERSION, limits: self.limits.clone() };
        let text = serde_json::to_string_pretty(&file).expect("plain figures");
        if let Err(error) = replace(path, text.as_bytes())
            && !std::mem::replace(&mut self.complained, true)
        {
            log.say(&format!(
                "cannot write the state file {}: {error}; limits are learned anew after a restart",
                path.display()
            ));
        }
    }
}

fn parse(text: &str) -> Result<Vec<LearnedLimit>, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if file.version != VERSION {
        return Err(format!("it has version {}, this is version {VERSION}", file.version));
    }
    Ok(file.limits)
}

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    let written = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_empty_and_a_foreign_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert!(Learned::load(Some(&path)).unwrap().limit(0).is_none());
        for foreign in
            ["", "{}", "[1]", r#"{"version":9,"limits":[]}"#, r#"{"version":1,"limits":[],"more":1}"#]
        {
            fs::write(&path, foreign).unwrap();
            let error = Learned::load(Some(&path)).unwrap_err().to_string();
            assert!(error.contains("hint: remove it"), "{foreign}: {error}");
        }
    }

    #[test]
    fn what_was_learned_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut limit = LearnedLimit::default();
        limit.observe(machine::Rate::per_second(1234.5), true, &policy::peafowl::Params::default());
        let mut learned = Learned::load(Some(&path)).unwrap();
        learned.limits = vec![limit];
        learned.write(&Log::new(|line| panic!("{line}")));
        let again = Learned::load(Some(&path)).unwrap();
        assert_eq!(again.limit(0), Some(limit));
        assert_eq!(again.limit(1), None);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
