//! `roost demo`: the whole story on this machine's own CPUs, in about a minute.
//!
//! The same load comes three times to the same store: with all workers awake and the kernel's own idle choice (*stock*),
//! with all workers awake and their CPUs kept from sleeping deeply (*limited*), and with the scheduler. The load is a day
//! with its night, played fast, and one burst in the night. Each phase begins with the day's peak, because that is what the
//! scheduler learns its limits from.
//!
//! Time is compressed: the policy's times (report period, block, learning) are divided by the same factor as the day.
//! The generator runs on CPUs of its own, whose energy and idle time are left out of every figure.

mod show;

use crate::exit::{Exit, usage};
use crate::frames::{mean_residency, store_frame};
use crate::machine_facts::this_machine;
use crate::run_folder::{self, Place};
use crate::serve;
use anyhow::{Context as _, Result, anyhow};
use loadgen::{HdrLog, Interval, Items, Outcome, Pace, Part, Plan, Progress, Target};
use machine::{CpuId, CpuList, Duration, EnergyReading, Microjoules, PowerModel, Rate, Ratio};
use policy::active_idle::Mode;
use policy::peafowl::Params;
use report::run::{CurvePoint, Frame, Phase, RunInfo, utc};
use report::terminal;
use server::status::Status;
use server::{Config, Listen, Policy};
use show::Show;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use workload::{ArrivalKind, Profile, Segment, Workload};

/// A day is played in this fraction of its time, and the policy's times are divided by as much.
const COMPRESSION: f64 = 30.0;

/// Client connections: eight for each of the workers that the demo starts at the least.
const CONNECTIONS: u32 = 64;

/// Workers at the least, however few CPUs there are: with two the scheduler could only halve.
const MIN_WORKERS: usize = 8;

/// The peak as a share of what the store serves at full speed: enough to load every worker, and little enough that one
/// generator thread, which takes microseconds for each send, stays punctual.
const PEAK_SHARE: f64 = 0.15;

/// The whole story on this machine in a minute: server, load, scheduler off and on
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost demo                              live view, then a table and runs/<name>/report.html
  roost demo --web 127.0.0.1:8090         the same charts live in a browser
  roost demo --phase-length 60s           longer phases, steadier figures")]
pub struct Args {
    /// Show the charts live at this address as well
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::exit::parse_address)]
    web: Option<SocketAddr>,
    /// Let others than this machine look at the live page
    #[arg(long, requires = "web")]
    web_anywhere: bool,
    /// Length of each of the three phases
    #[arg(long, value_name = "TIME", default_value = "18s")]
    phase_length: Duration,
    /// Requests per second at the peak [default: 15% of what this machine serves, measured first]
    #[arg(long, value_name = "RATE", value_parser = workload::parse_rate)]
    peak: Option<Rate>,
    /// Folder for the run [default: runs/demo-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Plain progress lines even on a terminal
    #[arg(long)]
    plain: bool,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Seed of the load
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One way of treating the same load.
struct Treatment {
    name: &'static str,
    what: &'static str,
    policy: Policy,
    active_idle: Mode,
}

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.phase_length < Duration::from_secs(3) {
        return Err(usage("--phase-length must be at least 3s, or there is no day to see"));
    }
    let cpus = Split::of(&host::allowed_cpus().map_err(usage)?);
    let peak = match args.peak {
        Some(peak) => peak,
        None => calibrate(&cpus, args.seed)?.scale(PEAK_SHARE),
    };
    let params = Params::live().scaled(COMPRESSION);
    let treatments = [
        Treatment {
            name: "stock",
            what: "all workers awake, the kernel's idle choice",
            policy: Policy::AllAwake,
            active_idle: Mode::Stock,
        },
        Treatment {
            name: "limited",
            what: "all workers awake, no deep sleep while active",
            policy: Policy::AllAwake,
            active_idle: Mode::Halt,
        },
        Treatment {
            name: "scheduler",
            what: "as few workers awake as the load needs",
            policy: Policy::Peafowl(params),
            active_idle: Mode::Halt,
        },
    ];
    let started =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("the clock")?.as_secs();
    let name = format!("demo-{}", utc(started).replace(" UTC", "").replace([' ', ':'], "-"));
    let folder = Place::of(args.out.as_deref(), &name, "frames.jsonl")?.make()?;
    let name = run_folder::name_of(&folder);
    let info = run_info(name, started, &cpus, peak, &params, args)?;
    let mut show = Show::begin(args, info, &folder, &treatments)?;
    let mut invalid = None;
    for treatment in &treatments {
        let (phase, refused) = play(treatment, &cpus, peak, args, &folder, &mut show)?;
        if show.is_stopped() {
            drop(show);
            return Err(anyhow!("stopped before the end; {} holds what was seen", folder.display()));
        }
        invalid = invalid.or(refused);
        show.phase_over(phase);
    }
    let (summary, page) = show.end(&folder, invalid)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        println!("{}\n{}", terminal::outcome(&summary), times(&params));
        println!("report: {}", page.display());
    }
    Ok(if summary.invalid.is_some() {
        Exit::Invalid.into()
    } else if summary.verdicts.iter().any(|verdict| verdict.met == Some(false)) {
        Exit::GoalMissed.into()
    } else {
        ExitCode::SUCCESS
    })
}

