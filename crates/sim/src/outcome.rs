//! The figures of a run, from which tables, plots and comparisons are made.
//!
//! Units stand in the names. A figure that is an estimate comes with its 95 % interval, where the
//! run was long enough to tell. Energy is modelled, always, and says by which machine's table.

use crate::engine::{Coarse, End, Ended, IdleLengths, Setup};
use crate::statistics::{
    Doubt, Horizon, Interval, Quantile, Quantity, RatioEstimator, Replications, Sample as Responded,
    across_runs,
};
use machine::EnergySource;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All requests were answered, or the time was over.
    Complete,
    /// The precision that was asked for is reached.
    Precise,
    /// The requests were used up before the precision that was asked for was reached.
    Imprecise,
    /// More came than the machine can do. Its times mean nothing and are not given.
    Unstable,
    /// Response times still changed in the middle of the run: too few requests. Estimates are given
    /// without intervals.
    Unsettled,
}

/// A figure that another seed would change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best guess of the quantity.
    pub value: f64,
    /// How far the truth may lie to either side, with 95 % confidence; `None` if the run was too
    /// short to tell.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// With its interval, if it has one.
    pub fn interval(&self) -> Option<Interval> {
        self.half_width.map(|half_width| Interval { estimate: self.value, half_width })
    }

    fn of(value: Option<f64>, interval: Option<Interval>) -> Option<Self> {
        match interval {
            Some(Interval { estimate, half_width }) => {
                Some(Self { value: estimate, half_width: Some(half_width) })
            }
            None => value.map(|value| Self { value, half_width: None }),
        }
    }
}

/// Distribution of response times, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Responses {
    pub mean_ns: Option<Estimate>,
    pub p50_ns: Option<Estimate>,
    pub p95_ns: Option<Estimate>,
    pub p99_ns: Option<Estimate>,
    pub p999_ns: Option<Estimate>,
    /// Other percentiles that a goal or a precision names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Other>,
}

/// A percentile that a goal or a precision names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    pub what: Quantity,
    pub found_ns: Estimate,
}

impl Responses {
    /// One of them; `None` if it was not asked for, or the run does not say.
    pub fn at(&self, what: Quantity) -> Option<Estimate> {
        let known = [self.mean_ns, self.p50_ns, self.p95_ns, self.p99_ns, self.p999_ns];
        let shown = Quantity::SHOWN.iter().zip(known).find(|(shown, _)| **shown == what);
        let other = || self.others.iter().find(|other| other.what == what).map(|other| other.found_ns);
        shown.map_or_else(other, |(_, found)| found)
    }

    /// The figures of a sample, with those that `asked` names.
    pub(crate) fn of(sample: &Responded<'_>, with_intervals: bool, asked: &[Quantity]) -> Self {
        let one = |quantity| {
            let interval = if with_intervals { sample.interval(quantity) } else { None };
            Estimate::of(sample.estimate(quantity), interval)
        };
        let quantile = |quantile| one(Quantity::Quantile(quantile));
        let mut others: Vec<Quantity> = Vec::new();
        for &what in asked {
            if !Quantity::SHOWN.contains(&what) && !others.contains(&what) {
                others.push(what);
            }
        }
        let others = others.into_iter().filter_map(|what| Some(Other { what, found_ns: one(what)? }));
        Self {
            mean_ns: one(Quantity::Mean),
            p50_ns: quantile(Quantile::P50),
            p95_ns: quantile(Quantile::P95),
            p99_ns: quantile(Quantile::P99),
            p999_ns: quantile(Quantile::P999),
            others: others.collect(),
        }
    }
}

/// The quantities of this run that are reported besides those of every run.
pub(crate) fn asked(setup: &Setup) -> Vec<Quantity> {
    let goal = setup.goal.and_then(Quantity::of);
    goal.into_iter().chain(setup.precision.map(|precision| precision.quantity())).collect()
}

