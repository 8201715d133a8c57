//! `roost-bench wake`: the gain of waking early, and its cost.
//!
//! Each part is a case, run three ways, in blocks that take turns: *stock* (the machine as it is),
//! *anticipatory* (the part announces its events to a planner), *always* (the CPUs may not sleep at
//! all). The planner is the real one, a child, and there in its own blocks alone, but for repeated
//! runs. No program announces disk reads: their planner foresees them from the kernel's events.
//!
//! ```text
//!   planner.rs   the child, and the kernel's counts of a CPU's sleep
//!   parts.rs     the measured loops: wake-ups, ping-pong, disk reads, kernels
//!   bystander.rs the loss of a program that asks for nothing
//!   verdict.rs   gaps and times awake over all rounds, and their targets
//!   page.rs      the page, with the paper's figures beside ours
//! ```
//!
//! *Gap closed* is (stock - ours) / (stock - always), of the rounds' medians of p50 and p99. *Time
//! awake* of a CPU is all time less its halted time, from `cpu_idle` events, per event of the part.
//! It is held against the calibrated p99 of waking plus the time awake per event of the stock run,
//! which is the event's own work.

mod bystander;
mod page;
mod parts;
mod planner;
mod verdict;

use crate::exit::{Exit, usage};
use crate::harness::figure::{Figure, Of};
use crate::harness::{Measured, Output, Run, SEED};
use crate::run_folder;
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use daemon::wake::{Act, Alarm, BooksCheck};
use machine::{CpuId, Duration};
use planner::{Always, Child, Kind, SleepMeter};
use policy::wake_plan::Record;
use serde::Serialize;
use slots::wake::WakeClient;
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use verdict::PartVerdict;

/// Measure how much of a wake-up's cost anticipatory wake-ups win back, and their own cost
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench wake --only cross --rounds 5                        a minute and a half
  roost-bench wake --events 250                                   all of it, nine minutes
  roost-bench wake --out benches/runs/2026-11-22-intel-xeon-2cpu  20 rounds of 500: eighteen minutes")]
pub struct Args {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Blocks of each way
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Events in a block
    #[arg(long, value_name = "N", default_value_t = 500)]
    events: u32,
    /// The planner's means of keeping CPUs awake [default: the quicker one, as measured]
    #[arg(long, value_name = "MEANS", value_parser = planner::named::<Act>)]
    act: Option<Act>,
    /// The planner's timer for waking them [default: the same]
    #[arg(long, value_name = "MEANS", value_parser = planner::named::<Alarm>)]
    alarm: Option<Alarm>,
    /// The planner begins this much earlier than waking takes [default: as `roost wake` does]
    #[arg(long, value_name = "TIME")]
    margin: Option<Duration>,
    /// A file on the disk that is read, made if it is not there
    #[arg(long, value_name = "FILE", default_value = "target/wake-bench.data")]
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// A thread is woken by one on another CPU after 10 ms
    Cross,
    /// The same, announced with +-20 %, one in ten never coming
    Jitter,
    /// A message there and back over the loopback, announced
    PingPong,
    /// Runs like K-means': 540 us +-25, by a thread that stands in for a device
    KMeans,
    /// Runs like StreamCluster's: 500 us +-50, outliers, a drift
    StreamCluster,
    /// A program that asks for nothing
    Bystander,
    /// 4 KB reads past the page cache, 0.1 to 10 ms apart, announced by no program
    Disk,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Cross => "cross",
            Self::Jitter => "jitter",
            Self::PingPong => "ping-pong",
            Self::KMeans => "k-means",
            Self::StreamCluster => "stream-cluster",
            Self::Bystander => "bystander",
            Self::Disk => "disk",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Stock,
    Anticipatory,
    Always,
}

impl Way {
    const ALL: [Self; 3] = [Self::Stock, Self::Anticipatory, Self::Always];

    const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Anticipatory => "anticipatory",
            Self::Always => "always",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug)]
pub struct Block {
    pub part: Part,
    pub way: Way,
    pub events: usize,
    pub p50_us: f64,
    pub p99_us: f64,
    pub mean_us: f64,
    /// Time awake per event, in us, of the CPU that waits.
    pub awake_us: f64,
    /// The same of the other.
    pub other_awake_us: f64,
    /// The predictions of repeated runs: within a tenth, predicted, and the number of them that the
    /// oracle had within a tenth.
    pub predicted: Option<Predicted>,
    /// Of disk reads: the mean in us by the gap before, 0.1 to 0.3 ms, to 1, to 3, to 10.
    pub by_gap_us: Option<[f64; GAPS]>,
    /// The length of repeated runs, each with the wake-up that ends it, in us.
    pub run_us: Option<f64>,
    /// And each of the first round, without that wake-up.
    pub lengths_us: Vec<f64>,
}

