//! `roost-bench govern`: a real memcached under our load, awake on all its cores and governed, side
//! by side.
//!
//! CARB's experiments on this machine (its Figures 4 and 5 at fixed rates, 6 to 8 along its 90
//! minutes of slow and fast load, which can be played faster). In each round every treatment gets a
//! fresh server and the same requests; which comes first turns from round to round. The generator
//! runs on the first core, which is never parked, at real-time priority where it may: the server
//! shares that core with it.
//!
//! - *awake*: all cores, idle states as they are. It is watched by the same telemetry, and touched
//!   by nothing.
//! - *polling*: all cores, idle states forbidden: CARB's "c-states disabled". Left out where the
//!   kernel has no idle states.
//! - *carb-paper*, *carb*, *goal*: governed.
//!
//! An *own fault* is an epoch that misses the goal with fewer cores than there are, while the awake
//! run of the same round kept it in that epoch. The verdict takes the longest row of them.

use super::contestant::{Contestant, Stable, Who};
use crate::exit::{Exit, usage};
use crate::machine_facts::this_machine;
use crate::table::{Table, print};
use anyhow::{Context as _, Result, bail};
use daemon::{Config, Daemon, Event, Options, Policy, Prospect, ServiceConfig, Status, Target};
use linux::{EnergyMeter, IdleControl, IdleOptions, Root};
use loadgen::{Items, Pace, Plan};
use machine::{CpuId, CpuList, Duration, Goal, IdleLimit, Rate};
use policy::governing::IdleMode;
use serde::Serialize;
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
    /// Rounds; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// Append each run as a line of JSON to govern.jsonl in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Treatment {
    Awake,
    Polling,
    CarbPaper,
    Carb,
    Goal,
}

impl Treatment {
    const ALL: [Self; 5] = [Self::Awake, Self::Polling, Self::CarbPaper, Self::Carb, Self::Goal];

    fn name(self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::Polling => "polling",
            Self::CarbPaper => "carb-paper",
            Self::Carb => "carb",
            Self::Goal => "goal",
        }
    }
}

#[derive(Debug, Serialize)]
struct Run {
    started: String,
    machine: report::run::Machine,
    load: String,
    arrivals: String,
    /// The generator sent at real-time priority.
    realtime: bool,
    round: u32,
    treatment: Treatment,
    /// Cores awake, mean over epochs, and how many there are.
    cores: f64,
    cores_all: u16,
    changes: usize,
    /// Epochs until the last change.
    settled_after: usize,
    /// As the client saw it, from when each request was due.
    client_p50_ns: u64,
    client_p99_ns: u64,
    client_valid: bool,
    /// The goal's percentile in the server: median of the epochs.
    server_tail_ns: Option<u64>,
    watts: Option<f64>,
    watts_from: String,
    /// Of the server, CPU microseconds per request.
    cpu_us: f64,
    /// Epochs in which the goal was missed.
    missed: usize,
    /// The longest row of own faults.
    own_faults: usize,
    /// Each epoch: cores and the tail.
    epochs: Vec<(u16, Option<u64>)>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let cpus = linux::allowed_cpus().map_err(usage)?;
    if cpus.0.len() < 2 {
        return Err(usage("bench govern needs two CPUs: with one there is nothing to park"));
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
    let mut runs = Vec::new();
    for (load, rate) in &loads {
        for round in 0..args.rounds {
            let mut order: Vec<Treatment> = Treatment::ALL.to_vec();
            if without_states {
                order.retain(|&treatment| treatment != Treatment::Polling);
            }
            // The first of a round is no better placed than the last.
            let first = round as usize % order.len();
            order.rotate_left(first);
            let mut done = Vec::new();
            for treatment in order {
                eprintln!("{load}, round {}: {}", round + 1, treatment.name());
                done.push(one(args, &cpus, load, *rate, round, treatment)?);
            }
            judge(&mut done, args.goal);
            for run in &done {
                if let Some(folder) = &args.out {
                    crate::append(folder, "govern.jsonl", run)?;
                }
            }
            runs.extend(done);
        }
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&runs)?))?;
    } else {
        print(&table(&runs, args.goal, without_states))?;
    }
    let faults = runs.iter().any(|run| run.treatment == Treatment::Goal && run.own_faults > FAULTS_BAR);
    Ok(if faults { Exit::GoalMissed.into() } else { ExitCode::SUCCESS })
}

