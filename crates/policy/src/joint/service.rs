//! The needs of requests, as measured: how long at the nominal clock, and how much of that is
//! waiting for memory.
//!
//! A slower clock stretches the computing part only. The policy takes the memory part as the same
//! share of every request: then one distribution serves all operating points, stretched by one
//! factor for each. Where memory time is independent of computing the tail is a little shorter than
//! that.

use super::lengths::Lengths;
use super::waiting::Residual;
use crate::log_buckets::Bucket;
use machine::Duration;
use serde::{Deserialize, Serialize};

/// The measurements, of which the latest count most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Service {
    lengths: Lengths,
    sum_ns: f64,
    memory_ns: f64,
}

/// From here on older counts are halved: 160 beyond a 99th percentile, a fifth of a second at 80
/// kRPS \[D\].
const REMEMBERED: u64 = 16_384;

impl Service {
    pub fn new() -> Self {
        Self { lengths: Lengths::new(), sum_ns: 0.0, memory_ns: 0.0 }
    }

    #[inline]
    pub fn record(&mut self, compute: Duration, memory: Duration) {
        let whole = compute + memory;
        self.lengths.record(whole);
        self.sum_ns += whole.as_nanos() as f64;
        self.memory_ns += memory.as_nanos() as f64;
    }

    /// Work whose clock does not change: how much of it waits for memory is no matter.
    pub fn record_all(&mut self, bucket: Bucket) {
        self.sum_ns += bucket.middle_ns() * f64::from(bucket.count);
        self.lengths.record_all(bucket);
    }

    pub fn samples(&self) -> u64 {
        self.lengths.total()
    }

    /// As a distribution, good at the quantile `quantile`; `None` if nothing takes any time. To be
    /// called now and then: it forgets.
    pub fn shape(&mut self, quantile: f64) -> Option<Shape> {
        let total = self.lengths.total();
        let shape = (self.sum_ns > 0.0).then(|| {
            let memory_share = (self.memory_ns / self.sum_ns).clamp(0.0, 1.0);
            Shape::of(&self.lengths, self.sum_ns / total as f64, memory_share, quantile)
        });
        if total > REMEMBERED {
            self.lengths.halve();
            let kept = self.lengths.total() as f64 / total as f64;
            (self.sum_ns, self.memory_ns) = (self.sum_ns * kept, self.memory_ns * kept);
        }
        shape
    }
}

/// Some of the requests, neighbours in length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    /// Their share of all.
    pub share: f64,
    pub mean_ns: f64,
    /// All of them, and those in later parts, are not shorter.
    pub from_ns: f64,
    /// The share of later parts.
    pub longer: f64,
}

/// The distribution of service times at the nominal clock.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub mean_ns: f64,
    /// Squared coefficient of variation of the service.
    pub scv: f64,
    pub memory_share: f64,
    /// Sorted from the short to the long.
    pub parts: Vec<Part>,
    longest_ns: f64,
    pub residual: Residual,
}

/// No part holds a greater share, unless one bucket does.
const GREATEST_PART: f64 = 1.0 / 48.0;
/// Nor more than this share of the lengths that are not shorter, ...
const OF_THE_LONGER: f64 = 0.2;
/// ... down to this part of the misses that the quantile allows.
const OF_THE_MISSES: f64 = 1.0 / 16.0;

impl Shape {
    fn of(lengths: &Lengths, mean_ns: f64, memory_share: f64, quantile: f64) -> Self {
        let total = lengths.total() as f64;
        let least = (1.0 - quantile) * OF_THE_MISSES;
        let mut parts: Vec<Part> = Vec::with_capacity(96);
        let (mut left, mut longest_ns, mut sum_ns) = (1.0, 0.0, 0.0);
        for bucket in lengths.buckets() {
            let share = f64::from(bucket.count) / total;
            let middle_ns = bucket.middle_ns();
            let most = (left * OF_THE_LONGER).min(GREATEST_PART).max(least);
            match parts.last_mut() {
                Some(part) if part.share + share <= most => {
                    let both = part.share + share;
                    part.mean_ns += (middle_ns - part.mean_ns) * share / both;
                    part.share = both;
                }
                _ => parts.push(Part { share, mean_ns: middle_ns, from_ns: bucket.from_ns, longer: 0.0 }),
            }
            left -= share;
            sum_ns += share * middle_ns;
            longest_ns = bucket.to_ns;
        }
        // Middles of buckets stood for their contents; the mean is known exactly.
        let stretch = mean_ns / sum_ns;
        let (mut longer, mut square) = (0.0, 0.0);
        for part in parts.iter_mut().rev() {
            part.longer = longer;
            longer += part.share;
            part.mean_ns *= stretch;
            square += part.share * (part.mean_ns / mean_ns).powi(2);
        }
        let residual = Residual::of(&parts, mean_ns, square);
        Self { mean_ns, scv: (square - 1.0).max(0.0), memory_share, parts, longest_ns, residual }
    }

    /// How much longer everything takes at this share of the nominal clock.
    pub fn stretch(&self, speed: f64) -> f64 {
        (1.0 - self.memory_share) / speed + self.memory_share
    }

    /// P(longer than `time_ns`), at the nominal clock.
    pub fn beyond(&self, time_ns: f64) -> f64 {
        let next = self.parts.partition_point(|part| part.from_ns <= time_ns);
        let Some(part) = next.checked_sub(1).map(|at| &self.parts[at]) else { return 1.0 };
        let to_ns = self.parts.get(next).map_or(self.longest_ns, |part| part.from_ns);
        let left = ((to_ns - time_ns) / (to_ns - part.from_ns)).clamp(0.0, 1.0);
        part.longer + part.share * left
    }

    /// The length that the share `quantile` is not above, at the nominal clock.
    pub fn quantile_ns(&self, quantile: f64) -> f64 {
        let misses = 1.0 - quantile;
        let at = self.parts.iter().position(|part| part.longer <= misses).unwrap_or(0);
        let Some(part) = self.parts.get(at) else { return 0.0 };
        let to_ns = self.parts.get(at + 1).map_or(self.longest_ns, |part| part.from_ns);
        let left = ((misses - part.longer) / part.share).clamp(0.0, 1.0);
        to_ns - left * (to_ns - part.from_ns)
    }
}
