//! A sweep in a folder: every contestant in each cell of a grid.
//!
//! The folder is the memory: `run.toml` has the scenario and its axes, `cells.jsonl` the finished cells.
//! Going on after a kill, and adding values to an axis, are the same thing: whatever is in the file
//! already is not run again. A folder takes cells of one scenario only, so that a row of its table
//! can be compared with any other.

use super::cells::{self, CELLS, Cell, Cells, Key};
use super::folder;
use super::grid::{Planned, differences};
use super::options::Checked;
use super::page::{Facts, Swept, sweep_page};
use super::results::{Entry, Results};
use crate::exit::usage;
use anyhow::{Context as _, Result};
use report::run::RunInfo;
use serde::{Deserialize, Serialize};
use sim::runner::{self, Task};
use sim::{Document, ScenarioError, Stop};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// One that has begun, in this process or in an earlier one.
#[derive(Debug)]
pub struct Sweep {
    place: PathBuf,
    document: Document,
    info: RunInfo,
    planned: Vec<Planned>,
    /// Texts of the keys of cells that were finished before.
    done: BTreeSet<String>,
    file: Cells,
}

/// One whose cells are all finished, and its files written.
#[derive(Debug)]
pub struct Finished {
    pub about: Results,
    /// In the order of the grid.
    pub cells: Vec<Cell>,
    /// A line that says where the page is.
    pub report: String,
}

/// The file with a row for each cell.
pub const CSV: &str = "cells.csv";

impl Sweep {
    /// Begins in this folder, or goes on there. The folder is this process's alone.
    pub fn begin(place: PathBuf, document: Document, planned: Vec<Planned>, started: String) -> Result<Self> {
        let earlier = earlier(&place)?;
        folder::create(&place)?;
        let mut file = Cells::open(&place)?;
        let title = document.scenario().map_err(usage)?.title;
        let info = folder::info(&document, folder::name_of(&place), title, started)?;
        if let Some(earlier) = earlier {
            check_same(&place, &earlier, &info)?;
        }
        let done = file.read()?.iter().map(|cell| cell.key.text()).collect();
        folder::clear(&place, &[CSV])?;
        folder::write_info(&place, &info)?;
        Ok(Self { place, document, info, planned, done, file })
    }

    /// The cells that are still to be made.
    pub fn missing(&self) -> Vec<&Planned> {
        missing(&self.planned, &self.done)
    }

    /// Keeps a cell that was made elsewhere; one that is here already stays as it is.
    pub fn keep(&mut self, cell: &Cell) -> Result<()> {
        if self.done.insert(cell.key.text()) { self.file.append(cell) } else { Ok(()) }
    }

    /// Makes the missing cells on so many threads, and keeps each as it finishes. `done` is told the
    /// name of each.
    pub fn simulate(&mut self, threads: usize, stop: &Stop, done: impl Fn(&str) + Sync) -> Result<()> {
        let missing = missing(&self.planned, &self.done);
        let faults = simulate(&missing, threads, stop, |cell| self.file.append(&cell), done)?;
        match faults.first() {
            Some(Fault { key, problem }) => Err(usage(format!("{}: {problem}", key.name()))),
            None => Ok(()),
        }
    }

    /// Writes the table and the page, and returns all cells.
    pub fn end(mut self) -> Result<Finished> {
        let cells = in_order(&self.planned, self.file.read()?)?;
        folder::write_table(&self.place, CSV, &cells::columns(&cells))?;
        let about = about(&self.document, self.planned);
        let facts = Facts::new(&self.info, &about, &self.document.scenario().map_err(usage)?);
        let swept: Vec<Swept<'_>> = cells.iter().map(Cell::swept).collect();
        let report = folder::write_report(&self.place, &sweep_page(&facts, &swept))?;
        Ok(Finished { about, cells, report })
    }
}

/// The results of a sweep less its cells: machines, assumptions.
pub fn about(document: &Document, planned: Vec<Planned>) -> Results {
    let runs: Vec<Checked> = planned.into_iter().map(|cell| cell.run).collect();
    Results::new(document, &runs, Vec::new(), None)
}

