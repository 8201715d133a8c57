//! A command line's meaning.
//!
//! One file per kind of command. Every decision that needs the line alone is made here, in the
//! order of memcached 1.6.45. The order picks the error that the client sees. It also decides
//! whether the bytes of a refused value are thrown away or taken for commands.

mod admin;
mod change;
mod retrieve;
mod store;

pub use admin::Topics;
pub use change::{Arithmetic, Delete, Direction, Touch};
pub use retrieve::Retrieve;
pub use store::{Store, Verb};
pub(crate) use store::{VALUE_ENDING, value_length};

use crate::line::Line;
use crate::meta::{self, MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet};
use crate::refusal::Refusal;
use memchr::memchr;

/// The shortest line that memcached looks at, its ending included.
const LENGTH_MIN: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Retrieve(Retrieve<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`; the value follows the line.
    Store(Store<'a>),
    Delete(Delete<'a>),
    /// `incr`, `decr`.
    Arithmetic(Arithmetic<'a>),
    Touch(Touch<'a>),
    MetaGet(MetaGet<'a>),
    /// `ms`; the value follows the line.
    MetaSet(MetaSet<'a>),
    MetaDelete(MetaDelete<'a>),
    MetaArithmetic(MetaArithmetic<'a>),
    MetaDebug(MetaDebug<'a>),
    /// `mn`: answer, so that the client knows that everything before is answered.
    MetaNoop,
    /// `flush_all`: forget all items, now or `delay` seconds from now (a Unix time if above 30
    /// days).
    FlushAll {
        /// The argument; zero and below mean now.
        delay: i32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    Version,
    /// `cache_memlimit`: another memory limit, in MiB.
    CacheMemlimit {
        mebibytes: u32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `verbosity`, which changes nothing here.
    Verbosity {
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `stats`, of a group or general.
    Stats {
        group: Option<&'a [u8]>,
    },
    Quit,
    /// An HTTP request that lost its way: close, say nothing.
    Http,
    /// A list of the items: `lru_crawler metadump` and `mgdump`.
    Dump(Dump<'a>),
    /// `watch`: from now on a line for each event of these kinds; `None`: an unknown kind.
    Watch(Option<Topics>),
    /// A command that is not carried out.
    Refused(Refused),
}

/// A list of the items is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dump<'a> {
    /// With their data, else as requests for them.
    pub meta: bool,
    /// `all`, `hash`, or size classes with commas.
    pub classes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub refusal: Refusal,
    /// Whether the client wants no answer, not even this one.
    pub noreply: bool,
    /// Bytes of value and line ending behind the line that go with it.
    pub value: usize,
}

impl Refused {
    /// Refused and answered; no value follows.
    pub(crate) const fn new(refusal: Refusal) -> Self {
        Self { refusal, noreply: false, value: 0 }
    }
}

impl From<Refused> for Request<'_> {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

#[inline]
pub fn parse<'a>(line: Line<'a>) -> Request<'a> {
    match line.text {
        [b'g', b'e', b't', b' ', keys @ ..] => Retrieve::parse(keys, false).unwrap_or_else(Request::from),
        [b's', b'e', b't', b' ', rest @ ..] => {
            Store::parse(Verb::Set, false, rest).unwrap_or_else(Request::from)
        }
        _ => parse_rare(line),
    }
}

/// Everything but the two commands that make up nearly all traffic.
fn parse_rare<'a>(line: Line<'a>) -> Request<'a> {
    if line.length < LENGTH_MIN {
        return Refused::new(Refusal::BadFormat).into();
    }
    let text = line.text;
    let (command, rest) = text.split_at(memchr(b' ', text).unwrap_or(text.len()));
    let request = match command {
        b"mg" => meta::get(rest),
        b"ms" => meta::set(rest),
        b"md" => meta::delete(rest),
        b"ma" => meta::arithmetic(rest),
        b"me" => meta::debug(rest),
        b"mn" => Ok(Request::MetaNoop),
        b"get" => Retrieve::parse(rest, false),
        b"gets" => Retrieve::parse(rest, true),
        b"gat" => Retrieve::parse_touching(rest, false),
        b"gats" => Retrieve::parse_touching(rest, true),
        b"add" => Store::parse(Verb::Add, false, rest),
        b"replace" => Store::parse(Verb::Replace, false, rest),
        b"append" => Store::parse(Verb::Append, false, rest),
        b"prepend" => Store::parse(Verb::Prepend, false, rest),
        b"set" => Store::parse(Verb::Set, false, rest),
        b"cas" => Store::parse(Verb::Set, true, rest),
        b"delete" => Delete::parse(rest),
        b"incr" => Arithmetic::parse(Direction::Up, rest),
        b"decr" => Arithmetic::parse(Direction::Down, rest),
        b"touch" => Touch::parse(rest),
        b"version" => Ok(Request::Version),
        b"quit" => Ok(Request::Quit),
        b"stats" => admin::stats(rest),
        b"watch" => Ok(Request::Watch(Topics::parse(rest))),
        _ => admin::parse(text),
    };
    request.unwrap_or_else(Request::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Head, head};
    use proptest::prelude::*;

    pub(super) fn request(line: &[u8]) -> Request<'_> {
        match head(line) {
            Head::Line(line) => parse(line),
            other => panic!("no line: {other:?}"),
        }
    }

    fn refusal(line: &'static str) -> Refusal {
        match request(line.as_bytes()) {
            Request::Refused(refused) => refused.refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn lines_of_less_than_four_bytes_are_badly_formed_and_longer_ones_unknown() {
        assert_eq!(refusal("\r\n"), Refusal::BadFormat);
        assert_eq!(refusal("a\r\n"), Refusal::BadFormat);
        assert_eq!(refusal("mn\n"), Refusal::BadFormat);
        assert_eq!(refusal("ab\r\n"), Refusal::UnknownCommand);
        assert_eq!(request(b"mn\r\n"), Request::MetaNoop);
    }

    #[test]
    fn a_command_begins_in_the_first_column() {
        assert_eq!(refusal(" get a\r\n"), Refusal::UnknownCommand);
        assert_eq!(request(b" flush_all\r\n"), Request::FlushAll { delay: 0, noreply: false });
    }

    #[test]
    fn an_unknown_command_may_ask_for_silence() {
        assert!(matches!(request(b"frob noreply\r\n"), Request::Refused(Refused { noreply: true, .. })));
    }

    #[test]
    fn a_lost_http_request_is_recognised() {
        assert_eq!(request(b"GET / HTTP/1.1\r\n"), Request::Http);
        assert_eq!(refusal("HTTP/1.1\r\n"), Refusal::UnknownCommand);
    }

    #[test]
    fn commands_without_arguments_ignore_what_follows() {
        assert_eq!(request(b"quit now\r\n"), Request::Quit);
        assert_eq!(request(b"version 2\r\n"), Request::Version);
        assert_eq!(request(b"mn x\r\n"), Request::MetaNoop);
    }

    proptest! {
        #[test]
        fn no_line_panics(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(Line { length: text.len() + 2, text: &text });
        }

        #[test]
        fn no_line_of_protocol_words_panics(words in proptest::collection::vec(
            proptest::sample::select(vec![
                "get", "gat", "set", "cas", "ms", "mg", "md", "ma", "me", "flush_all", "stats", "noreply",
                "0", "-1", "key", "b", "T-", "N", "C1", "O", "MS", "Zm9v", " ", "\t", "4294967296", "HTTP/1.1",
                "\u{80}",
            ]), 0..30)) {
            let text = words.join(" ");
            let _ = parse(Line { length: text.len() + 2, text: text.as_bytes() });
        }
    }
}
