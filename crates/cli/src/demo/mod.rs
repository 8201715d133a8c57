//! `roost demo`: the whole story on this machine's own CPUs, in about a minute.
//!
//! The same load comes three times to the same store: with all workers awake and the kernel's own
//! idle choice (*stock*), with all workers awake and their CPUs kept from sleeping deeply
//! (*limited*), and with the scheduler. The load is a day with its night, played fast, and one
//! burst in the night.
//!
//! The treatments take turns, round by round, and each claim about them has an interval (`claims`):
//! on a busy machine, one phase of each kind decides nothing. Awake time, wake-ups, rests and CPU
//! time are the workers' own, so that they are true on a busy machine as well; a tail is judged
//! only by rounds in which the generator was punctual (`rounds`).
//!
//! With fewer than four CPUs there is none to spare for the clients (`split`). Such a machine shows
//! that connections are packed, how often the CPU that is left alone is woken for the store and how
//! long it rests, and the cost of a request. A tail there is that of a machine whose clients keep a
//! CPU awake, and the demo says so.
//!
//! A machine with one halt state has nothing to limit: the treatment *limited* would be *stock*
//! once more, and is left out.
//!
//! Time is compressed: the policy's times (report period, block, learning) are divided by the same
//! factor as the day.
//!
//! Before that the main road is gone on the same store: observe, plan, govern as planned, and the
//! prediction beside the measurement (`road`).
//!
//! The generator sends before all other threads where it may. Beside workers it never polls, which
//! would keep them from their CPU: it sleeps until a request is due.

mod claims;
mod recorder;
mod road;
mod rounds;
mod show;
mod split;

use crate::exit::{Exit, usage};
use crate::frames::store_frame;
use crate::run_folder::{self, Kind};
use crate::serve;
use anyhow::{Context as _, Result, anyhow};
use loadgen::{HdrLog, Interval, Items, Pace, Part, Plan, Progress, SPIN_DEFAULT, Target};
use machine::{CpuId, CpuList, Duration, EnergyReading, Microjoules, PowerModel, Rate};
use policy::active_idle::Mode;
use policy::peafowl::Params;
use report::run::{Frame, RunInfo, Summary};
use report::terminal;
use rounds::{Seen, Total, awake_of, energy_between, moves};
use show::Show;
use split::Split;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::status::Status;
use store::{Config, Listen, Policy, Rests};
use workload::{ArrivalKind, Profile, Segment, Workload};

/// A day is played in this fraction of its time, and the policy's times are divided by as much.
const COMPRESSION: f64 = 30.0;

/// Client connections: eight for each of the workers that the demo starts at the least.
const CONNECTIONS: u32 = 64;

/// No round of a treatment is shorter, or there is no day to see.
const ROUND_LEAST: Duration = Duration::from_secs(1);

/// The peak as a share of the store's rate at full speed: enough to load every worker, and little
/// enough that one generator thread, which takes microseconds for each send, stays punctual.
const PEAK_SHARE: f64 = 0.15;

/// The whole story on this machine in a minute: server, load, scheduler off and on
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/demo.txt"))]
pub struct Args {
    /// Time of each treatment, all rounds together
    #[arg(long, value_name = "TIME", default_value = "24s")]
    phase_length: Duration,
    /// Rounds; the treatments take turns in each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(3..=100)
    )]
    rounds: u16,
    /// Requests per second at the peak [default: 15% of this machine's full rate, measured first]
    #[arg(long, value_name = "RATE", value_parser = workload::parse_rate)]
    peak: Option<Rate>,
    /// Folder for the run [default: runs/demo-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Seed of the load.
const SEED: u64 = 1;

