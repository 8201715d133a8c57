//! The interval for a ratio of two sums, from the sums of batches.
//!
//! A mean is such a ratio (response time over requests), and so are a share (requests above a value
//! over requests), mean power (energy over time) and energy per request. Given the numerators y and
//! denominators n of the batches, the ratio is r = sum y / sum n, and the residuals y - r n tell
//! how much chance there is in it (the ratio estimator; Law, *Simulation Modeling and Analysis*,
//! 4.6 and 9.5).
//!
//! Student's interval needs residuals that are normal and independent. Batches of a queue are
//! neither: a congested spell makes one batch much larger, so they are skew to the right, and it
//! may reach into the next. Both are repaired as Skart does (Tafazzoli and Wilson, "Skart: a
//! skewness- and autoregression-adjusted batch-means procedure for simulation analysis", IIE
//! Transactions 43, 2011):
//!
//! - *Skewness*: Willink's form of Johnson's modified t ("A confidence interval and test for the
//!   mean of an asymmetric distribution", Comm. Statist. 34, 2005) moves the ends, the upper one
//!   further out.
//! - *Correlation*: a positive correlation f of neighbours widens the interval by sqrt((1 + f) /
//!   (1 - f)), as if the batches were a first-order autoregressive process. Above [`CORRELATED`]
//!   that is no repair: no interval is given.
//!
//! Always: the interval contains the ratio; nothing is NaN; the order of independent parts does not
//! matter.

use super::Interval;

/// How neighbouring parts hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// Batches of one run, in order.
    Successive,
    /// Runs with seeds of their own.
    Independent,
}

/// The ratio of the batches: it lies between `ratio - below` and `ratio + above`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub ratio: f64,
    /// The standard error of the estimate.
    pub error: f64,
    pub below: f64,
    pub above: f64,
}

/// The 95 % interval for the sum of the first over the sum of the second; `None` if the parts are
/// too few or hang together too much.
pub(super) fn spread(pairs: &[(f64, f64)], parts: Parts) -> Option<Spread> {
    let (numerator, denominator) =
        pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    if pairs.len() < PARTS_MIN || denominator <= 0.0 {
        return None;
    }
    let ratio = numerator / denominator;
    let count = pairs.len() as f64;
    let (mut square, mut cube, mut neighbours, mut previous) = (0.0, 0.0, 0.0, 0.0);
    for (y, n) in pairs {
        let residual = y - ratio * n;
        square += residual * residual;
        cube += residual * residual * residual;
        neighbours += residual * previous;
        previous = residual;
    }
    let deviation = (square / (count - 1.0)).sqrt();
    // The difference that rounding leaves between equal batches is no variation.
    if deviation * count <= numerator.abs() * f64::EPSILON * 16.0 {
        return Some(Spread { ratio, error: 0.0, below: 0.0, above: 0.0 });
    }
    let correlation = if parts == Parts::Successive { neighbours / square } else { 0.0 };
    if correlation > CORRELATED {
        return None;
    }
    let widening = ((1.0 + correlation.max(0.0)) / (1.0 - correlation.max(0.0))).sqrt();
    let error = widening * deviation * count.sqrt() / denominator;
    let skewness = count / ((count - 1.0) * (count - 2.0)) * cube / deviation.powi(3);
    let lean = skewness / (6.0 * count.sqrt());
    let student = student_975(count - 1.0);
    Some(Spread {
        ratio,
        error,
        below: leaning(student, lean) * error,
        above: -leaning(-student, lean) * error,
    })
}

/// The mean of one figure over independent runs; `None` of fewer than ten.
pub fn across_runs(values: &[f64]) -> Option<Interval> {
    let pairs: Vec<(f64, f64)> = values.iter().map(|&value| (value, 1.0)).collect();
    let mean = spread(&pairs, Parts::Independent)?;
    Some(Interval { estimate: mean.ratio, half_width: mean.above.max(mean.below) })
}

/// Willink's function G: a quantile of Student's t bent for a mean of skew values.
fn leaning(student: f64, lean: f64) -> f64 {
    if lean.abs() < 1e-6 {
        // Its limit; the formula would divide zero by zero.
        return student;
    }
    ((1.0 + 6.0 * lean * (student - lean)).cbrt() - 1.0) / (2.0 * lean)
}

