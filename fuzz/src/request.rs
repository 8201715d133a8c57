//! Any bytes are a line, part of one, or too long for one; any line has a meaning.

use memcache::{Head, KEY_MAX, Request, head, parse};

pub fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Head::Line(line) = head(rest) {
        assert!(line.length <= rest.len() && line.text.len() < line.length);
        match parse(line) {
            Request::MetaGet(request) => {
                let mut scratch = [0; KEY_MAX];
                assert!(!request.key.decoded(&mut scratch).is_empty());
            }
            Request::Store(request) => assert!((1..=KEY_MAX).contains(&request.key.len())),
            _ => {}
        }
        rest = &rest[line.length..];
    }
}
