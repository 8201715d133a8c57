//! An estimate and how far it can be trusted.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A 95 % confidence interval: in 95 of 100 runs with other seeds, the truth lies within.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The best guess, in the unit of the estimated quantity.
    pub estimate: f64,
    /// How far the truth may lie to either side, in the same unit.
    pub half_width: f64,
}

impl Interval {
    pub fn low(&self) -> f64 {
        self.estimate - self.half_width
    }

    pub fn high(&self) -> f64 {
        self.estimate + self.half_width
    }

    pub fn covers(&self, truth: f64) -> bool {
        self.low() <= truth && truth <= self.high()
    }

    /// The half-width as a share of the estimate.
    pub fn relative(&self) -> f64 {
        if self.half_width == 0.0 { 0.0 } else { self.half_width / self.estimate.abs() }
    }

    /// The same in another unit.
    pub fn scale(&self, factor: f64) -> Self {
        Self { estimate: self.estimate * factor, half_width: self.half_width * factor.abs() }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(3);
        write!(f, "{:.places$} +-{:.2} %", self.estimate, 100.0 * self.relative())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_covers_its_ends() {
        let interval = Interval { estimate: 1.0, half_width: 0.5 };
        assert!(interval.covers(0.5) && !interval.covers(0.49));
    }

    #[test]
    fn nothing_known_to_be_nothing_is_known_exactly() {
        assert_eq!(Interval { estimate: 0.0, half_width: 0.0 }.relative(), 0.0);
        assert_eq!(Interval { estimate: 0.0, half_width: 1.0 }.relative(), f64::INFINITY);
    }

    #[test]
    fn it_prints_as_people_write_it() {
        let interval = Interval { estimate: 23.0259, half_width: 0.46 };
        assert_eq!(format!("{interval:.2}"), "23.03 +-2.00 %");
    }
}
