//! Lengths of time, counted in buckets that grow with the lengths in them, and forgotten by halves.
//!
//! Below 64 ns a bucket is one nanosecond wide; above, each octave is cut into 32 equal buckets, so
//! that a bucket is at most 1/32 as wide as the lengths in it. Counting is a shift, two additions
//! and one write.

use crate::log_buckets::{Bucket, filled, place};
use machine::Duration;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lengths {
    counts: Vec<u32>,
    total: u64,
    halvings: u32,
}

impl Lengths {
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, halvings: 0 }
    }

    /// Counts a length; one beyond [`LONGEST_NS`] as that.
    #[inline]
    pub fn record(&mut self, length: Duration) {
        let bucket = &mut self.counts[Self::bucket(length)];
        *bucket = bucket.saturating_add(1);
        self.total += 1;
    }

    #[inline]
    pub fn bucket(length: Duration) -> usize {
        place::<OCTAVE_BITS>(length.as_nanos().min(LONGEST_NS))
    }

    /// Counts lengths of which nothing but their bucket is known.
    pub fn record_all(&mut self, bucket: Bucket) {
        let count = &mut self.counts[Self::bucket(Duration::from_nanos(bucket.middle_ns() as u64))];
        *count = count.saturating_add(bucket.count);
        self.total += u64::from(bucket.count);
    }

    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Counts all of the others as well. Neither was halved.
    pub fn add(&mut self, others: &Self) {
        for (count, other) in self.counts.iter_mut().zip(&others.counts) {
            *count = count.saturating_add(*other);
        }
        self.total += others.total;
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// Forgets half. Odd counts are rounded up in every other bucket and every other time: rounded
    /// down always, the long end would be lost first; up, single lengths would stay for ever.
    pub fn halve(&mut self) {
        self.total = 0;
        self.halvings = self.halvings.wrapping_add(1);
        for (count, place) in self.counts.iter_mut().zip(self.halvings..) {
            *count = (*count + (place & 1)) / 2;
            self.total += u64::from(*count);
        }
    }

    /// Buckets that are not empty, from short to long.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        filled::<OCTAVE_BITS>(&self.counts)
    }

    /// The length that the share `quantile` is not above, interpolated within its bucket; `None` if
    /// there is none.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let wanted = quantile * self.total as f64;
        let mut below = 0.0;
        let mut found = None;
        for Bucket { from_ns, to_ns, count } in self.buckets() {
            let share = ((wanted - below) / f64::from(count)).clamp(0.0, 1.0);
            found = Some(from_ns + share * (to_ns - from_ns));
            below += f64::from(count);
            if below >= wanted {
                break;
            }
        }
        found
    }
}

/// 32 buckets to an octave: 3 %, before interpolation.
pub(super) const OCTAVE_BITS: usize = 5;

/// 69 s. A request that takes longer has no tail goal to keep.
const LONGEST_NS: u64 = (1 << LONGEST_BITS) - 1;
const LONGEST_BITS: usize = 36;

pub(super) const BUCKETS: usize = (LONGEST_BITS - OCTAVE_BITS + 1) << OCTAVE_BITS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_buckets::start_ns;
    use proptest::prelude::*;

    #[test]
    fn the_longest_length_is_in_the_last_bucket() {
        assert_eq!(place::<OCTAVE_BITS>(LONGEST_NS), BUCKETS - 1);
    }

    #[test]
    fn halving_keeps_the_shape_and_ends_with_nothing() {
        let mut lengths = Lengths::new();
        // One length in each of many buckets, 64 in each of as many others.
        for place in 500..700 {
            lengths.record(Duration::from_nanos(start_ns::<OCTAVE_BITS>(place)));
            (0..64).for_each(|_| lengths.record(Duration::from_nanos(start_ns::<OCTAVE_BITS>(place - 200))));
        }
        lengths.halve();
        let singles: u32 = lengths.buckets().map(|bucket| bucket.count).filter(|&count| count == 1).sum();
        assert_eq!((lengths.total(), singles), (6_500, 100));
        (0..9).for_each(|_| lengths.halve());
        assert_eq!((lengths.quantile(0.5), lengths.total()), (None, 0));
    }

    proptest! {
        #[test]
        fn quantiles_are_true_within_a_bucket(
            mut nanos in prop::collection::vec(0_u64..1 << 33, 1..300),
            quantile in 0.0..=1.0_f64,
        ) {
            let mut lengths = Lengths::new();
            for &nanos in &nanos {
                lengths.record(Duration::from_nanos(nanos));
            }
            nanos.sort_unstable();
            let rank = (quantile * nanos.len() as f64).ceil() as usize;
            let exact = nanos[rank.max(1) - 1] as f64;
            let found = lengths.quantile(quantile).unwrap();
            prop_assert!((found - exact).abs() <= exact / 32.0 + 1.0, "{found} for {exact}");
        }
    }
}
