//! One behaviour at a time.

use super::*;

#[test]
fn an_item_comes_back_as_it_was_stored() {
    let store = small();
    let mut entry = store.entry(b"key", 5);
    assert!(entry.item().is_none());
    let cas = entry.put(NewItem { flags: 9, exptime: 50, value: &[b"val", b"", b"ue"], cas: None }).unwrap();
    let item = entry.item().unwrap();
    assert_eq!((item.value, item.flags, item.cas, item.exptime), (&b"value"[..], 9, cas, 50));
    assert_eq!((item.last_access, item.fetched, item.stale, item.win_sent), (5, false, false, false));
    drop(entry);
    assert_eq!(store.entry(b"key", 6).item().unwrap().value, b"value");
    assert!(store.entry(b"kez", 6).item().is_none());
}

#[test]
fn a_bump_and_the_marks_are_seen_until_the_next_put() {
    let store = small();
    put(&store, b"k", b"v", 2).unwrap();
    let mut entry = store.entry(b"k", 7);
    entry.bump();
    entry.set_stale(true);
    entry.set_win_sent(true);
    let item = entry.item().unwrap();
    assert_eq!((item.last_access, item.fetched, item.stale, item.win_sent), (7, true, true, true));
    entry.set_stale(false);
    assert!(!entry.item().unwrap().stale);
    drop(entry);
    put(&store, b"k", b"w", 8).unwrap();
    let entry = store.entry(b"k", 8);
    let item = entry.item().unwrap();
    assert_eq!((item.last_access, item.fetched, item.stale, item.win_sent), (8, false, false, false));
}

#[test]
fn expiry_is_exact_and_zero_means_never() {
    let store = small();
    put_until(&store, b"k", b"v", 10, 5).unwrap();
    assert!(value(&store, b"k", 9).is_some());
    assert!(value(&store, b"k", 10).is_none());
    assert_eq!(store.stats().reclaimed, 1);
    put_until(&store, b"k", b"v", 0, 5).unwrap();
    assert!(value(&store, b"k", 19).is_some());
    store.entry(b"k", 20).set_exptime(30);
    assert!(value(&store, b"k", 29).is_some());
    assert!(value(&store, b"k", 30).is_none());
    assert_eq!(store.stats().items, 0);
    put_until(&store, b"k", b"v", 0, 30).unwrap();
    assert!(value(&store, b"k", u32::MAX).is_some());
}

#[test]
fn cas_ids_grow_with_every_change_and_an_explicit_one_is_honoured() {
    let store = small();
    let first = put(&store, b"k", b"v", 2).unwrap();
    assert_ne!(first, 0);
    let second = put(&store, b"k", b"v", 2).unwrap();
    assert!(second > first);
    let mut entry = store.entry(b"k", 2);
    let third = entry.fresh_cas(None);
    assert!(third > second);
    assert_eq!(entry.item().unwrap().cas, third);
    let item = NewItem { flags: 0, exptime: 0, value: &[b"x"], cas: Some(1_000_000) };
    assert_eq!(entry.put(item).unwrap(), 1_000_000);
    assert!(entry.fresh_cas(None) > 1_000_000);
    for insisted in [u64::MAX, 3] {
        assert_eq!(entry.fresh_cas(Some(insisted)), insisted);
    }
    let after = entry.fresh_cas(None);
    assert!(after > 1_000_000 && after < u64::MAX / 2, "a client's number does not use up the counter");
    assert_ne!(entry.fresh_cas(Some(0)), 0);
}

#[test]
fn a_flush_takes_all_that_is_stored_and_nothing_that_comes_after() {
    let store = store(8 << 20, Some(4));
    for key in 0..100u32 {
        put(&store, &key.to_be_bytes(), b"old", 7).unwrap();
    }
    store.flush_all(7);
    put(&store, &1u32.to_be_bytes(), b"new", 7).unwrap();
    for key in 0..100u32 {
        assert_eq!(value(&store, &key.to_be_bytes(), 7).is_some(), key == 1);
    }
}

#[test]
fn a_flush_that_is_due_later_waits_and_spares_what_is_stored_from_then_on() {
    let store = small();
    put(&store, b"early", b"v", 5).unwrap();
    store.flush_all(10);
    put(&store, b"between", b"v", 9).unwrap();
    assert!(value(&store, b"early", 9).is_some());
    put(&store, b"late", b"v", 10).unwrap();
    assert!(value(&store, b"early", 10).is_none());
    assert!(value(&store, b"between", 11).is_none());
    assert!(value(&store, b"late", 11).is_some());
    store.flush_all(20);
    assert!(value(&store, b"early", 12).is_none(), "what a flush took stays away when another is ordered");
    assert!(value(&store, b"late", 19).is_some());
    assert!(value(&store, b"late", 20).is_none());
}

