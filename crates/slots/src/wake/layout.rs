//! Where everything is in a ring of wake requests: the one place that knows. Little endian, fixed
//! offsets; how many entries there are stands in the header.
//!
//! ```text
//!      0  header   4096 bytes       written by the planner, but for the words of the doorbell, the
//!                                   head and the client's counters
//!   4096  entries  capacity x 64
//! ```

/// Raised by a change that an older client or planner would misunderstand.
pub const RING_VERSION: u32 = 1;
/// Entries that a ring can have.
pub const RING_ENTRIES_MAX: u32 = 1 << 14;
/// Entries of a ring where none are configured.
pub const RING_ENTRIES: u32 = 256;
/// CPUs that one request can name: the one that waits, and the one that takes the device's
/// interrupt, on two paths.
pub const CPUS_MAX: usize = 4;
/// In an entry's list of CPUs: none here.
pub const NO_CPU: u16 = u16::MAX;

/// The first eight bytes.
pub(crate) const MAGIC: [u8; 8] = *b"ROOSTWKE";
/// Bytes of the header.
pub(crate) const HEADER: usize = 4096;
/// Bytes of an entry: one cache line.
pub(crate) const ENTRY: usize = 64;

/// Offsets in the header; fields of different writers are in different cache lines.
pub(crate) mod header {
    pub const VERSION: usize = 8;
    pub const CAPACITY: usize = 12;
    /// Not zero: the planner sleeps, and the client that clears this rings.
    pub const ASLEEP: usize = 64;
    /// Nearer than this is too late, in ns: doorbell, exit latency, margin.
    pub const LEAD: usize = 128;
    /// Not zero: the reader is gone.
    pub const CLOSED: usize = 136;
    /// The next entry that a client takes.
    pub const HEAD: usize = 192;
    pub const TOO_LATE: usize = 256;
    pub const FULL: usize = 264;
    pub const NOT_RUNG: usize = 272;
    pub const RUNG: usize = 280;
    pub const TAKEN: usize = 320;
    pub const ACCEPTED: usize = 328;
    pub const REFUSED: usize = 336;
}

pub(crate) mod entry {
    /// The entry's turn: its ticket while it is free, one more when it is filled.
    pub const SEQUENCE: usize = 0;
    pub const WHAT: usize = 8;
    pub const ID: usize = 16;
    pub const READY: usize = 24;
    pub const STAY: usize = 32;
    pub const CPUS: usize = 40;
    pub const KEY: usize = 48;
}

pub(crate) const fn entry_offset(ticket: u64, capacity: u32) -> usize {
    HEADER + (ticket & (capacity as u64 - 1)) as usize * ENTRY
}

pub(crate) const fn ring_length(capacity: u32) -> usize {
    HEADER + capacity as usize * ENTRY
}
