//! `roost.sweep`: every contestant in each cell of a grid.

use crate::errors::{PolicyError, raised, wrong};
use crate::own::Names;
use crate::scenario::{self, Asked};
use crate::supervise::supervised;
use crate::tables::Table;
use crate::values;
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use report::exit::usage;
use report::run::RunInfo;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sim::Document;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use study::cells::{self, Cell, Key};
use study::columns::Rows;
use study::grid::{Grid, Planned};
use study::page::{Facts, Swept, sweep_page};
use study::results::Results;
use study::sweep::{self as grids, Fault};
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
    let threads = asked.threads()?;
    let mut begun = Begun::new(py, &asked, &axes, out)?;
    let Begun { names, place, planned, cells, faults, .. } = &mut begun;
    match place {
        Some(sweep) => {
            supervised(py, progress, names, sweep.missing().len(), |stop, done| {
                sweep.simulate(threads, stop, &*done)
            })?;
        }
        None => supervised(py, progress, names, planned.len(), |stop, done| {
            let all: Vec<&Planned> = planned.iter().collect();
            let keep = |cell| {
                cells.push(cell);
                Ok(())
            };
            *faults = grids::simulate(&all, threads, stop, keep, &*done)?;
            Ok(())
        })?,
    }
    begun.end(py)
}

/// A sweep whose cells are still to be made, here or elsewhere.
struct Begun {
    document: Document,
    names: Names,
    info: RunInfo,
    /// The folder, which then has the planned and the finished cells.
    place: Option<grids::Sweep>,
    planned: Vec<Planned>,
    cells: Vec<Cell>,
    faults: Vec<Fault>,
}

impl Begun {
    fn new(
        py: Python<'_>,
        asked: &Asked<'_>,
        axes: &Bound<'_, PyMapping>,
        out: Option<PathBuf>,
    ) -> PyResult<Self> {
        let started = folder::started().map_err(raised)?;
        let names = asked.names()?;
        if out.is_some() && !names.is_empty() {
            return Err(wrong(
                "out: a folder cannot know whether the code of one's own policies has changed since\n\n\
                 hint: leave out or own away",
            ));
        }
        let document = asked.complete(with_axes(asked.document()?, asked, axes)?)?;
        asked.warn_of_shape(py, &document)?;
        // Of many cells it takes seconds.
        let mut planned = supervised(py, None, &names, 0, |stop, _| grid::cells(&document, stop))?;
        let scenario = document.scenario().map_err(usage).map_err(raised)?;
        let name = out.as_deref().map_or_else(String::new, folder::name_of);
        let info = folder::info(&document, name, scenario.title, started.clone()).map_err(raised)?;
        let begin =
            |place| grids::Sweep::begin(place, document.clone(), std::mem::take(&mut planned), started);
        let place = out.map(begin).transpose().map_err(raised)?;
        Ok(Self { document, names, info, place, planned, cells: Vec::new(), faults: Vec::new() })
    }

    /// All cells are made, but those that a fault ended.
    fn end(self, py: Python<'_>) -> PyResult<Sweep> {
        let Self { document, names, info, place, mut planned, mut cells, faults } = self;
        let about = if let Some(sweep) = place {
            let finished = sweep.end().map_err(raised)?;
            cells = finished.cells;
            finished.about
        } else {
            let broken: BTreeSet<String> = faults.iter().map(|fault| fault.key.text()).collect();
            planned.retain(|cell| !broken.contains(&cell.key.text()));
            cells = grids::in_order(&planned, cells).map_err(raised)?;
            grids::about(&document, planned)
        };
        if let Some(fault) = faults.first().filter(|_| cells.is_empty()) {
            let error = PolicyError::new_err(format!("{}: {}", fault.key.name(), fault.problem));
            error.set_cause(py, names.cause(py));
            return Err(error);
        }
        Ok(Sweep { about, cells, faults, info, document })
    }
}

/// A sweep whose cells other processes make, on this machine or on others: [`cells_at`] there,
/// `keep` here.
#[pyclass(frozen, module = "roost")]
pub struct Elsewhere(Mutex<Option<Begun>>);

