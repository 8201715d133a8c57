//! Answers, read from the front of the input.
//!
//! A retrieval is answered by any number of [`Answer::Value`] and one [`Answer::End`]; every other
//! request by one answer, or by none where it asked for silence. The bytes are the caller's;
//! nothing is copied.

use crate::number::{strict_u32, strict_u64};
use crate::token::Tokens;
use memchr::memchr;

/// The longest line that a server may answer with: keys, opaques and error texts stay far below.
const LINE_MAX: usize = 2048;

/// The largest value that is believed, so that a garbled length is not waited for: memcached's own
/// upper bound for `-I`, 1 GiB.
const VALUE_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// `VALUE`: one item of a retrieval.
    Value {
        key: &'a [u8],
        flags: u32,
        value: &'a [u8],
        /// Its unique number, if asked for.
        unique: Option<u64>,
    },
    /// `END`: a retrieval is answered, or the statistics are.
    End,
    /// `VA`: an item with its value.
    MetaValue {
        flags: &'a [u8],
        value: &'a [u8],
    },
    /// `HD`, `EN`, `NS`, `EX`, `NF`, `MN`: the two letters and the return flags' text.
    Meta {
        code: [u8; 2],
        flags: &'a [u8],
    },
    Stored,
    /// `ERROR`, `CLIENT_ERROR ...`, `SERVER_ERROR ...`: the line.
    Error(&'a [u8]),
    /// Any other line: `DELETED`, `VERSION 1.6.45`, a number.
    Line(&'a [u8]),
}

/// The front of the input, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// An answer, which takes `length` bytes.
    Answer {
        answer: Answer<'a>,
        /// Its bytes, endings included.
        length: usize,
    },
    /// Part of one. It takes `wanted` bytes in all, as far as can be told: at least one more than
    /// there are.
    Partial {
        /// Bytes of the whole answer.
        wanted: usize,
    },
}

/// The bytes are no answer of a memcached server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what the server answers is no memcached protocol: {0:?}; check address and port")]
pub struct Garbled(pub String);

