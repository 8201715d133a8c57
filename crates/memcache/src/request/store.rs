//! `<verb> <key> <flags> <exptime> <bytes> [noreply]` and
//! `cas <key> <flags> <exptime> <bytes> <unique> [noreply]`.
//!
//! The length decides how the stream goes on: as long as it cannot be read, the bytes that follow
//! are taken for commands; once it can, they are the value's, whatever else is wrong with the line.

use super::{Refused, Request};
use crate::key::KEY_MAX;
use crate::number::{client_flags, lenient_expiry, strict_i32, strict_u64};
use crate::refusal::Refusal;
use crate::token::{Tokens, ends_in_noreply};

/// Bytes behind a value: `\r\n`.
pub const VALUE_ENDING: usize = 2;

/// The condition on which a value is stored, and the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Set,
    /// Only under a new key.
    Add,
    /// Only over an old value.
    Replace,
    Append,
    Prepend,
}

impl Verb {
    /// Whether the old value is part of the new one.
    pub const fn extends(self) -> bool {
        matches!(self, Self::Append | Self::Prepend)
    }
}

/// A request to store the value that follows the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    pub verb: Verb,
    pub key: &'a [u8],
    /// A number that the client keeps with the value.
    pub flags: u32,
    /// When it expires, as the client put it.
    pub exptime: i32,
    /// The value's length, its line ending not counted.
    pub length: usize,
    /// The unique number that the old value must have (`cas`).
    pub compare: Option<u64>,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// A value's length as the client gives it. Its ending must still fit into memcached's `int`.
pub(crate) fn value_length(text: &[u8]) -> Option<usize> {
    let length = strict_i32(text)?;
    (length <= i32::MAX - VALUE_ENDING as i32).then_some(usize::try_from(length).ok()?)
}

impl<'a> Store<'a> {
    #[inline]
    pub(super) fn parse(verb: Verb, compares: bool, rest: &'a [u8]) -> Result<Request<'a>, Refused> {
        const SHORT: Refused = Refused::new(Refusal::BadFormat);
        let mut tokens = Tokens::new(rest);
        let key = tokens.next().ok_or(SHORT)?;
        let flags = tokens.rest();
        tokens.next().ok_or(SHORT)?;
        let exptime = tokens.rest();
        tokens.next().ok_or(SHORT)?;
        let length_text = tokens.next().ok_or(SHORT)?;
        let length = value_length(length_text).ok_or(SHORT)?;

        let noreply = !tokens.rest().is_empty() && ends_in_noreply(tokens.clone(), 5, length_text);
        let refused = Refused { refusal: Refusal::BadFormat, noreply, value: length + VALUE_ENDING };
        if key.len() > KEY_MAX {
            return Err(refused);
        }
        let flags = client_flags(flags).ok_or(refused)?;
        let exptime = lenient_expiry(exptime).ok_or(refused)?;
        let compare = if compares { Some(tokens.next().and_then(strict_u64).ok_or(refused)?) } else { None };
        Ok(Request::Store(Self { verb, key, flags, exptime, length, compare, noreply }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;

    fn store(line: &[u8]) -> Store<'_> {
        match request(line) {
            Request::Store(store) => store,
            other => panic!("not a store: {other:?}"),
        }
    }

    fn refused(line: &[u8]) -> Refused {
        match request(line) {
            Request::Refused(refused) => refused,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn every_part_of_the_line_is_read() {
        let expected = Store {
            verb: Verb::Set,
            key: b"key",
            flags: 7,
            exptime: -3,
            length: 12,
            compare: Some(99),
            noreply: true,
        };
        assert_eq!(store(b"cas key 7 -3 12 99 noreply\r\n"), expected);
        assert_eq!(
            store(b"prepend  key 7 -3 12\n"),
            Store { verb: Verb::Prepend, compare: None, noreply: false, ..expected }
        );
    }

    #[test]
    fn without_a_length_no_value_is_skipped() {
        for line in [
            &b"set k 0 0\r\n"[..],
            b"set k 0 0 -1\r\n",
            b"set k 0 0 x\r\n",
            b"set k 0 0 2147483646\r\n",
            b"set\r\n",
        ] {
            assert_eq!(refused(line), Refused::new(Refusal::BadFormat), "{line:?}");
        }
    }

    #[test]
    fn with_a_length_the_value_goes_with_the_refused_line() {
        for line in [&b"set k x 0 5\r\n"[..], b"set k 0 x 5\r\n", b"cas k 0 0 5\r\n", b"cas k 0 0 5 x\r\n"] {
            assert_eq!(refused(line).value, 7, "{line:?}");
        }
        assert!(refused(b"cas k 0 0 5 noreply\r\n").noreply, "taken for silence and for a bad unique number");
        let line = [&b"set "[..], &[b'k'; KEY_MAX + 1], b" 0 0 5\r\n"].concat();
        assert_eq!(refused(&line).value, 7);
    }

    #[test]
    fn only_a_last_noreply_silences() {
        assert!(store(b"set k 0 0 1 x noreply\r\n").noreply);
        assert!(!store(b"set k 0 0 1 noreply x\r\n").noreply);
    }
}
