//! `roost-bench govern`: a real memcached under our load, awake on all its cores and governed, side
//! by side.
//!
//! CARB's experiments on this machine (its Figures 4 and 5 at fixed rates, 6 to 8 along its 90
//! minutes of slow and fast load, which can be played faster). In each round every treatment gets a
//! fresh server and the same requests. The generator runs on the first core, which is never parked,
//! at real-time priority where it may: the server shares that core with it.
//!
//! - *awake*: all cores, idle states as they are. It is watched by the same telemetry, and touched
//!   by nothing.
//! - *polling*: all cores, idle states forbidden: CARB's "c-states disabled". Left out where the
//!   kernel has no idle states.
//! - *carb-paper*, *carb*, *goal*: governed.
//! - *lent*, *shared* (`--batch`): as *goal*, and a process for each CPU that never sleeps, which is lent
//!   the parked CPUs, or has a share of all at its normal weight.
//!
//! An *own fault* is an epoch that misses the goal with fewer cores than there are, while the awake
//! run of the same round kept it in that epoch. The target holds for the longest row of them in any
//! round.

use super::contestant::{Contestant, Stable, Who, cpu_time};
use super::lend::batch::Batch;
use crate::exit::{Exit, coded, usage};
use crate::harness::figure::{Figure, Of, median_of};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result, bail};
use daemon::{Config, Daemon, Event, Options, Policy, Prospect, ServiceConfig, Status, Target};
use linux::{EnergyMeter, IdleControl, IdleOptions, Root};
use loadgen::{Items, Pace, Plan};
use machine::{CpuId, CpuList, Duration, Goal, IdleLimit, Rate};
use policy::governing::IdleMode;
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use workload::{ArrivalKind, Shape, Workload};

/// Measure a governed memcached beside one that is awake on all cores
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench govern                                        three rates, all treatments, about six minutes
  roost-bench govern --rates 1k,5k,20k --rounds 5 --out benches/runs/2026-11-22-intel-xeon-2cpu
  sudo roost-bench govern --batch --rates 3k --goal 3ms@p99 --rounds 10
  roost-bench govern --shape carb-slow --compress 60        CARB's slow 90 minutes in a minute and a half")]
pub struct Args {
    /// The memcached
    #[arg(long, value_name = "FILE", default_value = "memcached")]
    peer: PathBuf,
    /// Rates, one after the other
    #[arg(
        long,
        value_name = "RATE,...",
        value_delimiter = ',',
        value_parser = workload::parse_rate,
        default_value = "1k,5k,10k"
    )]
    rates: Vec<Rate>,
    /// A shape instead of constant rates, see `roost load --help`; its highest rate is the first of
    /// --rates
    #[arg(long, value_name = "SHAPE")]
    shape: Option<Shape>,
    /// Play a shape that has times of its own this many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 60.0)]
    compress: f64,
    /// When requests come, see `roost load --help`. Evenly spaced ones never wait for each other's
    /// `send`, which takes a tenth of the tail here
    #[arg(long, value_name = "KIND", default_value = "poisson")]
    arrivals: ArrivalKind,
    /// How long a run of a rate is measured
    #[arg(long = "for", value_name = "TIME", default_value = "30s")]
    length: Duration,
    /// Time between two decisions
    #[arg(long, value_name = "TIME", default_value = "1s")]
    epoch: Duration,
    /// The goal of the service
    #[arg(long, value_name = "TIME@pQ", default_value = "2ms@p99")]
    goal: Goal,
    /// Beside batch work that never sleeps, lent the parked CPUs or sharing all
    #[arg(long)]
    batch: bool,
    /// Rounds; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    Awake,
    Polling,
    CarbPaper,
    Carb,
    Goal,
    Lent,
    Shared,
}

impl Treatment {
    const ALL: [Self; 7] =
        [Self::Awake, Self::Polling, Self::CarbPaper, Self::Carb, Self::Goal, Self::Lent, Self::Shared];

    fn name(self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::Polling => "polling",
            Self::CarbPaper => "carb-paper",
            Self::Carb => "carb",
            Self::Goal => "goal",
            Self::Lent => "lent",
            Self::Shared => "shared",
        }
    }

    /// Part of a run with batch work, or of one without.
    fn is_of(self, batch: bool) -> bool {
        match self {
            Self::Awake | Self::Goal => true,
            Self::Polling | Self::CarbPaper | Self::Carb => !batch,
            Self::Lent | Self::Shared => batch,
        }
    }
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The cores and the tail of each epoch, the latter in nanoseconds.
type Epochs = Vec<(u16, Option<u64>)>;

