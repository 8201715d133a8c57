//! `roost sim sweep`: a grid over any keys of a scenario, every contestant in each cell.
//!
//! The folder is the memory: `run.toml` has the scenario and its axes, `cells.jsonl` the finished cells.
//! Going on after a kill, and adding values to an axis, are the same thing: whatever is in the file
//! already is not run again. A folder takes cells of one scenario only, so that a row of its table
//! can be compared with any other.

use super::cells::{CELLS, Cell, Cells};
use super::figures::Figure;
use super::grid::{self, Planned};
use super::options::{self, Checked, Options};
use super::page::{self, Facts, Swept};
use super::progress::Progress;
use super::results::{self, Entry, Results};
use super::{folder, grid::differences, print, summary};
use crate::exit::usage;
use crate::table::{self, Table};
use anyhow::{Context as _, Result};
use report::run::RunInfo;
use serde::Serialize;
use sim::outcome::Verdict;
use sim::runner::{self, Task};
use sim::scenario::{Estimates, ScenarioError};
use sim::{Document, Scenario};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Simulate a grid over any keys of a scenario; can be resumed after a kill
///
/// Axes are those of the scenario's sweep table and every --set with several values. Finished cells
/// are kept: the same command with the same --out does the others. The table is DIR/cells.csv, one row
/// per cell.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/sim-sweep.txt"))]
pub struct Args {
    /// The scenario file; that of the folder --out if none is named
    #[arg(value_name = "SCENARIO")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Folder for the run; a sweep in it goes on, and its finished cells are kept
    /// [default: runs/sim-NAME-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Args {
    /// The folder of the sweep that goes on with its own scenario.
    fn begun(&self) -> Option<&PathBuf> {
        self.out.as_ref().filter(|_| self.scenario.is_none())
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let document = document(args)?;
    options::tell_of_shape(&document)?;
    let planned = grid::cells(&document)?;
    let started = folder::started()?;
    let place = match args.begun() {
        Some(place) => place.clone(),
        None => options::folder(args.out.as_deref(), &document, &started, CELLS)?.make()?,
    };
    let earlier = earlier(&place)?;
    if args.begun().is_some() && earlier.is_none() {
        return Err(not_begun(&place));
    }
    folder::create(&place)?;
    let mut file = Cells::open(&place)?;
    let name = folder::name_of(&place);
    let title = document.scenario().map_err(usage)?.title;
    let info = folder::info(&document, name, title, started)?;
    if let Some(earlier) = earlier {
        check_same(&place, &earlier, &info)?;
    }
    let done: BTreeSet<String> = file.read()?.iter().map(|cell| cell.key.text()).collect();
    folder::clear(&place, &[CSV])?;
    folder::write_info(&place, &info)?;
    let missing: Vec<&Planned> = planned.iter().filter(|cell| !done.contains(&cell.key.text())).collect();
    if !args.options.json && missing.len() < planned.len() {
        eprintln!(
            "roost sim: {} of {} cells were finished before",
            planned.len() - missing.len(),
            planned.len()
        );
    }
    simulate(&missing, &args.options, &mut file)?;
    let cells = in_order(&planned, file.read()?)?;
    folder::write(&place, CSV, |file| write_csv(&cells, file))?;
    let runs: Vec<Checked> = planned.into_iter().map(|cell| cell.run).collect();
    let about = Results::new(&document, &runs, Vec::new(), None);
    let scenario = document.scenario().map_err(usage)?;
    let facts = Facts::new(&info, &about, &scenario);
    let swept: Vec<Swept<'_>> = cells.iter().map(swept).collect();
    let page = folder::write_report(&place, &page::sweep_page(&facts, &swept))?;
    let end = format!("table: {}\n{page}\n", place.join(CSV).display());
    if args.options.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&AsJson { about, cells: &cells })?))?;
    } else {
        print(&format!("{}\n{end}", told(&scenario, &about, &cells)))?;
    }
    Ok(ExitCode::SUCCESS)
}

const CSV: &str = "cells.csv";

/// The swept scenario: the one named, or that of the folder, with the changes of the command line.
fn document(args: &Args) -> Result<Document> {
    let document = match (&args.scenario, args.begun()) {
        (None, Some(place)) => {
            let info = earlier(place)?.ok_or_else(|| not_begun(place))?;
            let scenario = info.config.get(folder::SCENARIO).and_then(toml::Value::as_table);
            let text = toml::to_string(scenario.context("run.toml has no scenario")?)?;
            let file = info.config.get(folder::FILE).and_then(toml::Value::as_str);
            let path = file.map_or_else(|| place.join(folder::INFO), PathBuf::from);
            Document::parse(&path, &text, &Estimates::default()).map_err(usage)?
        }
        (scenario, _) => args.options.document(scenario.as_deref())?,
    };
    args.options.complete(grid::with_axes(document, args.options.changes()?)?)
}

fn not_begun(place: &Path) -> anyhow::Error {
    usage(format!(
        "{}: no sweep was begun here\n\nhint: name its folder, or begin one with a scenario",
        place.display()
    ))
}

