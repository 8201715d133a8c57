//! The policies that a service is governed by.

use super::{Frequency, IdleModes, UncoreMode};
use crate::carb::{self, GoalParams};
use machine::Goal;
use serde::{Deserialize, Serialize};

/// How many cores a service gets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cores {
    All,
    /// A constant number of active workers.
    Fixed(u16),
    /// CARB's search by slope.
    Slope(carb::Params),
    /// The fewest that keep a latency goal.
    Goal(Goal, GoalParams),
    /// As ordered by a policy from outside, which may work towards a goal.
    Ordered(Option<Goal>),
}

/// The policies that govern a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    pub cores: Cores,
    /// How deeply the active ones sleep.
    pub idle: IdleModes,
    #[serde(default)]
    pub frequency: Frequency,
    /// How fast the uncore of their sockets runs.
    #[serde(default)]
    pub uncore: UncoreMode,
    /// The goal under which `auto` slows it.
    #[serde(default)]
    pub uncore_goal: Option<Goal>,
    /// So many epochs without a rate, or refusals in a row, and it fails open. 3.
    pub lost_after: u32,
    /// Epochs until it tries again after failing open; twice as many after each further failure, up
    /// to 64 times. 10.
    pub retry_epochs: u32,
}

impl Params {
    /// With the default patience for failures.
    pub fn new(cores: Cores, idle: impl Into<IdleModes>) -> Self {
        Self {
            cores,
            idle: idle.into(),
            frequency: Frequency::Stock,
            uncore: UncoreMode::Stock,
            uncore_goal: None,
            lost_after: 3,
            retry_epochs: 10,
        }
    }
}
