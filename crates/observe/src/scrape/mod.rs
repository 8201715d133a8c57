//! A service's own telemetry, beside the kernel's (`roost observe --scrape`, and `telemetry` of
//! `roost govern`).
//!
//! A kernel's view of a server can be wrong in ways that it cannot know: requests that were merged,
//! a port that another process shares, a connection it could not follow. A server counts its own
//! requests. Two counts from two sides that agree are worth more than either; where they differ,
//! the reader sees by how much. And a server that answers is alive, where the kernel sees the same
//! nothing of one that idles and one that hangs.
//!
//! ```text
//!   source.rs       asks, by a line or a page                                       (sockets)
//!   exchange.rs     a line asked and lines answered, over one connection            (sockets)
//!   answers.rs      reads an answer of each kind of service                         (no sockets, no clock)
//!   exposition.rs   reads such a page                                               (no sockets, no clock)
//!   tally.rs        adds up the growth between answers                              (no sockets, no clock)
//!   asker.rs        asks on a thread of its own, when it is told to
//! ```
//!
//! The first question is asked before anything is watched, so that a wrong address or name ends the
//! command with a line that says so. Later ones are asked by a thread: a server that hangs must not
//! hold up the watching command. From then on nothing about the server is an error: it may be
//! restarted or overloaded, and that is told in notes.

mod answers;
mod asker;
mod exchange;
pub mod exposition;
#[cfg(test)]
mod real;
mod source;
mod tally;

pub use self::answers::{of_envoy, of_memcached, of_nginx, of_page, of_redis, of_roost};
pub use self::asker::Asker;
pub use self::source::{Failure, Names, Source};
pub use self::tally::{Answer, Grown, Reading, Step, Tail, Tally, percentile};

use machine::{Duration, Instant, Rate};
use serde::Serialize;
use std::io;
use std::sync::mpsc::{Receiver, channel};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scraped {
    /// The source, as the user named it.
    pub source: String,
    /// Its requests per second, over the time between answers; `None` if there were never two.
    #[serde(rename = "per_s", skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Its 99th percentile, where it tells one.
    #[serde(rename = "p99_ns", skip_serializing_if = "Option::is_none")]
    pub p99: Option<Duration>,
    /// Connections it last had beside ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// The meaning of its figures, and the missing ones.
    pub notes: Vec<String>,
}

/// A service's telemetry at this moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Now {
    /// The source, as the user named it.
    pub source: String,
    /// Between its last two answers; `None` if it is silent.
    pub step: Option<Step>,
    /// Requests it counted while it was watched.
    pub requests: f64,
}

/// Asks a service until it is dropped.
pub struct Scraper {
    source: Source,
    answers: Receiver<(Instant, Answer)>,
    tally: Tally,
}

impl Scraper {
    /// Asks it a first time. The outer error is ours: no thread can be had.
    pub fn open(source: Source) -> io::Result<Result<Self, Failure>> {
        let (at, first) = timed(&source);
        let mut tally = Tally::default();
        match first {
            Ok(first) => tally.take(at, Ok(first)),
            Err(failure) => return Ok(Err(failure)),
        }
        let (sender, answers) = channel();
        let asked = source.clone();
        std::thread::Builder::new().name("scrape".to_owned()).spawn(move || {
            // Ends with its first answer that has no receiver any more.
            loop {
                std::thread::sleep(BETWEEN.into());
                let (at, answer) = timed(&asked);
                if sender.send((at, answer.map_err(|failure| failure.to_string()))).is_err() {
                    return;
                }
            }
        })?;
        Ok(Ok(Self { source, answers, tally }))
    }

    pub fn catch_up(&mut self) {
        for (at, answer) in self.answers.try_iter() {
            self.tally.take(at, answer);
        }
    }

    /// Its address, its late answers, and the number of requests since the beginning.
    pub fn now(&self) -> Now {
        Now { source: self.source.to_string(), step: self.tally.step(), requests: self.tally.requests() }
    }

    /// Asks once more, and tells all.
    pub fn conclude(mut self) -> Scraped {
        self.catch_up();
        let (at, answer) = timed(&self.source);
        self.tally.take(at, answer.map_err(|failure| failure.to_string()));
        self.tally.told(&self.source)
    }
}

/// An answer and its time: the middle of the exchange, since the instant at which the server read
/// its counters is unknown.
fn timed(source: &Source) -> (Instant, Result<Reading, Failure>) {
    let asked = linux::now();
    let answer = source.ask();
    (asked + linux::now().since(asked) / 2, answer)
}

/// As often as the kernel's figures are taken in.
const BETWEEN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_falls_silent_is_a_note_and_no_zero() {
        let answers = ["STAT cmd_get 100\r\nSTAT curr_connections 8\r\nEND\r\n", "", "SERVER_ERROR busy\r\n"];
        let address = source::tests::answering(answers.map(Into::into).to_vec());
        let source = source::tests::source(&format!("memcached:{address}"), None, None).unwrap();
        let mut scraper = Scraper::open(source).unwrap().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1_300));
        scraper.catch_up();
        let told = scraper.conclude();
        assert_eq!((told.rate, told.p99, told.connections), (None, None, Some(7)));
        let missing: Vec<_> = told.notes.iter().filter(|note| note.contains("did not answer")).collect();
        assert_eq!(missing.len(), 1, "{told:?}");
        assert!(missing[0].contains("so there is no rate"), "{told:?}");
    }
}
