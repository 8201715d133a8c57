//! Linux: epoll with a timerfd, pinned threads, real-time priority.

use super::{Ready, Wants};
use crate::Error;
use crate::connection::Address;
use ::linux::now;
use machine::{CpuId, CpuList, Duration, Instant};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, ipproto, socket_with,
    sockopt::set_tcp_nodelay,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Sockets that are watched, and a time at which waiting ends. That is a timerfd in the epoll set:
/// it takes nanoseconds on every kernel (epoll_pwait2 needs Linux 5.11) and is exempt from the slack
/// that the kernel adds to a thread's ordinary timeouts.
pub(crate) struct Readiness {
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Instant,
}

/// Filled by [`Readiness::wait`]; it cannot move between threads.
pub(crate) struct Events(Vec<epoll::Event>);

impl Events {
    pub fn new() -> Self {
        Self(Vec::with_capacity(EVENTS_PER_WAIT))
    }

    /// Those of the last wait; then there are none.
    pub fn take(&mut self) -> impl Iterator<Item = Ready> + '_ {
        use epoll::EventFlags;
        let of_a_socket = self.0.drain(..).filter(|&epoll::Event { data, .. }| data.u64() != TIMER);
        of_a_socket.map(|epoll::Event { flags, data }| Ready {
            at: data.u64() as usize,
            readable: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
            writable: flags.contains(EventFlags::OUT),
        })
    }
}

impl Readiness {
    pub fn new() -> Result<Self, Error> {
        let system = |doing| move |cause: Errno| Error::System { doing, cause: cause.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("creating an epoll set"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(system("creating a timer"))?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), flags)
            .map_err(system("watching a timer"))?;
        Ok(Self { epoll, timer, armed: Instant::ZERO })
    }

    pub fn watch(&mut self, socket: BorrowedFd<'_>, at: usize, wants: Wants) -> io::Result<()> {
        let data = epoll::EventData::new_u64(at as u64);
        Ok(epoll::add(&self.epoll, socket, data, flags(wants))?)
    }

    /// Of a socket that is watched, so this cannot fail.
    pub fn change(&mut self, socket: BorrowedFd<'_>, at: usize, wants: Wants) {
        let _ = epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(at as u64), flags(wants));
    }

    pub fn forget(&mut self, socket: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Waits for events, until `wake` at the latest; without it, not at all.
    pub fn wait(&mut self, wake: Option<Instant>, events: &mut Events) -> Result<(), Error> {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        if let Some(wake) = wake.filter(|&wake| wake != self.armed) {
            self.arm(wake)?;
        }
        let timeout = if wake.is_some() { None } else { Some(&none) };
        match epoll::wait(&self.epoll, spare_capacity(&mut events.0), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(cause) => Err(Error::System { doing: "waiting for answers", cause: cause.into() }),
        }
    }

    fn arm(&mut self, wake: Instant) -> Result<(), Error> {
        let nanos = wake.as_nanos();
        let it_value = Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        self.armed = wake;
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .map(drop)
            .map_err(|cause| Error::System { doing: "setting a timer", cause: cause.into() })
    }
}

fn flags(wants: Wants) -> epoll::EventFlags {
    match wants {
        Wants::Answers => epoll::EventFlags::IN,
        Wants::Room => epoll::EventFlags::IN | epoll::EventFlags::OUT,
    }
}

pub(crate) type UnixAddress = SocketAddrUnix;

pub(crate) fn unix_address(path: &Path) -> io::Result<UnixAddress> {
    Ok(SocketAddrUnix::new(path)?)
}

/// A socket that begins to connect, without waiting for the server.
pub(crate) fn begin_to_connect(address: &Address) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, protocol) = match address {
        Address::Tcp(SocketAddr::V4(_)) => (AddressFamily::INET, Some(ipproto::TCP)),
        Address::Tcp(SocketAddr::V6(_)) => (AddressFamily::INET6, Some(ipproto::TCP)),
        Address::Unix(_) => (AddressFamily::UNIX, None),
    };
    let socket = socket_with(family, SocketType::STREAM, flags, protocol)?;
    let begun = match address {
        Address::Tcp(address) => {
            set_tcp_nodelay(&socket, true)?;
            connect(&socket, address)
        }
        Address::Unix(address) => connect(&socket, address),
    };
    match begun {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(cause) => Err(cause.into()),
    }
}

/// A Unix socket's connect answers EAGAIN while the server's queue of connections is full, and
/// would wait without limit if it were blocking.
pub(crate) fn connect_unix(address: &UnixAddress, patience: Duration) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let deadline = now() + patience;
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, address) {
            Ok(()) => return Ok(socket),
            Err(Errno::AGAIN) if now() < deadline => std::thread::sleep(QUEUE_RETRY),
            Err(cause) => return Err(cause.into()),
        }
    }
}

/// An error if these CPUs are not this process's.
pub(crate) fn check_cpus(cpus: &CpuList) -> Result<(), Error> {
    Ok(::linux::check_allowed(cpus, &::linux::allowed_cpus()?)?)
}

/// Names and pins the calling thread.
pub(crate) fn settle(number: usize, cpu: Option<CpuId>) -> Result<(), Error> {
    ::linux::name_current_thread(&format!("load-{number}"));
    match cpu {
        Some(cpu) => Ok(::linux::pin_current_thread(cpu)?),
        None => Ok(()),
    }
}

/// From now on the calling thread goes before all that have no real-time priority.
pub(crate) fn take_realtime_priority() -> Result<(), Error> {
    Ok(::linux::schedule_fifo()?)
}

/// CPU time that the calling thread has used.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_nanos(time.tv_sec as u64 * NANOS + time.tv_nsec as u64)
}

/// Lets this process have as many sockets as the plan needs.
pub(crate) fn raise_descriptor_limit(connections: u32) -> Result<(), Error> {
    let needed = u64::from(connections) + DESCRIPTORS_BESIDE;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|limit| limit >= needed) {
        return Ok(());
    }
    if let Some(limit) = limits.maximum.filter(|limit| *limit < needed) {
        return Err(Error::Descriptors { connections, needed, limit });
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limits.maximum })
        .map_err(|cause| Error::System { doing: "raising the limit on open files", cause: cause.into() })
}

/// The timer's mark in the epoll set; connections are numbered from 0.
const TIMER: u64 = u64::MAX;
const NANOS: u64 = 1_000_000_000;
const EVENTS_PER_WAIT: usize = 256;
/// Standard streams, epoll sets, timers, and the descriptors of the program around.
const DESCRIPTORS_BESIDE: u64 = 256;
/// A server that accepts at all has emptied its queue by then.
const QUEUE_RETRY: std::time::Duration = std::time::Duration::from_millis(1);
