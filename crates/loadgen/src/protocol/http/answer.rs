//! HTTP/1.1 answers, read as they come in: status, whether the connection goes on, the server's own
//! time.
//!
//! A search engine's answer may be long and come in many pieces. So bodies are not kept: their
//! bytes are counted and skipped, except for the beginning. It holds the engine's own time (`took`
//! of Elasticsearch and OpenSearch, `QTime` of Solr; both in milliseconds) and the reason of an
//! error.
//!
//! Invariants: any bytes are an answer, the beginning of one, or [`Garbled`]. A reader keeps at
//! most [`BEGINNING_BYTES`] and asks its caller to keep at most [`HEAD_BYTES_MAX`]. The result does
//! not depend on how an answer is cut into pieces.

use httparse::{EMPTY_HEADER, Response, Status, parse_chunk_size, parse_headers};
use machine::Duration;
use std::fmt;

/// Reads the answers of one connection, one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    state: State,
    status: u16,
    is_last: bool,
    /// The first bytes of the body.
    beginning: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So many bytes of the body.
    Body(u64),
    ChunkSize,
    /// So many bytes of a chunk, its line end counted.
    Chunk(u64),
    Trailer,
    /// A body that ends with the connection.
    UntilClosed,
}

/// The result of reading some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed before any can be taken.
    Nothing,
    /// So many bytes were taken, and the answer is not whole yet.
    Part(usize),
    /// So many bytes complete it.
    Whole(usize, Whole),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    pub status: u16,
    /// How long the server says that it took.
    pub took: Option<Duration>,
    /// How the body of an error begins; empty for statuses below 400.
    pub begins: String,
    pub is_last: bool,
}

/// Bytes that are no HTTP answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbled(&'static str);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what the server sent is no HTTP/1.1 answer: {}", self.0)
    }
}

impl Reader {
    /// Takes as much as it can from the beginning of `input`.
    pub fn take(&mut self, input: &[u8]) -> Result<Step, Garbled> {
        match self.state {
            State::Head => self.take_head(input),
            State::Body(left) => {
                let bytes = self.pass(left, input);
                let rest = left - bytes as u64;
                self.state = State::Body(rest);
                Ok(if rest == 0 { self.whole(bytes) } else { Step::Part(bytes) })
            }
            State::ChunkSize => match parse_chunk_size(input) {
                Ok(Status::Complete((bytes, 0))) => {
                    self.state = State::Trailer;
                    Ok(Step::Part(bytes))
                }
                Ok(Status::Complete((bytes, size))) => {
                    self.state = State::Chunk(size.checked_add(2).ok_or(Garbled("a chunk's size"))?);
                    Ok(Step::Part(bytes))
                }
                Ok(Status::Partial) => wait_for_more(input),
                Err(_) => Err(Garbled("a chunk's size")),
            },
            State::Chunk(left) => {
                // The line end stays out of the body: it may not look like one.
                let content = left.saturating_sub(2);
                if content > 0 {
                    let bytes = self.pass(content, input);
                    self.state = State::Chunk(left - bytes as u64);
                    return Ok(Step::Part(bytes));
                }
                let end = &b"\r\n"[2 - left as usize..];
                let bytes = input.len().min(end.len());
                if input[..bytes] != end[..bytes] {
                    return Err(Garbled("a chunk is longer than it said"));
                }
                self.state = match left - bytes as u64 {
                    0 => State::ChunkSize,
                    left => State::Chunk(left),
                };
                Ok(Step::Part(bytes))
            }
            State::Trailer => {
                let mut headers = [EMPTY_HEADER; HEADERS_MAX];
                match parse_headers(input, &mut headers) {
                    Ok(Status::Complete((bytes, _))) => Ok(self.whole(bytes)),
                    Ok(Status::Partial) => wait_for_more(input),
                    Err(_) => Err(Garbled("headers behind the last chunk")),
                }
            }
            State::UntilClosed => Ok(Step::Part(self.pass(u64::MAX, input))),
        }
    }

    /// The connection was closed: the answer, if that is how it ends.
    pub fn end(&mut self) -> Option<Whole> {
        if self.state != State::UntilClosed {
            return None;
        }
        match self.whole(0) {
            Step::Whole(_, whole) => Some(whole),
            _ => None,
        }
    }

