//! Learned load limits, kept from one run to the next (`--state FILE`).
//!
//! A store that restarts at night would otherwise take the night's load for its peak, and keep
//! every core awake in the morning until it has learned better. The file is small JSON, written
//! whole to a temporary name, brought to the disk and renamed, so that a crash leaves the old one
//! or the new one.
//!
//! **It is a hint.** A file that cannot be understood costs its contents and never the start: it is
//! renamed to `FILE.bad`, a line says so, and the limits are learned anew. That holds for an empty
//! file, one of another program or of an older form, one without an end, and one whose figures
//! cannot be. A place that is no file at all (a device, a pipe, a folder) is neither read nor
//! renamed. A place that cannot be written is found at the start, where the operator looks.

use crate::config::Log;
use crate::shared::Port;
use linux::{SafeError, SafeFolder};
use machine::Rate;
use policy::peafowl::LearnedLimit;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read as _, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The form of the file. 1 held the highest count of requests, whatever they cost.
const VERSION: u32 = 2;

/// No state file is larger: a thousand workers need a tenth of it.
const LARGEST: u64 = 1 << 20;

/// No worker serves more requests per second.
const FASTEST: f64 = 1e9;

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It exists but cannot be read.
    #[error("cannot read the state file {}: {cause}\nhint: --state takes a file that this user may read \
             and write", .path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
    #[error("cannot write the state file {}: {cause}\nhint: --state takes a file in a folder that exists \
             and that this user may write", .path.display())]
    Unwritable { path: PathBuf, cause: std::io::Error },
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    /// In order of the workers' numbers.
    limits: Vec<LearnedLimit>,
}

/// The state file, if one is kept, and its last contents.
#[derive(Debug)]
pub(crate) struct Learned {
    path: Option<PathBuf>,
    limits: Vec<LearnedLimit>,
    complained: bool,
}

