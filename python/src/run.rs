//! `roost.run`: every contestant once, side by side.

use crate::errors::{PolicyError, raised, wrong};
use crate::scenario::Asked;
use crate::supervise::supervised;
use crate::tables::Table;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use report::exit::usage;
use report::run::RunInfo;
use sim::outcome::Lengths;
use sim::runner::{self, Task};
use sim::{Document, Outcome, ScenarioError};
use study::columns::{Columns, Rows};
use study::options::{self, Checked};
use study::page::{Facts, run_page};
use study::results::{Entry, Results};
use study::{folder, paired};

/// The outcome of `roost.run`, from which all tables are made.
#[pyclass(frozen, module = "roost")]
pub struct Run {
    results: Results,
    /// The part of a page that is not in the results; absent where they were loaded.
    about: Option<(RunInfo, Document)>,
}

/// The tables of a run, by the names that `Result.table` takes.
const TABLES: [&str; 8] = [
    "summary",
    "points",
    "residency",
    "idle_lengths",
    "active_lengths",
    "frequencies",
    "classes",
    "differences",
];

#[pyfunction]
#[pyo3(signature = (asked, against, progress))]
pub fn run(
    py: Python<'_>,
    asked: Asked<'_>,
    against: Option<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Run> {
    let started = folder::started().map_err(raised)?;
    let names = asked.names()?;
    let document = asked.complete(asked.document()?)?;
    let scenario = document.scenario().map_err(usage).map_err(raised)?;
    if scenario.fleet.is_some() {
        return Err(wrong("fleet: roost.run simulates one server\n\nhint: roost.fleet simulates many"));
    }
    asked.warn_of_shape(py, &document)?;
    let contestants = options::contestants(&document).map_err(raised)?;
    if let Some(name) = &against
        && !contestants.iter().any(|contestant| contestant.name == *name)
    {
        let all: Vec<&str> = contestants.iter().map(|contestant| contestant.name.as_str()).collect();
        let all = all.join(", ");
        return Err(wrong(format!("against: no contestant is called `{name}`\n\nhint: there are {all}")));
    }
    // A trace is read to its end.
    let checked = || contestants.into_iter().map(options::task).collect::<anyhow::Result<Vec<Checked>>>();
    let checked = py.detach(checked).map_err(raised)?;
    let tasks: Vec<Task> = checked.iter().map(|run| run.task.clone()).collect();
    let threads = asked.threads()?;
    let outcomes = supervised(py, progress, &names, tasks.len(), |stop, done| {
        let told = |place: usize, _: &_| done(&tasks[place].contestant.name);
        let outcomes = runner::run_all(&tasks, threads, stop, told);
        outcomes.into_iter().collect::<Result<Vec<Outcome>, _>>().map_err(|error| match error {
            ScenarioError::Policy { .. } => error.into(),
            error => usage(error),
        })
    });
    let outcomes = outcomes.inspect_err(|error| {
        if error.is_instance_of::<PolicyError>(py) {
            error.set_cause(py, names.cause(py));
        }
    })?;
    let results = Results::new(&document, &checked, outcomes, against.as_deref());
    let info = folder::info(&document, String::new(), results.title.clone(), started).map_err(raised)?;
    Ok(Run { results, about: Some((info, document)) })
}

impl Run {
    /// Of a folder: the document that `roost sim run` left there.
    pub fn loaded(results: Results) -> Self {
        Self { results, about: None }
    }
}

#[pymethods]
impl Run {
    #[getter]
    fn title(&self) -> &str {
        &self.results.title
    }

    #[getter]
    fn assumptions(&self) -> Vec<String> {
        self.results.assumptions.clone()
    }

    /// The names that [`table`](Self::table) takes, in the order of their use.
    #[getter]
    fn tables(&self) -> [&'static str; TABLES.len()] {
        TABLES
    }

    fn table(&self, name: &str) -> PyResult<Table> {
        let entries = &self.results.entries;
        Table::new(match name {
            "summary" => self.results.summary(),
            "points" => self.results.points(),
            "residency" => residency(entries),
            "idle_lengths" => lengths(entries, |run| &run.idle_lengths),
            "active_lengths" => lengths(entries, |run| &run.active_lengths),
            "frequencies" => frequencies(entries),
            "classes" => classes(entries),
            "differences" => paired::columns(&self.results.differences),
            _ => {
                let all = TABLES.join(", ");
                return Err(PyKeyError::new_err(format!("no table is called `{name}`: there are {all}")));
            }
        })
    }

    /// The document that `roost sim run --json` prints.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string_pretty(&self.results).map_err(|error| raised(error.into()))
    }

    /// The page of `roost sim run` as HTML, or None where the scenario is not known.
    fn page(&self) -> PyResult<Option<String>> {
        let Some((info, document)) = &self.about else { return Ok(None) };
        let scenario = document.scenario().map_err(usage).map_err(raised)?;
        let outcomes: Vec<Outcome> = self.results.entries.iter().map(|entry| entry.outcome.clone()).collect();
        Ok(Some(run_page(&Facts::new(info, &self.results, &scenario), &outcomes).html()))
    }
}

