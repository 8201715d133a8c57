//! The results of fleets, for programs: one JSON document, and tables.

use super::columns::{Columns, Rows};
use super::results::{Judged, Results, verdict_name};
use machine::Platform;
use report::distinct;
use serde::{Deserialize, Serialize};
use sim::Goal;
use sim::fleet::FleetOutcome;
use sim::outcome::{Estimate, Power, Responses};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FleetResults {
    format: u32,
    pub title: String,
    assumptions: Vec<String>,
    estimates: Vec<String>,
    /// The machines, each once, with their sources.
    pub machines: Vec<Platform>,
    pub fleets: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
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

impl FleetResults {
    /// `about` has the scenario's title, assumptions and machines.
    pub fn new(about: &Results, goal: Option<Goal>, outcomes: Vec<FleetOutcome>) -> Self {
        // The root decides: its callers wait for it.
        let judge = |of: &FleetOutcome, goal| Judged::new(goal, of.verdict, of.root());
        let entry = |outcome| Entry { goal: goal.map(|goal| judge(&outcome, goal)), outcome };
        Self {
            format: FORMAT,
            title: about.title.clone(),
            assumptions: about.assumptions.clone(),
            estimates: about.estimates.clone(),
            machines: about.machines.clone(),
            fleets: outcomes.into_iter().map(entry).collect(),
        }
    }

    /// `summary.csv`: one row per fleet, the root's response times.
    pub fn summary(&self) -> Columns {
        let root = |fleet: &Entry| fleet.outcome.root().cloned().unwrap_or_default();
        let rows = Rows::of(&self.fleets)
            .text("contestant", |fleet| fleet.outcome.contestant.clone())
            .count("seed", |fleet| fleet.outcome.seed)
            .text("verdict", |fleet| verdict_name(fleet.outcome.verdict).to_owned())
            .count("replications", |fleet| u64::from(fleet.outcome.replications))
            .count("servers", |fleet| u64::from(fleet.outcome.servers))
            .count("sample", |fleet| fleet.outcome.sample.map(|sample| u64::from(sample.servers)))
            .count("fanout", |fleet| u64::from(fleet.outcome.fanout))
            .count("requests", |fleet| fleet.outcome.requests)
            .number("length_s", |fleet| fleet.outcome.length_s)
            .text("goal", |fleet| fleet.goal.as_ref().map(|goal| goal.goal.to_string()))
            .truth("goal_met", |fleet| fleet.goal.as_ref().and_then(|goal| goal.met))
            .number("throughput", |fleet| fleet.outcome.rate);
        power(times(rows, root), |fleet| &fleet.outcome.power).end()
    }

    /// `fanouts.csv`: response times by number of leaves waited for.
    pub fn fanouts(&self) -> Columns {
        let all = self.outcomes(|fleet| &fleet.waited);
        let rows = Rows::of(&all)
            .text("contestant", |(fleet, _)| fleet.contestant.clone())
            .count("leaves", |(_, waited)| u64::from(waited.leaves));
        times(rows, |(_, waited)| waited.responses.clone()).end()
    }

    /// `groups.csv`: servers by their policies; response times are those of one leaf.
    pub fn groups(&self) -> Columns {
        let all = self.outcomes(|fleet| &fleet.groups);
        let rows = Rows::of(&all)
            .text("contestant", |(fleet, _)| fleet.contestant.clone())
            .text("policies", |(_, group)| group.policies.clone())
            .count("servers", |(_, group)| u64::from(group.servers))
            .count("unstable", |(_, group)| u64::from(group.unstable))
            .count("requests", |(_, group)| group.requests)
            .number("working", |(_, group)| group.working)
            .number("awake_cores", |(_, group)| group.awake);
        power(times(rows, |(_, group)| group.responses.clone()), |(_, group)| &group.power).end()
    }

    /// `points.csv`: the time series, one row per fleet and point.
    pub fn points(&self) -> Columns {
        let groups = self.fleets.iter().flat_map(|fleet| &fleet.outcome.groups);
        let names = distinct(groups.map(|group| group.policies.as_str()));
        let all = self.outcomes(|fleet| &fleet.points);
        let rows = Rows::of(&all)
            .text("contestant", |(fleet, _)| fleet.contestant.clone())
            .number("until_s", |(_, point)| point.until_s)
            .number("throughput", |(_, point)| point.rate)
            .number("mean_ns", |(_, point)| point.mean_ns)
            .number("p99_ns", |(_, point)| point.p99_ns)
            .number("cpu_watts", |(_, point)| point.cpu_watts);
        let with_groups = names.iter().fold(rows, |rows, name| {
            rows.number(format!("cpu_watts.{name}"), |(fleet, point)| {
                let place = fleet.groups.iter().position(|group| group.policies == *name)?;
                point.group_cpu_watts.get(place).copied()
            })
        });
        with_groups.end()
    }

    /// The parts of all fleets, each with its fleet.
    fn outcomes<T>(&self, parts: fn(&FleetOutcome) -> &Vec<T>) -> Vec<(&FleetOutcome, &T)> {
        let fleets = self.fleets.iter().map(|fleet| &fleet.outcome);
        fleets.flat_map(|fleet| parts(fleet).iter().map(move |part| (fleet, part))).collect()
    }
}

fn times<'a, R>(rows: Rows<'a, R>, of: impl Fn(&'a R) -> Responses) -> Rows<'a, R> {
    TIMES.iter().fold(rows, |rows, (name, time)| {
        // As columns of files are called.
        rows.estimate(&name.replace('.', ""), "_ns", |row| time(&of(row)))
    })
}

fn power<'a, R>(rows: Rows<'a, R>, of: impl Fn(&'a R) -> &'a Power) -> Rows<'a, R> {
    rows.number("core_watts", |row| of(row).cores_watts)
        .number("uncore_watts", |row| of(row).uncore_watts)
        .estimate("cpu_watts", "", |row| {
            let Power { cpu_watts: value, cpu_half_width_watts: half_width, .. } = *of(row);
            Some(Estimate { value, half_width })
        })
        .number("server_watts", |row| of(row).server_watts)
        .number("joules_per_request", |row| of(row).joules_per_request)
}
