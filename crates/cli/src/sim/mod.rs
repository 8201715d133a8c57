//! `roost sim`: what each policy would do to a service, before a machine is touched.
//!
//! ```text
//!   options.rs    a scenario file and what the command line changes about it
//!   changes.rs    what `--set` changes
//!   run.rs        every contestant once
//!   sweep.rs      every contestant in every cell of a grid
//!   grid.rs       the cells, and which of them a changed scenario leaves
//!   cells.rs      finished cells, kept in a file that survives a kill
//!   figures.rs    the figures of a run by name: for tables, CSV files and plots
//!   summary.rs    what a person reads at the end
//!   results.rs    what a machine reads: one JSON document, CSV files
//!   folder.rs     files that are whole or not there
//!   progress.rs   how far it is
//!   page/         report.html
//!   fleet.rs      servers behind a root
//!   paper/        the papers' figures, and what the papers claim
//! ```

mod cells;
mod changes;
mod figures;
mod fleet;
mod folder;
mod grid;
mod options;
mod page;
mod paper;
mod progress;
mod results;
mod run;
mod summary;
mod sweep;

pub use folder::{REPORT, maker};

use crate::table::print;
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Simulate a service under every policy: power, tails with their intervals, residency
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::Args>),
    Sweep(Box<sweep::Args>),
    Fleet(Box<fleet::Args>),
    Paper(Box<paper::Args>),
}

/// Simulates.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Fleet(args) => fleet::run(args),
        Command::Paper(args) => paper::run(args),
    }
}