struct One {
    round: u32,
    treatment: Treatment,
    cores_all: u16,
    epochs: Epochs,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let cpus = linux::allowed_cpus().map_err(usage)?;
    if cpus.0.len() < 2 {
        return Err(usage("bench govern needs two CPUs: with one there is nothing to park"));
    }
    if args.batch {
        batch_of(0)?;
    }
    let loads: Vec<(String, Option<Rate>)> = match &args.shape {
        Some(shape) => vec![(format!("{shape}/{:.0}", args.compress), None)],
        None => {
            args.rates.iter().map(|&rate| (format!("{:.0}/s", rate.as_per_second()), Some(rate))).collect()
        }
    };
    let root = Root::system();
    let without_states =
        cpus.0.iter().all(|&cpu| linux::idle_table(&root, cpu).map_or(true, |table| table.0.is_empty()));
    let mut treatments = Treatment::ALL.to_vec();
    treatments.retain(|treatment| treatment.is_of(args.batch));
    let mut run = Run::begin("govern", &args.output, SEED)?;
    run.remark(format!("goal {}; settled: epochs until the last change of cores", args.goal));
    run.remark(format!("power is {}", EnergyMeter::open(&root, &cpus, linux::now()).source()));
    if without_states && !args.batch {
        treatments.retain(|&treatment| treatment != Treatment::Polling);
        run.remark("polling is left out: this kernel offers no idle states to forbid");
    }
    for (load, rate) in &loads {
        let mut ended = Vec::new();
        run.rounds(load, args.rounds, &treatments, |&treatment, round| {
            let (one, measured) = one(args, &cpus, *rate, round, treatment)?;
            ended.push(one);
            Ok(measured)
        })?;
        let mut worst = 0;
        for one in &ended {
            let is_awake = |other: &&One| (other.treatment, other.round) == (Treatment::Awake, one.round);
            let awake = ended.iter().find(is_awake).context("each round has an awake run")?;
            let faults = own_faults(one, awake, args.goal);
            if one.treatment == Treatment::Goal {
                worst = worst.max(faults);
            }
            let metrics = [("own_faults", faults as f64)];
            run.block(load, one.round, one.treatment.name(), Measured::of(metrics))?;
        }
        let metrics = [("worst_own_faults", worst as f64)];
        run.block(load, 0, Treatment::Goal.name(), Measured::of(metrics))?;
    }
    let each = |&(metric, unit): &(&'static str, &'static str)| {
        treatments.iter().map(move |treatment| Figure::new(metric, unit, Of::One(treatment.name())))
    };
    let mut figures: Vec<Figure> = METRICS.iter().flat_map(each).collect();
    if args.batch {
        for (one, other) in [("lent", "goal"), ("shared", "goal")] {
            figures.push(Figure::new("server_tail_us", "", Of::Ratio(one, other)));
        }
        figures.extend(["lent", "shared"].map(|of| Figure::new("batch_cpus", "", Of::One(of))));
    }
    let worst = Figure::new("worst_own_faults", "", Of::One(Treatment::Goal.name()));
    figures.push(worst.at_most(FAULTS_TARGET));
    run.end(&figures)
}

const METRICS: [(&str, &str); 9] = [
    ("cores", ""),
    ("settled_after", ""),
    ("client_p50_us", "us"),
    ("client_p99_us", "us"),
    ("server_tail_us", "us"),
    ("cpu_us", "us"),
    ("watts", "W"),
    ("missed", ""),
    ("own_faults", ""),
];
/// So many own faults in a row at the most.
const FAULTS_TARGET: f64 = 3.0;

