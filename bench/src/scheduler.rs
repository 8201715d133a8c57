//! `roost-bench scheduler`: the cost of moving connections, the response to a burst, the time until
//! a quiet store is packed.
//!
//! All run the store in this process, on real sockets and with a real generator, and read the
//! store's own stamps.
//!
//! - *transfer*: connections are ordered back and forth between two workers. Counted from leaving
//!   one epoll set to the first read by the other. Where the other worker slept, apart, beside the
//!   cost of a bare wake-up here.
//! - *burst*: the paper's figure 7 scaled to this machine: a peak to learn from, a fall to 5 %,
//!   then 65 % at once, again and again. Counted from the first guest sent home until every worker
//!   that got one back has answered; and from the instant at which the burst's first request was
//!   due, which includes seeing the burst.
//! - *pack*: eight workers, 64 connections, 5 % of the learned peak: how long after the last block
//!   expired one worker serves all.
//! - *prehistory*: stores that have seen different loads get the same one: a light one, and all
//!   that comes. Counted are those that serve it with as many workers as a store which has seen
//!   nothing, and how long a worker was busy for over 90 % of the time beside one that slept.

use crate::exit::{Exit, coded, usage};
use crate::machine_facts::this_machine;
use anyhow::{Context as _, Result};
use loadgen::{Items, Pace, Part, Plan, Target};
use machine::{CpuId, CpuList, Duration, Instant, Rate, Ratio, WorkerId};
use policy::peafowl::Params;
use rustix::event::{EventfdFlags, eventfd};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Config, Policy, Server, StartError};
use workload::{ArrivalKind, Profile, Segment, ValueSize, Workload};

const TRANSFER_BAR: Duration = Duration::from_micros(30);
const BURST_BAR: Duration = Duration::from_millis(2);
const PACK_BAR: Duration = Duration::from_secs(10);
/// A worker that is busy all the time is seen at its next report, and helped when a connection of
/// its has been served; a second has room for a machine that takes its CPUs away meanwhile.
const ALONE_BAR: Duration = Duration::from_secs(1);

/// Measure transfers, bursts and packing against their bars
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench scheduler                       all four, about six minutes
  roost-bench scheduler --only transfer
  roost-bench scheduler --out benches/runs/2026-11-20-polyglot")]
pub struct Args {
    /// Measure only this
    #[arg(long, value_enum)]
    only: Option<Figure>,
    /// Transfers ordered
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    transfers: u32,
    /// Bursts
    #[arg(long, value_name = "N", default_value_t = 30)]
    bursts: u32,
    /// Requests per second at the peak
    /// [default: 60k for each CPU of the store, and 20k for packing]
    #[arg(long, value_name = "RATE", value_parser = workload::parse_rate)]
    peak: Option<Rate>,
    /// Append the result as a line of JSON to scheduler.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Figure {
    Transfer,
    Burst,
    Pack,
    Prehistory,
}

#[derive(Debug, Default, Serialize)]
struct Results {
    started: String,
    machine: report::run::Machine,
    transfer: Option<TransferResult>,
    burst: Option<BurstResult>,
    pack: Option<PackResult>,
    prehistory: Option<PrehistoryResult>,
}

#[derive(Debug, Serialize)]
struct TransferResult {
    to_awake: u64,
    awake_p50_ns: Option<Duration>,
    awake_p99_ns: Option<Duration>,
    awake_max_ns: Option<Duration>,
    /// The same for each of the two workers that took.
    awake_p99_by_worker_ns: Vec<Option<Duration>>,
    to_sleeper: u64,
    sleeper_p50_ns: Option<Duration>,
    sleeper_p99_ns: Option<Duration>,
    bare_wake_p50_ns: Duration,
    bare_wake_p99_ns: Duration,
}

#[derive(Debug, Serialize)]
struct BurstResult {
    bursts: usize,
    /// From the first guest sent home to the last worker's first answer.
    serving_ns: Vec<Duration>,
    /// From the instant at which the burst's first request was due.
    since_due_ns: Vec<Duration>,
}

#[derive(Debug, Serialize)]
struct PackResult {
    packed_after_ns: Option<Duration>,
}

#[derive(Debug, Serialize)]
struct PrehistoryResult {
    /// The store that has seen nothing comes first.
    stores: Vec<StoreResult>,
}

