//! The daemon's Unix socket: `roost govern status` and `set`.
//!
//! A line of JSON is asked, a line is answered, and the connection ends. Everybody on the machine may ask how things are;
//! only the daemon's own user and root may change something, which the kernel's word on the peer decides (SO_PEERCRED), not
//! anything that it sends.
//!
//! What always holds: a line is read to 4 KiB and no further, for a second and no longer; a peer that sends nonsense is told so
//! and closed; nothing that a peer does delays the daemon's epochs, since a thread of its own waits for it.

use crate::governed::Status;
use crate::socket::{self, Place};
use host::holder::Asked;
use host::holder::wire::plain;
use machine::Goal;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration as StdDuration, Instant};
use thiserror::Error;

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// How is everything?
    Status,
    /// Change this.
    Set {
        /// Of which service.
        service: String,
        /// What.
        set: Set,
    },
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Set {
    /// Another goal.
    Goal(Goal),
    /// All cores, no limits, until `Resume`.
    Pause,
    /// Policies decide again.
    Resume,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To `Status`: each service, those that are governed and, by name and reason, those that are not.
    Status {
        /// Those that are.
        governed: Vec<Status>,
        /// Those that are not, with the reason.
        waiting: Vec<(String, String)>,
        /// Who asks for what of the CPUs that services share: this daemon's own, and other processes of those that it holds.
        asked: Vec<Asked>,
        /// Nothing is touched.
        dry_run: bool,
    },
    /// It is done.
    Done,
    /// It is not done; the text says why.
    Refused(String),
    /// It is not done, for who asks may only look.
    Denied(String),
}

/// Why nothing was answered.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error("no daemon answers at {path}: {cause}\nhint: start one with `roost govern`, or name its socket with --socket", path = path.display())]
    Nobody {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The socket is somebody else's alone.
    #[error("{path} may not be asked by this user\nhint: use sudo", path = path.display())]
    Denied {
        /// Where.
        path: PathBuf,
    },
    /// What came is no answer.
    #[error("{path} answers something else than a daemon of this version: {cause}", path = path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The socket cannot be made.
    #[error("cannot listen at {path}: {cause}\nhint: another daemon may run, or name another place with --socket", path = path.display())]
    Taken {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// Asks the daemon at `path`.
pub fn ask(path: &Path, what: &Ask) -> Result<Answer, ControlError> {
    let nobody = |cause| ControlError::Nobody { path: path.to_owned(), cause };
    let mut stream = UnixStream::connect(path).map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => ControlError::Denied { path: path.to_owned() },
        _ => nobody(cause),
    })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(nobody)?;
    let line = serde_json::to_string(what).expect("plain data") + "\n";
    stream.write_all(line.as_bytes()).map_err(nobody)?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut answer).map_err(nobody)?;
    serde_json::from_str(&answer)
        .map_err(|cause| ControlError::Foreign { path: path.to_owned(), cause: cause.to_string() })
}

/// Listens at a socket, and removes it when dropped.
#[derive(Debug)]
pub(crate) struct Control {
    _place: Place,
}

impl Control {
    /// Begins to listen. Each question goes to `hear` with the way back; a change comes only from who may make one.
    pub fn listen(
        path: &Path,
        hear: impl Fn(Ask, Sender<Answer>) -> bool + Send + Sync + Clone + 'static,
    ) -> Result<Self, ControlError> {
        let taken = |cause| ControlError::Taken { path: path.to_owned(), cause };
        let (listener, place) = socket::listen(path, 0o666).map_err(taken)?;
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    let Ok(stream) = stream else {
                        // Out of descriptors, say, and at once again if asked at once.
                        std::thread::sleep(AFTER_TROUBLE);
                        continue;
                    };
                    let hear = hear.clone();
                    // One after the other: a peer that dawdles is given a second, and others wait for it.
                    let _ = attend(stream, hear);
                }
            })
            .map_err(taken)?;
        Ok(Self { _place: place })
    }
}

