//! The results of fleets, for machines.

use super::super::results::{Judged, Results};
use machine::Platform;
use serde::Serialize;
use sim::Goal;
use sim::fleet::FleetOutcome;
use sim::outcome::{Estimate, Power, Responses, Verdict};
use sim::statistics::Quantity;
use std::io::{self, Write};

#[derive(Clone, Debug, Serialize)]
pub struct FleetResults {
    format: u32,
    pub title: String,
    assumptions: Vec<String>,
    estimates: Vec<String>,
    /// The machines, each once, with their sources.
    pub machines: Vec<Platform>,
    pub fleets: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The goal, held against the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Judged>,
    #[serde(flatten)]
    pub outcome: FleetOutcome,
}

/// The format of a fleet's `outcomes.json`.
const FORMAT: u32 = 1;

/// One figure of the response times.
pub type Time = fn(&Responses) -> Option<Estimate>;

/// The quantiles of a table, with their names in it.
pub const TIMES: [(&str, Time); 5] = [
    ("mean", |times| times.mean_ns),
    ("p50", |times| times.p50_ns),
    ("p95", |times| times.p95_ns),
    ("p99", |times| times.p99_ns),
    ("p99.9", |times| times.p999_ns),
];

/// The same, as columns of a file are called.
const COLUMNS: [&str; 5] = ["mean", "p50", "p95", "p99", "p999"];

impl FleetResults {
    /// `about` describes the scenario.
    pub fn new(about: &Results, goal: Option<Goal>, outcomes: Vec<FleetOutcome>) -> Self {
        let entry = |outcome: FleetOutcome| Entry { goal: goal.map(|goal| judge(goal, &outcome)), outcome };
        Self {
            format: FORMAT,
            title: about.title.clone(),
            assumptions: about.assumptions.clone(),
            estimates: about.estimates.clone(),
            machines: about.machines.clone(),
            fleets: outcomes.into_iter().map(entry).collect(),
        }
    }

    pub fn write_summary(&self, to: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        let first =
            ["contestant", "seed", "verdict", "replications", "servers", "fanout", "requests", "length_s"];
        let rest = ["goal", "goal_met", "throughput"];
        let names = first.into_iter().chain(rest).map(str::to_owned);
        csv.write_record(names.chain(time_columns()).chain(power_columns()))?;
        for Entry { goal, outcome } in &self.fleets {
            let cells = [
                outcome.contestant.clone(),
                outcome.seed.to_string(),
                super::super::results::verdict_name(outcome.verdict).to_owned(),
                outcome.replications.to_string(),
                outcome.servers.to_string(),
                outcome.fanout.to_string(),
                outcome.requests.to_string(),
                outcome.length_s.to_string(),
                goal.as_ref().map_or_else(String::new, |goal| goal.goal.to_string()),
                goal.as_ref().and_then(|goal| goal.met).map_or_else(String::new, |met| met.to_string()),
                outcome.rate.to_string(),
            ];
            csv.write_record(
                cells.into_iter().chain(time_cells(outcome.root())).chain(power_cells(&outcome.power)),
            )?;
        }
        csv.flush()
    }

    /// `fanouts.csv`: response times by number of leaves waited for.
    pub fn write_fanouts(&self, to: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        csv.write_record(["contestant", "leaves"].map(str::to_owned).into_iter().chain(time_columns()))?;
        for Entry { outcome, .. } in &self.fleets {
            for waited in &outcome.waited {
                let cells = [outcome.contestant.clone(), waited.leaves.to_string()];
                csv.write_record(cells.into_iter().chain(time_cells(Some(&waited.responses))))?;
            }
        }
        csv.flush()
    }