/// The 97.5 % quantile of Student's t (Abramowitz and Stegun 26.7.5; right to four digits from nine
/// degrees of freedom).
fn student_975(freedom: f64) -> f64 {
    let z: f64 = 1.959_963_984_540_054;
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    let g4 = (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1482.0 * z.powi(5) - 1920.0 * z.powi(3) - 945.0 * z)
        / 92_160.0;
    z + g1 / freedom + g2 / freedom.powi(2) + g3 / freedom.powi(3) + g4 / freedom.powi(4)
}

/// Fewer batches or runs than this give no interval [D: ten replications].
pub(super) const PARTS_MIN: usize = 10;
/// A correlation of neighbours above which batches are too short [D]. With 32 batches, independent
/// ones pass it once in a hundred times; a process that is longer than its batches reaches 0.5 and
/// more.
const CORRELATED: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn students_quantiles_are_the_tables() {
        for (freedom, quantile) in [(9.0, 2.2622), (15.0, 2.1314), (31.0, 2.0395), (63.0, 1.9983)] {
            assert!((student_975(freedom) - quantile).abs() < 2e-4, "{freedom}: {}", student_975(freedom));
        }
    }

    #[test]
    fn symmetric_independent_batches_give_students_interval() {
        let pairs: Vec<_> = (0..16).map(|i| (if i % 4 < 2 { 9.0 } else { 11.0 }, 1.0)).collect();
        let spread = spread(&pairs, Parts::Independent).unwrap();
        let expected = 2.1314 * (16.0f64 / 15.0).sqrt() / 4.0;
        assert_eq!(spread.ratio, 10.0);
        assert!(
            (spread.below - expected).abs() < 1e-3 && (spread.above - expected).abs() < 1e-3,
            "{spread:?}"
        );
    }

    #[test]
    fn a_tail_to_the_right_moves_both_ends_up() {
        let pairs: Vec<_> = (0..32).map(|i| (if i % 8 == 3 { 30.0 } else { 7.0 }, 1.0)).collect();
        let spread = spread(&pairs, Parts::Successive).unwrap();
        assert!(spread.above > 1.2 * spread.below, "{spread:?}");
    }

    #[test]
    fn what_hangs_together_gets_a_wider_interval_and_then_none() {
        // A wave over the batches, on top of values that hang together in no way.
        let wave = |height: f64| -> Vec<(f64, f64)> {
            (0..64)
                .map(|i| (20.0 + height * (f64::from(i) / 4.0).sin() + f64::from(i * 37 % 16), 1.0))
                .collect()
        };
        let apart = spread(&wave(6.0), Parts::Independent).unwrap();
        let in_order = spread(&wave(6.0), Parts::Successive).unwrap();
        assert!(in_order.above > 1.1 * apart.above, "{in_order:?} {apart:?}");
        assert_eq!(spread(&wave(20.0), Parts::Successive), None);
        assert!(spread(&wave(20.0), Parts::Independent).is_some());
    }

    #[test]
    fn equal_batches_leave_no_doubt_and_few_batches_no_interval() {
        let exact = spread(&[(0.3, 1.0); 20], Parts::Successive).unwrap();
        assert_eq!((exact.below, exact.above), (0.0, 0.0));
        assert_eq!(spread(&[(1.0, 1.0), (2.0, 1.0)], Parts::Independent), None);
        assert_eq!(spread(&[(0.0, 0.0); 20], Parts::Successive), None);
    }

    proptest! {
        #[test]
        fn the_ends_are_numbers_on_their_sides(
            pairs in prop::collection::vec((0.0f64..1e12, 1e-3f64..1e6), 10..70),
        ) {
            if let Some(spread) = spread(&pairs, Parts::Successive) {
                prop_assert!(spread.ratio.is_finite());
                prop_assert!(spread.below >= 0.0 && spread.below.is_finite(), "{spread:?}");
                prop_assert!(spread.above >= 0.0 && spread.above.is_finite(), "{spread:?}");
            }
        }

        #[test]
        fn the_order_of_independent_parts_does_not_matter(
            pairs in prop::collection::vec((0.0f64..1e6, 1.0f64..1e3), 10..40),
            turn in 1usize..9,
        ) {
            let mut turned = pairs.clone();
            turned.rotate_left(turn);
            let (a, b) = (spread(&pairs, Parts::Independent).unwrap(), spread(&turned, Parts::Independent).unwrap());
            prop_assert!((a.above - b.above).abs() <= 1e-6 * (a.above + a.ratio), "{a:?} {b:?}");
        }
    }
}
