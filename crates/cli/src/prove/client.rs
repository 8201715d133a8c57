//! The tail that the service's clients see: a query to a Prometheus server, evaluated at the end of
//! the part of each block that counts.
//!
//! <https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries>: the answer is
//! `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[TIME,"VALUE"]}]}}`.

use crate::exit::usage;
use anyhow::Result;
use machine::{Duration, Instant};
use serde_json::Value;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use study::prove::{Block, Figure};

/// For the whole exchange. A block's figure is not worth more of the time between two blocks.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// An answer with one value has some hundred bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// Stands in a query for the length of the part that counts, as in Grafana.
const RANGE: &str = "$__range";

pub struct ClientTail {
    agent: ureq::Agent,
    /// The address and the query; the time of a block comes later.
    url: String,
}

#[derive(Debug, PartialEq)]
pub struct Failure {
    why: String,
    /// The query itself is right, and may have a value in another block.
    may_pass: bool,
}

impl Failure {
    fn for_good(why: impl Into<String>) -> Self {
        Self { why: why.into(), may_pass: false }
    }

    fn for_now(why: impl Into<String>) -> Self {
        Self { why: why.into(), may_pass: true }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl ClientTail {
    /// Tries it over a range as long as `counted`. The remark is for the operator.
    pub fn open(url: &str, counted: Duration) -> Result<(Self, Option<String>)> {
        let wrong = |why: &dyn fmt::Display, fix: &str| usage(format!("--client-tail: {why}\nhint: {fix}"));
        if url.starts_with("https://") {
            return Err(wrong(&"it is read without encryption", "name an address that begins with http://"));
        }
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let names: Vec<&str> =
            query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name)).collect();
        if !url.starts_with("http://") || !names.contains(&"query") {
            return Err(wrong(&format!("`{}` names no query", linux::printable_name(url)), EXAMPLE));
        }
        if names.contains(&"time") {
            return Err(wrong(&"each block asks for its own end", "leave time= out"));
        }
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            // The word of an error is in its body.
            .http_status_as_error(false)
            // The server is nearby; a proxy for the world outside does not know it.
            .proxy(None)
            .accept("application/json")
            .build()
            .into();
        let tail = Self { agent, url: encoded(url) };
        match tail.ask(SystemTime::now(), counted) {
            Ok(_) => Ok((tail, None)),
            Err(failure) if failure.may_pass => {
                Ok((tail, Some(format!("--client-tail has no value now: {failure}"))))
            }
            Err(failure) => Err(wrong(&failure, EXAMPLE)),
        }
    }

    /// Adds the figure of a block whose counted part ended at `end`, or why it has none.
    pub fn add(&self, block: &mut Block, end: Instant) {
        let since = linux::now().since(end);
        let end = SystemTime::now() - std::time::Duration::from(since);
        let name = Figure::ClientTail.to_string();
        match self.ask(end, Duration::from_secs_f64(block.measured_s)) {
            Ok(seconds) => drop(block.figures.insert(name, seconds * 1e9)),
            Err(failure) => drop(block.missing.insert(name, failure.why)),
        }
    }

    /// Seconds, at `end`, over a range of `counted`.
    pub fn ask(&self, end: SystemTime, counted: Duration) -> Result<f64, Failure> {
        let range = (counted.as_secs_f64().floor() as u64).max(1);
        let time = end.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let url = format!("{}&time={time:.3}", self.url.replace(RANGE, &format!("{range}s")));
        let failed = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => {
                Failure::for_good(format!("no answer within {} s", PATIENCE.as_secs()))
            }
            ureq::Error::Io(cause) => Failure::for_good(format!("no answer: {cause}")),
            ureq::Error::ConnectionFailed => Failure::for_good("no server listens there"),
            ureq::Error::BodyExceedsLimit(_) => {
                Failure::for_good(format!("the answer does not end within {ANSWER_MAX} bytes"))
            }
            other => Failure::for_good(other.to_string()),
        };
        let mut answer = self.agent.get(&url).call().map_err(failed)?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER_MAX).lossy_utf8(true).read_to_string();
        let text = text.map_err(failed)?;
        let document: Option<Value> = serde_json::from_str(&text).ok();
        match document {
            Some(document) if document["status"].is_string() => value(&document),
            _ if !status.is_success() => Err(Failure::for_good(format!("it answers with status {status}"))),
            _ => Err(Failure::for_good("its answer is no answer of Prometheus")),
        }
    }
}

const EXAMPLE: &str = "name a query of one value in seconds, as in \
     'http://127.0.0.1:9090/api/v1/query?query=histogram_quantile(0.99, sum by (le) \
     (rate(client_seconds_bucket[$__range])))'";

/// The value of the one element of the vector.
fn value(document: &Value) -> Result<f64, Failure> {
    if document["status"] != "success" {
        let why = document["error"].as_str().unwrap_or("it does not say why");
        return Err(Failure::for_good(format!("the query fails: {}", linux::printable_name(why))));
    }
    let kind = document["data"]["resultType"].as_str().unwrap_or("nothing");
    if kind != "vector" {
        return Err(Failure::for_good(format!(
            "the query gives no vector, but {}",
            linux::printable_name(kind)
        )));
    }
    match document["data"]["result"].as_array().map(Vec::as_slice) {
        Some([one]) => {
            let text = one["value"][1].as_str().unwrap_or("nothing");
            match text.parse::<f64>() {
                Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
                Ok(seconds) => Err(Failure::for_now(format!("the query gives {seconds}, no time"))),
                Err(_) => {
                    Err(Failure::for_good(format!("the query gives `{}`", linux::printable_name(text))))
                }
            }
        }
        Some([]) => Err(Failure::for_now("the query gives no value")),
        Some(several) => {
            Err(Failure::for_good(format!("the query gives {} values, and one is asked for", several.len())))
        }
        None => Err(Failure::for_good("its answer is no answer of Prometheus")),
    }
}

