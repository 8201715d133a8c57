//! The daemon's Unix socket: `roost status`, `set`, `pause` and `resume`, leases, and the callers of
//! the planner of wake-ups.
//!
//! A client asks with one line of JSON, gets one line back, and the connection ends. Every user of
//! the machine may ask for the state. Only the daemon's own user and root may change anything: the
//! kernel's credentials of the peer (SO_PEERCRED) decide, and no content of the line.
//!
//! What always holds: a line is read to 4 KiB and no further, for a second and no longer. A peer
//! that sends nonsense gets an error and is closed. No peer delays the daemon's epochs, since a
//! thread of its own waits for all of them (`peers`). No other user delays the questions of root or
//! of the daemon's own user.

mod callers;
mod peers;

pub use callers::Callers;
pub(crate) use callers::{Arrivals, Caller};
pub use peers::{Asker, Heard, Reply};

use crate::config::Part;
use crate::controllers::cores::Status;
use crate::controllers::{ControllerReport, Refusal};
use crate::park::Lent;
use crate::socket::{self, Place};
use linux::arbiter::Asked;
use linux::arbiter::request::{Combined, Request, plain};
use machine::Goal;
use peers::Peers;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, BufRead as _, BufReader, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    Status,
    Set {
        service: String,
        set: Set,
    },
    /// Govern this, too, for as long as the connection lasts.
    Lease(Box<Part>),
    /// Combines this request with the others' for the CPUs, for as long as the connection lasts. It
    /// replaces the connection's earlier request.
    Knobs(Request),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Set {
    Goal(Goal),
    /// All cores, no limits, until `Resume`.
    Pause,
    Resume,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To `Status`: each service, those that are governed and, by name and reason, those that are
    /// not.
    Status {
        governed: Vec<Status>,
        /// Those that are not, with the reason.
        waiting: Vec<(String, String)>,
        /// The requests for the CPUs that services share, by process: this daemon's own, and those
        /// of the processes that it holds them for.
        asked: Vec<Asked>,
        controllers: Vec<ControllerReport>,
        /// The group that has the CPUs which no service needs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lent: Option<Lent>,
        dry_run: bool,
    },
    /// These are governed for as long as the connection lasts.
    Leased(Vec<String>),
    /// To `Knobs`.
    Combined(Combined),
    NotLeased(Refusal),
    Done,
    /// It is not done; the text says why.
    Refused(String),
    /// It is not done, since this user may only look.
    Denied(String),
}

/// A daemon at a control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub process: u32,
    /// Its program, and the words before its first flag.
    pub command: String,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.command, self.process)
    }
}

/// The daemon that listens at `path`, by the kernel's word on the other end.
pub fn running(path: &Path) -> Option<Running> {
    let stream = linux::connect_within(path, PATIENCE).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    let process = peer.pid.as_raw_nonzero().get().unsigned_abs();
    Some(Running::of(process))
}

impl Running {
    /// A process, by its program's name and the words before its first flag.
    pub fn of(process: u32) -> Self {
        let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let mut words = words.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        let program = words.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        let words = words.take_while(|word| !word.starts_with('-') && !word.is_empty());
        let command = std::iter::once(program).chain(words.map(|word| word.into_owned()));
        let command = command.collect::<Vec<_>>().join(" ");
        Self { process, command: linux::printable(&command).into_owned() }
    }
}

/// A connection over which a lease is asked for, and on which it lasts.
#[derive(Debug)]
pub struct LeaseRequest {
    stream: UnixStream,
    path: PathBuf,
}

impl LeaseRequest {
    /// Connects to the daemon at `path`.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        Ok(Self { stream: connect(path)?, path: path.to_owned() })
    }

    /// Closes the connection from another thread: nothing is asked for any more, and a
    /// granted lease has ended.
    pub fn ender(&self) -> io::Result<impl Fn() + Send + 'static> {
        let stream = self.stream.try_clone()?;
        Ok(move || {
            // It may have ended already.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        })
    }

    /// Has the daemon govern `part`. Waits until it has taken hold, or says why not.
    pub fn take(self, part: &Part) -> Result<Result<Lease, Refusal>, ControlError> {
        let Self { stream, path } = self;
        let files: Vec<BorrowedFd<'_>> = part.files().map(AsFd::as_fd).collect();
        match exchange(&stream, &path, &Ask::Lease(Box::new(part.clone())), &files, LEASE_PATIENCE)? {
            Answer::Leased(names) => Ok(Ok(Lease { stream, names })),
            Answer::NotLeased(refusal) => Ok(Err(refusal)),
            Answer::Refused(why) => Ok(Err(Refusal::usage(why))),
            Answer::Denied(why) => Ok(Err(Refusal::held(why))),
            other => Err(ControlError::Foreign { path, cause: format!("{other:?}") }),
        }
    }
}

