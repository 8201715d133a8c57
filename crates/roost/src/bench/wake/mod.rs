//! `roost bench wake`: what waking early wins back, and what it costs.
//!
//! The planner is the real one, a child. Each part is run three ways, in blocks that take turns: *stock* (the machine as it is, nobody asks),
//! *anticipatory* (the part announces its events), *always* (the CPUs may not sleep at all).
//!
//! ```text
//!   planner.rs   the child, and what the kernel says of a CPU's sleep
//!   parts.rs     what is measured: wake-ups, ping-pong, disk reads, kernels
//!   bystander.rs what a program loses that asks for nothing
//!   verdict.rs   gaps, times awake, bars
//! ```
//!
//! *Gap closed* is (stock - ours) / (stock - always), of the rounds' medians of p50 and p99. *Time awake* of a CPU is all time less what it halted, from
//! `cpu_idle` events, per event of the part; it is held against the calibrated p99 of waking plus the time awake per event of the stock run, which is
//! the event's own work.

mod bystander;
mod parts;
mod planner;
mod verdict;

use crate::exit::{Exit, usage};
use crate::machine_facts::this_machine;
use crate::table::print;
use anyhow::{Result, bail};
use clap::ValueEnum;
use machine::CpuId;
use planner::{Always, Child, SleepMeter};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure what anticipatory wake-ups win back of a wake-up's cost, and what they cost
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost bench wake --only cross --rounds 5                        two and a half minutes
  roost bench wake --rounds 20 --out benches/runs/2026-11-22-intel-xeon-2cpu")]
pub struct Args {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Blocks of each way
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
    /// Events in a block
    #[arg(long, value_name = "N", default_value_t = 500)]
    events: u32,
    /// A file on the disk that is read, made if it is not there
    #[arg(long, value_name = "FILE", default_value = "target/wake-bench.data")]
    file: PathBuf,
    /// Append each block as a line of JSON to wake.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A thread is woken by one on another CPU after 10 ms
    Cross,
    /// The same, announced with +-20 %, one in ten never coming
    Jitter,
    /// A message there and back over the loopback, announced
    PingPong,
    /// 4 KB reads past the page cache, 0.1 to 10 ms apart
    Disk,
    /// Runs like K-means': 540 us +-25, by a thread that stands in for a device
    KMeans,
    /// Runs like StreamCluster's: 500 us +-50, outliers, a drift
    StreamCluster,
    /// A program that asks for nothing
    Bystander,
}

/// How it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    Stock,
    Anticipatory,
    Always,
}

/// One block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    pub part: Part,
    pub way: Way,
    pub round: u32,
    pub events: usize,
    pub p50_us: f64,
    pub p99_us: f64,
    pub mean_us: f64,
    /// Time awake per event, in us, of the CPU that waits.
    pub awake_us: f64,
    /// The same of the other.
    pub other_awake_us: f64,
    /// What was predicted of repeated runs: within a tenth, predicted, and how many of them the oracle had within a tenth.
    #[serde(default)]
    pub predicted: Option<Predicted>,
    /// Of disk reads: the mean in us by the gap before, 0.1 to 0.3 ms, to 1, to 3, to 10.
    #[serde(default)]
    pub by_gap_us: Option<[f64; GAPS]>,
}

/// Gaps are told apart by half a decade.
pub const GAPS: usize = 4;

/// Predictions of a block.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Predicted {
    pub predicted: u64,
    pub within_tenth: u64,
    pub in_window: u64,
    /// By who knows the law of the lengths and not the next draw.
    pub oracle_within_tenth: u64,
    pub runs: u64,
}

