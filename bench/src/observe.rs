//! `roost-bench observe`: the cost of watching, by switching it on and off under a load that does
//! not stop.
//!
//! One server and one generator run the whole time. Only the watching changes, block by block. A
//! cost that is lost in the noise of one pair of blocks shows over many: the ratio of each pair's
//! costs is taken, and the upper end of the interval of their mean is judged.
//!
//! - *requests*, *sleeps*: the server's CPU time per request, memcached with 32 connections in a
//!   closed loop.
//! - *ping-pong*: two threads on two CPUs hand a byte to and fro through pipes. Both CPUs go idle
//!   and wake in each round, four events, which is the highest cost of watching sleeps. Time per
//!   round. Twice: as `roost observe` does it, and without the causes of wake-ups.
//! - *reading*: the watcher's own CPU time at one reading a second, while those events come.
//!
//! A block's first part is left out, in which programs are loaded or unloaded.

use super::contestant::{Stable, Who};
use crate::exit::usage;
use crate::harness::figure::{By, Figure, Of};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result, bail};
use linux::Root;
use linux::service::Service;
use loadgen::{Interval, Items, Pace, Plan};
use machine::{CpuId, CpuList, Duration, Ratio};
use observe::requests::RequestWatch;
use observe::sleep::{SleepWatch, Without};
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;
use workload::Workload;

/// Measure the cost of watching, switched on and off in one run
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench observe                            memcached from the PATH, about four minutes
  roost-bench observe --blocks 60 --out benches/runs/2026-11-22-amd-epyc-2cpu
  roost-bench observe --only ping-pong")]
pub struct Args {
    /// The memcached to watch
    #[arg(long, value_name = "FILE", default_value = "memcached")]
    peer: PathBuf,
    /// Pairs of blocks, one watched and one not
    #[arg(long, value_name = "N", default_value_t = 40)]
    blocks: u32,
    /// Length of the part of a block that counts
    #[arg(long, value_name = "TIME", default_value = "750ms")]
    block: Duration,
    /// Measure only this
    #[arg(long, value_enum)]
    only: Option<What>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Request telemetry
    Requests,
    /// Histograms of sleep
    Sleeps,
    /// Histograms of sleep at their worst
    PingPong,
    /// The same without the causes of wake-ups
    PingPongPlain,
}

impl What {
    const ALL: [Self; 4] = [Self::Requests, Self::Sleeps, Self::PingPong, Self::PingPongPlain];

    fn name(self) -> &'static str {
        match self {
            Self::Requests => "request telemetry",
            Self::Sleeps => "sleep histograms",
            Self::PingPong => "ping-pong",
            Self::PingPongPlain => "ping-pong without wakers",
        }
    }

    /// The upper end of the interval may not exceed this.
    fn target(self) -> f64 {
        match self {
            Self::Requests => 1.03,
            Self::Sleeps => 1.02,
            Self::PingPong | Self::PingPongPlain => 1.06,
        }
    }
}

/// Of a core, at one reading a second and 100,000 events a second.
const READING_TARGET: f64 = 0.002;
const CONNECTIONS: u32 = 32;
const KEYS: u64 = 100_000;
/// Left out of each block.
const SETTLE: Duration = Duration::from_millis(250);

pub fn run(args: &Args) -> Result<ExitCode> {
    let allowed: Vec<CpuId> = linux::allowed_cpus().map_err(usage)?.0.into_iter().collect();
    let [first, .., last] = allowed[..] else {
        return Err(usage("bench observe needs two CPUs: one for the server, one for the generator"));
    };
    if args.blocks < 2 {
        return Err(usage("--blocks: an interval needs two pairs at least; thirty are a measurement"));
    }
    let mut run = Run::begin("observe", &args.output, SEED)?;
    let mut figures = Vec::new();
    for what in What::ALL.into_iter().filter(|what| args.only.is_none_or(|only| only == *what)) {
        match what {
            What::PingPong | What::PingPongPlain => ping_pong(args, &mut run, what, first, last)?,
            _ => under_load(args, &mut run, what, first, last)?,
        }
        let ratio = Figure::new("cost_us", "us", Of::Ratio(WATCHED, PLAIN)).in_case(what.name());
        figures.push(Figure { by: By::IntervalEnd, ..ratio.at_most(what.target()) });
    }
    figures.push(Figure::new("core_share", "of a core", Of::One(READ)).at_most(READING_TARGET));
    figures.push(Figure::new("events_per_s", "/s", Of::One(READ)));
    run.end(&figures)
}

