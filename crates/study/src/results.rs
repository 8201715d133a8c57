//! Results for programs: one JSON document, and CSV files that pandas and DuckDB open as
//! they stand.

use super::figures::Figure;
use super::options::Checked;
use super::paired::{self, Compared};
use machine::Platform;
use serde::{Deserialize, Serialize};
use sim::outcome::{Estimate, Verdict};
use sim::statistics::{Precision, Quantity};
use sim::{Document, Goal, Outcome};
use std::io::{self, Write};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The machine that it ran on, by name; see [`Results::machines`].
    pub machine: String,
    /// The precision that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Its goal, and whether it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Judged>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judged {
    pub goal: Goal,
    /// The quantile that was found; `None` where the run does not say.
    pub found_ns: Option<Estimate>,
    /// Whether it was kept; `None` where the run does not say.
    pub met: Option<bool>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub format: u32,
    pub title: String,
    pub assumptions: Vec<String>,
    pub estimates: Vec<String>,
    /// The machines, each once, with their sources.
    pub machines: Vec<Platform>,
    /// The requests are a recorded trace, the same in every replication: no interval tells how it
    /// was sampled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_trace: bool,
    #[serde(rename = "contestants")]
    pub entries: Vec<Entry>,
    /// The contestants against one of them, pair by pair.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Compared>,
}

const FORMAT: u32 = 1;

impl Entry {
    /// A contestant's run and its goal.
    pub fn new(checked: &Checked, outcome: Outcome) -> Self {
        Self {
            machine: checked.platform.name.clone(),
            precision: checked.scenario.run.precision,
            goal: checked.scenario.goal.map(|goal| judge(goal, &outcome)),
            outcome,
        }
    }

    /// Something was asked for that it did not reach: a goal, a precision.
    pub fn falls_short(&self) -> bool {
        let missed = self.goal.as_ref().is_some_and(|goal| goal.met == Some(false));
        missed || self.misses_precision()
    }

    /// The precision that was asked for is not there, whatever the run was ended by.
    pub fn misses_precision(&self) -> bool {
        let Some(asked) = self.precision else { return false };
        match self.outcome.verdict {
            Verdict::Precise => false,
            // A story is told to its end, and may have become precise on the way.
            Verdict::Complete => {
                let found = self.outcome.responses.at(asked.quantity()).and_then(|found| found.interval());
                found.is_none_or(|interval| interval.relative() > asked.relative())
            }
            Verdict::Imprecise | Verdict::Unsettled | Verdict::Unstable => true,
        }
    }
}

/// The estimate decides; how sure it is, its interval tells.
fn judge(goal: Goal, outcome: &Outcome) -> Judged {
    if outcome.verdict == Verdict::Unstable {
        return Judged { goal, found_ns: None, met: Some(false) };
    }
    let found_ns = Quantity::of(goal).and_then(|quantity| outcome.responses.at(quantity));
    let met = found_ns.map(|found| found.value <= goal.latency.as_nanos() as f64);
    Judged { goal, found_ns, met }
}

impl Results {
    /// Of contestants that are compared with the one called `against`, or with the first.
    pub fn new(
        document: &Document,
        checked: &[Checked],
        outcomes: Vec<Outcome>,
        against: Option<&str>,
    ) -> Self {
        let mut machines: Vec<Platform> = Vec::new();
        for run in checked {
            if !machines.contains(&run.platform) {
                machines.push(run.platform.clone());
            }
        }
        let first = checked.first().map(|run| &run.scenario);
        let file = document.path().display().to_string();
        let title = first.map(|scenario| scenario.title.clone()).filter(|title| !title.is_empty());
        let mut estimates = document.estimates().to_vec();
        estimates.sort();
        estimates.dedup();
        let first_name = outcomes.first().map(|outcome| outcome.contestant.as_str());
        let reference = against.or(first_name).unwrap_or_default();
        let differences = paired::against(reference, &outcomes);
        Self {
            differences,
            format: FORMAT,
            title: title.unwrap_or(file),
            assumptions: first.map(|scenario| scenario.assumptions.clone()).unwrap_or_default(),
            estimates,
            machines,
            is_trace: first.is_some_and(|scenario| scenario.workload.trace.is_some()),
            entries: checked.iter().zip(outcomes).map(|(run, outcome)| Entry::new(run, outcome)).collect(),
        }
    }

    pub fn write_summary(&self, to: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        let figures = Figure::of_all(self.entries.iter().map(|entry| &entry.outcome));
        let first = ["contestant"].map(str::to_owned).into_iter();
        csv.write_record(first.chain(RUN_COLUMNS.map(str::to_owned)).chain(columns(&figures)))?;
        for entry in &self.entries {
            let first = std::iter::once(entry.outcome.contestant.clone());
            csv.write_record(first.chain(run_cells(entry)).chain(cells(&figures, &entry.outcome)))?;
        }
        csv.flush()
    }

    /// `points.csv`: the time series, one row per contestant and point.
    pub fn write_points(&self, to: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        let mut states: Vec<&str> = Vec::new();
        for state in self.entries.iter().flat_map(|entry| &entry.outcome.states) {
            if !states.contains(&state.name.as_str()) {
                states.push(&state.name);
            }
        }
        let plain = [
            "contestant",
            "until_s",
            "throughput",
            "mean_ns",
            "p99_ns",
            "cpu_watts",
            "active_cores",
            "awake_cores",
            "mhz",
        ];
        let residency = states.iter().map(|state| format!("residency.{state}"));
        csv.write_record(plain.map(str::to_owned).into_iter().chain(residency))?;
        let or_empty = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        for Entry { outcome, .. } in &self.entries {
            for point in &outcome.points {
                let plain = [
                    outcome.contestant.clone(),
                    point.until_s.to_string(),
                    point.rate.to_string(),
                    or_empty(point.mean_ns),
                    or_empty(point.p99_ns),
                    point.cpu_watts.to_string(),
                    point.active.to_string(),
                    point.awake.to_string(),
                    or_empty(point.mhz),
                ];
                let asleep = states.iter().map(|state| {
                    let place = outcome.states.iter().position(|other| other.name == *state);
                    or_empty(place.and_then(|place| point.asleep.get(place).copied()))
                });
                csv.write_record(plain.into_iter().chain(asleep))?;
            }
        }
        csv.flush()
    }
}

pub const RUN_COLUMNS: [&str; 9] =
    ["policies", "machine", "seed", "verdict", "replications", "requests", "length_s", "goal", "goal_met"];

pub fn run_cells(entry: &Entry) -> [String; 9] {
    let outcome = &entry.outcome;
    let goal = entry.goal.as_ref();
    [
        outcome.policies.clone(),
        entry.machine.clone(),
        outcome.seed.to_string(),
        verdict_name(outcome.verdict).to_owned(),
        outcome.replications.to_string(),
        outcome.requests.to_string(),
        outcome.length_s.to_string(),
        goal.map_or_else(String::new, |goal| goal.goal.to_string()),
        goal.and_then(|goal| goal.met).map_or_else(String::new, |met| met.to_string()),
    ]
}

/// The names of the figures' columns.
pub fn columns(figures: &[Figure]) -> impl Iterator<Item = String> {
    figures.iter().flat_map(Figure::columns)
}

pub fn cells(figures: &[Figure], outcome: &Outcome) -> impl Iterator<Item = String> {
    figures.iter().flat_map(|figure| figure.cells(outcome))
}

pub fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Complete => "complete",
        Verdict::Precise => "precise",
        Verdict::Imprecise => "imprecise",
        Verdict::Unstable => "unstable",
        Verdict::Unsettled => "unsettled",
    }
}
