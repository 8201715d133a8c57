//! The figures of a fleet's run.

use super::answers::steps;
use super::ledger::Sums;
use super::story::Stretch;
use super::{Fleet, Run};
use crate::outcome::{ClassCount, Power, Responses, Verdict, asked};
use crate::statistics::{Collector, Doubt, Horizon, RatioEstimator, Replications, across_runs};
use machine::EnergySource;
use serde::{Deserialize, Serialize};

/// The figures of a fleet. Units stand in the names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetOutcome {
    pub contestant: String,
    pub seed: u64,
    /// How it ended: unstable if more came to any server than it can do.
    pub verdict: Verdict,
    /// Runs with other seeds that response times and power rest on.
    pub replications: u32,
    pub servers: u32,
    /// Those that were simulated and stand for all; absent where all were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// How many of them each request asked.
    pub fanout: u32,
    /// Number of requests that the root answered.
    pub requests: u64,
    /// From the beginning until the last request came, or the time was over.
    pub length_s: f64,
    /// Number of requests per second at the root.
    pub rate: f64,
    /// Response times by number of leaves waited for: first those of one leaf, last the root's.
    pub waited: Vec<Waited>,
    /// Requests that the root answered, by class; with a sample, those of the sample.
    pub classes: Vec<ClassCount>,
    /// All servers together; energy per request is by request of the root.
    pub power: Power,
    /// Servers by their policies, in the order of the first of each.
    pub groups: Vec<Group>,
    pub points: Vec<Point>,
}

/// The part of a fleet that was simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub servers: u32,
    /// Requests of the root that they answered: response times are of these.
    pub requests: u64,
}

/// Response times if the root waits for the slowest of so many leaves, at the same load of every
/// leaf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waited {
    pub leaves: u32,
    pub responses: Responses,
}

/// The servers with the same policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub policies: String,
    pub servers: u32,
    /// Of them, those to which more came than they can do.
    pub unstable: u32,
    /// Requests that they answered, all together.
    pub requests: u64,
    /// Response times of one of them.
    pub responses: Responses,
    /// All of them together; energy per request is by request of a leaf.
    pub power: Power,
    /// Share of CPU time spent executing.
    pub working: f64,
    /// Mean number of CPUs of one server that were not asleep.
    pub awake: f64,
}

/// A stretch of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// End of the stretch, in seconds.
    pub until_s: f64,
    /// Number of requests per second at the root.
    pub rate: f64,
    /// Mean response time of the root.
    pub mean_ns: Option<f64>,
    /// The root's 99th percentile, from a coarse histogram.
    pub p99_ns: Option<f64>,
    /// Watts of cores and uncore of all servers.
    pub cpu_watts: f64,
    /// Power of cores and uncore, by group.
    pub group_cpu_watts: Vec<f64>,
}

impl FleetOutcome {
    pub fn root(&self) -> Option<&Responses> {
        self.waited.last().map(|waited| &waited.responses)
    }

    pub fn leaf(&self) -> Option<&Responses> {
        self.waited.first().map(|waited| &waited.responses)
    }
}

/// The figures of all runs of a fleet; there is at least one.
pub(super) fn outcome(fleet: &Fleet, runs: &[Run]) -> FleetOutcome {
    let first = &runs[0];
    let is_unstable = runs.iter().any(|run| run.sums.iter().any(|sums| sums.unstable > 0));
    let responses = |of: &dyn Fn(&Run) -> &Collector| {
        if is_unstable { (Responses::default(), Verdict::Unstable) } else { responses(fleet, runs, of) }
    };
    let mut verdict = Verdict::Complete;
    let waited = steps(fleet.fanout).into_iter().enumerate().map(|(step, leaves)| {
        let (responses, found) = responses(&|run| &run.story.waited[step]);
        // The last is the root's.
        verdict = found;
        Waited { leaves, responses }
    });
    let waited = waited.collect();
    let all: Vec<Sums> = runs.iter().map(|run| together(&run.sums)).collect();
    let length_s = first.until_ns as f64 * 1e-9;
    let group = |place: usize| {
        let sums: Vec<&Sums> = runs.iter().map(|run| &run.sums[place]).collect();
        let servers = f64::from(sums[0].servers.max(1));
        let mean = |figure: fn(&Sums) -> f64| {
            sums.iter().map(|sums| figure(sums)).sum::<f64>() / sums.len() as f64 / servers
        };
        Group {
            policies: fleet.setups[place].policies.line.clone(),
            servers: sums[0].servers,
            unstable: sums.iter().map(|sums| sums.unstable).max().unwrap_or(0),
            requests: sums[0].requests,
            responses: responses(&|run| &run.story.groups[place]).0,
            power: power(fleet, &sums, sums[0].requests, length_s),
            working: mean(|sums| sums.working),
            awake: mean(|sums| sums.awake),
        }
    };
    FleetOutcome {
        contestant: fleet.name.clone(),
        seed: fleet.seed,
        verdict,
        replications: runs.len() as u32,
        servers: fleet.servers,
        sample: (fleet.sample < fleet.servers)
            .then_some(Sample { servers: fleet.sample, requests: first.kept }),
        fanout: fleet.fanout,
        requests: first.requests,
        length_s,
        rate: first.requests as f64 / length_s,
        waited,
        classes: first.story.classes.clone(),
        power: power(fleet, &all.iter().collect::<Vec<_>>(), first.requests, length_s),
        groups: (0..fleet.setups.len()).map(group).collect(),
        points: (0..fleet.points() as usize).map(|at| point(fleet, runs, at)).collect(),
    }
}

