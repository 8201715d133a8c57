//! The needs of a request, as 128 probabilities: one window's measurements made ready for
//! convolution.
//!
//! As many points as Rubik has buckets lie at equal distances from zero on. A length between two of
//! them is shared out to both so that its mean stays where it was, and sums of lengths then have
//! the right mean too: with plain buckets the errors of sixteen requests would add up.
//!
//! The range ends where all but a hundredth of the allowed misses lie below, and longer lengths
//! count as the last point: a single stall among many short requests would otherwise push all of
//! them to the first ones.

use policy::frequency::log_histogram::LogHistogram;

/// Number of points of a distribution \[R\].
pub(super) const POINTS: usize = 128;

/// The distribution of a length of time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distribution {
    /// From one point to the next.
    pub(super) step_ns: f64,
    /// The share of all lengths at each point; adds up to 1.
    pub(super) mass: [f64; POINTS],
}

impl Distribution {
    /// The distribution of `measured`, for questions about the quantile `quantile`; `None` if it
    /// holds nothing, or nothing but zeros.
    pub(super) fn of(measured: &LogHistogram, quantile: f64) -> Option<Self> {
        let mean_ns = measured.mean_ns();
        if mean_ns == 0.0 {
            return None;
        }
        let total = measured.total() as f64;
        let kept = (1.0 - (1.0 - quantile) * CUT_OF_MISSES) * total;
        let (mut below, mut range_ns, mut sum_ns) = (0.0, 0.0, 0.0);
        for bucket in measured.buckets() {
            if below < kept {
                range_ns = bucket.middle_ns();
            }
            below += f64::from(bucket.count);
            sum_ns += f64::from(bucket.count) * bucket.middle_ns();
        }
        let last = POINTS - 1;
        let mut mass = [0.0; POINTS];
        for bucket in measured.buckets() {
            let share = f64::from(bucket.count) / total;
            let at = bucket.middle_ns() / range_ns * last as f64;
            if at < last as f64 {
                let point = at as usize;
                let beyond = share * (at - point as f64);
                mass[point] += share - beyond;
                mass[point + 1] += beyond;
            } else {
                mass[last] += share;
            }
        }
        // Middles of buckets stood for their contents; the mean is known exactly.
        let stretch = mean_ns * total / sum_ns;
        Some(Self { step_ns: stretch * range_ns / last as f64, mass })
    }

    /// Where each of `ROWS` equal parts of all lengths begins, as a point.
    pub(super) fn starts<const ROWS: usize>(&self) -> [usize; ROWS] {
        // The first begins at zero, wherever the shortest length is.
        let mut starts = [0; ROWS];
        let (mut point, mut below) = (0, 0.0);
        for (row, start) in starts.iter_mut().enumerate().skip(1) {
            let share = row as f64 / ROWS as f64;
            while point < POINTS - 1 && below + self.mass[point] <= share {
                below += self.mass[point];
                point += 1;
            }
            *start = point;
        }
        starts
    }

    /// The rest of a length that is known to reach the point `start`.
    pub(super) fn rest(&self, start: usize) -> Self {
        let mut mass = [0.0; POINTS];
        let left = &self.mass[start..];
        let all: f64 = left.iter().sum();
        for (rest, share) in mass.iter_mut().zip(left) {
            *rest = share / all;
        }
        Self { step_ns: self.step_ns, mass }
    }

    /// Mean and variance, in ns and ns^2.
    pub(super) fn moments(&self) -> (f64, f64) {
        let (mut first, mut second) = (0.0, 0.0);
        for (point, share) in self.mass.iter().enumerate() {
            let at = point as f64;
            first += share * at;
            second += share * at * at;
        }
        (first * self.step_ns, (second - first * first).max(0.0) * self.step_ns * self.step_ns)
    }
}

/// The mass that is cut off at the long end, as a part of the misses that the quantile allows: too
/// little to move it, even in a sum of sixteen \[D\].
const CUT_OF_MISSES: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;
    use proptest::prelude::*;

    fn measured(nanos: &[u64]) -> LogHistogram {
        let mut histogram = LogHistogram::new();
        for &nanos in nanos {
            histogram.record(Duration::from_nanos(nanos));
        }
        histogram
    }

    #[test]
    fn no_time_at_all_is_no_distribution() {
        assert_eq!(Distribution::of(&measured(&[]), 0.99), None);
        assert_eq!(Distribution::of(&measured(&[0, 0, 0]), 0.99), None);
        assert!(Distribution::of(&measured(&[0, 0, 1]), 0.99).is_some());
    }

    #[test]
    fn one_stall_among_many_does_not_coarsen_the_rest() {
        let mut histogram = LogHistogram::new();
        for nanos in 0..50_000 {
            histogram.record(Duration::from_nanos(10_000 + nanos % 1_000));
        }
        histogram.record(Duration::from_millis(100));
        let distribution = Distribution::of(&histogram, 0.99).unwrap();
        // 11 us / 128, where 100 ms / 128 would be 781 us.
        assert!((85.0..88.0).contains(&distribution.step_ns), "{}", distribution.step_ns);
    }

    #[test]
    fn parts_begin_where_they_should() {
        let even: Vec<u64> = (0..12_800).collect();
        let distribution = Distribution::of(&measured(&even), 0.99).unwrap();
        let starts: [usize; 8] = distribution.starts();
        for (row, start) in starts.into_iter().enumerate() {
            let share: f64 = distribution.mass[..start].iter().sum();
            let next = share + distribution.mass[start];
            assert!(share <= row as f64 / 8.0 && next > row as f64 / 8.0, "{row}: {start}");
        }
        let always_the_same: [usize; 8] = Distribution::of(&measured(&[5_000; 20]), 0.99).unwrap().starts();
        assert_eq!(always_the_same[0], 0);
        assert!(always_the_same[1] >= 126 && always_the_same[7] <= 127, "{always_the_same:?}");
    }

    proptest! {
        #[test]
        fn shares_add_up_and_the_mean_is_exact(
            nanos in prop::collection::vec(prop_oneof![0_u64..100, 0_u64..1_000_000, Just(77_777)], 1..200),
            start in 0_usize..POINTS,
        ) {
            let histogram = measured(&nanos);
            let Some(distribution) = Distribution::of(&histogram, 0.99) else { return Ok(()) };
            let whole: f64 = distribution.mass.iter().sum();
            prop_assert!((whole - 1.0).abs() < 1e-9, "{whole}");
            prop_assert!(distribution.mass.iter().all(|share| *share >= 0.0));
            let (mean, variance) = distribution.moments();
            prop_assert!((mean / histogram.mean_ns() - 1.0).abs() < 1e-9, "{mean}");
            prop_assert!(variance >= 0.0);
            if distribution.mass[start..].iter().sum::<f64>() > 0.0 {
                let rest: f64 = distribution.rest(start).mass.iter().sum();
                prop_assert!((rest - 1.0).abs() < 1e-9, "{rest}");
            }
        }
    }
}
