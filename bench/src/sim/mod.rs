//! `roost-bench sim`: how fast the simulator is, beside SimPy and beside a loop written by hand.
//!
//! ```text
//!   contestants.rs   who is measured, in which scenario, against which bar
//!   simpy.rs         the slow reference: benches/references/mmk.py in an environment of its own
//!   by_hand.rs       the fast reference
//!   sanity.rs        that all of them simulate the same queue
//!   cross_check/     closed forms and SimPy, figure by figure: `roost-bench sim-cross-check`
//!   coverage.rs      how often the simulator's intervals are right: `roost-bench sim-coverage`
//! ```
//!
//! One thread on one CPU. Each round measures the references and every contestant. Speed is
//! requests per second of *CPU time*: on a machine with other work the wall clock measures the
//! kernel's scheduler. Histogram, time series and energy are on for all of ours.
//!
//! Targets are judged by the quartiles of the rounds' ratios. Unlike in the other benches, one that
//! is missed outweighs one that cannot be told: a busy machine leaves some of the twenty open in
//! most runs, and that shall not hide a loss of speed. A contestant that computes something else
//! outweighs both, for its figures are worth nothing.

mod by_hand;
mod contestants;
pub mod coverage;
pub mod cross_check;
mod sanity;
mod simpy;

use crate::exit::{Exit, usage};
use crate::harness::figure::{By, Figure, Of, Row, Target};
use crate::harness::{Measured, Output, Run, SEED};
use anyhow::{Context as _, Result};
use contestants::{
    BY_HAND, CONTESTANTS, LOAD, MODULE_BAR, MODULES, SERVICE_NS, SIMPY, load_modules, platform,
};
use machine::{CpuId, Platform};
use rustix::time::{ClockId, clock_gettime};
use sim::Engine;
use simpy::SimPy;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// The simulator's speed beside SimPy and a loop written by hand: every idle policy, Rubik, CARB,
/// Peafowl
///
/// Exit code 5: a bar was missed. 6: the machine was too restless to tell.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench sim                              nine rounds, about half a minute
  roost-bench sim --rounds 3 --without-simpy   no Python, no network
  roost-bench sim --out benches/runs/today

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
    #[command(flatten)]
    output: Output,
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
    let figures = figures(bench.simpy.is_some());
    let references = bench.simpy.as_ref().map(|_| SIMPY).into_iter().chain([BY_HAND]);
    let all: Vec<&str> = references.chain(ours()).collect();
    load_modules()?;
    let mut run = Run::begin("sim", &args.output, SEED)?;
    let (mut busy, mut elapsed) = (0.0, 0.0);
    run.rounds("", args.rounds, &all, |&who, round| {
        let one = bench.one(who, round)?;
        busy += one.cpu_s;
        elapsed += one.wall_s;
        Ok(one.measured())
    })?;
    run.remark(format!("one thread on {cpu}, which it had {:.0} % of the time", 100.0 * busy / elapsed));
    run.remark(format!("{} requests in a round (SimPy {})", args.requests, args.requests / SIMPY_PART));
    run.remark("queue: ten cores of xeon-silver-4116, load 0.8, exponential services of 10 us");
    run.remark(match (missing, &bench.simpy) {
        (Some(why), _) => format!("SimPy was not measured ({why}): the bars against it are not judged"),
        (_, simpy) => {
            format!("SimPy {}: benches/references/mmk.py", simpy.as_ref().map_or("", SimPy::version))
        }
    });
    run.remark("without exit latencies, against what is known of the queue:");
    checks.iter().for_each(|check| run.remark(check.to_string()));
    let code = code(&run.rows(&figures));
    run.end(&figures)?;
    Ok(if checks.iter().all(sanity::Check::holds) { code } else { Exit::Failed.into() })
}

fn figures(has_simpy: bool) -> Vec<Figure> {
    const SPEED: &str = "requests_per_cpu_s";
    let beside = |who, reference, bar: Option<f64>| Figure {
        by: By::Quartiles,
        target: bar.map(Target::AtLeast),
        ..Figure::new(SPEED, "", Of::Ratio(who, reference))
    };
    let each = |metric, unit| {
        [SIMPY, BY_HAND].into_iter().chain(ours()).map(move |who| Figure::new(metric, unit, Of::One(who)))
    };
    let mut figures: Vec<Figure> = each(SPEED, "/s").collect();
    if has_simpy {
        figures.push(beside(BY_HAND, SIMPY, None));
        figures.extend(CONTESTANTS.map(|ours| beside(ours.name, SIMPY, Some(ours.bars.simpy))));
    }
    figures.extend(CONTESTANTS.map(|ours| beside(ours.name, BY_HAND, ours.bars.by_hand)));
    figures.extend(each("mean_us", "us").chain(each("watts", "W")));
    figures.extend(MODULES.map(|(module, built_in, _)| beside(module.name, built_in, Some(MODULE_BAR))));
    figures
}

