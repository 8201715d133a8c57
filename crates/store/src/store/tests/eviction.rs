//! Which items go and which stay when memory is short.

use super::*;

/// Fills the store with `count` items from number `from` on.
fn fill(store: &Store, from: u32, count: u32, now: u32) {
    for key in from..from + count {
        put(store, &key.to_be_bytes(), &stamped(key, 0, 100), now).unwrap();
    }
}

fn held(store: &Store, from: u32, count: u32, now: u32) -> usize {
    (from..from + count).filter(|key| store.entry(&key.to_be_bytes(), now).item().is_some()).count()
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn a_scan_does_not_drive_out_what_is_used() {
    let store = store(16 << 20, Some(2));
    fill(&store, 0, 20_000, 2);
    for key in 0..20_000u32 {
        store.entry(&key.to_be_bytes(), 2).bump();
    }
    // Five times as many items as have room, each seen once.
    for batch in 0..50 {
        fill(&store, 1_000_000 + batch * 10_000, 10_000, 3);
        for key in (0..20_000u32).skip(batch as usize % 10).step_by(10) {
            store.entry(&key.to_be_bytes(), 3).bump();
        }
    }
    let kept = held(&store, 0, 20_000, 3);
    assert!(kept > 19_000, "only {kept} of 20000 used items survived the scan");
    assert!(store.stats().evictions > 300_000);
    audit(&store);
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn a_hot_set_that_no_longer_fits_still_makes_way() {
    let store = small();
    // Everything is used as often as the counters tell.
    for round in 0..5 {
        for key in 0..30_000u32 {
            let key = (key / 10 + round * 3_000).to_be_bytes();
            if value(&store, &key, 2).is_none() {
                put(&store, &key, &[7; 200], 2).unwrap();
            }
            store.entry(&key, 2).bump();
        }
    }
    assert!(store.stats().out_of_memory == 0 && store.stats().evictions > 5_000);
    audit(&store);
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn expired_items_make_way_before_live_ones() {
    let store = store(8 << 20, Some(1));
    for key in 0..40_000u32 {
        let exptime = if key % 2 == 0 { 10 } else { 0 };
        put_until(&store, &key.to_be_bytes(), &[1; 80], exptime, 2).unwrap();
    }
    assert_eq!(store.stats().evictions, 0, "the test wants a store that is nearly full");
    // As much again as the expired ones occupied.
    fill(&store, 1_000_000, 25_000, 20);
    assert_eq!(store.stats().evictions, 0);
    assert!(store.stats().reclaimed > 10_000);
    let alive =
        (1..40_000u32).step_by(2).filter(|key| value(&store, &key.to_be_bytes(), 20).is_some()).count();
    assert_eq!(alive, 20_000);
    audit(&store);
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn overwriting_with_other_lengths_evicts_nothing_that_has_room() {
    let store = store(8 << 20, Some(1));
    for round in 0..40u32 {
        for key in 0..10_000u32 {
            let len = ((key + round * 7) * 13 % 400) as usize;
            put(&store, &key.to_be_bytes(), &stamped(key, round, len), 2).unwrap();
        }
    }
    let stats = store.stats();
    assert_eq!((stats.evictions, stats.items), (0, 10_000));
    for key in 0..10_000u32 {
        let len = ((key + 39 * 7) * 13 % 400) as usize;
        assert_eq!(value(&store, &key.to_be_bytes(), 2).unwrap(), stamped(key, 39, len));
    }
    audit(&store);
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn memory_goes_back_and_forth_between_small_and_large_values() {
    let store = store(32 << 20, Some(2));
    for round in 0..3u32 {
        fill(&store, round * 1_000_000, 300_000, 2);
        assert!(held(&store, round * 1_000_000, 300_000, 2) > 150_000);
        for key in 0..500u32 {
            put(&store, &key.to_be_bytes(), &stamped(key, round, 200_000), 2).unwrap();
            assert!(store.budget().used() <= store.budget().limit());
        }
        let large = held(&store, 0, 500, 2);
        assert!(large > 80, "only {large} large values have room");
    }
    assert_eq!(store.stats().out_of_memory, 0);
    audit(&store);
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn a_flushed_store_is_filled_again_without_evictions() {
    let store = store(16 << 20, Some(2));
    for round in 0..5u32 {
        fill(&store, round * 1_000_000, 60_000, 2);
        assert_eq!(held(&store, round * 1_000_000, 60_000, 2), 60_000);
        store.flush_all(2);
    }
    assert_eq!(store.stats().evictions, 0);
    audit(&store);
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn tiny_items_after_big_ones_get_the_index_that_they_need() {
    let store = store(8 << 20, Some(1));
    for key in 0..20_000u32 {
        put(&store, &key.to_be_bytes(), &[1; 1000], 2).unwrap();
    }
    for key in 0..400_000u32 {
        put(&store, &key.to_be_bytes(), b"1", 2).unwrap();
    }
    let stats = store.stats();
    assert!(stats.items > 140_000, "{stats:?}");
    assert!(stats.index_buckets * 12 > stats.items, "the chains have grown long: {stats:?}");
    audit(&store);
}
