//! How the watched service answered, as people and files see it.

use ::observe::requests::{RequestPattern, percentile};
use ::observe::verdict::RequestEvidence;
use hdrhistogram::Histogram;
use machine::{Duration, Rate};
use serde::Serialize;

/// A service's requests over a whole observation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answers {
    /// Who answered, and where.
    pub service: String,
    pub way: String,
    pub requests: u64,
    /// Those of them that were timed, where that was not each.
    pub timed: u64,
    /// Per second.
    pub rate: Rate,
    /// Times that data came while a request of its connection was under way.
    pub merged: u64,
    /// Times that a connection could not be followed.
    pub unfit: u64,
    /// From ready to replied.
    pub response: Option<Times>,
    /// From taken to replied.
    pub work: Option<Times>,
    /// From ready to taken.
    pub waiting: Option<Times>,
    /// An idle CPU's way out of its state to its network work, before the socket.
    pub interrupt: Option<Times>,
    /// Packets whose idle CPU told its waking only afterwards.
    pub wakes_hidden: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// On average.
    pub mean: Duration,
    /// In the middle.
    pub p50: Duration,
    pub p95: Duration,
    pub p99: Duration,
    pub p999: Duration,
    pub max: Duration,
}

impl Times {
    pub fn of(times: &Histogram<u64>) -> Option<Self> {
        let at = |percent| percentile(times, percent);
        Some(Self {
            count: times.len(),
            mean: Duration::from_nanos(times.mean() as u64),
            p50: at(50.0)?,
            p95: at(95.0)?,
            p99: at(99.0)?,
            p999: at(99.9)?,
            max: at(100.0)?,
        })
    }
}

impl Answers {
    pub fn of(service: String, seen: &RequestPattern) -> Self {
        let times = |times: &Option<Histogram<u64>>| times.as_ref().and_then(Times::of);
        Self {
            service,
            way: seen.way.to_string(),
            requests: seen.requests,
            timed: seen.timed,
            rate: seen.rate(),
            merged: seen.merged,
            unfit: seen.unfit,
            response: times(&seen.response),
            work: times(&seen.service),
            waiting: times(&seen.waiting),
            interrupt: times(&seen.interrupt),
            wakes_hidden: seen.wakes_hidden,
        }
    }

    /// The input of a verdict; `None` if no response time could be seen.
    pub fn evidence(&self) -> Option<RequestEvidence> {
        let response = self.response?;
        // Where packets woke a CPU of their own, it and the server's wake one after the other.
        let interrupted = self.interrupt.map_or(0, |times| times.count) + self.wakes_hidden;
        Some(RequestEvidence {
            rate: self.rate,
            p50: response.p50,
            p99: response.p99,
            queue_p99: self.waiting.map(|waiting| waiting.p99),
            wakes: if interrupted * 10 > self.requests { 2 } else { 1 },
        })
    }

    /// The observed times, with their names.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, Times)> {
        let rows = [
            ("response", self.response),
            ("waiting", self.waiting),
            ("service", self.work),
            ("interrupt", self.interrupt),
        ];
        rows.into_iter().filter_map(|(name, times)| Some((name, times?)))
    }
}
