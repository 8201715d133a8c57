//! HTTP/1.1 as a search service's clients speak it: one request written from a template for each
//! query, connections kept alive.
//!
//! A *template* is a URL and perhaps a body in which `{words}` stands for the query's keywords.
//! They are escaped for where they stand: percent-encoded in the URL, as a JSON string's inside in
//! the body, so a word can never end the request.

pub mod answer;

use super::{Answer, Asks, Kind, Protocol, Taken, Url};
use answer::{Reader, Step};
use std::io::Write as _;
use std::sync::Arc;
use workload::{Keywords, Popularity, Queries, Query, SpecError, Words};

#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// Everything random follows from this number.
    pub seed: u64,
    /// The target; may have `{words}` in it.
    pub url: Url,
    /// Sent with a POST; without one it is a GET.
    pub body: Option<String>,
    /// How many keywords the queries have.
    pub keywords: Keywords,
    /// The words they are made of; with none, every request is the same.
    pub words: Words,
    /// How often each word is asked for, by its place in the list.
    pub popularity: Popularity,
}

impl Http {
    /// True if the templates have a place for words.
    pub fn wants_words(&self) -> bool {
        self.url.path().contains(PLACE) || self.body.as_ref().is_some_and(|body| body.contains(PLACE))
    }
}

impl Asks for Http {
    type Protocol = Client;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn protocol(&self) -> Result<Client, SpecError> {
        let queries = Queries::new(self.seed, &self.keywords, self.words.clone(), self.popularity);
        Ok(Client { asks: Arc::new(self.clone()), queries, body: Vec::new() })
    }
}

/// A lane's half of the conversation.
#[derive(Clone)]
pub struct Client {
    asks: Arc<Http>,
    queries: Queries,
    body: Vec<u8>,
}

impl Protocol for Client {
    /// Its number: the query is drawn again when it is written.
    type Request = u64;
    type Reading = Reader;

    const POOLED: bool = true;

    fn request(&self, index: u64) -> u64 {
        index
    }

    fn connection(&self, index: u64, count: u32) -> u32 {
        self.queries.connection(index, count)
    }

    fn compose(&mut self, index: &u64, out: &mut Vec<u8>) {
        let query = &self.queries.query(*index);
        let asks = self.asks.clone();
        let method = if asks.body.is_some() { "POST " } else { "GET " };
        out.extend_from_slice(method.as_bytes());
        self.fill(asks.url.path(), query, escape_url, out);
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            " HTTP/1.1\r\nHost: {}\r\nUser-Agent: roost\r\nAccept: */*\r\n",
            asks.url.authority()
        );
        match &asks.body {
            None => out.extend_from_slice(b"\r\n"),
            Some(body) => {
                let mut text = std::mem::take(&mut self.body);
                text.clear();
                self.fill(body, query, escape_json, &mut text);
                let length = text.len();
                let _ = write!(out, "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
                out.extend_from_slice(&text);
                self.body = text;
            }
        }
    }

    fn take(&mut self, _: &u64, reader: &mut Reader, input: &[u8]) -> Result<Taken, String> {
        match reader.take(input).map_err(|garbled| garbled.to_string())? {
            Step::Nothing => Ok(Taken::Nothing),
            Step::Part(bytes) => Ok(Taken::Part(bytes, None)),
            Step::Whole(bytes, whole) => Ok(Taken::Answer(bytes, whole.into())),
        }
    }

    fn end(&mut self, reader: &mut Reader) -> Option<Answer> {
        reader.end().map(Answer::from)
    }
}

impl Client {
    /// Writes a template with the query's words in their place.
    fn fill(&self, template: &str, query: &Query, escape: fn(&str, &mut Vec<u8>), out: &mut Vec<u8>) {
        let mut parts = template.split(PLACE);
        out.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
        for part in parts {
            for (place, rank) in query.ranks().iter().enumerate() {
                if place > 0 {
                    escape(" ", out);
                }
                escape(self.queries.words().word(*rank), out);
            }
            out.extend_from_slice(part.as_bytes());
        }
    }
}

impl From<answer::Whole> for Answer {
    fn from(whole: answer::Whole) -> Self {
        let kind = if whole.status < 400 { Kind::Good } else { Kind::Status(whole.status, whole.begins) };
        Self { kind, took: whole.took, is_last: whole.is_last }
    }
}

/// Percent-encodes everything that is not unreserved (RFC 3986, 2.3).
fn escape_url(word: &str, out: &mut Vec<u8>) {
    for byte in word.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Escapes the characters that may not stand in a JSON string (RFC 8259, 7).
fn escape_json(word: &str, out: &mut Vec<u8>) {
    for byte in word.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                let _ = write!(out, "\\u{byte:04x}");
            }
            _ => out.push(byte),
        }
    }
}

/// Where a template has the query's words.
const PLACE: &str = "{words}";

#[cfg(test)]
mod tests {
    use super::*;

    fn http(url: &str, body: Option<&str>, words: &[&str]) -> Http {
        Http {
            seed: 1,
            url: url.parse().unwrap(),
            body: body.map(str::to_owned),
            keywords: Keywords::Range(3, 3),
            words: Words::new(words.iter().map(|word| (*word).to_owned())),
            popularity: Popularity::Uniform,
        }
    }

    fn composed(http: &Http) -> String {
        let mut client = http.protocol().unwrap();
        let mut out = Vec::new();
        let query = client.request(5);
        client.compose(&query, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_get_has_its_words_in_the_url() {
        let text = composed(&http("http://h:1/s?q={words}&n=1", None, &["a&b"]));
        assert!(text.starts_with("GET /s?q=a%26b%20a%26b%20a%26b&n=1 HTTP/1.1\r\nHost: h:1\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n"));
    }

    #[test]
    fn a_post_says_how_long_its_body_is_and_no_word_ends_a_string() {
        let text = composed(&http("http://h:1/_search", Some(r#"{"q":"{words}"}"#), &["a\"b\\\r"]));
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /_search HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(value["q"], "a\"b\\\r a\"b\\\r a\"b\\\r");
    }

    #[test]
    fn a_template_without_words_is_always_the_same() {
        let plain = http("http://h:1/", None, &[]);
        assert!(!plain.wants_words() && http("http://h:1/?{words}", None, &[]).wants_words());
        assert!(composed(&plain).starts_with("GET / HTTP/1.1\r\n"));
    }
}
