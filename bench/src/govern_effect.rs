//! `roost-bench govern-effect`: how soon a service has left a core that is taken from it.
//!
//! A real memcached under load on all CPUs but the generator's own is kept, a thousand times, on
//! all but one of them and given that one back. The time begins at the decision, which is the call
//! of `linux::Confiner`. It ends at the last switch away from one of the server's threads on the
//! core that was taken, by the scheduler's events (`sched:sched_switch`). A change after which none
//! of them ever ran there took no time. Each actuator that works here is measured. The first move
//! is apart: it looks for pinned threads, and moves all of them.

use super::contestant::{Stable, Who};
use crate::exit::{Exit, usage};
use crate::machine_facts::this_machine;
use crate::table::{Table, print};
use anyhow::{Context as _, Result, bail};
use linux::perf::Switches;
use linux::{ConfineActuator, ConfineOptions, Confiner, Root};
use loadgen::{Items, Pace, Plan};
use machine::{CpuId, CpuList, Duration, Rate};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use workload::{ArrivalKind, Shape, Workload};

/// Measure how soon a service has left a core that is taken from it
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench govern-effect
  roost-bench govern-effect --changes 200 --out benches/runs/2026-11-22-intel-xeon-2cpu")]
pub struct Args {
    /// The memcached
    #[arg(long, value_name = "FILE", default_value = "memcached")]
    peer: PathBuf,
    /// Changes, by each actuator
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..))]
    changes: u32,
    /// Requests per second meanwhile
    #[arg(long, value_name = "RATE", default_value = "10k", value_parser = workload::parse_rate)]
    rate: Rate,
    /// Append the results as lines of JSON to govern-effect.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Of one actuator.
#[derive(Debug, Serialize)]
struct Results {
    started: String,
    machine: report::run::Machine,
    actuator: String,
    rate: f64,
    threads: usize,
    first_ns: u64,
    /// In order of size, without the first.
    effects_ns: Vec<u64>,
    /// How long the call took, in order of size.
    calls_ns: Vec<u64>,
}

