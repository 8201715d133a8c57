//! The tables at the end of a fleet's run.

use super::super::figures::Unit;
use crate::table::{Table, wrap};
use report::distinct;
use sim::fleet::FleetOutcome;
use sim::outcome::{Estimate, Power, Responses, Verdict};
use std::fmt::Write as _;
use study::fleet::{Entry, FleetResults, TIMES};

/// The tables: the root's response times, the cost of waiting for more leaves, power, servers by policies,
/// deadlines.
pub fn of_fleets(results: &FleetResults, columns: usize) -> String {
    let mut text = format!("{}\n{}\n", results.title, setting(results));
    let mut part = |heading: &str, table: Table| {
        if !table.is_empty() {
            let _ = write!(text, "\n{heading}\n{}", table.text());
        }
    };
    let outcomes = || results.fleets.iter().map(|fleet| &fleet.outcome);
    let stable = || outcomes().filter(|outcome| outcome.verdict != Verdict::Unstable);
    let mut root = Table::new(1, heads(&[""], &TIMES.map(|(name, _)| name)));
    for outcome in outcomes() {
        match outcome.root().filter(|_| outcome.verdict != Verdict::Unstable) {
            Some(times) => root.row(row([outcome.contestant.clone()], times)),
            None => root.remark(outcome.contestant.clone(), "unstable"),
        }
    }
    let known = stable().any(|outcome| outcome.root().and_then(|times| times.mean_ns?.half_width).is_some());
    let hint =
        if known { "with 95% intervals" } else { "without intervals: a story needs run.replications = 10" };
    part(&format!("response times of the root, {hint}"), root);
    let mut tail = Table::new(1, heads(&["", "leaves"], &TIMES.map(|(name, _)| name)));
    for outcome in stable() {
        for (place, waited) in outcome.waited.iter().enumerate() {
            let name = if place == 0 { outcome.contestant.clone() } else { String::new() };
            tail.row(row([name, waited.leaves.to_string()], &waited.responses));
        }
    }
    part("the tail at scale: the slowest of so many leaves, at the same load of each", tail);
    let names = ["served", "cores", "cpu", "whole", "per request"];
    let mut power = Table::new(1, heads(&[""], &names));
    for outcome in stable() {
        let mut cells = vec![outcome.contestant.clone(), Unit::PerSecond.text(outcome.rate)];
        cells.extend(watts(&outcome.power));
        power.row(cells);
    }
    let source = outcomes().next().map_or_else(String::new, |outcome| outcome.power.source.to_string());
    part(&format!("power of all servers, {source}; cpu is cores and uncore, whole is everything"), power);
    part("servers by policies: response times of one, power of all", groups(stable()));
    part("missed deadlines, at the root", deadlines(stable()));
    text.push_str(&verdicts(results, columns));
    text
}

/// The numbers of servers and leaves, in a line.
fn setting(results: &FleetResults) -> String {
    let machines = results.machines.iter().map(|machine| {
        let (sockets, cores, threads) = (machine.sockets, machine.cores_per_socket, machine.threads_per_core);
        format!("{}, {sockets} x {cores} cores x {threads}", machine.name)
    });
    let mut text = machines.collect::<Vec<_>>().join("; ");
    let sizes = results.fleets.iter().map(|fleet| (fleet.outcome.servers, fleet.outcome.fanout));
    for (servers, fanout) in distinct(sizes) {
        let _ = write!(text, "; {servers} servers, each request asks {fanout}");
    }
    if let Some(Entry { outcome, .. }) = results.fleets.first() {
        let length = Unit::Nanoseconds.text(outcome.length_s * 1e9);
        let _ = write!(text, "; {} requests in {length}", outcome.requests);
        if outcome.replications > 1 {
            let _ = write!(text, ", {} times", outcome.replications);
        }
        if let Some(sample) = outcome.sample {
            let _ = write!(
                text,
                "; simulated: {} servers, {} of these requests",
                sample.servers, sample.requests
            );
        }
    }
    text
}

fn heads(words: &[&str], figures: &[&str]) -> Vec<String> {
    words.iter().chain(figures).map(|&head| head.to_owned()).collect()
}

