//! The store: items under a memory limit that holds.
//!
//! # The problem
//! Small items by the million, in a process that must not grow past its limit, must not stop to
//! grow, and should keep the items that will be asked for again. The usual ways each miss one of
//! these. A general allocator spends a quarter of the memory on itself and fragments under changing
//! sizes. Slabs by size class strand memory in the class that was popular yesterday. A hash table
//! that doubles stops the world. Plain LRU lets one scan drive out everything.
//!
//! # The approach
//! ```text
//!                     key --rapidhash--> 64 bits
//!                                         |  8 choose
//!       +------------------+------------- v ----------------+------------------+
//!       | shard 0          | shard 1     ...                | shard n-1        |   each behind its own lock
//!       +------------------+--------------------------------+------------------+
//!                         /                                  \
//!    index (linear hashing; a bucket is a cache line)         memory (quota, out of the one Budget)
//!    [tags|locations] [tags|locations] [tags|locations] ..         |
//!            |                                                     | whole pages from common address space
//!            | 32 bits: segment, place                             v
//!            v                                            index pieces, segments, large values
//!    log of segments
//!      probation:  [old......] [.........] [new..>   ]   <- new items
//!                      |sift: used since? -----------.
//!                      | no: dropped, ghost remembers |
//!      main:       [old......] [.........] [new..>   ] <- and items that the ghost knows
//!                      |recirculate: used? goes round again; else dropped
//! ```
//! - An item is one *record* (`record`): header of 24 bytes, key, value, padded to 8. Records are
//!   appended to *segments* (`log`) of 16 to 256 KiB, at least 32 to a shard, so nothing is
//!   fragmented but by death.
//! - The *index* (`index`) maps a hash to a record's location with 16 bits of the hash to tell them
//!   apart. It grows and shrinks one bucket at a time.
//! - Room is made by *cleaning* segments (`clean`): sparse ones are compacted; only when there is
//!   none does S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023)
//!   drop unused items. Puts pay for it in small steps.
//! - Values that would waste a segment's end lie in pages of their own (`memory`), as do segments
//!   and pieces of the index; all of it is charged to a [`Budget`] before it is touched, and
//!   connection buffers with it. The store leaves a part of the limit to those (`geometry`).
//! - There is no thread here. Expired and flushed items go when they are met, when their segment is
//!   cleaned, and by a sweep over one segment whenever another is opened.
//!
//! # Invariants
//! - A look-up finds the last value put under the key, or nothing.
//! - The sum of the grants to shards and connections never passes the limit, and RSS passes that
//!   only by the rest of the process. (Each shard is granted a minimum when the store opens, so
//!   that it can serve small items whatever connections take.)
//! - A put does bounded work: it cleans a few records, splits one bucket, opens one segment and
//!   sweeps another; only a large value, or an index that must grow in a full shard, may make it
//!   clean several segments.
//! - CAS ids of a key grow and are never 0, unless a client sets its own beyond 2^63.
//! - Time within a shard does not go back, though workers read the clock each for itself.
//!
//! # Cost
//! 154.7 bytes for an item of 20 + 100 bytes; measurements, alternatives and dead ends are in
//! `docs/journal/2026-11-20-store.md`, and `cargo bench -p store --bench store` repeats them.

mod budget;
mod clean;
mod entry;
mod events;
mod geometry;
mod ghost;
mod hash;
mod index;
mod log;
mod memory;
mod record;
mod shard;
mod stats;

pub use budget::Budget;
pub use entry::{Carried, Entry, Item, KEY_MAX, Listed, NewItem};
pub use events::{Event, EventCounts, Events, Listener};
pub use geometry::largest_item;
pub use stats::{CLASSES, ClassStats, StoreStats};

use geometry::Geometry;
use hash::KeyHasher;
use memory::{Memory, Pages};
use shard::Shard;
use std::sync::{Arc, Mutex, MutexGuard};

