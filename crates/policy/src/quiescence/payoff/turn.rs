//! Turns with and without freezing, and the figures by which pairs of them are compared.

use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// How a turn was, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Share of the time in which all CPUs were idle.
    pub idle: f64,
    /// Share of the time in which all critical threads waited.
    pub waiting: f64,
    /// Time from wait to wait, seconds.
    pub cycle_s: f64,
    /// Share of the time that freezing and thawing at each wait would have taken.
    pub cost: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Turn {
    pub is_on: bool,
    /// Since when it counts. `None`: from the next wait on.
    pub began: Option<Instant>,
    pub idle: Duration,
    pub waited: Duration,
    pub waits: u32,
    /// Of these, those worth freezing for.
    pub worthy: u32,
}

/// With freezing against without.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pair {
    pub gain: f64,
    pub slowdown: f64,
}

impl Turn {
    /// Its side, and since when it counts; `None` in the cycle after a change.
    pub fn counts(&self) -> Option<(bool, Instant)> {
        self.began.map(|began| (self.is_on, began))
    }

    pub fn of(is_on: bool) -> Self {
        Self { is_on, began: None, idle: Duration::ZERO, waited: Duration::ZERO, waits: 0, worthy: 0 }
    }
}
