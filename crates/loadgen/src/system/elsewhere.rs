//! Where there is no Linux: Windows, macOS.

use super::{Ready, Wants};
use crate::Error;
use crate::connection::Address;
use machine::{CpuId, CpuList, Duration, Instant};
use os::now;
use polling::{Event, PollMode, Poller};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::path::Path;

/// Sockets that are watched, and a time at which waiting ends.
pub(crate) struct Readiness(Poller);

/// The events that the last [`Readiness::wait`] has seen, and room to hand them on.
pub(crate) struct Events(polling::Events, Vec<Ready>);

impl Events {
    pub fn new() -> Self {
        Self(polling::Events::new(), Vec::new())
    }

    /// Those of the last wait; then there are none.
    pub fn take(&mut self) -> impl Iterator<Item = Ready> + '_ {
        let Self(events, ready) = self;
        ready.extend(events.iter().map(|event| {
            let has_ended = event.is_interrupt() || event.is_err().unwrap_or(false);
            Ready { at: event.key, readable: event.readable || has_ended, writable: event.writable }
        }));
        events.clear();
        ready.drain(..)
    }
}

impl Readiness {
    pub fn new() -> Result<Self, Error> {
        Poller::new().map(Self).map_err(|cause| Error::System { doing: "creating a poller", cause })
    }

    pub fn watch(&mut self, socket: BorrowedFd<'_>, at: usize, wants: Wants) -> io::Result<()> {
        // SAFETY: a connection is forgotten before it is dropped, or dropped after this poller, as the
        // fields of a lane are in that order.
        unsafe { self.0.add_with_mode(&socket, event(at, wants), PollMode::Level) }
    }

    /// Of a socket that is watched, so this cannot fail.
    pub fn change(&mut self, socket: BorrowedFd<'_>, at: usize, wants: Wants) {
        let _ = self.0.modify_with_mode(socket, event(at, wants), PollMode::Level);
    }

    pub fn forget(&mut self, socket: BorrowedFd<'_>) {
        let _ = self.0.delete(socket);
    }

    /// Waits for events, until `wake` at the latest; without it, not at all.
    pub fn wait(&mut self, wake: Option<Instant>, events: &mut Events) -> Result<(), Error> {
        let patience = wake.map_or(Duration::ZERO, |wake| wake.since(now()));
        let waited = self.0.wait(&mut events.0, Some(patience.into()));
        match waited {
            Ok(_) => Ok(()),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(cause) => Err(Error::System { doing: "waiting for answers", cause }),
        }
    }
}

fn event(at: usize, wants: Wants) -> Event {
    Event::new(at, true, wants == Wants::Room)
}

pub(crate) type UnixAddress = SockAddr;

pub(crate) fn unix_address(path: &Path) -> io::Result<UnixAddress> {
    SockAddr::unix(path)
}

/// A socket that begins to connect, without waiting for the server.
pub(crate) fn begin_to_connect(address: &Address) -> io::Result<OwnedFd> {
    let address = match address {
        Address::Tcp(address) => SockAddr::from(*address),
        Address::Unix(address) => address.clone(),
    };
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if address.domain() != Domain::UNIX {
        socket.set_tcp_nodelay(true)?;
    }
    match socket.connect(&address) {
        Ok(()) => Ok(socket.into()),
        Err(cause) => match Errno::from_io_error(&cause) {
            Some(Errno::INPROGRESS | Errno::WOULDBLOCK) => Ok(socket.into()),
            _ => Err(cause),
        },
    }
}

pub(crate) fn connect_unix(address: &UnixAddress, patience: Duration) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.connect_timeout(address, patience.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

pub(crate) fn check_cpus(_: &CpuList) -> Result<(), Error> {
    Err(Error::Plan("threads are pinned to CPUs on Linux alone; leave --cpus out".to_owned()))
}

pub(crate) fn settle(_number: usize, _cpu: Option<CpuId>) -> Result<(), Error> {
    Ok(())
}

pub(crate) fn take_realtime_priority() -> Result<(), Error> {
    Err(Error::Plan("real-time priority is had on Linux alone; leave --realtime out".to_owned()))
}

/// CPU time that the calling thread has used.
#[cfg(unix)]
pub(crate) fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CPU time that the calling thread has used, in the program and in the kernel for it.
#[cfg(windows)]
pub(crate) fn thread_cpu_time() -> Duration {
    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::Threading::{GetCurrentThread, GetThreadTimes};
    let mut times = [FILETIME::default(); 4];
    let [made, ended, kernel, user] = &mut times;
    // SAFETY: the handle is this thread's own, which needs no closing; four times are written.
    let is_told = unsafe { GetThreadTimes(GetCurrentThread(), made, ended, kernel, user) };
    let of = |time: &FILETIME| (u64::from(time.dwHighDateTime) << 32) + u64::from(time.dwLowDateTime);
    // In units of 100 ns. The thread exists, so this does not fail.
    if is_told == 0 { Duration::ZERO } else { Duration::from_nanos((of(kernel) + of(user)) * 100) }
}

/// The system's limit on sockets is told where it is met.
pub(crate) fn raise_descriptor_limit(_connections: u32) -> Result<(), Error> {
    Ok(())
}
