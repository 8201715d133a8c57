//! Every constant of the CARB controller.

use machine::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// A change of the request rate, absolute or against the highest rate seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// That many requests per second.
    Absolute(Rate),
    /// That fraction of the highest rate seen.
    OfPeak(f64),
}

impl Threshold {
    /// In requests per second, when `peak` is the highest rate seen.
    pub fn against(self, peak: Rate) -> Rate {
        match self {
            Self::Absolute(rate) => rate,
            Self::OfPeak(fraction) => peak.scale(fraction),
        }
    }
}

/// The constants of one controller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Time between two decisions. The paper does not give it. 1 s: a hundred tails' worth of requests at 10 kRPS.
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
    /// c_min. 1; the paper says 2.
    pub min_active: u16,
    /// Workers per step up. 1 in the paper.
    pub step_up: u16,
    /// Workers per step down. 1 in the paper.
    pub step_down: u16,
    /// dr: a change of rate that matters. 5 % of the peak; the paper says 5 kRPS, for a peak of 120.
    pub rate_step: Threshold,
    /// r_th: a rise from one epoch to the next that wakes everybody. 20 % of the peak; the paper says 20 kRPS.
    pub rate_jump: Threshold,
    /// dy: a change of the tail that matters, as a fraction of the mean response time. 0.1 in the paper.
    pub tail_step: f64,
    /// A change counts only if it is this many standard deviations of chance. 3; zero, as in the paper, takes every
    /// figure as it is.
    pub noise_z: f64,
    /// After so many epochs of holding, look again whether fewer workers do. 60; zero, as in the paper, never: a search
    /// that one noisy epoch ended too early would then last until the load changes.
    pub probe_epochs: u32,
    /// The repairs named in this module's header. False is the paper.
    pub repaired: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            epoch: Duration::from_secs(1),
            min_active: 1,
            step_up: 1,
            step_down: 1,
            rate_step: Threshold::OfPeak(0.05),
            rate_jump: Threshold::OfPeak(0.2),
            tail_step: 0.1,
            noise_z: 3.0,
            probe_epochs: 60,
            repaired: true,
        }
    }
}

impl Params {
    /// The paper's figures and algorithms.
    pub fn paper() -> Self {
        Self {
            min_active: 2,
            rate_step: Threshold::Absolute(Rate::per_second(5_000.0)),
            rate_jump: Threshold::Absolute(Rate::per_second(20_000.0)),
            noise_z: 0.0,
            probe_epochs: 0,
            repaired: false,
            ..Self::default()
        }
    }

    /// The same controller for load that changes `factor` times as fast; an epoch is not below 20 ms, which is time
    /// for a few hundred requests.
    pub fn scaled(self, factor: f64) -> Self {
        let epoch = self.epoch.scale(1.0 / factor).max(Duration::from_millis(20)).min(self.epoch);
        Self { epoch, ..self }
    }
}
