//! The kind of service, by how finely its time is sliced (Tradeoffs paper, section III B and Figure
//! 7).
//!
//! The paper sorts fifteen services into three kinds, by eye from their distributions of idle and
//! active lengths. Here thresholds do the same, each with the paper's words about it. Judged are
//! the CPUs that *work*: beside them a big machine has many that only tick, and the paper leaves
//! those out as well ("the active logical cores").

use super::{Evidence, TailBound};
use crate::sleep::{Findings, Slept};
use machine::{Duration, Ratio};
use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Sleeps and bursts of work are long beside any wake-up.
    LatencyInsensitive,
    /// Short bursts of work, short sleeps, or both: each burst begins with a wake-up.
    BurstyIo,
    /// Hardly sleeps at this load; at a lower one it may well be bursty.
    CpuBoundNow,
    /// Its requests wait for a CPU that others use.
    WaitsForCpu,
    CannotTell,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LatencyInsensitive => "Insensitive to the latency of sleep",
            Self::BurstyIo => "Bursty",
            Self::CpuBoundNow => "CPU-bound now, perhaps bursty at low load",
            Self::WaitsForCpu => "Waits for a CPU",
            Self::CannotTell => "Cannot tell",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub class: Class,
    /// Why, in a sentence or two.
    pub because: String,
    /// CPUs that it was judged by.
    pub working_cpus: usize,
}

/// Above this share of the time the CPUs are CPU-bound. The paper's "completely occupy the
/// processor" leaves little below one; its loads "in the 30-60 % range" are the low ones, at which
/// the same services are bursty. Between them, nearer the upper.
pub(super) const OCCUPIED: f64 = 0.8;
/// A service is bursty if at least so much of its idle time, its working time, or all time lies in
/// slices of less than a millisecond. The insensitive ones are those of which "the majority of
/// sleep activity is coarse-grained" (caption of Figure 7), so the line is at half; the paper's
/// bursty services are well beyond it (search1 at low load 70 %, bigtable 80 %).
const MAJORITY: f64 = 0.5;
/// A CPU that is active for less than this only ticks, as a kernel's housekeeping does: 250 ticks a
/// second of 20 us are half a percent, daemons add to that.
const WORKING: f64 = 0.05;
/// Below this share of the time, over all CPUs and without requests to speak for it, nothing ran
/// that could be judged.
const NOTHING_RAN: f64 = 0.01;
/// Fewer sleeps make no distribution: in each of the four decades between 10 us and 100 ms some
/// hundreds.
const SLEEPS_MIN: u64 = 1_000;
/// Shorter than this, one pause of a service is the whole picture.
const ELAPSED_MIN: Duration = Duration::from_secs(1);
/// If more than this share of the events is missing, so are the short periods that matter most:
/// they crowd where buffers overflow.
const LOST_MAX: f64 = 0.05;
/// Below this share of the tail a wake-up is not seen. The paper, too, takes a percentage point for
/// no change (section III C).
pub(super) const NEGLIGIBLE: f64 = 0.01;

/// Sums over the CPUs that work.
pub(super) struct Working {
    pub cpus: usize,
    /// Share of their time in which they were active.
    pub active: Ratio,
    short_idle: Ratio,
    short_active: Ratio,
    short_all: Ratio,
}

impl Working {
    pub fn of(findings: &Findings) -> Self {
        let all = || findings.cpus.iter().map(|cpu| &cpu.slept).filter(|slept| !slept.seen.is_zero());
        let works = |slept: &&Slept| slept.active.as_f64() >= WORKING;
        let mut working: Vec<&Slept> = all().filter(works).collect();
        if working.is_empty() {
            // A service that is hardly asked: all CPUs are as good as each other.
            working = all().collect();
        }
        let sum = |of: &dyn Fn(&Slept) -> Duration| working.iter().map(|slept| of(slept)).sum::<Duration>();
        let seen = sum(&|slept| slept.seen);
        let active = sum(&|slept| slept.time(slept.active));
        let idle = sum(&|slept| slept.time(slept.idle()));
        let short = |slept: &Slept| {
            slept.slices.map_or((Duration::ZERO, Duration::ZERO), |slices| {
                let idle = slept.time(slices.short_idle_of_all);
                (idle, slept.time(slices.short_of_all) - idle)
            })
        };
        let (short_idle, short_active) = (sum(&|slept| short(slept).0), sum(&|slept| short(slept).1));
        Self {
            cpus: working.len(),
            active: Ratio::of(active, seen),
            short_idle: Ratio::of(short_idle, idle),
            short_active: Ratio::of(short_active, active),
            short_all: Ratio::of(short_idle + short_active, seen),
        }
    }

    /// Share of idle time in short slices.
    pub fn short_idle(&self) -> Ratio {
        self.short_idle
    }
}

