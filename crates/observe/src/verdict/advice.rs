//! Which of Roost's policies to try first, and why. A first step for a person, not a decision:
//! whether it keeps the service's goal, only trying tells, in `roost sim` before a machine is
//! touched.

use super::class::{NEGLIGIBLE, Working};
use super::{Class, Evidence, Judged, PowerBound, TailBound};
use machine::{Duration, Ratio};
use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Curb deep states while many sleeps end too early (Tradeoffs, section III C).
    IdleFeedback,
    /// Fewer cores awake, found by the measured tail (CARB).
    Carb,
    /// Fewer cores awake, by connection placement inside the server (Peafowl).
    Packing,
    /// Slow the clock where the service waits for memory (Tradeoffs, section IV).
    Sensitivity,
    /// Hold requests back and release them together (CPU sleeps).
    StagedBursts,
    OwnCpus,
    Nothing,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IdleFeedback => "idle feedback",
            Self::Carb => "carb",
            Self::Packing => "packing (peafowl)",
            Self::Sensitivity => "sensitivity",
            Self::StagedBursts => "staged bursts",
            Self::OwnCpus => "CPUs of its own",
            Self::Nothing => "nothing",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub policy: Policy,
    /// Why, in a sentence or two.
    pub because: String,
}

/// Above this share of premature sleeps `literature::idle::feedback` begins to curb: below, it would do
/// nothing.
const PREMATURE_MANY: f64 = 0.25;
/// The same for sleeps that were long enough for a deeper state.
const MISSED_MANY: f64 = 0.25;
/// CPUs that work less than this on average would, on half as many of them, still be idle part of
/// the time; so there is room to pack. (The CARB and Peafowl papers gain most at low and middle
/// load, nothing near saturation.)
const ROOM_TO_PACK: f64 = 0.4;
/// A share of stalled cycles from which slowing the clock costs little. ESTIMATE: Figure 9 is a
/// plot without numbers, in which most of the services, and the SPEC programs with the largest
/// gains from DVFS, lie above about half.
const STALLED_MUCH: f64 = 0.5;
/// Requests that take longer than this may be held back for some milliseconds. The CPU sleeps paper
/// holds back by 250 ms where 500 are allowed; this is the least at which a stage of a few
/// milliseconds is a small part of the whole.
const PATIENT: Duration = Duration::from_millis(20);

pub(super) fn advise(
    evidence: &Evidence,
    judged: &Judged,
    tail: Option<&TailBound>,
    power: Option<&PowerBound>,
) -> Advice {
    let working = Working::of(&evidence.findings);
    match judged.class {
        Class::CannotTell => nothing("First see more."),
        Class::WaitsForCpu => advice(
            Policy::OwnCpus,
            "No idle state and no clock shortens a wait for a CPU. See who runs there (`top`, `pidstat \
             1`), keep that work off these CPUs (AllowedCPUs= of systemd, cpusets), or give the service \
             more of them; then watch again."
                .to_owned(),
        ),
        Class::CpuBoundNow => cpu_bound(evidence),
        // Where both bounds are known and small, no choice of idle states repays the trouble.
        _ if is_little(tail, power) => nothing(
            "Neither tail nor power can move by more than a hundredth, whatever idle states are chosen; \
             frequency, or fewer machines, is where to look.",
        ),
        Class::BurstyIo => bursty(evidence, &working),
        Class::LatencyInsensitive => insensitive(evidence, &working),
    }
}

fn is_little(tail: Option<&TailBound>, power: Option<&PowerBound>) -> bool {
    let tail_is = tail.is_some_and(|tail| {
        tail.range.is_zero()
            || tail.p99.is_some_and(|p99| Ratio::of(tail.at_stake(), p99).as_f64() < NEGLIGIBLE)
    });
    tail_is && power.is_none_or(|power| power.of_shallow.as_f64() < NEGLIGIBLE)
}

fn cpu_bound(evidence: &Evidence) -> Advice {
    match evidence.stalled {
        Some(stalled) if stalled.as_f64() >= STALLED_MUCH => advice(
            Policy::Sensitivity,
            format!(
                "There is no idle time to choose states for, but {stalled} of the active cycles wait for \
                 memory: a slower clock costs little there."
            ),
        ),
        Some(stalled) => nothing(&format!(
            "There is no idle time to choose states for, and only {stalled} of the active cycles wait for \
             memory. Look again at low load."
        )),
        None => nothing(
            "There is no idle time to choose states for. Look again at low load; with hardware counters, \
             see whether it waits for memory (sensitivity).",
        ),
    }
}

fn bursty(evidence: &Evidence, working: &Working) -> Advice {
    if let Some(premature) = evidence.findings.all.premature
        && premature.share.as_f64() >= PREMATURE_MANY
    {
        return advice(
            Policy::IdleFeedback,
            format!(
                "{} of the sleeps ended before their state was worth it: they cost wake-ups and saved \
                 nothing. In the paper, curbing them took 5 percentage points off bigtable's tail at the \
                 same power.",
                premature.share
            ),
        );
    }
    if has_room(working) {
        return packed(
            evidence,
            working,
            "its short sleeps then become long ones on the CPUs that are left alone",
        );
    }
    nothing(match evidence.findings.all.premature {
        Some(_) => {
            "Few sleeps are chosen wrongly, and the CPUs work too much, or are too few, to be packed. If \
             the tail matters more than the power, a limit on exit latency is the only gain."
        }
        None => {
            "Whether sleeps are chosen wrongly cannot be said without the states' table, and there is no \
             room to pack."
        }
    })
}

fn insensitive(evidence: &Evidence, working: &Working) -> Advice {
    let patient = evidence.requests.is_none_or(|requests| requests.p99 >= PATIENT);
    if patient && working.short_idle().as_f64() >= MISSED_MANY {
        return advice(
            Policy::StagedBursts,
            format!(
                "{} of the idle time still lies in slices of less than a millisecond. If no client waits \
                 for single answers, work that is held back and released together makes long sleeps of \
                 them.",
                working.short_idle()
            ),
        );
    }
    if let Some(missed) = evidence.findings.all.missed_deep
        && missed.share.as_f64() >= MISSED_MANY
    {
        if has_room(working) {
            return packed(evidence, working, "sleeps then become long enough to be seen as such");
        }
        return nothing(&format!(
            "{} of the sleeps were long enough for a deeper state. See who limits them: `roost doctor`.",
            missed.share
        ));
    }
    nothing("Its sleeps are long, and the kernel chooses long sleeps well.")
}

fn has_room(working: &Working) -> bool {
    working.cpus >= 2 && working.active.as_f64() <= ROOM_TO_PACK
}

fn packed(evidence: &Evidence, working: &Working, gain: &str) -> Advice {
    let room = format!(
        "The {} CPUs that work are active {} of the time; on fewer of them, {gain}",
        working.cpus, working.active
    );
    match evidence.requests {
        Some(_) => advice(
            Policy::Carb,
            format!("{room}. How few, its request rate and response time tell, which can be watched here."),
        ),
        None => advice(
            Policy::Packing,
            format!(
                "{room}. Without response times only the server itself can decide that; watch them with \
                 --port and carb can as well."
            ),
        ),
    }
}

fn advice(policy: Policy, because: String) -> Advice {
    Advice { policy, because }
}

fn nothing(because: &str) -> Advice {
    advice(Policy::Nothing, because.to_owned())
}
