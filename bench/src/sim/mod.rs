//! `roost-bench sim`: how fast the simulator is, beside SimPy and beside a loop written by hand.
//!
//! ```text
//!   contestants.rs   who is measured, in which scenario, against which bar
//!   simpy.rs         the slow reference: benches/references/mmk.py in an environment of its own
//!   by_hand.rs       the fast reference
//!   sanity.rs        that all of them simulate the same queue
//!   verdict.rs       from rounds to verdicts
//!   coverage.rs      how often the simulator's intervals are right: `roost-bench sim-coverage`
//! ```
//!
//! One thread on one CPU. Each round measures the references and then every contestant, in an order
//! that turns from round to round. Speed is requests per second of *CPU time*: on a machine with
//! other work the wall clock measures the kernel's scheduler. Histogram, time series and energy are
//! on for all of ours.

mod by_hand;
mod contestants;
pub mod coverage;
mod sanity;
mod simpy;
mod verdict;

use crate::exit::usage;
use crate::machine_facts::this_machine;
use crate::run_folder;
use anyhow::{Context as _, Result};
use contestants::{CONTESTANTS, Contestant, LOAD, SERVICE_NS, platform};
use machine::{CpuId, Platform};
use rustix::time::{ClockId, clock_gettime};
use sim::Engine;
use simpy::SimPy;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use verdict::{BY_HAND, Measurement, SIMPY, Summary};

/// The simulator's speed beside SimPy and a loop written by hand: every idle policy, Rubik, CARB,
/// Peafowl
///
/// Exit code 5: a bar was missed. 6: the machine was too restless to tell.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench sim                              nine rounds, about half a minute
  roost-bench sim --rounds 3 --without-simpy   no Python, no network
  roost-bench sim --out benches/runs/today     keeps every round

A bar is judged by the quotients of the rounds: met when their lower quartile reaches it, missed when their upper
quartile does not, else the machine was too restless to tell.")]
pub struct Args {
    /// Rounds, each of which measures every contestant once
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Requests of each run of ours and of the loop by hand; SimPy gets a twentieth
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000))]
    requests: u64,
    /// A Python that has SimPy [default: one is made in the cache folder of the user]
    #[arg(long, value_name = "PATH", conflicts_with = "without_simpy")]
    python: Option<PathBuf>,
    /// Leave SimPy out; the bars against it are not judged
    #[arg(long)]
    without_simpy: bool,
    /// The CPU to run on [default: the last that is allowed]
    #[arg(long, value_name = "N")]
    cpu: Option<u16>,
    /// Write sim-rounds.csv and sim-speed.json to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let allowed = linux::allowed_cpus().map_err(usage)?;
    let last = allowed.0.last().copied().context("no CPU is allowed")?;
    let cpu = args.cpu.map_or(last, CpuId);
    // Before this thread is bound: installing may use all CPUs.
    let found = match args.without_simpy {
        true => Err("left out".to_owned()),
        false => SimPy::find(args.python.as_deref()).map_err(|error| format!("{error:#}")),
    };
    let (simpy, missing) = match (found, &args.python) {
        (Ok(simpy), _) => (Some(simpy), None),
        (Err(why), Some(_)) => return Err(usage(format!("--python: {why}"))),
        (Err(why), None) => (None, Some(why)),
    };
    linux::pin_current_thread(cpu).map_err(|error| usage(format!("--cpu: {error}")))?;
    eprintln!("checking what they compute");
    let checks = sanity::check(simpy.as_ref(), args.requests.min(CHECKED))?;
    let bench = Bench { platform: platform()?, simpy, requests: args.requests };
    let mut measurements = Vec::new();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        bench.round(round, &mut measurements)?;
    }
    let bars = |who: &str| {
        let contestant = CONTESTANTS.iter().find(|contestant| contestant.name() == who);
        contestant.map_or((None, None), |contestant| (Some(contestant.bars.simpy), contestant.bars.by_hand))
    };
    let mut summary = Summary::of(&measurements, bars, checks);
    let (busy, all): (f64, f64) =
        measurements.iter().fold((0.0, 0.0), |(cpu, wall), m| (cpu + m.cpu_s, wall + m.wall_s));
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("the clock")?;
    summary.conditions = vec![
        format!("date: {}", report::run::utc(clock.as_secs())),
        format!("machine: {}", crate::harness::describe(&this_machine())),
        format!(
            "ours: roost {}, one thread on {cpu}, which it had {:.0} % of the time",
            env!("CARGO_PKG_VERSION"),
            100.0 * busy / all
        ),
        format!(
            "{} rounds of {} requests (SimPy {})",
            args.rounds,
            args.requests,
            args.requests / SIMPY_PART
        ),
        "queue: ten cores of xeon-silver-4116, load 0.8, exponential services of 10 us".to_owned(),
        match missing {
            Some(why) => format!("SimPy was not measured ({why}): the bars against it are not judged"),
            None => format!(
                "SimPy {}: benches/references/mmk.py",
                bench.simpy.as_ref().map_or("", SimPy::version)
            ),
        },
    ];
    if let Some(folder) = &args.out {
        write(folder, &summary, &measurements)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{summary}");
        if let Some(folder) = &args.out {
            println!("raw data: {}", folder.display());
        }
    }
    Ok(summary.exit_code())
}

