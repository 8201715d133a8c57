//! The counts of a thread, and histograms of a size that never grows during a run.

use hdrhistogram::Histogram;
use machine::Duration;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Given to the system to send.
    pub sent: u64,
    /// Answered, errors included.
    pub answered: u64,
    pub hits: u64,
    pub misses: u64,
    pub stored: u64,
    /// Answers of an HTTP server with a status below 400.
    #[serde(default, skip_serializing_if = "is_none")]
    pub good: u64,
    /// Answers that were errors (`SERVER_ERROR` and the like, HTTP statuses from 400 on).
    pub refused: u64,
    /// Of those, HTTP statuses from 400 to 499: the requests were wrong, or too many (429).
    #[serde(default, skip_serializing_if = "is_none")]
    pub client_errors: u64,
    /// Of those, HTTP statuses from 500 on: the server failed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub server_errors: u64,
    /// Requests whose answer did not come within the plan's time; their age then is in the
    /// latencies.
    #[serde(default, skip_serializing_if = "is_none")]
    pub timed_out: u64,
    /// Values that were not the ones that belong to their key; only counted when verifying.
    pub corrupt: u64,
    pub lost: u64,
    /// Requests sent and not answered by the end; their age then is in the latencies.
    pub unanswered: u64,
    /// Requests that were never sent, because the server took no more for too long.
    pub unsent: u64,
    /// Requests that waited at the generator because their connection had too many unanswered ones.
    pub backlogged: u64,
}

impl Counts {
    pub fn errors(&self) -> u64 {
        self.refused + self.corrupt + self.timed_out + self.lost + self.unanswered + self.unsent
    }
}

/// Counts that only one protocol has stay out of the other's documents.
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.hits += other.hits;
        self.misses += other.misses;
        self.stored += other.stored;
        self.good += other.good;
        self.refused += other.refused;
        self.client_errors += other.client_errors;
        self.server_errors += other.server_errors;
        self.timed_out += other.timed_out;
        self.corrupt += other.corrupt;
        self.lost += other.lost;
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        self.backlogged += other.backlogged;
    }
}

/// Counts and histograms, of an interval or of a whole run. Values in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub counts: Counts,
    /// From when a request was due until its answer was read.
    pub latency: Histogram<u64>,
    /// From when a request was due until it was written.
    pub lateness: Histogram<u64>,
    /// The latencies without the generator's part: see `crate::judge`.
    pub without_own: Histogram<u64>,
    /// The server's own times for requests.
    pub took: Histogram<u64>,
}

impl Tally {
    pub fn new() -> Self {
        Self {
            counts: Counts::default(),
            latency: histogram(),
            lateness: histogram(),
            without_own: histogram(),
            took: took_histogram(),
        }
    }

    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.latency.reset();
        self.lateness.reset();
        self.without_own.reset();
        self.took.reset();
    }

    pub fn add(&mut self, other: &Self) {
        self.counts += other.counts;
        // All have the same bounds as their others, so this cannot fail.
        let _ = self.latency.add(&other.latency);
        let _ = self.lateness.add(&other.lateness);
        let _ = self.without_own.add(&other.without_own);
        let _ = self.took.add(&other.took);
    }
}

/// A histogram of nanoseconds with three significant figures; a longer time than its reach counts
/// as its reach.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, REACH_NS, 3).expect("constant bounds are valid")
}

/// The same for the server's own times in whole milliseconds; a hundredth of the size.
fn took_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000_000, REACH_NS, 3).expect("constant bounds are valid")
}

/// The value below which this share (0 to 1) of a histogram lies; zero of an empty one.
pub(crate) fn quantile(histogram: &Histogram<u64>, share: f64) -> Duration {
    Duration::from_nanos(histogram.value_at_quantile(share))
}

/// Longer than any answer that a run waits for.
const REACH_NS: u64 = 600_000_000_000;
