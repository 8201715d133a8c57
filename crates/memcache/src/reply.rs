//! Composing answers, always behind the output's present contents.

use crate::refusal::Refusal;
use std::fmt::Write as _;

/// Ends the values of a retrieval.
pub const END: &[u8] = b"END\r\n";
pub const STORED: &[u8] = b"STORED\r\n";
/// A value was not stored, because its condition was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// The item has another unique number.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The item has a new expiry.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
pub const OK: &[u8] = b"OK\r\n";
/// The counters begin again at zero.
pub const RESET: &[u8] = b"RESET\r\n";
/// `mg`, `me`: there is no such item.
pub const META_MISS: &[u8] = b"EN";
pub const META_DONE: &[u8] = b"HD";
pub const META_NOT_STORED: &[u8] = b"NS";
pub const META_EXISTS: &[u8] = b"EX";
pub const META_NOT_FOUND: &[u8] = b"NF";
/// The answer to `mn`.
pub const META_NOOP: &[u8] = b"MN\r\n";

pub const LINE_ENDING: &[u8] = b"\r\n";

#[inline]
pub fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends `VALUE <key> <flags> <length> [<unique>]`, the value, and their endings.
#[inline]
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, value: &[u8], unique: Option<u64>) {
    /// Everything but key and value: three numbers, spaces and endings.
    const AROUND: usize = 6 + 1 + 10 + 1 + 10 + 1 + 20 + 2 + 2;
    out.reserve(key.len() + value.len() + AROUND);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(out, u64::from(flags));
    out.push(b' ');
    number(out, value.len() as u64);
    if let Some(unique) = unique {
        out.push(b' ');
        number(out, unique);
    }
    out.extend_from_slice(LINE_ENDING);
    out.extend_from_slice(value);
    out.extend_from_slice(LINE_ENDING);
}

/// Appends the return flag ` <letter><number>`.
#[inline]
pub fn flag(out: &mut Vec<u8>, letter: u8, value: u64) {
    out.extend_from_slice(&[b' ', letter]);
    number(out, value);
}

/// Appends `STAT <name> <value>`.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in ["STAT ", name, " ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends the line that tells of a refusal.
#[cold]
pub fn refusal(out: &mut Vec<u8>, refusal: Refusal) {
    /// Text behind a vector, which cannot fail.
    struct Text<'a>(&'a mut Vec<u8>);
    impl std::fmt::Write for Text<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    let _ = write!(Text(out), "{refusal}\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_framed_by_its_length() {
        let mut out = Vec::new();
        value(&mut out, b"k", u32::MAX, b"a\r\nb", None);
        value(&mut out, b"k", 0, b"", Some(u64::MAX));
        assert_eq!(
            out,
            b"VALUE k 4294967295 4\r\na\r\nb\r\nVALUE k 0 0 18446744073709551615\r\n\r\n".as_slice()
        );
    }

    #[test]
    fn lines_are_whole() {
        let mut out = Vec::new();
        refusal(&mut out, Refusal::NoShutdown);
        stat(&mut out, "pid", "7");
        flag(&mut out, b't', 5);
        assert_eq!(out, b"SERVER_ERROR: shutdown not enabled\r\nSTAT pid 7\r\n t5");
    }
}