impl Block {
    fn measured(&self) -> Result<Measured> {
        let metrics = [
            ("p50_us", self.p50_us),
            ("p99_us", self.p99_us),
            ("mean_us", self.mean_us),
            ("awake_us", self.awake_us),
            ("other_awake_us", self.other_awake_us),
        ];
        let run = self.run_us.map(|us| ("run_us", us));
        Measured::of(metrics.into_iter().chain(run)).detail(&serde_json::json!({
            "events": self.events,
            "predicted": self.predicted,
            "by_gap_us": self.by_gap_us,
            "lengths_us": self.lengths_us,
        }))
    }
}

/// Gaps are told apart by half a decade.
pub const GAPS: usize = 4;
const GAP_NAMES: [&str; GAPS] = ["0.1-0.3 ms", "0.3-1 ms", "1-3 ms", "3-10 ms"];

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Predicted {
    pub predicted: u64,
    pub within_tenth: u64,
    pub in_window: u64,
    /// By an oracle that knows the law of the lengths and not the next draw; of 0 runs where there is
    /// no such law.
    pub oracle_within_tenth: u64,
    pub runs: u64,
}

/// The planner's means, and their costs.
#[derive(Debug, Serialize)]
struct Means {
    calibration: daemon::wake::Calibration,
    /// Of the two that were calibrated.
    act: Act,
    alarm: Alarm,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let cpus = linux::allowed_cpus().map_err(usage)?;
    let (Some(&first), Some(&last)) = (cpus.0.first(), cpus.0.last()) else { bail!("no CPU is allowed") };
    if first == last {
        return Err(crate::exit::coded(
            Exit::Unsupported,
            "two CPUs are needed: one that waits, and one that wakes it",
        ));
    }
    let parts = if args.only.is_empty() { Part::value_variants().to_vec() } else { args.only.clone() };
    // It measures, and no more: over so short a life accounts prove nothing.
    let mut measures = Child::start(Kind::Asked, args.act, args.alarm, None, args.margin)?;
    let calibration = measures.status()?.calibration;
    measures.end()?;
    let act = args.act.unwrap_or_else(|| calibration.act());
    let alarm = args.alarm.unwrap_or_else(|| calibration.alarm());
    let exit_latency = calibration.exit_latency(last, alarm).unwrap_or_default();
    let means = Means { calibration, act, alarm };
    let mut run = Run::begin("wake", &args.output, SEED)?;
    run.block("calibration", 0, PLANNER, Measured::of([]).detail(&means)?)?;
    let meter = SleepMeter::open()?;
    let mut bench = Bench {
        child: None,
        act,
        alarm,
        exit_latency,
        checks: Vec::new(),
        meter,
        sleeper: last,
        waker: first,
        args,
    };
    let mut blocks = Vec::new();
    for part in parts {
        bench.change_planner(None)?;
        bench.exit_latency = exit_latency;
        if part == Part::Bystander {
            bench.change_planner(Some(Kind::Asked))?;
            bystander::run(&bench, &mut run)?;
            continue;
        }
        run.rounds(part.name(), args.rounds, &Way::ALL, |&way, round| {
            let block = bench.block(part, way, round)?;
            let measured = block.measured();
            blocks.push(block);
            measured
        })?;
    }
    bench.change_planner(None)?;
    if let Some(worst) = bench.checks.iter().max_by(|a, b| a.percent.total_cmp(&b.percent)) {
        let measured = Measured::of([("percent_of_time_apart", worst.percent)]);
        run.block(BOOKS, 0, PLANNER, measured.detail(worst)?)?;
    }
    let measured = PartVerdict::all(&blocks, &means.calibration, last);
    let mut figures = figures();
    for part in &measured {
        let case = part.part.name();
        let judged = part.judged();
        let metrics = judged.iter().map(|&(metric, value, _)| (metric, value));
        run.block(case, 0, OVERALL, Measured::of(metrics))?;
        figures.extend(judged.into_iter().map(|(metric, _, target)| Figure {
            target,
            ..Figure::new(metric, "", Of::One(OVERALL)).in_case(case)
        }));
        part.remarks().into_iter().for_each(|remark| run.remark(remark));
    }
    let page = page::page(run.header(), &means, &run.rows(&figures), &measured, &blocks).html();
    run_folder::write(run.folder(), PAGE, |file| file.write_all(page.as_bytes()))?;
    run.remark(format!("page: {}", run.folder().join(PAGE).display()));
    run.end(&figures)
}

const PAGE: &str = "wake.html";
const PLANNER: &str = "planner";
/// The planner's accounts against cpuidle.
const BOOKS: &str = "accounts";
const BOOKS_TARGET_PERCENT: f64 = 1.0;
const OVERALL: &str = "all rounds";

