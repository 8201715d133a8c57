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
//! Steady and graded plans have a factor each, as the models err differently, and so have few cores and
//! many. Work that the model does not know, such as a device's interrupts or another program's thread,
//! stands in the way of all requests of a single core; where another core is free it does not. The
//! numbers of cores 1, 2, 3 to 4, 5 to 8 and so on are *classes*. The factors of the other classes
//! follow the one that learns, slowly: so a class that did badly is tried again.
//!
//! The model knows no surges either. A plan of few cores may have so many that it draws more than a plan
//! of more cores: so their mean number of cores beside the plan's is learned by the same classes, and
//! the power of so many is added to the plan's.
//!
//! A class's window lasts until it has seen enough misses, over as many epochs as that takes; its
//! prediction is the mean over its requests. An epoch in which the load changed says nothing about
//! the model and ends the window.
//!
//! Invariants: the factor stays within its bounds.

use super::device::Device;
use super::lengths::Lengths;
use super::params::{Params, Queueing};
use super::search::Base;
use crate::log_buckets::Bucket;
use machine::Duration;
use serde::{Deserialize, Serialize};

/// The factors by kind and class, and the response times that they are learned from next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Correction {
    factors: [[f64; CLASSES]; 2],
    /// How many cores surges had beside the plan's, on average over an epoch.
    surges: [[f64; CLASSES]; 2],
    /// Response times of ended epochs, and the sum of their predictions.
    windows: [[Option<(Lengths, f64)>; CLASSES]; 2],
    responses: Lengths,
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

/// How much nearer the other classes come with each window, of the distance in logarithms \[D\]: half
/// in 35 windows.
const FOLLOWING: f64 = 0.02;

pub(super) const CLASSES: usize = u16::BITS as usize + 1;

fn class(active: u16) -> usize {
    (u16::BITS - active.saturating_sub(1).leading_zeros()) as usize
}

impl Correction {
    /// The models err as they are known to, until something else is seen.
    pub fn new(queueing: Queueing) -> Self {
        let graded = match queueing {
            Queueing::Shared => 1.0,
            Queueing::PerCore => ONE_CORE,
        };
        let factors = [[1.0; CLASSES], [graded; CLASSES]];
        Self { factors, surges: Default::default(), windows: Default::default(), responses: Lengths::new() }
    }

    /// Ratio of measured tails to predicted ones.
    pub fn factor(&self, kind: Kind, active: u16) -> f64 {
        self.factors[kind as usize][class(active)]
    }

    #[inline]
    pub fn record(&mut self, response: Duration) {
        self.responses.record(response);
    }

    pub fn record_all(&mut self, bucket: Bucket) {
        self.responses.record_all(bucket);
    }

    /// An epoch with so many active cores is over for which this tail had been predicted, uncorrected;
    /// `None` if nothing could be.
    pub fn end_epoch(&mut self, kind: Kind, active: u16, predicted_ns: Option<f64>, params: &Params) {
        let responses = std::mem::replace(&mut self.responses, Lengths::new());
        let window = &mut self.windows[kind as usize][class(active)];
        let (mut all, mut predicted_sum_ns) = window.take().unwrap_or_else(|| (Lengths::new(), 0.0));
        let Some(predicted_ns) = predicted_ns else { return };
        all.add(&responses);
        predicted_sum_ns += predicted_ns * responses.total() as f64;
        let (quantile, count) = (params.quantile(), all.total() as f64);
        if count * (1.0 - quantile) < MISSES {
            *window = Some((all, predicted_sum_ns));
        } else if let Some(measured_ns) = all.quantile(quantile) {
            self.learn(kind, active, measured_ns, predicted_sum_ns / count, params);
        }
    }

    pub fn forget(&mut self) {
        self.responses.clear();
    }

    #[cfg(test)]
    pub fn with(factors: [[f64; CLASSES]; 2]) -> Self {
        Self { factors, ..Self::new(Queueing::Shared) }
    }

    /// Surges had so many cores beside the plan's, on average over an epoch.
    pub fn learn_surges(&mut self, kind: Kind, active: u16, surges: f64, params: &Params) {
        let [up, down] = params.correction_gains;
        let all = &mut self.surges[kind as usize];
        let before = all[class(active)];
        all.iter_mut().for_each(|other| *other *= 1.0 - FOLLOWING * up);
        let gain = if surges > before { up } else { down };
        all[class(active)] = before + gain * (surges - before);
    }

    fn learn(&mut self, kind: Kind, active: u16, measured_ns: f64, predicted_ns: f64, params: &Params) {
        let [up, down] = params.correction_gains;
        let [least, most] = params.correction_bounds;
        let before = self.factor(kind, active);
        // Beyond the bounds it is not the model that errs: a single stall may be all of a window's misses.
        let error = ((measured_ns.max(1.0) / predicted_ns.max(1.0)).max(least).min(most) / before).ln();
        let gain = if error > 0.0 { up } else { down };
        let factor = (before * (gain * error).exp()).max(least).min(most);
        for other in &mut self.factors[kind as usize] {
            *other = (*other * (factor / *other).powf(FOLLOWING)).max(least).min(most);
        }
        self.factors[kind as usize][class(active)] = factor;
    }
}

