//! The error of the model, learned from the measured tail.
//!
//! Plans are chosen by a predicted tail; the policy learns the factor by which the measured tail is
//! longer, and predictions are multiplied by it. That is an integral controller on the logarithm of
//! the error, with its reference in the model: it compares with the prediction for the plan in
//! force and not with the goal. So it does not wind up while the weakest plan is better than the
//! goal or the strongest worse, and a plan that is better than it need be, because the next weaker
//! one is too weak, is not mistaken for slack.
//!
//! Errors count by their direction: a tail longer than predicted is believed quickly, a shorter one
//! slowly. By chance alone the factor then settles a little above the truth: the safe side.
//!
//! Steady and graded plans have a factor each, as the models err differently.
//!
//! A window lasts until it has seen enough misses, over as many epochs as that takes; its
//! prediction is the mean over its requests. An epoch in which the load changed says nothing about
//! the model and ends the window.
//!
//! Invariants: the factor stays within its bounds.

use super::lengths::Lengths;
use super::params::{Params, Queueing};
use machine::Duration;
use serde::{Deserialize, Serialize};

/// The factors, and the window that one of them is learned from next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Correction {
    factors: [f64; 2],
    responses: Lengths,
    /// Over all responses of ended epochs.
    predicted_sum_ns: f64,
    in_ended_epochs: u64,
}

/// The model that made the prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    Steady,
    Graded,
}

/// Where the factor of graded plans begins, with a queue for each core: the model is known to
/// predict 1.05 to 1.15 times the tail then, and 1.0 to 1.05 times with a shared queue
/// (`accuracy`).
const ONE_CORE: f64 = 0.9;

/// As many misses as a window sees where the goal is just kept \[D\]: a fifth more or less of them
/// is chance, a few percent of the tail.
const MISSES: f64 = 30.0;

impl Correction {
    /// The models err as they are known to, until something else is seen.
    pub fn new(queueing: Queueing) -> Self {
        let graded = match queueing {
            Queueing::Shared => 1.0,
            Queueing::PerCore => ONE_CORE,
        };
        Self { factors: [1.0, graded], responses: Lengths::new(), predicted_sum_ns: 0.0, in_ended_epochs: 0 }
    }

    /// Ratio of measured tails to predicted ones.
    pub fn factor(&self, kind: Kind) -> f64 {
        self.factors[kind as usize]
    }

    #[inline]
    pub fn record(&mut self, response: Duration) {
        self.responses.record(response);
    }

    /// An epoch is over for which this tail had been predicted, uncorrected; `None` if nothing
    /// could be. To be called with one kind until [`Self::forget`].
    pub fn end_epoch(&mut self, kind: Kind, predicted_ns: Option<f64>, params: &Params) {
        let Some(predicted_ns) = predicted_ns else { return self.forget() };
        let count = self.responses.total();
        self.predicted_sum_ns += predicted_ns * (count - self.in_ended_epochs) as f64;
        self.in_ended_epochs = count;
        let quantile = params.quantile();
        if count as f64 * (1.0 - quantile) >= MISSES
            && let Some(measured_ns) = self.responses.quantile(quantile)
        {
            self.learn(kind, measured_ns, self.predicted_sum_ns / count as f64, params);
            self.forget();
        }
    }

    pub fn forget(&mut self) {
        self.responses.clear();
        (self.predicted_sum_ns, self.in_ended_epochs) = (0.0, 0);
    }

    fn learn(&mut self, kind: Kind, measured_ns: f64, predicted_ns: f64, params: &Params) {
        let [up, down] = params.correction_gains;
        let [least, most] = params.correction_bounds;
        let factor = &mut self.factors[kind as usize];
        let error = (measured_ns.max(1.0) / (predicted_ns.max(1.0) * *factor)).ln();
        let gain = if error > 0.0 { up } else { down };
        *factor = (*factor * (gain * error).exp()).max(least).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn learned(ratios: impl IntoIterator<Item = f64>) -> f64 {
        let mut correction = Correction::new(Queueing::PerCore);
        ratios
            .into_iter()
            .for_each(|ratio| correction.learn(Kind::Steady, 100.0 * ratio, 100.0, &Params::default()));
        correction.factor(Kind::Steady)
    }

    #[test]
    fn a_model_that_is_right_is_left_alone() {
        assert_eq!(learned([1.0; 20]), 1.0);
    }

    #[test]
    fn a_bias_is_found_and_sooner_where_it_is_dangerous() {
        assert!((learned([1.3; 20]) / 1.3 - 1.0).abs() < 0.01);
        assert!((learned([0.7; 60]) / 0.7 - 1.0).abs() < 0.01);
        let (after_two, of) = (learned([1.3; 2]) - 1.0, 0.3);
        assert!(after_two > 0.45 * of, "{after_two}");
        assert!(1.0 - learned([0.7; 2]) < 0.25 * 0.3);
    }

    #[test]
    fn a_night_at_the_bound_is_forgotten_within_windows() {
        let night = std::iter::repeat_n(0.01, 100_000);
        let windows = learned(night.chain([1.0; 4]));
        assert!(windows > 0.85, "{windows}");
    }

    #[test]
    fn without_gains_it_does_nothing() {
        let params = Params { correction_gains: [0.0; 2], ..Params::default() };
        let mut correction = Correction::new(Queueing::PerCore);
        correction.learn(Kind::Graded, 1e6, 1.0, &params);
        assert_eq!(correction, Correction::new(Queueing::PerCore));
    }

    #[test]
    fn a_window_waits_for_its_misses_and_weighs_epochs_by_their_requests() {
        let params = Params::default();
        let mut correction = Correction::new(Queueing::PerCore);
        let mut epoch = |requests: u64, predicted_us: f64| {
            (0..requests).for_each(|_| correction.record(Duration::from_micros(160)));
            correction.end_epoch(Kind::Steady, Some(predicted_us * 1e3), &params);
            correction.factor(Kind::Steady)
        };
        assert_eq!([epoch(1_000, 100.0), epoch(1_000, 100.0), epoch(999, 100.0)], [1.0; 3]);
        // 2 999 requests predicted at 100 us and 1 at 1 ms: measured is 1.6 times that.
        let learned = epoch(1, 1_000.0).ln() / 1.6_f64.ln();
        assert!((learned / params.correction_gains[0] - 1.0).abs() < 0.05, "{learned}");
        correction.record(Duration::from_secs(1));
        correction.end_epoch(Kind::Steady, None, &params);
        assert_eq!(correction.responses.total(), 0);
    }

    proptest! {
        #[test]
        fn the_factor_stays_within_its_bounds(
            tails in prop::collection::vec((0.0..1e12_f64, 0.0..1e12_f64), 0..60),
        ) {
            let params = Params::default();
            let [least, most] = params.correction_bounds;
            let mut correction = Correction::new(Queueing::PerCore);
            for (measured, predicted) in tails {
                correction.learn(Kind::Graded, measured, predicted, &params);
                prop_assert!((least..=most).contains(&correction.factor(Kind::Graded)));
            }
        }
    }
}
