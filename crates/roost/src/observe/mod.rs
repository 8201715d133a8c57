//! `roost observe`: how a service really sleeps, and what to do about it.
//!
//! ```text
//!   options.rs    what is asked for
//!   from.rs       a recording made elsewhere
//!   watched.rs    what is known of the machine that was watched
//!   table.rs      what a person reads
//!   page.rs       report.html
//!   results.rs    what a machine reads, and the run's folder
//! ```

mod from;

mod options;
mod page;
mod results;
mod table;
mod watched;

pub use options::Args;
pub use results::maker;

use anyhow::Result;
use std::process::ExitCode;

/// Observes.
pub fn run(args: &Args) -> Result<ExitCode> {
    from::run(args)
}
