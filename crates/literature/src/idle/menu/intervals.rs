//! The typical interval: if the last eight sleeps, or all but one or two outliers, were of about
//! the same length, the next will be too.

use machine::Duration;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Intervals {
    /// The last lengths, in microseconds, as a ring.
    lengths_us: [u32; INTERVALS],
    /// The same lengths, from short to long.
    sorted_us: [u32; INTERVALS],
    /// Their sum, and that of their squares.
    sum_us: u64,
    squares_us2: u64,
    /// Where the next length goes in the ring.
    oldest: usize,
}

impl Intervals {
    /// A sleep of `us` microseconds is over; the longest that can be noted is [`MAX_INTERVAL_US`].
    #[inline]
    pub fn note(&mut self, us: u32) {
        let forgotten = std::mem::replace(&mut self.lengths_us[self.oldest], us);
        self.oldest = (self.oldest + 1) % INTERVALS;
        // Place by place without a search: a branch on lengths that scatter would be guessed wrong.
        let mut below = 0;
        for at in 0..INTERVALS {
            let next = self.sorted_us.get(at + 1).copied().unwrap_or(u32::MAX);
            let here = if self.sorted_us[at] < forgotten { self.sorted_us[at] } else { next };
            self.sorted_us[at] = us.min(here).max(below);
            below = here;
        }
        let (us, forgotten) = (u64::from(us), u64::from(forgotten));
        self.sum_us = self.sum_us + us - forgotten;
        self.squares_us2 = self.squares_us2 + us * us - forgotten * forgotten;
    }

    /// The mean of those intervals that lie close together, if they are at least six, or all within
    /// about 20 us.
    #[inline]
    pub fn typical(&self) -> Option<Duration> {
        let (mut sum, mut squares) = (self.sum_us, self.squares_us2);
        // The rest of the sorted lengths: its ends are farthest from its mean.
        let (mut first, mut last) = (0, INTERVALS - 1);
        while sum > 0 {
            let count = (last - first + 1) as u64;
            // count^2 times the variance, which needs no division.
            let scatter = count * squares - sum * sum;
            let is_narrow = scatter <= NARROW_US2 * count * count;
            let is_close = count >= ENOUGH && scatter * CLOSE < sum * sum;
            if is_narrow || is_close {
                return Some(Duration::from_micros(sum / count));
            }
            if count <= ENOUGH {
                return None;
            }
            let (least, most) = (self.sorted_us[first], self.sorted_us[last]);
            let least_is_farther = 2 * sum > count * u64::from(least + most);
            let outlier = if least_is_farther { least } else { most };
            // And all of its length with it; the others are on its near side.
            while self.sorted_us[if least_is_farther { first } else { last }] == outlier {
                first += usize::from(least_is_farther);
                last -= usize::from(!least_is_farther);
                sum -= u64::from(outlier);
                squares -= u64::from(outlier) * u64::from(outlier);
            }
        }
        None
    }
}

/// Lengths remembered \[K\].
const INTERVALS: usize = 8;
/// So many of them must agree \[K\]: three quarters.
const ENOUGH: u64 = 6;
/// A variance up to this is small, whatever the mean \[K\]: 20 us, squared.
const NARROW_US2: u64 = 400;
/// The mean is more than six standard deviations, squared \[K\].
const CLOSE: u64 = 36;
/// 33 s, longer than any residency, and 36 times the squares of eight such fit in 64 bits \[D\].
pub(super) const MAX_INTERVAL_US: u32 = 1 << 25;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(intervals_us: [u32; INTERVALS]) -> Option<u64> {
        let mut intervals = Intervals::default();
        intervals_us.into_iter().for_each(|us| intervals.note(us));
        intervals.typical().map(Duration::as_micros)
    }

    #[test]
    fn the_typical_interval_forgets_up_to_two_outliers_on_either_side() {
        assert_eq!(after([50; 8]), Some(50));
        assert_eq!(after([100, 110, 95, 105, 100, 90, 100, 5000]), Some(100));
        assert_eq!(after([100, 110, 95, 105, 100, 90, 3000, 5000]), Some(100));
        assert_eq!(after([1000, 1010, 995, 1005, 1000, 990, 3, 9]), Some(1000));
        assert_eq!(after([1000, 1010, 995, 1005, 1000, 990, 3, 9000]), Some(1000));
        assert_eq!(after([100, 110, 95, 105, 100, 2000, 3000, 5000]), None);
        // Many outliers of one length are one outlier: ticks that woke the CPU.
        assert_eq!(after([50, 50, 50, 50, 45_000, 45_000, 45_000, 45_000]), Some(50));
        // 8 values, mean 1000, standard deviation 158 and 176: just below and above a sixth.
        assert_eq!(after([842, 1158, 842, 1158, 842, 1158, 842, 1158]), Some(1000));
        assert_eq!(after([824, 1176, 824, 1176, 824, 1176, 824, 1176]), Some(824));
        assert_eq!(after([10, 500, 20, 3000, 900, 40, 7000, 150]), None);
        assert_eq!(after([0; 8]), None);
        assert_eq!(after([MAX_INTERVAL_US; 8]), Some(u64::from(MAX_INTERVAL_US)));
    }

    /// The rule, written once more without a thought of speed.
    fn typical(mut lengths: Vec<u64>) -> Option<u64> {
        loop {
            let (count, sum) = (lengths.len() as u64, lengths.iter().sum::<u64>());
            let mean = sum as f64 / count as f64;
            let variance = lengths.iter().map(|&us| (us as f64 - mean).powi(2)).sum::<f64>() / count as f64;
            if sum == 0 {
                return None;
            }
            if variance <= 400.0 || (count >= 6 && mean * mean > 36.0 * variance) {
                return Some(sum / count);
            }
            if count <= 6 {
                return None;
            }
            let (least, most) = (*lengths.iter().min()?, *lengths.iter().max()?);
            let outlier = if mean - least as f64 > most as f64 - mean { least } else { most };
            lengths.retain(|&us| us != outlier);
        }
    }

    proptest! {
        #[test]
        fn the_typical_interval_is_that_of_the_plain_rule(
            lengths in prop::collection::vec(prop_oneof![90_u32..130, 0_u32..50, 0_u32..3_000], 8..30),
        ) {
            let mut intervals = Intervals::default();
            for (at, &us) in lengths.iter().enumerate() {
                intervals.note(us);
                let last: Vec<_> = (0..8).map(|back| if back <= at { lengths[at - back] } else { 0 }).collect();
                prop_assert!(intervals.sorted_us.is_sorted());
                let plain = typical(last.into_iter().map(u64::from).collect());
                prop_assert_eq!(intervals.typical().map(Duration::as_micros), plain);
            }
        }
    }
}