#[test]
fn a_worker_whose_clock_lags_loses_nothing_to_a_flush() {
    let store = small();
    store.flush_all(10);
    put(&store, b"k", b"v", 10).unwrap();
    store.entry(b"k", 9).bump();
    put(&store, b"l", b"v", 9).unwrap();
    assert!(value(&store, b"k", 10).is_some() && value(&store, b"l", 10).is_some());
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn nothing_rises_again_however_often_the_store_is_flushed() {
    let store = small();
    put(&store, b"k", b"v", 5).unwrap();
    for _ in 0..70_000 {
        store.flush_all(5);
    }
    assert!(value(&store, b"k", 5).is_none());
    for flushes in [65_535, 65_536, 65_537] {
        put(&store, b"k", b"v", 5).unwrap();
        (0..flushes).for_each(|_| store.flush_all(5));
        assert!(value(&store, b"k", 5).is_none(), "after {flushes}");
    }
}

#[test]
fn a_value_is_changed_in_place() {
    let store = small();
    put(&store, b"n", b"41", 2).unwrap();
    let mut entry = store.entry(b"n", 2);
    entry.value_mut().unwrap().copy_from_slice(b"42");
    entry.fresh_cas(None);
    assert_eq!(entry.item().unwrap().value, b"42");
    assert!(entry.remove());
    assert!(!entry.remove());
    assert!(entry.item().is_none() && entry.value_mut().is_none() && entry.fresh_cas(None) == 0);
}

#[test]
fn append_and_prepend_keep_flags_and_expiry() {
    let store = small();
    assert!(store.entry(b"k", 2).put_around(b"<", b">", None).is_none());
    let mut entry = store.entry(b"k", 2);
    entry.put(NewItem { flags: 3, exptime: 90, value: &[b"middle"], cas: None }).unwrap();
    let cas = entry.put_around(b"<", b">", None).unwrap().unwrap();
    let item = entry.item().unwrap();
    assert_eq!((item.value, item.flags, item.exptime, item.cas), (&b"<middle>"[..], 3, 90, cas));
}

#[test]
fn values_of_every_length_survive_every_change_of_length() {
    let store = store(64 << 20, Some(1));
    let lengths = [0usize, 1, 7, 8, 100, 4_000, 16_000, 16_384, 20_000, 40_000, 300_000, 1_000_000];
    let lengths = if cfg!(miri) { &[0, 7, 4_000, 20_000][..] } else { &lengths[..] };
    for &from in lengths {
        for &to in lengths {
            for (version, len) in [(0, from), (1, to)] {
                let wanted = stamped(1, version, len);
                put(&store, b"k", &wanted, 2).unwrap();
                assert_eq!(value(&store, b"k", 2).unwrap(), wanted);
            }
        }
    }
    assert_eq!(store.stats().items, 1);
}

#[test]
fn too_large_an_item_is_refused_and_replaces_nothing_by_nothing() {
    let store = small();
    put(&store, b"k", b"v", 2).unwrap();
    assert_eq!(put(&store, b"k", &vec![0; 1 << 20], 2), Err(StoreError::TooLarge));
    assert!(value(&store, b"k", 2).is_none());
}

#[test]
fn what_cannot_have_room_is_refused_and_the_store_lives_on() {
    let store = small();
    put(&store, b"other", b"v", 2).unwrap();
    put(&store, b"k", b"v", 2).unwrap();
    assert_eq!(put(&store, b"k", &vec![0; 900_000], 2), Err(StoreError::OutOfMemory));
    assert!(value(&store, b"k", 2).is_none());
    assert_eq!(store.stats().out_of_memory, 1);
    assert!(value(&store, b"other", 2).is_some());
    put(&store, b"k", b"v", 2).unwrap();
}

#[test]
fn a_store_whose_budget_others_took_still_serves_from_its_guaranteed_part() {
    let store = store(4 << 20, Some(2));
    let budget = store.budget();
    while budget.try_charge(4096) {}
    for key in 0..if cfg!(miri) { 300 } else { 20_000u32 } {
        put(&store, &key.to_be_bytes(), &stamped(key, 0, 100), 2).unwrap();
        assert_eq!(value(&store, &key.to_be_bytes(), 2).unwrap(), stamped(key, 0, 100));
    }
    assert!(store.stats().evictions > 0 || cfg!(miri));
    assert!(budget.used() <= budget.limit());
}

#[test]
#[should_panic(expected = "250")]
fn a_key_beyond_the_protocol_is_a_bug() {
    small().entry(&[0; 251], 2);
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn the_size_classes_add_up() {
    let store = store(16 << 20, Some(2));
    for key in 0..500u32 {
        put(&store, &key.to_be_bytes(), &stamped(key, 0, key as usize * 50), 2).unwrap();
    }
    for key in (0..500u32).step_by(3) {
        store.entry(&key.to_be_bytes(), 2).remove();
    }
    let stats = store.stats();
    assert_eq!(stats.items, 333);
    assert_eq!(stats.items, stats.classes.iter().map(|class| class.items).sum::<u64>());
    assert_eq!(stats.total_items, 500);
    for key in 0..500u32 {
        store.entry(&key.to_be_bytes(), 2).remove();
    }
    assert_eq!((store.stats().items, store.stats().bytes), (0, 0));
}

#[test]
fn a_lowered_limit_is_kept_and_can_be_raised_again_to_what_it_was() {
    const WAS: usize = 64 << 20;
    let store = store(WAS, Some(4));
    let fill = |from: u32, count: u32| {
        for n in from..from + count {
            let size = 100 + n as usize % 3000;
            put(&store, format!("key{n}").as_bytes(), &stamped(n, 0, size), 5).unwrap();
            assert!(store.budget().used() <= store.budget().limit());
        }
    };
    assert!(!store.set_limit(WAS + 1), "the shards were cut for less");
    assert!(!store.set_limit(64 << 10), "no shard could work with so little");
    assert!(store.set_limit(16 << 20));
    fill(0, 40_000);
    assert!(store.budget().used() <= 16 << 20);
    assert!(store.stats().evictions > 0);
    assert!(!store.set_limit(8 << 20), "more than that is in use");
    assert_eq!(store.budget().limit(), 16 << 20);
    assert!(store.set_limit(WAS));
    fill(40_000, 40_000);
    assert!(store.budget().used() > 32 << 20, "the room is used again");
}
