//! A worker's figures between two of its reports: requests, time at work, and the tail of the times
//! from "request in the socket" to "answer written".

use crate::shared::Response;
use machine::{Duration, Instant};
use policy::peafowl::Sample;

/// Samples that a 99th percentile needs at least: 10 / (1 - 0.99).
const TAIL_SAMPLES: u32 = 1_000;

/// Report periods over which samples for the tail are gathered at the most.
const TAIL_PERIODS: u32 = 20;

/// A worker's figures between two reports.
pub(crate) struct Reports {
    pub(crate) last: Instant,
    pub(crate) busy: Duration,
    pub(crate) busy_total: Duration,
    pub(crate) requests: u64,
    pub(crate) requests_total: u64,
    tail: hdrhistogram::Histogram<u32>,
    tail_periods: u32,
    /// The last that was seen of the response time.
    pub(crate) response: Option<Response>,
}

impl Reports {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            last: now,
            busy: Duration::ZERO,
            busy_total: Duration::ZERO,
            requests: 0,
            requests_total: 0,
            // Three figures from a microsecond to a minute; a longer time counts as a minute.
            tail: hdrhistogram::Histogram::new_with_bounds(1, 60_000_000, 2).expect("constant bounds"),
            tail_periods: 0,
            response: None,
        }
    }

    pub(crate) fn served(&mut self, requests: u32, took: Duration) {
        self.requests += u64::from(requests);
        self.tail.saturating_record_n(took.as_micros().max(1), requests);
    }

    /// Closes the period: requests served in it, and the policy's report.
    pub(crate) fn finish(&mut self, now: Instant) -> (u64, Sample) {
        let requests = std::mem::take(&mut self.requests);
        let busy = std::mem::take(&mut self.busy);
        self.requests_total += requests;
        self.busy_total += busy;
        let span = now.since(self.last);
        self.last = now;
        self.tail_periods += 1;
        let samples = u32::try_from(self.tail.len()).unwrap_or(u32::MAX);
        let tail =
            (samples >= TAIL_SAMPLES).then(|| Duration::from_micros(self.tail.value_at_quantile(0.99)));
        let micros = Duration::from_micros;
        self.response = tail.map(|p99| Response {
            samples,
            mean: micros(self.tail.mean() as u64),
            p95: micros(self.tail.value_at_quantile(0.95)),
            p99,
        });
        if tail.is_some() || self.tail_periods >= TAIL_PERIODS {
            self.tail.reset();
            self.tail_periods = 0;
        }
        (requests, Sample { busy: machine::Ratio::of(busy, span), tail, requests: samples })
    }
}
