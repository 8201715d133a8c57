//! CARB's synthetic load (section 4.1): a rate that remembers.
//!
//! r(k+1) = sum over i of weight(i) r(k-i) + phi a(k), with a(k) normal. The paper prints the
//! formula and plots two 90-minute traces, a slow and a fast one with bursts at minutes 28 and 57,
//! but no parameter. Here rates count in means, and the formula is applied to the distance from the
//! mean, which is the same with a(k) drawn around (1 - sum of weights) / phi: so any weights of a
//! stable process keep the mean. Every rate is held within `floor` and `ceiling`; within a step it
//! stands still, and requests arrive as the kind of arrivals says.

use crate::{Random, SpecError};
use machine::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// The parameters of such a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Autoregressive {
    /// The rate to which the process returns.
    #[serde(with = "crate::rate_text")]
    pub mean: Rate,
    /// The paper's omega, the latest step's weight first.
    pub weights: Vec<f64>,
    /// How much the rate is knocked about from step to step, in means.
    pub phi: f64,
    #[serde(with = "machine::duration_text")]
    pub step: Duration,
    /// How many steps until it all begins again.
    pub steps: u32,
    /// The trace follows from this number, not from the workload's: another seed of requests is no
    /// other day.
    pub seed: u64,
    /// No rate is lower, in means.
    pub floor: f64,
    /// No rate is higher, in means.
    pub ceiling: f64,
    pub bursts: Vec<Burst>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// The step at which it begins, from 0.
    pub at: u32,
    pub length: u32,
    pub height: f64,
}

impl Default for Autoregressive {
    fn default() -> Self {
        Self::slow()
    }
}

impl Autoregressive {
    /// CARB's slowly varying trace (Figure 6). All figures but 90 minutes are ESTIMATEs: the mean
    /// lies in the middle of the rates that the paper measures at, 10 to 120 k; a minute a step;
    /// weights that swing once in 45 minutes.
    pub fn slow() -> Self {
        Self {
            mean: Rate::per_second(50e3),
            weights: swing(45.0, 0.98),
            phi: 0.02,
            step: Duration::from_secs(60),
            steps: 90,
            seed: 1,
            floor: 0.05,
            ceiling: 2.0,
            bursts: Vec::new(),
        }
    }

    /// CARB's fast varying trace (Figure 7), with the paper's bursts at minutes 28 and 57.
    /// Otherwise ESTIMATEs: a swing takes 10 minutes, a burst adds 60 kRPS for two minutes.
    pub fn fast() -> Self {
        let burst = |at| Burst { at, length: 2, height: 1.2 };
        Self { weights: swing(10.0, 0.9), phi: 0.1, bursts: vec![burst(28), burst(57)], ..Self::slow() }
    }

    pub fn rates(&self) -> Result<Vec<Rate>, SpecError> {
        self.check()?;
        let mut random = Random::new(self.seed ^ NOISE_SALT, 0);
        let mut distances: Vec<f64> = Vec::with_capacity(self.steps as usize);
        for _ in 0..self.steps {
            let remembered: f64 = self
                .weights
                .iter()
                .zip(distances.iter().rev())
                .map(|(weight, distance)| weight * distance)
                .sum();
            let next = remembered + self.phi * random.normal();
            // The state holds the values that were sent.
            distances.push(next.clamp(self.floor - 1.0, self.ceiling - 1.0));
        }
        let height_at = |k: u32| -> f64 {
            let under_way = |burst: &&Burst| burst.at <= k && k - burst.at < burst.length;
            self.bursts.iter().filter(under_way).map(|burst| burst.height).sum()
        };
        let rate = |(k, distance): (u32, f64)| {
            let level = (1.0 + distance + height_at(k)).clamp(self.floor, self.ceiling);
            self.mean.scale(level)
        };
        Ok((0..self.steps).zip(distances).map(rate).collect())
    }

    fn check(&self) -> Result<(), SpecError> {
        let wrong = |key: &str, fix: &'static str| {
            Err(SpecError::Key {
                key: format!("autoregressive.{key}"),
                problem: "is out of range".into(),
                fix,
            })
        };
        if self.mean == Rate::ZERO {
            return wrong("mean", "write a rate above zero, such as \"50k\"");
        }
        if self.weights.len() > WEIGHTS_MAX || !self.weights.iter().all(|weight| weight.abs() <= 10.0) {
            return wrong("weights", "write up to 64 numbers from -10 to 10, such as [0.9]");
        }
        if !(0.0..=10.0).contains(&self.phi) {
            return wrong("phi", "write a number of means from 0 to 10, such as 0.1");
        }
        if self.step.is_zero() {
            return wrong("step", "write a time above zero, such as \"1m\"");
        }
        if !(1..=STEPS_MAX).contains(&self.steps) {
            return wrong("steps", "write a whole number from 1 to 1000000");
        }
        if !(0.0..=1.0).contains(&self.floor) || !(1.0..=1e3).contains(&self.ceiling) {
            return wrong("floor", "write floor from 0 to 1 and ceiling from 1 to 1000, in means");
        }
        if !self.bursts.iter().all(|burst| burst.height.abs() <= 1e3) {
            return wrong("bursts", "write each height as a number of means, such as 1.2");
        }
        Ok(())
    }
}

