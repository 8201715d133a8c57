//! What became of a limit, and by which of the kernel's means.

use machine::{CpuList, FrequencyLimit, Kilohertz};
use serde::{Deserialize, Serialize};
use std::fmt;

/// By what a limit is put in force. The words are those of configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrequencyActuator {
    /// `scaling_setspeed`.
    #[serde(rename = "speed")]
    SetSpeed,
    /// `scaling_max_freq`, and `scaling_min_freq` for a speed.
    #[serde(rename = "bounds")]
    Bounds,
    /// `energy_performance_preference`: a hint to hardware that chooses by itself.
    #[serde(rename = "epp")]
    Preference,
    /// The clock stands still for a part of the time: `IA32_CLOCK_MODULATION`.
    #[serde(rename = "duty-cycle")]
    DutyCycle,
    /// A socket's average power: RAPL's `constraint_0_power_limit_uw`.
    #[serde(rename = "rapl")]
    PowerCap,
}

impl FrequencyActuator {
    /// As configurations call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::SetSpeed => "speed",
            Self::Bounds => "bounds",
            Self::Preference => "epp",
            Self::DutyCycle => "duty-cycle",
            Self::PowerCap => "rapl",
        }
    }
}

impl fmt::Display for FrequencyActuator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What became of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FrequencyState {
    /// Nothing of ours is there.
    Free,
    /// The kernel's files read so.
    InForce {
        /// What the CPUs of the domain ask for together.
        limit: FrequencyLimit,
        /// What is in force: the nearest that the hardware has. Where the setting is no clock, the clock that it stands for.
        reads: Kilohertz,
        /// By which file.
        by: FrequencyActuator,
        /// The setting, where it is no clock: `energy preference balance_power`.
        setting: Option<String>,
        /// True if the administrator's own setting is stricter and therefore stays.
        kept_stricter: bool,
    },
    /// It could not be put in force.
    Refused {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for FrequencyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::InForce { limit, reads, setting, kept_stricter, .. } => {
                let how = if matches!(limit, FrequencyLimit::Exactly(_)) { "" } else { "at most " };
                match setting {
                    None => write!(f, "{how}{reads}")?,
                    Some(setting) => write!(f, "{setting}, for {how}{reads}")?,
                }
                if *kept_stricter {
                    f.write_str(" (within the administrator's own bounds)")?;
                }
                Ok(())
            }
            Self::Refused { reason } => write!(f, "refused: {reason}"),
        }
    }
}

/// A file that reads something else than we left there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequencyDrift {
    /// The CPUs concerned.
    pub cpus: CpuList,
    /// Which file.
    pub file: String,
    /// What we left there.
    pub ours: String,
    /// What it reads.
    pub reads: String,
}

impl fmt::Display for FrequencyDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus, file, ours, reads } = self;
        write!(f, "{file} of CPU {cpus} reads {reads} where we had set {ours}")
    }
}
