//! `roost demo`: the whole story on this machine's own CPUs, in about a minute.
//!
//! The same load comes three times to the same store: with all workers awake and the kernel's own idle choice (*stock*),
//! with all workers awake and their CPUs kept from sleeping deeply (*limited*), and with the scheduler. The load is a day
//! with its night, played fast, and one burst in the night.
//!
//! The treatments take turns, round by round, and what is claimed of them has an interval (`claims`): on a machine that
//! others use, one phase of each kind decides nothing. Awake time, wake-ups and CPU time are the workers' own (`threads`),
//! so that they are true beside a compiler as well; a tail is judged only by rounds in which the generator was punctual.
//!
//! With fewer than four CPUs all workers share one or two of them. Such a machine cannot show cores that sleep, and the demo
//! says so; it shows that connections are packed, how often workers wake, and what that saves.
//!
//! Time is compressed: the policy's times (report period, block, learning) are divided by the same factor as the day.
//! The generator runs on CPUs of its own, whose energy and idle time are left out of every figure.

mod claims;
mod recorder;
mod show;
mod threads;

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
use report::run::{CurvePoint, Frame, Phase, RunInfo, StateShare, Verdict, utc};
use report::terminal;
use server::status::Status;
use server::{Config, Listen, Policy};
use show::Show;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use threads::Workers;
use workload::{ArrivalKind, Profile, Segment, Workload};

/// A day is played in this fraction of its time, and the policy's times are divided by as much.
const COMPRESSION: f64 = 30.0;

/// Client connections: eight for each of the workers that the demo starts at the least.
const CONNECTIONS: u32 = 64;

/// With fewer CPUs no core can be left alone for long: one of them sends, and the system needs one.
const CPUS_TO_SLEEP: usize = 4;

/// No round of a treatment is shorter, or there is no day to see.
const ROUND_LEAST: Duration = Duration::from_secs(1);

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
  roost demo --phase-length 60s           longer phases, narrower intervals")]