/// How large a store may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes for everything: items, index and connection buffers (`--memory-limit`).
    pub memory_limit: usize,
    /// Bytes of the largest item, its key and header included (`--max-item-size`).
    pub max_item_size: usize,
    /// Shards, rounded up to a power of two; by default as many as the limit has room for.
    pub shards: Option<usize>,
}

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The limit has no room for even one shard.
    #[error("a memory limit of {limit} bytes is too small: set --memory-limit to {least} or more")]
    LimitTooSmall {
        /// Bytes asked for.
        limit: usize,
        /// Bytes that are needed.
        least: usize,
    },
    /// Values of that size have no place in a record.
    #[error("items of {size} bytes are not supported: set --max-item-size to {most} or less")]
    ItemSizeTooLarge {
        /// Bytes asked for.
        size: usize,
        /// Bytes supported.
        most: usize,
    },
    /// The kernel refused the first pages.
    #[error(
        "the kernel refused memory for the store: lower --memory-limit or raise the limit of the cgroup or \
         `ulimit -v`"
    )]
    Refused,
}

/// An item could not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It is longer than the largest item allowed.
    #[error("object too large for cache: raise --max-item-size to store it")]
    TooLarge,
    /// There is no room for it, not even by eviction.
    #[error("out of memory storing object: raise --memory-limit")]
    OutOfMemory,
}

/// A shard found no room, not even by cleaning.
#[derive(Debug)]
struct OutOfRoom;

/// The store, shared by all workers.
pub struct Store {
    hasher: KeyHasher,
    shards: Box<[Padded]>,
    budget: Arc<Budget>,
    events: Arc<Events>,
    geometry: Geometry,
    memory_limit: usize,
}

/// Where a walk over all items goes on: a shard, and the first of its hashes, read from their last bit,
/// that was not visited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    shard: usize,
    hash: u32,
}

/// Numbers of a store, or of a shard, that outlive it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The highest CAS id that was given out.
    pub cas: u64,
    /// The second of the flush that is due; 0 if none is.
    pub flush_due: u32,
}

