//! `report.html` of fleets.

use super::super::page::{Facts, head};
use report::figures::{
    Bar, BarPart, Bars, Card, Form, Limit, Lines, Page, Part, Point, Quantity, Row, Section, Style, Table,
    Tone, Unit,
};
use sim::fleet::{FleetOutcome, Point as Stretch};
use sim::outcome::{Estimate, Responses, Verdict};
use study::fleet::{Entry, FleetResults, TIMES};

/// The page of `roost sim fleet`.
pub fn page(facts: &Facts, results: &FleetResults) -> Page {
    let fleets: Vec<&FleetOutcome> = results.fleets.iter().map(|fleet| &fleet.outcome).collect();
    let stable: Vec<&FleetOutcome> =
        fleets.iter().copied().filter(|fleet| fleet.verdict != Verdict::Unstable).collect();
    let mut page = head(facts);
    page.notes.push(
        "The root answers when the slowest leaf that it asked has answered. One leaf's times are \
         those of one of the leaves that each request asked, drawn evenly."
            .to_owned(),
    );
    page.summary = summary(&stable);
    page.alarms.extend(fleets.iter().filter_map(|fleet| alarm(fleet)));
    page.cards = results.fleets.iter().flat_map(cards).collect();
    page.sections = vec![tail(facts, &stable), power(&stable), course(facts, &stable)];
    page
}

fn text(unit: Unit, found: Option<Estimate>) -> String {
    found.map_or_else(|| "-".to_owned(), |found| unit.text_with(found.value, found.half_width))
}

fn p99(times: Option<&Responses>) -> Option<Estimate> {
    times.and_then(|times| times.p99_ns)
}

fn summary(fleets: &[&FleetOutcome]) -> String {
    let told = |fleet: &&FleetOutcome| {
        format!(
            "{}: {} servers{}, each request asks {}. The p99 is {} at one leaf and {} at the root; \
             the servers draw {} together.",
            fleet.contestant,
            fleet.servers,
            fleet.sample.map_or_else(String::new, |sample| format!(" ({} are simulated)", sample.servers)),
            fleet.fanout,
            text(Unit::Nanoseconds, p99(fleet.leaf())),
            text(Unit::Nanoseconds, p99(fleet.root())),
            Unit::Watts.text(fleet.power.server_watts),
        )
    };
    if fleets.is_empty() {
        return "No fleet has figures: more requests arrived than its servers could serve.".to_owned();
    }
    fleets.iter().map(told).collect::<Vec<_>>().join(" ")
}

fn alarm(fleet: &FleetOutcome) -> Option<String> {
    let unstable: u32 = fleet.groups.iter().map(|group| group.unstable).sum();
    match fleet.verdict {
        Verdict::Unstable => Some(format!(
            "{}: unstable. More arrives at {unstable} of {} servers than they can serve, so no \
             figure would mean anything.",
            fleet.contestant, fleet.servers
        )),
        Verdict::Unsettled => Some(format!(
            "{}: response times still changed in the middle of the run. Too few requests for intervals: run.requests.",
            fleet.contestant
        )),
        Verdict::Complete | Verdict::Precise | Verdict::Imprecise => None,
    }
}

fn cards(entry: &Entry) -> Vec<Card> {
    let fleet = &entry.outcome;
    let remark = match &entry.goal {
        Some(goal) => format!("{}, goal {}", fleet.contestant, goal.goal),
        None => fleet.contestant.clone(),
    };
    let time = p99(fleet.root()).map_or_else(|| "-".to_owned(), |found| Unit::Nanoseconds.text(found.value));
    let met = entry.goal.as_ref().and_then(|goal| goal.met);
    vec![
        Card::new("p99 of the root", time, remark).judged(met),
        Card::new(
            "energy per request, all servers",
            Unit::Joules.text(fleet.power.joules_per_request),
            fleet.contestant.clone(),
        ),
    ]
}

/// Where a goal is one on this quantile.
fn limit(facts: &Facts, quantile: f64) -> Option<Limit> {
    let goal = facts.goal.as_ref().filter(|goal| (goal.quantile - quantile).abs() < 1e-9)?;
    Some(Limit::level(format!("goal: {goal}"), goal.latency.as_nanos() as f64))
}

