//! The time series: stretches of one run, and of several runs of one story.

use crate::engine::{Ended, Sample, Times};
use crate::statistics::across_runs;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// End of the stretch, in seconds.
    pub until_s: f64,
    /// Number of requests answered per second.
    pub rate: f64,
    pub mean_ns: Option<f64>,
    /// The 95th percentile, to half a per cent.
    pub p95_ns: Option<f64>,
    /// The 99th percentile, to half a per cent.
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

/// One stretch of a story as several runs saw it: the mean of each figure, and how far it may be
/// off.
pub(super) fn mean_point<'a>(runs: impl Iterator<Item = &'a Point> + Clone) -> Point {
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

pub(super) fn point(sample: &Sample, ended: &Ended) -> Point {
    let platform = &ended.setup().platform;
    let length_ns = sample.length_ns as f64;
    let cpus = platform.cpus() as f64;
    let quantile = |responses: &Times, q| responses.quantile(q).map(|length| length.as_nanos() as f64);
    let points = &platform.frequencies.points;
    let working_ns: u64 = sample.working_ns.iter().sum();
    let mhz =
        points.iter().zip(&sample.working_ns).map(|(point, &ns)| point.frequency.0 as f64 / 1e3 * ns as f64);
    Point {
        until_s: sample.until_ns as f64 * 1e-9,
        rate: sample.left as f64 / length_ns * 1e9,
        mean_ns: (sample.left > 0).then(|| sample.response_ns as f64 / sample.left as f64),
        p95_ns: quantile(&sample.responses, 0.95),
        p99_ns: quantile(&sample.responses, 0.99),
        cpu_watts: (ended.core_joules_of(sample) + ended.uncore_joules_of(sample)) / length_ns * 1e9,
        active: sample.active_ns as f64 / length_ns,
        awake: sample.awake_ns as f64 / length_ns,
        mhz: (working_ns > 0).then(|| mhz.sum::<f64>() / working_ns as f64),
        asleep: sample.asleep_ns.iter().map(|&ns| ns as f64 / (length_ns * cpus)).collect(),
        core_watts: ended.core_joules_of(sample) / length_ns * 1e9,
        spread: None,
    }
}
