//! `roost-bench sim-coverage`: how often the simulator's 95 % intervals are right.
//!
//! Only many runs show that. Nine queues whose mean and p99 are known, consecutive seeds from 1.
//! Each run goes on until its p99 is known to +-5 %, and then its intervals hold the truth or they
//! do not. A run that ends without an interval counts as one that missed. The engine itself
//! simulates, under `poll`: waking would lengthen answers.

use crate::exit::{Exit, usage};
use crate::machine_facts::this_machine;
use crate::run_folder;
use anyhow::{Context as _, Result};
use serde::Serialize;
use sim::scenario::{Document, Estimates};
use sim::statistics::coverage::{CELLS, Cell, Service, Tally, coverage};
use sim::statistics::{Interval, Quantile, Quantity};
use sim::{Engine, Outcome};
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// How often the simulator's 95 % intervals hold the truth, over many seeds of nine queues
///
/// Exit code 5: some interval holds it less often than the bar says.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench sim-coverage                     the bar: 1000 seeds of each queue, some minutes
  roost-bench sim-coverage --seeds 50          to see that it works; proves nothing
  roost-bench sim-coverage --only 'M/M/10 0.9' --out benches/runs/today")]
pub struct Args {
    /// Seeds of each queue, from 1
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// Only this queue, as the table calls it
    #[arg(long, value_name = "QUEUE")]
    only: Option<String>,
    /// Threads; the figures do not depend on it [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Write sim-coverage.json to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let cells: Vec<&Cell> =
        CELLS.iter().filter(|cell| args.only.as_deref().is_none_or(|only| only == cell.name)).collect();
    if cells.is_empty() {
        let names: Vec<&str> = CELLS.iter().map(|cell| cell.name).collect();
        return Err(usage(format!("--only: no such queue; there are {}", names.join(", "))));
    }
    let allowed = linux::allowed_cpus().map_err(usage)?.0.len();
    let threads = args.threads.map_or(allowed, usize::from);
    let mut rows = Vec::new();
    let began = Instant::now();
    for (place, cell) in cells.iter().enumerate() {
        eprintln!("{} ({} of {})", cell.name, place + 1, cells.len());
        let document = document(cell)?;
        let tallies =
            coverage(cell, QUANTITIES, 1..=args.seeds, threads, |_, seed| intervals(&document, seed));
        rows.extend(NAMES.iter().zip(tallies).map(|(figure, tally)| Row::new(cell, figure, &tally)));
    }
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("the clock")?;
    let table = Table {
        date: report::run::utc(clock.as_secs()),
        machine: crate::harness::describe(&this_machine()),
        seeds: args.seeds,
        minutes: began.elapsed().as_secs_f64() / 60.0,
        rows,
    };
    if let Some(folder) = &args.out {
        run_folder::create(folder)?;
        let json = serde_json::to_string_pretty(&table)?;
        run_folder::write(folder, "sim-coverage.json", |file| writeln!(file, "{json}"))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table)?);
    } else {
        print!("{table}");
    }
    let missed = table.rows.iter().any(|row| !row.met);
    Ok(if missed { Exit::GoalMissed.into() } else { ExitCode::SUCCESS })
}

/// The queue as a scenario: one of the presets with as many cores as it has servers.
fn document(cell: &Cell) -> Result<Document> {
    let service = match cell.service {
        Service::Exponential => "{ exponential = \"10us\" }",
        Service::Constant => "{ deterministic = \"10us\" }",
        Service::Erlang2 => "{ distribution = \"erlang\", mean = \"10us\", stages = 2 }",
        Service::Branches { .. } => "{ distribution = \"hyperexponential\", mean = \"10us\", scv = 4.0 }",
    };
    let text = format!(
        "[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = {}\nthreads = 1\n\
         [workload]\nservice = {service}\n\
         [run]\nutilisation = {}\nrequests = {REQUESTS}\nsamples = 0\nprecision = \"5%@p99\"\n",
        cell.servers, cell.load
    );
    Ok(Document::parse("bench.toml".as_ref(), &text, &Estimates::default())?)
}