pub(super) fn judge(evidence: &Evidence, tail: Option<&TailBound>) -> Judged {
    let findings = &evidence.findings;
    let working = Working::of(findings);
    let judged = |class, because| Judged { class, because, working_cpus: working.cpus };
    if let Some(why) = too_little(evidence) {
        // That CPUs are busy needs no lengths and no long look.
        let busy = working.active.as_f64() >= OCCUPIED && findings.elapsed >= ELAPSED_MIN;
        if !busy || mostly_lost(findings) {
            return judged(Class::CannotTell, why);
        }
    }
    if let Some(because) = waits(evidence, &working, tail) {
        return judged(Class::WaitsForCpu, because);
    }
    let Working { cpus, active, short_idle, short_active, short_all } = working;
    if active.as_f64() >= OCCUPIED {
        let because = format!(
            "the {cpus} CPUs that work are active {active} of the time, which leaves little sleep to \
             choose. At 15 to 45 % of their full load the paper's services of this kind were bursty: look \
             again when it is quiet."
        );
        return judged(Class::CpuBoundNow, because);
    }
    if let (Some(tail), Some(requests)) = (tail, &evidence.requests)
        && let (Some(wake), Some(choice)) = (tail.wake_of_p99, tail.of_p99)
        && wake.as_f64() < NEGLIGIBLE
    {
        let because = format!(
            "a request takes {} at the 99th percentile; waking takes at most {wake} of that ({}), and \
             another choice of states could change {choice}.",
            requests.p99,
            tail.said_by()
        );
        return judged(Class::LatencyInsensitive, because);
    }
    let sliced = format!(
        "on the {cpus} CPUs that work (active {active}), {short_idle} of the idle time and {short_active} \
         of the active time lie in slices of less than a millisecond, {short_all} of all time"
    );
    if [short_idle, short_active, short_all].iter().any(|share| share.as_f64() >= MAJORITY) {
        let which = if short_idle.as_f64() >= MAJORITY {
            "Sleeps are as short as what the deep states are made for, so their choice goes wrong easily, \
             either way."
        } else {
            "It sleeps long and works in short bursts, each of which begins with a wake-up from deep sleep \
             (Figure 6)."
        };
        judged(Class::BurstyIo, format!("{sliced}. {which}"))
    } else {
        let if_asked = if evidence.requests.is_none() {
            " Its sleeps do not tell whether clients wait for its answers: watch its requests with --port."
        } else {
            ""
        };
        judged(Class::LatencyInsensitive, format!("{sliced}: a wake-up is little beside that.{if_asked}"))
    }
}

/// Why its requests wait for a CPU, if most of their tail is that and no wake-up explains it.
fn waits(evidence: &Evidence, working: &Working, tail: Option<&TailBound>) -> Option<String> {
    let requests = evidence.requests.as_ref()?;
    let waiting = requests.queue_p99?;
    let waking = tail.map_or(Duration::ZERO, |tail| tail.wake * u64::from(tail.wakes));
    let is_most = waiting.as_nanos() as f64 >= WAITING_MUCH * requests.p99.as_nanos() as f64;
    // Without a table of states nothing is known of waking, but no state takes longer than this.
    let explained = if tail.is_some() { waking.scale(BEYOND_WAKING) } else { WAKING_MAX };
    if !is_most || waiting <= explained || working.active.as_f64() < BUSY {
        return None;
    }
    let waking = tail
        .map_or_else(String::new, |tail| format!(", where waking takes up to {waking} ({})", tail.said_by()));
    Some(format!(
        "of {} at the 99th percentile requests wait {waiting} before they run{waking}. The {} CPUs that \
         work are active {} of the time, with this service's earlier requests or with others' work.",
        requests.p99, working.cpus, working.active
    ))
}

/// The share of waiting in the tail from which waiting causes it.
const WAITING_MUCH: f64 = 0.5;
/// Waiting that is so many times the wake-up latency is no waking.
const BEYOND_WAKING: f64 = 5.0;
/// No idle state of the tables that Roost knows takes longer to wake from.
const WAKING_MAX: Duration = Duration::from_millis(1);
/// CPUs that are active for less of the time are seldom in each other's way: requests wait there
/// for another reason.
const BUSY: f64 = 0.25;

/// Why there is too little data for a verdict, and how much would be enough.
fn too_little(evidence: &Evidence) -> Option<String> {
    let findings = &evidence.findings;
    let all = &findings.all;
    if findings.cpus.is_empty() || all.seen.is_zero() {
        return Some("no period of any CPU was seen from beginning to end. Watch for longer.".to_owned());
    }
    if all.slices.is_none() {
        return Some(
            "cpuidle's counts do not say how long single sleeps were. It takes cpu_idle events: see `roost \
             doctor` for what hinders them, or bring a recording with --from."
                .to_owned(),
        );
    }
    if mostly_lost(findings) {
        return Some(format!(
            "{} events were lost beside {} sleeps seen. Record less at once, or with larger buffers (perf \
             record -m 4M).",
            findings.lost, all.sleeps
        ));
    }
    if findings.elapsed < ELAPSED_MIN || all.sleeps < SLEEPS_MIN {
        return Some(format!(
            "{} sleeps in {} are too few for a distribution. It takes at least {SLEEPS_MIN}, in a second \
             or more.",
            all.sleeps, findings.elapsed
        ));
    }
    if all.active.as_f64() < NOTHING_RAN && evidence.requests.is_none() {
        return Some(format!(
            "the CPUs were active for {} of the time: nothing ran that could be judged. Watch the service \
             while it is used.",
            all.active
        ));
    }
    None
}

fn mostly_lost(findings: &Findings) -> bool {
    // Two events to a sleep.
    findings.lost as f64 > LOST_MAX * (2 * findings.all.sleeps + findings.lost) as f64
}
