//! Lengths of time, counted in buckets that grow with the lengths in them: quantiles in bounded
//! memory.
//!
//! Below 128 ns a bucket is one nanosecond wide; above, each octave is cut into 64 equal buckets,
//! so that a bucket is at most 1/64 as wide as the lengths in it. Counting is a shift, an addition
//! and one write.
//!
//! Invariants: nothing is allocated after `new`; the order in which lengths were counted
//! leaves no trace.

use crate::log_buckets::{Bucket, filled, place};
use machine::Duration;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogHistogram {
    counts: Vec<u32>,
    total: u64,
    sum_ns: u64,
}

impl Default for LogHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl LogHistogram {
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, sum_ns: 0 }
    }

    /// Counts a length; one beyond `LONGEST_NS` as that.
    pub fn record(&mut self, length: Duration) {
        let nanos = length.as_nanos().min(LONGEST_NS);
        let bucket = &mut self.counts[place::<OCTAVE_BITS>(nanos)];
        *bucket = bucket.saturating_add(1);
        self.total += 1;
        self.sum_ns = self.sum_ns.saturating_add(nanos);
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.sum_ns) = (0, 0);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Their exact mean; zero if there are none.
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.total.max(1) as f64
    }

    /// Buckets that are not empty, from short to long.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        filled::<OCTAVE_BITS>(&self.counts)
    }

    /// The length that the share `quantile` of all is not above, interpolated within its bucket;
    /// `None` if there are no lengths.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let wanted = quantile.clamp(0.0, 1.0) * self.total as f64;
        let mut below = 0.0;
        let mut last = None;
        for Bucket { from_ns, to_ns, count } in self.buckets() {
            let count = f64::from(count);
            let share = ((wanted - below) / count).min(1.0);
            last = Some(Duration::from_nanos((from_ns + share * (to_ns - from_ns)) as u64));
            below += count;
            if below >= wanted {
                break;
            }
        }
        last
    }
}

/// 64 buckets to an octave: half as fine as 128 linear buckets are at the upper end of their range,
/// and finer below.
const OCTAVE_BITS: usize = 6;

/// 18 minutes. Requests that take longer have no tail to speak of.
const LONGEST_NS: u64 = (1 << LONGEST_BITS) - 1;
const LONGEST_BITS: usize = 40;

const BUCKETS: usize = (LONGEST_BITS - OCTAVE_BITS + 1) << OCTAVE_BITS;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_length_is_in_the_last_bucket() {
        assert_eq!(place::<OCTAVE_BITS>(LONGEST_NS), BUCKETS - 1);
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        let mut histogram = LogHistogram::new();
        assert_eq!((histogram.quantile(0.5), histogram.mean_ns()), (None, 0.0));
        histogram.record(Duration::MAX);
        assert_eq!(histogram.buckets().count(), 1);
        histogram.clear();
        assert_eq!(histogram, LogHistogram::new());
    }

    proptest! {
        #[test]
        fn quantiles_are_true_within_a_bucket(
            mut nanos in prop::collection::vec(0_u64..1 << 34, 1..300),
            quantile in 0.0..=1.0_f64,
        ) {
            let mut histogram = LogHistogram::new();
            for &nanos in &nanos {
                histogram.record(Duration::from_nanos(nanos));
            }
            let mean = nanos.iter().sum::<u64>() as f64 / nanos.len() as f64;
            prop_assert!((histogram.mean_ns() - mean).abs() <= mean * 1e-12);
            nanos.sort_unstable();
            let rank = (quantile * nanos.len() as f64).ceil() as usize;
            let exact = nanos[rank.max(1) - 1];
            let found = histogram.quantile(quantile).unwrap().as_nanos();
            prop_assert!(found.abs_diff(exact) <= exact / 64 + 1, "{found} for {exact}");
        }
    }
}