/// The two weights of a process that swings once in `period` steps, each swing `kept` per step of
/// the one before.
fn swing(period: f64, kept: f64) -> Vec<f64> {
    vec![2.0 * kept * (std::f64::consts::TAU / period).cos(), -kept * kept]
}

/// More would remember longer than a trace lasts.
const WEIGHTS_MAX: usize = 64;
/// Steps of a second for eleven days.
const STEPS_MAX: u32 = 1_000_000;
const NOISE_SALT: u64 = 0x3c91_7ae5_d04f_b682;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(trace: &Autoregressive) -> Vec<f64> {
        trace.rates().unwrap().iter().map(|rate| rate.as_per_second()).collect()
    }

    /// The greatest change from one step to the next.
    fn steepest(rates: &[f64]) -> f64 {
        rates.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn one_weight_gives_the_moments_of_the_first_order_process() {
        let trace = Autoregressive {
            weights: vec![0.8],
            phi: 0.1,
            steps: 400_000,
            floor: 0.0,
            ..Autoregressive::slow()
        };
        let rates = plain(&trace);
        let n = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / n;
        let covariance = |lag: usize| {
            rates.iter().zip(&rates[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>()
                / (n - lag as f64)
        };
        assert!((mean / 50e3 - 1.0).abs() < 0.005, "{mean}");
        // phi^2 / (1 - w^2), and w^lag of it.
        assert!((covariance(0) / (50e3f64 * 50e3 * 0.01 / 0.36) - 1.0).abs() < 0.02);
        assert!((covariance(2) / covariance(0) - 0.64).abs() < 0.01);
    }

    #[test]
    fn the_fast_trace_jumps_at_minutes_28_and_57_alone() {
        let (slow, fast) = (plain(&Autoregressive::slow()), plain(&Autoregressive::fast()));
        assert_eq!((slow.len(), fast.len()), (90, 90));
        // CARB goes to all cores when the rate rises by more than 20 kRPS: the paper reports it at
        // the bursts only.
        let jumps: Vec<usize> = (1..90).filter(|k| fast[*k] - fast[k - 1] > 20e3).collect();
        assert_eq!(jumps, [28, 57]);
        assert!(steepest(&slow) < 10e3, "{slow:?}");
        let range = |rates: &[f64]| {
            (rates.iter().fold(f64::MAX, |a, b| a.min(*b)), rates.iter().fold(0.0f64, |a, b| a.max(*b)))
        };
        assert!(range(&slow).0 < 30e3 && range(&slow).1 > 65e3, "{:?}", range(&slow));
    }

    #[test]
    fn the_first_rates_of_a_seed_are_fixed() {
        // Recorded when written: a change breaks every recorded run.
        let first: Vec<u64> = plain(&Autoregressive::fast())[..4].iter().map(|rate| *rate as u64).collect();
        assert_eq!(first, [40_392, 26_006, 28_124, 42_975]);
    }

    #[test]
    fn what_is_no_process_is_refused_with_the_key() {
        let slow = Autoregressive::slow;
        for (trace, key) in [
            (Autoregressive { mean: Rate::ZERO, ..slow() }, "mean"),
            (Autoregressive { weights: vec![f64::NAN], ..slow() }, "weights"),
            (Autoregressive { phi: -1.0, ..slow() }, "phi"),
            (Autoregressive { step: Duration::ZERO, ..slow() }, "step"),
            (Autoregressive { steps: 0, ..slow() }, "steps"),
            (Autoregressive { ceiling: f64::INFINITY, ..slow() }, "floor"),
            (
                Autoregressive { bursts: vec![Burst { at: 0, length: 1, height: f64::NAN }], ..slow() },
                "bursts",
            ),
        ] {
            let message = trace.rates().unwrap_err().to_string();
            assert!(message.contains(&format!("autoregressive.{key}`")), "{message}");
        }
    }

    proptest! {
        #[test]
        fn rates_stay_within_floor_and_ceiling(
            weights in prop::collection::vec(-2.0..2.0f64, 0..5),
            phi in 0.0..2.0f64,
            seed: u64,
            at in 0u32..50,
            height in -5.0..5.0f64,
        ) {
            let bursts = vec![Burst { at, length: 3, height }];
            let trace = Autoregressive { weights, phi, seed, bursts, ..Autoregressive::slow() };
            prop_assert!(plain(&trace).iter().all(|rate| (2.5e3 - 1e-6..=100e3 + 1e-6).contains(rate)));
        }
    }
}
