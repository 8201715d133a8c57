//! Any bytes are answers, the beginning of one, or garbled; reading them comes to an end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memcache::client::{Reading, parse};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(reading) = parse(rest) {
        match reading {
            Reading::Answer { length, .. } => {
                assert!((1..=rest.len()).contains(&length));
                rest = &rest[length..];
            }
            Reading::Partial { wanted } => {
                assert!(wanted > rest.len());
                return;
            }
        }
    }
});
