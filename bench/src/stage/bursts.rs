//! The worth of holding: the same requests through the same proxy, held and not held; and
//! the stretches in which no thread of the server runs, by every switch of the scheduler.
//!
//! The proxy and the generator share this machine, and so they are in the share of time in which
//! *all* CPUs are idle, which the paper measured with both elsewhere; the server's own idle periods
//! do not depend on that. An upper bound of the all-idle share is 1 - rho, where rho is the mean
//! share of time that the CPUs work: it is reached if they always work together.

use super::child::Running;
use super::{Args, plan};
use crate::exit::{Exit, coded, usage};
use crate::harness::figure::{Figure, Of};
use crate::harness::{Measured, Run};
use anyhow::Result;
use hdrhistogram::Histogram;
use linux::probes::{Activity, ActivityProgram, Whose};
use loadgen::{Part, Url};
use machine::Duration;
use std::ops::ControlFlow;
use workload::{ArrivalKind, Words};

/// An idle period of the server counts from this length on.
const LONG: Duration = Duration::from_millis(20);

/// A server that is there, or the stand-in.
struct Behind {
    _stand_in: Option<Running>,
    address: String,
    path: String,
    whose: Whose,
    said: String,
}

const HELD: &str = "held";
const FREE: &str = "not held";
/// The shares of time, which are compared round by round.
const SHARES: &str = "shares of time";
/// The latencies of all rounds together: a high quantile needs them all.
const LATENCIES: &str = "latencies of all rounds";

pub fn measure(run: &mut Run, args: &Args) -> Result<()> {
    let behind = behind(args)?;
    let program =
        ActivityProgram::load(behind.whose, LONG).map_err(|error| coded(Exit::Unsupported, error))?;
    let words = args.words.as_deref().map(Words::read).transpose().map_err(usage)?;
    let words = words.unwrap_or_else(|| Words::new([]));
    let held_for = args.length.unwrap_or(DEFAULT_LENGTH) / u64::from(args.rounds);
    let (goal, period) = (args.goal.to_string(), format!("{}ns", args.period.as_nanos()));
    let holding = ["--goal", goal.as_str(), "--period", period.as_str()];
    let passing = ["--goal", goal.as_str()];
    let mut latencies = [histogram(), histogram()];
    let mut errors = [0; 2];
    let cpus = linux::online_cpus(&linux::Root::system()).map_or(1, |cpus| cpus.0.len());
    run.rounds(SHARES, args.rounds, &[FREE, HELD], |&treatment, _| {
        let held = treatment == HELD;
        let behind_it = [behind.address.as_str()];
        let proxy = if held {
            Running::proxy(&behind_it, &holding)?
        } else {
            Running::plain_proxy(&behind_it, &passing)?
        };
        let url: Url = format!("http://{}{}", proxy.address, behind.path).parse()?;
        // The goal applies to held requests. Of the others only shares of time are wanted, which
        // need less.
        let length = if held { held_for } else { held_for / 2 };
        let plan = plan(url, words.clone(), ArrivalKind::Poisson, args.rate, length)?;
        let (mut first, mut last): (Option<Activity>, Option<Activity>) = (None, None);
        let place = usize::from(held);
        let outcome = loadgen::run(&plan, &mut |interval| {
            match interval.progress.part {
                Part::Warmup => first = Some(program.read()),
                Part::Measured => {
                    last = Some(program.read());
                    let _ = latencies[place].add(interval.latencies);
                }
                Part::Drain => drop(latencies[place].add(interval.latencies)),
            }
            ControlFlow::Continue(())
        })?;
        errors[place] += outcome.counts.errors();
        let Some((first, last)) = first.zip(last) else { return Ok(Measured::of([]).valid(false)) };
        let seen = last.since(&first);
        let seconds = last.at.since(first.at).as_secs_f64();
        let share = |time: Duration| time.as_secs_f64() / seconds;
        let busy = share(seen.busy) / cpus as f64;
        Ok(Measured::of([
            ("seconds", seconds),
            ("long_idle", share(seen.service.long)),
            ("long_idle_per_s", seen.service.long_count as f64 / seconds),
            ("server_idle", share(seen.service.lengths.time())),
            ("all_idle", share(seen.machine.lengths.time())),
            // It is reached if all CPUs always work together.
            ("all_idle_bound", 1.0 - busy),
        ])
        .valid(outcome.valid && busy <= BUSY_MAX))
    })?;
    for (held, latencies) in latencies.iter().enumerate() {
        let at = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1e6;
        let measured = Measured::of([
            ("requests", latencies.len() as f64),
            ("errors", errors[held] as f64),
            ("p50_ms", at(0.5)),
            ("p99_ms", at(0.99)),
            ("p999_ms", at(0.999)),
            (GOAL, at(args.goal.quantile)),
            ("max_ms", latencies.max() as f64 / 1e6),
        ]);
        let is_enough = latencies.len() >= args.goal.samples();
        run.block(LATENCIES, 0, [FREE, HELD][held], measured.valid(is_enough))?;
    }
    run.remark(format!(
        "before {}; {cpus} CPUs, shared with proxy and generator; idle: no thread of the server runs, \
         long: for {LONG} or longer; the goal needs {} requests",
        behind.said,
        args.goal.samples()
    ));
    run.remark(format!(
        "a block is invalid if the generator was late in it, or the CPUs worked for over {:.0} % of it",
        BUSY_MAX * 100.0
    ));
    run.remark(
        "the paper, on 24 CPUs with a proxy elsewhere: p99.9 284 ms not held, below 500 ms held; 68 W and \
         53 W (no power is measured here)",
    );
    Ok(())
}

