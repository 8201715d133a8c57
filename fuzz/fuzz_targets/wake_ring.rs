//! Any bytes may lie in a ring: a visit takes a ring's worth of entries at most, and none names more CPUs than it may.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slots::Map;
use slots::wake::{CPUS_MAX, Ring, Said};
use std::sync::atomic::Ordering::Release;

fuzz_target!(|bytes: &[u8]| {
    let mut ring = Ring::create(4).expect("a ring");
    let memory = std::fs::File::from(ring.descriptor().try_clone_to_owned().expect("a descriptor"));
    let map = Map::new(&memory, 4096 + 4 * 64).expect("a mapping");
    for chunk in bytes.chunks_exact(9) {
        let word = u64::from_le_bytes(chunk[1..].try_into().expect("eight"));
        map.word64(4096 + 8 * usize::from(chunk[0] % 32)).store(word, Release);
        let mut turn = 0;
        while let Some(said) = ring.take(&mut turn) {
            if let Said::Wake { cpus, .. } | Said::Began { cpus, .. } = said {
                assert!(cpus.iter().count() <= CPUS_MAX);
            }
        }
        assert!(turn <= 4);
        ring.sleep();
    }
});
