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
//! - *stealing*: bursts at one worker while another has nothing to do, with work stealing and without:
//!   the CPU time that a stolen request costs, and the tail. And the cost of stealing at little load.
//! - *prehistory*: stores that have seen different loads get the same one: a light one, and all
//!   that comes. Counted are those that serve it with as many workers as a store which has seen
//!   nothing, and how long a worker was busy for over 90 % of the time beside one that slept.

use crate::exit::{Exit, coded, usage};
use crate::harness::figure::{Figure, Of, quantile};
use crate::harness::{Measured, Output, Run, SEED};
use crate::stealing;
use anyhow::{Context as _, Result};
use loadgen::{Items, Pace, Part, Plan, Target};
use machine::{CpuId, CpuList, Duration, Instant, Rate, Ratio, WorkerId};
use policy::peafowl::Params;
use rustix::event::{EventfdFlags, eventfd};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Config, Policy, Server, StartError};
use workload::{ArrivalKind, Profile, Segment, ValueSize, Workload};

const TRANSFER_TARGET_US: f64 = 30.0;
const BURST_TARGET_MS: f64 = 2.0;
const PACK_TARGET_S: f64 = 10.0;
/// Of the ten that have a past.
const ALIKE_TARGET: f64 = 9.0;
/// A worker that is busy all the time is seen at its next report, and helped when a connection of
/// its has been served; a second has room for a machine that takes its CPUs away meanwhile.
const ALONE_TARGET_S: f64 = 1.0;

/// Measure transfers, bursts and packing against their targets
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench scheduler                       all five, about eight minutes
  roost-bench scheduler --only transfer
  roost-bench scheduler --out benches/runs/2026-11-20-polyglot")]
pub struct Args {
    /// Measure only this
    #[arg(long, value_enum)]
    only: Option<What>,
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
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Transfer,
    Burst,
    Pack,
    Stealing,
    Prehistory,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let allowed: Vec<CpuId> = linux::allowed_cpus().map_err(usage)?.0.into_iter().collect();
    if allowed.len() < 2 {
        return Err(usage("bench scheduler needs two CPUs: one cannot move a connection to another"));
    }
    let mut run = Run::begin("scheduler", &args.output, SEED)?;
    for what in [What::Transfer, What::Burst, What::Pack, What::Stealing, What::Prehistory] {
        if args.only.is_none_or(|only| only == what) {
            match what {
                What::Transfer => transfers(&mut run, &allowed, args),
                What::Burst => bursts(&mut run, &allowed, args),
                What::Pack => pack(&mut run, &allowed, args),
                What::Stealing => stealing::measure(&mut run, &allowed),
                What::Prehistory => prehistories(&mut run, &allowed),
            }?;
        }
    }
    run.end(&figures())
}

const TRANSFER: &str = "transfer";
const BURST: &str = "burst";
const PACK: &str = "pack";
const PREHISTORY: &str = "prehistory";

const TO_AWAKE: &str = "to an awake worker";
const TO_SLEEPER: &str = "to a sleeper";
const BARE_WAKE: &str = "a bare wake-up";
const EACH: &str = "each burst";
/// A block of its own for sums over a case.
const ALL: &str = "all";

