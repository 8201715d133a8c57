//! A verdict in words: the kind of service by its sleeps, the most that the choice of idle states
//! can move, and the first policy to try.
//!
//! The problem: an operator with histograms still does not know whether deeper or shallower sleep
//! would matter. The approach is the method of the Tradeoffs paper (IISWC 2014, section III). First
//! see how finely time is sliced (`class`). Then bound the effect of any choice of idle states by
//! its two extremes, `shallow` and `deep` (`bounds`). Only then name a policy (`advice`). An A/B
//! run of the two extremes can prove the bound wrong ([`compare`]); nothing else could.
//!
//! ```text
//!   Findings + requests + power --> class  --\
//!                               --> bounds ---+--> advice --> words
//!                                      \--> prediction <-- compare -- shallow and deep, measured
//! ```
//!
//! Invariants:
//! - It is words for people. Nothing is decided for a machine here, and nothing changed.
//! - Too little data is [`Class::CannotTell`] with the remedy, not a guess.
//! - A bound is never negative, and says whether it was measured, advertised or modelled. Missing
//!   parts are in [`Verdict::unknown`], with the reason.
//! - Equal evidence gives an equal verdict.

mod advice;
mod bounds;
mod class;
mod compare;

pub use advice::{Advice, Policy};
pub use bounds::{PowerBound, TailBound};
pub use class::{Class, Judged};
pub use compare::{Change, Comparison, Held, Side, compare};

use crate::sleep::{Findings, Slept, StateSlept};
use machine::{CstateKind, Duration, Microwatts, PowerModel, Rate, Ratio};
use serde::Serialize;

/// The facts about a service and its machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    pub findings: Findings,
    /// Its requests, where they were watched.
    pub requests: Option<RequestEvidence>,
    pub power: PowerEvidence,
    /// Share of active cycles in which nothing was retired, where counters tell (Figure 9).
    pub stalled: Option<Ratio>,
}

impl Evidence {
    /// Sleeps alone, as a recording has them.
    pub fn of(findings: Findings) -> Self {
        Self { findings, requests: None, power: PowerEvidence::default(), stalled: None }
    }
}

/// How a service answered while its CPUs were watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestEvidence {
    pub rate: Rate,
    pub p50: Duration,
    pub p99: Duration,
    /// The tail of queue and wake-up delay alone, where it is told apart.
    pub queue_p99: Option<Duration>,
    /// CPUs that may have to wake one after the other for one request: 1, or 2 where another CPU
    /// takes its interrupt.
    pub wakes: u32,
}

/// The facts about a machine's power.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PowerEvidence {
    /// The cores' power by their activity.
    pub model: Option<PowerModel>,
    /// Logical CPUs of one core; 0 counts as 1.
    pub threads_per_core: u16,
    /// A meter's average, and its name.
    pub measured: Option<(Microwatts, String)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The kind of service, and the reason.
    #[serde(flatten)]
    pub judged: Judged,
    /// How much tail a choice of idle states can move at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<TailBound>,
    /// How much power it can move at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerBound>,
    /// The first thing to try, and the reason.
    pub advice: Advice,
    /// The reasons why the CPUs slept otherwise than the kernel would choose, as far as they are
    /// seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
    /// The missing parts, with reasons.
    pub unknown: Vec<String>,
}

impl Verdict {
    pub fn of(evidence: &Evidence) -> Self {
        let (tail, power) = (bounds::tail(evidence), bounds::power(evidence));
        let mut unknown: Vec<String> = [tail.as_ref().err(), power.as_ref().err()]
            .into_iter()
            .flatten()
            .map(|why| (*why).to_owned())
            .collect();
        // Both may be missing for the same reason.
        unknown.dedup();
        let (tail, power) = (tail.ok(), power.ok());
        let judged = class::judge(evidence, tail.as_ref());
        let advice = advice::advise(evidence, &judged, tail.as_ref(), power.as_ref());
        Self { judged, tail, power, advice, limits: polled(&evidence.findings.all), unknown }
    }

    /// The most that an A/B run of the two extremes may move.
    pub fn prediction(&self) -> Change {
        Change {
            tail: self.tail.as_ref().map(TailBound::at_stake),
            power: self.power.as_ref().map(|power| power.at_stake),
        }
    }

    /// The verdict in sentences: the kind, the tail, the power, the advice, the unknowns.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![format!("{}: {}", self.judged.class, self.judged.because)];
        words.extend(self.tail.as_ref().map(ToString::to_string));
        words.extend(self.power.as_ref().map(ToString::to_string));
        words.push(format!("Try first: {}. {}", self.advice.policy, self.advice.because));
        words.extend(self.limits.clone());
        words.extend(self.unknown.iter().cloned());
        words
    }
}

/// The sentence for a good part of idle time that was polled away.
///
/// The kernel itself polls for moments. More of it is the work of a limit: of a latency limit of
/// zero, which a person, the service or a command of Roost has set, or of states that were switched
/// off.
fn polled(all: &Slept) -> Option<String> {
    let is_polling = |state: &&StateSlept| state.kind == Some(CstateKind::Polling);
    let polling: f64 = all.states.iter().filter(is_polling).map(|state| state.share.as_f64()).sum();
    let idle = all.idle().as_f64();
    if polling < POLLED_MUCH * idle.max(f64::MIN_POSITIVE) {
        return None;
    }
    let halts = |state: &&StateSlept| state.kind.is_some_and(|kind| kind != CstateKind::Polling);
    let mut halting = all.states.iter().filter(halts).peekable();
    let by = if halting.peek().is_some() && halting.all(|state| state.forbidden) {
        "every state that halts was switched off"
    } else {
        "a limit on exit latency, if not the idle governor, made them (`roost doctor` names who holds one; \
         `roost serve --active-idle poll` and `roost govern --idle` set such limits)"
    };
    Some(format!(
        "The CPUs polled for {} of their idle time instead of halting: {by}. Power and wake-ups here are \
         those of that limit.",
        Ratio::new(polling / idle)
    ))
}

/// The share of the idle time, polled, from which it is said.
const POLLED_MUCH: f64 = 0.1;

#[cfg(test)]
mod tests;