/// The parts of all runs, each with its run.
fn parts<T>(entries: &[Entry], of: fn(&Outcome) -> &Vec<T>) -> Vec<(&str, &T)> {
    let runs = entries.iter().map(|entry| &entry.outcome);
    runs.flat_map(|run| of(run).iter().map(move |part| (run.contestant.as_str(), part))).collect()
}

/// A row for each contestant and idle state, shallow to deep.
fn residency(entries: &[Entry]) -> Columns {
    let states = parts(entries, |run| &run.states);
    let rows = Rows::of(&states)
        .text("contestant", |(run, _)| (*run).to_owned())
        .text("state", |(_, state)| state.name.clone())
        .number("share", |(_, state)| state.share)
        .number("sleeps_per_s", |(_, state)| state.sleeps_per_s)
        .number("premature", |(_, state)| state.premature)
        .number("missed_deep", |(_, state)| state.missed_deep);
    rows.end()
}

/// A row for each contestant and doubling of a period's length.
fn lengths(entries: &[Entry], of: fn(&Outcome) -> &Lengths) -> Columns {
    let mut buckets = Vec::new();
    for run in entries.iter().map(|entry| &entry.outcome) {
        let Lengths { from_ns, per_s, time_share } = of(run);
        let numbers = from_ns.iter().zip(per_s).zip(time_share);
        buckets.extend(numbers.map(|((from_ns, per_s), share)| (&run.contestant, *from_ns, *per_s, *share)));
    }
    let rows = Rows::of(&buckets)
        .text("contestant", |bucket| bucket.0.clone())
        .count("from_ns", |bucket| bucket.1)
        .count("to_ns", |bucket| bucket.1.saturating_mul(2))
        .number("per_s", |bucket| bucket.2)
        .number("time_share", |bucket| bucket.3);
    rows.end()
}

/// A row for each contestant and operating point, slow to fast.
fn frequencies(entries: &[Entry]) -> Columns {
    let points = parts(entries, |run| &run.frequencies);
    let rows = Rows::of(&points)
        .text("contestant", |(run, _)| (*run).to_owned())
        .count("khz", |(_, point)| point.0)
        .number("share", |(_, point)| point.1);
    rows.end()
}

/// A row for each contestant and class of requests.
fn classes(entries: &[Entry]) -> Columns {
    let classes = parts(entries, |run| &run.classes);
    let rows = Rows::of(&classes)
        .text("contestant", |(run, _)| (*run).to_owned())
        .text("class", |(_, class)| class.name.clone())
        .count("requests", |(_, class)| class.requests)
        .count("missed", |(_, class)| class.missed);
    rows.end()
}
