//! The most that any choice of idle states can move: the difference between its two extremes
//! (Tradeoffs paper, section III C).
//!
//! **Tail.** Let a woken CPU be ready after `deep` under the one extreme and after `shallow` under
//! the other. Then no answer comes later by more than `deep - shallow` for each CPU that wakes on
//! its path, *for any queues*, as long as requests keep their CPUs and their order. Per CPU, by
//! induction over its requests: one that finds the CPU asleep under `deep` finds it asleep under
//! `shallow` too, for the work before it ended earlier here; it is later by just that much. One
//! that finds it awake under `deep` starts when the one before it ended, which is later by at most
//! that much. And if no answer is later by more, no percentile is. The bound leaves out: a cold
//! cache behind a deep state, a package's own exit latency, work that moves to another CPU because
//! of all this, and the clock, which may be faster while more cores sleep. Where latencies are
//! measured, the worst is one in a hundred, and so is the share that may exceed the bound.
//!
//! **Power.** All idle time in the deepest state that is allowed, against all of it in the
//! shallowest that halts, by the machine's table. Threads of a core share its sleep: a core is
//! asleep for no longer than the one of them that sleeps least, so for no longer than they do on
//! average. A package's own saving when all of it sleeps comes on top and is not in it.
//!
//! **A wake-up itself** is not a matter of choice: waking from the shallowest state takes its time
//! too. It is reported apart from the part that a choice could change, which is the difference
//! between two states.
//!
//! Invariants: a bound is not negative; more idle time makes the bound on power no smaller; the
//! remaining saving is no more than the whole amount at stake. CPUs that poll draw more than any
//! state that halts, but whether they poll is not a choice among those.

use super::Evidence;
use crate::sleep::{LatencySource, Slept, StateSlept};
use machine::{Cstate, CstateKind, Duration, EnergySource, Microwatts, PowerModel, Ratio};
use serde::{Serialize, Serializer};
use std::fmt;

/// How much tail a choice of idle states can move at most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TailBound {
    pub shallowest: String,
    /// The deepest state that was used.
    pub deepest_used: String,
    /// The deepest state that could be used.
    pub deepest: String,
    /// The saving of shallower sleep: waking from the deepest state used, less that from the
    /// shallowest, for each CPU that wakes on a request's path.
    #[serde(rename = "per_wake_ns")]
    pub per_wake: Duration,
    /// The same from the deepest state that could be used: the distance of the extremes.
    #[serde(rename = "range_ns")]
    pub range: Duration,
    /// The worst wake-up latency of the deepest state used, chosen or not.
    #[serde(rename = "wake_ns")]
    pub wake: Duration,
    /// The advertised latency, where it differs from the measured one by more than a quarter.
    #[serde(rename = "advertised_ns", skip_serializing_if = "Option::is_none")]
    pub advertised: Option<Duration>,
    /// All wake-ups on the path, as a share of the tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_of_p99: Option<Ratio>,
    /// CPUs that wake on a request's path.
    pub wakes: u32,
    pub source: LatencySource,
    /// The tail of the requests, where it was watched.
    #[serde(rename = "p99_ns", skip_serializing_if = "Option::is_none")]
    pub p99: Option<Duration>,
    /// The saving of all wakes on the path, as a share of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_p99: Option<Ratio>,
}

/// How much power a choice of idle states can move at most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PowerBound {
    /// All idle time in the deepest state against all of it in the shallowest that halts.
    #[serde(rename = "at_stake_uw")]
    pub at_stake: Microwatts,
    /// All idle time in the deepest state against the states that were used.
    #[serde(rename = "still_to_save_uw")]
    pub still_to_save: Microwatts,
    /// The cores' power as they sleep now, by the table; or the machine's, by its meter.
    #[serde(rename = "now_uw")]
    pub now: Microwatts,
    #[serde(serialize_with = "as_text")]
    pub now_source: EnergySource,
    /// The amount at stake, as a share of the power with all idle time in the shallowest state.
    pub of_shallow: Ratio,
    /// Where the powers of the states are from: always a table.
    #[serde(serialize_with = "as_text")]
    pub source: EnergySource,
}

fn as_text<S: Serializer>(source: &EnergySource, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(source)
}