/// One way of treating the same load.
struct Treatment {
    name: &'static str,
    what: &'static str,
    policy: Policy,
    active_idle: Mode,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let round_length = args.phase_length / u64::from(args.rounds);
    if round_length < ROUND_LEAST {
        return Err(usage(format!(
            "--phase-length must be at least {} for {} rounds, or there is no day to see",
            ROUND_LEAST * u64::from(args.rounds),
            args.rounds
        )));
    }
    let cpus = Split::of(&linux::allowed_cpus().map_err(usage)?);
    // Before the first socket and the first idle limit: a signal must find the way back.
    let stopped = crate::signals::end_flag()?;
    let peak = match args.peak {
        Some(peak) => peak,
        None => calibrate(&cpus, SEED, &stopped)?.scale(PEAK_SHARE),
    };
    let road = road::told(&stopped);
    if stopped.load(Ordering::Relaxed) {
        return Err(anyhow!("stopped before it began"));
    }
    let params = Params::live().scaled(COMPRESSION);
    let treatments = treatments(params, has_depth(&cpus));
    let started = run_folder::started()?;
    let folder = KIND.place(args.out.as_deref(), &started)?.make()?;
    let info = RunInfo {
        name: run_folder::name_of(&folder),
        config: config(&cpus, peak, &params, args)?,
        ..KIND.info(started, title(&cpus, peak, &treatments), &method(&cpus, &params, args))
    };
    let mut show = Show::begin(args, info, &folder, &treatments, stopped)?;
    let realtime = may_be_realtime();
    let mut totals: Vec<Total> = treatments.iter().map(|_| Total::default()).collect();
    for round in 0..args.rounds {
        // The other way round in every second round: the first one may find the machine otherwise
        // than the second.
        let mut turns: Vec<usize> = (0..treatments.len()).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            let (treatment, total) = (&treatments[turn], &mut totals[turn]);
            let piece = Piece { round, length: round_length, realtime };
            play(treatment, &cpus, peak, &folder, piece, total, &mut show)?;
            if show.is_stopped() {
                drop(show);
                return Err(anyhow!("stopped before the end; {} holds what was seen", folder.display()));
            }
        }
    }
    // Only now: figures of treatments that have run for unequal times are not to be compared.
    for (treatment, total) in treatments.iter().zip(&totals) {
        show.phase_over(total.phase(treatment));
    }
    let compared = rounds::compared(&treatments, &totals);
    let mut remarks: Vec<String> = cpus.remark().into_iter().collect();
    remarks.push(road);
    remarks.extend(rounds::told(&treatments, &totals, &compared));
    if !realtime {
        remarks.push(
            "The generator ran at ordinary priority; run as root (or with RLIMIT_RTPRIO), it sends before all others."
                .to_owned(),
        );
    }
    let verdicts = rounds::verdicts(&treatments, &compared);
    let found =
        Summary { verdicts, compared, remarks, invalid: rounds::invalid(&totals), ..Summary::default() };
    let (summary, page) = show.end(&folder, found)?;
    if args.json {
        crate::json::print(1, &summary)?;
    } else {
        println!("{}\n{}", terminal::outcome(&summary), terminal::folded(&times(&params)));
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

/// The treatments; the first is the baseline of the others.
fn treatments(params: Params, has_depth: bool) -> Vec<Treatment> {
    let stock = Treatment {
        name: "stock",
        what: "all workers awake, the kernel's idle choice",
        policy: Policy::AllAwake,
        active_idle: Mode::Stock,
    };
    let limited = Treatment {
        name: "limited",
        what: "all workers awake, no deep sleep while active",
        policy: Policy::AllAwake,
        active_idle: Mode::Halt,
    };
    let scheduler = Treatment {
        name: "scheduler",
        what: "as few workers awake as the load needs",
        policy: Policy::Peafowl(params),
        active_idle: Mode::Halt,
    };
    if has_depth { vec![stock, limited, scheduler] } else { vec![stock, scheduler] }
}

/// Whether an idle limit makes a difference on these CPUs.
fn has_depth(cpus: &Split) -> bool {
    let root = linux::Root::system();
    let table = |cpu: &CpuId| linux::idle_table(&root, *cpu).ok();
    cpus.server.iter().filter_map(table).any(|table| table.has_depth())
}

/// The policy's times as they were in force.
fn times(params: &Params) -> String {
    format!(
        "time compressed {COMPRESSION}x: report period {}, block {}, a rise learned after {}, \
         imbalance relieved after {}",
        params.report_period,
        params.block,
        params.learn_after,
        params.imbalance_patience.map_or_else(|| "never".to_owned(), |patience| patience.to_string()),
    )
}

const KIND: Kind = Kind { name: "demo", mark: "frames.jsonl" };

/// The settings of the run, for its folder.
fn config(cpus: &Split, peak: Rate, params: &Params, args: &Args) -> Result<toml::Table> {
    let mut config = toml::Table::new();
    let list = |cpus: &[CpuId]| CpuList(cpus.iter().copied().collect()).to_string();
    let mut demo = toml::Table::new();
    demo.insert("server_cpus".to_owned(), list(&cpus.server).into());
    demo.insert("generator_cpus".to_owned(), cpus.generator.to_string().into());
    demo.insert("workers".to_owned(), (cpus.worker_cpus().len() as i64).into());
    demo.insert("connections".to_owned(), i64::from(CONNECTIONS).into());
    demo.insert("peak_per_s".to_owned(), peak.as_per_second().round().into());
    demo.insert("rounds".to_owned(), i64::from(args.rounds).into());
    demo.insert("phase_length".to_owned(), args.phase_length.to_string().into());
    demo.insert("time_compression".to_owned(), COMPRESSION.into());
    demo.insert("seed".to_owned(), (SEED as i64).into());
    config.insert("demo".to_owned(), demo.into());
    config.insert("peafowl".to_owned(), toml::Value::try_from(params).context("the policy's parameters")?);
    Ok(config)
}

fn title(cpus: &Split, peak: Rate, treatments: &[Treatment]) -> String {
    format!(
        "A day with a burst in its night, peak {peak}, on {} workers: {}",
        cpus.worker_cpus().len(),
        treatments.iter().map(|treatment| treatment.name).collect::<Vec<_>>().join(", "),
    )
}

/// How the figures are found, for the folder and the page.
fn method(cpus: &Split, params: &Params, args: &Args) -> Vec<String> {
    let mut method = vec![
        "Latency: measured by the open-loop generator over a Unix socket, from the intended \
             send time; every treatment of a round gets the same requests from the same seed."
            .to_owned(),
        format!(
            "Rounds: {} of each treatment, taking turns; a claim compares the two of the same \
                 round, and its 99 % interval comes from how much the rounds differ (Student's t \
                 on their ratios, by logarithms where it is a time). It is met or missed only \
                 with its whole interval.",
            args.rounds
        ),
        "Rests of a CPU: measured by the store's workers, from when the last one on that CPU \
             goes to wait until one of them runs again; other programs may use it meanwhile. A \
             wake-up ends a rest. The CPU left alone is, for every interval of 200 ms, the one \
             that was woken least, with stock as with the scheduler."
            .to_owned(),
        "CPU time of the workers: measured by the kernel for these threads alone (schedstat).".to_owned(),
        "Worker-seconds awake: measured by the store; a worker is awake from its first \
             connection until its last one has moved away."
            .to_owned(),
        "Idle residency: measured by the kernel's cpuidle counters (states as requested), on \
             the store's CPUs only."
            .to_owned(),
        format!(
            "Energy: modelled from busy time and idle residency of the store's CPUs with a \
                 table of powers, because a meter cannot tell CPUs apart; {}.",
            if cpus.is_shared() {
                "the generator and other programs on them are in it"
            } else {
                "the generator has others"
            }
        ),
        times(params),
    ];
    if !has_depth(cpus) {
        method.push(
            "This machine has one halt state: limiting idle states changes nothing, and that \
             treatment is left out."
                .to_owned(),
        );
    }
    method
}

/// Where the store listens. A Unix socket, because on TCP's loopback one `send` carries the packet
/// through the whole stack and takes longer than a tenth of the tail that is measured: the
/// generator would be late by itself.
fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("roost-demo-{}.sock", std::process::id()))
}