/// The cost of waiting for more leaves.
fn tail(facts: &Facts, fleets: &[&FleetOutcome]) -> Section {
    let figure = |title: &str, quantile: f64, of: fn(&Responses) -> Option<Estimate>| {
        let x = Quantity::new("leaves waited for", Unit::Count).log();
        let see =
            "Response time of who waits for the slowest of so many leaves, at the same load of every leaf.";
        let y = Quantity::new(title, Unit::Nanoseconds).log();
        let mut lines = Lines { limit: limit(facts, quantile), ..Lines::new(title, see, x, y) };
        for fleet in fleets {
            let points = fleet.waited.iter().map(|waited| {
                let found = of(&waited.responses);
                Point {
                    x: f64::from(waited.leaves),
                    y: found.map(|found| found.value),
                    spread: found.and_then(|found| found.half_width),
                    spread_x: None,
                }
            });
            lines.add(fleet.contestant.clone(), Style::Line, points);
        }
        lines.part()
    };
    let rows = fleets.iter().enumerate().flat_map(|(place, fleet)| {
        fleet.waited.iter().map(move |waited| Row {
            name: fleet.contestant.clone(),
            remark: format!("slowest of {}", waited.leaves),
            cells: TIMES.iter().map(|(_, of)| text(Unit::Nanoseconds, of(&waited.responses))).collect(),
            look: Some(place),
        })
    });
    let head = std::iter::once("").chain(TIMES.iter().map(|(name, _)| *name)).map(str::to_owned);
    let table = Table::new("", head, rows);
    Section::new(
        "The tail at scale",
        "The more leaves a request waits for, the likelier one of them is slow: what is \
         rare at one leaf is common at the root.",
        vec![
            figure("p99", 0.99, |times| times.p99_ns),
            figure("median", 0.5, |times| times.p50_ns),
            Part::Table(table),
        ],
    )
}

/// The power that each part draws.
fn power(fleets: &[&FleetOutcome]) -> Section {
    let part = |place: usize, name: &str, of: fn(&sim::outcome::Power) -> f64| {
        let values = fleets.iter().map(|fleet| Some(Bar::new(of(&fleet.power))));
        BarPart::new(name, Tone::Contestant(place), values)
    };
    let bars = Bars {
        title: "Power".to_owned(),
        see: "Mean over the run, all servers together, modelled.".to_owned(),
        quantity: Quantity::new("power", Unit::Watts),
        rows: fleets.iter().map(|fleet| fleet.contestant.clone()).collect(),
        parts: vec![
            part(0, "cores", |power| power.cores_watts),
            part(1, "uncore", |power| power.uncore_watts),
            part(2, "rest of the servers", |power| power.rest_watts),
        ],
        form: Form::Stacked,
    };
    let rows = fleets.iter().enumerate().flat_map(|(place, fleet)| {
        fleet.groups.iter().map(move |group| Row {
            name: fleet.contestant.clone(),
            remark: group.policies.clone(),
            cells: vec![
                group.servers.to_string(),
                text(Unit::Nanoseconds, group.responses.p50_ns),
                text(Unit::Nanoseconds, group.responses.p99_ns),
                Unit::Watts.text_with(group.power.cpu_watts, group.power.cpu_half_width_watts),
                Unit::Watts.text(group.power.server_watts),
                Unit::Joules.text(group.power.joules_per_request),
                Unit::Count.text(group.awake),
                Unit::Share.text(group.working),
            ],
            look: Some(place),
        })
    });
    let head = [
        "",
        "servers",
        "p50 of one",
        "p99 of one",
        "cores and uncore",
        "all",
        "per leaf's request",
        "awake",
        "working",
    ];
    let table = Table::new("", head, rows);
    Section::new("Servers by policies", "", vec![bars.part(), Part::Table(table)])
}

fn course(facts: &Facts, fleets: &[&FleetOutcome]) -> Section {
    let over = |title: &str, see: &str, y: Quantity, of: &dyn Fn(&Stretch) -> Option<f64>| {
        let mut lines = Lines::new(title, see, Quantity::new("simulated time", Unit::Seconds), y);
        for fleet in fleets {
            lines.add(fleet.contestant.clone(), Style::Line, points(fleet, of));
        }
        lines
    };
    let rate = Quantity::new("requests", Unit::PerSecond);
    let time = Quantity::new("p99", Unit::Nanoseconds).log();
    let watts = || Quantity::new("power of cores and uncore", Unit::Watts);
    let tail = over("The root's tail", "p99 of each stretch of time, coarsely.", time, &|point| point.p99_ns);
    let mut figures: Vec<Part> = vec![
        over("Load", "Requests that came to the root.", rate, &|point| Some(point.rate)).part(),
        Lines { limit: limit(facts, 0.99), ..tail }.part(),
        over("Power", "All servers together, modelled.", watts(), &|point| Some(point.cpu_watts)).part(),
    ];
    for fleet in fleets.iter().filter(|fleet| fleet.groups.len() > 1) {
        let title = format!("Power by policies: {}", fleet.contestant);
        let x = Quantity::new("simulated time", Unit::Seconds);
        let mut lines = Lines::new(&title, "Mean of one server under each.", x, watts());
        for (place, group) in fleet.groups.iter().enumerate() {
            let of = |point: &Stretch| {
                point.group_cpu_watts.get(place).map(|watts| watts / f64::from(group.servers.max(1)))
            };
            lines.add(group.policies.clone(), Style::Line, points(fleet, &of));
        }
        figures.push(lines.part());
    }
    Section::new("Over time", "", figures)
}

/// In the middle of each stretch.
fn points(fleet: &FleetOutcome, of: &dyn Fn(&Stretch) -> Option<f64>) -> Vec<Point> {
    let begins = std::iter::once(0.0).chain(fleet.points.iter().map(|point| point.until_s));
    let middles =
        fleet.points.iter().zip(begins).map(|(point, begin)| ((begin + point.until_s) / 2.0, point));
    middles.map(|(middle, point)| Point::new(middle, of(point))).collect()
}
