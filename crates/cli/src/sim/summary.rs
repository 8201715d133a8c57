//! The tables at the end of a run, the goals that were met or missed, and the foundations of all
//! figures.

use super::figures::Figure;
use super::paired;
use super::results::{Entry, Results};
use crate::table::{TIE, Table, wrap};
use report::distinct;
use report::figures::Unit;
use sim::outcome::Verdict;
use sim::statistics::Difference;
use std::fmt::Write as _;

/// The tables of one run: times, power, cores, sleeps, deadlines, and remarks.
pub fn of_run(results: &Results, columns: usize) -> String {
    let entries = &results.entries;
    let mut text = format!("{}\n{}\n", results.title, setting(results));
    let mut part = |heading: &str, table: Table| {
        if !table.is_empty() {
            let _ = write!(text, "\n{heading}\n{}", table.text());
        }
    };
    let mut figures = plain(&["mean", "p50", "p95", "p99", "p999"]);
    let all = Figure::of_all(entries.iter().map(|entry| &entry.outcome)).into_iter();
    figures.extend(all.filter(|figure| matches!(figure, Figure::Percentile(_))));
    let mut times = of_figures(entries, &figures);
    for entry in entries.iter().filter(|entry| !has_figures(entry)) {
        times.remark(entry.outcome.contestant.clone(), "unstable");
    }
    let heading = if results.is_trace {
        "response times; intervals are of the machine's noise only, since one trace is replayed"
    } else {
        "response times, with 95% intervals"
    };
    part(heading, times);
    let power = ["throughput", "core_watts", "cpu_watts", "server_watts", "joules_per_request"];
    let heading = format!("power, {}; cpu is cores and uncore", energy_sources(results));
    part(&heading, of_figures(entries, &plain(&power)));
    let heading = "floor: watts below which no policy keeps the goal, and how far above it each is";
    part(heading, floors(entries));
    let (heading, table) = differences(results);
    part(&heading, table);
    let heading = "cores: mean number awake, and shares of their time";
    part(heading, of_figures(entries, &residency(entries)));
    let heading = "sleeps: how often; shorter than worth it, long enough for a deeper state";
    part(heading, of_figures(entries, &plain(&["transitions_per_s", "premature", "missed_deep"])));
    part("missed deadlines", deadlines(entries));
    text.push_str(&verdicts(entries, columns));
    text
}

fn plain(names: &[&str]) -> Vec<Figure> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Shares of the cores' time; one that is zero for all is left out.
fn residency(entries: &[Entry]) -> Vec<Figure> {
    let mut figures = plain(&["awake_cores", "working", "waking", "polling"]);
    let all = Figure::of_all(entries.iter().map(|entry| &entry.outcome)).into_iter();
    figures.extend(all.filter(|figure| matches!(figure, Figure::Residency(_))));
    figures.extend(plain(&["package_asleep"]));
    let is_zero =
        |figure: &Figure, entry: &Entry| figure.of(&entry.outcome).is_none_or(|found| found.value == 0.0);
    figures.retain(|figure| !entries.iter().all(|entry| is_zero(figure, entry)));
    figures
}

