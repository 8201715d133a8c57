//! The findings of a pattern of sleeps: the share of each state, the number of wrong choices, the
//! cost of waking, and how finely the time is sliced.
//!
//! Terms, all of the Tradeoffs paper (IISWC 2014, section II). A sleep is *premature* if it ended
//! before its state's target residency: a shallower state would have used less energy and woken
//! faster. It *missed a deeper state* if it lasted for the target residency of a deeper one that
//! was allowed. *Wake cost* is sleeps x wake latency: CPU time in which work was waiting and no CPU
//! did it.
//!
//! Invariants:
//! - Shares are of the CPU time that was *seen*, which lies between two events; so residencies and
//!   active time add up to one.
//! - A finding that depends on undescribed states is `None`, and so is one that depends on lengths
//!   where only counts are known. [`Findings::unknown`] then names the loss.
//! - A sleep is not premature and deep enough for a deeper state at once, and neither count exceeds
//!   the sleeps.

mod tally;

use super::{SleepPattern, SleepSource, Wakers};
use machine::{CpuId, CstateIndex, CstateKind, Duration, Rate, Ratio};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tally::Tally;

/// Measurements of the idle states beside their tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Measured wake-up latency on this machine, by the state's number.
    pub wake: BTreeMap<CstateIndex, MeasuredWake>,
    pub disabled: BTreeSet<(CpuId, CstateIndex)>,
}

/// The wake-up latency of a state, over many wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredWake {
    pub p50: Duration,
    /// All but one in a hundred.
    pub p99: Duration,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    pub source: String,
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Duration,
    pub lost: u64,
    /// The missing findings and the reasons, a sentence each.
    pub unknown: Vec<String>,
    pub all: Slept,
    /// Each CPU, in order of number.
    pub cpus: Vec<CpuSlept>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuSlept {
    pub cpu: CpuId,
    #[serde(flatten)]
    pub slept: Slept,
}

/// How one CPU slept, or several together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slept {
    /// CPU time in periods of which both ends were seen.
    #[serde(rename = "seen_ns")]
    pub seen: Duration,
    /// Share of it in which a CPU was active.
    pub active: Ratio,
    pub sleeps: u64,
    /// Sleeps per second, the CPUs' together.
    pub transitions_per_s: Rate,
    /// Every state that was used or is known.
    pub states: Vec<StateSlept>,
    /// Sleeps that ended before their state's target residency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub premature: Option<Part>,
    /// Sleeps that were long enough for a deeper state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_deep: Option<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_cost: Option<WakeCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakers: Option<Wakers>,
    /// Where the idle time lies by the length of periods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_lengths: Option<Vec<LengthShare>>,
    /// Where the active time lies by the length of periods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_lengths: Option<Vec<LengthShare>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateSlept {
    /// Its number, as `cpu_idle` events have it.
    pub state: CstateIndex,
    /// Its name, or `state 2` where it has none.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<CstateKind>,
    /// The table's worst-case wake-up latency, where known.
    #[serde(rename = "exit_latency_ns", skip_serializing_if = "Option::is_none")]
    pub exit_latency: Option<Duration>,
    /// The shortest sleep that is worth it, where known.
    #[serde(rename = "target_residency_ns", skip_serializing_if = "Option::is_none")]
    pub target_residency: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<WakeLatency>,
    /// True if it is disabled on all of the CPUs.
    pub forbidden: bool,
    /// Share of the CPU time seen that was asked to be spent in it.
    pub share: Ratio,
    pub sleeps: u64,
    /// How long they were on average; `None` without one.
    #[serde(rename = "mean_ns", skip_serializing_if = "Option::is_none")]
    pub mean: Option<Duration>,
    /// Those that ended before its target residency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub premature: Option<Part>,
    /// Those that were long enough for a deeper state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_deep: Option<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    pub count: u64,
    pub share: Ratio,
}

/// The wake-up latency of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WakeLatency {
    #[serde(rename = "usual_ns")]
    pub usual: Duration,
    /// At worst, or all but one time in a hundred.
    #[serde(rename = "worst_ns")]
    pub worst: Duration,
    pub source: LatencySource,
}

