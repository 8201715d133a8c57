//! How a memory limit is cut into shards, quotas and segments.

use super::{OpenError, StoreConfig, memory::CHUNK_BYTES, record};

/// The sizes that follow from a [`StoreConfig`] and stay fixed while the store lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub shards: usize,
    /// Bytes that one shard may hold in all.
    pub quota: usize,
    /// Bytes of one log segment, a power of two.
    pub segment_bytes: usize,
    /// Records that would be longer than this keep their value in pages of their own.
    pub inline_max: usize,
    /// Records whose header, key and value together are longer than this are refused.
    pub max_item_size: usize,
}

impl Geometry {
    pub(super) fn of(config: &StoreConfig) -> Result<Self, OpenError> {
        let limit = config.memory_limit;
        if limit < LIMIT_MIN {
            return Err(OpenError::LimitTooSmall { limit, least: LIMIT_MIN });
        }
        if config.max_item_size > record::VALUE_MAX {
            return Err(OpenError::ItemSizeTooLarge { size: config.max_item_size, most: record::VALUE_MAX });
        }
        let capacity = limit - connection_reserve(limit);
        let most = floor_power_of_two(capacity / QUOTA_MIN);
        let shards = match config.shards {
            Some(asked) => asked.max(1).next_power_of_two().min(most),
            None => {
                let roomy = (ITEMS_PER_QUOTA_MIN * config.max_item_size).max(QUOTA_MIN);
                floor_power_of_two(capacity / roomy).min(SHARDS_MAX)
            }
        };
        let quota = capacity / shards;
        let segment_bytes =
            floor_power_of_two(quota / SEGMENTS_PER_SHARD).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let inline_max = (segment_bytes / 4).min(INLINE_MAX);
        Ok(Self { shards, quota, segment_bytes, inline_max, max_item_size: config.max_item_size })
    }

    /// Bytes that a shard is promised whatever the connections take: enough segments for both
    /// queues, a segment being cleaned and the spare ones, and the first pieces of the index.
    pub(super) fn guaranteed(&self) -> usize {
        6 * self.segment_bytes + 4 * CHUNK_BYTES
    }
}

/// Bytes of the limit that the store leaves to connection buffers even when it is full.
///
/// An eighth, because a small limit is mostly used with few connections, and at most 64 MiB: enough
/// for 10,000 connections with a small buffer each, beyond which readers are held back.
pub(super) fn connection_reserve(limit: usize) -> usize {
    (limit / 8).min(64 << 20)
}

/// The largest item that a full store of this limit still takes, bytes: its value is whole in a
/// connection's buffer before it is stored, and the buffers have no more than their reserve for
/// certain.
pub fn largest_item(limit: usize) -> usize {
    connection_reserve(limit)
}

/// The largest power of two that is not above `n`, and 1 for 0.
fn floor_power_of_two(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

/// The smallest `--memory-limit`, as memcached's `-m 1`.
const LIMIT_MIN: usize = 1 << 20;
/// The smallest quota: 32 of the smallest segments, so that the queues keep their proportions.
const QUOTA_MIN: usize = 32 * SEGMENT_BYTES_MIN;
/// More shards no longer lower contention noticeably on machines of up to a few hundred CPUs.
const SHARDS_MAX: usize = 256;
/// A shard holds at least so many of the largest items, or else one of them would empty it.
const ITEMS_PER_QUOTA_MIN: usize = 8;
/// Segments in a full shard: eviction works in units below 1 % of it.
const SEGMENTS_PER_SHARD: usize = 128;
const SEGMENT_BYTES_MIN: usize = 16 << 10;
const SEGMENT_BYTES_MAX: usize = 256 << 10;
/// Above this, rounding a value up to whole pages wastes less than the ends of segments would.
const INLINE_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(memory_limit: usize, shards: Option<usize>) -> Geometry {
        Geometry::of(&StoreConfig { memory_limit, max_item_size: 1 << 20, shards }).unwrap()
    }

    #[test]
    fn every_limit_leaves_the_reserve_and_keeps_the_promises() {
        for limit in [1 << 20, 3 << 20, 10_000_000, 64 << 20, 1 << 30, 100 << 30] {
            for shards in [None, Some(1), Some(3), Some(1 << 20)] {
                let g = geometry(limit, shards);
                assert!(g.shards.is_power_of_two());
                assert!(g.shards * g.quota + connection_reserve(limit) <= limit);
                assert!(g.guaranteed() <= g.quota, "{g:?}");
                assert!(g.quota / g.segment_bytes >= 32, "{g:?}");
                assert!(g.inline_max <= g.segment_bytes / 4);
            }
        }
    }

    #[test]
    fn usual_limits_get_usual_shapes() {
        assert_eq!(geometry(64 << 20, None).shards, 4);
        assert_eq!(geometry(1 << 30, None).shards, 64);
        assert_eq!(geometry(1 << 30, None).segment_bytes, 64 << 10);
        assert_eq!(geometry(1 << 30, Some(5)).shards, 8);
    }

    #[test]
    fn a_limit_below_the_smallest_is_refused_by_name() {
        let config = StoreConfig { memory_limit: 1000, max_item_size: 1 << 20, shards: None };
        let error = Geometry::of(&config).unwrap_err();
        assert!(error.to_string().contains("--memory-limit"), "{error}");
    }
}
