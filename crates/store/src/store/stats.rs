//! The store's counts of itself.

use std::ops::AddAssign;

/// Sums over all shards, as `stats`, `stats items` and `stats slabs` show them. Counters run from
/// the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Items held, some of which may have expired unnoticed (`curr_items`).
    pub items: u64,
    /// Bytes that those items occupy: header, key and value, padded, large values in whole pages
    /// (`bytes`).
    pub bytes: u64,
    /// Items ever stored (`total_items`).
    pub total_items: u64,
    /// Items dropped alive to make room (`evictions`).
    pub evictions: u64,
    /// Of those, never read since they were stored (`evicted_unfetched`).
    pub evicted_unfetched: u64,
    /// Expired or flushed items whose room was taken back (`reclaimed`).
    pub reclaimed: u64,
    /// Of those, never read since they were stored (`expired_unfetched`).
    pub expired_unfetched: u64,
    /// Items that a request found expired (`get_expired`), and flushed (`get_flushed`).
    pub get_expired: u64,
    pub get_flushed: u64,
    /// Puts refused for want of memory.
    pub out_of_memory: u64,
    /// Items moved within the log, to keep them or to close the gaps around them.
    pub moved: u64,
    /// Bytes of the index (`hash_bytes`).
    pub index_bytes: u64,
    /// Bytes of the table of keys dropped last.
    pub ghost_bytes: u64,
    pub index_buckets: u64,
    /// Bytes that the shards hold: segments, index and large values.
    pub held_bytes: u64,
    /// Bytes charged to the limit: the shards' holdings or guarantees, and connection buffers.
    pub used_bytes: u64,
    /// The limit (`limit_maxbytes`).
    pub limit_bytes: u64,
    pub shards: u64,
    /// By size: class `c` holds the items of at most `2^c` and more than `2^(c-1)` bytes.
    pub classes: [ClassStats; CLASSES],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    pub items: u64,
    /// Bytes that they occupy.
    pub bytes: u64,
    /// Items dropped alive to make room.
    pub evictions: u64,
    /// Of those, never read since they were stored.
    pub evicted_unfetched: u64,
    /// Of those evicted, with a time of expiry.
    pub evicted_nonzero: u64,
    /// How long the last one evicted had not been used, in seconds: the *eviction age*. Of several shards
    /// the shortest.
    pub evicted_time: u64,
    /// Expired or flushed items whose room was taken back.
    pub reclaimed: u64,
}

/// Size classes: the largest item is just above 1 GiB.
pub const CLASSES: usize = 32;

/// The class of an item that occupies `bytes`.
pub(super) fn class_of(bytes: usize) -> usize {
    (bytes.next_power_of_two().ilog2() as usize).min(CLASSES - 1)
}

impl AddAssign<&StoreStats> for StoreStats {
    fn add_assign(&mut self, other: &StoreStats) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.total_items += other.total_items;
        self.evictions += other.evictions;
        self.evicted_unfetched += other.evicted_unfetched;
        self.reclaimed += other.reclaimed;
        self.expired_unfetched += other.expired_unfetched;
        self.get_expired += other.get_expired;
        self.get_flushed += other.get_flushed;
        self.out_of_memory += other.out_of_memory;
        self.moved += other.moved;
        self.index_bytes += other.index_bytes;
        self.ghost_bytes += other.ghost_bytes;
        self.index_buckets += other.index_buckets;
        self.held_bytes += other.held_bytes;
        self.used_bytes += other.used_bytes;
        self.limit_bytes += other.limit_bytes;
        self.shards += other.shards;
        for (class, other) in self.classes.iter_mut().zip(&other.classes) {
            class.items += other.items;
            class.bytes += other.bytes;
            // A shard that has evicted nothing has no age.
            class.evicted_time = match (class.evictions, other.evictions) {
                (0, _) => other.evicted_time,
                (_, 0) => class.evicted_time,
                _ => class.evicted_time.min(other.evicted_time),
            };
            class.evicted_nonzero += other.evicted_nonzero;
            class.evictions += other.evictions;
            class.evicted_unfetched += other.evicted_unfetched;
            class.reclaimed += other.reclaimed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_bounded_by_powers_of_two() {
        assert_eq!([class_of(1), class_of(64), class_of(65), class_of(128)], [0, 6, 7, 7]);
        assert_eq!(class_of(usize::MAX / 2), CLASSES - 1);
    }
}
