//! `roost-bench quiesce`: the shipped example, with and without quiescence.
//!
//! ```text
//!   client ----- asks ----> server, which answers after 100 ms       critical: the client
//!     ^------ 100 ms -------'
//!     `-- computes for 10 ms, asks again
//!   updater: bursts of 1 to 5 ms, 30 % of one CPU                    background, in a cgroup of its own
//! ```
//!
//! Blocks with `roost quiesce` running and without it take turns, the order turned about from round
//! to round. Each block has these figures. The length of each fetch, from the question to the end
//! of the computation. The share of time in which all CPUs were idle at once, by the scheduler's
//! switches. The updater's CPU time, which is its work. The CPU time of `roost quiesce` itself, and
//! that of all other processes: a block in which others used more than a tenth of a CPU is measured
//! again, once. The connection is over loopback, where the other end is on this machine. Such a
//! wait is believed only after eight that no background thread ended, and then freezing is tried.
//! So each block begins when the trial is settled, by the status of `roost quiesce`; the responses
//! until then are kept apart.
//!
//! With `--chain` the server asks the updater before it answers, for 3 ms of its CPU, over a Unix
//! socket:
//!
//! ```text
//!   client --asks--> server, which waits 100 ms --asks--> updater
//! ```
//!
//! So freezing the updater slows the client, which nothing connects with it. The measurement is of
//! the time after the verdict.

mod compared;
mod example;
pub mod parts;

use crate::exit::{Exit, coded, usage};
use crate::machine_facts::this_machine;
use crate::table::print;
use anyhow::Result;
use compared::{Compared, table};
use example::{Example, Meters};
use linux::Root;
use machine::Duration;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure the sleep of the shipped example with quiescence and without, and its cost to each
/// process
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench quiesce
  roost-bench quiesce --rounds 3 --loads 30
  roost-bench quiesce --out benches/runs/2026-11-22-intel-xeon-2cpu
  roost-bench quiesce --chain --loads 30     critical work that needs the background through a third
                                             process

Exit codes: 0 the targets are met, 5 they are not (critical responses within 1 %; all idle for at \
least 15 percentage points more of the time at the first load, and for no less at the others; with \
--chain: p50, p99 and throughput of critical responses within 2 % after the verdict), 6 others \
used the CPUs meanwhile, or no verdict came in time.")]
pub struct Args {
    /// How long the server takes for each answer
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    wait: Duration,
    /// CPU time of the client's computation after each answer
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    compute: Duration,
    /// Shares of one CPU that the updater uses, in percent; the bar of sleep holds for the first
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        default_values_t = [30, 10, 60],
        value_parser = clap::value_parser!(u8).range(1..=90)
    )]
    loads: Vec<u8>,
    /// Rounds at the first load, each a block with and a block without
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Rounds at each of the others
    #[arg(long, value_name = "N", default_value_t = 2)]
    sweep: u32,
    /// Freeze whether it pays or not
    #[arg(long)]
    always: bool,
    /// The server asks the updater before it answers
    #[arg(long)]
    chain: bool,
    /// Length of a block
    #[arg(long, value_name = "TIME", default_value = "8s")]
    block: Duration,
    /// Before each block with quiescence it is waited until it has been found out whether that
    /// pays, for so long at most
    #[arg(long, value_name = "TIME", default_value = "3m")]
    settle: Duration,
    /// Handed on to `roost quiesce`: nothing is frozen for more than this share of the time
    #[arg(long, value_name = "SHARE", default_value_t = 0.75)]
    max_share: f64,
    /// Append each block as a line of JSON to quiesce.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Block {
    load_percent: u8,
    round: u32,
    quiesces: bool,
    seconds: f64,
    /// In the order of their ends.
    responses_ms: Vec<f64>,
    /// From the first one's beginning to the last one's end.
    span_s: f64,
    all_idle_share: f64,
    /// Times per second that all CPUs went idle.
    all_idle_per_s: f64,
    /// Of one CPU.
    updater_share: f64,
    /// Of one CPU, by `roost quiesce`.
    own_share: f64,
    /// By the account of `roost quiesce`: share of the time in which the updater stood still,
    /// freezes, and the cost of freezing and thawing.
    frozen_share: f64,
    freezes: u64,
    cost_us: f64,
    /// CPU time of programs that are not of the example, of one CPU.
    others_share: Option<f64>,
    /// Of all CPUs; modelled or measured, as the summary says.
    watts: Option<f64>,
    /// Freezing was found to pay, and it was being tried, or tried again, at the end.
    pays: Option<bool>,
    is_trying: bool,
    /// Why it is left off, if it is.
    why: Option<String>,
    /// The time until the verdict, and the response times meanwhile.
    settled_s: Option<f64>,
    until_settled_ms: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Results {
    started: String,
    machine: report::run::Machine,
    load_before: String,
    energy: String,
    wait_ms: f64,
    compute_ms: f64,
    max_share: f64,
    is_chain: bool,
    compared: Vec<Compared>,
}

