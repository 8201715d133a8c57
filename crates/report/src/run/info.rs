//! `run.toml`: the command, its version, configuration and machine.

use serde::{Deserialize, Serialize};

/// The facts of a run. Written before the first request, so that a run that dies still has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInfo {
    /// Version of the folder's format; see [`RunInfo::FORMAT`].
    pub format: u32,
    /// The run's name, which is also the folder's.
    pub name: String,
    /// One sentence about the run, for the top of the report.
    pub title: String,
    /// The command line, one entry per argument.
    pub command: Vec<String>,
    pub version: String,
    /// When the run began, in UTC as [`utc`] writes it.
    pub started: String,
    /// How each kind of figure was got, one sentence each, for the end of the report.
    #[serde(default)]
    pub method: Vec<String>,
    pub machine: Machine,
    /// Every setting in force, defaults included. Tables may nest.
    #[serde(default)]
    pub config: toml::Table,
}

/// The machine that a run ran on: a number without its machine is a rumour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    pub host: Option<String>,
    /// Model of the CPU as the kernel prints it.
    pub cpu_model: Option<String>,
    /// CPUs online.
    pub cpus: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub kernel: Option<String>,
    /// The hypervisor, if the machine is a virtual one and says so.
    pub hypervisor: Option<String>,
    /// cpuidle driver and governor, such as `intel_idle, menu`.
    pub idle_driver: Option<String>,
    /// Idle states, shallow to deep, such as `C6 (133us)`.
    pub idle_states: Vec<String>,
}

impl RunInfo {
    /// The format that this version writes, and the only one that it reads.
    pub const FORMAT: u32 = 1;
}

/// `unix` seconds since 1970 as `2026-11-20 16:17:35 UTC`.
pub fn utc(unix: u64) -> String {
    let (days, second) = (unix / 86_400, unix % 86_400);
    // Civil date from a count of days: shift the epoch to 0000-03-01, so that a leap day ends its
    // year and each 400-year era has the same 146,097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_704_067_199, "2023-12-31 23:59:59 UTC"),
            (1_795_191_455, "2026-11-20 16:17:35 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(unix), text);
        }
    }
}