#[derive(Debug, Serialize)]
struct StoreResult {
    prehistory: &'static str,
    /// Workers that were active for most of the time under the light load, and under all that
    /// comes.
    workers: [usize; 2],
    /// The longest time for which a worker was busy for over 90 % beside one that slept.
    alone_ns: Duration,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let allowed: Vec<CpuId> = linux::allowed_cpus().map_err(usage)?.0.into_iter().collect();
    if allowed.len() < 2 {
        return Err(usage("bench scheduler needs two CPUs: one cannot move a connection to another"));
    }
    let wanted = |part| args.only.is_none_or(|only| only == part);
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("the clock")?;
    let mut result = Results {
        started: report::run::utc(started.as_secs()),
        machine: this_machine(),
        ..Results::default()
    };
    let mut met = true;
    if wanted(Figure::Transfer) {
        let transfer = transfers(&allowed, args)?;
        met &= transfer.awake_p99_ns.is_some_and(|p99| p99 <= TRANSFER_BAR);
        transfer.print();
        result.transfer = Some(transfer);
    }
    if wanted(Figure::Burst) {
        let burst = bursts(&allowed, args)?;
        met &= median(&burst.serving_ns).is_some_and(|median| median <= BURST_BAR);
        burst.print();
        result.burst = Some(burst);
    }
    if wanted(Figure::Pack) {
        let pack = pack(&allowed, args)?;
        met &= pack.packed_after_ns.is_some_and(|after| after <= PACK_BAR);
        pack.print();
        result.pack = Some(pack);
    }
    if wanted(Figure::Prehistory) {
        let prehistory = prehistories(&allowed)?;
        met &= prehistory.alike() * 10 >= prehistory.others().len() * 9;
        met &= prehistory.alone() <= ALONE_BAR;
        prehistory.print();
        result.prehistory = Some(prehistory);
    }
    if let Some(folder) = &args.out {
        crate::append(folder, "scheduler.jsonl", &result)?;
    }
    Ok(if met { ExitCode::SUCCESS } else { Exit::GoalMissed.into() })
}

/// A store in this process. A fault of the arguments ends with the code for that.
fn started(config: Config) -> Result<Server> {
    Server::start(config, || ()).map_err(|error| match error {
        StartError::Held(_) => coded(Exit::Refused, error),
        StartError::Listen(_) | StartError::State(_) | StartError::Store(_) => usage(error),
        StartError::Kernel(_) => error.into(),
    })
}

fn config(worker_cpus: Vec<CpuId>, policy: Policy) -> Config {
    Config {
        active_idle: policy::active_idle::Mode::Halt,
        idle_actuator: Some(linux::IdleActuator::PmQos),
        ..Config::on_loopback(worker_cpus, policy)
    }
}

fn plan(server: &Server, cpus: &[CpuId], connections: u32, pace: Pace, length: Duration) -> Plan {
    Plan {
        connections,
        threads: 1,
        cpus: Some(CpuList(cpus.iter().copied().collect())),
        length,
        warmup: Duration::from_millis(500),
        interval: Duration::from_millis(100),
        asks: Items::of(Workload { keys: 10_000, ..Workload::default() }),
        ..Plan::new(Target::Tcp(server.addresses()[0].to_string()), pace)
    }
}

/// Moves connections between two workers on two CPUs under load, one order a millisecond.
fn transfers(allowed: &[CpuId], args: &Args) -> Result<TransferResult> {
    let (bare_wake_p50_ns, bare_wake_p99_ns) = bare_wakes(allowed[0], allowed[1])?;
    let server = started(config(allowed[..2].to_vec(), Policy::AllAwake))?;
    let length = Duration::from_millis(u64::from(args.transfers)) + Duration::from_secs(2);
    let generator = allowed.get(2..).filter(|rest| !rest.is_empty()).unwrap_or(&allowed[1..2]);
    let plan = plan(&server, generator, 16, Pace::Closed { depth: 1 }, length);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            let workers = [WorkerId(0), WorkerId(1)];
            for n in 0.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                server.order_move(workers[n % 2], workers[(n + 1) % 2]);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let outcome = loadgen::run(&plan, &mut |_| ControlFlow::Continue(()));
        ended.store(true, Ordering::Relaxed);
        outcome?;
        Ok(())
    })?;
    let status = server.status();
    server.stop().context("stopping the store")?;
    let moved = status.transfers;
    Ok(TransferResult {
        to_awake: moved.to_awake,
        awake_p50_ns: moved.p50,
        awake_p99_ns: moved.p99,
        awake_max_ns: moved.max,
        awake_p99_by_worker_ns: status.workers.iter().map(|worker| worker.arrivals.p99).collect(),
        to_sleeper: moved.to_sleeper,
        sleeper_p50_ns: moved.sleeper_p50,
        sleeper_p99_ns: moved.sleeper_p99,
        bare_wake_p50_ns,
        bare_wake_p99_ns,
    })
}

