//! `roost restore`: put back whatever a dead run changed.

use crate::exit::{Exit, usage};
use host::Root;
use std::path::PathBuf;
use std::process::ExitCode;

/// Put back whatever a dead run changed on this machine
///
/// A run that was killed leaves a journal under /run/roost of every kernel file it changed. Each file that still
/// reads what that run wrote gets its earlier text back; one that somebody else has changed since is left alone;
/// runs that are still alive are passed over. Exit code 1 means that something could not be put back: the journal is
/// kept, so it can be tried again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    roost restore            put everything back and say what was done\n  \
    roost restore --json     the same for a machine, such as an ExecStopPost= of a unit")]
pub struct Args {
    /// Folder that holds the machine's sys and run folders, for tests and recorded machines
    #[arg(long, value_name = "DIR", default_value = "/")]
    sysfs_root: PathBuf,

    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Who misspells it shall not hear that there is nothing to put back.
    if !args.sysfs_root.is_dir() {
        return Err(usage(format!(
            "--sysfs-root {}: there is no such folder\nhint: name one that holds a machine's sys and run folders",
            args.sysfs_root.display()
        )));
    }
    let report = host::restore(&Root::at(&args.sysfs_root))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        for line in &report.lines {
            println!("{line}");
        }
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { Exit::Failed.into() })
}
