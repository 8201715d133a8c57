//! Every constant of the CARB controller.

use super::Server;
use crate::Scheduling;
use crate::check::Check;
use crate::kind::{Make, Placed, Placement};
use crate::peafowl;
use crate::registry::{
    Entry, Maturity, Parameter, Runs, Word, count, flag, number, rate, settings, share, time,
};
use machine::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// A change of the request rate, absolute or against the highest rate seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
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

/// The search by slope, as the registry lists it.
pub static ENTRY: Entry = Entry {
    words: &[
        Word::new("carb", "a search on mean and tail of the response time, with its gaps repaired", |_| {
            settings(Params::default())
        }),
        Word::new("carb-paper", "the same as printed", |_| settings(Params::paper())),
    ],
    help: "Too few awake cores make requests queue, too many make each of them sleep more deeply and wake \
           more slowly. Once an epoch the search looks at request rate and response time; it holds until \
           one of them changes, then scales up or down step by step while that does no harm.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "CARB, section 3",
    make: Make::Placement(Placement {
        place: |making, workers| Placed {
            scheduling: Scheduling::carb(making.params(), workers),
            params: peafowl::Params::default(),
        },
        cores: Some(|making| Box::new(Server::by_slope(making))),
        is_counted: false,
    }),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
    pub min_active: u16,
    pub step_up: u16,
    pub step_down: u16,
    pub rate_step: Threshold,
    pub rate_jump: Threshold,
    pub tail_step: f64,
    pub noise_z: f64,
    pub probe_epochs: u32,
    pub repaired: bool,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("epoch", "time between two decisions")
            .above_zero()
            .source("the paper gives none; a hundred tails' worth of requests at 10 kRPS"),
        count("min_active", "c_min: workers that are always awake").above_zero().source("2 in the paper"),
        count("step_up", "workers per step up").above_zero().source("CARB, section 3"),
        count("step_down", "workers per step down").above_zero().source("CARB, section 3"),
        share("rate_step.of_peak", "dr: a change of the rate that counts, of the highest rate seen")
            .source("the paper's 5 kRPS for a peak of 120"),
        rate("rate_step.absolute", "dr, as a rate").source("CARB, section 3"),
        share("rate_jump.of_peak", "r_th: a rise that wakes all workers, of the highest rate seen")
            .source("the paper's 20 kRPS for a peak of 120"),
        rate("rate_jump.absolute", "r_th, as a rate").source("CARB, section 3"),
        number("tail_step", "dy: a change of the tail that counts, of the mean response time")
            .source("CARB, section 3"),
        number("noise_z", "standard deviations of chance that a change must exceed")
            .source("ours; zero, as in the paper, takes every figure as it is"),
        count("probe_epochs", "epochs of holding after which fewer workers are tried again")
            .source("ours; zero, as in the paper, never: one noisy epoch then ends the search for good"),
        flag("repaired", "the repairs that the controller's header names").source("ours; false is the paper"),
    ];
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

    /// The same controller for load that changes `factor` times as fast; an epoch is not below 20
    /// ms, which is time for a few hundred requests.
    pub fn scaled(self, factor: f64) -> Self {
        let epoch = self.epoch.scale(1.0 / factor).max(Duration::from_millis(20)).min(self.epoch);
        Self { epoch, ..self }
    }
}