/// The time to wake a thread that sleeps on another CPU through an eventfd: median and 99th
/// percentile.
fn bare_wakes(from: CpuId, to: CpuId) -> Result<(Duration, Duration)> {
    const WAKES: u64 = 2_000;
    let bell = eventfd(0, EventfdFlags::CLOEXEC).context("an eventfd")?;
    let rung_at = AtomicU64::new(0);
    let seen = AtomicU64::new(0);
    let mut delays: Vec<Duration> = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let _ = linux::pin_current_thread(to);
            let mut delays = Vec::new();
            for n in 0..WAKES {
                let _ = rustix::io::read(&bell, &mut [0_u8; 8]);
                let rung = Instant::from_nanos(rung_at.load(Ordering::Acquire));
                delays.push(linux::now().since(rung));
                seen.store(n + 1, Ordering::Release);
            }
            delays
        });
        let ringer = scope.spawn(|| {
            let _ = linux::pin_current_thread(from);
            for n in 0..WAKES {
                while seen.load(Ordering::Acquire) < n {
                    std::thread::yield_now();
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
                rung_at.store(linux::now().as_nanos(), Ordering::Release);
                let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
            }
        });
        ringer.join().expect("a thread that only rings");
        sleeper.join().expect("a thread that only reads")
    });
    delays.sort();
    Ok((delays[delays.len() / 2], delays[delays.len() * 99 / 100]))
}

/// Peak, then 5 % with bursts of 65 %, on the CPUs that the generator leaves.
fn bursts(allowed: &[CpuId], args: &Args) -> Result<BurstResult> {
    const WARM_UP: Duration = Duration::from_secs(1);
    const QUIET: Duration = Duration::from_millis(2_500);
    const BURST: Duration = Duration::from_millis(300);
    let (store_cpus, generator) = allowed.split_at(allowed.len() - 1);
    let workers: Vec<CpuId> = store_cpus.iter().copied().cycle().take(store_cpus.len().max(4)).collect();
    let peak = args.peak.unwrap_or(Rate::per_second(60e3 * store_cpus.len() as f64));
    let server = started(config(workers, Policy::Peafowl(Params::live())))?;

    // The peak runs first, on connections that stay: the profile repeats, so the run is as long as
    // one period.
    let learn = Duration::from_secs(5);
    let level = |length, share: f64| Segment { length, from: peak.scale(share), to: peak.scale(share) };
    let mut segments = vec![level(learn, 1.0)];
    for _ in 0..args.bursts {
        segments.extend([level(QUIET, 0.05), level(BURST, 0.65)]);
    }
    segments.push(level(QUIET, 0.05));
    let length: Duration = segments.iter().map(|segment| segment.length).sum();
    let profile = Profile::new(&segments).context("the bursts' profile")?;
    let pace = Pace::Open { arrivals: ArrivalKind::Poisson, profile };
    let plan = Plan { warmup: WARM_UP, ..plan(&server, generator, 64, pace, length) };

    // When the measured part began, by the first interval that belongs to it.
    let mut began = None;
    loadgen::run(&plan, &mut |interval| {
        let progress = interval.progress;
        if began.is_none() && progress.part == Part::Measured {
            began = Some(linux::now() - progress.at + WARM_UP);
        }
        ControlFlow::Continue(())
    })?;
    let moved = server.status().transfers;
    server.stop().context("stopping the store")?;
    let began = began.context("the generator measured nothing")?;
    let due: Vec<Instant> =
        (0..args.bursts).map(|n| began + learn + QUIET + (QUIET + BURST) * u64::from(n)).collect();
    let mut result = BurstResult { bursts: 0, serving_ns: Vec::new(), since_due_ns: Vec::new() };
    for (&start, &took) in moved.scale_ups_began.iter().zip(&moved.scale_ups) {
        // The observer hears of an interval after its end, so the due time is uncertain by that
        // delay; bursts that began outside of any are not counted.
        let Some(&due) = due.iter().rfind(|&&due| start + Duration::from_millis(5) >= due) else {
            continue;
        };
        if start.since(due) < BURST {
            result.bursts += 1;
            result.serving_ns.push(took);
            result.since_due_ns.push((start + took).since(due));
        }
    }
    Ok(result)
}

