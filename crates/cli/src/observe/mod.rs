//! `roost observe`: how a service really sleeps, and the remedies.
//!
//! ```text
//!   options.rs    the options
//!   live.rs       this machine, now
//!   from.rs       a recording made elsewhere
//!   power.rs      the user's own meter
//!   scrape.rs     the watched service's own figures
//!   record/       recording.json, for `roost plan`
//!   answers.rs    how the watched service answered
//!   sweep.rs      our own load at several rates, under each depth of sleep
//!   view.rs       the live view
//!   trace.rs      the trace of `--perfetto`
//!   watched.rs    the facts about the watched machine
//!   table.rs      the tables
//!   page.rs       report.html
//!   results.rs    JSON, and the run's folder
//! ```

mod answers;
mod from;
mod live;
mod options;
mod page;
mod power;
pub mod record;
mod results;
mod scrape;
mod sweep;
mod table;
mod trace;
mod view;
mod watched;

pub use live::record_for_plan;
pub use options::Args;

use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.from {
        Some(file) => from::run(args, file),
        None => live::run(args),
    }
}
