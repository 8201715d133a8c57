//! Every constant of the search with a goal, with its bounds and its source.

use super::super::Threshold;
use crate::check::Check;
use crate::registry::{Parameter, count, number, rate, share, time};
use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GoalParams {
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
    pub min_active: u16,
    pub room: Ratio,
    pub patience: u32,
    pub busiest: Ratio,
    pub stride: Ratio,
    pub barred_epochs: u32,
    pub rate_jump: Threshold,
    pub noise_z: f64,
}

impl Check for GoalParams {
    const PARAMETERS: &'static [Parameter] = &[
        time("epoch", "time between two decisions").above_zero().source("as CARB's"),
        count("min_active", "workers that are always awake").above_zero().source("ours"),
        share("room", "below this share of the goal one worker less may do")
            .source("ours: a tail's own scatter over a second"),
        count("patience", "epochs in a row that must have room").above_zero().source("ours"),
        share("busiest", "no worker parks if those that stay would be busier than this")
            .source("ours: a queue's tail grows without bound towards 1"),
        share(
            "stride",
            "of the workers beyond those that would be half that busy, the share that parks at once",
        )
        .source("ours: far from the edge a step need not be one"),
        count("barred_epochs", "epochs for which a number that was too few is not tried again")
            .above_zero()
            .source("ours; doubled after each further failure"),
        share("rate_jump.of_peak", "a rise that wakes all workers, of the highest rate seen")
            .source("as CARB's"),
        rate("rate_jump.absolute", "the same, as a rate").absent("of_peak holds").source("ours"),
        number("noise_z", "standard deviations of chance that such a rise must exceed")
            .zero_or_more()
            .source("ours: one of 30,000 epochs at an even rate has such a rise"),
    ];
}

impl Default for GoalParams {
    fn default() -> Self {
        Self {
            epoch: Duration::from_secs(1),
            min_active: 1,
            room: Ratio::new(0.8),
            patience: 3,
            busiest: Ratio::new(0.85),
            stride: Ratio::new(0.5),
            barred_epochs: 30,
            rate_jump: Threshold::OfPeak(0.2),
            noise_z: 4.0,
        }
    }
}