/// Watts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Power {
    pub source: EnergySource,
    pub cores_watts: f64,
    /// Power of the sockets beside their cores.
    pub uncore_watts: f64,
    /// Power of the rest of the server.
    pub rest_watts: f64,
    /// Power of the cores and the uncore.
    pub cpu_watts: f64,
    pub server_watts: f64,
    /// How far the cores' and uncore's power may be off, with 95 % confidence; `None` from too
    /// short a run.
    pub cpu_half_width_watts: Option<f64>,
    /// Joules of the server by request answered.
    pub joules_per_request: f64,
}

/// One idle state, over all CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateShare {
    pub name: String,
    /// Share of all CPU time spent in this state.
    pub share: f64,
    /// Number of sleeps in it per second.
    pub sleeps_per_s: f64,
    /// Share of its sleeps that were shorter than its target residency.
    pub premature: f64,
    /// Share of its sleeps that were long enough for a deeper state.
    pub missed_deep: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassCount {
    pub name: String,
    pub requests: u64,
    /// Of them, those after their deadline; `None` if it has none.
    pub missed: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// End of the stretch, in seconds.
    pub until_s: f64,
    /// Number of requests answered per second.
    pub rate: f64,
    pub mean_ns: Option<f64>,
    /// The 95th percentile, from a coarse histogram.
    pub p95_ns: Option<f64>,
    /// The 99th percentile, from a coarse histogram.
    pub p99_ns: Option<f64>,
    /// Power of the cores and the uncore.
    pub cpu_watts: f64,
    pub core_watts: f64,
    /// Mean number of CPUs that new work may go to.
    pub active: f64,
    /// Mean number of CPUs that were not asleep.
    pub awake: f64,
    /// Mean frequency of the CPUs that worked, in MHz; `None` if none did.
    pub mhz: Option<f64>,
    /// Share of CPU time in each idle state.
    pub asleep: Vec<f64>,
    /// Where several runs make a point: how far each figure may be off, with 95 % confidence.
    pub spread: Option<Spread>,
}

/// Half-widths of a point's figures over independent runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub mean_ns: Option<f64>,
    pub p95_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    /// Of the power of cores and uncore.
    pub cpu_watts: Option<f64>,
}

/// Lengths of periods, in buckets that double.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Lower end of each bucket, in ns.
    pub from_ns: Vec<u64>,
    /// Number of such periods per second.
    pub per_s: Vec<f64>,
    /// Share of all CPU time that was spent in periods of this length.
    pub time_share: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub contestant: String,
    pub policies: String,
    pub seed: u64,
    pub verdict: Verdict,
    /// Runs with other seeds that the response times and the power rest on.
    pub replications: u32,
    /// Number of requests that were answered.
    pub requests: u64,
    /// Length of the run in simulated seconds.
    pub length_s: f64,
    /// Number of requests answered per second.
    pub rate: f64,
    /// The most that were in the system at once.
    pub most_in_system: u64,
    pub responses: Responses,
    pub power: Power,
    /// Share of CPU time spent executing.
    pub working: f64,
    /// Share of CPU time: coming out of a sleep.
    pub waking: f64,
    /// Share of CPU time spent spinning.
    pub polling: f64,
    /// Mean number of CPUs that were not asleep.
    pub awake: f64,
    /// Mean number of CPUs that new work could go to.
    pub active: f64,
    /// Share of socket time in the package's sleep.
    pub package_asleep: f64,
    /// Sleeps begun per second, all CPUs.
    pub transitions_per_s: f64,
    /// Idle states, from shallow to deep.
    pub states: Vec<StateShare>,
    /// Share of working time in each gear, with its kHz.
    pub gears: Vec<(u64, f64)>,
    pub classes: Vec<ClassCount>,
    /// Connections moved, and how many of them a worker sent home by itself.
    pub transfers: Option<(u64, u64)>,
    /// Share of the device's answers that came within the time for which they were foreseen; `None`
    /// without a predictor.
    pub foreseen: Option<f64>,
    pub idle_lengths: Lengths,
    /// Lengths of the periods between idle periods.
    pub active_lengths: Lengths,
    pub points: Vec<Point>,
}