/// Peak, packing, one burst that blocks, and the time from the block's end to one active worker.
fn pack(allowed: &[CpuId], args: &Args) -> Result<PackResult> {
    let store_cpus = &allowed[..2];
    let workers: Vec<CpuId> = store_cpus.iter().copied().cycle().take(8).collect();
    let params = Params::live();
    let peak = args.peak.unwrap_or(Rate::per_second(20e3));
    let server = started(config(workers, Policy::Peafowl(params)))?;
    let level = |secs, share: f64| Segment {
        length: Duration::from_secs(secs),
        from: peak.scale(share),
        to: peak.scale(share),
    };
    // The block must end, and the bar have room after it.
    let quiet = 15;
    let segments = [level(8, 1.0), level(12, 0.05), level(1, 0.65), level(quiet, 0.05)];
    let length: Duration = segments.iter().map(|segment| segment.length).sum();
    let profile = Profile::new(&segments).context("the profile")?;
    let pace = Pace::Open { arrivals: ArrivalKind::Poisson, profile };
    let generator = allowed.get(2..).filter(|rest| !rest.is_empty()).unwrap_or(&allowed[1..2]);
    let plan = plan(&server, generator, 64, pace, length);
    let mut packed_at: Option<Instant> = None;
    let server = Arc::new(server);
    loadgen::run(&plan, &mut |_| {
        let status = server.status();
        let active = status.workers.iter().filter(|worker| worker.active).count();
        packed_at = if active == 1 { packed_at.or(Some(linux::now())) } else { None };
        ControlFlow::Continue(())
    })?;
    let last_block = server.status().transfers.last_sent_home.map(|sent| sent + params.block);
    if let Some(server) = Arc::into_inner(server) {
        server.stop().context("stopping the store")?;
    }
    let packed_after_ns = packed_at.zip(last_block).map(|(packed, block)| packed.since(block));
    Ok(PackResult { packed_after_ns })
}

/// Stores with different pasts under the same loads.
fn prehistories(allowed: &[CpuId]) -> Result<PrehistoryResult> {
    let small = Workload { keys: 10_000, ..Workload::default() };
    let large = Workload { keys: 200, value_size: ValueSize::Fixed(200_000), ..Workload::default() };
    let writes = Workload { gets: Ratio::ZERO, ..small.clone() };
    let preload = |workload: &Workload| Items { workload: workload.clone(), preload: true, verify: false };
    let closed = |depth| Pace::Closed { depth };
    let level = |rate: f64| open(Rate::per_second(rate), Duration::from_secs(4));
    // Ten, in an order that says nothing.
    let pasts: [(&'static str, Option<(Items, Pace)>); 11] = [
        ("nothing", None),
        ("a preload and a light load", Some((preload(&small), level(2e3)?))),
        ("a preload of large values", Some((preload(&large), level(200.0)?))),
        ("large values, all that comes", Some((preload(&large), closed(1)))),
        ("pipelines of 32", Some((Items::of(small.clone()), closed(32)))),
        ("pipelines of 4", Some((Items::of(small.clone()), closed(4)))),
        ("writes, pipelines of 16", Some((Items::of(writes.clone()), closed(16)))),
        ("writes, all that comes", Some((Items::of(writes), closed(1)))),
        ("a light load", Some((Items::of(small.clone()), level(500.0)?))),
        ("a load of 10,000/s", Some((Items::of(small.clone()), level(10e3)?))),
        ("all that comes", Some((Items::of(small.clone()), closed(1)))),
    ];
    let mut stores = Vec::new();
    for (prehistory, past) in pasts {
        eprintln!("prehistory: {prehistory}");
        let server = started(config(allowed[..2].to_vec(), Policy::Peafowl(Params::live())))?;
        let generator = allowed.get(2..).filter(|rest| !rest.is_empty()).unwrap_or(&allowed[..2]);
        let of = |asks, pace, length| Plan {
            asks,
            ..plan(&server, generator, 32, pace, Duration::from_secs(length))
        };
        if let Some((asks, pace)) = past {
            loadgen::run(&of(asks, pace, 4), &mut |_| ControlFlow::Continue(()))?;
        }
        let light = open(Rate::per_second(2e3), Duration::from_secs(6))?;
        let light = watched(&server, &of(Items::of(small.clone()), light, 6))?;
        // As many threads as there are CPUs: one alone would be busier than the store.
        let full = of(Items::of(small.clone()), closed(1), 6);
        let full = watched(&server, &Plan { threads: generator.len() as u16, ..full })?;
        server.stop().context("stopping the store")?;
        stores.push(StoreResult {
            prehistory,
            workers: [light.workers, full.workers],
            alone_ns: light.alone.max(full.alone),
        });
    }
    Ok(PrehistoryResult { stores })
}

fn open(rate: Rate, length: Duration) -> Result<Pace> {
    let profile = Profile::new(&[Segment { length, from: rate, to: rate }]).context("the profile")?;
    Ok(Pace::Open { arrivals: ArrivalKind::Poisson, profile })
}

struct Watched {
    /// Workers active for most of the time, once two seconds have passed.
    workers: usize,
    alone: Duration,
}

fn watched(server: &Server, plan: &Plan) -> Result<Watched> {
    let began = server.status();
    let mut before = began.clone();
    let mut awake = Vec::new();
    let (mut alone, mut longest) = (Duration::ZERO, Duration::ZERO);
    loadgen::run(plan, &mut |_| {
        let now = server.status();
        let length = (now.uptime - before.uptime).as_secs_f64().max(1e-9);
        let pairs = now.workers.iter().zip(&before.workers);
        let busiest =
            pairs.map(|(now, before)| (now.busy - before.busy).as_secs_f64() / length).fold(0.0, f64::max);
        let active = now.workers.iter().filter(|worker| worker.active).count();
        let is_alone = active < now.workers.len() && busiest > 0.9;
        alone = if is_alone { alone + (now.uptime - before.uptime) } else { Duration::ZERO };
        longest = longest.max(alone);
        if now.uptime - began.uptime > Duration::from_secs(2) {
            awake.push(active);
        }
        before = now;
        ControlFlow::Continue(())
    })?;
    awake.sort_unstable();
    let workers = *awake.get(awake.len() / 2).context("the load ended before it was looked at")?;
    Ok(Watched { workers, alone: longest })
}

fn median(durations: &[Duration]) -> Option<Duration> {
    quantile(durations, 0.5)
}

fn quantile(durations: &[Duration], share: f64) -> Option<Duration> {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().checked_sub(1)?)).copied()
}