/// The names of all that are ours.
fn ours() -> impl Iterator<Item = &'static str> {
    CONTESTANTS.iter().chain(MODULES.iter().map(|(module, ..)| module)).map(|contestant| contestant.name)
}

fn code(rows: &[Row]) -> ExitCode {
    let judged = || rows.iter().filter(|row| row.target.is_some());
    if judged().any(|row| row.met == Some(false)) {
        Exit::GoalMissed.into()
    } else if judged().any(|row| row.met.is_none()) {
        Exit::Invalid.into()
    } else {
        ExitCode::SUCCESS
    }
}

/// The common state of all rounds.
struct Bench {
    platform: Platform,
    simpy: Option<SimPy>,
    requests: u64,
}

struct One {
    requests: u64,
    cpu_s: f64,
    /// By the clock on the wall.
    wall_s: f64,
    mean_ns: f64,
    /// Of all cores, the mean; SimPy's program knows none.
    watts: Option<f64>,
}

impl One {
    fn measured(&self) -> Measured {
        let metrics = [
            ("requests_per_cpu_s", self.requests as f64 / self.cpu_s),
            ("cpu_s", self.cpu_s),
            ("wall_s", self.wall_s),
            ("mean_us", self.mean_ns / 1e3),
        ];
        Measured::of(metrics.into_iter().chain(self.watts.map(|watts| ("watts", watts))))
    }
}

impl Bench {
    fn one(&self, who: &str, round: u32) -> Result<One> {
        let seed = u64::from(round) + 1;
        if let (SIMPY, Some(simpy)) = (who, &self.simpy) {
            let simpy::Outcome { requests, cpu_s, wall_s, mean, .. } =
                simpy.run(self.requests / SIMPY_PART, seed)?;
            return Ok(One { requests, cpu_s, wall_s, mean_ns: mean * SERVICE_NS, watts: None });
        }
        let modules = MODULES.iter().map(|(module, ..)| module);
        let mut ours = CONTESTANTS.iter().chain(modules);
        let Some(contestant) = ours.find(|contestant| contestant.name == who) else {
            let (outcome, cpu_s, wall_s) =
                timed(|| by_hand::simulate(&self.platform, LOAD, SERVICE_NS, self.requests, seed));
            let by_hand::Outcome { mean_ns, watts, .. } = outcome;
            return Ok(One { requests: self.requests, cpu_s, wall_s, mean_ns, watts: Some(watts) });
        };
        let (setup, jobs) = contestant.document(self.requests)?.setup(contestant.policies, seed)?;
        let (ended, cpu_s, wall_s) = timed(|| Engine::new(setup, jobs).run());
        Ok(One {
            requests: ended.metrics().left(),
            cpu_s,
            wall_s,
            mean_ns: ended.metrics().mean_response_ns(),
            watts: Some(ended.core_joules() / (ended.length_ns() as f64 * 1e-9)),
        })
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

/// SimPy gets so much less to do than the others.
const SIMPY_PART: u64 = 20;
/// Requests of a run that is held against the exact answer.
const CHECKED: u64 = 400_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(teo: &[f64], has_simpy: bool) -> ExitCode {
        let folder = tempfile::tempdir().unwrap();
        let mut run =
            Run::begin("sim", &Output { out: Some(folder.path().to_owned()), json: true }, SEED).unwrap();
        let hand = [100.0, 200.0, 100.0, 100.0];
        let slow = hand.map(|speed| speed / 100.0);
        for (who, speeds) in [(BY_HAND, &hand[..]), ("teo", teo), (SIMPY, &slow)] {
            for (round, &speed) in (0..).zip(speeds).filter(|_| has_simpy || who != SIMPY) {
                let measured = Measured::of([("requests_per_cpu_s", speed)]);
                run.block("", round, who, measured).unwrap();
            }
        }
        code(&run.rows(&figures(has_simpy)))
    }

    #[test]
    fn a_missed_bar_outweighs_one_that_cannot_be_told() {
        // The second round was twice as fast for every contestant.
        assert_eq!(code_of(&[90.0, 180.0, 90.0, 90.0], true), ExitCode::SUCCESS);
        assert_eq!(code_of(&[60.0, 200.0, 100.0, 70.0], true), Exit::Invalid.into());
        // Missed against the loop by hand, open against SimPy.
        assert_eq!(code_of(&[50.0, 110.0, 70.0, 70.0], true), Exit::GoalMissed.into());
    }

    #[test]
    fn without_simpy_its_bars_are_not_judged() {
        assert_eq!(code_of(&[90.0, 180.0, 90.0, 90.0], false), ExitCode::SUCCESS);
    }
}
