//! `roost govern`: keeps services that were not changed inside their goals on few cores.
//!
//! ```text
//!   options.rs    what is asked for
//!   daemon.rs     governs until it is told to stop
//!   history.rs    what its epochs were
//!   page.rs       the page made of them
//!   plan.rs       what would be governed, and touches nothing
//!   status.rs     how a running daemon's services are, and what to change
//!   wakeups.rs    what wakes the CPUs that are parked
//! ```

mod daemon;
mod history;
mod options;
mod page;
mod plan;
mod status;
mod wakeups;

pub use options::Args;

use anyhow::Result;
use options::Subject;
use std::process::ExitCode;

/// Does what is asked.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.subject {
        None => daemon::run(&args.governing),
        Some(Subject::Plan(args)) => plan::run(args),
        Some(Subject::Status(args)) => status::show(args),
        Some(Subject::Set(args)) => status::set(args),
    }
}
