//! How long things lasted: a histogram of lengths with logarithmic buckets, small enough that the
//! kernel can keep one per CPU and state.
//!
//! Idle and active periods range from a microsecond to seconds, and their order of magnitude
//! matters most. So there are four buckets to each doubling, from 1.024 us (2^10 ns) to 17 s (2^34
//! ns), one below for shorter periods and one above. The position of a period's highest bit and the
//! two bits below give its bucket. The kernel's side computes the same (`linux`'s `bpf/lengths.h`):
//! both must agree, and a test asks the kernel.
//!
//! Invariants:
//! - Each bucket also holds the *sum* of its periods, so the share of time spent in periods of some
//!   length is exact, not guessed from the middle of a bucket. Ten thousand sleeps of 10 us save
//!   nothing; one of 100 ms does.
//! - Histograms add and subtract bucket by bucket; the difference of two readings holds the periods
//!   between them.

use crate::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthHistogram {
    pub counts: [u64; LengthHistogram::BUCKETS],
    pub times: [Duration; LengthHistogram::BUCKETS],
}

impl Default for LengthHistogram {
    fn default() -> Self {
        Self { counts: [0; Self::BUCKETS], times: [Duration::ZERO; Self::BUCKETS] }
    }
}

impl LengthHistogram {
    /// Four for each of 24 doublings, one below, one above.
    pub const BUCKETS: usize = 2 + 4 * (Self::HIGHEST - Self::LOWEST) as usize;
    /// The first bucket ends at two to this power, in nanoseconds.
    const LOWEST: u32 = 10;
    /// The last bucket begins at two to this power, in nanoseconds.
    const HIGHEST: u32 = 34;

    /// Which bucket a period of this length belongs to.
    pub fn bucket_of(length: Duration) -> usize {
        let nanos = length.as_nanos();
        if nanos < 1 << Self::LOWEST {
            return 0;
        }
        let octave = 63 - nanos.leading_zeros();
        if octave >= Self::HIGHEST {
            return Self::BUCKETS - 1;
        }
        let quarter = (nanos >> (octave - 2)) & 3;
        1 + 4 * (octave - Self::LOWEST) as usize + quarter as usize
    }

    /// The lengths that belong to a bucket: from the first, which is in it, up to the second, which
    /// is not. The last bucket has no end.
    pub fn bounds(bucket: usize) -> (Duration, Duration) {
        (Self::begin(bucket), Self::begin(bucket + 1))
    }

    fn begin(bucket: usize) -> Duration {
        match bucket {
            0 => Duration::ZERO,
            _ if bucket >= Self::BUCKETS => Duration::MAX,
            _ => {
                let (octave, quarter) = ((bucket - 1) / 4, (bucket - 1) as u64 % 4);
                Duration::from_nanos((4 + quarter) << (octave as u32 + Self::LOWEST - 2))
            }
        }
    }

    pub fn record(&mut self, length: Duration) {
        let bucket = Self::bucket_of(length);
        self.counts[bucket] += 1;
        self.times[bucket] += length;
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn time(&self) -> Duration {
        self.times.iter().fold(Duration::ZERO, |sum, &time| sum + time)
    }

    pub fn add(&mut self, other: &Self) {
        for bucket in 0..Self::BUCKETS {
            self.counts[bucket] += other.counts[bucket];
            self.times[bucket] += other.times[bucket];
        }
    }

    /// The periods recorded since `earlier`, an earlier state of this histogram. Buckets that
    /// shrank, because the counter was reset, count from zero.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        for bucket in 0..Self::BUCKETS {
            if earlier.counts[bucket] <= self.counts[bucket] && earlier.times[bucket] <= self.times[bucket] {
                difference.counts[bucket] -= earlier.counts[bucket];
                difference.times[bucket] = self.times[bucket] - earlier.times[bucket];
            }
        }
        difference
    }

    /// Periods shorter than `length`, and their time. The bucket that `length` cuts is shared out
    /// as if its periods were spread evenly over it, which is off by less than a quarter of that
    /// bucket's content.
    pub fn below(&self, length: Duration) -> (f64, Duration) {
        let cut = Self::bucket_of(length);
        let (from, to) = Self::bounds(cut);
        let part =
            if to == Duration::MAX { 0.0 } else { (length - from).as_secs_f64() / (to - from).as_secs_f64() };
        let counts = self.counts[..cut].iter().sum::<u64>() as f64 + self.counts[cut] as f64 * part;
        let whole = self.times[..cut].iter().fold(Duration::ZERO, |sum, &time| sum + time);
        (counts, whole + Duration::from_nanos((self.times[cut].as_nanos() as f64 * part) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_begins_where_the_one_before_ends_and_holds_its_own_bounds() {
        for bucket in 0..LengthHistogram::BUCKETS {
            let (from, to) = LengthHistogram::bounds(bucket);
            assert!(from < to, "{bucket}");
            assert_eq!(LengthHistogram::bucket_of(from), bucket);
            if to != Duration::MAX {
                assert_eq!(LengthHistogram::bucket_of(to - Duration::from_nanos(1)), bucket);
                assert_eq!(LengthHistogram::bucket_of(to), bucket + 1);
            }
        }
        assert_eq!(LengthHistogram::bucket_of(Duration::MAX), LengthHistogram::BUCKETS - 1);
        assert_eq!(LengthHistogram::bounds(1).0, Duration::from_nanos(1024));
    }

    #[test]
    fn buckets_are_at_most_a_quarter_wide() {
        for bucket in 1..LengthHistogram::BUCKETS - 1 {
            let (from, to) = LengthHistogram::bounds(bucket);
            assert!((to - from).as_nanos() * 4 <= from.as_nanos(), "{bucket}");
        }
    }

    #[test]
    fn counts_and_times_are_exact_whatever_the_bucket() {
        let mut lengths = LengthHistogram::default();
        for nanos in [1, 5_000, 5_001, 700_000, 40_000_000_000] {
            lengths.record(Duration::from_nanos(nanos));
        }
        assert_eq!((lengths.count(), lengths.time()), (5, Duration::from_nanos(40_000_710_002)));
        let before = lengths.clone();
        lengths.record(Duration::from_micros(9));
        let since = lengths.since(&before);
        assert_eq!((since.count(), since.time()), (1, Duration::from_micros(9)));
        let mut both = before.clone();
        both.add(&since);
        assert_eq!(both, lengths);
    }

    #[test]
    fn one_who_began_anew_counts_from_zero() {
        let (mut old, mut new) = (LengthHistogram::default(), LengthHistogram::default());
        old.record(Duration::from_micros(9));
        old.record(Duration::from_micros(9));
        new.record(Duration::from_micros(9));
        assert_eq!(new.since(&old).count(), 1);
    }

    #[test]
    fn what_lies_below_a_length_grows_with_it() {
        let mut lengths = LengthHistogram::default();
        for micros in [3, 30, 300, 3_000] {
            lengths.record(Duration::from_micros(micros));
        }
        assert_eq!(lengths.below(Duration::from_micros(100)).0, 2.0);
        assert_eq!(lengths.below(Duration::from_micros(100)).1, Duration::from_micros(33));
        let mut last = (0.0, Duration::ZERO);
        for micros in (0..5_000).step_by(7) {
            let below = lengths.below(Duration::from_micros(micros));
            assert!(below.0 >= last.0 && below.1 >= last.1, "{micros}");
            last = below;
        }
        assert_eq!(last.0, 4.0);
    }
}