fn one(
    args: &Args,
    cpus: &CpuList,
    load: &str,
    rate: Option<Rate>,
    round: u32,
    treatment: Treatment,
) -> Result<Run> {
    let folder = tempfile::tempdir().context("a folder for the server's log")?;
    let stable = Stable {
        peer: args.peer.clone(),
        ours: crate::product::roost()?,
        cpus: cpus.clone(),
        memory_mib: 64,
        folder: folder.path().to_owned(),
    };
    let server = stable.start(Who::Peer)?;
    let port = server.port().context("the server has no TCP port")?;
    let config = ServiceConfig {
        name: "memcached".to_owned(),
        target: Target::Port(port),
        policy: match treatment {
            Treatment::CarbPaper => Policy::CarbPaper,
            Treatment::Carb | Treatment::Goal => Policy::Carb,
            Treatment::Awake | Treatment::Polling => Policy::Fixed,
        },
        goal: (treatment == Treatment::Goal).then_some(args.goal),
        cores: None,
        min_cores: 1,
        cpus: None,
        frequency: policy::governing::FrequencyMode::Stock,
        slack: None,
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
    let config = Config {
        epoch: args.epoch,
        socket: folder.path().join("govern.sock"),
        services: vec![config],
        ..Config::default()
    };
    let began = linux::now();
    let mut energy = EnergyMeter::open(&root, cpus, began);
    let watts_from = energy.source().to_string();
    let used_before = server.cpu_time()?;
    let (outcome, epochs) = governed(args, &root, config, treatment, &plan)?;
    let used = server.cpu_time()? - used_before;
    let elapsed = linux::now().since(began);
    let joules = energy.read(linux::now()).map(|reading| reading.used.as_joules());
    if outcome.is_broken() {
        bail!("the server failed under load:\n{}", outcome.remarks.join("\n"));
    }
    let cores: Vec<u16> = epochs.iter().map(|status| status.cores.0).collect();
    let changed: Vec<usize> = (1..cores.len()).filter(|&at| cores[at] != cores[at - 1]).collect();
    let mut tails: Vec<u64> = epochs.iter().filter_map(|status| Some(tail_of(status)?.as_nanos())).collect();
    tails.sort_unstable();
    Ok(Run {
        started: crate::run_folder::started()?,
        machine: this_machine(),
        load: load.to_owned(),
        arrivals: args.arrivals.to_string(),
        realtime: plan.realtime,
        round,
        treatment,
        cores: cores.iter().map(|&cores| f64::from(cores)).sum::<f64>() / cores.len().max(1) as f64,
        cores_all: epochs.first().map_or(0, |status| status.cores.1),
        changes: changed.len(),
        settled_after: changed.last().copied().unwrap_or(0),
        client_p50_ns: outcome.histogram.value_at_quantile(0.5),
        client_p99_ns: outcome.histogram.value_at_quantile(0.99),
        client_valid: outcome.valid,
        server_tail_ns: tails.get(tails.len() / 2).copied(),
        watts: joules.map(|joules| joules / elapsed.as_secs_f64()),
        watts_from,
        cpu_us: used.as_secs_f64() * 1e6 / outcome.counts.answered.max(1) as f64,
        missed: tails.iter().filter(|&&tail| tail > args.goal.latency.as_nanos()).count(),
        own_faults: 0,
        epochs: epochs
            .iter()
            .map(|status| (status.cores.0, tail_of(status).map(Duration::as_nanos)))
            .collect(),
    })
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
    prospect.place.seats.first().and_then(|seat| seat.first().copied()).context("the service has no CPU")
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

/// Own faults need the awake run of the same round.
fn judge(runs: &mut [Run], goal: Goal) {
    let kept = |tail: Option<u64>| tail.is_some_and(|tail| tail <= goal.latency.as_nanos());
    let awake = runs.iter().find(|run| run.treatment == Treatment::Awake);
    let awake: Vec<bool> = awake.iter().flat_map(|run| &run.epochs).map(|&(_, tail)| kept(tail)).collect();
    for run in runs {
        let (mut row, mut longest) = (0, 0);
        for (&(cores, tail), &awake_kept) in run.epochs.iter().zip(&awake) {
            let fault = tail.is_some() && !kept(tail) && cores < run.cores_all && awake_kept;
            row = if fault { row + 1 } else { 0 };
            longest = longest.max(row);
        }
        run.own_faults = longest;
    }
}

/// Medians over rounds.
fn table(runs: &[Run], goal: Goal, without_states: bool) -> String {
    let header = [
        "load",
        "treatment",
        "cores",
        "settled",
        "client p50",
        "client p99",
        "server tail",
        "CPU us/req",
        "W",
        "missed",
        "own faults",
    ];
    let mut table = Table::new(2, header.map(str::to_owned).to_vec());
    let mut seen: Vec<(&str, Treatment)> = Vec::new();
    for run in runs {
        if !seen.contains(&(&run.load, run.treatment)) {
            seen.push((&run.load, run.treatment));
        }
    }
    let mut invalid = 0;
    for (load, treatment) in seen {
        let of = |figure: &dyn Fn(&Run) -> Option<f64>| {
            let same = runs.iter().filter(|run| run.load == load && run.treatment == treatment);
            let mut values: Vec<f64> = same.filter_map(figure).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        invalid += runs
            .iter()
            .filter(|run| run.load == load && run.treatment == treatment && !run.client_valid)
            .count();
        let time = |ns: Option<f64>| {
            ns.map_or_else(|| "-".to_owned(), |ns| Duration::from_nanos(ns as u64).to_string())
        };
        let number = |value: Option<f64>, decimals: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        table.row(vec![
            load.to_owned(),
            treatment.name().to_owned(),
            number(of(&|run| Some(run.cores)), 2),
            number(of(&|run| Some(run.settled_after as f64)), 0),
            time(of(&|run| Some(run.client_p50_ns as f64))),
            time(of(&|run| Some(run.client_p99_ns as f64))),
            time(of(&|run| Some(run.server_tail_ns? as f64))),
            number(of(&|run| Some(run.cpu_us)), 1),
            number(of(&|run| run.watts), 1),
            number(of(&|run| Some(run.missed as f64)), 0),
            number(of(&|run| Some(run.own_faults as f64)), 0),
        ]);
    }
    let mut text = table.text();
    let from = runs.first().map_or("", |run| run.watts_from.as_str());
    text += &format!("goal {goal}; power is {from}; settled: epochs until the last change of cores\n");
    if without_states {
        text += "polling is left out: this kernel offers no idle states to forbid\n";
    }
    if invalid > 0 {
        text += &format!(
            "{invalid} of {} runs have an invalid client side: the generator was late too often\n",
            runs.len()
        );
    }
    text
}

/// So many own faults in a row at the most.
const FAULTS_BAR: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(treatment: Treatment, epochs: &[(u16, u64)]) -> Run {
        Run {
            started: String::new(),
            machine: this_machine(),
            load: "1k".into(),
            arrivals: "poisson".into(),
            realtime: false,
            round: 0,
            treatment,
            cores: 1.0,
            cores_all: 4,
            changes: 0,
            settled_after: 0,
            client_p50_ns: 1,
            client_p99_ns: 1,
            client_valid: true,
            server_tail_ns: None,
            watts: None,
            watts_from: "modelled".into(),
            cpu_us: 1.0,
            missed: 0,
            own_faults: 0,
            epochs: epochs.iter().map(|&(cores, us)| (cores, (us > 0).then_some(us * 1000))).collect(),
        }
    }

    #[test]
    fn an_own_fault_needs_fewer_cores_and_an_awake_run_that_kept_the_goal() {
        let awake = run(Treatment::Awake, &[(4, 100), (4, 100), (4, 900), (4, 100), (4, 100), (4, 100)]);
        let epochs = [(2, 900), (2, 900), (2, 900), (4, 900), (2, 900), (2, 0)];
        let mut runs = [run(Treatment::Goal, &epochs), awake];
        judge(&mut runs, "500us@p99".parse().unwrap());
        // The third is missed by both, in the fourth all are awake, in the sixth nothing was
        // measured.
        assert_eq!((runs[0].own_faults, runs[1].own_faults), (2, 0));
        let text = table(&runs, "500us@p99".parse().unwrap(), true);
        assert!(text.contains("polling is left out") && text.contains("goal"), "{text}");
    }
}
