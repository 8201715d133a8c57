//! `roost sim sweep`: a grid over any keys of a scenario, every contestant in each cell.
//!
//! See `study::sweep`.

use super::cells::{CELLS, Cell};
use super::figures::Figure;
use super::grid;
use super::options::{self, Options};
use super::progress::Progress;
use super::results::Results;
use super::{folder, print, summary};
use crate::exit::usage;
use crate::table::{self, Table};
use anyhow::{Context as _, Result};
use serde::Serialize;
use sim::outcome::Verdict;
use sim::scenario::Estimates;
use sim::{Document, Scenario, Stop};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use study::sweep::{CSV, Finished, Sweep, earlier};

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
    let planned = grid::cells(&document, &Default::default())?;
    let all = planned.len();
    let scenario = document.scenario().map_err(usage)?;
    let started = folder::started()?;
    let place = match args.begun() {
        Some(place) => place.clone(),
        None => options::folder(args.out.as_deref(), &document, &started, CELLS)?.make()?,
    };
    let mut sweep = Sweep::begin(place.clone(), document, planned, started)?;
    let missing = sweep.missing().len();
    if !args.options.json && missing < all {
        eprintln!("roost sim: {} of {all} cells were finished before", all - missing);
    }
    let progress = Progress::new(missing, args.options.json);
    sweep.simulate(args.options.threads(), &Stop::default(), |name| progress.done(name))?;
    progress.end();
    let Finished { about, cells, report } = sweep.end()?;
    let end = format!("table: {}\n{report}\n", place.join(CSV).display());
    if args.options.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&AsJson { about, cells: &cells })?))?;
    } else {
        print(&format!("{}\n{end}", told(&scenario, &about, &cells)))?;
    }
    Ok(ExitCode::SUCCESS)
}

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