fn row<const WORDS: usize>(words: [String; WORDS], times: &Responses) -> Vec<String> {
    words.into_iter().chain(TIMES.iter().map(|(_, of)| time(of(times)))).collect()
}

fn time(found: Option<Estimate>) -> String {
    found.map_or_else(|| "-".to_owned(), |found| Unit::Nanoseconds.estimate_text(&found))
}

fn watts(power: &Power) -> [String; 4] {
    let cpu = Estimate { value: power.cpu_watts, half_width: power.cpu_half_width_watts };
    [
        Unit::Watts.text(power.cores_watts),
        Unit::Watts.estimate_text(&cpu),
        Unit::Watts.text(power.server_watts),
        Unit::Joules.text(power.joules_per_request),
    ]
}

/// Nothing where all servers of every fleet have the same policies.
fn groups<'a>(outcomes: impl Iterator<Item = &'a FleetOutcome>) -> Table {
    let names = ["servers", "p50", "p99", "cores", "cpu", "whole", "per request", "awake", "working"];
    let mut table = Table::new(2, heads(&["", "policies"], &names));
    for outcome in outcomes.filter(|outcome| outcome.groups.len() > 1) {
        for (place, group) in outcome.groups.iter().enumerate() {
            let name = if place == 0 { outcome.contestant.clone() } else { String::new() };
            let mut cells = vec![name, group.policies.clone(), group.servers.to_string()];
            cells.extend([time(group.responses.p50_ns), time(group.responses.p99_ns)]);
            cells.extend(watts(&group.power));
            cells.extend([Unit::Count.text(group.awake), Unit::Share.text(group.working)]);
            table.row(cells);
        }
    }
    table
}

/// Late answers, a column for each class that has a deadline.
fn deadlines<'a>(outcomes: impl Iterator<Item = &'a FleetOutcome>) -> Table {
    let outcomes: Vec<&FleetOutcome> = outcomes.collect();
    let classes: Vec<&str> = outcomes.first().map_or_else(Vec::new, |outcome| {
        let due = outcome.classes.iter().filter(|class| class.missed.is_some());
        due.map(|class| class.name.as_str()).collect()
    });
    let mut table = Table::new(1, heads(&[""], &classes));
    if classes.is_empty() {
        return table;
    }
    for outcome in outcomes {
        let share = |name: &&str| {
            let class = outcome.classes.iter().find(|class| class.name == **name);
            let missed = class.and_then(|class| Some(class.missed? as f64 / class.requests.max(1) as f64));
            missed.map_or_else(|| "-".to_owned(), |share| Unit::Share.text(share))
        };
        table.row(std::iter::once(outcome.contestant.clone()).chain(classes.iter().map(share)).collect());
    }
    table
}

/// Servers that cannot keep up, runs that did not settle, goals.
fn verdicts(results: &FleetResults, columns: usize) -> String {
    let mut text = String::new();
    for Entry { goal, outcome } in &results.fleets {
        let name = &outcome.contestant;
        match outcome.verdict {
            Verdict::Unstable => {
                let of = |group: &sim::fleet::Group| {
                    format!("{} of {} servers under {}", group.unstable, group.servers, group.policies)
                };
                let unstable = outcome.groups.iter().filter(|group| group.unstable > 0).map(of);
                let who = unstable.collect::<Vec<_>>().join(", ");
                let line = format!("{name}: more arrives than {who} can serve; figures would mean nothing");
                wrap(&mut text, "unstable: ", &line, columns);
            }
            Verdict::Unsettled => {
                let line = format!(
                    "{name}: response times still changed in the middle of {} requests: no intervals",
                    outcome.requests
                );
                wrap(&mut text, "unsettled: ", &line, columns);
            }
            Verdict::Complete | Verdict::Precise | Verdict::Imprecise => {}
        }
        if let Some(goal) = goal.as_ref().filter(|_| outcome.verdict != Verdict::Unstable) {
            let (word, rest) = match goal.met {
                Some(true) => ("met: ", String::new()),
                Some(false) => ("missed: ", String::new()),
                None => ("goal: ", ", which is not known".to_owned()),
            };
            let line = format!("{name}: {} at the root, goal {}{rest}", time(goal.found_ns), goal.goal);
            wrap(&mut text, word, &line, columns);
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}