/// The common state of all rounds.
struct Bench {
    platform: Platform,
    simpy: Option<SimPy>,
    requests: u64,
}

impl Bench {
    fn round(&self, round: u32, measurements: &mut Vec<Measurement>) -> Result<()> {
        let seed = u64::from(round) + 1;
        if let Some(simpy) = &self.simpy {
            let outcome = simpy.run(self.requests / SIMPY_PART, seed)?;
            measurements.push(Measurement {
                round,
                who: SIMPY.to_owned(),
                requests: outcome.requests,
                cpu_s: outcome.cpu_s,
                wall_s: outcome.wall_s,
                mean_ns: outcome.mean * SERVICE_NS,
                watts: None,
            });
        }
        let (outcome, cpu_s, wall_s) =
            timed(|| by_hand::simulate(&self.platform, LOAD, SERVICE_NS, self.requests, seed));
        measurements.push(Measurement {
            round,
            who: BY_HAND.to_owned(),
            requests: self.requests,
            cpu_s,
            wall_s,
            mean_ns: outcome.mean_ns,
            watts: Some(outcome.watts),
        });
        let mut order: Vec<&Contestant> = CONTESTANTS.iter().collect();
        order.rotate_left(round as usize % CONTESTANTS.len());
        for contestant in order {
            let (setup, jobs) = contestant.document(self.requests)?.setup(contestant.policies, seed)?;
            let (ended, cpu_s, wall_s) = timed(|| Engine::new(setup, jobs).run());
            measurements.push(Measurement {
                round,
                who: contestant.name(),
                requests: ended.metrics().left(),
                cpu_s,
                wall_s,
                mean_ns: ended.metrics().mean_response_ns(),
                watts: Some(ended.core_joules() / (ended.length_ns() as f64 * 1e-9)),
            });
        }
        Ok(())
    }
}

/// The result, the CPU time of this thread for it, and the time on the wall; in seconds.
fn timed<T>(what: impl FnOnce() -> T) -> (T, f64, f64) {
    let cpu_s = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    let (began, began_cpu) = (Instant::now(), cpu_s());
    let result = what();
    (result, cpu_s() - began_cpu, began.elapsed().as_secs_f64())
}

fn write(folder: &Path, summary: &Summary, measurements: &[Measurement]) -> Result<()> {
    run_folder::create(folder)?;
    run_folder::write(folder, "sim-rounds.csv", |file| {
        let mut rounds = csv::Writer::from_writer(file);
        for measurement in measurements {
            rounds.serialize(measurement).map_err(std::io::Error::other)?;
        }
        rounds.flush()
    })?;
    let json = serde_json::to_string_pretty(summary)?;
    run_folder::write(folder, "sim-speed.json", |file| writeln!(file, "{json}"))
}

/// SimPy gets so much less to do than the others.
const SIMPY_PART: u64 = 20;
/// Requests of a run that is held against the exact answer.
const CHECKED: u64 = 400_000;
