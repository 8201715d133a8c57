//! Many threads on the same keys.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// As many as there are CPUs, so that all run at once, and four at the least.
fn threads() -> u32 {
    std::thread::available_parallelism().map_or(4, |cpus| cpus.get().max(4) as u32)
}

#[test]
fn readers_never_see_a_torn_or_foreign_value() {
    let store = store(2 << 20, Some(2));
    let rounds = if cfg!(miri) { 60 } else { 40_000 };
    let evicting = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads() {
            let (store, evicting) = (&store, &evicting);
            scope.spawn(move || {
                let mut random = thread + 1;
                for version in 0..rounds {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let key = random >> 8 & 0x7FF;
                    let name = key.to_be_bytes();
                    match random >> 28 {
                        0..6 => {
                            let len = (random >> 4 & 0xFFF) as usize;
                            let value = stamped(key, version, len);
                            let stamp = [version.to_be_bytes(), (len as u32).to_be_bytes()].concat();
                            let new = NewItem { flags: 0, exptime: 0, value: &[&stamp, &value], cas: None };
                            store.entry(&name, 2).put(new).unwrap();
                        }
                        6 => drop(store.entry(&name, 2).remove()),
                        _ => {
                            store.prefetch(&name);
                            store.prefetch_item(&name);
                            let mut entry = store.entry(&name, 2);
                            entry.bump();
                            match entry.item() {
                                Some(item) => {
                                    let (stamp, value) = item.value.split_at(8);
                                    let version = u32::from_be_bytes(stamp[..4].try_into().unwrap());
                                    let len = u32::from_be_bytes(stamp[4..].try_into().unwrap());
                                    assert_eq!(value, stamped(key, version, len as usize));
                                }
                                None => _ = evicting.fetch_add(1, Ordering::Relaxed),
                            }
                        }
                    }
                }
            });
        }
    });
    assert!(store.budget().used() <= store.budget().limit());
    audit(&store);
}

#[test]
fn increments_of_many_threads_add_up() {
    let store = small();
    put(&store, b"n", &0u64.to_be_bytes(), 2).unwrap();
    let each = if cfg!(miri) { 20 } else { 5_000u64 };
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                for _ in 0..each {
                    let mut entry = store.entry(b"n", 2);
                    let value = entry.value_mut().unwrap();
                    let sum = u64::from_be_bytes(value.try_into().unwrap()) + 1;
                    value.copy_from_slice(&sum.to_be_bytes());
                    entry.fresh_cas(None);
                }
            });
        }
    });
    assert_eq!(value(&store, b"n", 2).unwrap(), (u64::from(threads()) * each).to_be_bytes());
}