fn or_none(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "none".to_owned(), |duration| duration.to_string())
}

impl TransferResult {
    fn print(&self) {
        println!(
            "transfer to a worker that is awake: p50 {}, p99 {} (bar {TRANSFER_BAR}), max {}, of \
             {} (p99 by worker: {})",
            or_none(self.awake_p50_ns),
            or_none(self.awake_p99_ns),
            or_none(self.awake_max_ns),
            self.to_awake,
            self.awake_p99_by_worker_ns.iter().map(|p99| or_none(*p99)).collect::<Vec<_>>().join(", ")
        );
        println!(
            "transfer to a worker that sleeps:   p50 {}, p99 {}, of {}; a bare wake-up here: p50 {}, p99 {}",
            or_none(self.sleeper_p50_ns),
            or_none(self.sleeper_p99_ns),
            self.to_sleeper,
            self.bare_wake_p50_ns,
            self.bare_wake_p99_ns
        );
    }
}

impl BurstResult {
    fn print(&self) {
        println!(
            "burst, overload seen to all needed workers serving: median {} (bar {BURST_BAR}), p99 {}, of {}",
            or_none(median(&self.serving_ns)),
            or_none(quantile(&self.serving_ns, 0.99)),
            self.bursts
        );
        println!(
            "burst, first request due to all needed workers serving: median {}, p99 {}",
            or_none(median(&self.since_due_ns)),
            or_none(quantile(&self.since_due_ns, 0.99))
        );
    }
}

impl PrehistoryResult {
    fn others(&self) -> &[StoreResult] {
        self.stores.get(1..).unwrap_or_default()
    }

    /// Stores that serve with as many workers as the one that has seen nothing.
    fn alike(&self) -> usize {
        let Some(first) = self.stores.first() else { return 0 };
        self.others().iter().filter(|store| store.workers == first.workers).count()
    }

    fn alone(&self) -> Duration {
        self.stores.iter().map(|store| store.alone_ns).max().unwrap_or_default()
    }

    fn print(&self) {
        println!(
            "prehistory                       workers, light  all that comes  one busy beside a sleeper"
        );
        for StoreResult { prehistory, workers: [light, full], alone_ns } in &self.stores {
            println!("  {prehistory:<30} {light:>14} {full:>15} {:>26}", alone_ns.to_string());
        }
        println!(
            "prehistory: {} of {} with the workers of a store that has seen nothing (bar 9 of 10); \
             one busy beside a sleeper for {} at the most (bar {ALONE_BAR})",
            self.alike(),
            self.others().len(),
            self.alone()
        );
    }
}

impl PackResult {
    fn print(&self) {
        println!(
            "pack, last block over to one worker serving all: {} (bar {PACK_BAR})",
            or_none(self.packed_after_ns)
        );
    }
}