/// The policy's times as they were in force.
fn times(params: &Params) -> String {
    format!(
        "time compressed {COMPRESSION}x: report period {}, block {}, a rise learned after {}, imbalance relieved after {}",
        params.report_period,
        params.block,
        params.learn_after,
        params.imbalance_patience.map_or_else(|| "never".to_owned(), |patience| patience.to_string()),
    )
}

/// What was run, for the folder and the top of the page.
fn run_info(
    name: String,
    started: u64,
    cpus: &Split,
    peak: Rate,
    params: &Params,
    args: &Args,
) -> Result<RunInfo> {
    let mut config = toml::Table::new();
    let list = |cpus: &[CpuId]| CpuList(cpus.iter().copied().collect()).to_string();
    let mut demo = toml::Table::new();
    demo.insert("server_cpus".to_owned(), list(&cpus.server).into());
    demo.insert("generator_cpus".to_owned(), cpus.generator.to_string().into());
    demo.insert("workers".to_owned(), (cpus.worker_cpus().len() as i64).into());
    demo.insert("connections".to_owned(), i64::from(CONNECTIONS).into());
    demo.insert("peak_per_s".to_owned(), peak.as_per_second().round().into());
    demo.insert("phase_length".to_owned(), args.phase_length.to_string().into());
    demo.insert("time_compression".to_owned(), COMPRESSION.into());
    demo.insert("seed".to_owned(), (args.seed as i64).into());
    config.insert("demo".to_owned(), demo.into());
    config.insert("peafowl".to_owned(), toml::Value::try_from(params).context("the policy's parameters")?);
    Ok(RunInfo {
        format: RunInfo::FORMAT,
        name,
        title: format!(
            "A day with a burst in its night, peak {peak}, on {} workers: stock, idle limited, scheduled",
            cpus.worker_cpus().len()
        ),
        command: crate::run_folder::command(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: utc(started),
        method: vec![
            "Latency: measured by the open-loop generator over a Unix socket, from the intended send time; every phase gets the same requests from the same seed.".to_owned(),
            "Worker-seconds awake: measured by the store; a worker is awake from its first connection until its last one has moved away.".to_owned(),
            "Idle residency: measured by the kernel's cpuidle counters (states as requested), on the store's CPUs only.".to_owned(),
            "Energy: modelled from busy time and idle residency of the store's CPUs with a table of powers, because a meter cannot leave the generator's CPUs out.".to_owned(),
            times(params),
        ],
        machine: this_machine(),
        config,
    })
}

/// Which CPUs serve and which send.
#[derive(Debug)]
struct Split {
    server: Vec<CpuId>,
    generator: CpuList,
}

impl Split {
    /// The generator gets the last of two CPUs, or the last third of more; a single CPU does both.
    fn of(allowed: &CpuList) -> Self {
        let all: Vec<CpuId> = allowed.0.iter().copied().collect();
        let generators = (all.len() / 3).max(1);
        let (server, generator) = all.split_at(all.len().saturating_sub(generators));
        let server = if server.is_empty() { &all[..] } else { server };
        Self { server: server.to_vec(), generator: CpuList(generator.iter().copied().collect()) }
    }

    fn worker_cpus(&self) -> Vec<CpuId> {
        let workers = self.server.len().max(MIN_WORKERS);
        self.server.iter().copied().cycle().take(workers).collect()
    }
}

/// Where the store listens. A Unix socket, because on TCP's loopback one `send` carries the packet through the whole
/// stack and takes longer than a tenth of the tail that is measured: the generator would be late by itself.
fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("roost-demo-{}.sock", std::process::id()))
}

