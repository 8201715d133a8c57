//! `roost doctor`: the arguments become a root to look at; facts become a page or JSON.

use crate::exit::{Exit, usage};
use crate::print::over;
use crate::run_folder::write_named;
use crate::table::print;
use anyhow::{Context as _, Result};
use linux::Root;
use machine::Duration;
use observe::doctor::{Facts, Verdict, gather, page, record, unpack, verdicts};
use observe::probe::{Probe, probe};
use serde::Serialize;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::TempDir;

/// Show this machine's abilities, the limits of its C-states, and the prospects of each Roost
/// policy
///
/// Reads the kernel's files and changes nothing. Runs as any user: files that the user may not read
/// are listed, with the reason. --probe measures the real latency of wake-ups too; it limits one
/// CPU's idle states for that, which is journalled and put back, also on Ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/doctor.txt"))]
pub struct Args {
    /// Print one JSON object instead of a page
    #[arg(long)]
    json: bool,

    /// Measure wake latencies for about so long, by another CPU and by timer, beside the advertised
    /// ones
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "10s",
        conflicts_with = "root"
    )]
    probe: Option<Duration>,

    /// Look at this machine instead: a folder that holds sys and proc, or a file that --record
    /// wrote
    #[arg(long, value_name = "DIR|FILE")]
    root: Option<PathBuf>,

    /// Write the files that doctor reads, and nothing else, to FILE; no page is printed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "probe"])]
    record: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    facts: &'a Facts,
    policies: &'a [Verdict],
    probe: Option<&'a Probe>,
    /// The kernel's option with the measured latencies, where its idle driver takes one.
    boot_table: Option<String>,
}

/// Looks, measures if asked to, and prints.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.probe.is_some_and(Duration::is_zero) {
        return Err(usage("--probe 0s leaves no time to measure: give it a second or more"));
    }
    let (root, _folder) = root(args.root.as_deref())?;
    if let Some(file) = &args.record {
        let text = record(&root);
        write_named(file, "--record", &text)?;
        let (lines, path) = (text.lines().count(), file.display());
        print(&format!("{path}: {lines} lines of text; look it through before you send it\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    // Only the running kernel can be asked which programs it takes.
    let programs = args.root.is_none().then(|| linux::probes::survey(&root));
    let facts = gather(&root, programs);
    let policies = verdicts(&facts);
    if !args.json {
        print(&page(&facts, &policies))?;
    }
    let measured = args.probe.map(measure).transpose()?;
    let boot_table = measured.as_ref().and_then(|measured| {
        let table = linux::idle_table(&root, measured.sleeper).ok()?;
        measured.boot_table(&table)
    });
    if args.json {
        let report = Report { facts: &facts, policies: &policies, probe: measured.as_ref(), boot_table };
        crate::json::print(1, &report)?;
    } else if let Some(measured) = &measured {
        print(&format!("\n{measured}"))?;
        if let Some(option) = boot_table {
            print(&format!("  on the command line of Linux 7.0 and later: {option}\n"))?;
        }
    }
    Ok(match measured {
        Some(Probe { stopped: true, .. }) => Exit::Failed.into(),
        _ => ExitCode::SUCCESS,
    })
}

/// The machine to look at. A recording is unpacked into a folder that lasts as long as the returned
/// guard.
fn root(asked: Option<&Path>) -> Result<(Root, Option<TempDir>)> {
    let Some(path) = asked else { return Ok((Root::system(), None)) };
    let fix = "name a folder that holds sys and proc, or a file that roost doctor --record wrote";
    let kind =
        fs::metadata(path).map_err(|error| usage(format!("--root {}: {error}; {fix}", path.display())))?;
    if kind.is_dir() {
        return Ok((Root::at(path), None));
    }
    let text = fs::read_to_string(path)
        .map_err(|error| usage(format!("--root {}: {error}; {fix}", path.display())))?;
    let folder = tempfile::tempdir().context("making a folder for the recorded machine")?;
    unpack(&text, folder.path())
        .map_err(|error| usage(format!("--root {}: {error}; {fix}", path.display())))?;
    Ok((Root::at(folder.path()), Some(folder)))
}

/// Probes, until the time is over or a signal comes: then the limits are put back before this
/// returns.
fn measure(length: Duration) -> Result<Probe> {
    let stop = crate::signals::end_flag()?;
    let live = io::stderr().is_terminal();
    if !live {
        eprintln!("roost doctor: measuring wake-ups for about {length}");
    }
    let mut progress = |step: &str| {
        if live {
            over(io::stderr(), &format!("roost doctor: {step}"));
        }
    };
    let measured = probe(length, &stop, &mut progress);
    if live {
        over(io::stderr(), "");
    }
    Ok(measured?)
}
