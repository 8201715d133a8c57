//! The words that a configuration has for how deep CPUs may sleep.

use machine::{CpuId, CpuList, Duration};
use std::fmt;
use std::str::FromStr;

/// The rule for an active CPU that has nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleMode {
    /// The kernel's own governor decides; nothing is limited.
    #[default]
    Stock,
    /// Only the CPU's shallowest state that halts.
    Shallow,
    /// States with an exit latency of at most this; zero is polling.
    Limit(Duration),
    /// As deep as the loop on premature sleeps allows.
    Feedback,
    /// Its deepest state, however short the sleep: least power, longest waking.
    Deep,
}

impl FromStr for IdleMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "stock" => Ok(Self::Stock),
            "shallow" => Ok(Self::Shallow),
            "feedback" => Ok(Self::Feedback),
            "deep" => Ok(Self::Deep),
            other => other.parse().map(Self::Limit).map_err(|_| {
                format!(
                    "`{text}` is no idle mode: write stock, shallow, deep, feedback or the longest exit \
                     latency, such as 50us"
                )
            }),
        }
    }
}

impl fmt::Display for IdleMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stock => f.write_str("stock"),
            Self::Shallow => f.write_str("shallow"),
            Self::Feedback => f.write_str("feedback"),
            Self::Deep => f.write_str("deep"),
            // In whole nanoseconds: a written value must read back as the same.
            Self::Limit(latency) => write!(f, "{}ns", latency.as_nanos()),
        }
    }
}

/// A mode for all CPUs of a service, and others for some of them: `stock; 0-1=shallow; 6,7=deep`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleModes {
    /// Of every CPU that is not named.
    pub all: IdleMode,
    /// Of those that are; no CPU twice.
    pub of: Vec<(CpuList, IdleMode)>,
}

impl IdleModes {
    pub fn mode(&self, cpu: CpuId) -> IdleMode {
        self.of.iter().find(|(cpus, _)| cpus.0.contains(&cpu)).map_or(self.all, |&(_, mode)| mode)
    }

    /// True if any CPU has a mode for which this holds.
    pub fn any(&self, holds: impl Fn(IdleMode) -> bool) -> bool {
        holds(self.all) || self.of.iter().any(|&(_, mode)| holds(mode))
    }
}

impl From<IdleMode> for IdleModes {
    fn from(all: IdleMode) -> Self {
        Self { all, of: Vec::new() }
    }
}

impl FromStr for IdleModes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(';');
        let mut modes = Self::from(parts.next().unwrap_or_default().parse::<IdleMode>()?);
        let mut named = CpuList::default();
        for part in parts {
            let wrong =
                |why: String| format!("`{}`: {why}: write CPUS=MODE, such as 0-1=shallow", part.trim());
            let (cpus, mode) = part.split_once('=').ok_or_else(|| wrong("no `=`".to_owned()))?;
            let cpus: CpuList = cpus.trim().parse().map_err(|error| wrong(format!("{error}")))?;
            if let Some(twice) = cpus.0.intersection(&named.0).next() {
                return Err(wrong(format!("{twice} has a mode already")));
            }
            named.0.extend(&cpus.0);
            modes.of.push((cpus, mode.parse()?));
        }
        Ok(modes)
    }
}

impl fmt::Display for IdleModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)?;
        self.of.iter().try_for_each(|(cpus, mode)| write!(f, "; {cpus}={mode}"))
    }
}

in_words!(IdleModes);
