//! What the watched service tells about itself, beside what the kernel saw (`roost observe --scrape`).
//!
//! A kernel's view of a server can be wrong in ways that it cannot know: requests that were merged, a port that another
//! process shares, a connection it could not follow. A server counts its own requests. Two counts from two sides that agree
//! are worth more than either; where they differ, the reader sees by how much.
//!
//! ```text
//!   source.rs   asks: memcached's `stats`, Roost's status, a Prometheus page    (sockets)
//!   tally.rs    adds up what came between answers                               (no sockets, no clock)
//! ```
//!
//! The first question is asked before anything is watched, so that a wrong address or name ends the command with a line that
//! says so. Later ones are asked by a thread, once a second: a server that hangs must not hold up reading the kernel's
//! buffers. From then on nothing about the server is an error: it may be restarted or overloaded, and that is told in notes.

mod source;
mod tally;

pub use self::tally::Step;

use self::source::Source;
use self::tally::{Answer, Tally};
use super::Args;
use crate::exit::usage;
use anyhow::{Context as _, Result};
use machine::{Duration, Instant, Rate};
use serde::Serialize;
use std::sync::mpsc::{Receiver, channel};

/// What a service told about itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scraped {
    /// Who was asked, as the user named it.
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
    /// What its figures mean, and which are missing.
    pub notes: Vec<String>,
}

/// What a service tells at this moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Now {
    /// Who was asked, as the user named it.
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
    /// Asks the named service a first time; `None` if none is named.
    pub fn open(args: &Args) -> Result<Option<Self>> {
        let Some(named) = &args.scrape else { return Ok(None) };
        let wrong = |failure: source::Failure| usage(format!("--scrape {named}: {failure:#}"));
        let source = Source::named(named, args.scrape_rate.as_deref(), args.scrape_p99.as_deref());
        let source = source.map_err(wrong)?;
        let (at, first) = timed(&source);
        let mut tally = Tally::default();
        tally.take(at, Ok(first.map_err(wrong)?));
        let (sender, answers) = channel();
        let asked = source.clone();
        std::thread::Builder::new()
            .name("scrape".to_owned())
            .spawn(move || {
                // Ends with its first answer that nobody takes any more.
                loop {
                    std::thread::sleep(BETWEEN.into());
                    let (at, answer) = timed(&asked);
                    if sender.send((at, answer.map_err(|failure| failure.to_string()))).is_err() {
                        return;
                    }
                }
            })
            .context("cannot ask the service beside")?;
        Ok(Some(Self { source, answers, tally }))
    }

    /// Takes in what was answered meanwhile.
    pub fn catch_up(&mut self) {
        for (at, answer) in self.answers.try_iter() {
            self.tally.take(at, answer);
        }
    }

    /// Whom it asks, what came of late, and how many requests since the beginning.
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

/// An answer and its time: in the middle of the exchange, since nobody knows when in it the server looked at its counters.
fn timed(source: &Source) -> (Instant, Result<tally::Reading, source::Failure>) {
    let asked = host::now();
    let answer = source.ask();
    (asked + host::now().since(asked) / 2, answer)
}

/// As often as the kernel's figures are taken in.
const BETWEEN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn opened(flags: &[&str]) -> Result<Option<Scraper>> {
        Scraper::open(&Line::try_parse_from([&["observe"], flags].concat()).unwrap().args)
    }

    #[test]
    fn a_service_that_cannot_be_asked_is_one_line_and_code_2() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (flags, told) in [
            (vec![format!("memcached:{free}")], "start the service, or name the address where it listens"),
            (vec!["memcached:nowhere.invalid:1".to_owned()], "write HOST:PORT"),
            (vec!["memcached:11211".to_owned()], "write HOST:PORT"),
            (
                vec!["redis:127.0.0.1:6379".to_owned()],
                "write memcached:HOST:PORT, roost:HOST:PORT or http://HOST:PORT/metrics",
            ),
            (vec![format!("http://{free}/metrics")], "name the counter of requests with --scrape-rate"),
            (vec![format!("http://{free}/metrics"), "--scrape-rate=x".into()], "start the service, or name"),
            (vec!["https://127.0.0.1/metrics".into(), "--scrape-rate=x".into()], "http://"),
            (vec![format!("roost:{free}"), "--scrape-rate=x".into()], "leave out --scrape-rate"),
        ] {
            let flags: Vec<&str> =
                std::iter::once("--scrape").chain(flags.iter().map(String::as_str)).collect();
            let error = opened(&flags).err().expect("nobody answers there");
            let said = format!("{error:#}");
            assert!(said.starts_with(&format!("--scrape {}: ", flags[1])) && said.contains(told), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert_eq!(
                format!("{:?}", crate::exit::code_of(&error)),
                format!("{:?}", std::process::ExitCode::from(2))
            );
        }
        assert!(opened(&[]).unwrap().is_none());
    }

    #[test]
    fn a_source_that_falls_silent_is_a_note_and_no_zero() {
        let answers = ["STAT cmd_get 100\r\nSTAT curr_connections 8\r\nEND\r\n", "", "SERVER_ERROR busy\r\n"];
        let address = source::tests::answering(answers.map(Into::into).to_vec());
        let mut scraper = opened(&["--scrape", &format!("memcached:{address}")]).unwrap().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1_300));
        scraper.catch_up();
        let told = scraper.conclude();
        assert_eq!((told.rate, told.p99, told.connections), (None, None, Some(7)));
        let missing: Vec<_> = told.notes.iter().filter(|note| note.contains("did not answer")).collect();
        assert_eq!(missing.len(), 1, "{told:?}");
        assert!(missing[0].contains("so there is no rate"), "{told:?}");
    }
}
