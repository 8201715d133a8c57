//! The outcome of a run: the figures, and whether they are valid.

use crate::judge::Stands;
use crate::tally::{Counts, quantile};
use hdrhistogram::Histogram;
use machine::{CpuId, Duration, Rate, Ratio};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// End of the interval, since the load began.
    #[serde(rename = "at_ns")]
    pub at: Duration,
    #[serde(rename = "length_ns")]
    pub length: Duration,
    /// The part of the run in which it lies.
    pub part: Part,
    /// The plan's rate; none in a closed loop.
    pub offered: Option<Rate>,
    pub achieved: Rate,
    /// Latencies of the answers of this interval.
    pub latency: Percentiles,
    /// 99th percentile of how late requests were sent.
    #[serde(rename = "lateness_p99_ns")]
    pub lateness_p99: Duration,
    /// The requests of this interval, by outcome.
    pub counts: Counts,
    /// CPU time that the generator's threads used.
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Warmup,
    Measured,
    /// Sending is over; the last answers come in and belong to the measurement.
    Drain,
}

/// An interval as an observer sees it.
pub struct Interval<'a> {
    pub progress: &'a Progress,
    /// All its latencies, in nanoseconds.
    pub latencies: &'a Histogram<u64>,
}

/// The shape of a distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    pub count: u64,
    #[serde(rename = "mean_ns")]
    pub mean: Duration,
    #[serde(rename = "p50_ns")]
    pub p50: Duration,
    #[serde(rename = "p90_ns")]
    pub p90: Duration,
    #[serde(rename = "p99_ns")]
    pub p99: Duration,
    #[serde(rename = "p999_ns")]
    pub p999: Duration,
    #[serde(rename = "p9999_ns")]
    pub p9999: Duration,
    #[serde(rename = "max_ns")]
    pub max: Duration,
}

impl Percentiles {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            count: histogram.len(),
            mean: Duration::from_nanos(histogram.mean() as u64),
            p50: quantile(histogram, 0.5),
            p90: quantile(histogram, 0.9),
            p99: quantile(histogram, 0.99),
            p999: quantile(histogram, 0.999),
            p9999: quantile(histogram, 0.9999),
            max: Duration::from_nanos(histogram.max()),
        }
    }
}

/// A thread of the generator and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadCost {
    /// The CPU to which it was pinned.
    pub cpu: Option<CpuId>,
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Duration,
    /// That, as a share of the time measured.
    pub busy: Ratio,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preload {
    pub stored: u64,
    /// Keys read back afterwards, spread evenly over all.
    pub checked: u64,
    /// Of those, how many were there.
    pub hits: u64,
    #[serde(rename = "took_ns")]
    pub took: Duration,
}

#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The plan's mean rate while measuring; none in a closed loop.
    pub offered: Option<Rate>,
    pub achieved: Rate,
    #[serde(rename = "measured_ns")]
    pub measured: Duration,
    /// From when each request was due until its answer was read.
    pub latency: Percentiles,
    /// The figures that are the server's: the generator's part does not change them.
    pub stands: Stands,
    /// The latencies without the generator's part: its late sending, and its late reading after a
    /// pause of its own.
    pub latency_without_own: Percentiles,
    /// From when each request was due until it was written; empty in a closed loop.
    pub lateness: Percentiles,
    /// The server's own times for the requests, in whole milliseconds; empty if it reports none.
    #[serde(skip_serializing_if = "Percentiles::is_empty")]
    pub took: Percentiles,
    /// Share of requests sent later than a tenth of the 99th percentile of latency.
    pub late: Ratio,
    pub counts: Counts,
    /// Connections that the server closed while it owed an answer or, where they are not made anew,
    /// at all.
    pub connections_lost: u32,
    pub connections_renewed: u32,
    /// The first value that was not the right one, and how the last lost connection ended.
    pub remarks: Vec<String>,
    /// The result of filling the server, where the plan asks for it.
    pub preload: Option<Preload>,
    pub threads: Vec<ThreadCost>,
    pub valid: bool,
    pub invalid_because: Vec<String>,
    /// The intervals, warm-up included.
    pub intervals: Vec<Progress>,
    /// All latencies, in nanoseconds.
    #[serde(skip)]
    pub histogram: Histogram<u64>,
}

impl Outcome {
    /// True if a value was wrong, a connection was lost, or an HTTP server failed to answer well
    /// and in time.
    pub fn is_broken(&self) -> bool {
        let c = &self.counts;
        let bad = c.corrupt + c.lost + c.client_errors + c.server_errors + c.timed_out;
        bad > 0 || self.connections_lost > 0
    }

    /// CPU time of all the generator's threads while measuring.
    pub fn cpu_time(&self) -> Duration {
        self.threads.iter().map(|thread| thread.cpu_time).sum()
    }
}
