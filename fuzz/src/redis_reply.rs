//! Any bytes are replies of Redis, the beginning of one, or garbled; reading them comes to an end.

use loadgen::{RedisReply, redis_reply};

pub fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((reply, length))) = redis_reply(rest) {
        assert!((1..=rest.len()).contains(&length));
        if let RedisReply::Value(value) = reply {
            assert!(rest[..length].ends_with(value));
        }
        rest = &rest[length..];
    }
}
