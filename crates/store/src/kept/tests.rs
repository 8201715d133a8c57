use super::*;
use crate::store::{NewItem, StoreConfig};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn store() -> Store {
    Store::new(StoreConfig { memory_limit: 64 << 20, max_item_size: 4 << 20, shards: None }).unwrap()
}

fn put(store: &Store, key: &str, value: &[u8], exptime: u32, now: u32) -> u64 {
    let new = NewItem { flags: 7, exptime, value: &[value], cas: None };
    store.entry(key.as_bytes(), now).put(new).unwrap()
}

/// Key, value, flags, expiry, CAS id, last access and marks of each item.
type All = BTreeMap<Vec<u8>, (Vec<u8>, u32, u32, u64, u32, u8)>;

fn all(store: &Store, now: u32) -> All {
    let (mut found, mut cursor) = (All::new(), Default::default());
    while store.walk(&mut cursor, now, |listed| {
        let Carried { value, flags, cas, exptime, last_access, marks } = Carried::of(&listed);
        found.insert(listed.key.to_vec(), (value.to_vec(), flags, exptime, cas, last_access, marks));
    }) {}
    found
}

fn written(store: &Store, now: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, store, now, 1_000_000).unwrap();
    bytes
}

/// A store with the items of a file.
fn read_back(bytes: &[u8], now: u32) -> (Store, Taken) {
    let store = store();
    let mut from = bytes;
    let head = Head::read(&mut from).unwrap().expect("a head");
    let taken = head.take(&mut from, &store, now).unwrap();
    (store, taken)
}

#[test]
fn items_come_back_as_they_were() {
    let earlier = store();
    put(&earlier, "plain", b"value", 0, 10);
    put(&earlier, "soon", b"over by then", 60, 10);
    put(&earlier, "later", b"still there", 5_000, 10);
    put(&earlier, "large", &vec![b'x'; 3 << 20], 0, 10);
    put(&earlier, "empty", b"", 0, 10);
    for number in 0..30_000 {
        put(&earlier, &format!("key-{number}"), format!("value of {number}").as_bytes(), 0, 11);
    }
    let mut used = earlier.entry(b"plain", 20);
    used.bump();
    used.bump();
    used.set_win_sent(true);
    drop(used);
    let highest = put(&earlier, "removed", b"", 0, 20);
    assert!(earlier.entry(b"removed", 20).remove());
    let mut expected = all(&earlier, 100);
    assert_eq!(expected.len(), 30_004);
    assert_eq!(expected[&b"plain"[..]].4, 20);

    let bytes = written(&earlier, 50);
    let (later, taken) = read_back(&bytes, 100);
    assert_eq!((taken.items, taken.damage), (30_004, None));
    assert_eq!(all(&later, 100), std::mem::take(&mut expected));
    // An id that a client has of an item that is gone is no other item's.
    assert!(put(&later, "removed", b"", 0, 100) > highest);
}

#[test]
fn a_flush_that_is_due_comes_at_its_time() {
    let earlier = store();
    put(&earlier, "key", b"value", 0, 10);
    earlier.flush_all(200);
    let bytes = written(&earlier, 50);
    let (later, _) = read_back(&bytes, 100);
    assert!(later.entry(b"key", 199).item().is_some());
    put(&later, "another", b"value", 0, 199);
    assert!(later.entry(b"key", 200).item().is_none());
    assert!(later.entry(b"another", 200).item().is_none());
    put(&later, "after", b"value", 0, 200);
    assert!(later.entry(b"after", 201).item().is_some());
    // Its time was while nothing ran.
    let (later, taken) = read_back(&bytes, 300);
    assert_eq!((taken.items, all(&later, 300)), (0, All::new()));
    put(&later, "after", b"value", 0, 300);
    assert!(later.entry(b"after", 301).item().is_some());
}

#[test]
fn the_clock_goes_on() {
    let began = Clock::new(1_000);
    assert_eq!(began, Clock { first: 2, unix_offset: 998 });
    // Stopped at second 502, and started again a minute later.
    assert_eq!(Clock::resumed(502, 998, 1_560), Clock { first: 562, unix_offset: 998 });
    // The machine's clock was set back by ten minutes: expiries are as far away as they were.
    assert_eq!(Clock::resumed(502, 998, 900), Clock { first: 502, unix_offset: 398 });
    let far = Clock::resumed(502, i64::MIN, i64::MAX);
    assert!(far.first >= 502);
}

fn some_items() -> (All, Vec<u8>) {
    let earlier = store();
    for number in 0..40 {
        put(&earlier, &format!("key-{number}"), &vec![number; usize::from(number) * 7], 0, 10);
    }
    put(&earlier, "large", &vec![b'x'; 2 << 20], 0, 10);
    (all(&earlier, 10), written(&earlier, 10))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A wrong value is worse than a lost one.
    #[test]
    fn a_damaged_file_loses_items_and_changes_none(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let (expected, mut bytes) = some_items();
        // Each fourth case is of the head.
        let at = if bit < 2 { at.index(Head::LENGTH) } else { at.index(bytes.len()) };
        bytes[at] ^= 1 << bit;
        if at < Head::LENGTH {
            prop_assert_eq!(Head::read(&mut &bytes[..]).unwrap(), None);
            return Ok(());
        }
        let (later, taken) = read_back(&bytes, 10);
        prop_assert!(taken.damage.is_some());
        for (key, item) in all(&later, 10) {
            prop_assert_eq!(Some(&item), expected.get(&key));
        }
    }

    #[test]
    fn a_file_without_its_end_says_so(length in any::<prop::sample::Index>()) {
        let (expected, bytes) = some_items();
        let cut = &bytes[..length.index(bytes.len())];
        if cut.len() < Head::LENGTH {
            prop_assert_eq!(Head::read(&mut &cut[..]).unwrap(), None);
        } else {
            let (later, taken) = read_back(cut, 10);
            prop_assert!(taken.damage.is_some());
            let found = all(&later, 10);
            prop_assert!(found.iter().all(|(key, item)| expected.get(key) == Some(item)));
        }
    }
}

#[test]
fn the_file_is_there_while_the_items_are_not_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    let log = Log::new(|_| {});
    let (items, clock) = Items::open(&path).unwrap();
    assert!(!path.exists() && clock.first == 2);
    let earlier = store();
    put(&earlier, "key", b"value", 0, 2);
    assert_eq!(items.save(&earlier, clock.first).unwrap(), 1);
    assert!(path.exists());
    let other = Items::open(&path).unwrap_err();
    assert!(matches!(other, ItemsError::Held(_)), "{other}");
    drop(items);

    let (mut items, clock) = Items::open(&path).unwrap();
    assert!(path.exists(), "a start that fails takes nothing away");
    let later = store();
    items.load(&later, clock, &log).unwrap();
    assert!(!path.exists(), "a run that is killed leaves no items of an earlier one");
    assert_eq!(later.entry(b"key", clock.first).item().unwrap().value, b"value");
}

#[test]
fn a_file_of_others_is_refused_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes");
    for text in ["", "my notes", "roostit2 and more bytes than the head of a file has"] {
        std::fs::write(&path, text).unwrap();
        assert!(matches!(Items::open(&path), Err(ItemsError::Foreign(_))), "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no lock beside it");
    }
    for place in ["/nonexistent/items", "/proc/items"] {
        let error = Items::open(place.as_ref()).unwrap_err().to_string();
        assert!(error.contains("--items takes a file"), "{place}: {error}");
    }
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(Items::open(&link), Err(ItemsError::Unsafe(_))));
}