fn together(groups: &[Sums]) -> Sums {
    groups.iter().fold(Sums::default(), |mut all, group| {
        all.add(group);
        all
    })
}

/// Response times of all runs together, and their uncertainty.
fn responses(fleet: &Fleet, runs: &[Run], of: &dyn Fn(&Run) -> &Collector) -> (Responses, Verdict) {
    let all = |horizon, runs: &[Run]| {
        let mut all = Replications::new(horizon);
        // The only doubt about a whole run is a queue that grows, and these were not told of
        // queues.
        (0..).zip(runs).for_each(|(seed, run)| _ = all.add(seed, of(run)));
        all
    };
    let asked = asked(&fleet.setups[0]);
    let figures = |all: &Replications, with_intervals| Responses::of(&all.sample(), with_intervals, &asked);
    if fleet.setups[0].horizon == Horizon::Whole {
        return (figures(&all(Horizon::Whole, runs), runs.len() > 1), Verdict::Complete);
    }
    match of(&runs[0]).sample() {
        Ok(sample) => (Responses::of(&sample, true, &asked), Verdict::Complete),
        Err(Doubt::Unsettled) => (figures(&all(Horizon::Whole, runs), false), Verdict::Unsettled),
        Err(Doubt::Unstable) => (Responses::default(), Verdict::Unstable),
    }
}

/// The power of the same servers in every run.
fn power(fleet: &Fleet, runs: &[&Sums], requests: u64, length_s: f64) -> Power {
    let mean = |part: usize| runs.iter().map(|sums| sums.watts[part]).sum::<f64>() / runs.len() as f64;
    let [cores_watts, uncore_watts, rest_watts] = [0, 1, 2].map(mean);
    let server_watts = cores_watts + uncore_watts + rest_watts;
    let interval = if let [run] = runs {
        let mut power = RatioEstimator::new();
        let (mut joules, mut points) = (0.0, 0.0);
        for watts in &run.cpu_watts {
            // Points are equally long, so their length may be the unit of time.
            (joules, points) = (joules + watts, points + 1.0);
            power.observe(joules, points);
        }
        // Stretches of a story differ for other reasons than chance.
        power.interval().filter(|_| fleet.setups[0].horizon == Horizon::Steady)
    } else {
        across_runs(&runs.iter().map(|sums| sums.watts[0] + sums.watts[1]).collect::<Vec<_>>())
    };
    Power {
        source: EnergySource::Modelled(fleet.setups[0].platform.name.clone()),
        cores_watts,
        uncore_watts,
        rest_watts,
        cpu_watts: cores_watts + uncore_watts,
        server_watts,
        cpu_half_width_watts: interval.map(|interval| interval.half_width),
        joules_per_request: server_watts * length_s / requests.max(1) as f64,
    }
}

/// A stretch as all runs saw it: the mean of each figure.
fn point(fleet: &Fleet, runs: &[Run], at: usize) -> Point {
    let mean = |figure: &dyn Fn(&Run) -> Option<f64>| {
        let values: Vec<f64> = runs.iter().filter_map(figure).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let stretch_s = |run: &Run| run.until_ns as f64 * 1e-9 / f64::from(fleet.points());
    let of_kept = |run: &Run| run.requests as f64 / run.kept.max(1) as f64;
    let stretch = |run: &Run| -> Stretch { run.story.stretches[at] };
    let group = |place: usize| mean(&|run: &Run| run.sums[place].cpu_watts.get(at).copied()).unwrap_or(0.0);
    let group_cpu_watts: Vec<f64> = (0..fleet.setups.len()).map(group).collect();
    Point {
        until_s: mean(&|run| Some(stretch_s(run) * (at + 1) as f64)).unwrap_or(0.0),
        rate: mean(&|run| Some(stretch(run).requests as f64 * of_kept(run) / stretch_s(run))).unwrap_or(0.0),
        mean_ns: mean(&|run| stretch(run).mean_ns),
        p99_ns: mean(&|run| stretch(run).p99_ns),
        cpu_watts: group_cpu_watts.iter().sum(),
        group_cpu_watts,
    }
}