impl TailBound {
    /// The distance of the extremes for a request that wakes all CPUs on its path.
    pub fn at_stake(&self) -> Duration {
        self.range * u64::from(self.wakes)
    }

    /// The source of a wake-up latency, as it stands in a sentence.
    pub(super) fn said_by(&self) -> String {
        match (self.source, self.advertised) {
            (LatencySource::Measured, None) => "measured here".to_owned(),
            (LatencySource::Measured, Some(advertised)) => {
                format!("measured here; its table says {advertised}")
            }
            (LatencySource::Advertised, _) => {
                "as advertised; on a VM that says nothing: `roost doctor --probe` measures it".to_owned()
            }
        }
    }
}

impl fmt::Display for TailBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shallowest, deepest_used, deepest, per_wake, range, .. } = self;
        let source = self.said_by();
        if range.is_zero() {
            write!(f, "Tail: nothing to choose; {shallowest} is the only state that halts. ")?;
            write!(f, "Waking from it takes up to {} ({source})", self.wake)?;
            return match (self.p99, self.wake_of_p99) {
                (Some(p99), Some(share)) => write!(f, ", {share} of the p99 of {p99}, whatever is chosen."),
                _ => f.write_str(", whatever is chosen."),
            };
        }
        write!(f, "Tail: ")?;
        if per_wake.is_zero() {
            write!(f, "it sleeps no deeper than {shallowest}, so shallower sleep saves nothing")?;
        } else {
            write!(
                f,
                "shallower sleep saves at most {per_wake} for each CPU that wakes on a request's path \
                 ({deepest_used} against {shallowest}, {source})"
            )?;
        }
        if deepest != deepest_used {
            write!(f, "; deeper sleep, in {deepest}, costs at most {} more", *range - *per_wake)?;
        }
        match (self.p99, self.of_p99) {
            (Some(p99), Some(share)) if self.wakes > 1 => {
                write!(f, "; with {} such CPUs, {share} of the p99 of {p99}.", self.wakes)
            }
            (Some(p99), Some(share)) => write!(f, "; that is {share} of the p99 of {p99}."),
            _ => f.write_str("."),
        }
    }
}

impl fmt::Display for PowerBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Power: all idle time in the deepest state saves at most {:.2} W, or {}, against all of it in \
             the shallowest; {:.2} W of that are still to be saved. Now it takes {:.2} W, {}; what the \
             states take is {}.",
            self.at_stake.as_watts(),
            self.of_shallow,
            self.still_to_save.as_watts(),
            self.now.as_watts(),
            self.now_source,
            self.source
        )
    }
}

/// The measured latency differs from the advertised one beyond this share of it.
const APART: f64 = 0.25;

pub(super) fn tail(evidence: &Evidence) -> Result<TailBound, &'static str> {
    let states = &evidence.findings.all.states;
    let shallowest = shallowest(states).ok_or(NO_STATES)?;
    let deepest_of = |of: &dyn Fn(&StateSlept) -> bool| {
        let halting = states.iter().filter(|state| is_halt(state) && of(state));
        halting.filter_map(|state| Some((state.wake?, state))).max_by_key(|(wake, _)| wake.worst)
    };
    let floor = shallowest.wake.ok_or(NO_STATES)?;
    let (deep, deepest) = deepest_of(&|state| !state.forbidden).unwrap_or((floor, shallowest));
    let (used, deepest_used) = deepest_of(&|state| state.sleeps > 0).unwrap_or((floor, shallowest));
    let per_wake = used.worst - floor.usual;
    let range = per_wake.max(deep.worst - floor.usual);
    // One state has no range, however its measured wake-ups scatter.
    let [per_wake, range] = [(per_wake, deepest_used), (range, deepest)]
        .map(|(length, state)| if state.state == shallowest.state { Duration::ZERO } else { length });
    let (deepest, range) = if per_wake > range { (deepest_used, per_wake) } else { (deepest, range) };
    let wakes = evidence.requests.map_or(1, |requests| requests.wakes.max(1));
    let p99 = evidence.requests.map(|requests| requests.p99).filter(|p99| !p99.is_zero());
    let advertised = deepest_used.exit_latency.filter(|&advertised| {
        used.source == LatencySource::Measured
            && (used.usual.as_nanos().abs_diff(advertised.as_nanos()) as f64)
                > APART * used.usual.as_nanos() as f64
    });
    Ok(TailBound {
        shallowest: shallowest.name.clone(),
        deepest_used: deepest_used.name.clone(),
        deepest: deepest.name.clone(),
        per_wake,
        range,
        wake: used.worst,
        advertised,
        wake_of_p99: p99.map(|p99| Ratio::of(used.worst * u64::from(wakes), p99)),
        wakes,
        source: floor.source.max(used.source).max(deep.source),
        p99: evidence.requests.map(|requests| requests.p99),
        of_p99: p99.map(|p99| Ratio::of(per_wake * u64::from(wakes), p99)),
    })
}

