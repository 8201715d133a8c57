//! `roost-bench observe`: the cost of watching, by switching it on and off under a load that does
//! not stop.
//!
//! One server and one generator run the whole time. Only the watching changes, block by block, on
//! and off in turns whose order alternates. A cost that is lost in the noise of one pair of blocks
//! shows over many: the ratio of each pair's costs is taken, and the interval of their mean comes
//! from drawing whole pairs anew (a block-paired bootstrap).
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
use crate::exit::{Exit, usage};
use crate::machine_facts::this_machine;
use anyhow::{Context as _, Result, bail};
use linux::Root;
use linux::service::Service;
use loadgen::{Interval, Items, Pace, Plan};
use machine::{CpuId, CpuList, Duration, Ratio};
use observe::requests::RequestWatch;
use observe::sleep::{SleepWatch, Without};
use serde::Serialize;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Append the result as a line of JSON to observe.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// The measured parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
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
            Self::Requests => "request telemetry, server CPU per request",
            Self::Sleeps => "sleep histograms, server CPU per request",
            Self::PingPong => "sleep histograms, pipe ping-pong, time per round",
            Self::PingPongPlain => "the same without what ended the sleeps",
        }
    }

    /// The cost that the upper end may not exceed.
    fn bar(self) -> f64 {
        match self {
            Self::Requests => 1.03,
            Self::Sleeps => 1.02,
            Self::PingPong | Self::PingPongPlain => 1.06,
        }
    }
}

/// The results.
#[derive(Debug, Serialize)]
struct Results {
    started: String,
    machine: report::run::Machine,
    costs: Vec<Cost>,
    reading: Option<Reading>,
}

/// One way of watching and its cost.
#[derive(Debug, Serialize)]
struct Cost {
    what: What,
    /// By which means it watched.
    by: String,
    /// Microseconds per request or round, pair by pair: watched and not.
    pairs_us: Pairs,
    ratio: f64,
    /// Ends of the 95 % interval of the ratio.
    interval: (f64, f64),
    met: bool,
}

/// The watcher's own cost.
#[derive(Debug, Serialize)]
struct Reading {
    events_per_s: f64,
    /// Of one core, at one reading a second.
    core_share: f64,
    met: bool,
}

