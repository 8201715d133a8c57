//! `roost restore`: put back whatever a dead run changed.

use crate::exit::{Exit, coded, usage};
use linux::{RestoreError, Root};
use std::path::PathBuf;
use std::process::ExitCode;

/// Put back whatever a dead run changed on this machine
///
/// A run that was killed leaves a journal under /run/roost of every kernel file it changed. Each
/// file that still holds that run's text gets its earlier text back; one that another program has
/// changed since is left alone; runs that are still alive are passed over.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/restore.txt"))]
pub struct Args {
    /// Folder that holds the machine's sys and run folders: for benches on machines that are not there
    #[arg(long, value_name = "DIR", default_value = "/", alias = "sysfs-root", hide = true)]
    root: PathBuf,

    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,

    /// Print only the remarks, and then end by this signal: a command that was ended by it becomes
    /// this
    #[arg(long, value_name = "SIGNAL", hide = true)]
    ended_by: Option<i32>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Who misspells it shall not hear that there is nothing to put back.
    if !args.root.is_dir() {
        return Err(usage(format!(
            "--root {}: there is no such folder\nhint: name one that holds a machine's sys and run folders",
            args.root.display()
        )));
    }
    let root = Root::at(&args.root);
    let mut report = linux::restore(&root);
    let left = observe::hot::remove_left_runs(&root);
    if let (Ok(report), 1..) = (&mut report, left) {
        report.lines.push(format!("roost hot: took away {left} folder(s) that killed runs had left"));
    }
    if let Some(signal) = args.ended_by {
        match report {
            Ok(report) if report.put_back + report.left_alone + report.failed > 0 => {
                report.lines.iter().for_each(|line| eprintln!("{line}"));
            }
            Ok(_) => {}
            Err(error) => eprintln!("roost: {error}"),
        }
        crate::signals::end_by(signal);
    }
    let report = report.map_err(|error| match error {
        RestoreError::Refused(lock) if lock.is_refusal() => coded(Exit::Refused, lock),
        error => error.into(),
    })?;
    if args.json {
        crate::json::print(1, &report)?;
    } else {
        for line in &report.lines {
            println!("{line}");
        }
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { Exit::Failed.into() })
}
