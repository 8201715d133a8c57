//! The store's promises to its callers, tried against models and against force.

mod eviction;
mod model;
mod semantics;
mod threads;

use super::{NewItem, Store, StoreConfig, StoreError};

/// Of the hash that spreads keys over shards and buckets: figures near a bound must not depend on
/// the day.
const SEED: u64 = 1;

/// A store of the smallest kind.
fn small() -> Store {
    store(1 << 20, Some(1))
}

fn store(memory_limit: usize, shards: Option<usize>) -> Store {
    Store::with_seed(StoreConfig { memory_limit, max_item_size: 1 << 20, shards }, SEED).unwrap()
}

fn put(store: &Store, key: &[u8], value: &[u8], now: u32) -> Result<u64, StoreError> {
    put_until(store, key, value, 0, now)
}

fn put_until(store: &Store, key: &[u8], value: &[u8], exptime: u32, now: u32) -> Result<u64, StoreError> {
    store.entry(key, now).put(NewItem { flags: 0, exptime, value: &[value], cas: None })
}

fn value(store: &Store, key: &[u8], now: u32) -> Option<Vec<u8>> {
    store.entry(key, now).item().map(|item| item.value.to_vec())
}

/// A value that tells which key, version and length it was made for.
fn stamped(key: u32, version: u32, len: usize) -> Vec<u8> {
    let stamp = u64::from(key) << 32 | u64::from(version);
    let mut word = (stamp ^ (len as u64) << 17).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..len)
        .map(|_| {
            word = word.rotate_left(5).wrapping_mul(0x2545_F491_4F6C_DD1D) ^ stamp;
            word as u8
        })
        .collect()
}

fn audit(store: &Store) {
    for shard in &store.shards {
        let shard = shard.lock();
        let (alive, segments) = shard.log.audit();
        assert_eq!(shard.index.len(), alive.len());
        let mut large = 0;
        for location in alive {
            let record = shard.log.record(location);
            let hash = shard.hasher.hash(record.key());
            assert!(shard.index.find(hash, |listed| listed == location).is_some());
            large += super::memory::whole_pages(record.shape().large_len());
        }
        let stats = shard.stats();
        let pieces = [segments, large, stats.index_bytes as usize, stats.ghost_bytes as usize];
        assert_eq!(shard.memory.held(), pieces.iter().sum::<usize>());
        assert!(shard.memory.held() <= shard.memory.quota());
        assert_eq!(stats.items, shard.index.len() as u64);
    }
}