impl Outcome {
    /// The figures of a run that is over.
    pub fn new(contestant: &str, ended: &Ended) -> Self {
        let (metrics, setup) = (ended.metrics(), ended.setup());
        let length_s = ended.length_ns() as f64 * 1e-9;
        let cpus = setup.platform.cpus() as f64;
        let cpu_time_ns = ended.length_ns() as f64 * cpus;
        let share = |ns: u64| ns as f64 / cpu_time_ns;
        let (responses, verdict) = responses_of(ended);
        let power = power_of(ended);
        let states = setup.platform.cstates.0.iter().zip(&ended.residency.asleep_ns).zip(&metrics.sleeps);
        let states = states.map(|((state, &asleep_ns), counts)| {
            let of_sleeps = |count: u64| count as f64 / counts.sleeps.max(1) as f64;
            StateShare {
                name: state.name.clone(),
                share: share(asleep_ns),
                sleeps_per_s: counts.sleeps as f64 / length_s,
                premature: of_sleeps(counts.premature),
                missed_deep: of_sleeps(counts.missed_deep),
            }
        });
        let gears = &setup.platform.frequencies.gears;
        let working_ns: u64 = ended.residency.working_ns.iter().sum();
        let points: Vec<Point> = metrics.samples.iter().map(|sample| point(sample, ended)).collect();
        let joules = ended.core_joules() + ended.uncore_joules() + ended.rest_joules();
        let active_ns: u64 = metrics.samples.iter().map(|sample| sample.active_ns).sum();
        Self {
            contestant: contestant.to_owned(),
            policies: setup.policies.line.clone(),
            seed: setup.seed,
            verdict,
            replications: 1,
            requests: metrics.left(),
            length_s,
            rate: metrics.left() as f64 / length_s,
            most_in_system: metrics.most_in_system(),
            responses,
            power: Power {
                source: EnergySource::Modelled(setup.platform.name.clone()),
                cores_watts: ended.core_joules() / length_s,
                uncore_watts: ended.uncore_joules() / length_s,
                rest_watts: ended.rest_joules() / length_s,
                cpu_watts: (ended.core_joules() + ended.uncore_joules()) / length_s,
                server_watts: joules / length_s,
                cpu_half_width_watts: power.interval().map(|interval| interval.half_width),
                joules_per_request: joules / metrics.left().max(1) as f64,
            },
            working: share(working_ns),
            waking: share(ended.residency.waking_ns),
            polling: share(ended.residency.polling_ns),
            awake: cpus * (1.0 - share(ended.residency.asleep_ns.iter().sum())),
            active: active_ns as f64 / ended.length_ns() as f64,
            package_asleep: ended.package_asleep(),
            transitions_per_s: ended.transitions() as f64 / length_s,
            states: states.collect(),
            gears: (gears.iter().zip(&ended.residency.working_ns))
                .map(|(gear, &ns)| (gear.frequency.0, ns as f64 / working_ns.max(1) as f64))
                .collect(),
            classes: ended.class_counts(),
            transfers: ended.transfers(),
            foreseen: ended.foreseen(),
            idle_lengths: lengths(&metrics.idle, length_s, cpu_time_ns),
            active_lengths: lengths(&metrics.active, length_s, cpu_time_ns),
            points,
        }
    }
}

