//! `get <key>+`, `gets <key>+`, `gat <exptime> <key>+`, `gats <exptime> <key>+`.
//!
//! A list of keys may be longer than a line is allowed to be. [`Retrieve::opening`] takes the
//! beginning of such a list; the server then works through the keys as they come and never holds
//! all of them.

use super::{Refused, Request};
use crate::key::KEY_MAX;
use crate::number::strict_i32;
use crate::refusal::Refusal;
use crate::token::Tokens;

/// A request for the values of some keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieve<'a> {
    /// The list as it stands on the line.
    pub keys: &'a [u8],
    /// Whether each value comes with its unique number.
    pub unique: bool,
    /// The expiry that each item found is given.
    pub touch: Option<i32>,
}

impl<'a> Retrieve<'a> {
    #[inline]
    pub(super) fn parse(rest: &'a [u8], unique: bool) -> Result<Request<'a>, Refused> {
        Self::with_keys(rest, unique, None)
    }

    pub(super) fn parse_touching(rest: &'a [u8], unique: bool) -> Result<Request<'a>, Refused> {
        let mut tokens = Tokens::new(rest);
        let exptime = tokens.next();
        let keys = tokens.rest();
        let (Some(exptime), false) = (exptime, keys.is_empty()) else {
            return Err(Refused::new(Refusal::BadFormat));
        };
        let exptime = strict_i32(exptime).ok_or(Refused::new(Refusal::BadExpiry))?;
        Self::with_keys(keys, unique, Some(exptime))
    }

    /// A line with one key too long is refused as a whole, before anything is looked up.
    #[inline]
    fn with_keys(text: &'a [u8], unique: bool, touch: Option<i32>) -> Result<Request<'a>, Refused> {
        let mut tokens = Tokens::new(text).peekable();
        if tokens.peek().is_none() || tokens.any(|key| key.len() > KEY_MAX) {
            return Err(Refused::new(Refusal::BadFormat));
        }
        Ok(Request::Retrieve(Self { keys: text, unique, touch }))
    }

    /// Reads the command at the beginning of a line too long to be taken as a whole: the request,
    /// its key list empty, and the number of bytes before the list. `None` if only a hostile or
    /// confused client sends such a line. memcached closes the connection unless the line begins
    /// with `get ` or `gets ` (after up to 100 spaces, which we do not allow); we let `gat` and
    /// `gats` be long as well.
    pub fn opening(input: &'a [u8]) -> Option<(Self, usize)> {
        let mut tokens = Tokens::new(input);
        let command = tokens.next().filter(|_| input[0] != b' ')?;
        let unique = match command {
            b"get" | b"gat" => false,
            b"gets" | b"gats" => true,
            _ => return None,
        };
        let touch = match command {
            b"gat" | b"gats" => Some(strict_i32(tokens.next()?)?),
            _ => None,
        };
        let used = input.len() - tokens.rest().len();
        Some((Self { keys: &[], unique, touch }, used))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;

    fn keys(line: &'static [u8]) -> Vec<&'static [u8]> {
        let Request::Retrieve(retrieve) = request(line) else { panic!("not a retrieval") };
        Tokens::new(retrieve.keys).collect()
    }

    #[test]
    fn keys_are_separated_by_any_number_of_spaces() {
        assert_eq!(keys(b"get a\r\n"), [b"a"]);
        assert_eq!(keys(b"get   a  b \n"), [b"a", b"b"]);
        assert_eq!(keys(b"gats -1 a b\r\n"), [b"a", b"b"]);
    }

    #[test]
    fn a_retrieval_without_keys_is_badly_formed() {
        for line in [&b"get\r\n"[..], b"get \r\n", b"gets\r\n", b"gat 1\r\n", b"gat\r\n"] {
            assert_eq!(request(line), Refused::new(Refusal::BadFormat).into(), "{line:?}");
        }
        assert_eq!(request(b"gat x k\r\n"), Refused::new(Refusal::BadExpiry).into());
    }

    #[test]
    fn a_key_of_250_bytes_fits_and_one_more_does_not() {
        for (length, fits) in [(KEY_MAX, true), (KEY_MAX + 1, false)] {
            let line = [&b"get a "[..], &vec![b'k'; length], b"\r\n"].concat();
            assert_eq!(matches!(request(&line), Request::Retrieve(_)), fits);
        }
    }

    #[test]
    fn a_long_line_opens_only_with_a_retrieval() {
        assert_eq!(Retrieve::opening(b"get  aaa").map(|(get, used)| (get.unique, used)), Some((false, 5)));
        assert_eq!(Retrieve::opening(b"gats 5 a").map(|(get, used)| (get.touch, used)), Some((Some(5), 7)));
        for line in [&b"mg aaaaaaa"[..], b" get a", b"getaaaaaa", b"gat x a", b""] {
            assert_eq!(Retrieve::opening(line), None, "{line:?}");
        }
    }
}
