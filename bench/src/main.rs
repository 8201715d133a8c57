//! `roost-bench`: figures with their bars, measured by repeatable commands. Not packaged.
//!
//! ```text
//!   results.rs     the table of results, from results.toml and raw data
//!   scheduler.rs   transfers, bursts and packing
//!   stealing.rs    the cost of a stolen request
//!   serve.rs       the measurements, round by round
//!   fairness.rs    the cost of one client's large answers to the others
//!   govern.rs      a governed memcached beside one that is awake on all cores
//!   govern_cost.rs the cost of governing 128 CPUs
//!   govern_effect.rs the time until a service has left a core
//!   hurry_up/      the cost of hurry-up, and the delay until a request that entered has its clock
//!   quiesce/       the sleep of the shipped example with quiescence and without, and its cost
//!   lend.rs        the time until a service has a lent CPU back
//!   prove/         the errors and the finds of `roost prove`
//!   programs.rs    the cost of programs in the kernel
//!   nic.rs         packets that interrupt, that are polled for, that wait
//!   observe.rs     the cost of watching, switched on and off
//!   sim/           the simulator beside SimPy, closed forms and a loop by hand; its intervals
//!   stage/         the delay of the staged-burst proxy, the worth of holding, lost requests
//!   uprobe.rs      the cost of a call that is watched by uprobes
//!   wake/          the gain of waking early, and its cost
//!   contestant.rs  a server as a child process, with its figures from the kernel
//!   plan/          predictions of `roost plan` beside runs of what they predict
//!   product.rs     the file of `roost`, which is measured and puts the machine back
//!   harness/       treatments in turns, figures with intervals, targets, raw data
//! ```

// `println!` and its kin in all modules are those of `report::print`.
#[macro_use(eprintln, print, println)]
extern crate report as _;

mod contestant;
mod fairness;
mod govern;
mod govern_cost;
mod govern_effect;
mod harness;
mod hurry_up;
mod lend;
mod nic;
mod observe;
mod plan;
mod product;
mod programs;
mod prove;
mod quiesce;
mod results;
mod rivals;
mod scheduler;
mod serve;
mod sim;
mod stage;
mod stealing;
mod uprobe;
mod wake;

use anyhow::Result;
use clap::{Parser, Subcommand};
use report::{exit, machine_facts, print, run_folder, table};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measurements against a named peer and against stated bars
#[derive(Parser, Debug)]
#[command(name = "roost-bench", version, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    /// The product's program [default: `roost` beside this one, then in PATH]
    #[arg(long, value_name = "PATH", global = true)]
    roost: Option<PathBuf>,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand, Debug)]
enum Bench {
    Serve(serve::Args),
    Fairness(fairness::Args),
    Scheduler(scheduler::Args),
    Nic(nic::Args),
    Observe(observe::Args),
    Plan(plan::Args),
    Govern(govern::Args),
    GovernCost(govern_cost::Args),
    GovernEffect(govern_effect::Args),
    HurryUp(hurry_up::Args),
    Lend(lend::Args),
    #[command(hide = true)]
    HurryUpService(hurry_up::service::Args),
    Quiesce(quiesce::Args),
    #[command(hide = true)]
    QuiescePart(quiesce::parts::Args),
    Prove(prove::Args),
    Results(results::Args),
    Sim(sim::Args),
    SimCoverage(sim::coverage::Args),
    SimCrossCheck(sim::cross_check::Args),
    Stage(Box<stage::Args>),
    #[command(hide = true)]
    StageService(stage::service::Args),
    Uprobe(uprobe::Args),
    Wake(wake::Args),
}

fn main() -> ExitCode {
    let result = run(Cli::parse()).and_then(|code| match print::lost() {
        Some(why) if code == ExitCode::SUCCESS => Err(anyhow::anyhow!("standard output: {why}")),
        _ => Ok(code),
    });
    result.unwrap_or_else(|error| {
        eprintln!("roost-bench: {}", linux::printable(&exit::told(&error)));
        exit::code_of(&error)
    })
}

fn run(cli: Cli) -> Result<ExitCode> {
    if let Some(roost) = cli.roost {
        product::name(roost);
    }
    // Parts are children, which end with the bench. Simulations hold nothing of the machine.
    let is_part =
        matches!(cli.bench, Bench::HurryUpService(_) | Bench::QuiescePart(_) | Bench::StageService(_));
    let is_simulated = match &cli.bench {
        Bench::Sim(_) | Bench::SimCoverage(_) | Bench::SimCrossCheck(_) => true,
        Bench::Prove(args) => !args.is_live(),
        _ => false,
    };
    if !is_part && !is_simulated && !matches!(cli.bench, Bench::Results(_)) {
        linux::signals::put_back_at_end(&product::roost()?)?;
    }
    match &cli.bench {
        Bench::Serve(args) => serve::run(args),
        Bench::Fairness(args) => fairness::run(args),
        Bench::Scheduler(args) => scheduler::run(args),
        Bench::Lend(args) => lend::run(args),
        Bench::Nic(args) => nic::run(args),
        Bench::Observe(args) => observe::run(args),
        Bench::Plan(args) => plan::run(args),
        Bench::Govern(args) => govern::run(args),
        Bench::GovernCost(args) => govern_cost::run(args),
        Bench::GovernEffect(args) => govern_effect::run(args),
        Bench::HurryUp(args) => hurry_up::run(args),
        Bench::HurryUpService(args) => hurry_up::service::run(args),
        Bench::Quiesce(args) => quiesce::run(args),
        Bench::QuiescePart(args) => quiesce::parts::run(args),
        Bench::Prove(args) => prove::run(args),
        Bench::Results(args) => results::run(args),
        Bench::Sim(args) => sim::run(args),
        Bench::SimCoverage(args) => sim::coverage::run(args),
        Bench::SimCrossCheck(args) => sim::cross_check::run(args),
        Bench::Stage(args) => stage::run(args),
        Bench::StageService(args) => stage::service::run(args),
        Bench::Uprobe(args) => uprobe::run(args),
        Bench::Wake(args) => wake::run(args),
    }
}

/// True if this user's generators may send at real-time priority: most of our machines have so few
/// CPUs that generator and server share them.
fn may_be_realtime() -> bool {
    // By a thread of its own, which takes the priority with it.
    std::thread::spawn(|| linux::schedule_fifo().is_ok()).join().unwrap_or(false)
}