    /// `groups.csv`: servers by their policies; response times are those of one leaf.
    pub fn write_groups(&self, to: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        let first = ["contestant", "policies", "servers", "unstable", "requests", "working", "awake_cores"];
        let names = first.map(str::to_owned).into_iter();
        csv.write_record(names.chain(time_columns()).chain(power_columns()))?;
        for Entry { outcome, .. } in &self.fleets {
            for group in &outcome.groups {
                let cells = [
                    outcome.contestant.clone(),
                    group.policies.clone(),
                    group.servers.to_string(),
                    group.unstable.to_string(),
                    group.requests.to_string(),
                    group.working.to_string(),
                    group.awake.to_string(),
                ];
                csv.write_record(
                    cells
                        .into_iter()
                        .chain(time_cells(Some(&group.responses)))
                        .chain(power_cells(&group.power)),
                )?;
            }
        }
        csv.flush()
    }

    /// `points.csv`: the time series, one row per fleet and point.
    pub fn write_points(&self, to: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        let mut names: Vec<&str> = Vec::new();
        for group in self.fleets.iter().flat_map(|fleet| &fleet.outcome.groups) {
            if !names.contains(&group.policies.as_str()) {
                names.push(&group.policies);
            }
        }
        let plain = ["contestant", "until_s", "throughput", "mean_ns", "p99_ns", "cpu_watts"];
        let groups = names.iter().map(|name| format!("cpu_watts.{name}"));
        csv.write_record(plain.map(str::to_owned).into_iter().chain(groups))?;
        for Entry { outcome, .. } in &self.fleets {
            for point in &outcome.points {
                let plain = [
                    outcome.contestant.clone(),
                    point.until_s.to_string(),
                    point.rate.to_string(),
                    or_empty(point.mean_ns),
                    or_empty(point.p99_ns),
                    point.cpu_watts.to_string(),
                ];
                let of = |name: &&str| {
                    let place = outcome.groups.iter().position(|group| group.policies == **name);
                    or_empty(place.and_then(|place| point.group_cpu_watts.get(place).copied()))
                };
                csv.write_record(plain.into_iter().chain(names.iter().map(of)))?;
            }
        }
        csv.flush()
    }
}

/// The root decides: its callers wait for it.
fn judge(goal: Goal, outcome: &FleetOutcome) -> Judged {
    if outcome.verdict == Verdict::Unstable {
        return Judged { goal, found_ns: None, met: Some(false) };
    }
    let found_ns = Quantity::of(goal).and_then(|quantity| outcome.root()?.at(quantity));
    let met = found_ns.map(|found| found.value <= goal.latency.as_nanos() as f64);
    Judged { goal, found_ns, met }
}

fn time_columns() -> impl Iterator<Item = String> {
    COLUMNS.iter().flat_map(|name| ["", "_low", "_high"].map(|end| format!("{name}{end}_ns")))
}

fn time_cells(times: Option<&Responses>) -> impl Iterator<Item = String> {
    TIMES.iter().flat_map(move |(_, of)| {
        let found = times.and_then(of);
        let interval = found.and_then(|found| found.interval());
        [
            or_empty(found.map(|found| found.value)),
            or_empty(interval.map(|interval| interval.low())),
            or_empty(interval.map(|interval| interval.high())),
        ]
    })
}

fn power_columns() -> impl Iterator<Item = String> {
    let names = ["core_watts", "uncore_watts", "cpu_watts", "cpu_watts_low", "cpu_watts_high"];
    names.into_iter().chain(["server_watts", "joules_per_request"]).map(str::to_owned)
}

fn power_cells(power: &Power) -> impl Iterator<Item = String> {
    let off = |sign: f64| power.cpu_half_width_watts.map(|half_width| power.cpu_watts + sign * half_width);
    let cells = [
        power.cores_watts.to_string(),
        power.uncore_watts.to_string(),
        power.cpu_watts.to_string(),
        or_empty(off(-1.0)),
        or_empty(off(1.0)),
        power.server_watts.to_string(),
        power.joules_per_request.to_string(),
    ];
    cells.into_iter()
}

fn or_empty(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
