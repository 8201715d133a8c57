//! The recorded run, simulated, beside the recorded run, measured.
//!
//! The error on the recorded run bounds the trust in every other one. A row without a measurement,
//! or without a figure of the simulation, has no error and is shown as missing.

use super::recording::Recording;
use crate::outcome::{Outcome, Verdict};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub what: &'static str,
    pub unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled: Option<f64>,
    /// The relative error: (modelled - measured) / measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// The largest error beyond which predictions are worth little; `None` where it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The part of the model to suspect beyond the limit.
    pub suspect: &'static str,
}

impl Compared {
    /// True if the error is known and beyond its limit.
    pub fn is_beyond(&self) -> bool {
        self.error.zip(self.limit).is_some_and(|(error, limit)| error.abs() > limit)
    }
}

/// Idle periods by length, of both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleLength {
    pub from_ns: u64,
    pub measured_share: f64,
    pub modelled_share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fidelity {
    pub rows: Vec<Compared>,
    /// Shares of all CPU time in idle periods, by octaves of length.
    pub idle_lengths: Vec<IdleLength>,
    /// Why the predictions are worth little; empty if they are worth something.
    pub reasons: Vec<String>,
}

/// p50 and p99: the error that nine of ten predictions are to stay within.
const RESPONSE_LIMIT: f64 = 0.35;
/// Twice the bar of predicted CPU time, which is for means of many runs.
const BUSY_LIMIT: f64 = 0.10;

/// From this share of the CPUs on, work that is always ready takes part: ESTIMATE.
const ALL_BUSY: f64 = 0.95;

impl Fidelity {
    pub fn of(recording: &Recording, outcome: &Outcome, cpus: f64) -> Self {
        let row = |what, unit, measured: Option<f64>, modelled: Option<f64>, limit, suspect| {
            let error = measured
                .zip(modelled)
                .filter(|(measured, _)| *measured > 0.0)
                .map(|(measured, modelled)| (modelled - measured) / measured);
            Compared { what, unit, measured, modelled, error, limit, suspect }
        };
        let value = |known: &Option<super::Known<f64>>| known.as_ref().map(|known| known.value);
        let micros = |found: Option<crate::outcome::Estimate>| found.map(|found| found.value / 1e3);
        let answers = &recording.responses;
        // Polling and the way out of a state are idle to the kernel's cpu_idle event.
        let busy = cpus * outcome.working;
        // A shorter tail than the recorded one is made up for: see `Calibration`.
        let p99 = micros(outcome.responses.p99_ns);
        let is_shorter = answers.tail_us().zip(p99).is_some_and(|(seen, model)| model < seen);
        let mut rows = vec![
            row(
                "p50",
                "us",
                value(&answers.p50_us),
                micros(outcome.responses.p50_ns),
                Some(RESPONSE_LIMIT),
                "the wake-up times of the idle states, or the work by request",
            ),
            row(
                "p99",
                "us",
                answers.tail_us(),
                p99,
                (!is_shorter).then_some(RESPONSE_LIMIT),
                "the burstiness of arrivals, the variation of work, or other work on these CPUs",
            ),
            row(
                "busy CPUs",
                "",
                value(&recording.sleeps.busy_cpus),
                Some(busy),
                Some(BUSY_LIMIT),
                "CPU time that no thread's count holds: interrupts, or threads that came and went",
            ),
            row(
                "wake-ups",
                "/s",
                value(&recording.sleeps.wakes_per_s),
                Some(outcome.idle_periods_per_s()),
                None,
                "which work shares a wake-up with a request",
            ),
            row(
                "requests",
                "/s",
                value(&recording.arrivals.rate_per_s),
                Some(outcome.rate),
                Some(BUSY_LIMIT),
                "the pause of clients that wait for replies",
            ),
        ];
        for state in recording.machine.states.iter().filter(|state| !state.polls) {
            let Some(share) = state.share else { continue };
            let modelled = outcome.states.iter().find(|known| known.name == state.name);
            rows.push(row("idle share", "", Some(share), modelled.map(|known| known.share), None, ""));
        }
        let mut reasons: Vec<String> = rows
            .iter()
            .filter(|row| row.is_beyond())
            .map(|row| {
                format!(
                    "{} is {:+.0} % off, and {:.0} % is the limit; suspect {}",
                    row.what,
                    row.error.unwrap_or(0.0) * 100.0,
                    row.limit.unwrap_or(0.0) * 100.0,
                    row.suspect
                )
            })
            .collect();
        if outcome.verdict == Verdict::Unstable {
            reasons.push(
                "the model cannot serve what the service served: its work by request is too long".to_owned(),
            );
        }
        let busy = value(&recording.sleeps.busy_cpus).unwrap_or(0.0);
        if busy >= ALL_BUSY * cpus {
            reasons.push(format!(
                "{busy:.2} of {cpus:.0} CPUs were busy throughout: the model puts other work ahead of \
                 requests, where the kernel shares; record while little else runs"
            ));
        }
        let known = rows.iter().any(|row| row.limit.is_some() && row.unit == "us" && row.error.is_some());
        if !known && reasons.is_empty() {
            reasons.push("no response time was recorded, so nothing tells how good the model is".to_owned());
        }
        Self { rows, idle_lengths: idle_lengths(recording, outcome), reasons }
    }

