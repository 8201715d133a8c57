//! `roost-bench sim-cross-check`: the simulator against closed forms, and against one that is not
//! ours.
//!
//! ```text
//!   cases.rs    the queues, as a scenario, as parameters of the other simulator, in closed form
//!   table.rs    the figures of each, whether they agree, and the page that keeps them
//! ```
//!
//! The other simulator is SimPy, with a program that was written apart from the engine:
//! `benches/references/sleeping.py`. Both make ten runs with seeds from one; the intervals are
//! Student's over these. Two results agree if they differ by no more than twice the root of the
//! squares of their 95 % half-widths, some four standard errors: of some hundred and fifty
//! comparisons, chance alone parts none.

mod cases;
mod table;

use super::simpy::SimPy;
use crate::exit::{Exit, usage};
use crate::run_folder;
use anyhow::{Context as _, Result};
use cases::{Case, Figure, cases};
use report::machine_facts::this_machine;
use sim::statistics::across_runs;
use sim::{Engine, Outcome};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use table::{Row, Table};

/// The simulator against closed forms and against SimPy: queues with set-up times and sleep states
///
/// Exit code 5: some figure disagrees.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench sim-cross-check                  all queues, some minutes
  roost-bench sim-cross-check --without-simpy  closed forms alone: no Python, no network
  roost-bench sim-cross-check --page docs/statistics.md")]
pub struct Args {
    /// Requests of each of our ten runs; the other simulator gets a tenth
    #[arg(long, value_name = "N", default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(100_000..=100_000_000))]
    requests: u64,
    /// A Python that has SimPy [default: one is made in the cache folder of the user]
    #[arg(long, value_name = "PATH", conflicts_with = "without_simpy")]
    python: Option<PathBuf>,
    /// Compare with closed forms alone, without the other simulator
    #[arg(long)]
    without_simpy: bool,
    /// Queues at the same time; the figures do not depend on it [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Write the table to this page, between its markers
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let simpy = match args.without_simpy {
        true => None,
        false => Some(SimPy::find(args.python.as_deref()).map_err(|error| {
            usage(format!("no SimPy: {error:#}\n\nhint: --without-simpy checks against closed forms alone"))
        })?),
    };
    let page = args.page.as_deref().map(|path| {
        std::fs::read_to_string(path).map_err(|error| usage(format!("{}: {error}", path.display())))
    });
    let page = page.transpose()?;
    let allowed = linux::allowed_cpus().map_err(usage)?.0.len();
    let threads = args.threads.map_or(allowed, usize::from);
    let cases = cases();
    let rows = check(&cases, simpy.as_ref(), args.requests, threads)?;
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("the clock")?;
    let table = Table {
        format: 1,
        date: report::run::utc(clock.as_secs()),
        machine: crate::harness::describe(&this_machine()),
        requests: args.requests,
        simpy: simpy.as_ref().map(|simpy| simpy.version().to_owned()),
        rows,
    };
    if let (Some(path), Some(text)) = (&args.page, &page) {
        let text = table.in_page(text).map_err(|why| usage(format!("{}: {why}", path.display())))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let name = path.file_name().context("--page names no file")?.to_string_lossy().into_owned();
        run_folder::write(folder.unwrap_or(".".as_ref()), &name, |file| file.write_all(text.as_bytes()))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table)?);
    } else {
        print!("{table}");
    }
    Ok(if table.rows.iter().all(Row::agrees) { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

/// Every figure of every case, in their order.
fn check(cases: &[Case], simpy: Option<&SimPy>, requests: u64, threads: usize) -> Result<Vec<Row>> {
    let next = AtomicUsize::new(0);
    let found: Vec<Mutex<Option<Result<Vec<Row>>>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, cases.len().max(1)) {
            scope.spawn(|| {
                while let Some((place, case)) = next_of(&next, cases) {
                    eprintln!("{} ({} of {})", case.name, place + 1, cases.len());
                    let rows = rows(case, simpy, requests);
                    *found[place].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(rows);
                }
            });
        }
    });
    let rows = found.into_iter().map(|slot| {
        let slot = slot.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.context("a queue was left out")?
    });
    Ok(rows.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn next_of<'a>(next: &AtomicUsize, cases: &'a [Case]) -> Option<(usize, &'a Case)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    cases.get(place).map(|case| (place, case))
}