const WATCHED: &str = "watched";
const PLAIN: &str = "not watched";
const TREATMENTS: [&str; 2] = [WATCHED, PLAIN];
const READ: &str = "read once a second";

/// One that watches, until it is dropped.
enum Watching {
    Requests(#[expect(dead_code, reason = "held, not read")] Box<RequestWatch>),
    Sleeps(#[expect(dead_code, reason = "held, not read")] SleepWatch),
}

fn watch(what: What, service: &Service) -> Result<(Watching, String)> {
    let root = Root::system();
    match what {
        What::Requests => {
            let (watch, _) = RequestWatch::open(&root, service, linux::now());
            let watch = watch.context("requests cannot be watched here; see `roost doctor`")?;
            let by = watch.total().way.to_string();
            Ok((Watching::Requests(Box::new(watch)), by))
        }
        _ => {
            let without = if what == What::PingPongPlain { Without::Wakers } else { Without::Nothing };
            let (mut watch, _) = SleepWatch::open(&root, without, linux::now());
            let by = watch.read(linux::now()).source.to_string();
            Ok((Watching::Sleeps(watch), by))
        }
    }
}

/// Server CPU time per request, while a generator does not stop.
fn under_load(args: &Args, run: &mut Run, what: What, server: CpuId, load: CpuId) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder for the server's log")?;
    let only = |cpu| CpuList([cpu].into());
    let stable = Stable::of(&args.peer, only(server), 256, folder.path())?;
    let contestant = stable.start(Who::Peer)?;
    let port = contestant.port().context("the server has no TCP port")?;
    let service = linux::service::of_port(&Root::system(), port).map_err(usage)?;
    let counted = args.block.as_nanos().div_ceil(SETTLE.as_nanos()).max(1) as usize;
    let plan = Plan {
        connections: CONNECTIONS,
        threads: 1,
        cpus: Some(only(load)),
        // Half as long again as the blocks take, for a machine that stalls; the last block ends the
        // run.
        length: SETTLE * (3 * u64::from(args.blocks) * (1 + counted as u64)),
        warmup: Duration::ZERO,
        interval: SETTLE,
        asks: Items::of(Workload { keys: KEYS, gets: Ratio::new(0.9), ..Workload::default() }),
        ..Plan::new(contestant.target(), Pace::Closed { depth: 1 })
    };
    loadgen::fill(&plan)?;
    let (sender, answered) = mpsc::channel();
    let (measured, outcome) = std::thread::scope(|scope| {
        let load = scope.spawn(move || {
            loadgen::run(&plan, &mut |interval: &Interval<'_>| match sender
                .send(interval.progress.counts.answered)
            {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
        });
        let measured = run.rounds(what.name(), args.blocks, &TREATMENTS, |&treatment, _| {
            let watching = (treatment == WATCHED).then(|| watch(what, &service)).transpose()?;
            // In intervals that have ended, and in the next, programs were loaded or unloaded.
            answered.try_iter().for_each(drop);
            answered.recv().context(ENDED_EARLY)?;
            let before = contestant.cpu_time()?;
            let requests: u64 =
                (0..counted).map(|_| answered.recv()).sum::<Result<_, _>>().context(ENDED_EARLY)?;
            let used = contestant.cpu_time()? - before;
            cost(used.as_secs_f64() * 1e6 / requests.max(1) as f64, watching.as_ref())
        });
        drop(answered);
        (measured, load.join().expect("the generator does not panic"))
    });
    let outcome = outcome?;
    if outcome.is_broken() {
        bail!("the server failed under load:\n{outcome}");
    }
    measured
}

const ENDED_EARLY: &str = "the generator ended before the last block";

fn cost(us: f64, watching: Option<&(Watching, String)>) -> Result<Measured> {
    Measured::of([("cost_us", us)]).detail(&watching.map(|(_, by)| by))
}

/// Time per round, and the cost of reading meanwhile.
fn ping_pong(args: &Args, run: &mut Run, what: What, one: CpuId, other: CpuId) -> Result<()> {
    let rounds = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let (there_out, there_in) = std::io::pipe().context("a pipe")?;
    let (back_out, back_in) = std::io::pipe().context("a pipe")?;
    std::thread::scope(|scope| {
        scope.spawn(|| echo(other, there_out, back_in));
        scope.spawn(|| serve(one, there_in, back_out, &rounds, &stop));
        let measured = run
            .rounds(what.name(), args.blocks, &TREATMENTS, |&treatment, _| {
                let watching =
                    (treatment == WATCHED).then(|| watch(what, &Service::default())).transpose()?;
                std::thread::sleep(SETTLE.into());
                let (began, before) = (Instant::now(), rounds.load(Ordering::Relaxed));
                std::thread::sleep(args.block.into());
                let passed = rounds.load(Ordering::Relaxed) - before;
                if passed == 0 {
                    bail!("the threads of the ping-pong do not run");
                }
                cost(began.elapsed().as_secs_f64() * 1e6 / passed as f64, watching.as_ref())
            })
            .and_then(|()| run.block(what.name(), 0, READ, reading()?));
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

/// Sends a byte and waits for it, again and again.
fn serve(cpu: CpuId, mut out: PipeWriter, mut back: PipeReader, rounds: &AtomicU64, stop: &AtomicBool) {
    let _ = linux::pin_current_thread(cpu);
    let mut byte = [0];
    while !stop.load(Ordering::Relaxed) {
        if out.write_all(&byte).is_err() || back.read_exact(&mut byte).is_err() {
            return;
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends each byte back, until the other end is closed.
fn echo(cpu: CpuId, mut from: PipeReader, mut to: PipeWriter) {
    let _ = linux::pin_current_thread(cpu);
    let mut byte = [0];
    while from.read_exact(&mut byte).is_ok() {
        if to.write_all(&byte).is_err() {
            return;
        }
    }
}

/// The CPU time of ten readings, one a second's worth each, while the ping-pong goes on.
fn reading() -> Result<Measured> {
    const READINGS: u32 = 10;
    let (mut watch, _) = SleepWatch::open(&Root::system(), Without::Nothing, linux::now());
    let events = |pattern: &observe::sleep::SleepPattern| -> u64 {
        let of = |cpu: &observe::sleep::CpuPattern| {
            cpu.active.count() + cpu.idle.iter().map(machine::LengthHistogram::count).sum::<u64>()
        };
        pattern.cpus.iter().map(of).sum()
    };
    let before = events(&watch.read(linux::now()));
    let began = Instant::now();
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let start = used();
    let mut after = before;
    for reading in 1..=READINGS {
        // The reading of a second, ten times a second: a tenth of the time to wait for the same
        // figure.
        std::thread::sleep(std::time::Duration::from_millis(100));
        if reading == READINGS {
            after = events(&watch.read(linux::now()));
        } else {
            watch.read(linux::now());
        }
    }
    let end = used();
    let spent = (end.tv_sec - start.tv_sec) as f64 + (end.tv_nsec - start.tv_nsec) as f64 / 1e9;
    let core_share = spent / f64::from(READINGS);
    let events_per_s = (after - before) as f64 / began.elapsed().as_secs_f64();
    Ok(Measured::of([("core_share", core_share), ("events_per_s", events_per_s)]))
}
