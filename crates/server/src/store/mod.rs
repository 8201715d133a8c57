//! The store.

mod budget;
mod clean;
mod entry;
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
pub use entry::{Entry, Item, KEY_MAX, NewItem};
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
        "the kernel refused memory for the store: lower --memory-limit or raise the limit of the cgroup or `ulimit -v`"
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
}

/// A shard on cache lines of its own: neighbours' locks do not disturb each other. Two lines, because
/// processors fetch them in pairs.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl Store {
    /// An empty store. Its limit is charged as it fills; only a small part is guaranteed to each shard.
    pub fn new(config: StoreConfig) -> Result<Self, OpenError> {
        Self::with_hasher(config, KeyHasher::random())
    }

    /// As [`Self::new`], but keys fall into the same places for the same seed: for measurements that are
    /// repeated. Who knows the seed can make keys collide.
    pub fn with_seed(config: StoreConfig, seed: u64) -> Result<Self, OpenError> {
        Self::with_hasher(config, KeyHasher::seeded(seed))
    }

    fn with_hasher(config: StoreConfig, hasher: KeyHasher) -> Result<Self, OpenError> {
        let geometry = Geometry::of(&config)?;
        let budget = Arc::new(Budget::new(config.memory_limit));
        let pages = Arc::new(Pages::new(config.max_item_size.max(geometry.quota / 8)));
        let shards = (0..geometry.shards)
            .map(|_| {
                let memory =
                    Memory::new(pages.clone(), budget.clone(), geometry.quota, geometry.guaranteed());
                Shard::new(geometry, hasher, memory).map(|shard| Padded(Mutex::new(shard)))
            })
            .collect::<Result<_, _>>()
            .map_err(|OutOfRoom| OpenError::Refused)?;
        Ok(Self { hasher, shards, budget })
    }

    /// Locks the key's shard and looks the key up. `key` has 1 to 250 bytes; `now` is a second of the server's
    /// clock, which starts at 2 so that 0 and 1 can mean "never" and "past".
    pub fn entry<'s>(&'s self, key: &'s [u8], now: u32) -> Entry<'s> {
        Entry::open(self, key, now)
    }

    /// Has the processor fetch where `key` is listed. Worth it some requests before [`Self::prefetch_item`].
    pub fn prefetch(&self, key: &[u8]) {
        let hash = self.hasher.hash(key);
        self.shard(hash).index.prefetch(hash);
    }

    /// Has the processor fetch the item of `key`. Worth it some requests before [`Self::entry`].
    pub fn prefetch_item(&self, key: &[u8]) {
        let hash = self.hasher.hash(key);
        let shard = self.shard(hash);
        shard.index.candidates(hash, |location| shard.log.record(location).prefetch());
    }

    /// Items last stored before second `at` of the server's clock are gone once it is reached. If it was
    /// reached already, all that is stored now is gone at once, even what was stored in this very second. A
    /// flush that is still due is replaced.
    pub fn flush_all(&self, at: u32) {
        let latest = self.shards.iter().map(|shard| shard.lock().latest()).max().unwrap_or(0);
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.tick(latest);
            shard.flush_all(at);
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

    /// The account of everything under the memory limit; connection buffers are charged to it.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[(hash >> 56) as usize & (self.shards.len() - 1)].lock()
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
