//! `roost bench`: ours beside a named peer, on this machine, under the same conditions.
//!
//! ```text
//!   serve.rs       what is measured, round by round
//!   contestant.rs  a server as a child process, and what the kernel says of it
//!   verdict.rs     medians, spreads, ratios, bars; the table and the folder of raw data
//! ```

mod contestant;
mod serve;
mod verdict;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Side-by-side measurements against a named peer
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand, Debug)]
enum Bench {
    Serve(serve::Args),
}

/// Measures.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.bench {
        Bench::Serve(args) => serve::run(args),
    }
}
