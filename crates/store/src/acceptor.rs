//! Listening sockets: opening them, and taking connections from them without ever spinning.
//!
//! Accepting happens on the director's thread, because the director knows which worker shall serve
//! a new connection. When descriptors run out, a level-triggered listener would stay readable for
//! ever; so the acceptor stops watching, and starts again when a connection closes or after a
//! pause. At the connection limit a client is told so and closed, as memcached does it.

use crate::config::Listen;
use linux::SafeFolder;
use machine::{Duration, Instant};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 4096;

/// Connections accepted before other work gets its turn.
const BATCH: usize = 64;

/// memcached's answer to a client that is one too many.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// How long accepting rests when the process or the system has no descriptor left.
const REST: Duration = Duration::from_millis(250);

/// The remedy for a place: a socket's file needs a folder, TCP an address.
fn listen_hint(place: &str) -> &'static str {
    if place.contains('/') {
        "--listen unix:PATH takes a path in a folder that is there and that you may write in"
    } else {
        "--listen takes an address of this machine, such as 127.0.0.1"
    }
}

/// Why a place cannot be listened at.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "{place} is taken\nhint: stop the other server, or choose another with --port (0 lets the system \
         choose)"
    )]
    Taken { place: String },
    /// Not allowed, not an address of this machine, ...
    #[error("cannot listen at {place}: {source}\nhint: {}", listen_hint(place))]
    Refused { place: String, source: std::io::Error },
    /// Something that is no socket is in the way.
    #[error("cannot listen at unix:{path}: a file that is no socket is there\nhint: remove it or choose \
             another path", path = .path.display())]
    InTheWay { path: PathBuf },
}

/// The listening sockets of one server.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    resting_until: Option<Instant>,
}

#[derive(Debug)]
struct Listener {
    socket: OwnedFd,
    bound: Bound,
    is_tls: bool,
}

#[derive(Debug)]
enum Bound {
    Tcp(SocketAddr),
    Unix { folder: SafeFolder, name: OsString },
}

/// The result of asking for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    All,
    SomeMore,
    OutOfDescriptors,
}

/// The peer's address, in memcached's notation.
pub(crate) fn peer(socket: &OwnedFd) -> String {
    match net::getpeername(socket).ok().flatten().map(SocketAddr::try_from) {
        Some(Ok(address)) => format!("tcp:{address}"),
        _ => "unix".to_owned(),
    }
}

impl Acceptor {
    pub(crate) fn open(places: &[Listen]) -> Result<Self, ListenError> {
        let listeners = places.iter().map(Listener::open).collect::<Result<_, _>>()?;
        Ok(Self { listeners, resting_until: None })
    }

    /// Descriptors to watch for connections now: none while accepting rests.
    pub(crate) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open = self.resting_until.is_none();
        self.listeners.iter().filter(move |_| open).map(|listener| listener.socket.as_fd())
    }

    pub(crate) fn resumes_at(&self) -> Option<Instant> {
        self.resting_until
    }

    /// Ends a rest that is over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.resting_until.is_some_and(|until| until <= now) {
            self.resting_until = None;
        }
    }

    /// A connection has closed: there is room again.
    pub(crate) fn handle_room(&mut self) {
        self.resting_until = None;
    }

    /// The address that the system chose, where one was asked for.
    pub(crate) fn tcp_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.iter().filter_map(|listener| match &listener.bound {
            Bound::Tcp(address) => Some(*address),
            Bound::Unix { .. } => None,
        })
    }

    /// Takes the waiting connections, up to a batch per listener, and hands each socket to `take`, and
    /// whether it speaks TLS, while `room` allows. Others get an answer, are closed, and counted by
    /// `refused`: a client that waits in the backlog knows nothing, and tries no other server.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        mut room: impl FnMut() -> bool,
        mut take: impl FnMut(OwnedFd, bool),
        mut refused: impl FnMut(),
    ) -> Accepted {
        let mut outcome = Accepted::All;
        for listener in &self.listeners {
            for n in 0.. {
                if n == BATCH {
                    outcome = Accepted::SomeMore;
                    break;
                }
                match net::accept_with(&listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok(socket) if !room() => {
                        refused();
                        // One that speaks TLS would not understand.
                        if !listener.is_tls {
                            let _ = net::send(&socket, TOO_MANY, SendFlags::NOSIGNAL);
                        }
                    }
                    Ok(socket) => {
                        if matches!(listener.bound, Bound::Tcp(_)) {
                            // Without it a pipelined batch of answers waits 40 ms for the client's
                            // acknowledgement.
                            let _ = sockopt::set_tcp_nodelay(&socket, true);
                        }
                        take(socket, listener.is_tls);
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        self.resting_until = Some(now + REST);
                        return Accepted::OutOfDescriptors;
                    }
                    // The client gave up before it was accepted.
                    Err(_) => {}
                }
            }
        }
        outcome
    }
}

impl Listener {
    fn open(place: &Listen) -> Result<Self, ListenError> {
        match place {
            Listen::Tcp(address) => Self::open_tcp(*address, false),
            Listen::Tls(address) => Self::open_tcp(*address, true),
            Listen::Unix { path, mode } => Self::open_unix(path, *mode),
        }
    }

    fn open_tcp(address: SocketAddr, is_tls: bool) -> Result<Self, ListenError> {
        let refused = |errno| match errno {
            Errno::ADDRINUSE => ListenError::Taken { place: address.to_string() },
            source => ListenError::Refused { place: address.to_string(), source: source.into() },
        };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
                .map_err(refused)?;
        sockopt::set_socket_reuseaddr(&socket, true).map_err(refused)?;
        net::bind(&socket, &address).map_err(refused)?;
        net::listen(&socket, BACKLOG).map_err(refused)?;
        let bound = net::getsockname(&socket).map_err(refused)?;
        let bound = SocketAddr::try_from(bound).unwrap_or(address);
        Ok(Self { socket, bound: Bound::Tcp(bound), is_tls })
    }

    fn open_unix(path: &Path, mode: u32) -> Result<Self, ListenError> {
        let place = || format!("unix:{}", path.display());
        let opened = SafeFolder::of_file(path, None).and_then(|(folder, name)| {
            let socket = folder.listen(&name, mode, BACKLOG)?;
            Ok((folder, name, socket))
        });
        let (folder, name, socket) = opened.map_err(|why| match why.kind() {
            ErrorKind::AddrInUse => ListenError::Taken { place: place() },
            ErrorKind::AlreadyExists => ListenError::InTheWay { path: path.to_owned() },
            _ => ListenError::Refused { place: place(), source: why.into_io() },
        })?;
        let refused = |source| ListenError::Refused { place: place(), source };
        socket.set_nonblocking(true).map_err(refused)?;
        Ok(Self { socket: socket.into(), bound: Bound::Unix { folder, name }, is_tls: false })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Bound::Unix { folder, name } = &self.bound {
            let _ = folder.remove(name);
        }
    }
}
