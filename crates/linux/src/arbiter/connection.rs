//! The asking process's end of a connection to the daemon.
//!
//! No call here waits. A line is sent once the last one was answered, and an answer is read when it
//! is there, so a daemon that hangs delays no asker.

use super::request::{Combined, Request, line, told};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::geteuid;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to a daemon. The daemon withdraws its requests when it closes, however this process
/// ends.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    daemon: u32,
    /// The last line has no answer yet.
    is_waiting: bool,
    /// The request to send after that answer.
    next: Option<Request>,
    came: Vec<u8>,
}

impl Connection {
    /// Connects to the daemon at `socket`. A daemon of another user, except root, is an error.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let stream = crate::connect_within(socket, std::time::Duration::ZERO)?;
        let peer = socket_peercred(&stream)?;
        if !peer.uid.is_root() && peer.uid != geteuid() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user's daemon"));
        }
        let daemon = peer.pid.as_raw_nonzero().get().unsigned_abs();
        Ok(Self { stream, daemon, is_waiting: false, next: None, came: Vec::new() })
    }

    pub fn daemon(&self) -> u32 {
        self.daemon
    }

    /// Replaces the last request. An error means that the daemon has ended.
    pub fn ask(&mut self, request: Request) -> io::Result<()> {
        self.next = Some(request);
        self.send_next()
    }

    /// The result of the last request once it is known; an error text if the daemon refuses to hear
    /// this process. An error means that the daemon has ended.
    pub fn hear(&mut self) -> io::Result<Option<Result<Combined, String>>> {
        let mut has_ended = false;
        while !has_ended {
            let mut bytes = [0; 4096];
            match recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
                // A refusal may come before the end of the stream.
                Ok((0, _)) => has_ended = true,
                Ok((length, _)) => self.came.extend_from_slice(&bytes[..length]),
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => break,
                Err(cause) => return Err(cause.into()),
            }
            if self.came.len() > ANSWER_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let Some(end) = self.came.iter().position(|&byte| byte == b'\n') else {
            return if has_ended { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
        };
        let answer = told(&self.came[..end]);
        self.came.drain(..=end);
        self.is_waiting = false;
        if !has_ended && answer.is_ok() {
            self.send_next()?;
        }
        Ok(Some(answer))
    }

    /// Readable when an answer has come or the daemon has ended.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn send_next(&mut self) -> io::Result<()> {
        let Some(request) = self.next.take_if(|_| !self.is_waiting) else { return Ok(()) };
        let line = line(&request);
        // A socket's buffer holds more than one line, so the line is taken whole, or the daemon has
        // ended.
        if send(&self.stream, &line, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)? < line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.is_waiting = true;
        Ok(())
    }
}

/// Becomes readable when a daemon may have begun to listen.
#[derive(Debug)]
pub struct Doorway(OwnedFd);

impl Doorway {
    /// Watches the folder of the daemon's socket.
    pub fn beside(socket: &Path) -> io::Result<Self> {
        let folder = socket.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, folder, inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO)?;
        Ok(Self(watch))
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Clears the notification. True if there was one.
    pub fn silence(&self) -> bool {
        let (mut events, mut rang) = ([0; 4096], false);
        while rustix::io::read(&self.0, &mut events).is_ok_and(|length| length > 0) {
            rang = true;
        }
        rang
    }
}

/// Room for a reason for each of some thousand CPUs.
const ANSWER_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;

    fn request(asker: &str) -> Request {
        Request { asker: asker.to_owned(), ..Request::default() }
    }

    #[test]
    fn a_line_waits_for_the_last_ones_answer_and_only_the_latest_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roost.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut connection = Connection::open(&path).unwrap();
        assert_eq!(connection.daemon(), std::process::id());
        let (mut daemon, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(daemon.try_clone().unwrap()).lines();
        for asker in ["first", "second", "third"] {
            connection.ask(request(asker)).unwrap();
        }
        assert!(lines.next().unwrap().unwrap().contains("first"));
        assert_eq!(connection.hear().unwrap(), None);
        daemon.write_all(b"{\"combined\":{\"refused\":[]}}\n").unwrap();
        assert_eq!(connection.hear().unwrap(), Some(Ok(Combined::default())));
        assert!(lines.next().unwrap().unwrap().contains("third"), "the second is out of date");
        daemon.write_all(b"{\"denied\":\"use sudo\"}\n").unwrap();
        assert_eq!(connection.hear().unwrap(), Some(Err("use sudo".to_owned())));
        daemon.write_all(b"{\"refused\":\"a last word\"}\n").unwrap();
        drop((daemon, lines));
        assert_eq!(connection.hear().unwrap(), Some(Err("a last word".to_owned())));
        assert!(connection.hear().is_err());
        assert!(connection.ask(request("fourth")).is_err());
    }

    #[test]
    fn a_socket_that_appears_rings_and_is_silenced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roost.sock");
        let doorway = Doorway::beside(&path).unwrap();
        let rings = || {
            let mut watched = [PollFd::from_borrowed_fd(doorway.bell(), PollFlags::IN)];
            let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut watched, Some(&at_once)).unwrap() == 1
        };
        assert!(!rings());
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(rings());
        assert!(doorway.silence() && !rings() && !doorway.silence());
        assert!(Doorway::beside(&folder.path().join("none/roost.sock")).is_err());
    }
}
