//! The last values of a measurement, in order of arrival and of size.
//!
//! Order statistics of a short past answer a predictor's question without any assumption about the
//! distribution. If the next value is as likely as any of the last n to be at any place among them
//! (they are exchangeable), then it lies between the j-th smallest and the k-th largest with
//! probability 1 - (j + k)/(n + 1). That is exact, for any distribution; 39 values with j + k = 4
//! give 90 %. And old values are forgotten at once, so that a change is learned after n values.
//!
//! Which j and k? Lengths have outliers on one side: with j = k = 2 two of them among 39 values, of
//! which one in fifty is such, made a window three times as long as need be, or none at all. So the
//! narrowest of the intervals that leave out as many. That they are chosen by the values they are
//! to hold costs up to 2 points of the probability (normal and uniform values; with heavy tails
//! nothing).

use machine::Ratio;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The last values, at most `capacity`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recent {
    capacity: u16,
    arrived: VecDeque<i64>,
    sorted: Vec<i64>,
}

impl Recent {
    /// Keeps `capacity` values, at least one.
    pub fn new(capacity: u16) -> Self {
        let capacity = capacity.max(1);
        let room = usize::from(capacity);
        Self { capacity, arrived: VecDeque::with_capacity(room), sorted: Vec::with_capacity(room) }
    }

    /// One more value; the oldest goes if there is no room.
    pub fn push(&mut self, value: i64) {
        if self.arrived.len() == usize::from(self.capacity) {
            self.forget_oldest();
        }
        self.arrived.push_back(value);
        self.sorted.insert(self.sorted.partition_point(|&other| other <= value), value);
    }

    pub fn forget_oldest(&mut self) {
        if let Some(oldest) = self.arrived.pop_front() {
            self.sorted.remove(self.sorted.partition_point(|&other| other < oldest));
        }
    }

    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The median; of an even number the mean of the two in the middle.
    pub fn median(&self) -> Option<i64> {
        let (low, high) = (self.sorted.len().checked_sub(1)? / 2, self.sorted.len() / 2);
        Some(midpoint(self.sorted[low], self.sorted[high]))
    }

    /// The mean of all but an eighth at either end, at least the smallest and the largest; of fewer
    /// than three values, of all.
    pub fn trimmed_mean(&self) -> Option<i64> {
        let count = self.sorted.len();
        let cut = if count < 3 { 0 } else { (count / 8).max(1) };
        let inner = &self.sorted[cut..count - cut];
        let sum: i128 = inner.iter().map(|&value| i128::from(value)).sum();
        (!inner.is_empty()).then(|| (sum / inner.len() as i128) as i64)
    }

    /// The two nearest values between which the next will lie with about the given probability;
    /// with too few values for that, the smallest and the largest.
    pub fn interval(&self, coverage: Ratio) -> Option<(i64, i64)> {
        let missed = (self.sorted.len() + 1) as f64 * (1.0 - coverage.as_f64());
        // Not to be one short because 0.1 is no binary fraction.
        let ranks = ((missed + 1e-9) as usize).max(2);
        let candidates = (1..ranks).filter_map(|low| {
            let (first, last) = (low - 1, self.sorted.len().checked_sub(ranks - low)?);
            (first <= last).then(|| (self.sorted[first], self.sorted[last], low.abs_diff(ranks - low)))
        });
        // Of two that are as narrow the one that leaves out as many on both sides.
        let narrowest = candidates.min_by_key(|&(low, high, skew)| (high.abs_diff(low), skew));
        narrowest.map(|(low, high, _)| (low, high))
    }

    pub fn max(&self) -> Option<i64> {
        self.sorted.last().copied()
    }

    pub fn quartile_distance(&self) -> Option<i64> {
        let last = self.sorted.len().checked_sub(1)?;
        Some(self.sorted[last - last / 4].saturating_sub(self.sorted[last / 4]))
    }
}

fn midpoint(a: i64, b: i64) -> i64 {
    ((i128::from(a) + i128::from(b)) / 2) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thirty_nine_values_give_ninety_percent_and_bear_two_outliers() {
        let mut recent = Recent::new(39);
        (1..=39).for_each(|value| recent.push(value));
        assert_eq!(recent.interval(Ratio::new(0.9)), Some((2, 38)));
        // Two that stand apart are left out, whichever side they are on.
        for apart in [1000, -1000] {
            (1..=2).for_each(|nth| recent.push(apart + nth));
            let (low, high) = recent.interval(Ratio::new(0.9)).unwrap();
            assert!(low > 0 && high < 1000, "{low} to {high}");
            (1..=39).for_each(|value| recent.push(value));
        }
        let mut nineteen = Recent::new(39);
        (1..=19).for_each(|value| nineteen.push(value));
        assert_eq!(nineteen.interval(Ratio::new(0.9)), Some((1, 19)));
        assert_eq!(Recent::new(39).interval(Ratio::new(0.9)), None);
    }

    #[test]
    fn an_outlier_does_not_move_the_trimmed_mean() {
        let mut recent = Recent::new(8);
        [540, 541, 1620, 539, 540].into_iter().for_each(|value| recent.push(value));
        assert_eq!(recent.trimmed_mean(), Some(540));
        assert_eq!(recent.median(), Some(540));
        let mut many = Recent::new(16);
        (0..16).for_each(|n| many.push(if n % 8 == 7 { 1620 } else { 540 }));
        assert_eq!(many.trimmed_mean(), Some(540), "nor two of sixteen");
    }

    proptest! {
        #[test]
        fn it_holds_the_last_values_in_order(
            capacity in 1_u16..20,
            values in prop::collection::vec(-50_i64..50, 0..60),
        ) {
            let mut recent = Recent::new(capacity);
            values.iter().for_each(|&value| recent.push(value));
            let mut last = values[values.len().saturating_sub(usize::from(capacity))..].to_vec();
            last.sort_unstable();
            prop_assert_eq!(&recent.sorted, &last);
            prop_assert_eq!(recent.max(), last.last().copied());
        }

        #[test]
        fn the_interval_covers_what_it_promises(seed in any::<u64>()) {
            // A heavy tail, from a generator that is no part of the product: 2000 values, 1961
            // tried.
            let mut state = seed | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
                (1000.0 / (1.0 - uniform).powf(0.7)) as i64
            };
            let mut recent = Recent::new(39);
            (0..39).for_each(|_| recent.push(next()));
            let mut inside = 0;
            for _ in 0..1961 {
                let (low, high) = recent.interval(Ratio::new(0.9)).unwrap();
                let value = next();
                inside += i32::from((low..=high).contains(&value));
                recent.push(value);
            }
            // 90 % of 1961 is 1765; consecutive intervals share 38 of 39 values, which widens the
            // scatter.
            prop_assert!((1680..=1850).contains(&inside), "{}", inside);
        }
    }
}