/// The source of a latency. Machines differ from their advertised latencies by up to ten times,
/// both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencySource {
    /// It was measured on this machine.
    Measured,
    Advertised,
}

impl fmt::Display for LatencySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Advertised => "advertised",
        })
    }
}

/// The cost of waking in CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WakeCost {
    /// Share of the CPU time seen.
    pub share: Ratio,
    /// Measured, if all of it is.
    pub source: LatencySource,
}

/// How finely time is sliced: the time in periods shorter than a millisecond, the length below
/// which the paper finds that the choice of a state matters (section III B).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slices {
    /// Idle time in short periods, as a share of idle time.
    pub short_of_idle: Ratio,
    /// Active time in short periods, as a share of active time.
    pub short_of_active: Ratio,
    /// Idle time in short periods, as a share of all time.
    pub short_idle_of_all: Ratio,
    /// Idle and active time in short periods, as a share of all time: the paper's measure for
    /// comparing services.
    pub short_of_all: Ratio,
}

/// The share of all time that lies in periods of similar length: one entry for each doubling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LengthShare {
    pub from_ns: u64,
    /// Up to this one. The last also holds whatever is longer, the first whatever is shorter.
    pub to_ns: u64,
    /// Share of the CPU time seen.
    pub share: Ratio,
}

impl Findings {
    /// Periods shorter than this are short.
    pub const SHORT: Duration = Duration::from_millis(1);

    pub fn of(pattern: &SleepPattern, known: &Known) -> Self {
        let lengths = pattern.source != SleepSource::Counts;
        let tallies: Vec<Tally> =
            pattern.cpus.iter().map(|cpu| Tally::of(cpu, known, pattern.elapsed, lengths)).collect();
        let mut all = Tally::none();
        tallies.iter().for_each(|tally| all.add(tally));
        let all = all.slept(pattern.elapsed, lengths);
        let cpus = pattern.cpus.iter().zip(&tallies);
        Self {
            source: pattern.source.to_string(),
            elapsed: pattern.elapsed,
            lost: pattern.lost,
            unknown: unknown(pattern, &all),
            cpus: cpus
                .map(|(cpu, tally)| CpuSlept { cpu: cpu.cpu, slept: tally.slept(pattern.elapsed, lengths) })
                .collect(),
            all,
        }
    }
}

impl Slept {
    /// The CPU time that a share of it is.
    pub fn time(&self, share: Ratio) -> Duration {
        self.seen.scale(share.as_f64())
    }

    /// Share of the CPU time seen in which no CPU was active.
    pub fn idle(&self) -> Ratio {
        if self.seen.is_zero() { Ratio::ZERO } else { Ratio::new(1.0 - self.active.as_f64()) }
    }
}

fn unknown(pattern: &SleepPattern, all: &Slept) -> Vec<String> {
    let mut unknown = Vec::new();
    if pattern.source == SleepSource::Counts {
        unknown.push(
            "cpuidle's counts have no lengths: no distributions, no premature and no missed sleeps, no \
             short slices."
                .to_owned(),
        );
    }
    if pattern.cpus.iter().any(|cpu| cpu.table.0.is_empty()) {
        let why = match pattern.source {
            SleepSource::Recording(_) => {
                "A recording does not tell them: --machine names the machine that it comes from."
            }
            _ => {
                "This kernel offers none through cpuidle, as in most virtual machines; `roost doctor` says \
                 why."
            }
        };
        unknown.push(format!(
            "Nothing is known of the idle states: what a sleep should have lasted and what waking takes \
             cannot be said. {why}"
        ));
    }
    if pattern.cpus.iter().all(|cpu| cpu.wakers.is_none()) {
        unknown.push("What woke the CPUs was not watched.".to_owned());
    }
    let whole = pattern.elapsed * pattern.cpus.len() as u64;
    let seen = Ratio::of(all.seen, whole);
    if seen.as_f64() < SEEN_MIN {
        unknown.push(format!(
            "Only {seen} of the CPU time lies between two events that were seen; all shares are of that part."
        ));
    }
    unknown
}

/// Where less of the time is accounted for, it is said.
const SEEN_MIN: f64 = 0.9;

#[cfg(test)]
mod tests;
