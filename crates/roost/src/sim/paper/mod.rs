//! `roost sim paper`: the papers' own figures, simulated, beside what the papers print.
//!
//! A figure is a scenario in `papers/`, and nothing in it may be chosen to please: what nobody publishes stands in one
//! table of ESTIMATEs that was committed before the first run. What the papers claim stands in `papers/headlines.toml`; a
//! claim is met when its sign is right and its size is within 30 %. A miss is printed as a miss.
//!
//! ```text
//!   library.rs      the folder papers/: figures, claims, ESTIMATEs
//!   board.rs        a figure's runs and where each stands
//!   runs.rs         runs made once and kept
//!   metrics.rs      what is compared
//!   claim.rs        what a paper claims, and what ours comes to
//! ```

mod board;
mod claim;
mod library;
mod metrics;
mod runs;

use super::folder;
use super::table::Table;
use crate::exit::usage;
use anyhow::Result;
use board::Board;
use claim::Claim;
use library::{Library, Study};
use runs::Runs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Simulate the papers' figures: what they print beside what comes out here
///
/// Exit code 2: a name or a scenario is wrong; 4: another run writes to the folder.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost sim paper --list                  every paper and figure
  roost sim paper carb/4                  one figure
  roost sim paper carb hurry-up/table1    a paper, and a table of another
  roost sim paper all --out runs/papers   all of them; the same command again goes on after a kill")]
pub struct Args {
    /// Papers and figures: `carb`, `carb/4`, `all`
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print what there is and what it costs
    #[arg(long)]
    list: bool,
    /// Few requests: shows that everything works, and no figure that could be trusted
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Runs at the same time; results do not depend on it [default: one per CPU]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Folder for the run; finished runs in it are kept [default: runs/sim-papers-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The folder of papers [default: papers, here or above]
    #[arg(long, value_name = "DIR")]
    papers: Option<PathBuf>,
}

/// A figure that can be run.
struct Planned {
    study: Study,
    board: Board,
}

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let library = Library::open(args.papers.as_deref())?;
    if args.list {
        return list(&library, args);
    }
    if args.names.is_empty() {
        return Err(usage(
            "no figure was named\n\nhint: `roost sim paper --list` has all; `roost sim paper carb/4` is one",
        ));
    }
    let planned = plan(&library, args)?;
    let started = folder::started()?;
    let place = args.out.clone().unwrap_or_else(|| {
        PathBuf::from("runs")
            .join(format!("sim-papers-{}", started.replace(" UTC", "").replace([' ', ':'], "-")))
    });
    folder::create(&place)?;
    let mut runs = Runs::open(&place)?;
    let wanted = planned.iter().flat_map(|figure| figure.board.places.iter().map(|place| &place.planned));
    let missing = runs.missing(wanted);
    runs.make(&missing, threads(args), args.json)?;
    for figure in &planned {
        show(&library, figure, &runs);
    }
    println!("\nfolder: {}", place.display());
    Ok(ExitCode::SUCCESS)
}

fn threads(args: &Args) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    args.threads.map_or_else(all, NonZeroUsize::get)
}

fn plan(library: &Library, args: &Args) -> Result<Vec<Planned>> {
    let names = library.select(&args.names)?;
    let plan = |(paper, name): (library::Paper, String)| {
        let study = library.study(paper, &name, &library.estimates)?;
        let board = Board::new(&study.document)?;
        Ok(Planned { study, board })
    };
    names.into_iter().map(plan).collect()
}

/// Every paper and figure.
fn list(library: &Library, args: &Args) -> Result<ExitCode> {
    let names = if args.names.is_empty() { library.names()? } else { library.select(&args.names)? };
    let mut table =
        Table::new(1, ["", "runs", "requests", "core-minutes", "title"].map(str::to_owned).to_vec());
    for (paper, name) in names {
        let title = format!("{}/{name}", paper.name);
        let planned = library.study(paper, &name, &library.estimates).and_then(|study| {
            let board = Board::new(&study.document)?;
            Ok(Planned { study, board })
        });
        match planned {
            Ok(Planned { study, board }) => {
                let requests: f64 = board.places.iter().map(|place| runs::requests(&place.planned)).sum();
                table.row(vec![
                    title,
                    board.places.len().to_string(),
                    format!("{:.1}M", requests / 1e6),
                    format!("{:.1}", requests / REQUESTS_PER_CORE_MINUTE),
                    study.figure.title,
                ]);
            }
            Err(error) => table.remark(title, &format!("{error:#}")),
        }
    }
    print!("{}", table.text());
    Ok(ExitCode::SUCCESS)
}

/// What one core simulates in a minute: 4 million a second with connections and a policy, see `roost bench sim`.
const REQUESTS_PER_CORE_MINUTE: f64 = 60.0 * 4e6;

fn show(library: &Library, figure: &Planned, runs: &Runs) {
    let study = &figure.study;
    println!("\n{}  {}", study.name(), study.figure.title);
    let outcomes: Vec<_> = figure.board.places.iter().map(|place| runs.of(&place.planned)).collect();
    let metrics: Vec<metrics::Metric> = study.figure.y.iter().filter_map(|name| name.parse().ok()).collect();
    let header = std::iter::once(String::new()).chain(metrics.iter().map(ToString::to_string));
    let mut table = Table::new(1, header.collect());
    for (place, outcome) in figure.board.places.iter().zip(&outcomes) {
        let Some(outcome) = outcome else { continue };
        let text = |metric: &metrics::Metric| {
            metric.of(outcome).map_or_else(|| "-".to_owned(), |found| metric.unit().estimate_text(&found))
        };
        table.row(std::iter::once(place.name()).chain(metrics.iter().map(text)).collect());
    }
    println!("{}", table.text());
    for claim in library.claims_of(study.paper.name, &study.figure.name) {
        tell(claim, &figure.board, &outcomes);
    }
}

fn tell(claim: &Claim, board: &Board, outcomes: &board::Outcomes<'_>) {
    match claim.evaluate(board, outcomes) {
        Ok(found) => println!(
            "{} {}: {:.4} (±{:?}), bar {:?}, deviation {:?} {:?}",
            if found.is_met { "met   " } else { "MISSED" },
            claim.id,
            found.value,
            found.half_width,
            claim.bar(),
            claim.deviation(found.value),
            found.remark
        ),
        Err(problem) => println!("MISSED {}: {problem}", claim.id),
    }
}
