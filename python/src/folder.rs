//! `roost.load_run`: the folder of a run, live or simulated.

use crate::errors::raised;
use crate::fleet::Fleet;
use crate::run::Run;
use crate::tables::Table;
use anyhow::{Context as _, Result};
use machine::{EnergyReading, Rate, Ratio};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use report::exit::usage;
use report::run::{self, CpuFrame, Frame, Phase, Summary, Verdict, WorkerFrame};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sim::Outcome;
use std::fs;
use std::path::PathBuf;
use study::cells::{self, CELLS, Cell};
use study::columns::{Columns, Rows};
use study::results::Results;
use study::{folder, paired};

/// The content of a run's folder.
#[pyclass(frozen, module = "roost")]
pub struct Folder {
    place: PathBuf,
    run: run::Run,
}

/// Reads a folder; its `run.toml` has to be there and of a known format.
#[pyfunction]
pub fn load_run(place: PathBuf) -> PyResult<Folder> {
    let run = run::Run::read(&place).map_err(usage).map_err(raised)?;
    Ok(Folder { place, run })
}

/// The tables that folders of live runs have.
const TABLES: [&str; 5] = ["frames", "workers", "cpus", "phases", "verdicts"];

#[pymethods]
impl Folder {
    /// The content of `run.toml` as JSON.
    fn info(&self) -> PyResult<String> {
        serde_json::to_string(&self.run.info).map_err(|error| raised(error.into()))
    }

    /// Sentences on parts that are missing; none of a kind of run that has no frames.
    #[getter]
    fn remarks(&self) -> Vec<String> {
        let has_frames = self.place.join(run::FRAMES).exists();
        if has_frames { self.run.remarks.clone() } else { Vec::new() }
    }

    fn table(&self, name: &str) -> PyResult<Table> {
        let none = Summary::default();
        let summary = self.run.summary.as_ref().unwrap_or(&none);
        Table::new(match name {
            "frames" => frames(&self.run.frames),
            "workers" => workers(&self.run.frames),
            "cpus" => cpus(&self.run.frames),
            "phases" => phases(&summary.phases),
            "verdicts" => verdicts(&summary.verdicts),
            _ => {
                let all = TABLES.join(", ");
                return Err(PyKeyError::new_err(format!("no table is called `{name}`: there are {all}")));
            }
        })
    }

    /// The contestants of `roost sim run`; None if it is another run's folder.
    fn simulated(&self) -> PyResult<Option<Run>> {
        let Some((mut results, document)) = self.outcomes::<Results>("contestants").map_err(raised)? else {
            return Ok(None);
        };
        // They follow from the portions of each run, which are there.
        if let Some(reference) = document["differences"][0]["against"].as_str() {
            let outcomes: Vec<Outcome> = results.entries.iter().map(|entry| entry.outcome.clone()).collect();
            results.differences = paired::against(reference, &outcomes);
        }
        Ok(Some(Run::loaded(results)))
    }

    /// The fleets of `roost sim fleet`; None if it is another run's folder.
    fn fleets(&self) -> PyResult<Option<Fleet>> {
        let results = self.outcomes("fleets").map_err(raised)?;
        Ok(results.map(|(results, _)| Fleet { results }))
    }

    /// The finished cells of `roost sim sweep`, and its axes; None if it is another run's folder.
    fn cells(&self) -> PyResult<Option<(Vec<String>, Table)>> {
        let Some(cells) = self.finished().map_err(raised)? else { return Ok(None) };
        let axes = cells.first().map(|cell| cell.key.axes.keys().cloned().collect()).unwrap_or_default();
        Ok(Some((axes, Table::new(cells::columns(&cells))?)))
    }
}

impl Folder {
    /// `outcomes.json` with its types and as it stands, if it has this key.
    fn outcomes<T: DeserializeOwned>(&self, key: &str) -> Result<Option<(T, Value)>> {
        let path = self.place.join(folder::OUTCOMES);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let wrong = |error: serde_json::Error| {
            usage(format!("{}: {error}\n\nhint: was it written by another version?", path.display()))
        };
        let document: Value = serde_json::from_str(&text).map_err(wrong)?;
        if document.get(key).is_none() {
            return Ok(None);
        }
        Ok(Some((serde_json::from_value(document.clone()).map_err(wrong)?, document)))
    }

    fn finished(&self) -> Result<Option<Vec<Cell>>> {
        let path = self.place.join(CELLS);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // A line without an end was being written when the sweep was killed.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let cell = |(at, line)| {
            serde_json::from_str(line)
                .map_err(|error| usage(format!("{}, line {}: {error}", path.display(), at + 1)))
        };
        whole.lines().enumerate().map(cell).collect::<Result<_>>().map(Some)
    }
}

fn per_s(rate: Option<Rate>) -> Option<f64> {
    rate.map(Rate::as_per_second)
}

fn share(ratio: Option<Ratio>) -> Option<f64> {
    ratio.map(Ratio::as_f64)
}

