//! Every constant of the trial, with its bounds and its source.

use crate::check::Check;
use crate::registry::{Parameter, flag, share, time};
use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PayoffParams {
    pub is_tried: bool,
    #[serde(with = "machine::duration_text")]
    pub turn: Duration,
    pub min_gain: Ratio,
    pub max_slowdown: Ratio,
    #[serde(with = "machine::duration_text")]
    pub retry_min: Duration,
    #[serde(with = "machine::duration_text")]
    pub retry_max: Duration,
}

impl Check for PayoffParams {
    const PARAMETERS: &'static [Parameter] = &[
        flag("is_tried", "false freezes whether it pays or not").source("ours"),
        time("turn", "at least so long with, and so long without")
            .above_zero()
            .source("ours: a few of the paper's waits of 100 ms"),
        share("min_gain", "what all CPUs must be idle for more, of the time")
            .source("ours: less is no more than noise"),
        share("max_slowdown", "what critical threads' cycles and waits may grow by")
            .source("ours: below what is noticed"),
        time("retry_min", "the first answer is tried again after this")
            .above_zero()
            .not_above("retry_max")
            .source("ours: turns of 4 s cost 6 %"),
        time("retry_max", "and each later one at the latest after this")
            .above_zero()
            .source("ours: what a machine does changes over a day"),
    ];
}

impl Default for PayoffParams {
    fn default() -> Self {
        Self {
            is_tried: true,
            turn: Duration::from_millis(500),
            min_gain: Ratio::new(0.02),
            max_slowdown: Ratio::new(0.01),
            retry_min: Duration::from_secs(60),
            retry_max: Duration::from_secs(3600),
        }
    }
}