/// A count has a target where none of the counted events leaves nothing to judge.
fn figures() -> Vec<Figure> {
    let of =
        |case: &str, metric, unit, treatment| Figure::new(metric, unit, Of::One(treatment)).in_case(case);
    let mut figures = vec![
        of(TRANSFER, "moved", "", TO_AWAKE).at_least(1.0),
        of(TRANSFER, "p50_us", "us", TO_AWAKE),
        of(TRANSFER, "p99_us", "us", TO_AWAKE).at_most(TRANSFER_TARGET_US),
        of(TRANSFER, "max_us", "us", TO_AWAKE),
        of(TRANSFER, "moved", "", TO_SLEEPER),
    ];
    for treatment in [TO_SLEEPER, BARE_WAKE] {
        figures.extend(["p50_us", "p99_us"].map(|metric| of(TRANSFER, metric, "us", treatment)));
    }
    figures.extend([
        of(BURST, "bursts", "", ALL).at_least(1.0),
        of(BURST, "serving_ms", "ms", EACH).at_most(BURST_TARGET_MS),
        of(BURST, "serving_p99_ms", "ms", ALL),
        of(BURST, "since_due_ms", "ms", EACH),
        of(BURST, "since_due_p99_ms", "ms", ALL),
        of(PACK, "packed", "", ALL).at_least(1.0),
        of(PACK, "packed_after_s", "s", ALL).at_most(PACK_TARGET_S),
    ]);
    figures.extend(stealing::figures());
    figures.extend([
        of(PREHISTORY, "alike", "", ALL).at_least(ALIKE_TARGET),
        of(PREHISTORY, "alone_s", "s", ALL).at_most(ALONE_TARGET_S),
    ]);
    figures
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A store in this process. A fault of the arguments ends with the code for that.
pub fn started(config: Config) -> Result<Server> {
    Server::start(config, || ()).map_err(|error| match error {
        StartError::Held(_) => coded(Exit::Refused, error),
        StartError::Listen(_) | StartError::State(_) | StartError::Items(_) | StartError::Store(_) => {
            usage(error)
        }
        StartError::Kernel(_) | StartError::Nic(_) => error.into(),
    })
}

pub fn config(worker_cpus: Vec<CpuId>, policy: Policy) -> Config {
    Config {
        active_idle: policy::active_idle::Mode::Halt,
        idle_actuator: Some(linux::IdleActuator::PmQos),
        ..Config::on_loopback(worker_cpus, policy)
    }
}

pub fn plan(server: &Server, cpus: &[CpuId], connections: u32, pace: Pace, length: Duration) -> Plan {
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
fn transfers(run: &mut Run, allowed: &[CpuId], args: &Args) -> Result<()> {
    let (bare_p50, bare_p99) = bare_wakes(allowed[0], allowed[1])?;
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
    let timed = |count: u64, times: &[(&'static str, Option<Duration>)]| {
        let times = times.iter().filter_map(|&(name, time)| Some((name, us(time?))));
        Measured::of([("moved", count as f64)].into_iter().chain(times))
    };
    let by_worker: Vec<Option<f64>> =
        status.workers.iter().map(|worker| worker.arrivals.p99.map(us)).collect();
    let to_awake =
        timed(moved.to_awake, &[("p50_us", moved.p50), ("p99_us", moved.p99), ("max_us", moved.max)])
            .detail(&serde_json::json!({ "p99_us_by_worker": by_worker }))?;
    let to_sleeper = timed(moved.to_sleeper, &[("p50_us", moved.sleeper_p50), ("p99_us", moved.sleeper_p99)]);
    run.block(TRANSFER, 0, TO_AWAKE, to_awake)?;
    run.block(TRANSFER, 0, TO_SLEEPER, to_sleeper)?;
    run.block(TRANSFER, 0, BARE_WAKE, Measured::of([("p50_us", us(bare_p50)), ("p99_us", us(bare_p99))]))
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
fn bursts(run: &mut Run, allowed: &[CpuId], args: &Args) -> Result<()> {
    const WARM_UP: Duration = Duration::from_secs(1);
    const QUIET: Duration = Duration::from_millis(2_500);
    const BUSY: Duration = Duration::from_millis(300);
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
        segments.extend([level(QUIET, 0.05), level(BUSY, 0.65)]);
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
        (0..args.bursts).map(|n| began + learn + QUIET + (QUIET + BUSY) * u64::from(n)).collect();
    let mut counted: Vec<[f64; 2]> = Vec::new();
    for (&start, &took) in moved.scale_ups_began.iter().zip(&moved.scale_ups) {
        // The observer hears of an interval after its end, so the due time is uncertain by that
        // delay; bursts that began outside of any are not counted.
        let Some(&due) = due.iter().rfind(|&&due| start + Duration::from_millis(5) >= due) else {
            continue;
        };
        if start.since(due) < BUSY {
            let ms = [took, (start + took).since(due)].map(|time| us(time) / 1e3);
            let metrics = [("serving_ms", ms[0]), ("since_due_ms", ms[1])];
            run.block(BURST, counted.len() as u32, EACH, Measured::of(metrics))?;
            counted.push(ms);
        }
    }
    let mut metrics = vec![("bursts", counted.len() as f64)];
    for (at, name) in ["serving_p99_ms", "since_due_p99_ms"].into_iter().enumerate() {
        let mut times: Vec<f64> = counted.iter().map(|ms| ms[at]).collect();
        times.sort_by(f64::total_cmp);
        metrics.extend((!times.is_empty()).then(|| (name, quantile(&times, 0.99))));
    }
    run.block(BURST, 0, ALL, Measured::of(metrics))
}

/// Peak, packing, one burst that blocks, and the time from the block's end to one active worker.
fn pack(run: &mut Run, allowed: &[CpuId], args: &Args) -> Result<()> {
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
    let packed_after = packed_at.zip(last_block).map(|(packed, block)| packed.since(block).as_secs_f64());
    let metrics = [("packed", f64::from(u8::from(packed_after.is_some())))].into_iter();
    let packed_after = packed_after.map(|after| ("packed_after_s", after));
    run.block(PACK, 0, ALL, Measured::of(metrics.chain(packed_after)))
}

/// Stores with different pasts under the same loads.
fn prehistories(run: &mut Run, allowed: &[CpuId]) -> Result<()> {
    let small = Workload { keys: 10_000, ..Workload::default() };
    let large = Workload { keys: 200, value_size: ValueSize::Fixed(200_000), ..Workload::default() };
    let writes = Workload { gets: Ratio::ZERO, ..small.clone() };
    let preload = |workload: &Workload| Items { preload: true, ..Items::of(workload.clone()) };
    let closed = |depth| Pace::Closed { depth };
    let level = |rate: f64| open(Rate::per_second(rate), Duration::from_secs(4));
    // None, and ten.
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
    let mut stores: Vec<(&'static str, [usize; 2])> = Vec::new();
    let mut longest = Duration::ZERO;
    run.rounds(PREHISTORY, 1, &pasts.each_ref().map(|(name, _)| *name), |&name, _| {
        let past = pasts.iter().find(|(past, _)| *past == name).and_then(|(_, past)| past.clone());
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
        let workers = [light.workers, full.workers];
        let alone = light.alone.max(full.alone);
        stores.push((name, workers));
        longest = longest.max(alone);
        Ok(Measured::of([
            ("workers_light", workers[0] as f64),
            ("workers_full", workers[1] as f64),
            ("alone_s", alone.as_secs_f64()),
        ]))
    })?;
    let without = stores.iter().find(|(name, _)| *name == pasts[0].0).map(|(_, workers)| *workers);
    let (alike, others): (Vec<_>, Vec<_>) = stores.iter().partition(|(_, workers)| Some(*workers) == without);
    for (name, [light, full]) in others {
        run.remark(format!(
            "after {name}: {light} workers under the light load, {full} under all that comes"
        ));
    }
    // The store without a past is like itself.
    let metrics = [("alike", alike.len() as f64 - 1.0), ("alone_s", longest.as_secs_f64())];
    run.block(PREHISTORY, 0, ALL, Measured::of(metrics))
}

pub fn open(rate: Rate, length: Duration) -> Result<Pace> {
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