    fn take_head(&mut self, input: &[u8]) -> Result<Step, Garbled> {
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut response = Response::new(&mut headers);
        let bytes = match response.parse(input) {
            Ok(Status::Complete(bytes)) => bytes,
            Ok(Status::Partial) => return wait_for_more(input),
            Err(httparse::Error::TooManyHeaders) => return Err(Garbled("more than 100 headers")),
            Err(_) => return Err(Garbled("its status line or headers")),
        };
        let (Some(status), Some(version)) = (response.code, response.version) else {
            return Err(Garbled("its status line"));
        };
        // An interim response (RFC 9110, 15.2) is not the answer.
        if (100..200).contains(&status) {
            return if status == 101 {
                Err(Garbled("it changes the protocol"))
            } else {
                Ok(Step::Part(bytes))
            };
        }
        let framing = Framing::of(response.headers)?;
        self.status = status;
        self.is_last = framing.closes.unwrap_or(version == 0);
        self.state = match framing {
            _ if status == 204 || status == 304 => State::Body(0),
            Framing { is_chunked: true, .. } => State::ChunkSize,
            Framing { length: Some(length), .. } => State::Body(length),
            _ => State::UntilClosed,
        };
        Ok(if self.state == State::Body(0) { self.whole(bytes) } else { Step::Part(bytes) })
    }

    /// Passes over a piece of the body, of which `left` bytes are to come; says how long it was.
    fn pass(&mut self, left: u64, input: &[u8]) -> usize {
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let room = BEGINNING_BYTES - self.beginning.len();
        self.beginning.extend_from_slice(&input[..bytes.min(room)]);
        bytes
    }

    fn whole(&mut self, bytes: usize) -> Step {
        let is_last = self.is_last || self.state == State::UntilClosed;
        let begins = if self.status < 400 {
            String::new()
        } else {
            let shown = &self.beginning[..self.beginning.len().min(SHOWN_BYTES)];
            String::from_utf8_lossy(shown).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let whole = Whole { status: self.status, took: took(&self.beginning), begins, is_last };
        self.state = State::Head;
        self.beginning.clear();
        Step::Whole(bytes, whole)
    }
}

/// How an answer's end is found (RFC 9112, 6.3).
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    is_chunked: bool,
    closes: Option<bool>,
}

impl Framing {
    fn of(headers: &[httparse::Header<'_>]) -> Result<Self, Garbled> {
        let mut framing = Self::default();
        for header in headers {
            let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
            if header.name.eq_ignore_ascii_case("content-length") {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let length = value.parse().ok().filter(|_| digits).ok_or(Garbled("its Content-Length"))?;
                if framing.length.is_some_and(|other| other != length) {
                    return Err(Garbled("two Content-Lengths that differ"));
                }
                framing.length = Some(length);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(Garbled("a Transfer-Encoding other than chunked"));
                }
                framing.is_chunked = true;
            } else if header.name.eq_ignore_ascii_case("connection") {
                let says = |word: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word));
                if says("close") {
                    framing.closes = Some(true);
                } else if says("keep-alive") {
                    framing.closes = framing.closes.or(Some(false));
                }
            }
        }
        if framing.is_chunked && framing.length.is_some() {
            return Err(Garbled("both a Content-Length and chunks"));
        }
        Ok(framing)
    }
}

/// The part of a head or of a chunk's size that is there is kept by the caller, up to a bound.
fn wait_for_more(input: &[u8]) -> Result<Step, Garbled> {
    if input.len() > HEAD_BYTES_MAX { Err(Garbled("its headers are endless")) } else { Ok(Step::Nothing) }
}

/// The server's own time. It is a key of JSON. An escaped quote before it means that it is inside a
/// string, so it is no key.
fn took(body: &[u8]) -> Option<Duration> {
    let after = |name: &[u8]| {
        let at = body.windows(name.len()).position(|window| window == name)?;
        let before = body[..at].iter().rev().find(|byte| !byte.is_ascii_whitespace());
        matches!(before, Some(b'{' | b',')).then(|| &body[at + name.len()..])
    };
    let rest = after(b"\"took\"").or_else(|| after(b"\"QTime\""))?;
    let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // A number that the beginning of the body cuts off is not known.
    if digits == 0 || digits == rest.len() {
        return None;
    }
    std::str::from_utf8(&rest[..digits])
        .ok()?
        .parse()
        .ok()
        .filter(|ms| *ms <= TOOK_MS_MAX)
        .map(Duration::from_millis)
}