/// A shard on cache lines of its own: neighbours' locks do not disturb each other. Two lines,
/// because processors fetch them in pairs.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl Store {
    /// An empty store. Its limit is charged as it fills; only a small part is guaranteed to each
    /// shard.
    pub fn new(config: StoreConfig) -> Result<Self, OpenError> {
        Self::with_hasher(config, KeyHasher::random())
    }

    /// As [`Self::new`], but keys fall into the same places for the same seed: for measurements
    /// that are repeated. A client that knows the seed can make keys collide.
    pub fn with_seed(config: StoreConfig, seed: u64) -> Result<Self, OpenError> {
        Self::with_hasher(config, KeyHasher::seeded(seed))
    }

    fn with_hasher(config: StoreConfig, hasher: KeyHasher) -> Result<Self, OpenError> {
        let geometry = Geometry::of(&config)?;
        let budget = Arc::new(Budget::new(config.memory_limit));
        let events = Arc::new(Events::new(budget.clone()));
        let pages = Arc::new(Pages::new(config.max_item_size.max(geometry.quota / 8)));
        let shards = (0..geometry.shards)
            .map(|_| {
                let memory =
                    Memory::new(pages.clone(), budget.clone(), geometry.quota, geometry.guaranteed());
                Shard::new(geometry, hasher, memory, events.clone()).map(|shard| Padded(Mutex::new(shard)))
            })
            .collect::<Result<_, _>>()
            .map_err(|OutOfRoom| OpenError::Refused)?;
        Ok(Self { hasher, shards, budget, events, geometry, memory_limit: config.memory_limit })
    }

    /// Locks the key's shard and looks the key up. `key` has 1 to 250 bytes; `now` is a second of
    /// the server's clock, which starts at 2 so that 0 and 1 can mean "never" and "past".
    pub fn entry<'s>(&'s self, key: &'s [u8], now: u32) -> Entry<'s> {
        Entry::open(self, key, now)
    }

    /// Has the processor fetch where `key` is listed. For a batch of requests: first this for every
    /// key, then [`Self::prefetch_item`] for every key, then [`Self::entry`] one by one. On 4
    /// million items a get in a batch of 16 takes 153 instead of 440 ns so; where everything is in
    /// the cache it takes 14 ns more.
    pub fn prefetch(&self, key: &[u8]) {
        let hash = self.hasher.hash(key);
        if let Some(shard) = self.shard_if_free(hash) {
            shard.index.prefetch(hash);
        }
    }

    /// Has the processor fetch the item of `key`; see [`Self::prefetch`]. Alone it brings a get to
    /// 212 ns.
    pub fn prefetch_item(&self, key: &[u8]) {
        let hash = self.hasher.hash(key);
        if let Some(shard) = self.shard_if_free(hash) {
            shard.index.candidates(hash, |location| shard.log.record(location).prefetch());
        }
    }

    /// Items last stored before second `at` of the server's clock are gone once it is reached. If
    /// it was reached already, all stored items are gone at once, even those stored in this very
    /// second. A flush that is still due is replaced.
    pub fn flush_all(&self, at: u32) {
        let latest = self.shards.iter().map(|shard| shard.lock().latest()).max().unwrap_or(0);
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.tick(latest);
            shard.flush_all(at);
        }
    }

    /// Calls `visit` with the live items of the next bucket; `false` once all were visited. An item that
    /// is there from the first call to the last is visited once.
    pub fn walk(&self, cursor: &mut Cursor, now: u32, mut visit: impl FnMut(Listed<'_>)) -> bool {
        let Some(padded) = self.shards.get(cursor.shard) else { return false };
        let mut held = padded.lock();
        let now = held.tick(now);
        let (shard, from) = (&*held, cursor.hash);
        let next = shard.index.walk(from, |location| {
            let record = shard.log.record(location);
            // A bucket may hold more hashes than when the walk came by before.
            let is_new = (self.hasher.hash(record.key()) as u32).reverse_bits() >= from;
            if is_new && !shard.is_gone(record.header(), now) {
                visit(Listed::of(record));
            }
        });
        match next {
            Some(next) => cursor.hash = next,
            None => *cursor = Cursor { shard: cursor.shard + 1, hash: 0 },
        }
        true
    }

    /// The numbers that outlive it, besides its items.
    pub(crate) fn summary(&self, now: u32) -> Summary {
        let mut all = Summary::default();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.tick(now);
            let Summary { cas, flush_due } = shard.summary();
            all = Summary { cas: all.cas.max(cas), flush_due: all.flush_due.max(flush_due) };
        }
        all
    }

    /// Goes on where a run with this summary ended.
    pub(crate) fn resume(&self, summary: Summary) {
        for shard in &self.shards {
            shard.lock().resume(summary);
        }
    }

    /// Counters and sizes, summed over the shards.
    pub fn stats(&self) -> StoreStats {
        let mut sum = StoreStats::default();
        for shard in &self.shards {
            sum += &shard.lock().stats();
        }
        sum.used_bytes = self.budget.used() as u64;
        sum.limit_bytes = self.budget.limit() as u64;
        sum
    }

    /// Another memory limit: at most the one that the store was opened with, for which its shards
    /// were cut, and at least the present charge and the shards' minimum. `false`, and nothing
    /// changed, otherwise.
    pub fn set_limit(&self, limit: usize) -> bool {
        let quota = limit.saturating_sub(geometry::connection_reserve(limit)) / self.shards.len();
        let workable = quota >= 2 * self.geometry.guaranteed();
        if limit > self.memory_limit || !workable || !self.budget.set_limit(limit) {
            return false;
        }
        for shard in &self.shards {
            shard.lock().memory.set_quota(quota);
        }
        true
    }

    /// The account of everything under the memory limit; connection buffers are charged to it.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The queues of the clients that watch events.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[(hash >> 56) as usize & (self.shards.len() - 1)].lock()
    }

    /// For work that is only worth while no other core has the shard.
    fn shard_if_free(&self, hash: u64) -> Option<MutexGuard<'_, Shard>> {
        self.shards[(hash >> 56) as usize & (self.shards.len() - 1)].0.try_lock().ok()
    }
}

impl Padded {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        self.0.lock().expect("a worker panicked while it changed this shard; its state cannot be trusted")
    }
}

/// Asks the processor to fetch the cache line at `place`.
fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch(place.cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(test)]
mod tests;