pub(super) fn power(evidence: &Evidence) -> Result<PowerBound, &'static str> {
    let model = evidence.power.model.as_ref().ok_or(NO_MODEL)?;
    let states = &evidence.findings.all.states;
    let shallowest = shallowest(states).and_then(described).ok_or(NO_STATES)?;
    let allowed = states.iter().filter(|state| is_halt(state) && !state.forbidden).filter_map(described);
    let deepest = allowed.max_by_key(|state| state.exit_latency).unwrap_or_else(|| shallowest.clone());
    let threads = f64::from(evidence.power.threads_per_core.max(1));
    let (mut at_stake, mut still, mut total) = (0.0, 0.0, 0.0);
    for cpu in &evidence.findings.cpus {
        let draw = Draw::of(&cpu.slept, model, &shallowest, &deepest);
        at_stake += draw.shallow - draw.deep;
        still += draw.now - draw.deep;
        total += draw.now + draw.active;
    }
    let watts = |of_threads: f64| Microwatts::from_watts((of_threads / threads).max(0.0));
    let modelled = EnergySource::Modelled(model.name.clone());
    let (at_stake, still) = (watts(at_stake), watts(still));
    let still_to_save = still.min(at_stake);
    let (now, now_source) = match &evidence.power.measured {
        Some((measured, meter)) => (*measured, EnergySource::Measured(meter.clone())),
        None => (watts(total), modelled.clone()),
    };
    let shallow = now.as_watts() + at_stake.as_watts() - still.as_watts();
    let of_shallow = Ratio::new(if shallow > 0.0 { at_stake.as_watts() / shallow } else { 0.0 });
    Ok(PowerBound { at_stake, still_to_save, now, now_source, of_shallow, source: modelled })
}

/// Mean power of one CPU, in watts: at work, and asleep in three ways.
struct Draw {
    active: f64,
    now: f64,
    shallow: f64,
    deep: f64,
}

impl Draw {
    fn of(slept: &Slept, model: &PowerModel, shallowest: &Cstate, deepest: &Cstate) -> Self {
        let watts = |state: &Cstate| state.power.unwrap_or_else(|| model.idle_power(state)).as_watts();
        // A table in which sleeping deeper draws more is no reason for a negative bound.
        let deep = watts(deepest).min(watts(shallowest));
        let idle = slept.idle().as_f64();
        let mut now = 0.0;
        for state in &slept.states {
            let power = described(state).map_or(model.active.as_watts(), |state| watts(&state));
            now += state.share.as_f64() * power.max(deep);
        }
        Self {
            active: slept.active.as_f64() * model.active.as_watts(),
            now,
            shallow: idle * watts(shallowest),
            deep: idle * deep,
        }
    }
}

fn is_halt(state: &StateSlept) -> bool {
    state.kind == Some(CstateKind::Halting)
}

fn shallowest(states: &[StateSlept]) -> Option<&StateSlept> {
    let halting = states.iter().filter(|state| is_halt(state) && state.exit_latency.is_some());
    halting.min_by_key(|state| state.exit_latency)
}

/// The state as tables of power know it.
fn described(state: &StateSlept) -> Option<Cstate> {
    Some(Cstate {
        name: state.name.clone(),
        kind: state.kind?,
        exit_latency: state.exit_latency?,
        true_exit_latency: None,
        entry_latency: None,
        target_residency: state.target_residency?,
        power: None,
    })
}

/// [`crate::sleep::Findings::unknown`] names the remedy: it knows where the sleeps were seen.
const NO_STATES: &str =
    "How much the choice of idle states can move cannot be said: nothing is known of the idle states.";
const NO_MODEL: &str = "How much power it can move cannot be said: no table of the machine's power is known.";