/// The part of a body that is kept: engines write their time before their results.
pub const BEGINNING_BYTES: usize = 4096;
/// A head, or the headers behind the last chunk, may be so long.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
/// Of an error's body, as much is shown.
const SHOWN_BYTES: usize = 200;
const TOOK_MS_MAX: u64 = 24 * 3600 * 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All answers in `input`, given in pieces of `piece` bytes, as a lane gives them.
    fn read(input: &[u8], piece: usize) -> Result<Vec<Whole>, Garbled> {
        let mut reader = Reader::default();
        let (mut kept, mut wholes) = (Vec::new(), Vec::new());
        for piece in input.chunks(piece) {
            kept.extend_from_slice(piece);
            while !kept.is_empty() {
                let bytes = match reader.take(&kept)? {
                    Step::Nothing => break,
                    Step::Part(bytes) => bytes,
                    Step::Whole(bytes, whole) => {
                        wholes.push(whole);
                        bytes
                    }
                };
                kept.drain(..bytes);
            }
        }
        wholes.extend(reader.end());
        Ok(wholes)
    }

    fn ok(took_ms: Option<u64>) -> Whole {
        let took = took_ms.map(Duration::from_millis);
        Whole { status: 200, took, begins: String::new(), is_last: false }
    }

    #[test]
    fn pipelined_and_chunked_answers_are_told_apart() {
        let two = [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"took\":12}"[..],
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"6\r\n{\"took\r\n9;x=y\r\n\" : 7, \"a\r\n3\r\n\":1\r\n0\r\nX: y\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
        ]
        .concat();
        let expected = vec![ok(Some(12)), ok(Some(7)), Whole { status: 204, ..ok(None) }];
        for piece in 1..=two.len() {
            assert_eq!(read(&two, piece).as_ref(), Ok(&expected), "{piece}");
        }
    }

    #[test]
    fn an_answer_without_length_ends_with_its_connection() {
        let text = b"HTTP/1.1 503 Busy\r\n\r\n{ \"error\":\n \"full\" }";
        let whole =
            Whole { status: 503, took: None, begins: "{ \"error\": \"full\" }".into(), is_last: true };
        assert_eq!(read(text, 7), Ok(vec![whole]));
        assert_eq!(
            read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd", 100),
            Ok(vec![]),
            "one byte short"
        );
    }

    #[test]
    fn whether_the_connection_goes_on_is_what_the_server_says() {
        for (head, is_last) in [
            ("HTTP/1.1 200 OK\r\n", false),
            ("HTTP/1.1 200 OK\r\nConnection: Close\r\n", true),
            ("HTTP/1.1 200 OK\r\nconnection: keep-alive, close\r\n", true),
            ("HTTP/1.0 200 OK\r\n", true),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", false),
        ] {
            let text = format!("{head}Content-Length: 0\r\n\r\n");
            assert_eq!(read(text.as_bytes(), 3).unwrap()[0].is_last, is_last, "{head}");
        }
    }

    #[test]
    fn what_cannot_be_framed_is_garbled() {
        for text in [
            "VALUE a 0 1\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
        ] {
            for piece in [1, 5, 1000] {
                assert!(read(text.as_bytes(), piece).is_err(), "{text}");
            }
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        assert!(read(endless.as_bytes(), 10_000).is_err());
    }

    #[test]
    fn only_a_key_says_what_a_request_took() {
        let took = |body: &str| super::took(body.as_bytes()).map(|took| took.as_millis());
        assert_eq!(took(r#"{"took":5,"timed_out":false}"#), Some(5));
        assert_eq!(took("{\n  \"responseHeader\": {\n \"status\":0,\n \"QTime\": 31 }"), Some(31));
        for body in [
            r#"{"text":"\"took\":5,"}"#,
            r#"{"text":"took","x":5}"#,
            r#"["took",5]"#,
            r#"{"took":-5,"#,
            r#"{"took":"#,
            r#"{"took":12"#,
            r#"{"took":99999999999999999999,"#,
            "",
        ] {
            assert_eq!(took(body), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn how_bytes_are_cut_changes_nothing(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            piece in 1usize..50,
        ) {
            prop_assert_eq!(read(&bytes, piece).ok(), read(&bytes, usize::MAX).ok());
        }

        #[test]
        fn nor_for_what_looks_like_answers(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "HTTP/1.1 200 OK\r\n", "HTTP/1.0 404 No\n", "HTTP/1.1 100 \r\n\r\n", "Content-Length: 3\r\n",
                    "Transfer-Encoding: chunked\r\n", "Connection: close\r\n", "\r\n", "3\r\n", "abc", "0\r\n",
                    "{\"took\":1,", "\n",
                ]),
                0..12,
            ),
            piece in 1usize..20,
        ) {
            let text = parts.concat();
            prop_assert_eq!(read(text.as_bytes(), piece).ok(), read(text.as_bytes(), usize::MAX).ok());
        }
    }
}
