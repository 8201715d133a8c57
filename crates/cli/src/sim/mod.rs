//! `roost sim`: the effect of each policy on a service, before a machine is touched.
//!
//! ```text
//!   run.rs        every contestant once
//!   sweep.rs      every contestant in every cell of a grid
//!   summary.rs    the tables at the end
//!   fleet.rs      servers behind a root
//!   machines.rs   the presets
//!   trace.rs      the trace of `--perfetto`
//! ```

mod fleet;
mod machines;
mod run;
mod summary;
mod sweep;
mod trace;

use crate::table::print;
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;
use study::{cells, figures, folder, grid, options, page, paired, progress, results};

/// Simulate a service under every policy: power, tails with their intervals, residency
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/sim.txt"))]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::Args>),
    Sweep(Box<sweep::Args>),
    Fleet(Box<fleet::Args>),
    Machines(machines::Args),
}

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Fleet(args) => fleet::run(args),
        Command::Machines(args) => machines::run(args),
    }
}
