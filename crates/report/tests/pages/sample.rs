//! A run as a two-CPU machine with eight workers would record it, from a seed: for tests that look
//! at pages.

use machine::{CpuId, Duration, EnergyReading, EnergySource, IdleLimit, Microjoules, Rate, Ratio, WorkerId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use report::run::{
    Compared, CpuFrame, CurvePoint, Frame, Machine, Phase, Run, RunInfo, StateShare, Summary, Verdict,
    WorkerFrame,
};

const PHASES: [(&str, &str); 3] = [
    ("stock", "all workers, stock idle"),
    ("limited", "all workers, idle limit while active"),
    ("scheduler", "as few workers as the load needs"),
];
const WORKERS: u16 = 8;
const FRAMES: u32 = 100;
const INTERVAL: Duration = Duration::from_millis(200);
const PEAK: f64 = 42_000.0;

pub fn run(seed: u64) -> Run {
    let mut random = StdRng::seed_from_u64(seed);
    let frames: Vec<Frame> = (0..PHASES.len()).flat_map(|phase| frames(phase, &mut random)).collect();
    let summary = summary(&frames);
    Run { info: info(), frames, summary: Some(summary), remarks: Vec::new() }
}

/// A day in twenty seconds, and a burst at two thirds of it.
fn asked(n: u32) -> f64 {
    let t = f64::from(n) / f64::from(FRAMES);
    let day = 0.12 + 0.5 * (std::f64::consts::PI * t).sin().powi(2);
    let burst = if (0.66..0.72).contains(&t) { 0.38 } else { 0.0 };
    PEAK * (day + burst).min(1.0)
}

fn frames(phase: usize, random: &mut StdRng) -> Vec<Frame> {
    let mut awake = Duration::ZERO;
    let mut used = Microjoules(0);
    let mut transfers = 0;
    let mut active_before = WORKERS;
    let step = |n: u32| {
        let mut jitter = |around: f64| around * random.random_range(0.93..1.07);
        let asked = asked(n);
        let limit = PEAK / f64::from(WORKERS) * 1.05;
        let active = if phase == 2 { ((asked / limit).ceil() as u16 + 1).clamp(1, WORKERS) } else { WORKERS };
        transfers += u64::from(active.abs_diff(active_before)) * 8;
        active_before = active;
        awake += INTERVAL * u64::from(active);
        let share = asked / PEAK;
        let tail = [340.0, 265.0, 300.0][phase] * (1.0 + share * share);
        let late = if n > 0 && n.is_multiple_of(37) { 4.0 } else { 1.0 };
        let p99 = jitter(tail) * late;
        let deep = [0.28, 0.02, 0.55][phase] * (1.0 - share);
        let watts = 2.0 * (1.4 + 6.5 * share + 1.9 * (1.0 - share - deep));
        used += machine::Microwatts::from_watts(watts).over(INTERVAL);
        Frame {
            phase: PHASES[phase].0.to_owned(),
            at: INTERVAL * u64::from(n + 1),
            offered: Some(Rate::per_second(asked)),
            achieved: Some(Rate::per_second(jitter(asked))),
            p50: Some(Duration::from_nanos((p99 * 380.0) as u64)),
            p99: Some(Duration::from_nanos((p99 * 1e3) as u64)),
            p999: Some(Duration::from_nanos((p99 * 2.7e3) as u64)),
            workers: (0..WORKERS).map(|w| worker(w, active, asked, limit, phase, &mut jitter)).collect(),
            cpus: (0..2).map(|cpu| idle_cpu(cpu, share, deep, phase)).collect(),
            transfers: Some(transfers),
            awake: Some(awake),
            energy: Some(EnergyReading { used, source: modelled() }),
        }
    };
    (0..FRAMES).map(step).collect()
}

fn worker(
    number: u16,
    active: u16,
    asked: f64,
    limit: f64,
    phase: usize,
    jitter: &mut impl FnMut(f64) -> f64,
) -> WorkerFrame {
    let serves = number < active;
    // The scheduler fills one worker after the other.
    let full = (asked - f64::from(number) * limit * 0.9).clamp(0.0, limit);
    let load = if phase == 2 { full } else { asked / f64::from(active) };
    let load = if serves { jitter(load) } else { 0.0 };
    WorkerFrame {
        worker: WorkerId(number),
        cpu: CpuId(number % 2),
        active: serves,
        load: Rate::per_second(load),
        limit: Some(Rate::per_second(limit)),
        busy: Some(Ratio::new(load / limit * 0.8)),
        residents: if serves { 8 } else { 0 },
        guests: if serves && phase == 2 { u32::from((WORKERS - active) * 8 / active.max(1)) } else { 0 },
    }
}

fn idle_cpu(cpu: u16, share: f64, deep: f64, phase: usize) -> CpuFrame {
    CpuFrame {
        cpu: CpuId(cpu),
        busy: Some(Ratio::new(share)),
        residency: Some(residency(share, deep)),
        limit: if phase == 0 { IdleLimit::None } else { IdleLimit::ExitLatency(Duration::from_micros(2)) },
        in_force: (phase > 0).then_some(true),
    }
}

fn residency(share: f64, deep: f64) -> Vec<StateShare> {
    let idle = 1.0 - share;
    let parts =
        [("POLL", 0.01 * idle), ("C1", (idle * 0.9 - deep).max(0.0)), ("C1E", idle * 0.09), ("C6", deep)];
    parts.map(|(state, share)| StateShare { state: state.to_owned(), share: Ratio::new(share) }).to_vec()
}

fn summary(frames: &[Frame]) -> Summary {
    let phase = |(place, (name, what)): (usize, (&str, &str))| {
        let last = frames.iter().rfind(|frame| frame.phase == name).expect("every phase has frames");
        let base = [330e3, 262e3, 318e3][place];
        let curve = CurvePoint::SHARES.map(|share| CurvePoint {
            share: Ratio::new(share),
            latency: Duration::from_nanos((base * 0.3 * (1.0 - share).max(1e-5).powf(-0.27)) as u64),
        });
        Phase {
            name: name.to_owned(),
            what: what.to_owned(),
            length: Some(INTERVAL * u64::from(FRAMES)),
            offered: Some(Rate::per_second(18_200.0)),
            achieved: Some(Rate::per_second(18_170.0)),
            requests: Some(363_400),
            errors: Some(0),
            p50: Some(Duration::from_nanos((base * 0.36) as u64)),
            p99: Some(Duration::from_nanos(base as u64)),
            p999: Some(Duration::from_nanos((base * 1.95) as u64)),
            max: Some(Duration::from_nanos((base * 11.0) as u64)),
            curve: curve.to_vec(),
            awake: last.awake,
            residency: Some(residency(0.43, [0.16, 0.01, 0.31][place])),
            energy: last.energy.clone(),
            transfers: last.transfers,
            late: Some(Ratio::new(0.0004)),
        }
    };
    let phases: Vec<Phase> = PHASES.into_iter().enumerate().map(phase).collect();
    let compared = |figure: &str, of: fn(&Phase) -> Option<Duration>, spread: f64| {
        let (first, value) = (of(&phases[0])?, of(&phases[2])?);
        let ratio = value.as_secs_f64() / first.as_secs_f64();
        Some(Compared {
            phase: phases[2].name.clone(),
            figure: figure.to_owned(),
            first: first.to_string(),
            value: value.to_string(),
            ratio,
            low: ratio / spread,
            high: ratio * spread,
        })
    };
    let compared: Vec<Compared> = [
        compared("worker-seconds awake", |phase| phase.awake, 1.05),
        compared("99th percentile", |phase| phase.p99, 1.5),
    ]
    .into_iter()
    .flatten()
    .collect();
    let verdicts = compared.iter().map(|compared| Verdict {
        figure: compared.figure.clone(),
        found: compared.interval(),
        bar: "at most 1.00x of stock".to_owned(),
        met: (!compared.is_within_noise()).then_some(compared.high < 1.0),
        within_noise: compared.is_within_noise(),
    });
    let verdicts = verdicts.collect();
    let remarks = vec!["Whether packing costs the tail is within the noise.".to_owned()];
    Summary { phases, verdicts, compared, remarks, invalid: None }
}

fn info() -> RunInfo {
    RunInfo {
        format: RunInfo::FORMAT,
        name: "2026-11-20-sample".to_owned(),
        title: "The same day of load three times: all workers awake, all workers with the idle limit, and \
                the scheduler."
            .to_owned(),
        command: ["roost", "demo", "--name", "2026-11-20-sample"].map(str::to_owned).to_vec(),
        version: "0.1.0".to_owned(),
        started: report::run::utc(1_795_191_455),
        method: vec![
            "Latency: by the load generator, from the intended send time, all requests of a phase in one \
             histogram."
                .to_owned(),
            "Energy: modelled from busy time and cpuidle residency with the preset skylake-sp; polling is \
             charged as C0."
                .to_owned(),
        ],
        machine: Machine {
            host: Some("sample-host".to_owned()),
            cpu_model: Some("Intel Xeon Gold 6126".to_owned()),
            cpus: Some(2),
            memory_bytes: Some(8 << 30),
            kernel: Some("6.12.0".to_owned()),
            hypervisor: None,
            idle_driver: Some("intel_idle, menu".to_owned()),
            idle_states: ["POLL (0us)", "C1 (2us)", "C1E (10us)", "C6 (133us)"].map(str::to_owned).to_vec(),
        },
        config: "policy = \"peafowl\"\nworkers = 8\n[load]\nshape = \"diurnal\"\npeak = \"42k/s\"\n\
                 [peafowl]\nperiod = \"100ms\""
            .parse()
            .expect("a table"),
    }
}

fn modelled() -> EnergySource {
    EnergySource::Modelled("skylake-sp".to_owned())
}