fn one(
    args: &Args,
    cpus: &CpuList,
    rate: Option<Rate>,
    round: u32,
    treatment: Treatment,
) -> Result<(One, Measured)> {
    let folder = tempfile::tempdir().context("a folder for the server's log")?;
    let stable = Stable::of(&args.peer, cpus.clone(), 64, folder.path())?;
    let server = stable.start(Who::Peer)?;
    let port = server.port().context("the server has no TCP port")?;
    let config = ServiceConfig {
        name: "memcached".to_owned(),
        target: Target::Port(port),
        policy: match treatment {
            Treatment::CarbPaper => Policy::CarbPaper,
            Treatment::Carb | Treatment::Goal | Treatment::Lent | Treatment::Shared => Policy::Carb,
            Treatment::Awake | Treatment::Polling => Policy::Fixed,
        },
        goal: matches!(treatment, Treatment::Goal | Treatment::Lent | Treatment::Shared).then_some(args.goal),
        cores: None,
        min_cores: 1,
        cpus: None,
        frequency: policy::governing::FrequencyMode::Stock,
        slack: None,
        uncore: policy::governing::UncoreMode::Stock,
        idle: IdleMode::Stock.into(),
        actuator: None,
        hotplug: false,
        telemetry: daemon::TelemetrySource::Requests,
    };
    let root = Root::system();
    let never_parked = first_core(&root, &config)?;
    let _polling = (treatment == Treatment::Polling).then(|| polling(&root, cpus)).transpose()?;
    let plan = plan(args, &server, rate, never_parked, round)?;
    loadgen::fill(&plan)?;
    let batch = match treatment {
        Treatment::Lent | Treatment::Shared => {
            let batch = batch_of(cpus.0.len())?;
            batch.write("cpu.shares", "1024");
            batch.write("cpu.weight", "100");
            Some(batch)
        }
        _ => None,
    };
    let lend = batch.as_ref().filter(|_| treatment == Treatment::Lent);
    let lend = lend.map(|batch| format!("cgroup:{}", batch.name).parse()).transpose().map_err(usage)?;
    let config = Config {
        lend,
        epoch: args.epoch,
        socket: folder.path().join("govern.sock"),
        services: vec![config],
        ..Config::default()
    };
    let began = linux::now();
    let mut energy = EnergyMeter::open(&root, cpus, began);
    let used_before = server.cpu_time()?;
    let batch_time = || batch.iter().flat_map(|batch| &batch.processes).map(|one| cpu_time(one.id())).sum();
    let batch_before: Result<Duration> = batch_time();
    let (outcome, epochs) = governed(args, &root, config, treatment, &plan)?;
    let used = server.cpu_time()? - used_before;
    let elapsed = linux::now().since(began);
    let joules = energy.read(linux::now()).map(|reading| reading.used.as_joules());
    if outcome.is_broken() {
        bail!("the server failed under load:\n{}", outcome.remarks.join("\n"));
    }
    let cores: Vec<u16> = epochs.iter().map(|status| status.cores.0).collect();
    let changed: Vec<usize> = (1..cores.len()).filter(|&at| cores[at] != cores[at - 1]).collect();
    let cores_all = epochs.first().map_or(0, |status| status.cores.1);
    let epochs: Epochs =
        epochs.iter().map(|status| (status.cores.0, tail_of(status).map(Duration::as_nanos))).collect();
    let tails = || epochs.iter().filter_map(|&(_, tail)| tail);
    let missed = tails().filter(|&tail| tail > args.goal.latency.as_nanos()).count();
    // A late generator spoils these metrics of the block and no other.
    let client_us = |quantile: f64| {
        let us = outcome.histogram.value_at_quantile(quantile) as f64 / 1e3;
        if outcome.valid { us } else { f64::NAN }
    };
    let mut metrics = vec![
        ("cores", cores.iter().map(|&cores| f64::from(cores)).sum::<f64>() / cores.len().max(1) as f64),
        ("changes", changed.len() as f64),
        ("settled_after", changed.last().copied().unwrap_or(0) as f64),
        ("client_p50_us", client_us(0.5)),
        ("client_p99_us", client_us(0.99)),
        ("cpu_us", used.as_secs_f64() * 1e6 / outcome.counts.answered.max(1) as f64),
        ("missed", missed as f64),
    ];
    if batch.is_some() {
        let used: Duration = batch_time()? - batch_before?;
        metrics.push(("batch_cpus", used.as_secs_f64() / elapsed.as_secs_f64()));
    }
    metrics.extend(median_of(tails().map(|tail| tail as f64 / 1e3)).map(|tail| ("server_tail_us", tail)));
    metrics.extend(joules.map(|joules| ("watts", joules / elapsed.as_secs_f64())));
    let measured = Measured::of(metrics).detail(&serde_json::json!({
        "arrivals": args.arrivals.to_string(),
        "realtime": plan.realtime,
        "client_p99_ns": outcome.histogram.value_at_quantile(0.99),
        "client_valid": outcome.valid,
        "cores_all": cores_all,
        "epochs": epochs,
    }))?;
    Ok((One { round, treatment, cores_all, epochs }, measured))
}

/// So many processes that never sleep.
fn batch_of(processes: usize) -> Result<Batch> {
    let refused = || coded(Exit::Unsupported, "--batch needs root, and control groups with cpu and cpuset");
    Batch::begin(processes).ok_or_else(refused)
}