/// The intervals of one run, in mean service times.
fn intervals(document: &Document, seed: u64) -> [Option<Interval>; 2] {
    // The scenario is fixed and was read before: nothing of it can be wrong.
    let (setup, jobs) = document.setup("poll", seed).expect("the scenario of the benchmark is right");
    let outcome = Outcome::new("poll", &Engine::new(setup, jobs).run());
    [outcome.responses.mean_ns, outcome.responses.p99_ns].map(|estimate| {
        estimate.and_then(|it| it.interval()).map(|interval| interval.scale(1.0 / SERVICE_NS))
    })
}

#[derive(Debug, Serialize)]
struct Table {
    date: String,
    machine: String,
    seeds: u64,
    minutes: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    queue: &'static str,
    figure: &'static str,
    runs: u32,
    covered: f64,
    below: u32,
    above: u32,
    untold: u32,
    half_width_mean: f64,
    half_width_widest: f64,
    met: bool,
}

impl Row {
    fn new(cell: &Cell, figure: &'static str, tally: &Tally) -> Self {
        Self {
            queue: cell.name,
            figure,
            runs: tally.runs,
            covered: tally.share(),
            below: tally.below,
            above: tally.above,
            untold: tally.untold(),
            half_width_mean: tally.mean_relative(),
            half_width_widest: tally.widest,
            met: tally.share() >= BAR && tally.widest <= WIDEST,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "date: {}\nmachine: {}\n{:.1} minutes, {} seeds\n",
            self.date, self.machine, self.minutes, self.seeds
        )?;
        writeln!(
            f,
            "| queue | figure | holds the truth | too low | too high | none given | half-width, \
             mean | widest | >= {:.0} %, <= {:.0} % wide |",
            100.0 * BAR,
            100.0 * WIDEST
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            writeln!(
                f,
                "| {} | {} | {:.1} % | {} | {} | {} | {:.2} % | {:.2} % | {} |",
                row.queue,
                row.figure,
                100.0 * row.covered,
                row.below,
                row.above,
                row.untold,
                100.0 * row.half_width_mean,
                100.0 * row.half_width_widest,
                if row.met { "met" } else { "MISSED" }
            )?;
        }
        Ok(())
    }
}

const QUANTITIES: [Quantity; 2] = [Quantity::Mean, Quantity::Quantile(Quantile::P99)];
const NAMES: [&str; 2] = ["mean", "p99"];
/// The share of intervals that have to hold the truth, and how wide they may be.
const BAR: f64 = 0.93;
const WIDEST: f64 = 0.05;
/// A run that needs more has failed: it is told as one without an interval.
const REQUESTS: u64 = 1_000_000_000;
const SERVICE_NS: f64 = 10_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_are_the_cells() {
        for cell in &CELLS {
            let (setup, jobs) = document(cell).unwrap().setup("poll", 1).unwrap();
            assert_eq!(setup.workers, cell.servers as usize, "{}", cell.name);
            let erlangs = jobs.mean_rate().as_per_second() * jobs.mean_service().as_secs_f64();
            assert!((erlangs - cell.arrival_rate()).abs() < 1e-9, "{}: {erlangs}", cell.name);
            // The second moment tells the distributions apart.
            let mut squares = 0.0;
            let count = 200_000;
            for job in jobs.take(count) {
                squares += (job.compute.as_nanos() as f64 / SERVICE_NS).powi(2) / count as f64;
            }
            let exact = match cell.service {
                Service::Exponential => 2.0,
                Service::Constant => 1.0,
                Service::Erlang2 => 1.5,
                Service::Branches { first } => 0.5 / first + 0.5 / (1.0 - first),
            };
            assert!((squares / exact - 1.0).abs() < 0.05, "{}: {squares} for {exact}", cell.name);
        }
    }

    #[test]
    fn a_handful_of_seeds_is_tallied() {
        let cell = &CELLS[3];
        let document = document(cell).unwrap();
        let tallies = coverage(cell, QUANTITIES, 1..=4, 2, |_, seed| intervals(&document, seed));
        let row = Row::new(cell, "mean", &tallies[0]);
        assert_eq!((row.runs, row.untold), (4, 0), "{row:?}");
        assert!(row.covered >= 0.5 && row.half_width_widest <= WIDEST, "{row:?}");
    }
}