/// The tail that plans are to keep, and the errors of its predictions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal<'a> {
    pub tail_ns: f64,
    pub correction: &'a Correction,
    pub is_graded: bool,
    pub device: Device,
}

impl Goal<'_> {
    /// Cores that surges had beside such a plan's, on average.
    pub fn surges(&self, base: Base) -> f64 {
        self.correction.surges[base.speed.kind() as usize][class(base.active)]
    }

    /// For uncorrected predictions of the time at the cores; none keeps it where graded plans may not be taken.
    pub fn of(&self, kind: Kind, active: u16) -> f64 {
        let may_be = kind == Kind::Steady || self.is_graded;
        let tail_ns = if may_be { self.tail_ns / self.correction.factor(kind, active) } else { 0.0 };
        (tail_ns - self.device.takes_ns).max(0.0)
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
            .for_each(|ratio| correction.learn(Kind::Steady, 8, 100.0 * ratio, 100.0, &Params::default()));
        correction.factor(Kind::Steady, 8)
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
        assert_eq!(learned([50.0]), learned([2.5]), "a stall of a window is no error of the model");
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
        correction.learn(Kind::Graded, 8, 1e6, 1.0, &params);
        assert_eq!(correction, Correction::new(Queueing::PerCore));
    }

    #[test]
    fn a_window_waits_for_its_misses_and_weighs_epochs_by_their_requests() {
        let params = Params::default();
        let mut correction = Correction::new(Queueing::PerCore);
        let mut epoch = |requests: u64, predicted_us: f64| {
            (0..requests).for_each(|_| correction.record(Duration::from_micros(160)));
            correction.end_epoch(Kind::Steady, 8, Some(predicted_us * 1e3), &params);
            correction.factor(Kind::Steady, 8)
        };
        assert_eq!([epoch(1_000, 100.0), epoch(1_000, 100.0), epoch(999, 100.0)], [1.0; 3]);
        // 2 999 requests predicted at 100 us and 1 at 1 ms: measured is 1.6 times that.
        let learned = epoch(1, 1_000.0).ln() / 1.6_f64.ln();
        assert!((learned / params.correction_gains[0] - 1.0).abs() < 0.05, "{learned}");
        correction.record(Duration::from_secs(1));
        correction.end_epoch(Kind::Steady, 8, None, &params);
        assert_eq!(correction.responses.total(), 0);
    }

    #[test]
    fn surges_are_believed_sooner_than_their_absence_and_are_forgotten_where_they_are_not_seen() {
        let (mut correction, params) = (Correction::new(Queueing::Shared), Params::default());
        let mut after = |active: u16, surges: f64, epochs: usize| {
            (0..epochs).for_each(|_| correction.learn_surges(Kind::Steady, active, surges, &params));
            [1, 2, 3].map(|active| correction.surges[0][class(active)])
        };
        let [one, others @ ..] = after(1, 2.0, 3);
        assert!((1.2..1.4).contains(&one) && others == [0.0; 2], "{one}");
        let [less, ..] = after(1, 0.0, 3);
        assert!((0.7..0.8).contains(&(less / one)), "{less}");
        let [forgotten, two, _] = after(2, 0.5, 1_000);
        assert!(forgotten < 0.01 && (0.49..0.51).contains(&two), "{forgotten} {two}");
    }

    #[test]
    fn a_single_core_that_does_badly_says_little_of_others_and_is_tried_again() {
        let (mut correction, params) = (Correction::new(Queueing::Shared), Params::default());
        let mut windows = |active: u16, ratio: f64, count: usize| {
            for _ in 0..count {
                correction.learn(Kind::Steady, active, 100.0 * ratio, 100.0, &params);
            }
            [1, 2, 3, 4, 5].map(|active| correction.factor(Kind::Steady, active))
        };
        let [one, two, three, four, five] = windows(1, 2.5, 6);
        assert!(one > 2.0 && two < 1.1 && (two, three, four) == (five, five, five), "{one} {two}");
        let [one, two, three, ..] = windows(2, 1.0, 20);
        assert!(one > 1.5 && two < 1.02 && three < five, "{one} {two} {three}");
        assert!(windows(2, 1.0, 100)[0] < 1.1);
    }

    proptest! {
        #[test]
        fn the_factor_stays_within_its_bounds(
            tails in prop::collection::vec((0.0..1e12_f64, 0.0..1e12_f64, any::<u16>()), 0..60),
        ) {
            let params = Params::default();
            let [least, most] = params.correction_bounds;
            let mut correction = Correction::new(Queueing::PerCore);
            for (measured, predicted, active) in tails {
                correction.learn(Kind::Graded, active, measured, predicted, &params);
                for other in [active, 1, 2, 4, u16::MAX] {
                    prop_assert!((least..=most).contains(&correction.factor(Kind::Graded, other)));
                }
            }
        }
    }
}
