//! Results for programs: one JSON document, and tables: pandas and DuckDB open their CSV files as
//! they stand.

use super::columns::{Columns, Rows};
use super::figures::Figure;
use super::options::Checked;
use super::paired::{self, Compared};
use machine::Platform;
use report::distinct;
use serde::{Deserialize, Serialize};
use sim::floor::Floor;
use sim::outcome::{Estimate, Point, Responses, Verdict};
use sim::statistics::{Precision, Quantity};
use sim::{Document, Goal, Outcome, ScenarioError};

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
    /// Watts that no policy can go below, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
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

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub format: u32,
    pub title: String,
    pub assumptions: Vec<String>,
    pub estimates: Vec<String>,
    /// The machines, each once, with their sources.
    pub machines: Vec<Platform>,
    /// The requests are a recorded trace, the same in every replication: no interval tells how it
    /// was sampled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_trace: bool,
    #[serde(rename = "contestants")]
    pub entries: Vec<Entry>,
    /// The contestants against one of them, pair by pair.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Compared>,
}

const FORMAT: u32 = 1;

impl Entry {
    /// A contestant's run and its goal.
    pub fn new(checked: &Checked, outcome: Outcome) -> Self {
        let judge = |goal| Judged::new(goal, outcome.verdict, Some(&outcome.responses));
        Self {
            machine: checked.platform.name.clone(),
            precision: checked.scenario.run.precision,
            goal: checked.scenario.goal.map(judge),
            floor: None,
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

impl Judged {
    /// The estimate decides; how sure it is, its interval tells.
    pub fn new(goal: Goal, verdict: Verdict, responses: Option<&Responses>) -> Self {
        if verdict == Verdict::Unstable {
            return Self { goal, found_ns: None, met: Some(false) };
        }
        let found_ns = Quantity::of(goal).and_then(|quantity| responses?.at(quantity));
        let met = found_ns.map(|found| found.value <= goal.latency.as_nanos() as f64);
        Self { goal, found_ns, met }
    }
}

impl Results {
    /// Of contestants that are compared with the one called `against`, or with the first.
    pub fn new(
        document: &Document,
        checked: &[Checked],
        outcomes: Vec<Outcome>,
        against: Option<&str>,
    ) -> Self {
        let machines = distinct(checked.iter().map(|run| &run.platform));
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
            machines: machines.into_iter().cloned().collect(),
            is_trace: first.is_some_and(|scenario| scenario.workload.trace.is_some()),
            entries: checked.iter().zip(outcomes).map(|(run, outcome)| Entry::new(run, outcome)).collect(),
        }
    }

    /// The same, with the watts that no policy can go below at each contestant's rate.
    pub fn with_floors(mut self, checked: &[Checked]) -> Result<Self, ScenarioError> {
        for (entry, run) in self.entries.iter_mut().zip(checked) {
            entry.floor = Some(run.task.floor(entry.outcome.rate)?);
        }
        Ok(self)
    }

    /// `summary.csv`: one row per contestant, how it was run and its figures.
    pub fn summary(&self) -> Columns {
        let rows = Rows::of(&self.entries).text("contestant", |entry| entry.outcome.contestant.clone());
        of_runs(rows, &self.entries, |entry| entry)
    }

    /// `points.csv`: the time series, one row per contestant and point.
    pub fn points(&self) -> Columns {
        let runs = || self.entries.iter().map(|entry| &entry.outcome);
        let states = distinct(runs().flat_map(|run| run.states.iter().map(|state| state.name.as_str())));
        let points: Vec<(&Outcome, &Point)> =
            runs().flat_map(|run| run.points.iter().map(move |point| (run, point))).collect();
        let rows = Rows::of(&points)
            .text("contestant", |(run, _)| run.contestant.clone())
            .number("until_s", |(_, point)| point.until_s)
            .number("throughput", |(_, point)| point.rate)
            .number("mean_ns", |(_, point)| point.mean_ns)
            .number("p99_ns", |(_, point)| point.p99_ns)
            .number("cpu_watts", |(_, point)| point.cpu_watts)
            .number("active_cores", |(_, point)| point.active)
            .number("awake_cores", |(_, point)| point.awake)
            .number("mhz", |(_, point)| point.mhz);
        let with_states = states.iter().fold(rows, |rows, state| {
            rows.number(format!("residency.{state}"), |(run, point)| {
                let place = run.states.iter().position(|other| other.name == *state)?;
                point.asleep.get(place).copied()
            })
        });
        with_states.end()
    }
}

/// A table with the columns of runs added: how each was made, and its figures.
pub fn of_runs<'a, R>(rows: Rows<'a, R>, all: &'a [R], entry: fn(&R) -> &Entry) -> Columns {
    let run = |row: &'a R| &entry(row).outcome;
    let goal = |row| entry(row).goal.as_ref();
    let rows = rows
        .text("policies", |row| run(row).policies.clone())
        .text("machine", |row| entry(row).machine.clone())
        .count("seed", |row| run(row).seed)
        .text("verdict", |row| verdict_name(run(row).verdict).to_owned())
        .count("replications", |row| u64::from(run(row).replications))
        .count("requests", |row| run(row).requests)
        .number("length_s", |row| run(row).length_s)
        .text("goal", |row| goal(row).map(|goal| goal.goal.to_string()))
        .truth("goal_met", |row| goal(row).and_then(|goal| goal.met));
    Figure::of_all(all.iter().map(run)).iter().fold(rows, |rows, figure| figure.add(rows, run)).end()
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
