//! A straight line through measurements, learned one by one, old ones forgotten.
//!
//! Weighted least squares in which every new measurement takes a little weight off all before it:
//! the result of recursive least squares with a forgetting factor. Kept as weighted means and
//! central moments instead of a covariance matrix: they stay bounded when all measurements are at
//! one place, where the matrix would grow without end (all reads are of 4 KB for an hour, then one
//! is of 64), and nothing is subtracted that is nearly equal.
//!
//! How much is known at a place is told with the value: *leverage* is the square of the place's
//! distance from the middle of the measured places, against the spread of it. A slope that was
//! never seen has infinite leverage everywhere else.

use serde::{Deserialize, Serialize};

/// The line's weighted means and moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    weight: f64,
    mean_x: f64,
    mean_y: f64,
    /// Weighted sum of squares of x about its mean.
    xx: f64,
    /// Weighted sum of products about the means.
    xy: f64,
}

impl Line {
    /// One measurement; earlier measurements keep the fraction `memory` of its weight.
    pub fn add(&mut self, x: f64, y: f64, weight: f64, memory: f64) {
        self.weight = self.weight * memory + weight;
        if self.weight <= 0.0 {
            return;
        }
        let (off_x, step) = (x - self.mean_x, weight / self.weight);
        self.mean_x += off_x * step;
        self.mean_y += (y - self.mean_y) * step;
        self.xx = self.xx * memory + weight * off_x * (x - self.mean_x);
        self.xy = self.xy * memory + weight * off_x * (y - self.mean_y);
    }

    /// The value at `x` and the leverage there; `None` where nothing is known.
    pub fn at(&self, x: f64) -> Option<(f64, f64)> {
        if self.weight <= 0.0 {
            return None;
        }
        let off = x - self.mean_x;
        // The mean of equal numbers may differ from them in the last digit.
        if off.abs() <= 1e-9 * (1.0 + x.abs()) {
            return Some((self.mean_y, 0.0));
        }
        if self.xx < f64::MIN_POSITIVE {
            return None;
        }
        Some((self.mean_y + self.xy / self.xx * off, off * off / self.xx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_single_place_tells_nothing_of_another() {
        let mut line = Line::default();
        assert_eq!(line.at(1.0), None);
        (0..10_000).for_each(|_| line.add(0.3, 100.0, 1.0, 63.0 / 64.0));
        assert_eq!(line.at(0.3), Some((100.0, 0.0)));
        assert_eq!(line.at(16.0), None);
    }

    #[test]
    fn an_old_place_is_remembered_with_growing_doubt() {
        let mut line = Line::default();
        (0..64).for_each(|n| line.add(f64::from(n % 2), 100.0 + 50.0 * f64::from(n % 2), 1.0, 63.0 / 64.0));
        let (value, doubt) = line.at(2.0).unwrap();
        assert!((value - 200.0).abs() < 1e-6, "{value}");
        (0..640).for_each(|_| line.add(0.0, 100.0, 1.0, 63.0 / 64.0));
        let (value, later) = line.at(2.0).unwrap();
        assert!((value - 200.0).abs() < 1e-3 && later > 100.0 * doubt, "{value} {doubt} {later}");
        (0..1_000_000).for_each(|_| line.add(0.0, 100.0, 1.0, 63.0 / 64.0));
        let (value, leverage) = line.at(0.0).unwrap();
        assert!((value - 100.0).abs() < 1e-9 && leverage == 0.0, "{value} {leverage}");
        assert_eq!(line.at(2.0), None);
    }

    proptest! {
        #[test]
        fn it_is_the_weighted_least_squares_line(
            points in prop::collection::vec((0.0..100.0_f64, 0.0..1000.0_f64, 0.1..1.0_f64), 3..60),
            memory in 0.8..1.0_f64,
        ) {
            let mut line = Line::default();
            points.iter().for_each(|&(x, y, weight)| line.add(x, y, weight, memory));
            // The normal equations, from the sums.
            let mut sums = [0.0; 5];
            for (age, &(x, y, weight)) in points.iter().rev().enumerate() {
                let w = weight * memory.powi(age as i32);
                for (sum, term) in sums.iter_mut().zip([1.0, x, y, x * x, x * y]) {
                    *sum += w * term;
                }
            }
            let [w, x, y, xx, xy] = sums;
            let slope = (w * xy - x * y) / (w * xx - x * x);
            prop_assume!(w * xx - x * x > 1.0);
            let (value, _) = line.at(50.0).unwrap();
            let wanted = (y - slope * x) / w + slope * 50.0;
            prop_assert!((value - wanted).abs() < 1e-6 * (1.0 + wanted.abs()), "{} {}", value, wanted);
        }
    }
}
