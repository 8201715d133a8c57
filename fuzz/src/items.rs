//! Any bytes are a block of kept items, or the first record that cannot be one ends it; a store takes
//! those before it.

use store::kept::records;
use store::store::{KEY_MAX, Store};

pub fn run(bytes: &[u8]) {
    let config = store::StoreConfig { memory_limit: 16 << 20, max_item_size: 1 << 20, shards: Some(1) };
    let store = Store::new(config).expect("a small store");
    let mut length = 0;
    let is_whole = records(bytes, &mut |key, item| {
        assert!((1..=KEY_MAX).contains(&key.len()));
        length += 26 + key.len() + item.value.len();
        if store.entry(key, 2).carry(item).is_ok()
            && let Some(found) = store.entry(key, 2).item()
        {
            assert_eq!((found.value, found.cas), (item.value, item.cas));
        }
    });
    assert!(length <= bytes.len() && is_whole == (length == bytes.len()));
}