fn attend(mut stream: UnixStream, hear: impl Fn(Ask, Sender<Answer>) -> bool) -> io::Result<()> {
    stream.set_write_timeout(Some(StdDuration::from_secs(1)))?;
    let peer = socket_peercred(&stream)?.uid;
    let may_write = peer.is_root() || peer == geteuid();
    let answer = match question(&stream).map(|line| understood(&line)) {
        Err(cause) => Answer::Refused(format!("the question cannot be read: {cause}")),
        Ok(Err(refused)) => Answer::Refused(refused),
        Ok(Ok(Ask::Set { .. })) if !may_write => {
            Answer::Denied("only the daemon's own user and root may change something: use sudo".to_owned())
        }
        Ok(Ok(ask)) => {
            let (sender, receiver) = channel();
            let heard = hear(ask, sender);
            let answer = heard.then(|| receiver.recv_timeout(PATIENCE).ok()).flatten();
            answer.unwrap_or_else(|| Answer::Refused("the daemon is about to end".to_owned()))
        }
    };
    let text = serde_json::to_string(&answer).expect("plain data") + "\n";
    stream.write_all(text.as_bytes())
}

/// A line, or as much of it as comes in time: a peer that sends a byte now and then has a second for all of them.
fn question(mut stream: &UnixStream) -> io::Result<String> {
    let until = Instant::now() + StdDuration::from_secs(1);
    let (mut line, mut bytes) = (Vec::new(), [0; 512]);
    while line.len() < QUESTION_MAX && !line.contains(&b'\n') {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes)? {
            0 => break,
            length => line.extend_from_slice(&bytes[..length]),
        }
    }
    String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// What a line asks.
fn understood(line: &str) -> Result<Ask, String> {
    serde_json::from_str(line)
        .map_err(|error| format!("not understood ({}); ask \"status\", for example", plain(&error)))
}

/// Until the next is accepted, where one could not be.
const AFTER_TROUBLE: StdDuration = StdDuration::from_millis(100);

/// A question is no longer than this.
const QUESTION_MAX: usize = 4096;

/// Nor an answer than this: thousands of services.
const ANSWER_MAX: u64 = 16 << 20;

/// An epoch's work lies between question and answer.
const PATIENCE: StdDuration = StdDuration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(folder: &Path) -> (Control, PathBuf) {
        let path = folder.join("govern.sock");
        let control = Control::listen(&path, |ask, reply| {
            let answer = match ask {
                Ask::Status => Answer::Status {
                    governed: Vec::new(),
                    waiting: Vec::new(),
                    asked: Vec::new(),
                    dry_run: true,
                },
                Ask::Set { service, .. } if service == "cache" => Answer::Done,
                Ask::Set { service, .. } => Answer::Refused(format!("no service {service}")),
            };
            reply.send(answer).is_ok()
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
        assert!(matches!(Control::listen(&path, |_, _| true), Err(ControlError::Taken { .. })), "it lives");
        drop(control);
        assert!(ask(&path, &Ask::Status).unwrap_err().to_string().contains("roost govern"));
    }

    #[test]
    fn nonsense_is_told() {
        assert!(understood("GET / HTTP/1.1").unwrap_err().contains("not understood"));
        assert!(understood("").is_err());
        assert!(!understood("\"a\\nb\\u001b[2J\"").unwrap_err().contains(char::is_control));
        assert!(understood(r#"{"set":{"service":"a","set":"pause","also":1}}"#).is_err());
        assert!(understood(r#"{"set":{"service":"a","set":{"goal":"fast"}}}"#).is_err());
        assert!(understood(r#"{"set":{"service":"a","set":"pause"}}"#).is_ok());
        assert_eq!(understood("\"status\"\n"), Ok(Ask::Status));
    }

    #[test]
    fn a_peer_that_sends_a_byte_now_and_then_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (_control, path) = listening(folder.path());
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.set_read_timeout(Some(StdDuration::from_millis(50))).unwrap();
        let mut answer = [0; 256];
        // Each byte alone is in time; together they are not. Forty are two seconds, far from the four thousand of a line.
        let answered = (0..200).find_map(|_| {
            let _ = slow.write_all(b"x");
            slow.read(&mut answer).ok()
        });
        let answer = String::from_utf8_lossy(&answer[..answered.unwrap()]).into_owned();
        assert!(answer.contains("cannot be read"), "{answer}");
        assert!(ask(&path, &Ask::Status).is_ok());
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