/// Something that a daemon governs for as long as this is held.
#[derive(Debug)]
pub struct Lease {
    stream: UnixStream,
    /// The name of the service or controller in `status`.
    pub names: Vec<String>,
}

impl Lease {
    /// Waits until the daemon has ended, or [`LeaseRequest::ender`] was called, for this long at
    /// most. True if it is over.
    pub fn is_over_within(&mut self, wait: StdDuration) -> bool {
        let _ = self.stream.set_read_timeout(Some(wait.max(StdDuration::from_millis(1))));
        !matches!(self.stream.read(&mut [0]), Err(cause) if matches!(
            cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
        ))
    }
}

#[derive(Debug, Error)]
pub enum ControlError {
    #[error("no daemon answers at {path}: {cause}\nhint: start one with `roost daemon`, or name \
             its socket with --socket", path = path.display())]
    NoDaemon { path: PathBuf, cause: io::Error },
    /// The socket belongs to another user.
    #[error("{path} may not be asked by this user\nhint: use sudo", path = path.display())]
    Denied { path: PathBuf },
    #[error("{path} answers something else than a daemon of this version: {cause}", path = path.display())]
    Foreign { path: PathBuf, cause: String },
    #[error("cannot listen at {path}: {cause}\nhint: run as root, or name another place with \
             --socket", path = path.display())]
    Taken { path: PathBuf, cause: io::Error },
}

/// Asks the daemon at `path`.
pub fn ask(path: &Path, what: &Ask) -> Result<Answer, ControlError> {
    exchange(&connect(path)?, path, what, &[], PATIENCE)
}

fn connect(path: &Path) -> Result<UnixStream, ControlError> {
    linux::connect_within(path, PATIENCE).map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => ControlError::Denied { path: path.to_owned() },
        _ => ControlError::NoDaemon { path: path.to_owned(), cause },
    })
}

fn exchange(
    mut stream: &UnixStream,
    path: &Path,
    what: &Ask,
    files: &[BorrowedFd<'_>],
    patience: StdDuration,
) -> Result<Answer, ControlError> {
    let no_daemon = |cause| ControlError::NoDaemon { path: path.to_owned(), cause };
    stream.set_read_timeout(Some(patience)).map_err(no_daemon)?;
    let line = serde_json::to_string(what).expect("plain data") + "\n";
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        along.push(SendAncillaryMessage::ScmRights(files));
    }
    let sent = sendmsg(stream, &[IoSlice::new(line.as_bytes())], &mut along, SendFlags::NOSIGNAL);
    let sent = sent.map_err(|cause| no_daemon(cause.into()))?;
    stream.write_all(&line.as_bytes()[sent..]).map_err(no_daemon)?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut answer).map_err(no_daemon)?;
    serde_json::from_str(&answer)
        .map_err(|cause| ControlError::Foreign { path: path.to_owned(), cause: cause.to_string() })
}

/// Listens at a socket, and removes it when dropped.
#[derive(Debug)]
pub(crate) struct Control {
    _place: Place,
}

impl Control {
    /// Begins to listen. Each question goes to `hear` with the way back; a change comes only from
    /// a user that may make one. The planner's callers go to `callers`.
    pub fn listen(
        callers: Callers,
        hear: impl Fn(Heard) -> bool + Send + 'static,
    ) -> Result<Self, ControlError> {
        let path = callers.socket().to_owned();
        let taken = |cause| ControlError::Taken { path: path.clone(), cause };
        let (listener, place) = socket::listen(&path, 0o666).map_err(taken)?;
        let peers = Peers::new(listener, callers, hear).map_err(taken)?;
        std::thread::Builder::new().name("control".to_owned()).spawn(|| peers.run()).map_err(taken)?;
        Ok(Self { _place: place })
    }
}

pub fn question(line: &str) -> Result<Ask, String> {
    serde_json::from_str(line)
        .map_err(|error| format!("not understood ({}); ask \"status\", for example", plain(&error)))
}

/// A question is no longer than this.
const QUESTION_MAX: usize = 4096;

/// Descriptors that come with a question of root or the daemon's own user: policies of one's own.
const FILES_MAX: usize = 4;

/// Nor an answer than this: thousands of services.
const ANSWER_MAX: u64 = 16 << 20;

/// An epoch's work lies between question and answer.
const PATIENCE: StdDuration = StdDuration::from_secs(5);

/// Until a controller has taken hold: the planner of wake-ups measures for some seconds.
const LEASE_PATIENCE: StdDuration = StdDuration::from_secs(120);

#[cfg(test)]
mod tests;
