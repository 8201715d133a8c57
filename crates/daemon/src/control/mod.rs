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
use crate::socket::{self, Place};
use linux::arbiter::Asked;
use linux::arbiter::request::{Combined, Request, plain};
use machine::Goal;
use peers::Peers;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
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
        match exchange(&stream, &path, &Ask::Lease(Box::new(part.clone())), LEASE_PATIENCE)? {
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
    exchange(&connect(path)?, path, what, PATIENCE)
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
    patience: StdDuration,
) -> Result<Answer, ControlError> {
    let no_daemon = |cause| ControlError::NoDaemon { path: path.to_owned(), cause };
    stream.set_read_timeout(Some(patience)).map_err(no_daemon)?;
    let line = serde_json::to_string(what).expect("plain data") + "\n";
    stream.write_all(line.as_bytes()).map_err(no_daemon)?;
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

/// Nor an answer than this: thousands of services.
const ANSWER_MAX: u64 = 16 << 20;

/// An epoch's work lies between question and answer.
const PATIENCE: StdDuration = StdDuration::from_secs(5);

/// Until a controller has taken hold: the planner of wake-ups measures for some seconds.
const LEASE_PATIENCE: StdDuration = StdDuration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(folder: &Path) -> (Control, PathBuf) {
        let path = folder.join("govern.sock");
        let control = Control::listen(Callers::at(&path), |heard| {
            let Heard::Question(ask, reply) = heard else { return true };
            let answer = match ask {
                Ask::Status => Answer::Status {
                    governed: Vec::new(),
                    waiting: Vec::new(),
                    asked: Vec::new(),
                    controllers: Vec::new(),
                    dry_run: true,
                },
                Ask::Lease(part) => Answer::Leased(part.names()),
                Ask::Knobs(request) => match request.check() {
                    Ok(()) => Answer::Combined(Combined::default()),
                    Err(why) => Answer::Refused(why),
                },
                Ask::Set { service, .. } if service == "cache" => Answer::Done,
                Ask::Set { service, .. } => Answer::Refused(format!("no service {service}")),
            };
            reply.send(answer);
            true
        });
        (control.unwrap(), path)
    }

    #[test]
    fn questions_are_answered_and_the_socket_goes_with_its_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let (control, path) = listening(folder.path());
        assert!(matches!(ask(&path, &Ask::Status), Ok(Answer::Status { dry_run: true, .. })));
        let set = |service: &str| Ask::Set { service: service.into(), set: Set::Pause };
        assert_eq!(ask(&path, &set("cache")).unwrap(), Answer::Done);
        assert!(matches!(ask(&path, &set("x")).unwrap(), Answer::Refused(_)));
        assert!(
            matches!(Control::listen(Callers::at(&path), |_| true), Err(ControlError::Taken { .. })),
            "it lives"
        );
        drop(control);
        assert!(ask(&path, &Ask::Status).unwrap_err().to_string().contains("roost daemon"));
    }

    #[test]
    fn nonsense_is_told() {
        assert!(question("GET / HTTP/1.1").unwrap_err().contains("not understood"));
        assert!(question("").is_err());
        assert!(!question("\"a\\nb\\u001b[2J\"").unwrap_err().contains(char::is_control));
        assert!(question(r#"{"set":{"service":"a","set":"pause","also":1}}"#).is_err());
        assert!(question(r#"{"set":{"service":"a","set":{"goal":"fast"}}}"#).is_err());
        assert!(question(r#"{"set":{"service":"a","set":"pause"}}"#).is_ok());
        assert_eq!(question("\"status\"\n"), Ok(Ask::Status));
    }

    #[test]
    fn a_peer_that_sends_a_byte_now_and_then_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (_control, path) = listening(folder.path());
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.set_read_timeout(Some(StdDuration::from_millis(50))).unwrap();
        let mut answer = [0; 256];
        // Each byte alone is in time; together they are not. Forty are two seconds, far from the
        // four thousand of a line.
        let answered = (0..200).find_map(|_| {
            let _ = slow.write_all(b"x");
            slow.read(&mut answer).ok()
        });
        let answer = String::from_utf8_lossy(&answer[..answered.unwrap()]).into_owned();
        assert!(answer.contains("cannot be read"), "{answer}");
        assert!(ask(&path, &Ask::Status).is_ok());
    }

    /// Connections of another user, each with a byte of a line that never ends; none if this
    /// process may not be another user.
    fn strangers(path: &Path, user: u32, count: usize) -> Vec<UnixStream> {
        // The kernel's word on a peer is that on the thread that connected.
        let path = path.to_owned();
        let connecting = std::thread::spawn(move || {
            let user = rustix::process::Uid::from_raw(user);
            rustix::thread::set_thread_res_uid(user, user, user).ok()?;
            let connect = |_| {
                let mut stream = UnixStream::connect(&path).expect("the socket is for all");
                let _ = stream.write_all(b"x");
                stream
            };
            Some((0..count).map(connect).collect())
        });
        connecting.join().unwrap().unwrap_or_default()
    }

    /// A folder that other users may pass through.
    fn open_folder() -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        folder
    }

    const NOBODY: u32 = 65_534;

    #[test]
    fn questions_of_root_wait_for_no_stranger() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root, to be another user as well");
            return;
        }
        let folder = open_folder();
        let (_control, path) = listening(folder.path());
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        // They come again as soon as they are sent away.
        let coming = {
            let (path, done) = (path.clone(), std::sync::Arc::clone(&done));
            std::thread::spawn(move || {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let held = [NOBODY, 1234].map(|user| strangers(&path, user, 20));
                    std::thread::sleep(StdDuration::from_millis(20));
                    drop(held);
                }
            })
        };
        let standing = strangers(&path, NOBODY, 40);
        let pause = Ask::Set { service: "cache".into(), set: Set::Pause };
        for _ in 0..20 {
            assert_eq!(ask(&path, &pause).unwrap(), Answer::Done);
            assert!(matches!(ask(&path, &Ask::Status), Ok(Answer::Status { .. })));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        coming.join().unwrap();
        drop(standing);
    }

    #[test]
    fn a_stranger_is_answered_beside_its_own_stalled_connections_and_changes_nothing() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root, to be another user as well");
            return;
        }
        let folder = open_folder();
        let (_control, path) = listening(folder.path());
        let stalled = strangers(&path, NOBODY, 60);
        let answered = |question: &'static [u8]| {
            let path = path.clone();
            let asking = std::thread::spawn(move || {
                let user = rustix::process::Uid::from_raw(NOBODY);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                let mut stream = UnixStream::connect(&path).unwrap();
                stream.write_all(question).unwrap();
                let mut answer = String::new();
                BufReader::new(stream).read_line(&mut answer).unwrap();
                answer
            });
            asking.join().unwrap()
        };
        assert!(answered(b"\"status\"\n").contains("dry_run"));
        assert!(answered(b"{\"set\":{\"service\":\"cache\",\"set\":\"pause\"}}\n").contains("denied"));
        drop(stalled);
    }

    #[test]
    fn strangers_wait_for_a_daemon_that_is_busy_and_root_gets_its_turn_first() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root, to be another user as well");
            return;
        }
        let folder = open_folder();
        let path = folder.path().join("govern.sock");
        let (sender, heard) = std::sync::mpsc::channel();
        let hear = move |heard| match heard {
            Heard::Question(ask, reply) => sender.send((ask, reply)).is_ok(),
            Heard::LeaseEnded(_) => true,
        };
        let _control = Control::listen(Callers::at(&path), hear).unwrap();
        let stranger = |count: usize| {
            let path = path.clone();
            std::thread::spawn(move || {
                let user = rustix::process::Uid::from_raw(NOBODY);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                let streams: Vec<_> = (0..count)
                    .map(|_| {
                        let mut stream = UnixStream::connect(&path).unwrap();
                        stream.write_all(b"\"status\"\n").unwrap();
                        stream
                    })
                    .collect();
                streams
            })
            .join()
            .unwrap()
        };
        // Six questions of a stranger, of which the daemon has one in hand, and then one of root.
        let waiting = stranger(6);
        let (_, first) = heard.recv_timeout(StdDuration::from_secs(60)).unwrap();
        assert_eq!(first.asker().user, NOBODY);
        let asking = {
            let path = path.clone();
            std::thread::spawn(move || ask(&path, &Ask::Set { service: "cache".into(), set: Set::Pause }))
        };
        // The next that the daemon hears is root's, though five came before it.
        let (asked, reply) = heard.recv_timeout(StdDuration::from_secs(60)).unwrap();
        assert!(matches!(asked, Ask::Set { .. }), "{asked:?}");
        assert_eq!((reply.asker().user, reply.asker().process), (0, std::process::id()));
        reply.send(Answer::Done);
        assert_eq!(asking.join().unwrap().unwrap(), Answer::Done);
        drop((first, waiting));
    }

    #[test]
    fn a_peer_that_never_ends_its_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let (_control, path) = listening(folder.path());
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(&vec![b'x'; 5000]).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("not understood"), "{answer}");
    }
}
