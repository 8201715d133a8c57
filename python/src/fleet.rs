//! `roost.fleet`: servers behind a root that waits for the slowest.

use crate::errors::{raised, wrong};
use crate::own::Names;
use crate::scenario::{self, Asked};
use crate::supervise::supervised;
use crate::tables::Table;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use report::exit::usage;
use sim::Document;
use std::ops::Range;
use std::path::PathBuf;
use study::fleet::FleetResults;
use study::options::{self, Checked};
use study::results::Results;
use toml::Value;

/// The outcome of `roost.fleet`, from which all tables are made.
#[pyclass(frozen, module = "roost")]
pub struct Fleet {
    pub results: FleetResults,
}

#[pyfunction]
#[pyo3(signature = (asked, progress))]
pub fn fleet(py: Python<'_>, asked: Asked<'_>, progress: Option<Py<PyAny>>) -> PyResult<Fleet> {
    let document = document(py, &asked)?;
    let all = options::contestants(&document).map_err(raised)?.len();
    Ok(Fleet { results: simulated(py, &document, 0..all, asked.threads()?, progress)? })
}

/// The scenario of a call for [`fleet_at`], its title, and the number of its fleets.
#[pyfunction]
pub fn fleets_elsewhere(py: Python<'_>, asked: Asked<'_>) -> PyResult<(PathBuf, String, String, usize)> {
    let document = document(py, &asked)?;
    let contestants = options::contestants(&document).map_err(raised)?;
    let seed = document.scenario().map_err(usage).map_err(raised)?.run.seed;
    for contestant in &contestants {
        sim::fleet::Fleet::new(contestant, seed).map_err(usage).map_err(raised)?;
    }
    let (path, text) = scenario::packed(&document)?;
    let title = Results::new(&document, &[], Vec::new(), None).title;
    Ok((path, text, title, contestants.len()))
}

/// One fleet of another process's call, as JSON.
#[pyfunction]
pub fn fleet_at(py: Python<'_>, path: PathBuf, text: &str, place: usize) -> PyResult<String> {
    let document = scenario::unpacked(&path, text)?;
    let results = simulated(py, &document, place..place + 1, 1, None)?;
    serde_json::to_string(&results).map_err(|error| raised(error.into()))
}

/// The fleets that [`fleet_at`] has made, in the order of the call's, under its title.
#[pyfunction]
pub fn fleets_joined(title: String, parts: Vec<String>) -> PyResult<Fleet> {
    let read = |part: &String| serde_json::from_str::<FleetResults>(part);
    let parts = parts.iter().map(read).collect::<Result<Vec<_>, _>>();
    let mut parts = parts.map_err(|error| raised(error.into()))?.into_iter();
    let mut results = parts.next().ok_or_else(|| wrong("no fleet"))?;
    parts.for_each(|part| results.fleets.extend(part.fleets));
    results.title = title;
    Ok(Fleet { results })
}

/// The scenario of a call, complete.
fn document(py: Python<'_>, asked: &Asked<'_>) -> PyResult<Document> {
    let mut document = asked.document()?;
    if !document.table().contains_key("fleet") {
        return Err(wrong(
            "fleet: the scenario has no fleet\n\nhint: roost.fleet(..., servers=100, fanout=100), or a table \
             `fleet` in the scenario; one server is roost.run",
        ));
    }
    document = asked.complete(document)?;
    if asked.has_policies() {
        // The call's policies name whole fleets.
        document =
            document.with("fleet.policies", &Value::Array(Vec::new())).map_err(usage).map_err(raised)?;
    }
    asked.warn_of_shape(py, &document)?;
    Ok(document)
}

/// Some of the document's fleets, by their places.
fn simulated(
    py: Python<'_>,
    document: &Document,
    places: Range<usize>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<FleetResults> {
    let scenario = document.scenario().map_err(usage).map_err(raised)?;
    let contestants = options::contestants(document).map_err(raised)?;
    let wanted = contestants.get(places).ok_or_else(|| wrong("no such fleet"))?;
    let fleets = wanted.iter().map(|contestant| sim::fleet::Fleet::new(contestant, scenario.run.seed));
    let mut fleets: Vec<sim::fleet::Fleet> =
        fleets.collect::<Result<_, _>>().map_err(usage).map_err(raised)?;
    // A trace is read to its end.
    let checked = || contestants.into_iter().map(options::task).collect::<anyhow::Result<Vec<Checked>>>();
    let checked = py.detach(checked).map_err(raised)?;
    let total = fleets.iter().map(|fleet| fleet.servings() as usize).sum();
    let outcomes = supervised(py, progress, &Names::none(), total, |stop, done| {
        fleets
            .iter_mut()
            .map(|fleet| {
                fleet.stop = stop.clone();
                fleet.run(threads, || done(fleet.name())).map_err(usage)
            })
            .collect()
    })?;
    let about = Results::new(document, &checked, Vec::new(), None);
    Ok(FleetResults::new(&about, scenario.goal, outcomes))
}

#[pymethods]
impl Fleet {
    #[getter]
    fn title(&self) -> &str {
        &self.results.title
    }

    fn table(&self, name: &str) -> PyResult<Table> {
        Table::new(match name {
            "summary" => self.results.summary(),
            "fanouts" => self.results.fanouts(),
            "groups" => self.results.groups(),
            "points" => self.results.points(),
            _ => {
                let known = "there are summary, fanouts, groups, points";
                return Err(PyKeyError::new_err(format!("no table is called `{name}`: {known}")));
            }
        })
    }

    /// The document that `roost sim fleet --json` prints.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string_pretty(&self.results).map_err(|error| raised(error.into()))
    }
}
