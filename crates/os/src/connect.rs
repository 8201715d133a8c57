//! Connecting to a Unix socket in a bounded time.
//!
//! The kernel lets a caller wait while the listener's queue is full. Any user that may reach the
//! socket of a process that hangs can fill it, and every other caller would wait without an end.

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to the socket at `path`. [`io::ErrorKind::TimedOut`]: a process listens there, and its
/// queue stayed full for `wait`; with a `wait` of zero nothing is waited for.
pub fn connect_within(path: &Path, wait: Duration) -> io::Result<UnixStream> {
    let blocks = if wait.is_zero() { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | blocks, None)?;
    if !wait.is_zero() {
        set_socket_timeout(&socket, Timeout::Send, Some(wait))?;
    }
    connect(&socket, &SocketAddrUnix::new(path)?).map_err(|error| match error {
        Errno::AGAIN => io::Error::from(io::ErrorKind::TimedOut),
        error => error.into(),
    })?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    #[test]
    fn a_listener_that_hangs_and_whose_queue_is_full_keeps_no_caller_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let none = connect_within(&path, Duration::ZERO).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        let mut queued = Vec::new();
        let refused = loop {
            match connect_within(&path, Duration::ZERO) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
        };
        assert!(!queued.is_empty());
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        let refused = connect_within(&path, Duration::from_millis(1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    }
}
