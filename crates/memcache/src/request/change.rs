//! `delete <key>`, `incr <key> <amount>`, `decr <key> <amount>`, `touch <key> <exptime>`, each with
//! `[noreply]`.

use super::{Refused, Request};
use crate::key::KEY_MAX;
use crate::number::{strict_i32, strict_u64};
use crate::refusal::Refusal;
use crate::token::{Tokens, ends_in_noreply};

/// A request to forget an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    pub key: &'a [u8],
    /// Whether the client wants no answer.
    pub noreply: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Up, beginning again at zero after 2^64 - 1.
    Up,
    /// Down, and no further than zero.
    Down,
}

/// A request to change the number that an item holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    pub key: &'a [u8],
    pub direction: Direction,
    pub amount: u64,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// A request to give an item a new expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    pub key: &'a [u8],
    /// When it expires, as the client put it.
    pub exptime: i32,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

struct Simple<'a> {
    key: &'a [u8],
    argument: &'a [u8],
    noreply: bool,
}

impl<'a> Simple<'a> {
    fn parse(rest: &'a [u8], needs_argument: bool) -> Result<Self, Refused> {
        const SHORT: Refused = Refused::new(Refusal::BadFormat);
        let mut tokens = Tokens::new(rest);
        let key = tokens.next().ok_or(SHORT)?;
        let argument = tokens.clone().next();
        if needs_argument && argument.is_none() {
            return Err(SHORT);
        }
        let noreply = ends_in_noreply(tokens, 2, key);
        if key.len() > KEY_MAX {
            return Err(Refused { noreply, ..SHORT });
        }
        Ok(Self { key, argument: argument.unwrap_or_default(), noreply })
    }

    fn refuse(&self, refusal: Refusal) -> Refused {
        Refused { noreply: self.noreply, ..Refused::new(refusal) }
    }
}

impl<'a> Delete<'a> {
    /// A word too many is refused, as memcached did before its parser was rewritten and as
    /// conformance suites demand; but for the zero that was once a delay and that old clients still
    /// send.
    pub(super) fn parse(rest: &'a [u8]) -> Result<Request<'a>, Refused> {
        let line = Simple::parse(rest, false)?;
        let mut words = Tokens::new(rest).skip(1);
        match [words.next(), words.next(), words.next()] {
            [None, None, None]
            | [Some(b"noreply" | b"0"), None, None]
            | [Some(b"0"), Some(b"noreply"), None] => {
                Ok(Request::Delete(Self { key: line.key, noreply: line.noreply }))
            }
            _ => Err(line.refuse(Refusal::BadDelete)),
        }
    }
}

impl<'a> Arithmetic<'a> {
    pub(super) fn parse(direction: Direction, rest: &'a [u8]) -> Result<Request<'a>, Refused> {
        let line = Simple::parse(rest, true)?;
        let amount = strict_u64(line.argument).ok_or_else(|| line.refuse(Refusal::BadAmount))?;
        Ok(Request::Arithmetic(Self { key: line.key, direction, amount, noreply: line.noreply }))
    }
}

impl<'a> Touch<'a> {
    pub(super) fn parse(rest: &'a [u8]) -> Result<Request<'a>, Refused> {
        let line = Simple::parse(rest, true)?;
        let exptime = strict_i32(line.argument).ok_or_else(|| line.refuse(Refusal::BadExpiry))?;
        Ok(Request::Touch(Self { key: line.key, exptime, noreply: line.noreply }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;

    #[test]
    fn a_delete_takes_a_key_and_the_zero_of_old_clients() {
        assert_eq!(request(b"delete k\r\n"), Request::Delete(Delete { key: b"k", noreply: false }));
        assert_eq!(request(b"delete k 0 noreply\r\n"), Request::Delete(Delete { key: b"k", noreply: true }));
        assert_eq!(request(b"delete k 0\r\n"), Request::Delete(Delete { key: b"k", noreply: false }));
        assert_eq!(request(b"delete\r\n"), Refused::new(Refusal::BadFormat).into());
        for line in
            [&b"delete k 5\r\n"[..], b"delete k k\r\n", b"delete k noreply 0\r\n", b"delete k 0 0\r\n"]
        {
            assert_eq!(request(line), Refused::new(Refusal::BadDelete).into(), "{line:?}");
        }
    }

    #[test]
    fn a_key_may_be_called_noreply() {
        let Request::Delete(delete) = request(b"delete noreply\r\n") else { panic!() };
        assert_eq!((delete.key, delete.noreply), (&b"noreply"[..], true), "memcached deletes it in silence");
    }

    #[test]
    fn amounts_and_expiries_are_strict_numbers() {
        assert_eq!(request(b"incr k -1\r\n"), Refused::new(Refusal::BadAmount).into());
        assert_eq!(request(b"incr k\r\n"), Refused::new(Refusal::BadFormat).into());
        assert_eq!(
            request(b"decr k x noreply\r\n"),
            Refused { noreply: true, ..Refused::new(Refusal::BadAmount) }.into()
        );
        assert_eq!(request(b"touch k 99999999999\r\n"), Refused::new(Refusal::BadExpiry).into());
        let Request::Touch(touch) = request(b"touch k -1\r\n") else { panic!() };
        assert_eq!(touch.exptime, -1);
    }
}