/// The response times of one run, and how it ended.
fn responses_of(ended: &Ended) -> (Responses, Verdict) {
    let responses = &ended.metrics().responses;
    let precision_asked = ended.setup().precision.is_some();
    let asked = asked(ended.setup());
    if ended.end == End::Unstable {
        return (Responses::default(), Verdict::Unstable);
    }
    if ended.setup().horizon == Horizon::Whole {
        // One story: its figures, without an interval. Several make one, see `Outcome::of_all`.
        let mut runs = Replications::new(Horizon::Whole);
        let told = runs.add(ended.setup().seed, responses).is_ok();
        let story = if told { Responses::of(&runs.sample(), false, &asked) } else { Responses::default() };
        return (story, Verdict::Complete);
    }
    match responses.sample() {
        Ok(sample) => {
            let verdict = match ended.end {
                End::Precise => Verdict::Precise,
                _ if precision_asked && !responses.is_precise() => Verdict::Imprecise,
                _ => Verdict::Complete,
            };
            (Responses::of(&sample, true, &asked), verdict)
        }
        Err(Doubt::Unstable) => (Responses::default(), Verdict::Unstable),
        Err(Doubt::Unsettled) => {
            let mut runs = Replications::new(Horizon::Whole);
            let told = runs.add(ended.setup().seed, responses).is_ok();
            let story =
                if told { Responses::of(&runs.sample(), false, &asked) } else { Responses::default() };
            (story, Verdict::Unsettled)
        }
    }
}

/// Watts of cores and uncore as a ratio of running totals.
fn power_of(ended: &Ended) -> RatioEstimator {
    let mut power = RatioEstimator::new();
    let (mut joules, mut seconds) = (0.0, 0.0);
    for sample in &ended.metrics().samples {
        joules += sample.core_joules + ended.uncore_joules_of(sample);
        seconds += sample.length_ns as f64 * 1e-9;
        power.observe(joules, seconds);
    }
    power
}

impl Outcome {
    /// Several runs of one story with other seeds: the figures of the first, but response times and
    /// power from all of them.
    pub fn of_all(contestant: &str, runs: &[Ended]) -> Option<Self> {
        let first = runs.first()?;
        let mut outcome = Self::new(contestant, first);
        let mut all = Replications::new(first.setup().horizon);
        for run in runs {
            if run.end == End::Unstable || all.add(run.setup().seed, &run.metrics().responses).is_err() {
                outcome.verdict = Verdict::Unstable;
                outcome.responses = Responses::default();
                return Some(outcome);
            }
        }
        outcome.responses = Responses::of(&all.sample(), true, &asked(first.setup()));
        outcome.replications = runs.len() as u32;
        let joules_per_s = |run: &Ended| {
            let seconds = run.length_ns() as f64 * 1e-9;
            [run.core_joules(), run.uncore_joules(), run.rest_joules()].map(|joules| joules / seconds)
        };
        let watts: Vec<[f64; 3]> = runs.iter().map(joules_per_s).collect();
        let mean = |part: usize| watts.iter().map(|watts| watts[part]).sum::<f64>() / watts.len() as f64;
        // Of whole stories, as their means are: nothing of a story is warm-up.
        let of_runs: Vec<f64> = watts.iter().map(|watts| watts[0] + watts[1]).collect();
        let power = &mut outcome.power;
        (power.cores_watts, power.uncore_watts, power.rest_watts) = (mean(0), mean(1), mean(2));
        power.cpu_watts = power.cores_watts + power.uncore_watts;
        power.server_watts = power.cpu_watts + power.rest_watts;
        power.cpu_half_width_watts = across_runs(&of_runs).map(|interval| interval.half_width);
        let points: Vec<Vec<Point>> = runs
            .iter()
            .map(|run| run.metrics().samples.iter().map(|sample| point(sample, run)).collect())
            .collect();
        let shortest = points.iter().map(Vec::len).min().unwrap_or(0);
        outcome.points = (0..shortest).map(|at| mean_point(points.iter().map(|run| &run[at]))).collect();
        Some(outcome)
    }
}