pub struct Args {
    /// Show the charts live at this address as well
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::exit::parse_address)]
    web: Option<SocketAddr>,
    /// Let others than this machine look at the live page
    #[arg(long, requires = "web")]
    web_anywhere: bool,
    /// Time of each of the three treatments, all rounds together
    #[arg(long, value_name = "TIME", default_value = "18s")]
    phase_length: Duration,
    /// Rounds; the treatments take turns in each
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(3..=100))]
    rounds: u16,
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
    let round_length = args.phase_length / u64::from(args.rounds);
    if round_length < ROUND_LEAST {
        return Err(usage(format!(
            "--phase-length must be at least {} for {} rounds, or there is no day to see",
            ROUND_LEAST * u64::from(args.rounds),
            args.rounds
        )));
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
    let prompt = may_be_prompt();
    let mut totals: Vec<Total> = treatments.iter().map(|_| Total::default()).collect();
    for round in 0..args.rounds {
        for (treatment, total) in treatments.iter().zip(&mut totals) {
            let piece = Piece { round, length: round_length, prompt };
            play(treatment, &cpus, peak, args, &folder, piece, total, &mut show)?;
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
    let invalid = totals.iter().find_map(|total| total.short.clone());
    let (summary, page) = show.end(&folder, verdicts(&totals), invalid)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        println!("{}\n{}", terminal::outcome(&summary), times(&params));
        for line in told(&cpus, &totals) {
            println!("{line}");
        }
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
    demo.insert("rounds".to_owned(), i64::from(args.rounds).into());
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
            "Latency: measured by the open-loop generator over a Unix socket, from the intended send time; every treatment of a round gets the same requests from the same seed.".to_owned(),
            format!("Rounds: {} of each treatment, taking turns; a claim compares the two of the same round, and its 99 % interval comes from how much the rounds differ (Student's t on the logarithms of the ratios). It is met or missed only with its whole interval.", args.rounds),
            "Wake-ups and CPU time of the workers: measured by the kernel for these threads alone (voluntary context switches, schedstat).".to_owned(),
            "Worker-seconds awake: measured by the store; a worker is awake from its first connection until its last one has moved away.".to_owned(),
            "Idle residency: measured by the kernel's cpuidle counters (states as requested), on the store's CPUs only.".to_owned(),
            "Energy: modelled from busy time and idle residency of the store's CPUs with a table of powers, because a meter cannot leave the generator's CPUs out.".to_owned(),
            times(params),
        ]
        .into_iter()
        .chain(cannot_show(cpus))
        .collect(),
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

/// One treatment's part of one round.
#[derive(Clone, Copy)]
struct Piece {
    round: u16,
    length: Duration,
    prompt: bool,
}

/// What one round of a treatment came to.
#[derive(Clone, Copy, Debug)]
struct Round {
    awake: f64,
    sleeps_per_s: Option<f64>,
    cpu_per_request: Option<f64>,
    /// Missing where the generator was late: it would be the generator's own.
    p99: Option<f64>,
}

/// What a treatment has come to so far.
#[derive(Default)]
struct Total {
    rounds: Vec<Round>,
    length: Duration,
    asked: f64,
    requests: u64,
    errors: u64,
    late: f64,
    histogram: Option<hdrhistogram::Histogram<u64>>,
    awake: Duration,
    moves: u64,
    energy: Option<EnergyReading>,
    residency: Option<Vec<StateShare>>,
    /// Why the load was not what it should be, if it was not.
    short: Option<String>,
}

impl Total {
    fn add(&mut self, treatment: &Treatment, outcome: &Outcome, seen: &Seen) {
        let Seen { first, end, workers } = seen;
        let seconds = outcome.measured.as_secs_f64().max(1e-9);
        let answered = outcome.counts.answered;
        let awake = awake_of(end) - awake_of(first);
        self.rounds.push(Round {
            awake: awake.as_secs_f64() / seconds,
            sleeps_per_s: workers.map(|workers| workers.sleeps as f64 / seconds),
            cpu_per_request: workers.map(|workers| workers.cpu.as_secs_f64() / answered.max(1) as f64),
            p99: outcome.valid.then(|| outcome.latency.p99.as_secs_f64()),
        });
        self.length += outcome.measured;
        self.asked += outcome.asked.map_or(0.0, Rate::as_per_second);
        self.requests += answered;
        self.errors += outcome.counts.errors();
        self.late += outcome.late.as_f64();
        match &mut self.histogram {
            // Both have the generator's bounds.
            Some(histogram) => drop(histogram.add(&outcome.histogram)),
            none => *none = Some(outcome.histogram.clone()),
        }
        self.awake += awake;
        self.moves += moves(end) - moves(first);
        if let Some(energy) = energy_between(first, end) {
            match &mut self.energy {
                Some(sum) => sum.used.0 += energy.used.0,
                none => *none = Some(energy),
            }
        }
        let residency = mean_residency(&store_frame(Some(first), end).cpus);
        match (&mut self.residency, residency) {
            (Some(sum), Some(round)) => {
                for (sum, round) in sum.iter_mut().zip(round) {
                    sum.share = Ratio::new(sum.share.as_f64() + round.share.as_f64());
                }
            }
            (none @ None, some) => *none = some,
            (Some(_), None) => {}
        }
        // A punctual generator is a matter of the tail alone; an answer that is missing is one of the load.
        let asked = outcome.asked.map_or(0.0, Rate::as_per_second);
        let reached = outcome.reached.as_per_second();
        if outcome.counts.unsent > 0 || answered == 0 || reached < LOAD_LEAST * asked {
            self.short.get_or_insert_with(|| {
                format!(
                    "{}: the store was asked {asked:.0} requests a second and answered {reached:.0}; give a lower --peak",
                    treatment.name
                )
            });
        }
    }

    /// All rounds as one phase.
    fn phase(&self, treatment: &Treatment) -> Phase {
        let count = self.rounds.len().max(1) as f64;
        let at = |share: f64| {
            self.histogram.as_ref().map(|histogram| Duration::from_nanos(histogram.value_at_quantile(share)))
        };
        let curve = CurvePoint::SHARES
            .iter()
            .filter_map(|&share| Some(CurvePoint { share: Ratio::new(share), latency: at(share)? }));
        let shares = |states: &Vec<StateShare>| {
            let mean = |state: &StateShare| Ratio::new(state.share.as_f64() / count);
            states.iter().map(|state| StateShare { share: mean(state), ..state.clone() }).collect()
        };
        Phase {
            name: treatment.name.to_owned(),
            what: treatment.what.to_owned(),
            length: Some(self.length),
            asked: Some(Rate::per_second(self.asked / count)),
            reached: Some(Rate::of(self.requests, self.length)),
            requests: Some(self.requests),
            errors: Some(self.errors),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            curve: curve.collect(),
            awake: Some(self.awake),
            residency: self.residency.as_ref().map(shares),
            energy: self.energy.clone(),
            transfers: Some(self.moves),
            late: Some(Ratio::new(self.late / count)),
        }
    }

    /// The mean over the rounds.
    fn mean(&self, figure: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        let figures: Vec<f64> = self.rounds.iter().filter_map(figure).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }
}

/// The load was not what it should be if less than this share of it was answered.
const LOAD_LEAST: f64 = 0.9;

/// The bars that the demo holds itself to, as shares of the same round of stock.
const AWAKE_BAR: f64 = 0.75;
const TAIL_BAR: f64 = 1.25;

/// The scheduler against stock, round by round.
fn verdicts(totals: &[Total]) -> Vec<Verdict> {
    let (Some(stock), Some(scheduler)) = (totals.first(), totals.last()) else { return Vec::new() };
    let pairs = |figure: fn(&Round) -> Option<f64>| -> Vec<(f64, f64)> {
        let rounds = stock.rounds.iter().zip(&scheduler.rounds);
        rounds.filter_map(|(stock, scheduler)| Some((figure(stock)?, figure(scheduler)?))).collect()
    };
    vec![
        claims::claim("worker-seconds awake", &pairs(|round| Some(round.awake)), AWAKE_BAR),
        claims::claim("workers' wake-ups", &pairs(|round| round.sleeps_per_s), 1.0),
        claims::claim("workers' CPU time per request", &pairs(|round| round.cpu_per_request), 1.0),
        claims::claim("p99", &pairs(|round| round.p99), TAIL_BAR),
    ]
}

/// What a machine of this size cannot show.
fn cannot_show(cpus: &Split) -> Option<String> {
    let all = cpus.server.len() + cpus.generator.0.len();
    (all < CPUS_TO_SLEEP).then(|| {
        format!(
            "This machine cannot show sleeping cores: {} workers share CPU {}. It shows that connections are packed, how often \
             workers wake, and their CPU time.",
            cpus.worker_cpus().len(),
            CpuList(cpus.server.iter().copied().collect())
        )
    })
}

/// The figures behind the claims, in plain words.
fn told(cpus: &Split, totals: &[Total]) -> Vec<String> {
    let mut lines: Vec<String> = cannot_show(cpus).into_iter().collect();
    if let (Some(stock), Some(scheduler)) = (totals.first(), totals.last()) {
        let of = |figure: fn(&Round) -> Option<f64>| Some((stock.mean(figure)?, scheduler.mean(figure)?));
        if let Some((stock, scheduler)) = of(|round| Some(round.awake)) {
            lines.push(format!("workers awake at a time: {scheduler:.1}, stock {stock:.1}"));
        }
        if let Some((stock, scheduler)) = of(|round| round.sleeps_per_s) {
            lines.push(format!("wake-ups of workers a second: {scheduler:.0}, stock {stock:.0}"));
        }
        if let Some((stock, scheduler)) = of(|round| round.cpu_per_request) {
            let (stock, scheduler) = (stock * 1e6, scheduler * 1e6);
            lines.push(format!("CPU time of workers per request: {scheduler:.1} us, stock {stock:.1} us"));
        }
        let late = totals.iter().flat_map(|total| &total.rounds).filter(|round| round.p99.is_none()).count();
        if late > 0 {
            let all: usize = totals.iter().map(|total| total.rounds.len()).sum();
            lines.push(format!(
                "the generator was late in {late} of {all} phases: their p99 is its own, and is left out of the claim"
            ));
        }
    }
    lines
}

/// Whether a thread of this user may send before all others, which keeps the generator punctual on a busy machine.
fn may_be_prompt() -> bool {
    std::thread::spawn(|| host::run_before_others().is_ok()).join().unwrap_or(false)
}

/// What was seen of the store between the first measured moment and the last.
struct Seen {
    first: Status,
    end: Status,
    workers: Option<Workers>,
}

/// One round of one treatment, from the server's start to its end.
#[expect(clippy::too_many_arguments, reason = "wiring: each is another part of the demo")]
fn play(
    treatment: &Treatment,
    cpus: &Split,
    peak: Rate,
    args: &Args,
    folder: &Path,
    piece: Piece,
    total: &mut Total,
    show: &mut Show,
) -> Result<()> {
    let broken = Arc::new(Mutex::new(false));
    let flag = Arc::clone(&broken);
    let server = serve::start(server_config(treatment, cpus), move || *lock(&flag) = true)?;
    fill(cpus, args.seed)?;
    // Filling goes as fast as it can: no load to learn from.
    server.reset_limits();
    let pace = Pace::Open { arrivals: ArrivalKind::Poisson, profile: day(piece.length, peak)? };
    // The same requests for all treatments of a round, and others in each round.
    let seed = args.seed.wrapping_add(u64::from(piece.round));
    let plan = Plan { prompt: piece.prompt, ..plan(cpus, pace, piece.length, seed) };
    let before = Before {
        at: piece.length * u64::from(piece.round),
        awake: total.awake,
        moves: total.moves,
        energy: total.energy.clone(),
    };
    let mut workers: Option<Workers> = None;
    let mut first: Option<Status> = None;
    let mut last: Option<Status> = None;
    let log_path = folder.join(format!("{}-{}.hdr", treatment.name, piece.round + 1));
    let mut log =
        HdrLog::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
    let outcome = loadgen::run(&plan, &mut |interval: &Interval<'_>| {
        if *lock(&broken) || show.is_stopped() || log.record(interval).is_err() {
            return ControlFlow::Break(());
        }
        let now = server.status();
        if interval.progress.part == Part::Measured {
            if first.is_none() {
                workers = Workers::read();
            }
            let origin = first.get_or_insert_with(|| now.clone());
            show.frame(moment(treatment.name, interval.progress, &before, origin, last.as_ref(), &now));
        }
        last = Some(now);
        ControlFlow::Continue(())
    })?;
    let end = server.status();
    let workers = workers.zip(Workers::read()).map(|(first, end)| Workers {
        cpu: end.cpu - first.cpu,
        sleeps: end.sleeps.saturating_sub(first.sleeps),
    });
    let served = server.stop();
    if *lock(&broken) {
        served.context("the store ended by itself")?;
    }
    let first = first.unwrap_or_else(|| end.clone());
    total.add(treatment, &outcome, &Seen { first, end, workers });
    Ok(())
}

/// What the rounds before came to: the frames of a treatment follow each other as if it had run by itself.
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
        asked: progress.asked,
        reached: Some(progress.reached),
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