/// What is written of a whole run.
#[derive(Debug, Serialize)]
struct Header {
    started: String,
    machine: report::run::Machine,
    load_before: String,
    calibration: governor::wake::Calibration,
    build: &'static str,
}

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let cpus = host::allowed_cpus().map_err(usage)?;
    let (Some(&first), Some(&last)) = (cpus.0.first(), cpus.0.last()) else { bail!("no CPU is allowed") };
    if first == last {
        return Err(crate::exit::coded(
            Exit::Unsupported,
            "two CPUs are needed: one that waits, and one that wakes it",
        ));
    }
    let load_before = std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned();
    let parts = if args.only.is_empty() { Part::value_variants().to_vec() } else { args.only.clone() };
    let child = Child::start()?;
    let calibration = child.status()?.calibration;
    let header = Header {
        started: crate::run_folder::started()?,
        machine: this_machine(),
        load_before,
        calibration: calibration.clone(),
        build: if cfg!(debug_assertions) { "development" } else { "release" },
    };
    if let Some(folder) = &args.out {
        super::append(folder, "wake.jsonl", &header)?;
    }
    let mut bench = Bench { child, meter: SleepMeter::open()?, sleeper: last, waker: first, args };
    let mut blocks = Vec::new();
    let mut bystander = Vec::new();
    for part in parts {
        if part == Part::Bystander {
            bystander = bystander::run(&bench)?;
            if let Some(folder) = &args.out {
                bystander.iter().try_for_each(|pair| super::append(folder, "wake.jsonl", pair))?;
            }
            continue;
        }
        for round in 0..args.rounds {
            // Each way is first, second and third equally often.
            for turn in 0..3 {
                let way = [Way::Stock, Way::Anticipatory, Way::Always][(round as usize + turn) % 3];
                let block = bench.block(part, way, round)?;
                if let Some(folder) = &args.out {
                    super::append(folder, "wake.jsonl", &block)?;
                }
                if !args.json {
                    eprintln!(
                        "{part:?} {way:?} {round}: p50 {:.1} us, p99 {:.1} us, awake {:.1} us an event",
                        block.p50_us, block.p99_us, block.awake_us
                    );
                }
                blocks.push(block);
            }
        }
    }
    let status = bench.child.status()?;
    let verdict = verdict::Verdict::of(&blocks, &bystander, &calibration, last, &status);
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&verdict)?))?;
    } else {
        print(&verdict.text())?;
    }
    bench.child.end()?;
    Ok(if verdict.is_met() { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

/// What every part needs.
struct Bench<'a> {
    child: Child,
    meter: SleepMeter,
    sleeper: CpuId,
    waker: CpuId,
    args: &'a Args,
}

impl Bench<'_> {
    fn block(&mut self, part: Part, way: Way, round: u32) -> Result<Block> {
        let always = (way == Way::Always).then(|| Always::hold(&[self.sleeper, self.waker])).transpose()?;
        let client = (way == Way::Anticipatory).then(|| self.child.client(part)).transpose()?;
        let record = self.child.kernels()?;
        let before = self.meter.read();
        let done = parts::run(part, self, client.as_ref(), round)?;
        let after = self.meter.read();
        drop((always, client));
        let record = self.child.kernels()?.map(|after| (record.unwrap_or_default(), after));
        let awake =
            |cpu: CpuId| planner::awake(&before, &after, cpu).as_secs_f64() * 1e6 / done.events.max(1) as f64;
        let by_gap_us = by_gap(&done);
        let mut sorted = done.latencies;
        sorted.sort_unstable();
        if sorted.is_empty() {
            bail!("{part:?}: no event was timed");
        }
        let us = |percent: usize| observe::probe::percentile(&sorted, percent).as_nanos() as f64 / 1e3;
        let predicted =
            done.oracle.zip(record).map(|((oracle_within_tenth, runs), (before, after))| Predicted {
                predicted: after.predicted() - before.predicted(),
                within_tenth: after.within_tenth - before.within_tenth,
                in_window: after.hits - before.hits,
                oracle_within_tenth,
                runs,
            });
        Ok(Block {
            part,
            way,
            round,
            events: sorted.len(),
            p50_us: us(50),
            p99_us: us(99),
            mean_us: sorted.iter().map(|length| length.as_nanos() as f64 / 1e3).sum::<f64>()
                / sorted.len() as f64,
            awake_us: awake(self.sleeper),
            other_awake_us: awake(self.waker),
            predicted: predicted.filter(|_| way == Way::Anticipatory),
            by_gap_us,
        })
    }
}

/// The mean latency after gaps of each size; `None` if there are none of one.
fn by_gap(done: &parts::Done) -> Option<[f64; GAPS]> {
    let mut sums = [(0.0, 0_u32); GAPS];
    for (gap, latency) in done.gaps.iter().zip(&done.latencies) {
        // Half decades from 0.1 ms on.
        let place = (2.0 * (gap.as_secs_f64() / 1e-4).log10()).floor().clamp(0.0, GAPS as f64 - 1.0) as usize;
        sums[place].0 += latency.as_secs_f64() * 1e6;
        sums[place].1 += 1;
    }
    sums.iter().all(|(_, count)| *count > 0).then(|| sums.map(|(sum, count)| sum / f64::from(count)))
}