    /// True if the error on the recorded run leaves the predictions a value.
    pub fn is_worth_something(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Both histograms in the simulator's octaves.
fn idle_lengths(recording: &Recording, outcome: &Outcome) -> Vec<IdleLength> {
    if recording.sleeps.idle_lengths.is_empty() {
        return Vec::new();
    }
    let modelled = outcome.idle_lengths.from_ns.iter().zip(&outcome.idle_lengths.time_share);
    let mut shares: std::collections::BTreeMap<u64, (f64, f64)> = std::collections::BTreeMap::new();
    for (&from, &share) in modelled {
        shares.entry(from).or_default().1 += share;
    }
    let first = outcome.idle_lengths.from_ns.first().copied().unwrap_or(512);
    for length in &recording.sleeps.idle_lengths {
        let octave = if length.from_ns < first { first } else { 1 << length.from_ns.ilog2() };
        shares.entry(octave).or_default().0 += length.time_share;
    }
    let rows = shares.into_iter().map(|(from_ns, (measured_share, modelled_share))| IdleLength {
        from_ns,
        measured_share,
        modelled_share,
    });
    rows.filter(|row| row.measured_share > 0.0005 || row.modelled_share > 0.0005).collect()
}

#[cfg(test)]
mod tests {
    use super::super::recording::tests::sample;
    use super::super::written::scenario_text;
    use super::super::{Known, Recording};
    use super::*;
    use crate::runner::Task;
    use crate::scenario::{Document, Estimates};
    use std::path::Path;

    fn simulated(recording: &Recording) -> Outcome {
        let text = scenario_text(recording, None).unwrap();
        let document = Document::parse(Path::new("s.toml"), &text, &Estimates::default()).unwrap();
        let document = document.with("run.requests", &toml::Value::Integer(30_000)).unwrap();
        let contestant = document.contestants().unwrap().remove(0);
        Task { contestant, seed: 1 }.run().unwrap()
    }

    /// A recording made of the model's own figures has no error, and one beyond the limit says why.
    #[test]
    fn the_model_agrees_with_itself_and_disagrees_with_twice_itself() {
        let mut recording = sample();
        let outcome = simulated(&recording);
        let micros = |found: Option<crate::outcome::Estimate>| found.unwrap().value / 1e3;
        recording.responses.p50_us = Some(Known::measured(micros(outcome.responses.p50_ns), "itself"));
        recording.responses.p99_us = Some(Known::measured(micros(outcome.responses.p99_ns), "itself"));
        let busy = 2.0 * outcome.working;
        recording.sleeps.busy_cpus = Some(Known::measured(busy, "itself"));
        recording.machine.states[1].share = Some(outcome.states[0].share);
        let same = Fidelity::of(&recording, &outcome, 2.0);
        assert!(same.is_worth_something(), "{:?}", same.reasons);
        let errors: Vec<f64> = same.rows.iter().take(3).filter_map(|row| row.error).collect();
        assert!(errors.len() == 3 && errors.iter().all(|error| error.abs() < 1e-9), "{errors:?}");
        recording.sleeps.busy_cpus.as_mut().unwrap().value = 1.95;
        let full = Fidelity::of(&recording, &outcome, 2.0);
        assert!(full.reasons.iter().any(|reason| reason.contains("busy throughout")), "{:?}", full.reasons);
        recording.responses.p50_us.as_mut().unwrap().value *= 2.0;
        let other = Fidelity::of(&recording, &outcome, 2.0);
        assert!(!other.is_worth_something());
        assert!(other.reasons[0].contains("p50 is -50 % off"), "{:?}", other.reasons);
    }

    #[test]
    fn without_response_times_nothing_is_promised() {
        let mut recording = sample();
        recording.responses = Default::default();
        recording.sleeps = Default::default();
        let fidelity = Fidelity::of(&recording, &simulated(&recording), 2.0);
        assert!(fidelity.reasons[0].contains("no response time"), "{:?}", fidelity.reasons);
        assert!(fidelity.rows.iter().take(3).all(|row| row.error.is_none()));
    }
}