/// One stretch of a story as several runs saw it: the mean of each figure, and how far it may be
/// off.
fn mean_point<'a>(runs: impl Iterator<Item = &'a Point> + Clone) -> Point {
    let all = |figure: fn(&Point) -> f64| runs.clone().map(figure).collect::<Vec<f64>>();
    let some = |figure: fn(&Point) -> Option<f64>| runs.clone().filter_map(figure).collect::<Vec<f64>>();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let mean_of_some = |values: &[f64]| (!values.is_empty()).then(|| mean(values));
    let off = |values: &[f64]| across_runs(values).map(|interval| interval.half_width);
    let (means, p95, p99) = (some(|p| p.mean_ns), some(|p| p.p95_ns), some(|p| p.p99_ns));
    let cpu = all(|p| p.cpu_watts);
    let states = runs.clone().map(|point| point.asleep.len()).max().unwrap_or(0);
    let asleep = |state: usize| {
        let shares: Vec<f64> = runs.clone().filter_map(|point| point.asleep.get(state).copied()).collect();
        mean(&shares)
    };
    Point {
        until_s: mean(&all(|p| p.until_s)),
        rate: mean(&all(|p| p.rate)),
        mean_ns: mean_of_some(&means),
        p95_ns: mean_of_some(&p95),
        p99_ns: mean_of_some(&p99),
        cpu_watts: mean(&cpu),
        core_watts: mean(&all(|p| p.core_watts)),
        active: mean(&all(|p| p.active)),
        awake: mean(&all(|p| p.awake)),
        mhz: mean_of_some(&some(|p| p.mhz)),
        asleep: (0..states).map(asleep).collect(),
        spread: Some(Spread {
            mean_ns: off(&means),
            p95_ns: off(&p95),
            p99_ns: off(&p99),
            cpu_watts: off(&cpu),
        }),
    }
}

fn point(sample: &crate::engine::Sample, ended: &Ended) -> Point {
    let platform = &ended.setup().platform;
    let length_ns = sample.length_ns as f64;
    let cpus = platform.cpus() as f64;
    let quantile = |responses: &Coarse, q| responses.quantile(q).map(|length| length.as_nanos() as f64);
    let gears = &platform.frequencies.gears;
    let working_ns: u64 = sample.working_ns.iter().sum();
    let mhz =
        gears.iter().zip(&sample.working_ns).map(|(gear, &ns)| gear.frequency.0 as f64 / 1e3 * ns as f64);
    Point {
        until_s: sample.until_ns as f64 * 1e-9,
        rate: sample.left as f64 / length_ns * 1e9,
        mean_ns: (sample.left > 0).then(|| sample.response_ns as f64 / sample.left as f64),
        p95_ns: quantile(&sample.responses, 0.95),
        p99_ns: quantile(&sample.responses, 0.99),
        cpu_watts: (sample.core_joules + ended.uncore_joules_of(sample)) / length_ns * 1e9,
        active: sample.active_ns as f64 / length_ns,
        awake: sample.awake_ns as f64 / length_ns,
        mhz: (working_ns > 0).then(|| mhz.sum::<f64>() / working_ns as f64),
        asleep: sample.asleep_ns.iter().map(|&ns| ns as f64 / (length_ns * cpus)).collect(),
        core_watts: sample.core_joules / length_ns * 1e9,
        spread: None,
    }
}

/// Buckets from 2^9 ns, half a microsecond, on; shorter periods are counted there.
fn lengths(lengths: &IdleLengths, length_s: f64, cpu_time_ns: f64) -> Lengths {
    const FIRST: usize = 9;
    let last = lengths.counts.iter().rposition(|&count| count > 0).unwrap_or(FIRST).max(FIRST);
    let fold = |values: &[u64; 64]| -> Vec<u64> {
        let shorter: u64 = values[..FIRST].iter().sum();
        let mut folded = values[FIRST..=last].to_vec();
        folded[0] += shorter;
        folded
    };
    Lengths {
        from_ns: (FIRST..=last).map(|bucket| 1 << bucket).collect(),
        per_s: fold(&lengths.counts).iter().map(|&count| count as f64 / length_s).collect(),
        time_share: fold(&lengths.time_ns).iter().map(|&ns| ns as f64 / cpu_time_ns).collect(),
    }
}