/// The cells of [`cells_at`], as JSON on their way.
#[derive(Serialize, Deserialize)]
struct Made {
    cells: Vec<Cell>,
    faults: Vec<Fault>,
}

impl Elsewhere {
    fn with<T>(&self, of: impl FnOnce(&mut Begun) -> PyResult<T>) -> PyResult<T> {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        of(begun.as_mut().ok_or_else(|| PyRuntimeError::new_err("the sweep has ended"))?)
    }
}

#[pymethods]
impl Elsewhere {
    #[new]
    fn new(
        py: Python<'_>,
        asked: Asked<'_>,
        axes: Bound<'_, PyMapping>,
        out: Option<PathBuf>,
    ) -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(Begun::new(py, &asked, &axes, out)?))))
    }

    /// The scenario for [`cells_at`]: where files that it names are looked for, and its text.
    fn scenario(&self) -> PyResult<(PathBuf, String)> {
        self.with(|begun| scenario::packed(&begun.document))
    }

    /// The points whose cells are not all made, with the number of cells that are missing.
    fn missing(&self) -> PyResult<Vec<(usize, usize)>> {
        self.with(|begun| {
            let missing = match &begun.place {
                Some(sweep) => sweep.missing(),
                None => begun.planned.iter().collect(),
            };
            let mut points: BTreeMap<usize, usize> = BTreeMap::new();
            missing.iter().for_each(|cell| *points.entry(cell.point).or_default() += 1);
            Ok(points.into_iter().collect())
        })
    }

    /// Takes the cells of one call of [`cells_at`]; the name of the last.
    fn keep(&self, made: &[u8]) -> PyResult<String> {
        let made: Made = serde_json::from_slice(made).map_err(|error| raised(error.into()))?;
        let last = made.cells.last().map(|cell| &cell.key).or(made.faults.last().map(|fault| &fault.key));
        let last = last.map_or_else(String::new, Key::name);
        self.with(|begun| {
            begun.faults.extend(made.faults);
            match &mut begun.place {
                Some(sweep) => made.cells.iter().try_for_each(|cell| sweep.keep(cell)).map_err(raised)?,
                None => begun.cells.extend(made.cells),
            }
            Ok(last)
        })
    }

    /// All points are kept: their tables.
    fn end(&self, py: Python<'_>) -> PyResult<Sweep> {
        let begun = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        begun.ok_or_else(|| PyRuntimeError::new_err("the sweep has ended"))?.end(py)
    }
}

/// The cells of these points of another process's sweep, made one after the other.
#[pyfunction]
pub fn cells_at(
    py: Python<'_>,
    path: PathBuf,
    text: &str,
    points: Vec<usize>,
    own: Bound<'_, PyMapping>,
) -> PyResult<Vec<u8>> {
    let names = Names::of(&own)?;
    let planned = planned_at(path, text, &points)?;
    let mut cells = Vec::new();
    let faults = supervised(py, None, &names, planned.len(), |stop, done| {
        let all: Vec<&Planned> = planned.iter().collect();
        let keep = |cell| {
            cells.push(cell);
            Ok(())
        };
        grids::simulate(&all, 1, stop, keep, &*done)
    })?;
    serde_json::to_vec(&Made { cells, faults }).map_err(|error| raised(error.into()))
}

/// The cells of points. The next call is mostly about the same sweep, so its grid is kept.
fn planned_at(path: PathBuf, text: &str, points: &[usize]) -> PyResult<Vec<Planned>> {
    static LAST: Mutex<Option<(PathBuf, String, Grid)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let grid = match last.take() {
        Some((of, known, grid)) if of == path && known == text => grid,
        _ => Grid::new(&scenario::unpacked(&path, text)?).map_err(raised)?,
    };
    let cells = points.iter().map(|&point| grid.cells(point)).collect::<anyhow::Result<Vec<_>>>();
    *last = Some((path, text.to_owned(), grid));
    Ok(cells.map_err(raised)?.concat())
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
