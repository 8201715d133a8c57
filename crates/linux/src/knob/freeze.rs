//! The frozen state of a control group of version 1, or of a process where there is no freezer.

use crate::processes::threads::{self, is_gone};
use crate::root::{FileError, overwrite};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io;
use std::path::PathBuf;

/// The two texts of `freezer.state`.
pub(crate) const FROZEN: &str = "FROZEN";
const THAWED: &str = "THAWED";

/// The texts of a process: stopped by a signal, or not.
pub(crate) const STOPPED: &str = "stopped";
const RUNNING: &str = "running";

/// The beginning of a process's path in a journal.
const PREFIX: &str = "stopped/";

/// `freezer.state` of version 1. Its text is the state in force, also by groups above, and is
/// `FREEZING` for a while; the group's own request stands beside it in `freezer.self_freezing`.
#[derive(Debug)]
pub(super) struct StateKnob {
    path: PathBuf,
}

impl StateKnob {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn read(&self) -> Result<String, FileError> {
        let path = self.path.with_file_name("freezer.self_freezing");
        let text = fs::read_to_string(&path).map_err(|cause| unreadable(&path, cause))?;
        Ok(if text.trim() == "0" { THAWED } else { FROZEN }.to_owned())
    }

    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        overwrite(&self.path, value).map_err(|cause| match is_removed(&cause) {
            true => FileError::Missing { path: self.path.clone() },
            false => FileError::unwritable(&self.path, value, cause),
        })
    }
}

fn unreadable(path: &std::path::Path, cause: io::Error) -> FileError {
    if is_removed(&cause) {
        FileError::Missing { path: path.to_owned() }
    } else {
        FileError::unreadable(path, cause)
    }
}

/// The group was removed while its file was open.
fn is_removed(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// One process, for good: its number and when it began, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StopName {
    pub(crate) process: u32,
    began: u64,
}

impl StopName {
    /// The process that has this number now.
    pub(crate) fn now(process: u32) -> io::Result<Self> {
        Ok(Self { process, began: threads::began(process, process)? })
    }

    pub(crate) fn path(self) -> String {
        format!("{PREFIX}{}:{}", self.process, self.began)
    }

    pub(crate) fn from_path(path: &str) -> Option<Self> {
        // The integer parser alone is not enough: it takes a plus sign, and a path has one
        // spelling.
        let is_plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let (process, began) = path.strip_prefix(PREFIX)?.split_once(':')?;
        Some(Self {
            process: Some(process).filter(is_plain)?.parse().ok()?,
            began: Some(began).filter(is_plain)?.parse().ok()?,
        })
    }
}

/// True if a signal stopped a process. A stop takes effect a little after it was sent, so a sent
/// one counts.
#[derive(Debug)]
pub(super) struct StopKnob {
    name: StopName,
}

impl StopKnob {
    pub(super) fn new(name: StopName) -> Self {
        Self { name }
    }

    pub(super) fn read(&self) -> Result<String, FileError> {
        let unreadable =
            |cause: io::Error| self.error(cause, |path, cause| FileError::unreadable(&path, cause));
        if threads::began(self.name.process, self.name.process).map_err(unreadable)? != self.name.began {
            return Err(FileError::Missing { path: self.path() });
        }
        let is_stopped = is_stopped(self.name.process).map_err(unreadable)?;
        Ok(if is_stopped { STOPPED } else { RUNNING }.to_owned())
    }

    /// Through a descriptor of the process, so that no other can be meant.
    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        let signal = if value == STOPPED { Signal::STOP } else { Signal::CONT };
        let unwritable = |cause: io::Error| {
            self.error(cause, |path, cause| FileError::Unwritable { path, value: value.to_owned(), cause })
        };
        let process = i32::try_from(self.name.process).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| FileError::Missing { path: self.path() })?;
        let descriptor =
            pidfd_open(process, PidfdFlags::empty()).map_err(|error| unwritable(error.into()))?;
        if threads::began(self.name.process, self.name.process).map_err(unwritable)? != self.name.began {
            return Err(FileError::Missing { path: self.path() });
        }
        pidfd_send_signal(&descriptor, signal).map_err(|error| unwritable(error.into()))
    }

    fn error(&self, cause: io::Error, otherwise: impl FnOnce(PathBuf, io::Error) -> FileError) -> FileError {
        if is_gone(&cause) { FileError::Missing { path: self.path() } } else { otherwise(self.path(), cause) }
    }

    /// For messages.
    fn path(&self) -> PathBuf {
        format!("/proc/{}/stat (stopped or running)", self.name.process).into()
    }
}

/// True for a process that a signal or a debugger stopped.
pub(crate) fn is_stopped(process: u32) -> io::Result<bool> {
    Ok(matches!(state(process)?, Some('T' | 't')))
}

/// True for a process that does nothing more by itself: it is stopped, or a zombie.
pub(crate) fn stands_still(process: u32) -> io::Result<bool> {
    Ok(matches!(state(process)?, Some('T' | 't' | 'Z' | 'X')))
}

/// True for a process that was told to stop and neither stands nor has the stop pending any more:
/// another program let it go on, for `SIGCONT` takes back a pending stop (`prepare_signal`).
pub(crate) fn is_let_go(process: u32) -> io::Result<bool> {
    // The pending signals first: a stop taken up in between makes it stand.
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    let pending = text.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let stop = 1 << (Signal::STOP.as_raw() - 1);
    Ok(pending & stop == 0 && !stands_still(process)?)
}

/// The third field of its `stat`.
fn state(process: u32) -> io::Result<Option<char>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    Ok(text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndsWithParent as _;
    use std::process::Command;

    #[test]
    fn a_process_is_stopped_and_goes_on_and_another_of_its_number_is_not_meant() {
        let mut child = Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
        let name = StopName::now(child.id()).unwrap();
        assert_eq!(StopName::from_path(&name.path()), Some(name));
        let knob = StopKnob::new(name);
        assert_eq!(knob.read().unwrap(), RUNNING);
        let until = |reads: &str| {
            while knob.read().unwrap() != reads {
                std::thread::yield_now();
            }
        };
        for _ in 0..100 {
            knob.write(STOPPED).unwrap();
            assert!(!is_let_go(child.id()).unwrap(), "pending, or taken up");
            until(STOPPED);
            assert!(!is_let_go(child.id()).unwrap());
            knob.write(RUNNING).unwrap();
            until(RUNNING);
            assert!(is_let_go(child.id()).unwrap());
        }
        let other = StopKnob::new(StopName { began: name.began + 1, ..name });
        assert!(matches!(other.read(), Err(FileError::Missing { .. })));
        assert!(matches!(other.write(STOPPED), Err(FileError::Missing { .. })));
        assert!(!is_stopped(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(knob.read(), Err(FileError::Missing { .. })));
    }
}