fn server_config(treatment: &Treatment, cpus: &Split) -> Config {
    Config {
        listen: vec![Listen::Unix(socket())],
        active_idle: treatment.active_idle,
        idle_actuator: Some(host::IdleActuator::PmQos),
        power_model: Some(PowerModel::for_processor(&host::processor(&host::Root::system()))),
        ..Config::on_loopback(cpus.worker_cpus(), treatment.policy.clone())
    }
}

fn plan(cpus: &Split, pace: Pace, length: Duration, seed: u64) -> Plan {
    Plan {
        connections: CONNECTIONS,
        threads: cpus.generator.0.len() as u16,
        cpus: Some(cpus.generator.clone()),
        length,
        warmup: Duration::from_millis(500),
        asks: Items::of(Workload { seed, ..Workload::default() }),
        interval: Duration::from_millis(200),
        ..Plan::new(Target::Unix(socket()), pace)
    }
}

/// What this machine serves at full speed, all workers awake.
fn calibrate(cpus: &Split, seed: u64) -> Result<Rate> {
    eprintln!("roost demo: measuring what this machine serves (2 s)");
    let treatment = Treatment { name: "", what: "", policy: Policy::AllAwake, active_idle: Mode::Stock };
    let server = serve::start(server_config(&treatment, cpus), || ())?;
    let pace = Pace::Closed { depth: 1 };
    let plan = plan(cpus, pace, Duration::from_millis(1500), seed);
    let outcome = loadgen::run(&plan, &mut |_| ControlFlow::Continue(()))?;
    server.stop().context("stopping the store")?;
    Ok(outcome.reached)
}

/// Stores every key.
fn fill(cpus: &Split, seed: u64) -> Result<()> {
    loadgen::fill(&plan(cpus, Pace::Closed { depth: 1 }, Duration::from_millis(1), seed))?;
    Ok(())
}

/// Peak, evening, night with a burst in it, morning: as shares of the phase and of the peak.
fn day(length: Duration, peak: Rate) -> Result<Profile> {
    let mut segments = Vec::new();
    let mut stretch = |share: f64, from: f64, to: f64| {
        segments.push(Segment { length: length.scale(share), from: peak.scale(from), to: peak.scale(to) });
    };
    stretch(0.12, 1.0, 1.0);
    stretch(0.10, 1.0, 0.60);
    stretch(0.10, 0.60, 0.25);
    stretch(0.10, 0.25, 0.08);
    stretch(0.18, 0.08, 0.08);
    stretch(0.04, 0.65, 0.65);
    stretch(0.14, 0.08, 0.08);
    stretch(0.12, 0.08, 0.35);
    stretch(0.10, 0.35, 0.80);
    Profile::new(&segments).context("the day's profile")
}