fn missing<'a>(planned: &'a [Planned], done: &BTreeSet<String>) -> Vec<&'a Planned> {
    planned.iter().filter(|cell| !done.contains(&cell.key.text())).collect()
}

/// The facts that a sweep begun in this folder left there.
pub fn earlier(place: &Path) -> Result<Option<RunInfo>> {
    let path = place.join(folder::INFO);
    let text = match std::fs::read_to_string(&path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let info: RunInfo =
        toml::from_str(&text).map_err(|error| usage(format!("{}: {error}", path.display())))?;
    if !place.join(CELLS).exists() {
        let place = place.display();
        return Err(usage(format!(
            "{place} has another kind of run\n\nhint: name another folder with --out"
        )));
    }
    Ok(Some(info))
}
/// The cells of a folder are of one scenario and one version.
fn check_same(place: &Path, earlier: &RunInfo, now: &RunInfo) -> Result<()> {
    let place = place.display();
    if earlier.version != now.version {
        return Err(usage(format!(
            "{place} was begun by Roost {}, this is {}\n\nhint: name another folder with --out",
            earlier.version, now.version
        )));
    }
    let scenario =
        |info: &RunInfo| info.config.get(folder::SCENARIO).and_then(toml::Value::as_table).cloned();
    let (before, after) = (scenario(earlier).unwrap_or_default(), scenario(now).unwrap_or_default());
    let different = differences(&before, &after);
    if different.is_empty() {
        return Ok(());
    }
    Err(usage(format!(
        "{place} has cells of another scenario: {}\n\nhint: name another folder with --out, or \
         put the scenario back",
        different.join("; ")
    )))
}

/// A cell that a policy's fault ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    pub key: Key,
    pub problem: String,
}

/// Makes cells on so many threads; `keep` gets each as it finishes, `done` its name. A policy's
/// fault ends its own cell alone.
pub fn simulate(
    missing: &[&Planned],
    threads: usize,
    stop: &Stop,
    keep: impl FnMut(Cell) -> Result<()> + Send,
    done: impl Fn(&str) + Sync,
) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let kept = Mutex::new((keep, Ok(())));
    for cells in missing.chunks(CELLS_AT_A_TIME) {
        let tasks: Vec<Task> = cells.iter().map(|cell| cell.run.task.clone()).collect();
        let results = runner::run_all(&tasks, threads, stop, |place, result| {
            let Planned { key, run, .. } = cells[place];
            if let Ok(outcome) = result {
                let mut outcome = outcome.clone();
                // Thousands of cells would have a time series each: too many to read.
                outcome.points.clear();
                let cell = Cell { key: key.clone(), run: Entry::new(run, outcome) };
                let (keep, written) = &mut *kept.lock().unwrap_or_else(PoisonError::into_inner);
                if written.is_ok() {
                    *written = keep(cell);
                }
            }
            done(&key.name());
        });
        std::mem::replace(&mut kept.lock().unwrap_or_else(PoisonError::into_inner).1, Ok(()))?;
        for (cell, result) in cells.iter().zip(results) {
            match result {
                Ok(_) => {}
                Err(error @ ScenarioError::Policy { .. }) => {
                    faults.push(Fault { key: cell.key.clone(), problem: error.to_string() });
                }
                Err(error) => return Err(usage(error)),
            }
        }
    }
    Ok(faults)
}

/// Outcomes stay in memory until so many cells are finished; the time series of each are some 40
/// kB.
const CELLS_AT_A_TIME: usize = 1024;

/// The finished cells in the order of the grid.
pub fn in_order(planned: &[Planned], cells: Vec<Cell>) -> Result<Vec<Cell>> {
    let mut by_key: BTreeMap<String, Cell> = cells.into_iter().map(|cell| (cell.key.text(), cell)).collect();
    let taken = planned.iter().map(|cell| by_key.remove(&cell.key.text()));
    taken.collect::<Option<_>>().context("a finished cell is not in cells.jsonl; run the sweep again")
}
