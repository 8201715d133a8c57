//! The store and its alternatives behind one face.

use super::VALUE;
use quick_cache::{Weighter, sync::Cache};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Mutex,
};
use store::store::{NewItem, Store, StoreConfig};

pub trait Peer: Sync {
    fn put(&self, key: &[u8]);
    /// Whether the item is there; counts as an access and touches its value.
    fn has(&self, key: &[u8]) -> bool;
}

/// The peer of that name, with room for `bytes`.
pub fn open(kind: &str, bytes: usize) -> Box<dyn Peer> {
    match kind {
        "store" => Box::new(store(bytes)),
        "quick_cache" => {
            Box::new(Cache::<Box<[u8]>, Box<[u8]>, Weight>::with_weighter(bytes / 160, bytes as u64, Weight))
        }
        "hash_map" => {
            let hasher = RandomState::new();
            let shards = (0..64).map(|_| Mutex::new(HashMap::with_hasher(hasher.clone()))).collect();
            Box::new(Maps { hasher, shards })
        }
        _ => panic!("no peer is called {kind}"),
    }
}

pub const KINDS: [&str; 3] = ["store", "quick_cache", "hash_map"];

pub fn store(memory_limit: usize) -> Store {
    Store::new(StoreConfig { memory_limit, max_item_size: 1 << 20, shards: None }).expect("a usual limit")
}

impl Peer for Store {
    fn put(&self, key: &[u8]) {
        let new = NewItem { flags: 0, exptime: 0, value: &[&VALUE], cas: None };
        self.entry(key, 2).put(new).expect("room");
    }

    fn has(&self, key: &[u8]) -> bool {
        let mut entry = self.entry(key, 2);
        entry.bump();
        entry.item().is_some_and(|item| item.value[0] == VALUE[0])
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Box<[u8]>, Box<[u8]>> for Weight {
    fn weight(&self, key: &Box<[u8]>, value: &Box<[u8]>) -> u64 {
        (key.len() + value.len()) as u64
    }
}

impl Peer for Cache<Box<[u8]>, Box<[u8]>, Weight> {
    fn put(&self, key: &[u8]) {
        self.insert(key.into(), VALUE.into());
    }

    fn has(&self, key: &[u8]) -> bool {
        // The value is cloned out, as the cache hands it to a caller.
        self.get(key).is_some_and(|value| value[0] == VALUE[0])
    }
}

type Map = HashMap<Box<[u8]>, Box<[u8]>, RandomState>;

struct Maps {
    hasher: RandomState,
    shards: Vec<Mutex<Map>>,
}

impl Maps {
    fn shard(&self, key: &[u8]) -> &Mutex<Map> {
        &self.shards[self.hasher.hash_one(key) as usize >> 58]
    }
}

impl Peer for Maps {
    fn put(&self, key: &[u8]) {
        self.shard(key).lock().unwrap().insert(key.into(), VALUE.into());
    }

    fn has(&self, key: &[u8]) -> bool {
        self.shard(key).lock().unwrap().get(key).is_some_and(|value| value[0] == VALUE[0])
    }
}
