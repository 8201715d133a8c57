//! `roost.sweep`: every contestant in each cell of a grid.

use crate::errors::{PolicyError, raised, wrong};
use crate::scenario::Asked;
use crate::supervise::supervised;
use crate::tables::Table;
use crate::values;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use report::exit::usage;
use report::run::RunInfo;
use serde_json::json;
use sim::Document;
use std::collections::BTreeSet;
use std::path::PathBuf;
use study::cells::{self, Cell};
use study::columns::Rows;
use study::page::{Facts, Swept, sweep_page};
use study::results::Results;
use study::sweep::{self as grids, Fault, Finished};
use study::{folder, grid, options};
use toml::Value;

/// The outcome of `roost.sweep`, from which its table is made.
#[pyclass(frozen, module = "roost")]
pub struct Sweep {
    about: Results,
    cells: Vec<Cell>,
    faults: Vec<Fault>,
    info: RunInfo,
    document: Document,
}

#[pyfunction]
#[pyo3(signature = (asked, axes, out, progress))]
pub fn sweep(
    py: Python<'_>,
    asked: Asked<'_>,
    axes: Bound<'_, PyMapping>,
    out: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Sweep> {
    let started = folder::started().map_err(raised)?;
    let names = asked.names()?;
    if out.is_some() && !names.is_empty() {
        return Err(wrong(
            "out: a folder cannot know whether the code of one's own policies has changed since\n\n\
             hint: leave out or own away",
        ));
    }
    let document = asked.complete(with_axes(asked.document()?, &asked, &axes)?)?;
    asked.warn_of_shape(py, &document)?;
    // Of many cells it takes seconds.
    let planned = py.detach(|| grid::cells(&document)).map_err(raised)?;
    let scenario = document.scenario().map_err(usage).map_err(raised)?;
    let name = out.as_deref().map_or_else(String::new, folder::name_of);
    let info = folder::info(&document, name, scenario.title, started.clone()).map_err(raised)?;
    let threads = asked.threads()?;
    let mut faults = Vec::new();
    let (about, cells) = if let Some(place) = out {
        let mut sweep = grids::Sweep::begin(place, document.clone(), planned, started).map_err(raised)?;
        let (_, missing) = sweep.counts();
        supervised(py, progress, &names, missing, |stop, done| sweep.simulate(threads, stop, &*done))?;
        let Finished { about, cells, .. } = sweep.end().map_err(raised)?;
        (about, cells)
    } else {
        let total = planned.len();
        let mut planned = planned;
        let cells = supervised(py, progress, &names, total, |stop, done| {
            let (all, mut cells): (Vec<_>, _) = (planned.iter().collect(), Vec::new());
            let keep = |cell| {
                cells.push(cell);
                Ok(())
            };
            faults = grids::simulate(&all, threads, stop, keep, &*done)?;
            let broken: BTreeSet<String> = faults.iter().map(|fault| fault.key.text()).collect();
            planned.retain(|cell| !broken.contains(&cell.key.text()));
            grids::in_order(&planned, cells)
        })?;
        (grids::about(&document, planned), cells)
    };
    if let Some(fault) = faults.first().filter(|_| cells.is_empty()) {
        let error = PolicyError::new_err(format!("{}: {}", fault.key.name(), fault.problem));
        error.set_cause(py, names.cause(py));
        return Err(error);
    }
    Ok(Sweep { about, cells, faults, info, document })
}

/// The scenario's axes with those of the call; a key that is set is no axis.
fn with_axes(document: Document, asked: &Asked<'_>, axes: &Bound<'_, PyMapping>) -> PyResult<Document> {
    let mut all = document.table().get("sweep").and_then(Value::as_table).cloned().unwrap_or_default();
    for (key, _) in &asked.changes()? {
        all.remove(key);
    }
    for (key, values) in values::table(axes, "axes")? {
        let Value::Array(_) = &values else {
            return Err(wrong(format!("axes: {key} = {values}: one value\n\nhint: write a list of values")));
        };
        all.insert(key, values);
    }
    if all.is_empty() {
        return Err(wrong(
            "axes: none\n\nhint: such as axes={\"workload.rate\": [\"10k\", \"20k\"]}, or a table `sweep` in \
             the scenario",
        ));
    }
    // Typed at once, so that a value that cannot be is blamed on its axis.
    for (key, values) in &all {
        for value in values.as_array().into_iter().flatten() {
            options::set(&document, key, value).map_err(raised)?;
        }
    }
    document.with("sweep", &Value::Table(all)).map_err(usage).map_err(raised)
}

#[pymethods]
impl Sweep {
    #[getter]
    fn title(&self) -> &str {
        &self.about.title
    }

    /// The dotted keys of the axes, in the order of the table's columns.
    #[getter]
    fn axes(&self) -> Vec<String> {
        self.cells.first().map(|cell| cell.key.axes.keys().cloned().collect()).unwrap_or_default()
    }

    /// The tables `cells`: axes, contestant, how each was run, its figures; and `faults`: cells that a
    /// policy's fault ended.
    fn table(&self, name: &str) -> PyResult<Table> {
        let rows = Rows::of(&self.faults)
            .text("cell", |fault| fault.key.name())
            .text("problem", |fault| fault.problem.clone());
        match name {
            "cells" => Table::new(cells::columns(&self.cells)),
            "faults" => Table::new(rows.end()),
            _ => Err(PyKeyError::new_err(format!("no table is called `{name}`: there are cells, faults"))),
        }
    }

    /// The document that `roost sim sweep --json` prints.
    fn to_json(&self) -> PyResult<String> {
        let json = || {
            let mut document = serde_json::to_value(&self.about)?;
            document["cells"] = json!(self.cells);
            serde_json::to_string_pretty(&document)
        };
        json().map_err(|error| raised(error.into()))
    }

    /// The page of `roost sim sweep` as HTML.
    fn page(&self) -> PyResult<String> {
        let scenario = self.document.scenario().map_err(usage).map_err(raised)?;
        let swept: Vec<Swept<'_>> = self.cells.iter().map(Cell::swept).collect();
        Ok(sweep_page(&Facts::new(&self.info, &self.about, &scenario), &swept).html())
    }
}
