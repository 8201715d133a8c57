//! Means over time and per request of accumulating quantities: power, energy per request,
//! residency.
//!
//! The inputs are running totals: `observe(joules so far, seconds so far)` gives the mean power in
//! watts. Every so many observations make a batch; when there are 64, neighbours are merged. The
//! interval is that of a ratio of sums (see [`ratio`](super::ratio)), so batches need not be
//! equally long; the warm-up is left out as for response times.

use super::Interval;
use super::ratio::{PARTS_MIN, Parts, spread};
use super::warm_up;

/// The ratio of two running totals.
#[derive(Clone, Debug)]
pub struct RatioEstimator {
    /// The additions of each batch to the numerator and the denominator.
    batches: Vec<(f64, f64)>,
    /// The totals at the end of the last batch.
    from: (f64, f64),
    /// Observations of a batch, and of the one being filled.
    size: u32,
    filled: u32,
}

impl RatioEstimator {
    /// Nothing observed yet; both totals start at zero.
    pub fn new() -> Self {
        Self { batches: Vec::with_capacity(MOST), from: (0.0, 0.0), size: 1, filled: 0 }
    }

    /// The totals so far. Neither ever falls.
    pub fn observe(&mut self, numerator: f64, denominator: f64) {
        debug_assert!(denominator >= self.from.1, "a total fell from {} to {denominator}", self.from.1);
        self.filled += 1;
        // A batch of no length is no batch.
        if self.filled < self.size || denominator <= self.from.1 {
            return;
        }
        if self.batches.len() == MOST {
            self.batches = in_pairs(&self.batches);
            self.size *= 2;
            return;
        }
        self.batches.push((numerator - self.from.0, denominator - self.from.1));
        self.from = (numerator, denominator);
        self.filled = 0;
    }

    /// The ratio after the warm-up; `None` if the observations are too few to tell or had not
    /// settled.
    ///
    /// Batches that hang together are too short: they are merged in pairs until they do not, while
    /// there are fifteen (of 64, the first left out).
    pub fn interval(&self) -> Option<Interval> {
        let mut batches = self.settled()?.to_vec();
        loop {
            match interval(&batches) {
                None if batches.len() >= 2 * MERGED_MIN => batches = in_pairs(&batches),
                interval => return interval,
            }
        }
    }

    /// The batches after the warm-up.
    fn settled(&self) -> Option<&[(f64, f64)]> {
        if self.batches.len() < PARTS_MIN {
            return None;
        }
        let ratios: Vec<f64> =
            self.batches.iter().map(|(numerator, denominator)| numerator / denominator).collect();
        warm_up::batches(&ratios).map(|left_out| &self.batches[left_out..])
    }
}

impl Default for RatioEstimator {
    fn default() -> Self {
        Self::new()
    }
}

fn interval(pairs: &[(f64, f64)]) -> Option<Interval> {
    let spread = spread(pairs, Parts::Successive)?;
    Some(Interval { estimate: spread.ratio, half_width: spread.above.max(spread.below) })
}

/// Neighbours together; the first of an odd number, the one closest to the warm-up, is left out.
fn in_pairs(batches: &[(f64, f64)]) -> Vec<(f64, f64)> {
    batches.rchunks_exact(2).rev().map(|pair| (pair[0].0 + pair[1].0, pair[0].1 + pair[1].1)).collect()
}

/// Fewer merged batches than this say too little of whether they hang together \[D\].
const MERGED_MIN: usize = 15;

/// The most batches [D: 32 to 64].
const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Random;

    /// A core that is busy (20 W) and idle (2 W) in turn, for exponential times with means 1 and 3:
    /// 6.5 W on average.
    fn core(seed: u64, steps: u32) -> RatioEstimator {
        let mut random = Random::new(seed, 7);
        let mut power = RatioEstimator::new();
        let (mut joules, mut seconds) = (0.0, 0.0);
        for _ in 0..steps {
            let (busy, idle) = (-(1.0 - random.unit()).ln(), -3.0 * (1.0 - random.unit()).ln());
            joules += 20.0 * busy + 2.0 * idle;
            seconds += busy + idle;
            power.observe(joules, seconds);
        }
        power
    }

    #[test]
    fn mean_power_is_covered_as_often_as_promised() {
        let covered = (1..=400).filter(|seed| core(*seed, 3000).interval().unwrap().covers(6.5)).count();
        assert!((370..=396).contains(&covered), "{covered} of 400");
    }

    #[test]
    fn constant_power_is_known_exactly_however_long_the_steps() {
        let mut power = RatioEstimator::new();
        let mut seconds = 0.0;
        for step in 0..5000u32 {
            seconds += f64::from(step % 7);
            power.observe(4.0 * seconds, seconds);
        }
        let interval = power.interval().unwrap();
        assert!((interval.estimate - 4.0).abs() < 1e-9 && interval.half_width < 1e-9, "{interval:?}");
    }

    #[test]
    fn batches_that_are_too_short_are_merged_and_a_drift_has_no_interval() {
        // 64 observations of a core that changes its mind every four of them, and one that only
        // ever gets busier.
        let slow = |seed: u64| {
            let (mut random, mut power) = (Random::new(seed, 3), RatioEstimator::new());
            let (mut joules, mut watts) = (0.0, 4.0);
            for second in 1..=64_u32 {
                if second % 4 == 1 {
                    watts = 9.0 * random.unit();
                }
                joules += watts;
                power.observe(joules, f64::from(second));
            }
            power.interval()
        };
        let told: Vec<Interval> = (1..=400).filter_map(slow).collect();
        assert!(told.len() >= 300, "{} of 400 have an interval", told.len());
        let covered = told.iter().filter(|interval| interval.covers(4.5)).count() as f64;
        assert!(covered >= 0.93 * told.len() as f64, "{covered} of {}", told.len());
        let mut power = RatioEstimator::new();
        (1..=64_u32).for_each(|second| power.observe(f64::from(second * second), f64::from(second)));
        assert_eq!(power.interval(), None);
    }

    #[test]
    fn too_little_is_not_told() {
        assert_eq!(RatioEstimator::new().interval(), None);
        assert_eq!(core(1, 9).interval(), None);
    }
}