/// The machines and how much was simulated, in a line.
fn setting(results: &Results) -> String {
    let machines = results.machines.iter().map(|machine| {
        let (sockets, cores, threads) = (machine.sockets, machine.cores_per_socket, machine.threads_per_core);
        format!("{}, {sockets} x {cores} cores x {threads}", machine.name)
    });
    let requests = results.entries.iter().map(|entry| entry.outcome.requests);
    let (least, most) = (requests.clone().min().unwrap_or(0), requests.max().unwrap_or(0));
    let requests =
        if least == most { grouped(most) } else { format!("{} to {}", grouped(least), grouped(most)) };
    format!("{}: {requests} requests each", machines.collect::<Vec<_>>().join("; "))
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

/// Some figures of all entries that have any.
fn of_figures(entries: &[Entry], figures: &[Figure]) -> Table {
    let header = std::iter::once(String::new()).chain(figures.iter().map(heading));
    let mut table = Table::new(1, header.collect());
    for Entry { outcome, .. } in entries.iter().filter(|entry| has_figures(entry)) {
        let texts = figures.iter().map(|figure| figure.text(outcome));
        table.row(std::iter::once(outcome.contestant.clone()).chain(texts).collect());
    }
    table
}

fn floors(entries: &[Entry]) -> Table {
    let head = ["", "cores", "above", "cpu", "above", "server", "above"];
    let mut table = Table::new(1, head.map(str::to_owned).to_vec());
    for Entry { outcome, floor, .. } in entries.iter().filter(|entry| has_figures(entry)) {
        let Some(floor) = floor else { continue };
        let power = &outcome.power;
        let both = [
            (floor.cores_watts, power.cores_watts),
            (floor.cpu_watts, power.cpu_watts),
            (floor.server_watts, power.server_watts),
        ];
        let cells = both.iter().flat_map(|&(least, found)| {
            [Unit::Watts.text(least), format!("{:+.1} %", (found / least - 1.0) * 100.0)]
        });
        table.row(std::iter::once(outcome.contestant.clone()).chain(cells).collect());
    }
    table
}

/// The figures of an unstable run mean nothing.
fn has_figures(entry: &Entry) -> bool {
    entry.outcome.verdict != Verdict::Unstable
}

/// A figure's name at the head of a column.
pub fn heading(figure: &Figure) -> String {
    let name = match figure {
        Figure::Plain(name) => name,
        Figure::Residency(state) => return state.clone(),
        other => return other.to_string(),
    };
    match *name {
        "throughput" => "served",
        "p999" => "p99.9",
        "core_watts" => "cores",
        "uncore_watts" => "uncore",
        "cpu_watts" => "cpu",
        "server_watts" => "server",
        "joules_per_request" => "per request",
        "awake_cores" => "awake",
        "active_cores" => "active",
        "package_asleep" => "package",
        "transitions_per_s" => "sleeps",
        "missed_deep" => "missed deep",
        name => name,
    }
    .to_owned()
}

/// The contestants against one of them: in percent of it, and below that in the figure's unit.
fn differences(results: &Results) -> (String, Table) {
    let compared = &results.differences;
    let reference = compared.first().map_or("", |one| one.against.as_str());
    let heading = format!(
        "against {reference}, on the same arrivals, services and noise; 95% intervals of {}",
        paired::basis(compared)
    );
    let is_shown = |figure: &&Figure| !matches!(figure, Figure::Plain("core_watts" | "server_watts"));
    let columns = distinct(compared.iter().map(|one| &one.figure).filter(is_shown));
    let header = std::iter::once(String::new()).chain(columns.iter().map(|figure| self::heading(figure)));
    let mut table = Table::new(1, header.collect());
    for Entry { outcome, .. } in &results.entries {
        let of = |figure: &Figure| {
            let mut found = compared.iter().filter(|one| one.contestant == outcome.contestant);
            found.find(|one| one.figure == *figure).map(|one| one.difference)
        };
        let row = |first: &str, text: &dyn Fn(&Figure, &Difference) -> String| {
            let cell =
                |figure: &&Figure| of(figure).map_or_else(|| "-".to_owned(), |found| text(figure, &found));
            std::iter::once(first.to_owned()).chain(columns.iter().map(cell)).collect()
        };
        if columns.iter().any(|figure| of(figure).is_some()) {
            table.row(row(&outcome.contestant, &|_, found| paired::relative_text(found)));
            table.row(row("", &|figure, found| paired::absolute_text(figure.unit(), found)));
        }
    }
    (heading, table)
}

/// Late answers, a column for each class that has a deadline.
fn deadlines(entries: &[Entry]) -> Table {
    let stable = || entries.iter().filter(|entry| has_figures(entry));
    let classes = stable().flat_map(|entry| &entry.outcome.classes).filter(|class| class.missed.is_some());
    let classes = distinct(classes.map(|class| class.name.as_str()));
    let header = std::iter::once("").chain(classes.iter().copied()).map(str::to_owned);
    let mut table = Table::new(1, header.collect());
    for entry in stable().filter(|_| !classes.is_empty()) {
        let late = classes.iter().map(|name| {
            let class = entry.outcome.classes.iter().find(|class| class.name == *name);
            let counts = class.and_then(|class| Some((class.missed?, class.requests)));
            counts.map_or_else(
                || "-".to_owned(),
                |(late, all)| format!("{} ({:.3}%)", grouped(late), late as f64 / all.max(1) as f64 * 100.0),
            )
        });
        table.row(std::iter::once(entry.outcome.contestant.clone()).chain(late).collect());
    }
    table
}

/// Goals, precision that was not reached, and queues that grew without end.
fn verdicts(entries: &[Entry], columns: usize) -> String {
    let mut text = String::new();
    let mut say = |first: &str, of: &dyn Fn(&Entry) -> bool, rest: &str| {
        let named = entries.iter().filter(|entry| of(entry)).map(|entry| &entry.outcome.contestant);
        let names: Vec<String> = named.map(|name| name.replace(' ', &TIE.to_string())).collect();
        if !names.is_empty() {
            wrap(&mut text, first, &format!("{}{rest}", names.join(", ")), columns);
        }
    };
    let ended = |verdict: Verdict| move |entry: &Entry| entry.outcome.verdict == verdict;
    say(
        "unstable: ",
        &ended(Verdict::Unstable),
        ": more arrives than can be served, so no figure would mean anything",
    );
    let rest = ": response times still changed in the middle of the run: too few requests for intervals (run.requests)";
    say("unsettled: ", &ended(Verdict::Unsettled), rest);
    let mut asked: Vec<String> =
        entries.iter().filter_map(|entry| Some(entry.precision?.to_string())).collect();
    asked.dedup();
    let rest = format!(": not {} with so many requests, or replications of a story", asked.join(", "));
    let is_known = |entry: &Entry| !matches!(entry.outcome.verdict, Verdict::Unstable | Verdict::Unsettled);
    say("imprecise: ", &|entry: &Entry| is_known(entry) && entry.misses_precision(), &rest);
    let mut goals: Vec<String> =
        entries.iter().filter_map(|entry| Some(entry.goal.as_ref()?.goal.to_string())).collect();
    goals.dedup();
    for goal in goals {
        for (word, met) in [("met", Some(true)), ("MISSED", Some(false)), ("not judged", None)] {
            let of = |entry: &Entry| {
                entry.goal.as_ref().is_some_and(|judged| judged.met == met && judged.goal.to_string() == goal)
            };
            say(&format!("goal {goal} {word}: "), &of, "");
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// Where the energy figures come from, each once.
fn energy_sources(results: &Results) -> String {
    distinct(results.entries.iter().map(|entry| entry.outcome.power.source.to_string())).join(", ")
}

/// The foundations of the figures: assumptions, ESTIMATEs, and the machine's sources. For the end.
pub fn foundations(results: &Results, columns: usize) -> String {
    let mut text = String::new();
    let mut list = |heading: &str, lines: &[String]| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{heading}");
            lines.iter().for_each(|line| wrap(&mut text, "- ", line, columns));
        }
    };
    list("assumed:", &results.assumptions);
    list("ESTIMATEs of papers/estimates.toml:", &results.estimates);
    for (at, machine) in results.machines.iter().enumerate() {
        // A sweep over a machine's size has many that rest on the same.
        let told = results.machines[..at].iter();
        if !told.clone().any(|other| other.name == machine.name && other.sources == machine.sources) {
            list(&format!("machine {}:", machine.name), &machine.sources);
        }
    }
    text
}