impl Learned {
    /// Reads the file; one that does not exist yet is empty, one that is no state file is set
    /// aside. It is written at once, so that a place which cannot be written is known before it is
    /// needed.
    pub(crate) fn load(path: Option<&Path>, log: &Log) -> Result<Self, StateError> {
        let Some(path) = path else {
            return Ok(Self { path: None, limits: Vec::new(), complained: false });
        };
        let limits = match read(path) {
            Ok(bytes) => match learned_limits(&bytes) {
                Ok(limits) => limits,
                Err(cause) => {
                    set_aside(path, &cause, log)?;
                    Vec::new()
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(cause) => return Err(StateError::Unreadable { path: path.to_owned(), cause }),
        };
        let learned = Self { path: Some(path.to_owned()), limits, complained: false };
        replace(path, &learned.text())
            .map_err(|cause| StateError::Unwritable { path: path.to_owned(), cause })?;
        Ok(learned)
    }

    /// The limits that the worker of that number learned in earlier runs.
    pub(crate) fn limit(&self, worker: usize) -> Option<LearnedLimit> {
        self.limits.get(worker).copied()
    }

    /// Forgets, in the file as well.
    pub(crate) fn forget(&mut self, log: &Log) {
        self.limits.clear();
        self.write(log);
    }

    /// Writes the workers' learned limits, if there are new ones.
    pub(crate) fn save(&mut self, ports: &[Port], log: &Log) {
        let limits: Vec<_> = ports.iter().map(|port| port.published().learned).collect();
        if limits != self.limits {
            self.limits = limits;
            self.write(log);
        }
    }

    fn text(&self) -> Vec<u8> {
        let file = File { version: VERSION, limits: self.limits.clone() };
        serde_json::to_vec_pretty(&file).expect("plain figures")
    }

    fn write(&mut self, log: &Log) {
        let Some(path) = &self.path else { return };
        if let Err(error) = replace(path, &self.text())
            && !std::mem::replace(&mut self.complained, true)
        {
            log.say(&format!(
                "cannot write the state file {}: {error}; limits are learned anew after a restart",
                path.display()
            ));
        }
    }
}

/// All that a file holds, and a little more than it may hold of one that does not end. A device or
/// a pipe is not waited for.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The limits that a state file holds, in order of the workers' numbers; or, in one line, why it is
/// none.
pub fn learned_limits(bytes: &[u8]) -> Result<Vec<LearnedLimit>, String> {
    /// Read first: a file of another version says so, and not that it has wrong keys.
    #[derive(Deserialize)]
    struct Form {
        version: u32,
    }
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes"));
    }
    let form: Form = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if form.version != VERSION {
        return Err(format!("it has version {}, this is version {VERSION}", form.version));
    }
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let can_be = |limit: &LearnedLimit| {
        limit.is_sound()
            && limit.limit().is_none_or(|limit| limit > Rate::ZERO && limit.as_per_second() <= FASTEST)
    };
    match file.limits.iter().position(|limit| !can_be(limit)) {
        Some(worker) => Err(format!("worker {worker} cannot have learned such figures")),
        None => Ok(file.limits),
    }
}

/// Out of the way, so that the next start does not find it again, and kept, so that a person can
/// look.
fn set_aside(path: &Path, cause: &str, log: &Log) -> Result<(), StateError> {
    let mut bad = path.as_os_str().to_owned();
    bad.push(".bad");
    let renamed = SafeFolder::of_file(path, None)
        .and_then(|(folder, name)| folder.rename(name, Path::new(&bad).file_name().unwrap_or_default()));
    renamed.map_err(|cause| StateError::Unwritable { path: path.to_owned(), cause: cause.into_io() })?;
    log.say(&format!(
        "{} is no state file of this version of roost serve: {cause}; it is now {}, and limits are learned \
         anew",
        path.display(),
        Path::new(&bad).display()
    ));
    Ok(())
}

/// Writes beside the file and takes its place. A link that lies there is not followed.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let written = SafeFolder::of_file(path, None)
        .and_then(|(folder, name)| folder.replace(name, 0o600, |file| file.write_all(bytes)));
    written.map_err(SafeError::into_io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
    use std::sync::{Arc, Mutex};

    fn log() -> (Log, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        (Log::new(move |line| kept.lock().unwrap().push(line.to_owned())), lines)
    }

    fn good(limit: f64) -> String {
        let figures = format!(r#"{{"limit":{limit:e},"samples":1,"mean_per_s":1.0,"variance":0.0}}"#);
        format!(r#"{{"version":2,"limits":[{figures}]}}"#)
    }

    #[test]
    fn whatever_is_no_state_file_is_set_aside_and_the_limits_are_learned_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let bad = folder.path().join("state.bad");
        let large = format!("{}{}", " ".repeat(2 << 20), good(5.0));
        let old =
            r#"{"version":1,"limits":[{"limit":675000.0,"samples":8,"mean_per_s":1.0,"variance":0.0}]}"#;
        let [low, high, none] = [good(-5.0), good(1e308), good(0.0)];
        let variance = good(5.0).replace("\"variance\":0.0", "\"variance\":-1.0");
        for content in [
            "",
            "{}",
            "[1]",
            "\0\0\0\0",
            "{\"version\":2,\"lim",
            &large,
            old,
            &low,
            &high,
            &none,
            &variance,
            r#"{"version":9,"limits":[]}"#,
            r#"{"version":2,"limits":[],"more":1}"#,
        ] {
            fs::write(&path, content).unwrap();
            let (log, lines) = log();
            let learned = Learned::load(Some(&path), &log).unwrap();
            assert!(learned.limit(0).is_none(), "{content:.60}");
            let lines = lines.lock().unwrap();
            assert!(lines.len() == 1 && lines[0].contains("state.bad"), "{content:.60}: {lines:?}");
            assert_eq!(fs::read_to_string(&bad).unwrap(), content, "it is kept as it was");
            let (log, lines) = self::log();
            Learned::load(Some(&path), &log).unwrap();
            assert!(lines.lock().unwrap().is_empty(), "the next start finds a good one");
        }
        fs::write(&path, good(5.0)).unwrap();
        let limit =
            Learned::load(Some(&path), &log().0).unwrap().limit(0).and_then(|learned| learned.limit());
        assert_eq!(limit, Some(Rate::per_second(5.0)));
    }

    #[test]
    fn what_is_no_file_is_neither_read_nor_moved_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [Path::new("/dev/zero"), &pipe, folder.path()] {
            let error = Learned::load(Some(path), &log().0).unwrap_err().to_string();
            assert!(error.contains("no file") && error.contains("hint"), "{error}");
        }
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_folder_that_does_not_exist_is_found_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let error = Learned::load(Some(&folder.path().join("none/state")), &log().0).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("hint"), "{error}");
    }

    #[test]
    fn a_link_where_the_temporary_file_shall_be_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, folder.path().join(format!("state.{}.new", std::process::id()))).unwrap();
        Learned::load(Some(&path), &log().0).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn what_a_killed_run_wrote_half_of_is_not_read_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let quiet = Log::new(|line| panic!("{line}"));
        Learned::load(Some(&path), &quiet).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(folder.path().join(".state.0123456789abcdef.new"), &whole[..whole.len() / 2]).unwrap();
        Learned::load(Some(&path), &quiet).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_learned_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut limit = LearnedLimit::default();
        limit.observe(machine::Rate::per_second(1234.5), true, &policy::peafowl::Params::default());
        let quiet = Log::new(|line| panic!("{line}"));
        let mut learned = Learned::load(Some(&path), &quiet).unwrap();
        learned.limits = vec![limit];
        learned.write(&quiet);
        let again = Learned::load(Some(&path), &quiet).unwrap();
        assert_eq!(again.limit(0), Some(limit));
        assert_eq!(again.limit(1), None);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
