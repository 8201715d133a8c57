//! Wake requests: how a program says when it will need a CPU awake, without a system call while the
//! planner is awake.
//!
//! The problem: a program knows that a reply, a disk, a GPU or a peer will wake one of its threads
//! at a certain time, some tens or hundreds of microseconds from now. A message about it must cost
//! far less than it saves, and must never wait.
//!
//! The approach: a ring in memory that the planner makes, one for each client process, handed out
//! over the planner's Unix socket with an eventfd, its doorbell. The client fills an entry; only if
//! the planner has said that it sleeps does it ring, with one system call.
//!
//! ```text
//!   client's threads                     memfd, sealed                planner
//!   wake(cpus, ready, stay) -- store --> entry, entry, ... -- load -> Ring::take
//!   asleep? clear it, ring -- eventfd ----------------------------->  epoll
//! ```
//!
//! Terms. A *ticket* is the number of an entry since the ring was made. An entry's *sequence* is
//! its ticket while it is free, its ticket plus one when it is filled, and its ticket plus the
//! capacity when it was taken: so several threads fill entries without a lock, and one reads them
//! in order. *Lead* is the time that the planner needs before a CPU can be ready (doorbell, exit
//! latency, margin). A request nearer than that is *too late*: the client counts it and does not
//! send it, unless its window reaches further.
//!
//! Invariants:
//! - A client never waits and never fails: where there is no room, or the reader is gone, the call
//!   says so and counts it.
//! - The memory's length is sealed, so that neither side can cut it short under the other. The
//!   planner keeps its own place in the ring, and trusts no word there: it takes at most a ring's
//!   worth of entries at a time, and each is a [`Said`] or is counted as nonsense.
//! - When the connection ends, the ring ends: the kernel tells the planner, however the client
//!   ended.

mod client;
mod layout;
mod ring;

pub use client::{ConnectError, Outcome, WakeClient};
pub use layout::{CPUS_MAX, NO_CPU, RING_ENTRIES, RING_ENTRIES_MAX, RING_VERSION};
pub use ring::{Cpus, Ring, RingTally, Said};

/// The meaning of an entry, by number.
pub(crate) mod what {
    pub const WAKE: u32 = 1;
    pub const CAME: u32 = 2;
    pub const WITHDRAWN: u32 = 3;
    pub const BEGAN: u32 = 4;
    pub const ENDED: u32 = 5;
    pub const ARMED: u32 = 6;
    pub const ARRIVED: u32 = 7;
    pub const FOLLOWS: u32 = 8;
}