/// The load, and the daemon beside it on a thread of its own.
fn governed(
    args: &Args,
    root: &Root,
    config: Config,
    treatment: Treatment,
    plan: &Plan,
) -> Result<(loadgen::Outcome, Vec<Status>)> {
    let untouched = matches!(treatment, Treatment::Awake | Treatment::Polling);
    let (stop, events) = channel();
    // A socket of its own: a daemon of the machine's may run, with other knobs.
    let place = tempfile::tempdir().context("a folder for the control socket")?;
    let options = Options {
        root: root.clone(),
        config: Config { socket: place.path().join("roost.sock"), ..config },
        file: None,
        dry_run: untouched,
        strict: true,
        events: stop.clone(),
        observer: None,
    };
    std::thread::scope(|scope| {
        let daemon = scope.spawn(move || -> Result<Vec<Status>> {
            let mut daemon = Daemon::start(options, |_| {})?;
            // Also the treatments without a goal are judged by it.
            daemon.watch_goal(args.goal);
            let mut epochs = Vec::new();
            daemon.run(&events, None, |governed| epochs.push(governed.status()));
            Ok(epochs)
        });
        let outcome = loadgen::run(plan, &mut |_| {
            // A daemon that could not start ends the run as well.
            if daemon.is_finished() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let _ = stop.send(Event::Stop);
        let epochs = daemon.join().expect("the daemon does not panic")?;
        Ok((outcome?, epochs))
    })
}

/// A CPU of a virtual machine takes 40 to 80 us to wake.
const SPIN: Duration = Duration::from_micros(80);

fn plan(args: &Args, server: &Contestant, rate: Option<Rate>, generator: CpuId, round: u32) -> Result<Plan> {
    let shape = args.shape.clone().unwrap_or_else(Shape::constant);
    let peak = rate.or_else(|| args.rates.first().copied());
    let length =
        if args.shape.is_some() { shape.length(args.compress).unwrap_or(args.length) } else { args.length };
    let profile = shape.profile(peak, length, args.compress).map_err(usage)?;
    let pace = Pace::Open { arrivals: args.arrivals, profile };
    Ok(Plan {
        connections: 32,
        cpus: Some(CpuList([generator].into())),
        realtime: super::may_be_realtime(),
        spin: SPIN,
        length,
        asks: Items::of(Workload { keys: 10_000, seed: u64::from(round) + 1, ..Workload::default() }),
        ..Plan::new(server.target(), pace)
    })
}

/// The core that every number of cores contains.
fn first_core(root: &Root, config: &ServiceConfig) -> Result<CpuId> {
    let prospect = Prospect::of(root, config, linux::arbiter::ClockMeans::default())?;
    prospect
        .topology
        .cores
        .first()
        .and_then(|threads| threads.first().copied())
        .context("the service has no CPU")
}

/// No idle state but polling, until this is dropped.
fn polling(root: &Root, cpus: &CpuList) -> Result<IdleControl> {
    let mut control = IdleControl::open(root, cpus, IdleOptions::new("roost-bench govern"))?;
    for &cpu in &cpus.0 {
        control.apply(cpu, IdleLimit::ExitLatency(Duration::ZERO));
    }
    Ok(control)
}

fn tail_of(status: &Status) -> Option<Duration> {
    status.service.tail.or(status.service.p99)
}

/// The longest row of own faults, beside the awake run of the same round.
fn own_faults(run: &One, awake: &One, goal: Goal) -> usize {
    let kept = |tail: Option<u64>| tail.is_some_and(|tail| tail <= goal.latency.as_nanos());
    let (mut row, mut longest) = (0, 0);
    for (&(cores, tail), &(_, awake_tail)) in run.epochs.iter().zip(&awake.epochs) {
        let fault = tail.is_some() && !kept(tail) && cores < run.cores_all && kept(awake_tail);
        row = if fault { row + 1 } else { 0 };
        longest = longest.max(row);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(treatment: Treatment, epochs: &[(u16, u64)]) -> One {
        let epochs = epochs.iter().map(|&(cores, us)| (cores, (us > 0).then_some(us * 1000))).collect();
        One { round: 0, treatment, cores_all: 4, epochs }
    }

    #[test]
    fn an_own_fault_needs_fewer_cores_and_an_awake_run_that_kept_the_goal() {
        let awake = one(Treatment::Awake, &[(4, 100), (4, 100), (4, 900), (4, 100), (4, 100), (4, 100)]);
        let governed = one(Treatment::Goal, &[(2, 900), (2, 900), (2, 900), (4, 900), (2, 900), (2, 0)]);
        let goal: Goal = "500us@p99".parse().unwrap();
        // The third is missed by both, in the fourth all are awake, in the sixth nothing was
        // measured.
        assert_eq!((own_faults(&governed, &awake, goal), own_faults(&awake, &awake, goal)), (2, 0));
    }
}
