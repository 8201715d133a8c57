//! The client's end, for programs in Rust; `include/roost_wake.h` is the same in C.
//!
//! ```no_run
//! use machine::{CpuId, Duration};
//! use slots::wake::WakeClient;
//!
//! let planner = WakeClient::connect("/run/roost/roost.sock".as_ref(), "search")?;
//! // A reply will wake a thread on CPU 3 in about 400 us, give or take 50.
//! let ready = planner.now() + Duration::from_micros(350);
//! planner.wake(&[CpuId(3)], ready, Duration::from_micros(100));
//! # Ok::<(), slots::wake::ConnectError>(())
//! ```

use super::layout::{self, CPUS_MAX, NO_CPU, entry, header};
use super::ring::Cpus;
use super::what;
use crate::map::Map;
use machine::{CpuId, Duration, Instant};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags,
    SocketType, recvmsg,
};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// The time that a planner has for each step of connecting.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// A connection to the planner; for all threads of this process.
#[derive(Debug)]
pub struct WakeClient {
    map: Map,
    capacity: u32,
    bell: OwnedFd,
    ids: AtomicU64,
    /// Its requests are withdrawn when it closes.
    _stream: UnixStream,
}

/// The outcome of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the ring, under this name.
    Sent(u64),
    /// It is too near to be of use; counted, and not sent.
    TooLate,
    /// The ring has no room; counted, and not sent.
    Full,
    /// The reader is gone: connect again.
    Closed,
}

impl Outcome {
    /// The request's name, if it was sent.
    pub fn id(self) -> Option<u64> {
        if let Self::Sent(id) = self { Some(id) } else { None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "no planner answers at {path}: {source}\nhint: start one with `roost wake`, or name the daemon's \
         socket",
        path = path.display()
    )]
    NoPlanner { path: PathBuf, source: io::Error },
    #[error("{path}: {answer}", path = path.display())]
    Refused { path: PathBuf, answer: String },
}

/// The kernel lets a caller wait for as long as the listener's queue is full; a send timeout bounds
/// that wait too.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_timeout(&socket, net::sockopt::Timeout::Send, Some(PATIENCE))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(|error| match error {
        Errno::AGAIN => io::Error::from(io::ErrorKind::TimedOut),
        error => error.into(),
    })?;
    Ok(UnixStream::from(socket))
}

impl WakeClient {
    /// Asks the planner at `path` for a ring, under a name that people will see.
    pub fn connect(path: &Path, name: &str) -> Result<Self, ConnectError> {
        let no_planner = |source: io::Error| ConnectError::NoPlanner { path: path.to_owned(), source };
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "._-/:@ ".contains(*c);
        let name: String = name.chars().filter(is_plain).take(80).collect();
        let mut stream = connect(path).map_err(no_planner)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(no_planner)?;
        let ask = format!("{{\"ring\":{{\"name\":\"{name}\",\"entries\":{}}}}}\n", layout::RING_ENTRIES);
        stream.write_all(ask.as_bytes()).map_err(no_planner)?;
        let (answer, descriptors) = receive(&stream).map_err(|error| no_planner(error.into()))?;
        let refused = |answer: String| ConnectError::Refused { path: path.to_owned(), answer };
        let Ok([memory, bell]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(refused(answer));
        };
        let memory = File::from(memory);
        let head = Map::new(&memory, layout::HEADER).map_err(no_planner)?;
        let capacity = head.word32(header::CAPACITY).load(Acquire);
        let is_good = head.word64(0).load(Acquire) == u64::from_le_bytes(layout::MAGIC)
            && head.word32(header::VERSION).load(Acquire) == layout::RING_VERSION
            && capacity.is_power_of_two()
            && capacity <= layout::RING_ENTRIES_MAX
            && memory.metadata().map_err(no_planner)?.len() >= layout::ring_length(capacity) as u64;
        if !is_good {
            return Err(refused(
                "the planner speaks another version; use the library of its release".to_owned(),
            ));
        }
        let map = Map::new(&memory, layout::ring_length(capacity)).map_err(no_planner)?;
        Ok(Self { map, capacity, bell, ids: AtomicU64::new(1), _stream: stream })
    }

    /// Now, on the clock that requests are on.
    pub fn now(&self) -> Instant {
        now()
    }

    /// Nearer than this is too late.
    pub fn lead(&self) -> Duration {
        Duration::from_nanos(self.map.word64(header::LEAD).load(Relaxed))
    }

    /// These CPUs shall be ready from `ready` on, for `stay`.
    pub fn wake(&self, cpus: &[CpuId], ready: Instant, stay: Duration) -> Outcome {
        let soonest = now() + self.lead();
        if ready < soonest {
            self.count(header::TOO_LATE);
            if ready + stay <= soonest {
                return Outcome::TooLate;
            }
        }
        self.say(what::WAKE, None, 0, cpus, ready.as_nanos(), stay.as_nanos())
    }

