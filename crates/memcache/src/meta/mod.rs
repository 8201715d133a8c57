//! The meta commands: `mg`, `ms`, `md`, `ma`, `me`, `mn`.
//!
//! `<command> <key> [<length>] <flag>*`, a flag being one letter with or without an argument behind
//! it. Every command accepts every known flag and ignores those that mean nothing to it. The
//! answer's flags come in the order of the request, so [`Flags`] keeps the text as well as its
//! parsed values.

mod flags;

pub use flags::{Flag, Flags};

use crate::key::{KEY_MAX, MetaKey};
use crate::refusal::Refusal;
use crate::request::{Direction, Refused, Request, VALUE_ENDING, Verb, value_length};
use crate::token::Tokens;

/// `mg`: retrieve, with as much or as little about the item as the flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaGet<'a> {
    pub key: MetaKey<'a>,
    pub flags: Flags<'a>,
}

/// `ms`: store the value that follows the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSet<'a> {
    pub key: MetaKey<'a>,
    pub flags: Flags<'a>,
    pub verb: Verb,
    /// The value's length, its line ending not counted.
    pub length: usize,
}

/// `md`: forget an item, or mark it stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDelete<'a> {
    pub key: MetaKey<'a>,
    pub flags: Flags<'a>,
}

/// `ma`: change a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArithmetic<'a> {
    pub key: MetaKey<'a>,
    pub flags: Flags<'a>,
    pub direction: Direction,
}

/// `me`: an item's metadata, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDebug<'a> {
    pub key: MetaKey<'a>,
}

const SHORT: Refused = Refused::new(Refusal::BadFormat);

/// The key and the flags. A flag that begins with neither letter nor digit makes the line
/// unreadable, before the rest is looked at.
fn key<'a>(rest: &'a [u8], words_before_flags: usize) -> Result<(&'a [u8], Tokens<'a>), Refused> {
    let mut tokens = Tokens::new(rest);
    let key = tokens.next().ok_or(SHORT)?;
    if flags::readable(tokens.clone(), words_before_flags) { Ok((key, tokens)) } else { Err(SHORT) }
}

pub(crate) fn get(rest: &[u8]) -> Result<Request<'_>, Refused> {
    let (key, mut tokens) = key(rest, 2)?;
    let (key, flags) = Flags::parse(key, tokens.rest(), 2).map_err(Refused::new)?;
    flags.check_opaque().map_err(Refused::new)?;
    Ok(Request::MetaGet(MetaGet { key, flags }))
}

pub(crate) fn set(rest: &[u8]) -> Result<Request<'_>, Refused> {
    let (key, mut tokens) = key(rest, 3)?;
    let length = tokens.next().and_then(value_length).ok_or(SHORT)?;
    let refused = |refusal| Refused { value: length + VALUE_ENDING, ..Refused::new(refusal) };
    let (key, flags) = Flags::parse(key, tokens.rest(), 3).map_err(refused)?;
    let verb = match flags.mode {
        0 | b'S' => Verb::Set,
        b'E' => Verb::Add,
        b'A' => Verb::Append,
        b'P' => Verb::Prepend,
        b'R' => Verb::Replace,
        _ => return Err(refused(Refusal::BadSetMode)),
    };
    flags.check_opaque().map_err(refused)?;
    Ok(Request::MetaSet(MetaSet { key, flags, verb, length }))
}

pub(crate) fn delete(rest: &[u8]) -> Result<Request<'_>, Refused> {
    let (key, mut tokens) = key(rest, 2)?;
    let (key, flags) = Flags::parse(key, tokens.rest(), 2).map_err(Refused::new)?;
    flags.check_opaque().map_err(Refused::new)?;
    Ok(Request::MetaDelete(MetaDelete { key, flags }))
}

pub(crate) fn arithmetic(rest: &[u8]) -> Result<Request<'_>, Refused> {
    let (key, mut tokens) = key(rest, 2)?;
    let (key, flags) =
        Flags::parse(key, tokens.rest(), 2).map_err(|_| Refused::new(Refusal::BadArithmeticFlag))?;
    let direction = match flags.mode {
        0 | b'I' | b'+' => Direction::Up,
        b'D' | b'-' => Direction::Down,
        _ => return Err(Refused::new(Refusal::BadArithmeticMode)),
    };
    flags.check_opaque().map_err(Refused::new)?;
    Ok(Request::MetaArithmetic(MetaArithmetic { key, flags, direction }))
}

pub(crate) fn debug(rest: &[u8]) -> Result<Request<'_>, Refused> {
    let (wire, mut tokens) = key(rest, 2)?;
    let key = MetaKey { wire, encoded: tokens.next() == Some(b"b") };
    let mut scratch = [0; KEY_MAX];
    if wire.len() > KEY_MAX || key.decoded(&mut scratch).is_empty() {
        return Err(SHORT);
    }
    Ok(Request::MetaDebug(MetaDebug { key }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Head, head};
    use crate::request::parse;

    fn request(line: &[u8]) -> Request<'_> {
        match head(line) {
            Head::Line(line) => parse(line),
            other => panic!("no line: {other:?}"),
        }
    }

    fn refused(line: &[u8]) -> (Refusal, usize) {
        match request(line) {
            Request::Refused(refused) => (refused.refusal, refused.value),
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_set_says_how_long_its_value_is_before_anything_can_go_wrong_with_it() {
        assert_eq!(refused(b"ms k\r\n"), (Refusal::BadFormat, 0));
        assert_eq!(refused(b"ms k x\r\n"), (Refusal::BadFormat, 0));
        assert_eq!(refused(b"ms k 3 !\r\n"), (Refusal::BadFormat, 0), "an unreadable flag");
        assert_eq!(refused(b"ms k 3 Z\r\n"), (Refusal::UnknownFlag, 5));
        assert_eq!(refused(b"ms k 3 MZ\r\n"), (Refusal::BadSetMode, 5));
        assert_eq!(refused(b"ms k 3 b\r\n"), (Refusal::BadBase64, 5));
        let line = [&b"ms "[..], &[b'k'; KEY_MAX + 1], b" 3\r\n"].concat();
        assert_eq!(refused(&line), (Refusal::BadFormat, 5));
    }

    #[test]
    fn modes_are_told_by_their_first_letter() {
        let Request::MetaSet(set) = request(b"ms k 3 MEverything\r\n") else { panic!() };
        assert_eq!(set.verb, Verb::Add);
        assert_eq!(refused(b"ms k 3 M\r\n").0, Refusal::BadSetMode);
        assert_eq!(refused(b"ma k M\r\n").0, Refusal::BadArithmeticMode);
        let Request::MetaArithmetic(change) = request(b"ma k M- D7\r\n") else { panic!() };
        assert_eq!((change.direction, change.flags.delta), (Direction::Down, 7));
    }

    #[test]
    fn arithmetic_does_not_say_what_is_wrong_with_its_flags() {
        for line in [&b"ma k J\r\n"[..], b"ma k Dx\r\n", b"ma k v v\r\n", b"ma k y\r\n"] {
            assert_eq!(refused(line).0, Refusal::BadArithmeticFlag, "{line:?}");
        }
    }

    #[test]
    fn a_debug_request_has_a_key_that_can_be_read() {
        assert!(matches!(request(b"me k\r\n"), Request::MetaDebug(_)));
        assert_eq!(refused(b"me\r\n").0, Refusal::BadFormat);
        assert_eq!(refused(b"me k b\r\n").0, Refusal::BadFormat);
    }
}
