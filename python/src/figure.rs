//! `roost.figure`: a paper's figure simulated, beside the printed numbers.

use crate::errors::raised;
use crate::own::Names;
use crate::supervise::supervised;
use crate::tables::Table;
use anyhow::Result;
use papers::library::Library;
use papers::results::Results;
use papers::runs::Runs;
use papers::{Reproduction, Request, reproduce, terminal};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use serde_json::Value;
use sim::Outcome;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use study::columns::{Columns, Rows};
use study::figures::Figure;
use study::folder;

/// The outcome of `roost.figure`, its tables made.
#[pyclass(frozen, module = "roost")]
pub struct Figures {
    title: String,
    claims: Columns,
    runs: Columns,
    json: String,
    text: String,
}

#[pyfunction]
#[pyo3(signature = (names, papers, out, short, quick, threads, progress))]
#[allow(clippy::too_many_arguments)]
pub fn figure(
    py: Python<'_>,
    names: Vec<String>,
    papers: Option<PathBuf>,
    out: Option<PathBuf>,
    short: bool,
    quick: bool,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Figures> {
    let library = Library::open(papers.as_deref()).map_err(raised)?;
    // A wrong name is refused before a folder is made.
    library.select(&names).map_err(raised)?;
    let started = folder::started().map_err(raised)?;
    // Runs are kept as they finish: without a folder, until the figure is done.
    let kept = tempfile::tempdir()?;
    let place = out.clone().unwrap_or_else(|| kept.path().to_owned());
    if out.is_some() {
        folder::create(&place).map_err(raised)?;
    }
    let threads = threads.and_then(NonZeroUsize::new);
    let request =
        Request { names, is_short: short, is_quick: quick, threads, is_silent: true, ..Request::default() };
    supervised(py, progress, &Names::none(), 0, |stop, done| {
        let mut runs = Runs::open(&place)?;
        runs.stop = stop.clone();
        runs.told = Some(done);
        let reproduction = reproduce(&library, &mut runs, &request)?;
        if out.is_some() {
            papers::write(&reproduction, &place, &started)?;
        }
        Figures::new(&reproduction)
    })
}

impl Figures {
    fn new(reproduction: &Reproduction<'_>) -> Result<Self> {
        let json = serde_json::to_value(Results::new(reproduction))?;
        let names: Vec<String> = reproduction.figures.iter().map(|figured| figured.study.name()).collect();
        Ok(Self {
            title: names.join(", "),
            claims: claims(&json),
            runs: runs(reproduction),
            json: serde_json::to_string_pretty(&json)?,
            text: terminal::text(reproduction),
        })
    }
}

#[pymethods]
impl Figures {
    /// The names of the figures.
    #[getter]
    fn title(&self) -> &str {
        &self.title
    }

    fn table(&self, name: &str) -> PyResult<Table> {
        Table::new(match name {
            "claims" => self.claims.clone(),
            "runs" => self.runs.clone(),
            _ => {
                return Err(PyKeyError::new_err(format!(
                    "no table is called `{name}`: there are claims, runs"
                )));
            }
        })
    }

    /// The document that `roost-papers --json` prints.
    fn to_json(&self) -> &str {
        &self.json
    }

    /// The tables that `roost-papers` prints on a terminal.
    fn text(&self) -> &str {
        &self.text
    }
}

/// A row for each claim of a paper, from the JSON document.
fn claims(json: &Value) -> Columns {
    let list = |of: &'_ Value, key: &str| of[key].as_array().cloned().unwrap_or_default();
    let mut all: Vec<(String, &str, Value)> = Vec::new();
    for figure in list(json, "figures") {
        let name = format!("{}/{}", text(&figure["paper"]), text(&figure["figure"]));
        for kind in ["headlines", "printed"] {
            all.extend(list(&figure, kind).into_iter().map(|claim| (name.clone(), kind, claim)));
        }
    }
    let column = |claim: &(String, &str, Value), key: &str| claim.2[key].as_str().map(str::to_owned);
    let rows = Rows::of(&all)
        .text("figure", |claim| claim.0.clone())
        .truth("headline", |claim| claim.1 == "headlines")
        .text("id", |claim| column(claim, "id"))
        .text("says", |claim| column(claim, "says"))
        .number("paper", |claim| claim.2["paper"].as_f64())
        .number("ours", |claim| claim.2["ours"].as_f64())
        .number("half_width", |claim| claim.2["half_width"].as_f64())
        .number("deviation", |claim| claim.2["deviation"].as_f64())
        .text("verdict", |claim| column(claim, "verdict"));
    rows.end()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A run of a figure: the figure, its place on the axes, its contestant.
type Run<'a> = (String, &'a BTreeMap<String, String>, &'a str, &'a str, &'a Outcome);

/// A row for each run of each figure: its place on the axes, its figures.
fn runs(reproduction: &Reproduction<'_>) -> Columns {
    let mut all: Vec<Run<'_>> = Vec::new();
    for figured in &reproduction.figures {
        for place in &figured.board.places {
            let outcome = reproduction.runs.of(&place.planned);
            let name = figured.study.name();
            all.extend(outcome.map(|run| (name, &place.axes, &*place.contestant, &*place.policies, run)));
        }
    }
    let axes = report::distinct(all.iter().flat_map(|run| run.1.keys().map(String::as_str)));
    let rows = Rows::of(&all).text("figure", |run| run.0.clone());
    let rows = axes.iter().fold(rows, |rows, axis| rows.text(*axis, |run| run.1.get(*axis).cloned()));
    let rows = rows.text("contestant", |run| run.2.to_owned()).text("policies", |run| run.3.to_owned());
    let rows = rows.text("verdict", |run| study::results::verdict_name(run.4.verdict).to_owned());
    let figures = Figure::of_all(all.iter().map(|run| run.4));
    figures.iter().fold(rows, |rows, figure| figure.add(rows, |run| run.4)).end()
}
