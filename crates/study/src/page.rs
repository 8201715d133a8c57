//! `report.html` of simulated runs: the results, first as a sentence, then as figures, then with
//! their sources.
//!
//! `report` draws numbers with units and knows no simulator; here runs become such numbers. A
//! contestant keeps its colour and its mark through a page. Intervals are drawn wherever a run has
//! them. An unstable queue has no figures: it is a gap in a line, a hatched cell in a map, a word
//! in a table, and an alarm at the top.
//!
//! ```text
//!   axis.rs     the values of a key as an axis
//!   pairs.rs    contestants against one of them
//!   parts.rs    single figures from runs: for the pages here and for those of the papers
//!   run.rs      the page of contestants side by side
//!   sweep.rs    the page of a grid
//! ```

mod axis;
mod pairs;
mod parts;
mod run;
mod sweep;
#[cfg(test)]
mod tests;

pub use axis::Axis;
pub use parts::{Measured, Printed, against, lengths, over_time, residency, unit};
pub use run::run_page;
pub use sweep::{Swept, sweep_page};

use super::figures::Figure;
use super::paired::Compared;
use super::results::Results;
use machine::Platform;
use report::distinct;
use report::figures::{Basis, Page};
use report::run::RunInfo;
use sim::statistics::Quantity;
use sim::{Goal, Scenario};

/// The text of a page beside its figures. Any text may stand in it: the page escapes.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub title: String,
    pub name: String,
    pub command: Vec<String>,
    pub version: String,
    pub started: String,
    pub seed: u64,
    pub machines: Vec<Platform>,
    pub scenario: String,
    pub goal: Option<Goal>,
    pub assumptions: Vec<String>,
    pub estimates: Vec<String>,
    /// The requests are a recorded trace, the same in every replication.
    pub is_trace: bool,
    pub differences: Vec<Compared>,
    pub remarks: Vec<String>,
}

impl Facts {
    /// The content of a run's folder and results.
    pub fn new(info: &RunInfo, about: &Results, scenario: &Scenario) -> Self {
        let text = info.config.get(super::folder::SCENARIO).map(toml::to_string_pretty);
        Self {
            title: if about.title.is_empty() { info.name.clone() } else { about.title.clone() },
            name: info.name.clone(),
            command: info.command.clone(),
            version: info.version.clone(),
            started: info.started.clone(),
            seed: scenario.run.seed,
            machines: about.machines.clone(),
            // A scenario that cannot be written as text was written to run.toml before.
            scenario: text.and_then(Result::ok).unwrap_or_default(),
            goal: scenario.goal,
            assumptions: about.assumptions.clone(),
            estimates: about.estimates.clone(),
            is_trace: scenario.workload.trace.is_some(),
            differences: about.differences.clone(),
            remarks: Vec::new(),
        }
    }
}

/// A page without results: summary, cards and sections are still to be filled in.
pub fn head(facts: &Facts) -> Page {
    let machines = distinct(facts.machines.iter().map(|machine| machine.name.as_str()));
    let on = if machines.is_empty() { String::new() } else { format!("on {}", machines.join(", ")) };
    let line = [
        facts.started.clone(),
        format!("Roost {}", facts.version),
        format!("seed {}", facts.seed),
        on,
        "simulated, power modelled".to_owned(),
    ];
    let intervals = if facts.is_trace {
        "Response times run from a request's arrival to its reply. The requests are one recorded trace, the \
         same in every replication: intervals are of the machine's noise only, and say nothing of what other \
         days would give."
    } else {
        "Response times run from a request's arrival to its reply. Intervals are 95 % confidence intervals, \
         after the warm-up was removed."
    };
    let notes = [
        "Everything here is simulated. No machine was measured, and none was touched.",
        intervals,
        "Power is modelled: what each core did, times the powers in the machine's table, whose sources are below.",
        "A dash stands where a figure is not known. An unstable queue has no figures: more arrived than \
         could be served.",
    ];
    Page {
        name: facts.name.clone(),
        title: facts.title.clone(),
        facts: line.into_iter().filter(|fact| !fact.is_empty()).collect(),
        alarms: facts.remarks.clone(),
        assumptions: facts.assumptions.clone(),
        estimates: facts.estimates.clone(),
        notes: notes.map(str::to_owned).to_vec(),
        sources: sources(&facts.machines),
        folded: vec![("The scenario in force".to_owned(), facts.scenario.clone())],
        command: facts.command.clone(),
        basis: Some(Basis::Modelled),
        ..Page::default()
    }
}

/// Sources of the machines' tables; machines that differ in nothing but their size, once.
fn sources(machines: &[Platform]) -> Vec<(String, Vec<String>)> {
    distinct(machines.iter().map(|machine| (machine.name.clone(), machine.sources.clone())))
}

/// Response times at the quantile that a goal names, or the 99th percentile.
struct Tail {
    figure: Figure,
    name: String,
    limit: Option<report::figures::Limit>,
}

fn tail(goal: Option<&Goal>) -> Tail {
    let asked = goal.and_then(|goal| Some((Quantity::of(*goal)?.to_string(), goal)));
    let Some((name, goal)) = asked else {
        return Tail { figure: Figure::Plain("p99"), name: "p99".to_owned(), limit: None };
    };
    // The one of the usual figures whose name has no point in it.
    let figure = if name == "p99.9" { "p999" } else { name.as_str() };
    let limit = report::figures::Limit::level(
        format!("goal: {name} of at most {}", goal.latency),
        goal.latency.as_nanos() as f64,
    );
    // A name that is no usual figure is a percentile all the same.
    let figure = figure.parse().unwrap_or_else(|_| Figure::Percentile(name.clone()));
    Tail { figure, name, limit: Some(limit) }
}
