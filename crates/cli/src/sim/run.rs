//! `roost sim run`: every contestant once, side by side.

use super::options::{self, Checked, Options};
use super::page::{self, Facts};
use super::progress::Progress;
use super::results::Results;
use super::trace::{REQUESTS, SimTrace};
use super::{folder, paired, print, summary};
use crate::exit::{Exit, coded, usage};
use crate::table;
use anyhow::Result;
use sim::outcome::Verdict;
use sim::runner::{self, Task};
use sim::scenario::Contestant;
use sim::{Document, Outcome};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Simulate one scenario: every contestant with the same load, figures with 95% intervals
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/sim-run.txt"))]
pub struct Args {
    /// The scenario file
    #[arg(value_name = "SCENARIO")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// The contestant that the others are compared with, pair by pair [default: the first]
    #[arg(long, value_name = "NAME")]
    against: Option<String>,
    /// Print the watts that no policy can go below, which leaves out each cost that can be avoided
    #[arg(long)]
    bound: bool,
    /// Write a trace of the first 200,000 requests, the CPUs and the decisions into this file, for
    /// ui.perfetto.dev; every contestant is simulated once more for it
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    perfetto: Option<PathBuf>,
    /// Folder for the run [default: runs/sim-NAME-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let document = document(args)?;
    let contestants = options::contestants(&document)?;
    let against = args.against.as_deref();
    check_reference(against, &contestants)?;
    options::tell_of_shape(&document)?;
    let checked: Vec<Checked> = contestants.into_iter().map(options::task).collect::<Result<_>>()?;
    let trace = args.perfetto.as_deref().map(SimTrace::create).transpose()?;
    let started = folder::started()?;
    let place = options::folder(args.out.as_deref(), &document, &started, folder::OUTCOMES)?.make()?;
    let mut results = Results::new(&document, &checked, simulate(&checked, &args.options)?, against);
    if args.bound {
        results = results.with_floors(&checked).map_err(usage)?;
    }
    let json = serde_json::to_string_pretty(&results)?;
    folder::clear(&place, &[])?;
    folder::write(&place, folder::OUTCOMES, |file| writeln!(file, "{json}"))?;
    folder::write_table(&place, folder::SUMMARY, &results.summary())?;
    folder::write_table(&place, folder::DIFFERENCES, &paired::columns(&results.differences))?;
    folder::write_table(&place, folder::POINTS, &results.points())?;
    let info = folder::info(&document, folder::name_of(&place), results.title.clone(), started)?;
    folder::write_info(&place, &info)?;
    let facts = Facts::new(&info, &results, &document.scenario().map_err(usage)?);
    let outcomes: Vec<Outcome> = results.entries.iter().map(|entry| entry.outcome.clone()).collect();
    let report = folder::write_report(&place, &page::run_page(&facts, &outcomes))?;
    if args.options.json {
        print(&format!("{json}\n"))?;
    } else {
        let columns = table::columns();
        let (tables, foundations) =
            (summary::of_run(&results, columns), summary::foundations(&results, columns));
        print(&format!("{tables}{foundations}\n{report}\n"))?;
    }
    if let Some(mut trace) = trace {
        let share = REQUESTS / checked.len().max(1) as u64;
        for run in &checked {
            trace.take(&run.task.contestant.name, &run.task.tell(share.max(1)).map_err(usage)?);
        }
        eprintln!("{}", trace.end());
    }
    if results.entries.iter().all(|entry| entry.outcome.verdict == Verdict::Unstable) {
        return Err(coded(
            Exit::Invalid,
            "no contestant could serve what arrived, so there is no figure\nhint: lower run.utilisation or workload.rate",
        ));
    }
    let short = results.entries.iter().any(|entry| entry.falls_short());
    Ok(if short { Exit::GoalMissed.into() } else { ExitCode::SUCCESS })
}

/// There is a contestant of that name.
fn check_reference(against: Option<&str>, contestants: &[Contestant]) -> Result<()> {
    let names = || contestants.iter().map(|contestant| contestant.name.as_str());
    match against {
        Some(name) if !names().any(|known| known == name) => {
            let likely = options::nearest(name, names());
            let hint = likely.map_or_else(String::new, |name| format!("did you mean `{name}`? "));
            let all = names().collect::<Vec<_>>().join(", ");
            Err(usage(format!("--against {name}: no contestant is called so\n\nhint: {hint}There are {all}")))
        }
        _ => Ok(()),
    }
}

/// The scenario with the changes of the command line; a list of values is refused.
fn document(args: &Args) -> Result<Document> {
    let hint = "use `roost sim sweep`, or quote a value";
    let document = args.options.changed(args.scenario.as_deref(), "several values are a sweep", hint)?;
    let document = args.options.complete(document)?;
    let scenario = document.scenario().map_err(usage)?;
    if scenario.fleet.is_some() {
        return Err(usage(format!(
            "{}: fleet: this command simulates one server\n\nhint: `roost sim fleet` simulates many",
            document.path().display()
        )));
    }
    if !scenario.sweep.is_empty() && !args.options.json {
        let axes: Vec<&str> = scenario.sweep.keys().map(String::as_str).collect();
        eprintln!("roost sim run: the sweep over {} is left out: that is `roost sim sweep`", axes.join(", "));
    }
    Ok(document)
}

fn simulate(checked: &[Checked], options: &Options) -> Result<Vec<Outcome>> {
    let tasks: Vec<Task> = checked.iter().map(|run| run.task.clone()).collect();
    let progress = Progress::new(tasks.len(), options.json);
    let done = |place: usize, _: &_| progress.done(&tasks[place].contestant.name);
    let outcomes = runner::run_all(&tasks, options.threads(), &Default::default(), done);
    progress.end();
    outcomes.into_iter().map(|outcome| outcome.map_err(usage)).collect()
}
