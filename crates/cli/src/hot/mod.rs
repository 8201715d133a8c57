//! `roost hot`: finds a service's hot function, and the clock at which its light requests take the
//! least energy.
//!
//! ```text
//!   options.rs   the options
//!   find.rs      profile, count, rank: observe's eyes, policy's judgement
//!   course.rs    how many requests had been answered by when
//!   energy.rs    joules per request by clock: measured where that can be, else modelled
//!   results.rs   the table, the page, hot.json
//! ```

mod course;
mod energy;
mod find;
mod options;
mod results;

pub use options::Args;

use crate::exit::{Exit, coded, usage};
use crate::signals::{EndSignals, end_by};
use crate::table::print;
use anyhow::{Context as _, Result};
use machine::Duration;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.length < Duration::from_secs(1) {
        return Err(usage("--for needs a second or more"));
    }
    let maps = format!("/proc/{}/maps", args.pid);
    let may_look = std::fs::read(&maps);
    if may_look.is_err_and(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied) {
        let hint = if rustix::process::geteuid().is_root() {
            "this root lacks CAP_SYS_PTRACE, or the process is protected from it: watch another process"
        } else {
            "watch a process of your own, or run as root (CAP_SYS_PTRACE)"
        };
        return Err(coded(
            Exit::Unsupported,
            format!("{maps} may not be read, so what process {} runs is not known\nhint: {hint}", args.pid),
        ));
    }
    // Made here, where it is removed in whatever way this ends; its name cannot be known
    // beforehand.
    let scratch = tempfile::tempdir().context("a folder for perf")?;
    let sets_clocks = Arc::new(AtomicBool::new(false));
    end_at_once(scratch.path().to_owned(), Arc::clone(&sets_clocks))?;
    let mut found = find::find(args, scratch.path())?;
    drop(scratch);
    if args.energy {
        sets_clocks.store(true, Ordering::Relaxed);
        found.energy = Some(energy::of(args, &found)?);
    }
    let place = results::write(args.out.as_deref(), &found)?;
    if args.json {
        crate::json::print(1, &found)?;
    } else {
        print(&format!("{}\nreport: {}\n", results::text(&found), place.display()))?;
    }
    Ok(if found.is_found() { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

/// At a signal nothing is left behind and this ends by it. Children end with their parent. Once
/// clocks are set, the thread that set them puts them back first.
fn end_at_once(scratch: PathBuf, sets_clocks: Arc<AtomicBool>) -> Result<()> {
    EndSignals::watch()?.call_with(move |signal| {
        if !sets_clocks.load(Ordering::Relaxed) {
            let _ = std::fs::remove_dir_all(&scratch);
            end_by(signal);
        }
    })?;
    Ok(())
}