/// The facts that a sweep begun in this folder left there.
fn earlier(place: &Path) -> Result<Option<RunInfo>> {
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

/// Runs the missing cells, and keeps each cell as it finishes.
fn simulate(missing: &[&Planned], options: &Options, file: &mut Cells) -> Result<()> {
    let progress = Progress::new(missing.len(), options.json);
    missing.chunks(CELLS_AT_A_TIME).try_for_each(|cells| simulate_some(cells, options, file, &progress))?;
    progress.end();
    Ok(())
}

/// Outcomes stay in memory until so many cells are finished; the time series of each are some 40
/// kB.
const CELLS_AT_A_TIME: usize = 1024;

fn simulate_some(cells: &[&Planned], options: &Options, file: &mut Cells, progress: &Progress) -> Result<()> {
    let tasks: Vec<Task> = cells.iter().map(|cell| cell.run.task.clone()).collect();
    let kept = Mutex::new((file, Ok(())));
    let results = runner::run_all(&tasks, options.threads(), &Default::default(), |place, result| {
        let Planned { key, run } = cells[place];
        if let Ok(outcome) = result {
            let mut outcome = outcome.clone();
            // Thousands of cells would have a time series each: too many to read.
            outcome.points.clear();
            let cell = Cell { key: key.clone(), run: Entry::new(run, outcome) };
            let (file, written) = &mut *kept.lock().unwrap_or_else(PoisonError::into_inner);
            if written.is_ok() {
                *written = file.append(&cell);
            }
        }
        progress.done(&name_of(key));
    });
    kept.into_inner().unwrap_or_else(PoisonError::into_inner).1?;
    let failed: Option<ScenarioError> = results.into_iter().find_map(Result::err);
    failed.map_or(Ok(()), |error| Err(usage(error)))
}

fn name_of(key: &super::cells::Key) -> String {
    let axes = key.axes.iter().map(|(axis, value)| format!("{axis}={value}"));
    axes.chain([key.contestant.clone()]).collect::<Vec<_>>().join(" ")
}

/// The finished cells in the order of the grid.
fn in_order(planned: &[Planned], cells: Vec<Cell>) -> Result<Vec<Cell>> {
    let mut by_key: BTreeMap<String, Cell> = cells.into_iter().map(|cell| (cell.key.text(), cell)).collect();
    let taken = planned.iter().map(|cell| by_key.remove(&cell.key.text()));
    taken.collect::<Option<_>>().context("a finished cell is not in cells.jsonl; run the sweep again")
}

fn write_csv(cells: &[Cell], to: impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    let figures = Figure::of_all(cells.iter().map(|cell| &cell.run.outcome));
    let axes = cells.first().into_iter().flat_map(|cell| cell.key.axes.keys().cloned());
    let fixed = ["contestant"].into_iter().chain(results::RUN_COLUMNS).map(str::to_owned);
    csv.write_record(axes.chain(fixed).chain(results::columns(&figures)))?;
    for Cell { key, run } in cells {
        let fixed = std::iter::once(key.contestant.clone()).chain(results::run_cells(run));
        csv.write_record(
            key.axes.values().cloned().chain(fixed).chain(results::cells(&figures, &run.outcome)),
        )?;
    }
    csv.flush()
}

/// A cell as the page takes it.
fn swept(cell: &Cell) -> Swept<'_> {
    let axes = cell.key.axes.iter().map(|(axis, value)| (axis.as_str(), value.as_str()));
    Swept { axes: axes.collect(), outcome: &cell.run.outcome }
}

#[derive(Serialize)]
struct AsJson<'a> {
    #[serde(flatten)]
    about: Results,
    cells: &'a [Cell],
}

/// The table for a terminal, and its foundations.
fn told(scenario: &Scenario, about: &Results, cells: &[Cell]) -> String {
    let named = |names: &[String]| names.iter().filter_map(|name| name.parse().ok()).collect::<Vec<Figure>>();
    let mut figures = scenario.figure.as_ref().map(|figure| named(&figure.y)).unwrap_or_default();
    if figures.is_empty() {
        figures = named(&DEFAULT_METRICS.map(str::to_owned));
    }
    let more = match cells.len().saturating_sub(ROWS_SHOWN) {
        0 => String::new(),
        more => format!("and {more} rows more\n"),
    };
    let rows = table_of(cells, &figures).text();
    let foundations = summary::foundations(about, table::columns());
    format!("{}\n\n{rows}{more}{foundations}", about.title)
}

/// The figures that are printed of each cell by default.
const DEFAULT_METRICS: [&str; 4] = ["mean", "p99", "cpu_watts", "joules_per_request"];

const ROWS_SHOWN: usize = 100;

fn table_of(cells: &[Cell], figures: &[Figure]) -> Table {
    let axes: Vec<&String> = cells.first().map(|cell| cell.key.axes.keys().collect()).unwrap_or_default();
    // A column is headed by the last word of its key: workload.rate by rate.
    let heads = axes.iter().map(|key| key.rsplit('.').next().unwrap_or(key).to_owned());
    let header = heads.chain([String::new()]).chain(figures.iter().map(Figure::to_string));
    let mut table = Table::new(axes.len() + 1, header.collect());
    for Cell { key, run } in cells.iter().take(ROWS_SHOWN) {
        let words = key.axes.values().cloned().chain([key.contestant.clone()]);
        if run.outcome.verdict == Verdict::Unstable {
            table.row(words.chain(["unstable".to_owned()]).collect());
        } else {
            table.row(words.chain(figures.iter().map(|figure| figure.text(&run.outcome))).collect());
        }
    }
    table
}
