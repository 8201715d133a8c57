//! The word that a configuration has for how fast CPUs run.

use machine::Kilohertz;
use std::fmt;
use std::str::FromStr;

/// How fast a service's CPUs run, as a person writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrequencyMode {
    /// The kernel's own governor decides on the clock.
    #[default]
    Stock,
    /// Each core as slow as costs no more than `slack` of its own progress.
    Sensitivity,
    /// All of them as slow as keeps the goal.
    Pegasus,
    Cap(Kilohertz),
}

impl FromStr for FrequencyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "stock" => Ok(Self::Stock),
            "sensitivity" => Ok(Self::Sensitivity),
            "pegasus" => Ok(Self::Pegasus),
            other => other.parse().map(Self::Cap).map_err(|_| {
                format!(
                    "`{text}` is no frequency: write stock, sensitivity, pegasus or the highest clock, \
                     such as 1700MHz"
                )
            }),
        }
    }
}

impl fmt::Display for FrequencyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stock => f.write_str("stock"),
            Self::Sensitivity => f.write_str("sensitivity"),
            Self::Pegasus => f.write_str("pegasus"),
            Self::Cap(clock) => clock.fmt(f),
        }
    }
}

in_words!(FrequencyMode);
