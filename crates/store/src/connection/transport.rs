//! The carrier of a connection's bytes: a socket that does not block, plain or with TLS on it, or a test's
//! script of reads and writes.

use crate::store::Budget;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tls::{TlsSocket, UnbufferedServerConnection};

/// Carries bytes without blocking: [`Errno::AGAIN`] where there is nothing to take, or no room.
pub(crate) trait Transport {
    /// Bytes received into `into`; zero at the end of the stream.
    fn receive(&mut self, into: &mut [u8], budget: &Budget) -> Result<usize, Errno>;

    /// Appends received bytes to `into`, within its capacity. Returns how many bytes; zero at the
    /// end of the stream.
    fn receive_behind(&mut self, into: &mut Vec<u8>, budget: &Budget) -> Result<usize, Errno>;

    /// Bytes of `bytes` that were taken. After [`Errno::AGAIN`] the next call begins with the same bytes.
    fn send(&mut self, bytes: &[u8], budget: &Budget) -> Result<usize, Errno>;

    /// Whether bytes can be received that the kernel knows nothing of.
    fn has_more(&self) -> bool {
        false
    }

    /// Whether the client owes the rest of something that it began, before any byte of a request.
    fn is_incomplete(&self) -> bool {
        false
    }

    /// Whether the client has never come so far that it could ask.
    fn is_stranger(&self) -> bool {
        false
    }

    /// Ends it in good order, and gives its memory back.
    fn close(&mut self, _budget: &Budget) {}
}

/// A client's socket, plain or with TLS on it.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(OwnedFd),
    Tls(Box<TlsTransport>),
}

/// A socket with TLS on it, and the memory that it was granted from its first turn on.
#[derive(Debug)]
pub(crate) struct TlsTransport {
    socket: TlsSocket<UnbufferedServerConnection>,
    charged: usize,
}

impl From<TlsSocket<UnbufferedServerConnection>> for Socket {
    fn from(socket: TlsSocket<UnbufferedServerConnection>) -> Self {
        Self::Tls(Box::new(TlsTransport { socket, charged: 0 }))
    }
}

/// Memory of a session at rest, within rustls. Measured: anonymous RSS by the connection, of 2,000 idle ones
/// above that of plain ones, 3.2 KiB with TLS 1.2 and 3.4 KiB with 1.3 (x86_64, rustls 0.23, ring).
const SESSION: usize = 4 << 10;

impl TlsTransport {
    /// Charges the memory that it holds between two calls; during one it borrows the thread's.
    fn charge<T>(&mut self, done: Result<T, Errno>, budget: &Budget) -> Result<T, Errno> {
        let held = SESSION + self.socket.held();
        if held > self.charged {
            if !budget.try_charge_connection(held - self.charged) {
                return Err(Errno::NOBUFS);
            }
        } else {
            budget.release_connection(self.charged - held);
        }
        self.charged = held;
        done
    }
}

impl Transport for Socket {
    fn receive(&mut self, into: &mut [u8], budget: &Budget) -> Result<usize, Errno> {
        match self {
            Self::Plain(socket) => recv(socket, into, RecvFlags::empty()).map(|(length, _)| length),
            Self::Tls(tls) => {
                let received = tls.socket.receive(into);
                tls.charge(received, budget)
            }
        }
    }

    fn receive_behind(&mut self, into: &mut Vec<u8>, budget: &Budget) -> Result<usize, Errno> {
        match self {
            Self::Plain(socket) => recv(socket, rustix::buffer::spare_capacity(into), RecvFlags::empty())
                .map(|(length, _)| length),
            Self::Tls(tls) => {
                let before = into.len();
                into.resize(into.capacity(), 0);
                let received = tls.socket.receive(&mut into[before..]);
                into.truncate(before + received.unwrap_or(0));
                tls.charge(received, budget)
            }
        }
    }

    fn send(&mut self, bytes: &[u8], budget: &Budget) -> Result<usize, Errno> {
        match self {
            Self::Plain(socket) => send(socket, bytes, SendFlags::NOSIGNAL),
            Self::Tls(tls) => {
                let sent = tls.socket.send(bytes);
                tls.charge(sent, budget)
            }
        }
    }

    fn has_more(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.socket.has_more())
    }

    fn is_incomplete(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => self.is_stranger() || (tls.socket.held() > 0 && !tls.socket.has_more()),
        }
    }

    fn is_stranger(&self) -> bool {
        matches!(self, Self::Tls(tls) if !tls.socket.is_greeted())
    }

    fn close(&mut self, budget: &Budget) {
        if let Self::Tls(tls) = self {
            tls.socket.say_farewell();
            budget.release_connection(std::mem::take(&mut tls.charged));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, StoreConfig};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_session_is_charged_while_it_lives() {
        let store = Store::new(StoreConfig { memory_limit: 1 << 20, max_item_size: 1 << 10, shards: None });
        let store = store.unwrap();
        let before = store.budget().used();
        let of_tests = |name| concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/stage/").to_owned() + name;
        let identity = tls::Identity {
            certificate: of_tests("localhost.pem").into(),
            key: of_tests("localhost.key.pem").into(),
            clients: None,
        };
        let server = tls::Server::load(identity).unwrap();
        let mut sockets = Vec::new();
        // An eighth of the limit is for connections.
        for number in 0..40 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let mut socket = Socket::from(server.accept(ours.into()).unwrap());
            let expected = if number < 32 { Errno::AGAIN } else { Errno::NOBUFS };
            assert_eq!(socket.receive(&mut [0; 100], store.budget()), Err(expected), "{number}");
            sockets.push((socket, theirs));
        }
        assert_eq!(store.budget().used() - before, 32 * SESSION);
        sockets.iter_mut().for_each(|(socket, _)| socket.close(store.budget()));
        assert_eq!(store.budget().used(), before);
    }
}