/// Of a core, at one reading a second and 100,000 events a second.
const READING_BAR: f64 = 0.002;
const CONNECTIONS: u32 = 32;
const KEYS: u64 = 100_000;
/// Left out of each block.
const SETTLE: Duration = Duration::from_millis(250);

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let allowed: Vec<CpuId> = linux::allowed_cpus().map_err(usage)?.0.into_iter().collect();
    let [first, .., last] = allowed[..] else {
        return Err(usage("bench observe needs two CPUs: one for the server, one for the generator"));
    };
    if args.blocks < 2 {
        return Err(usage("--blocks: an interval needs two pairs at least; thirty are a measurement"));
    }
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("the clock")?;
    let mut results = Results {
        started: report::run::utc(started.as_secs()),
        machine: this_machine(),
        costs: Vec::new(),
        reading: None,
    };
    for what in What::ALL.into_iter().filter(|what| args.only.is_none_or(|only| only == *what)) {
        eprintln!("{}: {} pairs of blocks", what.name(), args.blocks);
        let (by, pairs_us) = match what {
            What::PingPong | What::PingPongPlain => {
                let (by, pairs, reading) = ping_pong(args, what, first, last)?;
                results.reading = Some(reading);
                (by, pairs)
            }
            _ => under_load(args, what, first, last)?,
        };
        let ratios: Vec<f64> = pairs_us.iter().map(|(on, off)| on / off).collect();
        let (ratio, interval) = bootstrap(&ratios);
        results.costs.push(Cost { what, by, pairs_us, ratio, interval, met: interval.1 <= what.bar() });
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        print!("{}", table(&results));
    }
    if let Some(folder) = &args.out {
        super::append(folder, "observe.jsonl", &results)?;
    }
    let met = results.costs.iter().all(|cost| cost.met) && results.reading.is_none_or(|reading| reading.met);
    Ok(if met { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

/// Microseconds, watched and not, of each pair of blocks.
type Pairs = Vec<(f64, f64)>;

/// One that watches, until it is dropped.
enum Watching {
    Nothing,
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

/// Whether a pair's first block is the watched one: in turns, so that a drift favours neither.
fn watched_first(pair: u32) -> bool {
    pair.is_multiple_of(2)
}

/// Server CPU time per request, in microseconds, watched and not, of each pair.
fn under_load(args: &Args, what: What, server: CpuId, load: CpuId) -> Result<(String, Pairs)> {
    let folder = tempfile::tempdir().context("a folder for the server's log")?;
    with_server(args, what, server, load, folder.path())
}

fn with_server(
    args: &Args,
    what: What,
    server: CpuId,
    load: CpuId,
    folder: &std::path::Path,
) -> Result<(String, Pairs)> {
    let only = |cpu| CpuList([cpu].into());
    let stable = Stable {
        peer: args.peer.clone(),
        ours: crate::product::roost()?,
        cpus: only(server),
        memory_mib: 256,
        folder: folder.to_owned(),
    };
    let contestant = stable.start(Who::Peer)?;
    let port = contestant.port().context("the server has no TCP port")?;
    let service = linux::service::of_port(&Root::system(), port).map_err(usage)?;
    let plan = Plan {
        connections: CONNECTIONS,
        threads: 1,
        cpus: Some(only(load)),
        // Half as long again as the blocks take, for a machine that stalls; the last block ends the
        // run.
        length: SETTLE * u64::from(3 * args.blocks * intervals_per_block(args)),
        warmup: Duration::ZERO,
        interval: SETTLE,
        asks: Items::of(Workload { keys: KEYS, gets: Ratio::new(0.9), ..Workload::default() }),
        ..Plan::new(contestant.target(), Pace::Closed { depth: 1 })
    };
    loadgen::fill(&plan)?;
    let mut blocks = Blocks::begin(what, &service, args, || contestant.cpu_time())?;
    let mut failure = None;
    let mut each = |interval: &Interval<'_>| match blocks.interval(interval.progress.counts.answered) {
        Ok(true) => ControlFlow::Continue(()),
        Ok(false) => ControlFlow::Break(()),
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    };
    let outcome = loadgen::run(&plan, &mut each)?;
    if let Some(error) = failure {
        return Err(error);
    }
    if outcome.is_broken() {
        bail!("the server failed under load:\n{outcome}");
    }
    blocks.finish(args.blocks)
}

/// One to settle, and those that count.
fn intervals_per_block(args: &Args) -> u32 {
    1 + args.block.as_nanos().div_ceil(SETTLE.as_nanos()).max(1) as u32
}

/// Goes from block to block as the generator's intervals end.
struct Blocks<'a, F> {
    what: What,
    service: &'a Service,
    used: F,
    blocks: u32,
    intervals_per_block: u32,
    /// Intervals of the block so far.
    passed: u32,
    /// CPU time when the part that counts began, and requests since.
    began: Option<(Duration, u64)>,
    watching: Watching,
    by: String,
    done: Vec<f64>,
}

impl<'a, F: Fn() -> Result<Duration>> Blocks<'a, F> {
    fn begin(what: What, service: &'a Service, args: &Args, used: F) -> Result<Self> {
        let (watching, by) = watch(what, service)?;
        Ok(Self {
            what,
            service,
            used,
            blocks: 2 * args.blocks,
            intervals_per_block: intervals_per_block(args),
            passed: 0,
            began: None,
            watching,
            by,
            done: Vec::new(),
        })
    }

    /// An interval with so many replies has ended. False: all blocks are done.
    fn interval(&mut self, answered: u64) -> Result<bool> {
        // The generator tells of intervals until the run's end, in which nothing is sent any more.
        if self.done.len() as u32 == self.blocks {
            return Ok(false);
        }
        self.passed += 1;
        match &mut self.began {
            // Programs were loaded or unloaded in this one.
            None => self.began = Some(((self.used)()?, 0)),
            Some((_, requests)) => *requests += answered,
        }
        if self.passed < self.intervals_per_block {
            return Ok(true);
        }
        let Some((before, requests)) = self.began.take() else {
            unreachable!("a block is two intervals at least")
        };
        self.done.push(((self.used)()? - before).as_secs_f64() * 1e6 / requests.max(1) as f64);
        self.passed = 0;
        let next = self.done.len() as u32;
        if next == self.blocks {
            return Ok(false);
        }
        let watched = watched_first(next / 2) == next.is_multiple_of(2);
        self.watching = if watched { watch(self.what, self.service)?.0 } else { Watching::Nothing };
        Ok(true)
    }

    fn finish(self, pairs: u32) -> Result<(String, Pairs)> {
        drop(self.watching);
        let paired: Pairs = self
            .done
            .chunks_exact(2)
            .zip(0..)
            .map(|(pair, number)| if watched_first(number) { (pair[0], pair[1]) } else { (pair[1], pair[0]) })
            .collect();
        if paired.len() < pairs as usize {
            bail!("the generator ended after {} of {pairs} pairs of blocks", paired.len());
        }
        Ok((self.by, paired))
    }
}

/// Microseconds per round, watched and not, of each pair; and the cost of reading meanwhile.
fn ping_pong(args: &Args, what: What, one: CpuId, other: CpuId) -> Result<(String, Pairs, Reading)> {
    let rounds = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let (there_out, there_in) = std::io::pipe().context("a pipe")?;
    let (back_out, back_in) = std::io::pipe().context("a pipe")?;
    std::thread::scope(|scope| {
        scope.spawn(|| echo(other, there_out, back_in));
        scope.spawn(|| serve(one, there_in, back_out, &rounds, &stop));
        let measured = ping_pong_blocks(args, what, &rounds);
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

fn ping_pong_blocks(args: &Args, what: What, rounds: &AtomicU64) -> Result<(String, Pairs, Reading)> {
    let mut by = String::new();
    let mut done = Vec::new();
    for block in 0..2 * args.blocks {
        let watched = watched_first(block / 2) == block.is_multiple_of(2);
        let _watching = if watched {
            let (watching, means) = watch(what, &Service::default())?;
            by = means;
            watching
        } else {
            Watching::Nothing
        };
        std::thread::sleep(SETTLE.into());
        let (began, before) = (Instant::now(), rounds.load(Ordering::Relaxed));
        std::thread::sleep(args.block.into());
        let passed = rounds.load(Ordering::Relaxed) - before;
        if passed == 0 {
            bail!("the threads of the ping-pong do not run");
        }
        done.push(began.elapsed().as_secs_f64() * 1e6 / passed as f64);
    }
    let pairs = done
        .chunks_exact(2)
        .zip(0..)
        .map(|(pair, number)| if watched_first(number) { (pair[0], pair[1]) } else { (pair[1], pair[0]) });
    Ok((by, pairs.collect(), reading()?))
}

/// The CPU time of ten readings, one a second's worth each, while the ping-pong goes on.
fn reading() -> Result<Reading> {
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
    Ok(Reading { events_per_s, core_share, met: core_share <= READING_BAR })
}

/// The mean of the ratios (geometric), and the ends of its 95 % interval by drawing pairs anew.
pub(super) fn bootstrap(ratios: &[f64]) -> (f64, (f64, f64)) {
    const DRAWS: usize = 10_000;
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / logs.len() as f64;
    // A fixed seed: the same pairs always give the same interval.
    let mut stream = workload::Random::new(1, 0);
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| mean(&mut (0..logs.len()).map(|_| logs[stream.below(logs.len() as u64) as usize])))
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((DRAWS - 1) as f64 * share) as usize].exp();
    (mean(&mut logs.iter().copied()).exp(), (at(0.025), at(0.975)))
}

fn table(results: &Results) -> String {
    let mut text = format!(
        "{}\n{:<52} {:>7} {:>17} {:>8}\n",
        super::serve::describe(&results.machine),
        "cost of watching, as a ratio",
        "mean",
        "95 % interval",
        "bar"
    );
    let verdict = |met: bool| if met { "met" } else { "MISSED" };
    for cost in &results.costs {
        let interval = format!("{:.3} to {:.3}", cost.interval.0, cost.interval.1);
        text += &format!(
            "{:<52} {:>7.3} {interval:>17} <= {:.2} {} ({} pairs; by {})\n",
            cost.what.name(),
            cost.ratio,
            cost.what.bar(),
            verdict(cost.met),
            cost.pairs_us.len(),
            cost.by
        );
    }
    if let Some(reading) = &results.reading {
        text += &format!(
            "reading once a second at {:.0} events/s: {:.3} % of a core (bar {:.1} %): {}\n",
            reading.events_per_s,
            100.0 * reading.core_share,
            100.0 * READING_BAR,
            verdict(reading.met)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_mean_and_shrinks_with_agreement() {
        let noisy: Vec<f64> = (0..40).map(|pair| if pair % 2 == 0 { 0.9 } else { 1.12 }).collect();
        let (mean, (low, high)) = bootstrap(&noisy);
        assert!(low < mean && mean < high, "{low} {mean} {high}");
        let calm: Vec<f64> = (0..40).map(|pair| if pair % 2 == 0 { 1.01 } else { 1.012 }).collect();
        let (_, (calm_low, calm_high)) = bootstrap(&calm);
        assert!(calm_high - calm_low < (high - low) / 10.0);
        assert_eq!(bootstrap(&noisy), bootstrap(&noisy));
    }

    #[test]
    fn blocks_alternate_and_each_pair_is_read_the_right_way_round() {
        let watched: Vec<bool> =
            (0u32..8).map(|block| watched_first(block / 2) == block.is_multiple_of(2)).collect();
        assert_eq!(watched, [true, false, false, true, true, false, false, true]);
    }
}
