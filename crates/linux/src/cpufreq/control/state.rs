//! The outcome of a limit, and the means that the kernel has for it.

use machine::{CpuList, FrequencyLimit, Kilohertz};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The means that puts a limit in force. The words are those of configurations.
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
    /// The clock stops for a part of the time: `IA32_CLOCK_MODULATION`.
    #[serde(rename = "duty-cycle")]
    DutyCycle,
    /// A socket's average power: RAPL's `constraint_0_power_limit_uw`.
    #[serde(rename = "rapl")]
    PowerCap,
    /// The clock of a socket's uncore: `intel_uncore_frequency`. Never the means of a core's clock.
    #[serde(rename = "uncore", skip_deserializing)]
    Uncore,
}

impl FrequencyActuator {
    pub fn word(self) -> &'static str {
        match self {
            Self::SetSpeed => "speed",
            Self::Bounds => "bounds",
            Self::Preference => "epp",
            Self::DutyCycle => "duty-cycle",
            Self::PowerCap => "rapl",
            Self::Uncore => "uncore",
        }
    }
}

impl fmt::Display for FrequencyActuator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FrequencyState {
    /// Nothing of ours is there.
    Free,
    /// The kernel's files read so.
    InForce {
        /// The combined request of the domain's CPUs.
        limit: FrequencyLimit,
        /// The setting in force: the nearest that the hardware has. Where it is no frequency, the
        /// frequency that it stands for.
        reads: Kilohertz,
        by: FrequencyActuator,
        /// The setting, where it is no frequency: `energy preference balance_power`.
        setting: Option<String>,
        /// True if the administrator's own setting is stricter and therefore stays.
        kept_stricter: bool,
    },
    /// It could not be put in force.
    Refused { reason: String },
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

/// A file that does not read as we left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequencyDrift {
    pub cpus: CpuList,
    pub file: String,
    pub ours: String,
    pub reads: String,
}

impl fmt::Display for FrequencyDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus, file, ours, reads } = self;
        write!(f, "{file} of CPU {cpus} reads {reads} where we had set {ours}")
    }
}
