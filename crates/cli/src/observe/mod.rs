//! `roost observe`: how a service really sleeps, and the remedies.
//!
//! ```text
//!   options.rs    the options
//!   live.rs       this machine, now
//!   from.rs       a recording made elsewhere
//!   power.rs      the user's own meter
//!   scrape.rs     what the watched service tells about itself
//!   answers.rs    how the watched service answered
//!   sweep.rs      our own load at several rates, under each depth of sleep
//!   view.rs       what the terminal shows meanwhile
//!   watched.rs    what is known of the machine that was watched
//!   table.rs      what a person reads
//!   page.rs       report.html
//!   results.rs    what a machine reads, and the run's folder
//! ```

mod answers;
mod from;
mod live;
mod options;
mod page;
mod power;
mod results;
mod scrape;
mod sweep;
mod table;
mod view;
mod watched;

pub use options::Args;

use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.from {
        Some(file) => from::run(args, file),
        None => live::run(args),
    }
}