/// One phase from the server's start to its end; with the reason, if it is invalid.
fn play(
    treatment: &Treatment,
    cpus: &Split,
    peak: Rate,
    args: &Args,
    folder: &Path,
    show: &mut Show,
) -> Result<(Phase, Option<String>)> {
    let broken = Arc::new(Mutex::new(false));
    let flag = Arc::clone(&broken);
    let server = serve::start(server_config(treatment, cpus), move || *lock(&flag) = true)?;
    fill(cpus, args.seed)?;
    // Filling goes as fast as it can: no load to learn from.
    server.reset_limits();
    let pace = Pace::Open { arrivals: ArrivalKind::Poisson, profile: day(args.phase_length, peak)? };
    let plan = plan(cpus, pace, args.phase_length, args.seed);
    let mut first: Option<Status> = None;
    let mut last: Option<Status> = None;
    let log_path = folder.join(format!("{}.hdr", treatment.name));
    let mut log =
        HdrLog::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
    let outcome = loadgen::run(&plan, &mut |interval: &Interval<'_>| {
        if *lock(&broken) || show.is_stopped() || log.record(interval).is_err() {
            return ControlFlow::Break(());
        }
        let now = server.status();
        if interval.progress.part == Part::Measured {
            let origin = first.get_or_insert_with(|| last.clone().unwrap_or_else(|| now.clone()));
            show.frame(moment(treatment.name, interval.progress, origin, last.as_ref(), &now));
        }
        last = Some(now);
        ControlFlow::Continue(())
    })?;
    let end = server.status();
    let served = server.stop();
    if *lock(&broken) {
        served.context("the store ended by itself")?;
    }
    let invalid =
        (!outcome.valid).then(|| format!("{}: {}", treatment.name, outcome.invalid_because.join("; ")));
    Ok((phase_of(treatment, &outcome, first.as_ref().unwrap_or(&end), &end), invalid))
}

/// A frame of one interval: the generator's view and the store's.
fn moment(phase: &str, progress: &Progress, origin: &Status, before: Option<&Status>, now: &Status) -> Frame {
    let counted = store_frame(before, now);
    let since_origin = store_frame(Some(origin), now);
    let latency = (progress.latency.count > 0).then_some(progress.latency);
    Frame {
        phase: phase.to_owned(),
        at: progress.at,
        asked: progress.asked,
        reached: Some(progress.reached),
        p50: latency.map(|latency| latency.p50),
        p99: latency.map(|latency| latency.p99),
        p999: latency.map(|latency| latency.p999),
        transfers: Some(moves(now) - moves(origin)),
        awake: since_origin.awake.map(|awake| awake - awake_of(origin)),
        energy: energy_between(origin, now),
        ..counted
    }
}

fn phase_of(treatment: &Treatment, outcome: &Outcome, first: &Status, end: &Status) -> Phase {
    let latency = &outcome.latency;
    let whole = store_frame(Some(first), end);
    let point = |share: f64| CurvePoint {
        share: Ratio::new(share),
        latency: Duration::from_nanos(outcome.histogram.value_at_quantile(share)),
    };
    Phase {
        name: treatment.name.to_owned(),
        what: treatment.what.to_owned(),
        length: Some(outcome.measured),
        asked: outcome.asked,
        reached: Some(outcome.reached),
        requests: Some(outcome.counts.answered),
        errors: Some(outcome.counts.errors()),
        p50: Some(latency.p50),
        p99: Some(latency.p99),
        p999: Some(latency.p999),
        max: Some(latency.max),
        curve: CurvePoint::SHARES.iter().map(|&share| point(share)).collect(),
        awake: Some(awake_of(end) - awake_of(first)),
        residency: mean_residency(&whole.cpus),
        energy: energy_between(first, end),
        transfers: Some(moves(end) - moves(first)),
        late: Some(outcome.late),
    }
}

fn moves(status: &Status) -> u64 {
    status.transfers.ordered + status.transfers.send_home
}

fn awake_of(status: &Status) -> Duration {
    status.workers.iter().map(|worker| worker.awake).sum()
}

fn energy_between(first: &Status, last: &Status) -> Option<EnergyReading> {
    let (first, last) = (first.energy.as_ref()?, last.energy.as_ref()?);
    Some(EnergyReading {
        used: Microjoules(last.used.0.saturating_sub(first.used.0)),
        source: last.source.clone(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
