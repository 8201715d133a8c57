//! The figures of a run, from which tables, plots and comparisons are made.
//!
//! Units stand in the names. A figure that is an estimate comes with its 95 % interval, where the
//! run was long enough to tell. Energy is modelled, always, and says by which machine's table.

mod lengths;
mod points;
mod portions;
mod responses;

pub use lengths::Lengths;
pub use points::{Point, Spread};
pub(crate) use responses::asked;
pub use responses::{Estimate, Other, Responses, Verdict};

use crate::engine::{End, Ended};
use crate::statistics::{Portions, RatioEstimator, Replications, across_runs};
use lengths::lengths;
use machine::EnergySource;
use points::{mean_point, point};
use responses::responses_of;
use serde::{Deserialize, Serialize};

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
    /// Share of working time in each operating point, with its kHz.
    pub frequencies: Vec<(u64, f64)>,
    /// Share of the cores' time for which each operating point was asked for, work or not, with its
    /// kHz.
    #[serde(default)]
    pub clocks: Vec<(u64, f64)>,
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
    /// Response times by batches or replications, for differences between contestants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_portions: Option<Portions>,
    /// Power by stretches of time or replications, for differences between contestants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_portions: Option<Portions>,
}

impl Outcome {
    /// Idle periods of all CPUs per second, those spent polling included.
    pub fn idle_periods_per_s(&self) -> f64 {
        self.idle_lengths.per_s.iter().sum()
    }

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
        let available = &setup.platform.frequencies.points;
        let working_ns: u64 = ended.residency.working_ns.iter().sum();
        let points: Vec<Point> = ended.samples().map(|sample| point(sample, ended)).collect();
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
            frequencies: (available.iter().zip(&ended.residency.working_ns))
                .map(|(point, &ns)| (point.frequency.0, ns as f64 / working_ns.max(1) as f64))
                .collect(),
            clocks: available.iter().map(|point| point.frequency.0).zip(ended.clocks()).collect(),
            classes: ended.class_counts(),
            transfers: ended.transfers(),
            foreseen: ended.foreseen(),
            idle_lengths: lengths(&metrics.idle, length_s, cpu_time_ns),
            active_lengths: lengths(&metrics.active, length_s, cpu_time_ns),
            points,
            response_portions: portions::responses(ended),
            power_portions: portions::power(ended),
        }
    }
}

/// Watts of cores and uncore as a ratio of running totals.
fn power_of(ended: &Ended) -> RatioEstimator {
    let mut power = RatioEstimator::new();
    let (mut joules, mut seconds) = (0.0, 0.0);
    for sample in ended.samples() {
        joules += ended.core_joules_of(sample) + ended.uncore_joules_of(sample);
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
        outcome.response_portions = portions::responses_of_all(runs, &all);
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
        outcome.power_portions = Some(portions::power_of_all(&watts));
        let points: Vec<Vec<Point>> =
            runs.iter().map(|run| run.samples().map(|sample| point(sample, run)).collect()).collect();
        let shortest = points.iter().map(Vec::len).min().unwrap_or(0);
        outcome.points = (0..shortest).map(|at| mean_point(points.iter().map(|run| &run[at]))).collect();
        Some(outcome)
    }
}