/// Microjoules as joules, and the source.
fn joules(energy: Option<&EnergyReading>) -> Option<f64> {
    energy.map(|energy| energy.used.0 as f64 * 1e-6)
}

fn source(energy: Option<&EnergyReading>) -> Option<String> {
    energy.map(|energy| energy.source.to_string())
}

fn frames(frames: &[Frame]) -> Columns {
    let rows = Rows::of(frames)
        .text("phase", |frame| frame.phase.clone())
        .count("at_ns", |frame| frame.at.as_nanos())
        .number("offered_per_s", |frame| per_s(frame.offered))
        .number("achieved_per_s", |frame| per_s(frame.achieved))
        .count("p50_ns", |frame| frame.p50.map(|time| time.as_nanos()))
        .count("p99_ns", |frame| frame.p99.map(|time| time.as_nanos()))
        .count("p999_ns", |frame| frame.p999.map(|time| time.as_nanos()))
        .count("workers_awake", |frame| frame.workers_awake().map(|workers| workers as u64))
        .count("transfers", |frame| frame.transfers)
        .count("awake_ns", |frame| frame.awake.map(|time| time.as_nanos()))
        .number("joules", |frame| joules(frame.energy.as_ref()))
        .text("energy_source", |frame| source(frame.energy.as_ref()));
    rows.end()
}

/// The parts of all frames, each with its frame.
fn parts<T>(frames: &[Frame], of: fn(&Frame) -> &Vec<T>) -> Vec<(&Frame, &T)> {
    frames.iter().flat_map(|frame| of(frame).iter().map(move |part| (frame, part))).collect()
}

fn workers(frames: &[Frame]) -> Columns {
    let all: Vec<(&Frame, &WorkerFrame)> = parts(frames, |frame| &frame.workers);
    let rows = Rows::of(&all)
        .text("phase", |(frame, _)| frame.phase.clone())
        .count("at_ns", |(frame, _)| frame.at.as_nanos())
        .count("worker", |(_, worker)| u64::from(worker.worker.0))
        .count("cpu", |(_, worker)| u64::from(worker.cpu.0))
        .truth("active", |(_, worker)| worker.active)
        .number("load_per_s", |(_, worker)| worker.load.as_per_second())
        .number("limit_per_s", |(_, worker)| per_s(worker.limit))
        .number("busy", |(_, worker)| share(worker.busy))
        .count("residents", |(_, worker)| u64::from(worker.residents))
        .count("guests", |(_, worker)| u64::from(worker.guests));
    rows.end()
}

fn cpus(frames: &[Frame]) -> Columns {
    let all: Vec<(&Frame, &CpuFrame)> = parts(frames, |frame| &frame.cpus);
    let states = all.iter().flat_map(|(_, cpu)| cpu.residency.iter().flatten());
    let states = report::distinct(states.map(|share| share.state.as_str()));
    let rows = Rows::of(&all)
        .text("phase", |(frame, _)| frame.phase.clone())
        .count("at_ns", |(frame, _)| frame.at.as_nanos())
        .count("cpu", |(_, cpu)| u64::from(cpu.cpu.0))
        .number("busy", |(_, cpu)| share(cpu.busy));
    let rows = states.iter().fold(rows, |rows, state| {
        rows.number(format!("residency.{state}"), |(_, cpu)| {
            cpu.residency
                .iter()
                .flatten()
                .find(|share| share.state == *state)
                .map(|share| share.share.as_f64())
        })
    });
    rows.end()
}

fn phases(phases: &[Phase]) -> Columns {
    let rows = Rows::of(phases)
        .text("phase", |phase| phase.name.clone())
        .text("treatment", |phase| phase.what.clone())
        .count("length_ns", |phase| phase.length.map(|time| time.as_nanos()))
        .number("offered_per_s", |phase| per_s(phase.offered))
        .number("achieved_per_s", |phase| per_s(phase.achieved))
        .count("requests", |phase| phase.requests)
        .count("errors", |phase| phase.errors)
        .count("p50_ns", |phase| phase.p50.map(|time| time.as_nanos()))
        .count("p99_ns", |phase| phase.p99.map(|time| time.as_nanos()))
        .count("p999_ns", |phase| phase.p999.map(|time| time.as_nanos()))
        .count("max_ns", |phase| phase.max.map(|time| time.as_nanos()))
        .count("awake_ns", |phase| phase.awake.map(|time| time.as_nanos()))
        .count("transfers", |phase| phase.transfers)
        .number("late", |phase| share(phase.late))
        .number("joules", |phase| joules(phase.energy.as_ref()))
        .text("energy_source", |phase| source(phase.energy.as_ref()));
    rows.end()
}

fn verdicts(verdicts: &[Verdict]) -> Columns {
    let rows = Rows::of(verdicts)
        .text("figure", |verdict| verdict.figure.clone())
        .text("found", |verdict| verdict.found.clone())
        .text("bar", |verdict| verdict.bar.clone())
        .truth("met", |verdict| verdict.met);
    rows.end()
}
