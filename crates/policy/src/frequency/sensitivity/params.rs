//! Every constant of the policy, with its bounds and its source.

use super::Model;
use crate::check::Check;
use crate::registry::{Parameter, count, number, one_of, share, time};
use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub step: Duration,
    pub slack: Ratio,
    pub model: Model,
    pub gain: f64,
    pub min_change: f64,
    pub stale_after: u32,
    #[serde(with = "machine::duration_text")]
    pub min_busy: Duration,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("step", "time between two readings")
            .above_zero()
            .source("Tradeoffs, section IV-B: less lost more than it gained"),
        share("slack", "progress that may be lost against the fastest frequency")
            .source("Tradeoffs: 0 is its zero tolerance, 0.2 its relaxed setting"),
        one_of("model", "what is taken to be linear", &["linear", "stalls"])
            .source("ours; the paper's is linear"),
        number("gain", "weight of a sample whose two speeds span all frequencies")
            .above_zero_to(1.0)
            .source("ours: a perturbation brings two or three samples"),
        share("min_change", "how far apart two speeds must be to make a sample, of the range").source("ours"),
        count("stale_after", "busy steps without a sample after which the model is stale")
            .above_zero()
            .source("ours"),
        time("min_busy", "a step with less busy time tells nothing")
            .source("ours: some ten thousand instructions"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            step: Duration::from_millis(1),
            slack: Ratio::ZERO,
            model: Model::default(),
            gain: 0.5,
            min_change: 0.25,
            stale_after: 100,
            min_busy: Duration::from_micros(50),
        }
    }
}

impl Params {
    /// The paper's model, at zero tolerance.
    pub fn paper() -> Self {
        Self { model: Model::Linear, ..Self::default() }
    }
}
