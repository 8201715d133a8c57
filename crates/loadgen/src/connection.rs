//! One connection: its socket, the bytes not yet written, the answers not yet whole, the requests
//! under way.

use crate::protocol::Protocol;
use crate::system::{UnixAddress, begin_to_connect, connect_unix, unix_address};
use crate::{Error, Target};
use machine::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt::set_tcp_nodelay};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use tls::{TlsSocket, UnbufferedClientConnection};

/// A request that was composed and not yet answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending<R> {
    /// When it should have been sent: latency counts from here.
    pub due: Instant,
    pub request: R,
    /// It waited behind too many unanswered ones, so its late sending is the server's doing.
    pub backlogged: bool,
    /// How late the generator itself was: in sending it, or in coming to it where it was backlogged.
    pub late: Duration,
}

impl<R> Pending<R> {
    /// The times by which it is judged.
    pub fn asked(&self) -> Asked {
        Asked { due: self.due, late: self.late }
    }
}

/// When a request was due, and how late the generator was with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub due: Instant,
    pub late: Duration,
}

/// A request that is due and waits until its connection, or any of a pool, has fewer unanswered
/// ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlogged<R> {
    pub due: Instant,
    pub request: R,
    /// How late the generator came to it.
    pub late: Duration,
}

/// The carrier of a connection's bytes.
enum Socket {
    Plain(OwnedFd),
    Tls(Box<TlsSocket<UnbufferedClientConnection>>),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(socket) => socket.as_fd(),
        }
    }
}

pub(crate) struct Connection<P: Protocol> {
    socket: Socket,
    /// Requests as bytes; written from `written` on.
    pub out: Vec<u8>,
    pub written: usize,
    /// The beginning of an answer whose rest has not come yet.
    pub partial: Vec<u8>,
    /// The part of the first request's answer that has been read.
    pub reading: P::Reading,
    pub pending: VecDeque<Pending<P::Request>>,
    /// Since when the server owes the first of these its next word: it was composed, or the one
    /// before was answered.
    pub owes_since: Instant,
    /// Of `pending`, how many at its end no write has carried yet.
    pub unsent: usize,
    /// It is in the list of connections to be written.
    pub dirty: bool,
    /// The socket took no more, or is not connected yet, and readiness to write is awaited.
    pub blocked: bool,
    /// It is being made anew, and the server has not said yes yet.
    pub connecting: bool,
    pub open: bool,
}

impl<P: Protocol> Connection<P> {
    /// Connects and makes the socket non-blocking; an error after the plan's patience.
    pub fn open(
        address: &Address,
        tls: Option<&tls::Client>,
        patience: Duration,
    ) -> Result<Self, std::io::Error> {
        let socket = match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, patience.into())?;
                stream.set_nonblocking(true)?;
                let socket = OwnedFd::from(stream);
                set_tcp_nodelay(&socket, true)?;
                socket
            }
            Address::Unix(address) => connect_unix(address, patience)?,
        };
        Ok(Self::of(match tls {
            None => Socket::Plain(socket),
            Some(client) => Socket::Tls(Box::new(greeted(client, socket, patience)?)),
        }))
    }

    /// Bytes received into `into`; zero at the end of the stream.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        match &mut self.socket {
            Socket::Plain(socket) => recv(socket, into, RecvFlags::empty()).map(|(length, _)| length),
            Socket::Tls(socket) => socket.receive(into),
        }
    }

    /// Whether bytes can be received that the kernel knows nothing of.
    pub fn has_more(&self) -> bool {
        matches!(&self.socket, Socket::Tls(socket) if socket.has_more())
    }

    /// Bytes of those not yet written that were taken.
    pub fn send(&mut self) -> Result<usize, Errno> {
        let bytes = &self.out[self.written..];
        match &mut self.socket {
            // Rust's runtime ignores SIGPIPE.
            Socket::Plain(socket) => send(socket, bytes, SendFlags::empty()),
            Socket::Tls(socket) => socket.send(bytes),
        }
    }

    /// Begins to connect, without waiting for the server: it is `connecting` until the socket can
    /// be written.
    pub fn reopen(address: &Address) -> Result<Self, std::io::Error> {
        let socket = Socket::Plain(begin_to_connect(address)?);
        Ok(Self { connecting: true, blocked: true, ..Self::of(socket) })
    }

    fn of(socket: Socket) -> Self {
        Self {
            socket,
            out: Vec::new(),
            written: 0,
            partial: Vec::new(),
            reading: P::Reading::default(),
            pending: VecDeque::new(),
            owes_since: Instant::ZERO,
            unsent: 0,
            dirty: false,
            blocked: false,
            connecting: false,
            open: true,
        }
    }

    /// Bytes composed and not yet written.
    pub fn backlog_bytes(&self) -> usize {
        self.out.len() - self.written
    }
}

impl<P: Protocol> AsFd for Connection<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(UnixAddress),
}

impl Address {
    pub fn find(target: &Target) -> Result<Self, Error> {
        let unfound = |cause| Error::Resolve { target: target.clone(), cause };
        match target {
            Target::Tcp(text) => {
                let mut found = text.to_socket_addrs().map_err(unfound)?;
                found.next().map(Self::Tcp).ok_or_else(|| unfound(std::io::ErrorKind::NotFound.into()))
            }
            Target::Unix(path) => unix_address(path).map(Self::Unix).map_err(unfound),
        }
    }
}

/// Makes acquaintance by TLS; an error after the plan's patience.
fn greeted(
    client: &tls::Client,
    socket: OwnedFd,
    patience: Duration,
) -> Result<TlsSocket<UnbufferedClientConnection>, std::io::Error> {
    let failed = |cause: &dyn std::fmt::Display| std::io::Error::other(format!("TLS: {cause}"));
    let mut socket = client.connect(socket).map_err(|error| failed(&error))?;
    let deadline = os::now() + patience;
    loop {
        let is_done = socket.greet().map_err(|errno| match errno {
            tls::BROKEN => {
                failed(&"the server's certificate is none of the authority's, or it speaks no TLS")
            }
            errno => errno.into(),
        })?;
        if is_done {
            return Ok(socket);
        }
        let left = deadline.since(os::now());
        if left.is_zero() || socket.has_ended() {
            return Err(failed(&"the server says nothing"));
        }
        // Longer waits are several.
        let nanos = left.as_nanos().min(999_999_999);
        let wait = Timespec { tv_sec: 0, tv_nsec: nanos as _ };
        let mut watched = [PollFd::new(&socket, PollFlags::IN)];
        let _ = poll(&mut watched, Some(&wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_no_socket_can_have_is_a_wrong_request() {
        let long = Target::Unix("a".repeat(150).into());
        assert!(Address::find(&long).unwrap_err().is_usage());
    }
}
