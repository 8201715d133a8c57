//! A JDK's `java`, started by root for a process of another user: that user may have written it.
//!
//! Invariants. The file is the one that was examined, not one that took its name since. It runs as
//! that user, without other groups, and can gain no privilege (`PR_SET_NO_NEW_PRIVS`). Its session
//! is its own, so it has no terminal that it could type into. It inherits nothing of this
//! environment. It ends with this thread, or when its time is over. A bounded part of its output is
//! kept, without terminal control sequences.

use super::JvmError;
use linux::{EndsWithParent as _, printable_name};
use machine::Duration;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The program, as that user. It finds its own JDK by `name`.
pub(super) fn java(program: &File, name: &Path, uid: u32, gid: u32) -> Command {
    // The descriptor closes by itself as soon as the program is found by it.
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0(name).env_clear().current_dir("/").stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        // All other groups go, too: the standard library sees to that when root changes the user.
        command.uid(uid).gid(gid);
    }
    command.alone()
}

trait Alone {
    fn alone(self) -> Command;
}

impl Alone for Command {
    fn alone(mut self) -> Command {
        let in_child = || {
            rustix::process::setsid()?;
            rustix::thread::set_no_new_privs(true)?;
            Ok(())
        };
        // SAFETY: two system calls, no allocation, no lock: all permitted between fork and exec.
        unsafe { self.pre_exec(in_child) };
        // Last, for a change of the user takes it away.
        self.ends_with_parent();
        self
    }
}

/// Runs it to its end, `limit` at the most; returns its output where it failed.
pub(super) fn run(
    command: &mut Command,
    what: &'static str,
    java: &Path,
    limit: Duration,
) -> Result<(), JvmError> {
    let failed = |source| JvmError::Io { path: java.to_owned(), source };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let said = [heard(child.stderr.take()), heard(child.stdout.take())];
    let over = linux::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(Some(status)),
            Ok(None) if linux::now() > over => break Ok(None),
            Ok(None) => std::thread::sleep(LOOK),
            Err(cause) => break Err(cause),
        }
    };
    let ended = matches!(status, Ok(Some(_)));
    if !ended {
        end(&mut child);
    }
    let status = status.map_err(failed)?;
    if status.is_some_and(|status| status.success()) {
        return Ok(());
    }
    // Children of its own may hold the pipes open.
    let last = linux::now() + Duration::from_secs(1);
    while said.iter().any(|said| Arc::strong_count(said) > 1) && linux::now() < last {
        std::thread::sleep(LOOK);
    }
    let text: Vec<u8> = said
        .iter()
        .flat_map(|said| said.lock().expect("no thread panics while holding it").clone())
        .collect();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(LINES);
    let cut = |line: &str| printable_name(&line.chars().take(LINE_CHARS).collect::<String>());
    let lines: Vec<String> = lines.map(cut).collect();
    let said = match status {
        None => format!("it did not end within {limit}"),
        Some(status) if lines.is_empty() => status.to_string(),
        Some(_) => lines.join("; "),
    };
    Err(JvmError::Refused { what, said })
}

/// It leads a group, and is not waited for yet: the number is its own.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// The beginning of its output, as it comes; the rest is read and dropped, so that it never blocks
/// on us.
fn heard<R: Read + Send + 'static>(pipe: Option<R>) -> Arc<Mutex<Vec<u8>>> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&said);
    std::thread::spawn(move || {
        let Some(pipe) = pipe else { return };
        let mut kept = Kept(&hears);
        let _ = io::copy(&mut { pipe }, &mut kept);
    });
    said
}

struct Kept<'a>(&'a Mutex<Vec<u8>>);

impl io::Write for Kept<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().expect("no thread panics while holding it");
        let room = KEPT.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const KEPT: usize = 64 << 10;
const LINES: usize = 3;
const LINE_CHARS: usize = 300;
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
