//! A connection to the process that holds some CPUs. What was asked over it is withdrawn when it closes.

use super::{LINE_MAX, Wish};
use crate::idle_control::LimitState;
use machine::{CpuId, CpuList};
use rustix::net::RecvFlags;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) cpus: CpuList,
    /// As it calls itself.
    pub(super) holder: String,
    pub(super) socket: PathBuf,
    stream: BufReader<UnixStream>,
}

/// A holder writes one file and reads it back.
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
    pub(super) fn open(socket: PathBuf, holder: String, cpu: CpuId) -> io::Result<Self> {
        let stream = UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { cpus: CpuList([cpu].into()), holder, socket, stream: BufReader::new(stream) })
    }

    /// After an error the connection is of no use: an answer that came late would be taken for that to the next question. It
    /// is hung up, and [`Self::has_ended`].
    pub(super) fn ask(&mut self, wish: &Wish) -> io::Result<LimitState> {
        let answer = self.try_ask(wish);
        if answer.is_err() {
            let _ = self.stream.get_ref().shutdown(Shutdown::Both);
        }
        answer
    }

    fn try_ask(&mut self, wish: &Wish) -> io::Result<LimitState> {
        let line = serde_json::to_string(wish)? + "\n";
        self.stream.get_mut().write_all(line.as_bytes())?;
        let mut answer = String::new();
        (&mut self.stream).take(LINE_MAX).read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
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
