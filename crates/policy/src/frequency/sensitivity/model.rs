//! Sensitivity from two measured points, and the loss that it predicts.

use super::Point;
use serde::{Deserialize, Serialize};

/// The quantity that is taken to be linear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Instructions per second in the clock: the paper's.
    Linear,
    /// Seconds per instruction in the clock's reciprocal: computing takes longer, stalls do not.
    #[default]
    Stalls,
}

impl Model {
    /// The slope of the line through two points, relative to its value at the nominal clock.
    pub(super) fn sensitivity(self, one: Point, other: Point) -> f64 {
        let axes = |point: Point| match self {
            Self::Linear => (point.speed, point.ips),
            Self::Stalls => (1.0 / point.speed, 1.0 / point.ips),
        };
        let ((x0, y0), (x1, y1)) = (axes(one), axes(other));
        let slope = (y1 - y0) / (x1 - x0);
        let at_nominal = y0 + slope * (1.0 - x0);
        // Two points so noisy that the line is below zero at the nominal clock: all of the time is
        // computing.
        if at_nominal > 0.0 { slope / at_nominal } else { 1.0 }
    }

    /// The share of IPS lost at `speed` against the nominal clock.
    pub(super) fn loss(self, sensitivity: f64, speed: f64) -> f64 {
        match self {
            Self::Linear => sensitivity * (1.0 - speed),
            Self::Stalls => 1.0 - 1.0 / (1.0 + sensitivity * (1.0 / speed - 1.0)),
        }
    }
}