/// With quiescence over without, at most.
const RESPONSE_BAR: f64 = 1.01;
/// With `--chain`, by which p50, p99 and throughput may differ.
const CHAIN_BAR: f64 = 0.02;
/// Percentage points, at least.
const IDLE_BAR: f64 = 15.0;
/// Percentage points by which two blocks that are alike differ.
const NOISE: f64 = 2.0;
/// CPU time of others, of one CPU, with which a block says nothing.
const OTHERS_MAX: f64 = 0.1;

pub fn run(args: &Args) -> Result<ExitCode> {
    let load_before = fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned();
    let cpus = linux::online_cpus(&Root::system())?;
    // The measuring program itself: of all CPUs, and of no thread's waits.
    let mut meters = Meters::open(&cpus).map_err(|error| coded(Exit::Unsupported, error))?;
    let mut blocks: Vec<Block> = Vec::new();
    let loads: Vec<(u8, u32)> = (0..)
        .zip(&args.loads)
        .map(|(number, &load)| (load, if number == 0 { args.rounds } else { args.sweep }))
        .collect();
    let (mut is_disturbed, mut is_unsettled) = (false, false);
    for &(load, rounds) in &loads {
        for round in 0..rounds {
            let order = if round % 2 == 0 { [false, true] } else { [true, false] };
            for quiesces in order {
                let mut measure =
                    || Example::start(args, load, round)?.block(args, &mut meters, load, round, quiesces);
                let mut block = measure()?;
                if block.is_disturbed() {
                    block = measure()?;
                }
                is_disturbed |= block.is_disturbed();
                is_unsettled |= block.is_trying;
                if let Some(folder) = &args.out {
                    super::append(folder, "quiesce.jsonl", &block)?;
                }
                blocks.push(block);
            }
        }
    }
    let compared = loads.iter().filter_map(|&(load, _)| Compared::of(&blocks, load)).collect();
    let results = Results {
        started: crate::run_folder::started()?,
        machine: this_machine(),
        load_before,
        energy: meters.energy(),
        wait_ms: args.wait.as_secs_f64() * 1e3,
        compute_ms: args.compute.as_secs_f64() * 1e3,
        max_share: args.max_share,
        is_chain: args.chain,
        compared,
    };
    if let Some(folder) = &args.out {
        super::append(folder, "quiesce-summary.jsonl", &results)?;
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&results)?))?;
    } else {
        print(&table(&results))?;
    }
    let first = results.compared.first().ok_or_else(|| usage("--rounds 0 measures nothing"))?;
    if is_disturbed {
        eprintln!("others used more than a tenth of a CPU in some blocks: stop them and measure again");
        return Ok(Exit::Invalid.into());
    }
    if is_unsettled {
        eprintln!("whether freezing pays was not settled in some blocks: give it longer with --settle");
        return Ok(Exit::Invalid.into());
    }
    if args.chain {
        let is_met = results.compared.iter().all(Compared::is_unharmed);
        return Ok(if is_met { ExitCode::SUCCESS } else { Exit::GoalMissed.into() });
    }
    let sleeps = |(number, compared): (usize, &Compared)| {
        compared.all_idle_gain.0 >= if number == 0 { IDLE_BAR } else { -NOISE }
    };
    let is_met = first.response_ratio.0 <= RESPONSE_BAR && results.compared.iter().enumerate().all(sleeps);
    Ok(if is_met { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

impl Block {
    fn is_disturbed(&self) -> bool {
        self.others_share.is_some_and(|others| others > OTHERS_MAX)
    }
}