fn rows(case: &Case, simpy: Option<&SimPy>, requests: u64) -> Result<Vec<Row>> {
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    let document = case.document(requests)?;
    let ours = seeds.iter().map(|&seed| {
        let (setup, jobs) = document.setup(case.policies(), seed)?;
        Ok(Outcome::new(case.policies(), &Engine::new(setup, jobs).run()))
    });
    let ours = ours.collect::<Result<Vec<Outcome>>>()?;
    let theirs = simpy.map(|simpy| simpy.sleeping(&case.parameters(requests / OTHERS_PART, &seeds)));
    let theirs = theirs.transpose()?;
    let row = |figure: &Figure| -> Result<Row> {
        let ours: Option<Vec<f64>> = ours.iter().map(|outcome| of(outcome, *figure)).collect();
        let ours = ours.as_deref().and_then(across_runs);
        let theirs = theirs.as_ref().map(|runs| {
            let values: Vec<f64> = runs.iter().map(|run| run.of(figure.name())).collect();
            across_runs(&values).context("the other simulator gave too few runs")
        });
        Ok(Row {
            case: case.name.clone(),
            figure: figure.name(),
            unit: figure.unit(),
            exact: case.exact(*figure),
            ours: ours.with_context(|| format!("{}: {}: no figure", case.name, figure.name()))?,
            other: theirs.transpose()?,
        })
    };
    case.figures().iter().map(row).collect()
}

/// The figure of one of our runs.
fn of(outcome: &Outcome, figure: Figure) -> Option<f64> {
    match figure {
        Figure::Mean => outcome.responses.mean_ns.map(|found| found.value * 1e-3),
        Figure::P99 => outcome.responses.p99_ns.map(|found| found.value * 1e-3),
        Figure::Watts => Some(outcome.power.cores_watts),
        Figure::Working => Some(outcome.working),
        Figure::Waking => Some(outcome.waking),
    }
}

/// Seeds of each queue: as many runs as an interval over runs needs.
const SEEDS: u64 = 10;
/// The other simulator gets so much less to do.
const OTHERS_PART: u64 = 10;

#[cfg(test)]
mod tests {
    use super::cases::SERVICE_US;
    use super::*;
    use sim::statistics::Interval;

    #[test]
    fn every_queue_agrees_with_its_closed_form() {
        let rows = check(&cases(), None, 100_000, 2).unwrap();
        for row in &rows {
            assert!(row.agrees(), "{row:?}");
        }
        assert!(rows.iter().filter(|row| row.exact.is_some()).count() > 50);
        let services = SERVICE_US * 1e3;
        assert!(rows.iter().all(|row| row.unit != "us" || row.ours.estimate * 1e3 >= services), "{rows:?}");
    }

    #[test]
    fn the_other_simulator_agrees_where_there_is_no_closed_form() {
        let python = std::env::var_os("ROOST_SIMPY_PYTHON").map(PathBuf::from);
        let Some(python) = python else {
            eprintln!("SKIPPED: ROOST_SIMPY_PYTHON names no Python with SimPy; `make cross-check` runs all");
            return;
        };
        let simpy = SimPy::find(Some(&python)).unwrap();
        let short: Vec<Case> =
            cases().into_iter().filter(|case| case.name.starts_with("M/M/10 0.3")).collect();
        for row in check(&short, Some(&simpy), 100_000, 2).unwrap() {
            assert!(row.other.is_some() && row.agrees(), "{row:?}");
        }
    }

    #[test]
    fn a_wrong_queue_is_found() {
        // The closed form of another load.
        let cases = cases();
        let mut row = rows(&cases[0], None, 100_000).unwrap().swap_remove(0);
        row.exact = cases[1].exact(Figure::Mean);
        assert!(!row.agrees(), "{row:?}");
        row.exact = None;
        row.other = Some(Interval { estimate: row.ours.estimate * 1.1, half_width: 0.01 });
        assert!(!row.agrees(), "{row:?}");
    }
}
