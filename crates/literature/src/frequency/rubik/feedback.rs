//! The slow loop around the fast one: the promises of the tables against the measured tail.
//!
//! Tables err: requests are not independent, a wake-up takes its time, clocks change late, and each
//! request for a clock is rounded up to an operating point. So the target that decisions work with,
//! L', is the operator's L times a factor, which a proportional-integral controller moves once per
//! second by the measured tail: down while the goal is missed, up while there is slack left.
//!
//! Invariants: the factor stays between the bounds, and so does the integral by itself: after hours
//! of a load at which the slowest operating point is fast enough, or the fastest too slow, it comes
//! back as soon as the tail does.

use super::Params;
use machine::Duration;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Feedback {
    integral: f64,
    factor: f64,
}

impl Feedback {
    /// L' is L.
    pub(super) const NEUTRAL: Self = Self { integral: 0.0, factor: 1.0 };

    /// L' / L.
    pub(super) fn factor(self) -> f64 {
        self.factor
    }

    /// The tail was this in the last window.
    pub(super) fn step(&mut self, tail: Duration, params: &Params) {
        let [least, most] = params.factor_bounds;
        let target_ns = params.target.as_nanos().max(1) as f64;
        // A tail of ten targets says no more than one of two: too long.
        let error = (1.0 - tail.as_nanos() as f64 / target_ns).clamp(-1.0, 1.0);
        self.integral = (self.integral + params.integral_gain * error).max(least - 1.0).min(most - 1.0);
        self.factor = (1.0 + self.integral + params.proportional_gain * error).max(least).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(params: &Params, tails_us: &[u64]) -> Feedback {
        let mut feedback = Feedback::NEUTRAL;
        for &tail in tails_us {
            feedback.step(Duration::from_micros(tail), params);
        }
        feedback
    }

    #[test]
    fn a_tail_on_target_changes_nothing() {
        let params = Params::default();
        let on_target = params.target.as_micros();
        assert_eq!(steps(&params, &[on_target; 10]), Feedback::NEUTRAL);
    }

    #[test]
    fn it_finds_the_factor_that_a_biased_model_needs() {
        // Tables that promise 80 % of the real need: the tail is 1.25 L'.
        let params = Params::default();
        let mut feedback = Feedback::NEUTRAL;
        let tail = |feedback: Feedback| params.target.scale(1.25 * feedback.factor());
        for _ in 0..40 {
            feedback.step(tail(feedback), &params);
        }
        let missed_by = tail(feedback).as_secs_f64() / params.target.as_secs_f64() - 1.0;
        assert!(missed_by.abs() < 0.01, "{missed_by}");
    }

    #[test]
    fn a_night_of_slack_is_forgotten_within_seconds() {
        let params = Params::default();
        let mut feedback = steps(&params, &[1; 30_000]);
        assert_eq!(feedback.factor(), params.factor_bounds[1]);
        let late = params.target * 2;
        let steps = (1..100).find(|_| {
            feedback.step(late, &params);
            feedback.factor() < 1.0
        });
        assert!(steps.is_some_and(|steps| steps <= 4), "{steps:?}");
    }

    #[test]
    fn without_gains_it_does_nothing() {
        let params = Params { proportional_gain: 0.0, integral_gain: 0.0, ..Params::default() };
        assert_eq!(steps(&params, &[1, 1_000_000, 0]), Feedback::NEUTRAL);
    }

    proptest! {
        #[test]
        fn the_factor_stays_within_its_bounds(
            tails_us in prop::collection::vec(prop_oneof![0_u64..2_000, Just(u64::MAX)], 0..60),
            gains in (0.0..2.0_f64, 0.0..2.0_f64),
        ) {
            let (proportional_gain, integral_gain) = gains;
            let params = Params { proportional_gain, integral_gain, ..Params::default() };
            let [least, most] = params.factor_bounds;
            let factor = steps(&params, &tails_us).factor();
            prop_assert!((least..=most).contains(&factor), "{factor}");
        }
    }
}
