//! Why a service has the cores that it has.

use super::{ClockWhy, UncoreWhy};
use crate::carb;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Goal(carb::Why),
    /// The search by slope, and its last activity.
    Slope(carb::State),
    Configured,
    /// A policy from outside has ordered it.
    Ordered,
    /// It fails open.
    Open(Failure),
    /// A person asked for all cores.
    Paused,
    /// All cores are needed at once.
    Alarm,
    Clock(ClockWhy),
    Uncore(UncoreWhy),
}

/// Why it fails open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The service cannot be seen any more.
    Lost { epochs: u32 },
    Refused {
        /// The reason of the last refusal.
        reason: String,
    },
    /// Another program keeps changing the values that we set.
    Drift { what: String },
    /// Its policy from outside is at fault.
    Policy { fault: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { epochs } => write!(f, "nothing was seen of the service for {epochs} epochs"),
            Self::Refused { reason } => write!(f, "refused: {reason}"),
            Self::Drift { what } => write!(f, "another program changes it: {what}"),
            Self::Policy { fault } => write!(f, "its policy is at fault: {fault}"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Goal(why) => why.fmt(f),
            Self::Slope(state) => match state {
                carb::State::Hold => f.write_str("the tail is best so"),
                carb::State::Up => f.write_str("more help"),
                carb::State::Down => f.write_str("fewer do as well"),
            },
            Self::Configured => f.write_str("configured"),
            Self::Ordered => f.write_str("ordered by its policy"),
            Self::Open(failure) => write!(f, "all cores, no limits: {failure}"),
            Self::Paused => f.write_str("a person asked for all cores"),
            Self::Alarm => f.write_str("alarm: all cores at once"),
            Self::Clock(why) => why.fmt(f),
            Self::Uncore(why) => why.fmt(f),
        }
    }
}