/// The address with the bytes escaped that no address has, so that a query can be written as it is
/// read. One that is escaped already stays so.
fn encoded(url: &str) -> String {
    let mut all = String::with_capacity(url.len());
    for byte in url.bytes() {
        match byte {
            b'!' | b'$'..=b';' | b'=' | b'?'..=b'Z' | b'_' | b'a'..=b'z' | b'~' => all.push(char::from(byte)),
            _ => all.push_str(&format!("%{byte:02X}")),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    /// A server that gives one answer to each of `answers`, and the lines that it was asked.
    fn server(answers: Vec<String>) -> (String, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}/api/v1/query?query=", listener.local_addr().unwrap());
        let (told, asked) = channel();
        std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
                told.send(lines.next().unwrap()).unwrap();
                lines.find(String::is_empty).unwrap();
                (&stream).write_all(answer.as_bytes()).unwrap();
            }
        });
        (at, asked)
    }

    fn http(status: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn vector(values: &[&str]) -> String {
        let one = |value: &&str| format!(r#"{{"metric":{{}},"value":[1700000000.5,"{value}"]}}"#);
        let all: Vec<String> = values.iter().map(one).collect();
        let result = all.join(",");
        format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#)
    }

    const COUNTED: Duration = Duration::from_secs(40);

    #[test]
    fn the_value_is_that_at_the_end_of_the_part_that_counts_over_its_length() {
        let (at, asked) = server(vec![http("200 OK", &vector(&["0.0125"])), http("200 OK", &vector(&["2"]))]);
        let (tail, remark) =
            ClientTail::open(&format!("{at}max(x{{job=\"a b\"}}[$__range])"), COUNTED).unwrap();
        assert_eq!(remark, None);
        asked.recv().unwrap();
        let end = UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_250);
        assert_eq!(tail.ask(end, Duration::from_millis(2900)), Ok(2.0));
        let line = asked.recv().unwrap();
        let query = "/api/v1/query?query=max(x%7Bjob=%22a%20b%22%7D%5B2s%5D)&time=1700000000.250 ";
        assert!(line.contains(query), "{line}");
    }

    #[test]
    fn an_answer_without_one_time_is_told_as_it_is() {
        let of = |body: &str| http("200 OK", body);
        let refused = r#"{"status":"error","errorType":"bad_data","error":"1:5: parse error: unclosed"}"#;
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}"#;
        let told = [
            (http("400 Bad Request", refused), "the query fails: 1:5: parse error: unclosed", false),
            (http("404 Not Found", "404 page not found"), "status 404", false),
            (of(scalar), "no vector, but scalar", false),
            (of(&vector(&["1", "2"])), "2 values, and one is asked for", false),
            (of(&vector(&["soon"])), "`soon`", false),
            (of("<html>"), "no answer of Prometheus", false),
            (of(r#"{"status":"success"}"#), "no vector", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_owned(), "", false),
            ("nonsense\r\n\r\n".to_owned(), "", false),
            (of(&vector(&[])), "gives no value", true),
            (of(&vector(&["NaN"])), "gives NaN", true),
            (of(&vector(&["+Inf"])), "gives inf", true),
            (of(&vector(&["-1"])), "gives -1", true),
            (of(&vector(&["0"])), "gives 0", true),
        ];
        for (answer, words, passes) in told {
            let (at, _asked) = server(vec![answer.clone(), answer.clone()]);
            match ClientTail::open(&format!("{at}x"), COUNTED) {
                Ok((tail, remark)) => {
                    assert!(passes && remark.as_deref().is_some_and(|text| text.contains(words)), "{answer}");
                    let failure = tail.ask(SystemTime::now(), COUNTED).unwrap_err();
                    assert!(failure.to_string().contains(words), "{answer}: {failure}");
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(!passes && error.contains(words), "{answer}: {error}");
                    assert!(error.contains("hint: name a query of one value in seconds"), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_server_that_is_not_there_or_is_silent_costs_five_seconds_at_most() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let began = std::time::Instant::now();
        let error = ClientTail::open(&format!("http://{at}/api/v1/query?query=x"), COUNTED).err().unwrap();
        assert!(error.to_string().contains("no answer within 5 s"), "{error}");
        drop(listener);
        let error = ClientTail::open(&format!("http://{at}/api/v1/query?query=x"), COUNTED).err().unwrap();
        assert!(error.to_string().contains("no answer: "), "{error}");
        assert!(began.elapsed() < 3 * PATIENCE);
    }

    #[test]
    fn an_address_that_cannot_be_asked_is_refused_with_its_fix() {
        for (url, words) in [
            ("127.0.0.1:9090", "names no query"),
            ("http://127.0.0.1:9090/metrics", "names no query"),
            ("http://127.0.0.1:9090/api/v1/query?q=x", "names no query"),
            ("https://127.0.0.1:9090/api/v1/query?query=x", "begins with http://"),
            ("http://127.0.0.1:9090/api/v1/query?query=x&time=7", "leave time= out"),
        ] {
            let error = ClientTail::open(url, COUNTED).err().unwrap().to_string();
            assert!(error.contains(words) && error.contains("hint: "), "{url}: {error}");
        }
    }
}
