//! The store never makes its process larger than the memory limit plus 64 MiB. One test, alone in
//! its process, so that `/proc/self/status` shows the store's doing alone.

use store::store::{NewItem, Store, StoreConfig, StoreError};

const LIMIT: usize = 128 << 20;
const SLACK: usize = 64 << 20;
/// Items put over and over again.
const KEYS: u64 = 100_000;

#[test]
fn churn_with_changing_sizes_stays_within_the_limit() {
    let store =
        Store::new(StoreConfig { memory_limit: LIMIT, max_item_size: 1 << 20, shards: Some(4) }).unwrap();
    let bytes = vec![b'x'; 1 << 20];
    let mut random = 1u64;
    let mut next = move |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut most = 0;
    let mut connections = 0;
    // Each phase prefers another size, so that memory must change hands between segments, index and
    // pages.
    for (phase, &typical) in [100, 30_000, 1, 5_000, 400_000, 300, 70_000, 40].iter().enumerate() {
        let puts = 40_000_000 / (typical + 400);
        for step in 0..puts {
            let len = match next(20) {
                0 => next(2_000),
                1 => next(20_000),
                2 if next(20) == 0 => next(1_000_000),
                _ => typical / 2 + next(typical + 1),
            };
            let key = next(KEYS).to_be_bytes();
            let mut entry = store.entry(&key, 2 + phase as u32);
            let new = NewItem { flags: 0, exptime: 0, value: &[&bytes[..len as usize]], cas: None };
            match entry.put(new) {
                Ok(_) => assert_eq!(entry.item().unwrap().value.len(), len as usize),
                Err(error) => {
                    assert!(error == StoreError::OutOfMemory && len > 100_000, "{error} for {len} bytes")
                }
            }
            drop(entry);
            if step % 3 == 0 {
                let other = next(KEYS).to_be_bytes();
                let mut entry = store.entry(&other, 2 + phase as u32);
                entry.bump();
                if next(4) == 0 {
                    entry.remove();
                }
            }
            assert!(store.budget().used() <= LIMIT);
            if step % 512 == 0 {
                most = most.max(resident());
                assert!(most <= LIMIT + SLACK, "{} MiB resident in phase {phase}", most >> 20);
            }
        }
        // Connections come and go with the phases and take their grants.
        if phase % 2 == 0 {
            while store.budget().try_charge(64 << 10) {
                connections += 64 << 10;
            }
        } else {
            store.budget().release(std::mem::take(&mut connections));
        }
        if phase == 5 {
            store.flush_all(2 + phase as u32);
        }
    }
    let stats = store.stats();
    assert!(stats.evictions > 0 && stats.moved > 0, "the test wants a store under pressure: {stats:?}");
    assert!(most > LIMIT / 2, "the test wants a store that fills: {} MiB", most >> 20);
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}
