//! Power and energy in the units that Linux's powercap and cpufreq speak, and the model that stands in for a meter.

use crate::{Cstate, Duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign};

/// A clock frequency in kHz, cpufreq's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kilohertz(pub u64);

/// Power in millionths of a watt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Microwatts(pub u64);

/// Energy in millionths of a joule, powercap's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Microjoules(pub u64);

impl Microwatts {
    /// From watts.
    pub fn from_watts(watts: f64) -> Self {
        Self((watts * 1e6).round() as u64)
    }
    /// In watts.
    pub fn as_watts(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// The energy that this power uses in `length`.
    pub fn over(self, length: Duration) -> Microjoules {
        Microjoules((u128::from(self.0) * u128::from(length.as_nanos()) / 1_000_000_000) as u64)
    }
}

impl Microjoules {
    /// In joules.
    pub fn as_joules(self) -> f64 {
        self.0 as f64 / 1e6
    }
}
impl Add for Microjoules {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Microjoules {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl fmt::Display for Microjoules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} J", self.as_joules()))
    }
}

/// Where an energy figure comes from. It is printed wherever the figure is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// Read from a meter, which is named.
    Measured(String),
    /// Computed from busy time and idle residency with a table of powers, which is named.
    Modelled(String),
}
impl fmt::Display for EnergySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(meter) => write!(f, "measured ({meter})"),
            Self::Modelled(table) => write!(f, "modelled ({table})"),
        }
    }
}

/// Core power by what the core is doing: the stand-in for a meter.
///
/// Energy = busy time x `active` + sum over idle states of residency x that state's power. Polling is charged as
/// `active`, because a polling core executes instructions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerModel {
    /// The preset's name, as printed beside every figure that comes of it.
    pub name: String,
    /// Power of one core that executes, at its nominal frequency.
    pub active: Microwatts,
    /// Power of one core in each idle state, by exit latency from shallow to deep.
    pub idle: Vec<Cstate>,
}
