//! Messages from programs to Roost through shared memory: hot-function slots (here), and wake
//! requests ([`wake`]).
//!
//! Slots: which threads of a service are inside its hot function now, and since when, told through
//! a mapped file.
//!
//! The problem: speed goes to the requests that stay long in the function that makes them slow.
//! Only the service knows when a thread enters and leaves it, and only the governor may change a
//! frequency. The messages between them must cost the service next to nothing, even when the
//! governor is slow, stopped or dead.
//!
//! The approach: publish *state, not a queue*. Each thread owns one slot of 64 bytes and overwrites
//! it. A slot cannot overflow, is in no other thread's cache line, and can be read late, twice or
//! never. Writers are this crate's [`Writer`] (Rust), `include/roost.h` (C and C++) and `java/` (an
//! agent for any JVM server); they agree byte for byte, which `testdata/slots` checks. The reader
//! is [`Reader`]. `docs/formats.md` has the tables.
//!
//! ```text
//!   service's threads                         file (on tmpfs)                       governor
//!   enter: time, then state ----- store ----> slot 0, slot 1, ... ---- pread -----> Reader::look
//!   asleep? clear it, ring ------ futex ----> doorbell <-------------- futex wait - Reader::sleep
//!                                             enable <---------------- pwrite ----- Reader::enable
//! ```
//!
//! Terms:
//! - A *slot's state* is one 64-bit word: sequence, depth, method. It changes in one store, so it
//!   is never torn.
//! - *Sequence*: odd while the thread is inside, and 2N after N calls from outside. Calls from
//!   inside (recursion, or another watched method) change the depth only.
//! - *Doorbell*: a counter that is also a futex. It is rung only by an enter that finds the word
//!   *asleep* set, and that enter clears it; so a governor that is awake costs no system call, and
//!   one that sleeps costs one.
//!
//! Invariants:
//! - Enter and exit never wait, allocate, lock or fail. Where there is no room for a thread it is
//!   counted and left out.
//! - `entered_at` is written while the sequence is even, and read between two equal odd ones: the
//!   value belongs to the reported call. See [`Reader::look`].
//! - The reader maps nothing that it loads from: a file that is cut short under it is an error, not
//!   a SIGBUS. It trusts no number in the file before it has bounded it.

mod events;
mod identity;
mod layout;
mod map;
mod memory;
mod reader;
pub mod wake;
mod writer;

pub use events::{Event, EventKind, Events};
pub use identity::Identity;
pub use layout::{FILE_VERSION, Failures, METHODS_MAX, SLOTS_MAX};
pub use map::Map;
pub use memory::Memory;
pub use reader::{Activity, Bell, Enable, Method, MethodState, Reader, ReaderError, Slot, Woken};
pub use writer::{Inside, MethodId, ThreadSlot, Writer, WriterError, WriterOptions, image};
