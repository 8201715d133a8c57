//! Any bytes are answers, the beginning of one, or garbled; reading them comes to an end.

use memcache::client::{Reading, parse};

pub fn run(bytes: &[u8]) {
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
}