    /// The event of that request came: its CPUs have work now, and need not be kept awake.
    pub fn came(&self, id: u64) -> Outcome {
        self.say(what::CAME, Some(id), 0, &[], 0, 0)
    }

    pub fn withdraw(&self, id: u64) -> Outcome {
        self.say(what::WITHDRAWN, Some(id), 0, &[], 0, 0)
    }

    /// A computation of the kind `key` begins; when it will end is predicted from those before.
    pub fn began(&self, key: u64, cpus: &[CpuId]) -> Outcome {
        self.say(what::BEGAN, None, key, cpus, now().as_nanos(), 0)
    }

    /// It has ended: a computation, a timer, or an announced send.
    pub fn ended(&self, id: u64) -> Outcome {
        self.say(what::ENDED, Some(id), 0, &[], now().as_nanos(), 0)
    }

    /// A timer is set to `expiry`; how late it will be is learned.
    pub fn armed(&self, expiry: Instant, cpus: &[CpuId]) -> Outcome {
        self.say(what::ARMED, None, 0, cpus, expiry.as_nanos(), now().as_nanos())
    }

    /// Something came that comes again and again; when the next will is predicted from those
    /// before.
    pub fn arrived(&self, key: u64, cpus: &[CpuId]) -> Outcome {
        self.say(what::ARRIVED, None, key, cpus, now().as_nanos(), 0)
    }

    /// `key` says that it will send at `due`; how punctual it is, is learned.
    pub fn follows(&self, key: u64, due: Instant, cpus: &[CpuId]) -> Outcome {
        self.say(what::FOLLOWS, None, key, cpus, due.as_nanos(), now().as_nanos())
    }

    /// Requests that the planner accepted and refused, of all that this client has asked.
    pub fn answered(&self) -> (u64, u64) {
        (self.map.word64(header::ACCEPTED).load(Acquire), self.map.word64(header::REFUSED).load(Acquire))
    }

    /// Entries that the planner has read.
    pub fn taken(&self) -> u64 {
        self.map.word64(header::TAKEN).load(Acquire)
    }

    /// The messages that were too late, found no room, and rang.
    pub fn counted(&self) -> [u64; 3] {
        [header::TOO_LATE, header::FULL, header::RUNG].map(|word| self.map.word64(word).load(Relaxed))
    }

    fn say(&self, what: u32, id: Option<u64>, key: u64, cpus: &[CpuId], time: u64, stay: u64) -> Outcome {
        if self.map.word32(header::CLOSED).load(Relaxed) != 0 {
            return Outcome::Closed;
        }
        let id = id.unwrap_or_else(|| self.ids.fetch_add(1, Relaxed));
        let head = self.map.word64(header::HEAD);
        let mut ticket = head.load(Relaxed);
        let at = loop {
            let at = layout::entry_offset(ticket, self.capacity);
            let turn = self.map.word64(at + entry::SEQUENCE).load(Acquire).wrapping_sub(ticket) as i64;
            match turn {
                0 => match head.compare_exchange_weak(ticket, ticket.wrapping_add(1), Relaxed, Relaxed) {
                    Ok(_) => break at,
                    Err(other) => ticket = other,
                },
                ..0 => {
                    self.count(header::FULL);
                    return Outcome::Full;
                }
                _ => ticket = head.load(Relaxed),
            }
        };
        let put = |offset: usize, word: u64| self.map.word64(at + offset).store(word, Relaxed);
        self.map.word32(at + entry::WHAT).store(what, Relaxed);
        put(entry::ID, id);
        put(entry::READY, time);
        put(entry::STAY, stay);
        put(entry::CPUS, Cpus::of(cpus.iter().copied().take(CPUS_MAX).filter(|cpu| cpu.0 != NO_CPU)).word());
        put(entry::KEY, key);
        self.map.word64(at + entry::SEQUENCE).store(ticket.wrapping_add(1), Release);
        // The entry before the look at `asleep`; the planner does it the other way round.
        fence(SeqCst);
        let asleep = self.map.word32(header::ASLEEP);
        if asleep.load(Relaxed) != 0 && asleep.swap(0, Relaxed) != 0 {
            self.ring();
        }
        Outcome::Sent(id)
    }

    #[cold]
    fn ring(&self) {
        match rustix::io::write(&self.bell, &1_u64.to_ne_bytes()) {
            Ok(_) => self.count(header::RUNG),
            Err(_) => self.count(header::NOT_RUNG),
        }
    }

    fn count(&self, what: usize) {
        self.map.word64(what).fetch_add(1, Relaxed);
    }
}

fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    // Both fields are never negative for this clock.
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// A line, and the descriptors that came with it.
fn receive(stream: &UnixStream) -> Result<(String, Vec<OwnedFd>), Errno> {
    let mut bytes = [0; 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let came = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let line = String::from_utf8_lossy(&bytes[..came.bytes]).trim_end().to_owned();
    Ok((line, descriptors))
}
