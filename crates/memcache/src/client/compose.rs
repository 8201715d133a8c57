//! Requests, composed behind the output's present contents. Keys are the caller's to keep within
//! [`KEY_MAX`](crate::KEY_MAX) bytes without spaces and control characters.

use crate::reply::{LINE_ENDING, number};

#[inline]
pub fn get(out: &mut Vec<u8>, key: &[u8]) {
    line(out, b"get ", key);
    out.extend_from_slice(LINE_ENDING);
}

/// `set <key> <flags> <exptime> <length>` and the value.
#[inline]
pub fn set(out: &mut Vec<u8>, key: &[u8], flags: u32, exptime: u32, value: &[u8]) {
    line(out, b"set ", key);
    for field in [u64::from(flags), u64::from(exptime), value.len() as u64] {
        out.push(b' ');
        number(out, field);
    }
    out.extend_from_slice(LINE_ENDING);
    out.extend_from_slice(value);
    out.extend_from_slice(LINE_ENDING);
}

#[inline]
fn line(out: &mut Vec<u8>, command: &[u8], rest: &[u8]) {
    out.extend_from_slice(command);
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Head, head};
    use crate::request::{Request, Verb, parse};

    fn request(bytes: &[u8]) -> (Request<'_>, usize) {
        let Head::Line(line) = head(bytes) else { panic!("no line") };
        (parse(line), line.length)
    }

    #[test]
    fn the_server_understands_what_the_client_composes() {
        let mut out = Vec::new();
        set(&mut out, b"key", 5, 60, b"value");
        let (Request::Store(store), length) = request(&out) else { panic!() };
        assert_eq!((store.verb, store.key, store.flags, store.exptime), (Verb::Set, &b"key"[..], 5, 60));
        assert_eq!(&out[length..], b"value\r\n");

        out.clear();
        get(&mut out, b"key");
        assert_eq!(out, b"get key\r\n");
    }
}