/// Reads one answer from the front of `bytes`.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Reading<'_>, Garbled> {
    let Some(end) = memchr(b'\n', bytes) else {
        return if bytes.len() > LINE_MAX {
            Err(garbled(bytes))
        } else {
            Ok(Reading::Partial { wanted: bytes.len() + 1 })
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let length = end + 1;
    let answer = match line {
        b"END" => Answer::End,
        b"STORED" => Answer::Stored,
        [b'V', b'A', b'L', b'U', b'E', b' ', rest @ ..] => return value(bytes, length, rest),
        [b'V', b'A', b' ', rest @ ..] => return meta_value(bytes, length, rest),
        [a @ (b'H' | b'E' | b'N' | b'M'), b @ (b'D' | b'N' | b'S' | b'X' | b'F')] => {
            Answer::Meta { code: [*a, *b], flags: b"" }
        }
        [a @ (b'H' | b'E' | b'N' | b'M'), b @ (b'D' | b'N' | b'S' | b'X' | b'F'), b' ', flags @ ..] => {
            Answer::Meta { code: [*a, *b], flags }
        }
        _ if [&b"ERROR"[..], b"CLIENT_ERROR", b"SERVER_ERROR"]
            .iter()
            .any(|start| line.starts_with(start)) =>
        {
            Answer::Error(line)
        }
        [b'A'..=b'Z' | b'0'..=b'9', ..] => Answer::Line(line),
        _ => return Err(garbled(line)),
    };
    Ok(Reading::Answer { answer, length })
}

#[cold]
fn garbled(bytes: &[u8]) -> Garbled {
    Garbled(String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned())
}

/// `<key> <flags> <length> [<unique>]`, the value behind it.
#[inline]
fn value<'a>(bytes: &'a [u8], head: usize, rest: &'a [u8]) -> Result<Reading<'a>, Garbled> {
    let mut tokens = Tokens::new(rest);
    let mut fields = || {
        let key = tokens.next()?;
        let flags = strict_u32(tokens.next()?)?;
        let length = tokens.next().and_then(value_length)?;
        let unique = match tokens.next() {
            None => None,
            Some(text) => Some(strict_u64(text)?),
        };
        Some((key, flags, length, unique))
    };
    let (key, flags, length, unique) = fields().ok_or_else(|| garbled(rest))?;
    with_value(bytes, head, length, |value| Answer::Value { key, flags, value, unique })
}

/// `<length> <flag>*`, the value behind it.
fn meta_value<'a>(bytes: &'a [u8], head: usize, rest: &'a [u8]) -> Result<Reading<'a>, Garbled> {
    let mut tokens = Tokens::new(rest);
    let length = tokens.next().and_then(value_length).ok_or_else(|| garbled(rest))?;
    let flags = tokens.rest();
    with_value(bytes, head, length, |value| Answer::MetaValue { flags, value })
}

fn value_length(text: &[u8]) -> Option<usize> {
    strict_u32(text).map(|length| length as usize).filter(|&length| length <= VALUE_MAX)
}

#[inline]
fn with_value<'a>(
    bytes: &'a [u8],
    head: usize,
    length: usize,
    answer: impl FnOnce(&'a [u8]) -> Answer<'a>,
) -> Result<Reading<'a>, Garbled> {
    let (end, whole) = (head + length, head + length + 2);
    if bytes.len() < whole {
        return Ok(Reading::Partial { wanted: whole });
    }
    if &bytes[end..whole] != b"\r\n" {
        return Err(garbled(&bytes[end..whole]));
    }
    Ok(Reading::Answer { answer: answer(&bytes[head..end]), length: whole })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply;
    use proptest::prelude::*;

    fn all(mut bytes: &[u8]) -> Vec<Answer<'_>> {
        let mut answers = Vec::new();
        while !bytes.is_empty() {
            match parse(bytes) {
                Ok(Reading::Answer { answer, length }) => {
                    answers.push(answer);
                    bytes = &bytes[length..];
                }
                other => panic!("{other:?} after {answers:?}"),
            }
        }
        answers
    }

    #[test]
    fn every_kind_of_answer_is_told_apart() {
        let bytes =
            b"VALUE k 7 5 9\r\na\r\nbc\r\nEND\r\nVA 2 t-1 f0\r\nxy\r\nHD\r\nEN\r\nNS k1\r\nSTORED\r\n\
            SERVER_ERROR out of memory storing object\r\nVERSION 1\r\n42\r\nNOT_STORED\r\nMN\r\n";
        assert_eq!(
            all(bytes),
            [
                Answer::Value { key: b"k", flags: 7, value: b"a\r\nbc", unique: Some(9) },
                Answer::End,
                Answer::MetaValue { flags: b"t-1 f0", value: b"xy" },
                Answer::Meta { code: *b"HD", flags: b"" },
                Answer::Meta { code: *b"EN", flags: b"" },
                Answer::Meta { code: *b"NS", flags: b"k1" },
                Answer::Stored,
                Answer::Error(b"SERVER_ERROR out of memory storing object"),
                Answer::Line(b"VERSION 1"),
                Answer::Line(b"42"),
                Answer::Line(b"NOT_STORED"),
                Answer::Meta { code: *b"MN", flags: b"" },
            ]
        );
    }

    #[test]
    fn a_value_tells_how_much_is_missing() {
        assert_eq!(parse(b"VALUE k 0 100\r\nabc"), Ok(Reading::Partial { wanted: 15 + 102 }));
        assert_eq!(parse(b"VALUE k 0"), Ok(Reading::Partial { wanted: 10 }));
    }

    #[test]
    fn what_is_no_answer_is_garbled() {
        for bytes in [
            &b"\x81\0\n"[..],
            b"VALUE k\r\n",
            b"VALUE k 0 x\r\n",
            b"VA x\r\n",
            b"VALUE k 0 1\r\nabc",
            b"VALUE k 0 4000000000\r\n",
            b"\r\n",
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
        assert!(parse(&[b'A'; LINE_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn a_composed_value_reads_back_whole_and_partial_before(
            key in "[!-~]{1,250}", flags: u32, value: Vec<u8>, unique: Option<u64>,
        ) {
            let mut bytes = Vec::new();
            reply::value(&mut bytes, key.as_bytes(), flags, &value, unique);
            let answer = Answer::Value { key: key.as_bytes(), flags, value: &value, unique };
            prop_assert_eq!(parse(&bytes), Ok(Reading::Answer { answer, length: bytes.len() }));
            for end in 0..bytes.len() {
                let partial = parse(&bytes[..end]);
                prop_assert!(
                    matches!(partial, Ok(Reading::Partial { wanted }) if wanted > end && wanted <= bytes.len()),
                    "{:?} at {}", partial, end
                );
            }
        }

        #[test]
        fn no_answer_panics(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