fn server_config(treatment: &Treatment, cpus: &Split) -> Config {
    Config {
        listen: vec![Listen::Unix { path: socket(), mode: 0o600 }],
        active_idle: treatment.active_idle,
        idle_actuator: Some(linux::IdleActuator::PmQos),
        power_model: Some(PowerModel::for_processor(&linux::processor(&linux::Root::system()))),
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
        // Polling beside workers would keep them from their CPU.
        spin: if cpus.is_shared() { Duration::ZERO } else { SPIN_DEFAULT },
        ..Plan::new(Target::Unix(socket()), pace)
    }
}

/// This machine's rate at full speed, all workers awake.
fn calibrate(cpus: &Split, seed: u64, stopped: &AtomicBool) -> Result<Rate> {
    eprintln!("roost demo: measuring what this machine serves (2 s)");
    let treatment = Treatment { name: "", what: "", policy: Policy::AllAwake, active_idle: Mode::Stock };
    let server = serve::start(server_config(&treatment, cpus), || ())?;
    let pace = Pace::Closed { depth: 1 };
    let plan = plan(cpus, pace, Duration::from_millis(1500), seed);
    let outcome = loadgen::run(&plan, &mut |_| {
        if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    server.stop().context("stopping the store")?;
    if stopped.load(Ordering::Relaxed) {
        return Err(anyhow!("stopped before it began"));
    }
    Ok(outcome.achieved)
}

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

/// One treatment's part of one round.
#[derive(Clone, Copy)]
struct Piece {
    round: u16,
    length: Duration,
    realtime: bool,
}

/// Whether a thread of this user may send before all others, which keeps the generator punctual on
/// a busy machine.
fn may_be_realtime() -> bool {
    std::thread::spawn(|| linux::schedule_fifo().is_ok()).join().unwrap_or(false)
}

/// One round of one treatment, from the server's start to its end.
fn play(
    treatment: &Treatment,
    cpus: &Split,
    peak: Rate,
    folder: &Path,
    piece: Piece,
    total: &mut Total,
    show: &mut Show,
) -> Result<()> {
    let broken = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&broken);
    let server = serve::start(server_config(treatment, cpus), move || flag.store(true, Ordering::Relaxed))?;
    fill(cpus, SEED)?;
    // Filling goes as fast as it can: no load to learn from.
    server.reset_limits();
    let pace = Pace::Open { arrivals: ArrivalKind::Poisson, profile: day(piece.length, peak)? };
    // The same requests for all treatments of a round, and others in each round.
    let seed = SEED.wrapping_add(u64::from(piece.round));
    let plan = Plan { realtime: piece.realtime, ..plan(cpus, pace, piece.length, seed) };
    let before = Before {
        at: piece.length * u64::from(piece.round),
        awake: total.awake,
        moves: total.moves,
        energy: total.energy.clone(),
    };
    let mut quiet: Option<Quiet> = None;
    let mut cpu_before = None;
    let mut first: Option<Status> = None;
    let mut last: Option<Status> = None;
    let log_path = folder.join(format!("{}-{}.hdr", treatment.name, piece.round + 1));
    let mut log =
        HdrLog::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
    let outcome = loadgen::run(&plan, &mut |interval: &Interval<'_>| {
        if broken.load(Ordering::Relaxed) || show.is_stopped() || log.record(interval).is_err() {
            return ControlFlow::Break(());
        }
        let now = server.status();
        if interval.progress.part == Part::Measured {
            match &mut quiet {
                Some(quiet) => quiet.look(server.rests()),
                none => {
                    *none = Some(Quiet::begin(server.rests()));
                    cpu_before = store::workers_cpu();
                }
            }
            let origin = first.get_or_insert_with(|| now.clone());
            show.frame(moment(treatment.name, interval.progress, &before, origin, last.as_ref(), &now));
        }
        last = Some(now);
        ControlFlow::Continue(())
    })?;
    let end = server.status();
    let workers_cpu = cpu_before.zip(store::workers_cpu()).map(|(before, now)| now - before);
    let (rests, quietest) = quiet.map_or_else(Default::default, |quiet| quiet.end(&server.rests()));
    let served = server.stop();
    if broken.load(Ordering::Relaxed) {
        served.context("the store ended by itself")?;
    }
    let first = first.unwrap_or_else(|| end.clone());
    total.add(treatment, &outcome, &Seen { first, end, rests, quietest, workers_cpu });
    Ok(())
}

