//! `roost-bench govern-effect`: how soon a service has left a core that is taken from it.
//!
//! A real memcached under load on all CPUs but the generator's own is kept, a thousand times, on
//! all but one of them and given that one back. The time begins at the decision, which is the call
//! of `linux::Confiner`. It ends at the last switch away from one of the server's threads on the
//! core that was taken, by the scheduler's events (`sched:sched_switch`). A change after which none
//! of them ever ran there took no time. Each actuator that works here is measured. The first move
//! is apart: it looks for pinned threads, and moves all of them.

use super::contestant::{Stable, Who};
use crate::exit::{Exit, coded, usage};
use crate::harness::figure::{Figure, Of, quantile};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result, bail};
use linux::perf::Switches;
use linux::{ConfineActuator, ConfineOptions, Confiner, Root};
use loadgen::{Items, Pace, Plan};
use machine::{CpuId, CpuList, Duration, Rate};
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
    #[command(flatten)]
    output: Output,
}

/// Milliseconds from the decision to the effect: the median and the 99th percentile.
const TARGETS: [(&str, f64); 2] = [("effect_p50_ms", 1.0), ("effect_p99_ms", 15.0)];

pub fn run(args: &Args) -> Result<ExitCode> {
    let cpus = linux::allowed_cpus().map_err(usage)?;
    let &taken = cpus.0.last().context("no CPU")?;
    let Some(&generator) = cpus.0.first().filter(|&&first| first != taken) else {
        return Err(usage("bench govern-effect needs two CPUs: with one there is none to take away"));
    };
    let mut run = Run::begin("govern-effect", &args.output, SEED)?;
    let mut is_measured = false;
    for actuator in [ConfineActuator::CpusetV2, ConfineActuator::CpusetV1, ConfineActuator::Affinity] {
        match of(args, &mut run, &cpus, generator, taken, actuator)? {
            Ok(()) => is_measured = true,
            Err(reason) => run.remark(format!("{actuator}: left out, {reason}")),
        }
    }
    if !is_measured {
        return Err(coded(Exit::GoalMissed, "no actuator takes a core from a service here"));
    }
    run.remark("effect: from the decision to the last switch of one of its threads on the core taken");
    let figure = |metric, unit| Figure::new(metric, unit, Of::One(CONFINED));
    let mut figures = TARGETS.map(|(metric, most)| figure(metric, "ms").at_most(most)).to_vec();
    figures.extend(["effect_max_ms", "first_ms", "call_p50_ms", "call_p99_ms"].map(|of| figure(of, "ms")));
    figures.push(figure("ran_there_after", "of 1"));
    run.end(&figures)
}

const CONFINED: &str = "confined";

/// The changes by one actuator, or why it does not work here.
fn of(
    args: &Args,
    run: &mut Run,
    cpus: &CpuList,
    generator: CpuId,
    taken: CpuId,
    actuator: ConfineActuator,
) -> Result<Result<(), String>> {
    let folder = tempfile::tempdir().context("a folder for the server's log")?;
    let stable = Stable::of(&args.peer, cpus.clone(), 64, folder.path())?;
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
    let ms = |length: Duration| length.as_secs_f64() * 1e3;
    let sorted = |of: &dyn Fn(&Change) -> Duration| -> Vec<f64> {
        let mut all: Vec<f64> = changes.iter().map(|change| ms(of(change))).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (effects, calls) = (sorted(&|change| change.effect), sorted(&|change| change.call));
    let ran = effects.iter().filter(|&&effect| effect > 0.0).count();
    let measured = Measured::of([
        ("threads", threads.len() as f64),
        ("rate", outcome.achieved.as_per_second()),
        ("first_ms", ms(first.effect)),
        ("effect_p50_ms", quantile(&effects, 0.5)),
        ("effect_p99_ms", quantile(&effects, 0.99)),
        ("effect_max_ms", quantile(&effects, 1.0)),
        ("ran_there_after", ran as f64 / effects.len().max(1) as f64),
        ("call_p50_ms", quantile(&calls, 0.5)),
        ("call_p99_ms", quantile(&calls, 0.99)),
    ]);
    let measured = measured.detail(&serde_json::json!({ "effects_ms": effects, "calls_ms": calls }))?;
    run.block(&actuator.to_string(), 0, CONFINED, measured).map(Ok)
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
