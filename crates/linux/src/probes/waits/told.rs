//! The events of the program in the kernel, as they lie in the ring (`struct event`).

use crate::probes::Fields;
use machine::Instant;

/// The object that a blocked thread waits for, as far as the kernel's side can see. The numbers are
/// those of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    /// Something else, or unknown: a pipe, a lock between processes, a child.
    Other = 0,
    /// A peer on another machine, or one that may come: `recv`, `accept`, `connect` and the like on
    /// such a socket.
    Network = 1,
    /// A disk: the kernel counts it as waiting for input or output (`in_iowait`).
    Disk = 2,
    /// One of several unknown things: `epoll_wait`, `poll`, `select`, `io_uring_enter`.
    Many = 3,
    /// A socket whose other end is on this machine.
    Local = 4,
    /// A thread of its own process (a private futex), or a time of its own choosing.
    Within = 5,
    /// A person at a keyboard or mouse: a character device.
    Input = 6,
}

/// The role of a thread's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitRole {
    /// The group, by the number that its watcher gave it; 0: none.
    pub group: u32,
    /// It is of a critical group.
    pub is_critical: bool,
    /// It is of a background group.
    pub is_background: bool,
    /// It gets requests, and only threads that these reach are critical.
    pub is_asked: bool,
}

/// A thread and its role at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTask {
    pub id: u32,
    pub role: WaitRole,
}

/// An event of a critical thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitHappened {
    /// It stopped.
    Blocked {
        /// The object that it waits for.
        on: WaitKind,
        /// The place among its kind.
        place: u64,
    },
    /// It goes on.
    Unblocked {
        /// Its waker, if that was a thread and not an interrupt.
        by: Option<WaitTask>,
    },
    /// A thread that a request has reached woke this one, so it has reached this one too.
    Marked {
        by: WaitTask,
    },
    Forked {
        child: WaitTask,
    },
    /// It has ended.
    Ended,
    /// It wrote into a pipe, or a connection within this machine.
    Sent {
        channel: WaitChannel,
    },
    /// It read from one.
    Received {
        channel: WaitChannel,
    },
    /// A request came to it.
    Triggered {
        request: u64,
        port: u16,
    },
    /// It answered one.
    Responded {
        request: u64,
    },
}

/// A channel that one thread writes into and another reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitChannel {
    /// By its inode.
    Pipe(u64),
    /// By a number that both its ends have.
    Socket(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitEvent {
    pub at: Instant,
    pub task: WaitTask,
    pub happened: WaitHappened,
}

const CRITICAL: u32 = 1 << 31;
const BACKGROUND: u32 = 1 << 30;
const ASKED: u32 = 1 << 29;
/// In the number of a channel that is a pipe.
const OF_PIPE: u64 = 1 << 62;

impl WaitKind {
    /// The kernel's side counts it as a wait during which others may stand still; the policy may
    /// decide otherwise.
    pub fn may_be_slept_through(self) -> bool {
        self != Self::Other
    }

    fn of(number: u32) -> Self {
        match number {
            1 => Self::Network,
            2 => Self::Disk,
            3 => Self::Many,
            4 => Self::Local,
            5 => Self::Within,
            6 => Self::Input,
            _ => Self::Other,
        }
    }
}

/// `struct event`.
pub(super) fn event_in(bytes: &[u8]) -> Option<WaitEvent> {
    const LENGTH: usize = 2 * size_of::<u64>() + 6 * size_of::<u32>();
    let mut fields = Fields(bytes.get(..LENGTH)?);
    let (at, place) = (Instant::from_nanos(fields.u64()), fields.u64());
    let (kind, id, role) = (fields.u32(), fields.u32(), role_in(fields.u32()));
    let (wait, other, other_role) = (fields.u32(), fields.u32(), role_in(fields.u32()));
    let other = WaitTask { id: other, role: other_role };
    let happened = match kind {
        1 => WaitHappened::Blocked { on: WaitKind::of(wait), place },
        2 => WaitHappened::Unblocked { by: (other.id != 0).then_some(other) },
        3 => WaitHappened::Marked { by: other },
        4 => WaitHappened::Forked { child: other },
        5 => WaitHappened::Ended,
        6 => WaitHappened::Sent { channel: channel_in(place) },
        7 => WaitHappened::Received { channel: channel_in(place) },
        8 => WaitHappened::Triggered { request: place, port: u16::try_from(wait).ok()? },
        9 => WaitHappened::Responded { request: place },
        _ => return None,
    };
    Some(WaitEvent { at, task: WaitTask { id, role }, happened })
}

/// An address has the bit above too.
fn channel_in(place: u64) -> WaitChannel {
    match place >> 62 {
        1 => WaitChannel::Pipe(place & !OF_PIPE),
        _ => WaitChannel::Socket(place),
    }
}

impl WaitRole {
    /// The form of the program in the kernel.
    pub(super) fn bits(self) -> u32 {
        let kinds = [(self.is_critical, CRITICAL), (self.is_background, BACKGROUND), (self.is_asked, ASKED)];
        kinds.iter().filter(|(is, _)| *is).fold(self.group, |bits, (_, bit)| bits | bit)
    }
}

fn role_in(bits: u32) -> WaitRole {
    WaitRole {
        group: bits & !(CRITICAL | BACKGROUND | ASKED),
        is_critical: bits & CRITICAL != 0,
        is_background: bits & BACKGROUND != 0,
        is_asked: bits & ASKED != 0,
    }
}
