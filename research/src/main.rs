//! `roost-papers`: the papers' figures from a shell. The library does the work.

use anyhow::Result;
use clap::{Parser, Subcommand};
use papers::library::Library;
use papers::results::Results;
use papers::runs::Runs;
use papers::{Request, authors, markdown, terminal};
use report::exit::{self, Exit, usage};
use report::run_folder;
use report::table::print;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use study::folder;

/// Simulate the papers' figures: the printed numbers beside ours
///
/// A claim of a paper is met when its sign is right and its size within 30 %. Exit code 2: a name
/// or a scenario is wrong; 4: another run writes to the folder.
#[derive(Parser, Debug)]
#[command(name = "roost-papers", version, max_term_width = 110)]
#[command(after_help = "\
Examples:
  roost-papers --list                  every paper and figure, and what it costs
  roost-papers carb/4                  one figure
  roost-papers carb hurry-up/table1    a paper, and a table of another
  roost-papers all --out runs/papers   all of them; the same command again goes on after a kill
  roost-papers all --sensitivity       and which ESTIMATE moves each claim most
  roost-papers all --short             the same pages in ten minutes, with wider intervals
  roost-papers all --corrections       and the effect of each correction alone
  roost-papers all --undo tradeoffs,carb/1    the same for these figures alone
  roost-papers all --vary tradeoffs,carb/1    ESTIMATEs in these alone
  roost-papers validate DIR            the same runs simulated: predicted beside measured
  roost-papers authors DIR             real runs of a paper's authors: power, tail, those left out")]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Papers and figures: `carb`, `carb/4`, `all`
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print the figures and their cost
    #[arg(long)]
    list: bool,
    /// Few requests: shows that everything works, and no figure that could be trusted
    #[arg(long)]
    quick: bool,
    /// A tenth of the requests, three repetitions of a story, one that takes ten minutes in a third of its
    /// time: the same pages with wider intervals
    #[arg(long, conflicts_with = "quick")]
    short: bool,
    /// Show each correction's effect alone: all of them but this one, against all, both as `--short` has
    /// them
    #[arg(long)]
    corrections: bool,
    /// Show it only in these papers and figures; stories take long, runs for each correction
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    undo: Vec<String>,
    /// Vary each ESTIMATE that a claim rests on by 30 % to either side, in the form of `--short`
    #[arg(long)]
    sensitivity: bool,
    /// Vary only in these papers and figures; stories take long, a run for each ESTIMATE and side
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    vary: Vec<String>,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Runs at the same time; results do not depend on it [default: one per CPU]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Folder for the run; finished runs in it are kept [default: runs/sim-papers-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the tables as Markdown as well
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// The folder of papers [default: papers, here or above]
    #[arg(long, value_name = "DIR")]
    papers: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Print the Hurry-up authors' runs: measured power and tail, and those that are left out
    ///
    /// DIR holds runs.csv and queries/RUN.csv.gz, facts of raijenki/elastic-hurryup. A run is left
    /// out without counters or log, with counters of two runs, with a log of another length than
    /// the run or with fewer queries than the clients counted, or with a p99 beyond the clients'
    /// histogram.
    Authors {
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Print one JSON document instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Simulate each of the authors' runs from its own query log: predicted beside measured
    ///
    /// DIR is as for `authors`. Of a run that is held out only arrivals and keywords enter; constants
    /// are this repository's, from the baselines. Exit code 5: a bar on the errors is missed.
    Validate {
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Compare the baselines alone, and read no run that is held out
        #[arg(long)]
        baselines: bool,
        /// Print one JSON document instead of the table
        #[arg(long)]
        json: bool,
        /// The folder that the page is written to
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Constants as `calibrate` prints them, instead of this repository's
        #[arg(long, value_name = "FILE")]
        constants: Option<PathBuf>,
    },
    /// Print the constants that follow from the baselines in DIR, as TOML
    Calibrate {
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Args {
    fn request(&self) -> Request {
        Request {
            names: self.names.clone(),
            is_quick: self.quick,
            is_short: self.short,
            corrections: self.corrections,
            undo: self.undo.clone(),
            sensitivity: self.sensitivity,
            vary: self.vary.clone(),
            threads: self.threads,
            is_silent: self.json,
        }
    }
}

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|error| {
        report::print::err(format_args!("roost-papers: {}\n", linux::printable(&exit::told(&error))));
        exit::code_of(&error)
    })
}

fn run(args: &Args) -> Result<ExitCode> {
    if let Some(command) = &args.command {
        return run_command(command);
    }
    let library = Library::open(args.papers.as_deref())?;
    if args.list {
        print(&terminal::list(&library, &args.request())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.names.is_empty() {
        let problem =
            "no figure was named\n\nhint: `roost-papers --list` has all; `roost-papers carb/4` is one";
        return Err(usage(problem));
    }
    let started = folder::started()?;
    let name = format!("sim-papers-{}", started.replace(" UTC", "").replace([' ', ':'], "-"));
    let place = folder::Place::of(args.out.as_deref(), &name, folder::PAPERS)?.make()?;
    let mut runs = Runs::open(&place)?;
    let reproduction = papers::reproduce(&library, &mut runs, &args.request())?;
    papers::write(&reproduction, &place, &started)?;
    if let Some(path) = &args.markdown {
        let text = markdown::text(&reproduction);
        run_folder::write_named(path, "--markdown", &text)?;
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&Results::new(&reproduction))?))?;
    } else {
        print(&format!("{}\nfolder: {}\n", terminal::text(&reproduction), place.display()))?;
        // Not among the results: it differs from time to time.
        report::print::err(format_args!("\n{}", reproduction.cost.text()));
    }
    Ok(ExitCode::SUCCESS)
}

fn run_command(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Authors { folder: runs, json } => {
            let listed = authors::listed(runs)?;
            print(&if *json { authors::json(&listed)? } else { authors::text(&listed) })?;
        }
        Command::Validate { folder: runs, baselines, json, out, constants } => {
            let constants = authors::Constants::of(constants.as_deref())?;
            let validation = if *baselines {
                authors::validated_baselines(runs, &constants)?
            } else {
                authors::validated(runs, &constants)?
            };
            let text = if *json {
                authors::validation_json(&validation)?
            } else {
                authors::validation_text(&validation)
            };
            print(&text)?;
            if let Some(out) = out {
                folder::create(out)?;
                folder::write_report(out, &authors::validation_page(&validation, &folder::started()?))?;
            }
            if !validation.is_met() {
                return Ok(Exit::GoalMissed.into());
            }
        }
        Command::Calibrate { folder: runs } => print(&authors::calibrated_text(runs)?)?,
    }
    Ok(ExitCode::SUCCESS)
}
