//! The verdict on freezing, with the figures that it rests on.

use machine::Instant;
use serde::{Deserialize, Serialize};

/// Why freezing is left off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// There is too little to gain, so that it was not tried.
    NothingToGain,
    NoGain,
    /// Critical work takes longer with freezing.
    Longer,
    /// The longest cycles of critical work are with freezing.
    LongerTail,
    /// That critical work takes longer cannot be excluded by the records.
    NotExcluded,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// It is worth it. `None`: not known yet.
    pub pays: Option<bool>,
    /// Both ways are being tried now.
    pub is_trying: bool,
    /// More of the time all CPUs were idle with freezing, at the last trial: a share of the time.
    pub gain: Option<f64>,
    /// The most that could be gained, by the look before it.
    pub gain_at_most: Option<f64>,
    /// Why it is left off, if it is.
    pub why: Option<Reason>,
    /// The work between two waits took longer, at the last trial: a share of a cycle.
    pub slowdown: Option<f64>,
    /// Whole cycles of critical threads took longer: a share.
    pub cycle: Option<f64>,
    /// By this at most, two standard errors above.
    pub cycle_at_most: Option<f64>,
    /// Their waits did.
    pub wait: Option<f64>,
    pub wait_at_most: Option<f64>,
    /// The 99th percentile of their cycles did.
    pub tail: Option<f64>,
    /// Cycles that were compared, without freezing and with.
    pub cycles: [u64; 2],
    /// Number of pairs of turns, all together.
    pub pairs: u64,
    /// Number of times that it was settled.
    pub trials: u64,
    /// It is tried again then, if nothing changes before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<Instant>,
}

impl Verdict {
    pub(super) fn without_trial(self) -> Self {
        let Self { pays, is_trying, pairs, trials, again, .. } = self;
        Self { pays, is_trying, pairs, trials, again, ..Self::default() }
    }
}