/// At most so long, in half of all changes and in 99 of 100.
const BARS: [(f64, Duration); 2] = [(0.5, Duration::from_millis(1)), (0.99, Duration::from_millis(15))];

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let cpus = linux::allowed_cpus().map_err(usage)?;
    let &taken = cpus.0.last().context("no CPU")?;
    let Some(&generator) = cpus.0.first().filter(|&&first| first != taken) else {
        return Err(usage("bench govern-effect needs two CPUs: with one there is none to take away"));
    };
    let mut all = Vec::new();
    let mut refused = Vec::new();
    for actuator in [ConfineActuator::CpusetV2, ConfineActuator::CpusetV1, ConfineActuator::Affinity] {
        match of(args, &cpus, generator, taken, actuator)? {
            Ok(results) => {
                if let Some(folder) = &args.out {
                    super::append(folder, "govern-effect.jsonl", &results)?;
                }
                all.push(results);
            }
            Err(reason) => refused.push(format!("{actuator}: left out, {reason}")),
        }
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        print(&table(&all, args.rate))?;
    }
    refused.iter().for_each(|line| eprintln!("{line}"));
    let is_met = !all.is_empty()
        && all.iter().all(|results| BARS.iter().all(|&(q, bar)| at(&results.effects_ns, q) <= bar));
    Ok(if is_met { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

/// The changes by one actuator, or why it does not work here.
fn of(
    args: &Args,
    cpus: &CpuList,
    generator: CpuId,
    taken: CpuId,
    actuator: ConfineActuator,
) -> Result<Result<Results, String>> {
    let folder = tempfile::tempdir().context("a folder for the server's log")?;
    let stable = Stable {
        peer: args.peer.clone(),
        ours: crate::product::roost()?,
        cpus: cpus.clone(),
        memory_mib: 64,
        folder: folder.path().to_owned(),
    };
    let server = stable.start(Who::Peer)?;
    let root = Root::system();
    let service = linux::service::of_process(&root, server.process())?;
    let options =
        ConfineOptions { actuator: Some(actuator), ..ConfineOptions::new("roost-bench govern-effect") };
    let mut confiner = match Confiner::open(&root, &service, options) {
        Ok(confiner) => confiner,
        Err(error) => return Ok(Err(error.to_string().lines().next().unwrap_or_default().to_owned())),
    };
    let threads: BTreeSet<u32> = std::fs::read_dir(format!("/proc/{}/task", server.process()))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let patience = Duration::from_secs(600);
    let plan = Plan {
        connections: 32,
        cpus: Some(CpuList([generator].into())),
        length: patience,
        asks: Items::of(Workload { keys: 1_000, ..Workload::default() }),
        ..Plan::new(
            server.target(),
            Pace::Open {
                arrivals: ArrivalKind::Poisson,
                profile: Shape::constant().profile(Some(args.rate), patience, 1.0).map_err(usage)?,
            },
        )
    };
    loadgen::fill(&plan)?;
    let over = AtomicBool::new(false);
    let (changes, outcome) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            loadgen::run(&plan, &mut |_| {
                if over.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        let changes = changes(args, &mut confiner, cpus, taken, &threads);
        over.store(true, Ordering::Relaxed);
        (changes, load.join().expect("the generator does not panic"))
    });
    let (mut changes, outcome) = (changes?, outcome?);
    if outcome.is_broken() {
        bail!("the server failed under load:\n{}", outcome.remarks.join("\n"));
    }
    let first = changes.remove(0);
    let sorted = |of: &dyn Fn(&Change) -> Duration| {
        let mut all: Vec<u64> = changes.iter().map(|change| of(change).as_nanos()).collect();
        all.sort_unstable();
        all
    };
    Ok(Ok(Results {
        started: crate::run_folder::started()?,
        machine: this_machine(),
        actuator: actuator.to_string(),
        rate: outcome.achieved.as_per_second(),
        threads: threads.len(),
        first_ns: first.effect.as_nanos(),
        effects_ns: sorted(&|change| change.effect),
        calls_ns: sorted(&|change| change.call),
    }))
}

struct Change {
    effect: Duration,
    call: Duration,
}

/// Takes the core and gives it back, again and again.
fn changes(
    args: &Args,
    confiner: &mut Confiner,
    cpus: &CpuList,
    taken: CpuId,
    threads: &BTreeSet<u32>,
) -> Result<Vec<Change>> {
    let fewer = CpuList(cpus.0.iter().copied().filter(|&cpu| cpu != taken).collect());
    let mut switches = Switches::open(&CpuList([taken].into()))?;
    let mut changes = Vec::new();
    // The first is told apart.
    for number in 0..=args.changes {
        std::thread::sleep(APART);
        switches.drain(|_| {});
        let decided = linux::now();
        confiner.confine(&fewer)?;
        let done = linux::now();
        std::thread::sleep(APART);
        let mut last = decided;
        let lost = switches.drain(|switch| {
            if switch.at > decided && (threads.contains(&switch.from) || threads.contains(&switch.to)) {
                last = switch.at;
            }
        });
        if lost > 0 {
            bail!("{lost} switches of {taken} were lost: too much runs there");
        }
        changes.push(Change { effect: last.since(decided), call: done.since(decided) });
        confiner.confine(cpus)?;
        if number % 50 == 0 && std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            let done = format!("{}: {number} of {} changes", confiner.actuator(), args.changes);
            crate::print::over(std::io::stderr(), &done);
        }
    }
    eprintln!();
    Ok(changes)
}

/// Between a change and the next: time to spread over all CPUs again, and for a straggler to show.
const APART: std::time::Duration = std::time::Duration::from_millis(20);

/// The value that this share does not exceed.
fn at(sorted: &[u64], quantile: f64) -> Duration {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    Duration::from_nanos(sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default())
}

fn table(all: &[Results], rate: Rate) -> String {
    let header =
        ["by", "threads", "first", "p50", "p99", "longest", "ran there after", "call p50", "call p99"];
    let mut table = Table::new(1, header.map(str::to_owned).to_vec());
    for results in all {
        let effects = &results.effects_ns;
        let ran = effects.iter().filter(|&&effect| effect > 0).count();
        table.row(vec![
            results.actuator.clone(),
            results.threads.to_string(),
            Duration::from_nanos(results.first_ns).to_string(),
            at(effects, 0.5).to_string(),
            at(effects, 0.99).to_string(),
            at(effects, 1.0).to_string(),
            format!("{:.0} %", ran as f64 / effects.len().max(1) as f64 * 100.0),
            at(&results.calls_ns, 0.5).to_string(),
            at(&results.calls_ns, 0.99).to_string(),
        ]);
    }
    let bars: Vec<String> = BARS.iter().map(|(q, bar)| format!("p{:.0} <= {bar}", q * 100.0)).collect();
    table.text()
        + &format!(
            "decision to the last switch of one of its threads on the core that was taken, at \
             {:.0} requests/s; bars {}\n",
            rate.as_per_second(),
            bars.join(", ")
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_values_themselves() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(at(&values, 0.5), Duration::from_nanos(50));
        assert_eq!(at(&values, 0.99), Duration::from_nanos(99));
        assert_eq!(at(&values, 1.0), Duration::from_nanos(100));
        assert_eq!(at(&[], 0.5), Duration::ZERO);
    }
}