/// The latency at the goal's quantile.
const GOAL: &str = "goal_ms";

pub fn figures(args: &Args) -> Vec<Figure> {
    let of = |metric, unit, of, case| Figure::new(metric, unit, of).in_case(case);
    let long_idle = of("long_idle", "", Of::Ratio(HELD, FREE), SHARES).at_least(2.0);
    let goal_ms = args.goal.latency.as_secs_f64() * 1e3;
    let mut figures = vec![
        of(GOAL, "ms", Of::One(HELD), LATENCIES).at_most(goal_ms),
        of("errors", "", Of::One(HELD), LATENCIES).at_most(0.0),
        long_idle,
    ];
    for one in [FREE, HELD] {
        let shares = ["long_idle", "server_idle", "all_idle", "all_idle_bound"];
        figures.extend(shares.map(|metric| of(metric, "of 1", Of::One(one), SHARES)));
        figures.extend(
            ["p50_ms", "p99_ms", "p999_ms", "max_ms"].map(|metric| of(metric, "ms", Of::One(one), LATENCIES)),
        );
        figures.push(of("requests", "", Of::One(one), LATENCIES));
    }
    figures
}

fn behind(args: &Args) -> Result<Behind> {
    if let Some(url) = &args.server {
        let whose = match (&args.cgroup, args.process) {
            (Some(folder), _) => Whose::cgroup(folder).map_err(|cause| {
                usage(format!(
                    "--cgroup {}: {cause}\nhint: name a folder below a mount of cgroup2",
                    folder.display()
                ))
            })?,
            (None, process) => Whose::Process(process.unwrap_or_default()),
        };
        let address = url.target().to_string();
        return Ok(Behind {
            _stand_in: None,
            address,
            path: url.path().to_owned(),
            whose,
            said: url.to_string(),
        });
    }
    let mean = super::service::law(&args.service)?.sampler().map_err(usage)?.mean().scale(args.scale);
    if mean > MEAN_MAX {
        return Err(usage(format!(
            "--service {}: its mean of {mean} is above {MEAN_MAX}; lower it with --scale",
            args.service
        )));
    }
    let scale = args.scale.to_string();
    let service = Running::service(&["--service", &args.service, "--scale", &scale])?;
    Ok(Behind {
        address: service.address.clone(),
        path: "/".to_owned(),
        whose: Whose::Process(service.process()),
        said: format!("a STAND-IN that computes for times of the law `{}`, mean {mean}", args.service),
        _stand_in: Some(service),
    })
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three figures");
    histogram.auto(true);
    histogram
}

/// At 100 a second enough requests for p99.9 (10,000), with as much room as four standard
/// deviations of their number.
const DEFAULT_LENGTH: Duration = Duration::from_secs(104);
/// Server, proxy and generator take a third of two CPUs at the defaults, and 70 % with the longest
/// service times allowed. Above this, the measurement is of the queue for a CPU.
const BUSY_MAX: f64 = 0.8;
/// The longest mean of a search engine here.
const MEAN_MAX: Duration = Duration::from_millis(12);