/// Those of all parts.
fn figures() -> Vec<Figure> {
    let of_ways = |metric| Way::ALL.map(|way| Figure::new(metric, "us", Of::One(way.name())));
    let mut figures: Vec<Figure> =
        ["p50_us", "p99_us", "awake_us", "run_us"].into_iter().flat_map(of_ways).collect();
    figures.push(bystander::figure());
    let books = Figure::new("percent_of_time_apart", "%", Of::One(PLANNER)).in_case(BOOKS);
    figures.push(books.at_most(BOOKS_TARGET_PERCENT));
    figures
}

/// The common needs of every part.
struct Bench<'a> {
    child: Option<Child>,
    act: Act,
    alarm: Alarm,
    /// The cost of waking as the planner before has learned it; the next need not measure again.
    exit_latency: Duration,
    /// The accounts of planners that have ended.
    checks: Vec<BooksCheck>,
    meter: SleepMeter,
    sleeper: CpuId,
    waker: CpuId,
    args: &'a Args,
}

impl Bench<'_> {
    /// The planner of a block. A planner changes the machine even without requests: the polling of
    /// CPUs, the watching of disks. But beside repeated runs it stays from block to block: its
    /// knowledge of them goes with it, and a program has thousands.
    fn planner_of(part: Part, way: Way) -> Option<Kind> {
        match (part, way) {
            (Part::KMeans | Part::StreamCluster, _) => Some(Kind::Asked),
            (Part::Disk, Way::Anticipatory) => Some(Kind::Disks),
            (_, Way::Anticipatory) => Some(Kind::Asked),
            _ => None,
        }
    }

    /// Ends a planner of another kind, and starts one.
    fn change_planner(&mut self, kind: Option<Kind>) -> Result<()> {
        if kind == self.child.as_ref().map(|child| child.kind) {
            return Ok(());
        }
        if let Some(mut child) = self.child.take() {
            let status = child.status()?;
            self.checks.extend(status.check);
            self.exit_latency =
                status.cpus.iter().map(|cpu| cpu.exit_latency).max().unwrap_or(self.exit_latency);
            child.end()?;
        }
        self.child = kind
            .map(|kind| {
                Child::start(
                    kind,
                    Some(self.act),
                    Some(self.alarm),
                    Some(self.exit_latency),
                    self.args.margin,
                )
            })
            .transpose()?;
        Ok(())
    }

    /// A client of the planner, for who announces.
    fn client(&self, part: Part) -> Result<WakeClient> {
        self.child.as_ref().context("no planner is there")?.client(part)
    }

    fn record(&self) -> Result<Record> {
        self.child.as_ref().map_or_else(|| Ok(Record::default()), Child::record)
    }

    fn block(&mut self, part: Part, way: Way, round: u32) -> Result<Block> {
        self.change_planner(Self::planner_of(part, way))?;
        let always = (way == Way::Always)
            .then(|| Always::hold(&[self.sleeper, self.waker], self.child.as_ref()))
            .transpose()?;
        let announces = way == Way::Anticipatory && part != Part::Disk;
        let client = announces.then(|| self.client(part)).transpose()?;
        let record_before = self.record()?;
        let before = self.meter.read();
        let done = parts::run(part, self, client.as_ref(), round)?;
        let after = self.meter.read();
        drop((always, client));
        let record = self.record()?;
        let awake =
            |cpu: CpuId| planner::awake(&before, &after, cpu).as_secs_f64() * 1e6 / done.events.max(1) as f64;
        let by_gap_us = by_gap(&done);
        let parts::Done { latencies: mut sorted, lengths, oracle, .. } = done;
        sorted.sort_unstable();
        if sorted.is_empty() {
            bail!("{part:?}: no event was timed");
        }
        let us = |length: &Duration| length.as_nanos() as f64 / 1e3;
        let mean = |lengths: &[Duration]| lengths.iter().map(us).sum::<f64>() / lengths.len().max(1) as f64;
        let percent = |percent: usize| us(&observe::probe::percentile(&sorted, percent));
        let (oracle_within_tenth, runs) = oracle.unwrap_or_default();
        let predicted = Predicted {
            predicted: record.predicted() - record_before.predicted(),
            within_tenth: record.within_tenth - record_before.within_tenth,
            in_window: record.hits - record_before.hits,
            oracle_within_tenth,
            runs,
        };
        let is_foreseen = way == Way::Anticipatory && (runs > 0 || part == Part::Disk);
        let is_shown = way == Way::Anticipatory && round == 0;
        Ok(Block {
            part,
            way,
            events: sorted.len(),
            p50_us: percent(50),
            p99_us: percent(99),
            mean_us: mean(&sorted),
            awake_us: awake(self.sleeper),
            other_awake_us: awake(self.waker),
            predicted: is_foreseen.then_some(predicted),
            by_gap_us,
            run_us: (!lengths.is_empty()).then(|| mean(&lengths) + mean(&sorted)),
            lengths_us: lengths.iter().filter(|_| is_shown).map(us).collect(),
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
