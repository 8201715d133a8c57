//! The worth of holding: the same requests through the same proxy, held and not held, by turns; and
//! the stretches in which no thread of the server runs, by every switch of the scheduler.
//!
//! The proxy and the generator share this machine, and so they are in the share of time in which
//! *all* CPUs are idle, which the paper measured with both elsewhere; the server's own idle periods
//! do not depend on that. An upper bound of the all-idle share is 1 - rho, where rho is the mean
//! share of time that the CPUs work: it is reached if they always work together.

use super::child::Running;
use super::overhead::median;
use super::{Args, plan, verdict};
use crate::exit::{Exit, coded, usage};
use anyhow::Result;
use hdrhistogram::Histogram;
use linux::probes::{Activity, ActivityProgram, Whose};
use loadgen::{Part, Url};
use machine::{Duration, Goal};
use report::run::Verdict;
use serde::Serialize;
use std::ops::ControlFlow;
use workload::{ArrivalKind, Words};

/// An idle period of the server counts from this length on.
const LONG: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize)]
pub struct Results {
    goal: Goal,
    /// The server that was asked, and whether it is a stand-in.
    server: String,
    rounds: Vec<Round>,
    manners: Vec<Manner>,
    cpus: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Round {
    held: bool,
    seconds: f64,
    /// Share of time in the server's long idle periods.
    long_idle: f64,
    /// Share of time in which no thread of the server ran.
    server_idle: f64,
    /// Share of time in which no CPU worked, and its bound.
    all_idle: f64,
    bound: f64,
    valid: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Manner {
    held: bool,
    requests: u64,
    errors: u64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    /// The goal's quantile, and the longest.
    goal_ms: f64,
    max_ms: f64,
    long_idle: f64,
    server_idle: f64,
    all_idle: f64,
    bound: f64,
    long_periods_per_second: f64,
    valid: bool,
}

/// A server that is there, or the stand-in.
struct Behind {
    _stand_in: Option<Running>,
    address: String,
    path: String,
    whose: Whose,
    said: String,
}

pub fn measure(args: &Args) -> Result<Results> {
    let behind = behind(args)?;
    let program =
        ActivityProgram::load(behind.whose, LONG).map_err(|error| coded(Exit::Unsupported, error))?;
    let words = args.words.as_deref().map(Words::read).transpose().map_err(usage)?;
    let words = words.unwrap_or_else(|| Words::new([]));
    let held_for = args.length.unwrap_or(DEFAULT_LENGTH) / u64::from(args.rounds);
    let (goal, period) = (args.goal.to_string(), format!("{}ns", args.period.as_nanos()));
    let holding = ["--goal", goal.as_str(), "--period", period.as_str()];
    let passing = ["--goal", goal.as_str(), "--no-hold"];
    let mut rounds = Vec::new();
    let mut latencies = [histogram(), histogram()];
    let (mut errors, mut periods) = ([0; 2], [0; 2]);
    let cpus = linux::online_cpus(&linux::Root::system()).map_or(1, |cpus| cpus.0.len());
    for number in 0..args.rounds {
        for held in [false, true] {
            let name = if held { "held" } else { "not held" };
            eprintln!("bursts: round {} of {}, {name}", number + 1, args.rounds);
            let proxy = Running::proxy(&[&behind.address], if held { &holding } else { &passing })?;
            let url: Url = format!("http://{}{}", proxy.address, behind.path).parse()?;
            // The goal applies to held requests. Of the other manner only shares of time are
            // wanted, which need less.
            let length = if held { held_for } else { held_for / 2 };
            let plan = plan(url, words.clone(), ArrivalKind::Poisson, args.rate, length)?;
            let (mut first, mut last): (Option<Activity>, Option<Activity>) = (None, None);
            let outcome = loadgen::run(&plan, &mut |interval| {
                let place = usize::from(held);
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
            errors[usize::from(held)] += outcome.counts.errors();
            let Some((first, last)) = first.zip(last) else { continue };
            let seen = last.since(&first);
            periods[usize::from(held)] += seen.service.long_count;
            let seconds = last.at.since(first.at).as_secs_f64();
            let share = |time: Duration| time.as_secs_f64() / seconds;
            rounds.push(Round {
                held,
                seconds,
                long_idle: share(seen.service.long),
                server_idle: share(seen.service.lengths.time()),
                all_idle: share(seen.machine.lengths.time()),
                bound: 1.0 - share(seen.busy) / cpus as f64,
                valid: outcome.valid,
            });
        }
    }
    let manners =
        [false, true].map(|held| manner(held, &rounds, &latencies[usize::from(held)], errors, periods, args));
    Ok(Results { goal: args.goal, server: behind.said, rounds, manners: manners.to_vec(), cpus })
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

fn manner(
    held: bool,
    rounds: &[Round],
    latencies: &Histogram<u64>,
    errors: [u64; 2],
    periods: [u64; 2],
    args: &Args,
) -> Manner {
    let own: Vec<&Round> = rounds.iter().filter(|round| round.held == held).collect();
    let of = |value: fn(&Round) -> f64| median(own.iter().map(|round| value(round)));
    let at = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1e6;
    let seconds: f64 = own.iter().map(|round| round.seconds).sum();
    Manner {
        held,
        requests: latencies.len(),
        errors: errors[usize::from(held)],
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
        goal_ms: at(args.goal.quantile),
        max_ms: latencies.max() as f64 / 1e6,
        long_idle: of(|round| round.long_idle),
        server_idle: of(|round| round.server_idle),
        all_idle: of(|round| round.all_idle),
        bound: of(|round| round.bound),
        long_periods_per_second: periods[usize::from(held)] as f64 / seconds,
        valid: own.iter().filter(|round| round.valid).count() * 2 >= own.len().max(1),
    }
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three figures");
    histogram.auto(true);
    histogram
}

impl Results {
    pub fn verdicts(&self) -> Vec<Verdict> {
        let [free, held] = &self.manners[..] else { return Vec::new() };
        let enough = held.requests >= self.goal.samples();
        let goal_ms = self.goal.latency.as_secs_f64() * 1e3;
        let ratio = held.long_idle / free.long_idle;
        vec![
            verdict(
                "goal, held",
                format!("{:.0} ms at {:.4} of {} requests", held.goal_ms, self.goal.quantile, held.requests),
                &format!("{} ({} requests at least)", self.goal, self.goal.samples()),
                enough.then_some(held.goal_ms <= goal_ms && held.errors == 0),
            ),
            verdict(
                "time in the server's idle periods of 20 ms and longer",
                format!(
                    "{:.1} % held, {:.1} % not held: {ratio:.2}x",
                    held.long_idle * 100.0,
                    free.long_idle * 100.0
                ),
                "at least 2.00x of not held",
                (!ratio.is_nan()).then_some(ratio >= 2.0),
            ),
        ]
    }

    /// Why it is worth nothing, if it is.
    pub fn invalid(&self) -> Option<String> {
        if self.manners.iter().any(|manner| !manner.valid) {
            return Some("The generator was late in most rounds of a manner.".to_owned());
        }
        let busy = self.manners.iter().map(|manner| 1.0 - manner.bound).fold(0.0, f64::max);
        let others = "others work here; leave the machine alone, or lower --rate or --scale";
        (busy > BUSY_MAX).then(|| format!("The CPUs work {:.0} % of the time: {others}.", busy * 100.0))
    }

    pub fn text(&self) -> String {
        let head = [
            "",
            "requests",
            "errors",
            "p50",
            "p99",
            "p99.9",
            "max",
            "idle >= 20 ms",
            "idle",
            "all CPUs idle",
            "bound 1 - rho",
        ];
        let mut table = crate::table::Table::new(1, head.map(str::to_owned).to_vec());
        for manner in &self.manners {
            let ms = |value: f64| format!("{value:.1} ms");
            let share = |value: f64| format!("{:.1} %", value * 100.0);
            table.row(vec![
                if manner.held { "held" } else { "not held" }.to_owned(),
                manner.requests.to_string(),
                manner.errors.to_string(),
                ms(manner.p50_ms),
                ms(manner.p99_ms),
                ms(manner.p999_ms),
                ms(manner.max_ms),
                share(manner.long_idle),
                share(manner.server_idle),
                share(manner.all_idle),
                share(manner.bound),
            ]);
        }
        format!(
            "before {}; {} CPUs, shared with proxy and generator; `idle`: no thread of the server \
             runs; medians of {} rounds\n{}\n\
             the paper, on 24 CPUs with a proxy elsewhere: p99.9 284 ms not held, below 500 ms \
             held; 68 W and 53 W (no power is measured here)\n",
            self.server,
            self.cpus,
            self.rounds.len() / 2,
            table.text()
        )
    }
}

/// At 100 a second enough requests for p99.9 (10,000), with as much room as four standard
/// deviations of their number.
const DEFAULT_LENGTH: Duration = Duration::from_secs(104);
/// Server, proxy and generator take a third of two CPUs at the defaults, and 70 % with the longest
/// service times allowed. Above this, the measurement is of the queue for a CPU.
const BUSY_MAX: f64 = 0.8;
/// The longest mean of a search engine here.
const MEAN_MAX: Duration = Duration::from_millis(12);
