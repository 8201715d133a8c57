//! A connection to a process that holds something. What was asked over it is withdrawn when it closes.

use super::wire::{Answer, Ask, LINE_MAX, Request, VERSION, answer, line};
use rustix::net::RecvFlags;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Lease {
    /// As it calls itself.
    pub(super) holder: String,
    pub(super) socket: PathBuf,
    /// As we call ourselves.
    asker: String,
    stream: BufReader<UnixStream>,
    /// It was asked, and said nothing in time.
    pub(super) hangs: bool,
}

/// A holder writes a file or two and reads them back.
const PATIENCE: Duration = Duration::from_secs(2);

/// What stands before the socket's name in a lock's file.
pub(super) const ASKED_AT: &str = "asked at ";

/// The socket that the holder of this lock names in it. A holder that has only just begun is given a moment.
pub(super) fn socket_beside(lock: &Path) -> Option<PathBuf> {
    for _ in 0..10 {
        let text = fs::read_to_string(lock).ok()?;
        if let Some(name) = text.lines().find_map(|line| line.strip_prefix(ASKED_AT)) {
            // A name beside the lock, and no path to elsewhere.
            return (!name.contains('/')).then(|| lock.with_file_name(name));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

impl Lease {
    pub(super) fn open(socket: PathBuf, holder: String, asker: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let asker = asker.to_owned();
        Ok(Self { holder, socket, asker, stream: BufReader::new(stream), hangs: false })
    }

    /// After an error the connection is of no use: an answer that came late would be taken for that to the next question. It
    /// is hung up, and [`Self::has_ended`].
    pub(super) fn ask(&mut self, ask: Ask) -> io::Result<Answer> {
        let answer = self.try_ask(ask);
        if let Err(cause) = &answer {
            self.hangs |= matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            let _ = self.stream.get_ref().shutdown(Shutdown::Both);
        }
        answer
    }

    fn try_ask(&mut self, ask: Ask) -> io::Result<Answer> {
        let request = Request { v: VERSION, asker: self.asker.clone(), ask };
        self.stream.get_mut().write_all(&line(&request))?;
        let mut came = Vec::new();
        (&mut self.stream).take(LINE_MAX as u64).read_until(b'\n', &mut came)?;
        if came.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer(&came).map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))
    }

    /// Readable when the holder ends.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }

    /// True if nobody is at the other end.
    pub(super) fn has_ended(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self.stream.get_ref(), &mut [0u8; 1], flags) {
            // More than was asked for is an answer that came late.
            Ok(_) => true,
            Err(cause) => cause != rustix::io::Errno::WOULDBLOCK,
        }
    }
}