/// The rests of each CPU while a round is measured.
struct Quiet {
    first: Vec<Rests>,
    last: Vec<Rests>,
    /// Of the CPU that was woken least, interval by interval: the CPU changes with the worker that
    /// the scheduler empties.
    wake_ups: u64,
}

impl Quiet {
    fn begin(rests: Vec<Rests>) -> Self {
        Self { last: rests.clone(), first: rests, wake_ups: 0 }
    }

    fn look(&mut self, now: Vec<Rests>) {
        let woken = now.iter().zip(&self.last).map(|(now, last)| now.since(last).count());
        self.wake_ups += woken.min().unwrap_or(0);
        self.last = now;
    }

    fn end(mut self, now: &[Rests]) -> (Vec<Rests>, u64) {
        self.look(now.to_vec());
        let rests = now.iter().zip(&self.first).map(|(now, first)| now.since(first).ended()).collect();
        (rests, self.wake_ups)
    }
}

/// The sum of the rounds before: the frames of a treatment follow each other as if it had run by
/// itself.
struct Before {
    at: Duration,
    awake: Duration,
    moves: u64,
    energy: Option<EnergyReading>,
}

/// A frame of one interval: the generator's view and the store's.
fn moment(
    phase: &str,
    progress: &Progress,
    past: &Before,
    origin: &Status,
    before: Option<&Status>,
    now: &Status,
) -> Frame {
    let counted = store_frame(before, now);
    let since_origin = store_frame(Some(origin), now);
    let latency = (progress.latency.count > 0).then_some(progress.latency);
    Frame {
        phase: phase.to_owned(),
        at: past.at + progress.at,
        offered: progress.offered,
        achieved: Some(progress.achieved),
        p50: latency.map(|latency| latency.p50),
        p99: latency.map(|latency| latency.p99),
        p999: latency.map(|latency| latency.p999),
        transfers: Some(past.moves + moves(now) - moves(origin)),
        awake: since_origin.awake.map(|awake| past.awake + (awake - awake_of(origin))),
        energy: energy_between(origin, now).map(|energy| {
            let so_far = past.energy.as_ref().map_or(0, |energy| energy.used.0);
            EnergyReading { used: Microjoules(energy.used.0 + so_far), ..energy }
        }),
        ..counted
    }
}
