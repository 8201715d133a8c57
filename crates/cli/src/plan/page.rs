//! `report.html` of a plan: power against the tail, the error of the model, the loads.

use super::results::{Document, Row};
use super::simulate::Plan;
use super::table::compared;
use report::figures::{
    Basis, Bucket, Card, Lengths, Limit, Lines, Page, Part, Point, Quantity, Row as Line, Section, Style,
    Table, Unit,
};
use report::run::RunInfo;

pub const METHOD: [&str; 4] = [
    "The scenario is made from the recording; docs/plan.md has each formula and its source.",
    "Response times and power are simulated, with 95 % intervals from one long run. Response times \
     are the service's own: from a request that is ready at its socket to its reply.",
    "Power is modelled with the table of the processor, or of one like it. No meter was read.",
    "A policy that this machine cannot carry out is marked with a star, and is never the best.",
];

pub fn page(info: &RunInfo, document: &Document, plan: &Plan) -> Page {
    let mut page = Page::of(info);
    page.basis = Some(Basis::Modelled);
    page.summary = document.words.join(" ");
    page.alarms = document.notes.clone();
    page.alarms.extend(document.fidelity.reasons.iter().cloned());
    page.cards = cards(document);
    page.sections = vec![trade_off(document), fidelity(document, plan), sensitivity(document)];
    page
}

fn cards(document: &Document) -> Vec<Card> {
    let chosen = document.best.as_ref().or(document.nearest.as_ref());
    let rows = [document.candidates.first(), chosen.and_then(|name| row(document, name))];
    let card = |(what, row): (&str, &Row)| {
        let p99 = row.p99_ns.map_or("-".to_owned(), |p99| Unit::Nanoseconds.text(p99.value));
        Card::new(what, Unit::Watts.text(row.server_watts), format!("{}, p99 {p99}", row.name))
            .judged(row.keeps_goal)
    };
    let names = ["now", if document.best.is_some() { "best within the goal" } else { "nearest to the goal" }];
    names.into_iter().zip(rows).filter_map(|(name, row)| Some(card((name, row?)))).collect()
}

fn row<'a>(document: &'a Document, name: &str) -> Option<&'a Row> {
    document.candidates.iter().find(|row| row.name == name)
}

fn goal(document: &Document) -> Option<Limit> {
    let goal = document.goal?;
    // The axis is the p99; a goal at another percentile is no line there.
    ((goal.quantile - 0.99).abs() < 1e-9)
        .then(|| Limit::level(format!("goal {goal}"), goal.latency.as_nanos() as f64))
}

fn trade_off(document: &Document) -> Section {
    let x = Quantity::new("power of the server", Unit::Watts).linear();
    let y = Quantity::new("p99", Unit::Nanoseconds);
    let see = "Each policy at this load. Left is less power, below the line is within the goal.";
    let mut lines = Lines::new("Power against the tail", see, x, y);
    lines.limit = goal(document);
    for row in document.candidates.iter().filter(|row| row.is_stable) {
        let mut point = Point::new(row.server_watts, row.p99_ns.map(|p99| p99.value));
        point.spread = row.p99_ns.and_then(|p99| p99.half_width);
        point.spread_x = row.cpu_watts.half_width;
        lines.add(starred(row), Style::Marks, [point]);
    }
    let parts = vec![lines.part(), table(&document.candidates).part()];
    Section::new("Power against the tail", "", parts)
}

fn starred(row: &Row) -> String {
    format!("{}{}", row.name, if row.unable.is_some() { " *" } else { "" })
}

fn table(rows: &[Row]) -> Table {
    let head = ["policy", "p50", "p99", "CPU power", "server power", "awake cores", "a year", "saved a year"];
    let time = |found: Option<sim::outcome::Estimate>| {
        found.map_or("-".to_owned(), |found| Unit::Nanoseconds.text_with(found.value, found.half_width))
    };
    let line = |row: &Row| Line {
        name: starred(row),
        remark: match (&row.unable, row.is_stable) {
            (Some(why), _) => why.clone(),
            (None, false) => "cannot serve this load".to_owned(),
            (None, true) => row.line.clone().unwrap_or_else(|| "as it is now".to_owned()),
        },
        cells: vec![
            time(row.p50_ns),
            time(row.p99_ns),
            Unit::Watts.text_with(row.cpu_watts.value, row.cpu_watts.half_width),
            Unit::Watts.text(row.server_watts),
            format!("{:.2}", row.awake_cores),
            row.year.as_ref().map_or("-".to_owned(), ToString::to_string),
            row.saved_a_year.as_ref().map_or("-".to_owned(), ToString::to_string),
        ],
        look: None,
    };
    Table::new("Every policy", head, rows.iter().map(line))
}

fn fidelity(document: &Document, plan: &Plan) -> Section {
    let head = ["", "measured", "model", "error", "limit"];
    let rows = document.fidelity.rows.iter().map(|row| Line::new(row.what, compared(row)));
    let table = Table::new("Model against measurement", head, rows);
    let buckets = |share: fn(&sim::plan::fidelity::IdleLength) -> f64| -> Vec<Bucket> {
        let bucket = |row: &sim::plan::fidelity::IdleLength| Bucket {
            from_ns: row.from_ns as f64,
            to_ns: row.from_ns as f64 * 2.0,
            share: share(row),
        };
        plan.fidelity.idle_lengths.iter().map(bucket).collect()
    };
    let lengths = Lengths {
        title: "Idle periods by length".to_owned(),
        see: "The share of all CPU time in idle periods of each length, recorded and simulated.".to_owned(),
        of: "idle period".to_owned(),
        share_of: "all CPU time".to_owned(),
        series: vec![
            ("measured".to_owned(), buckets(|row| row.measured_share)),
            ("model".to_owned(), buckets(|row| row.modelled_share)),
        ],
    };
    let mut parts: Vec<Part> = vec![table.part()];
    if !plan.fidelity.idle_lengths.is_empty() {
        parts.push(lengths.part());
    }
    let text = "The recorded run itself, simulated: the model's error where the truth is known.";
    Section::new("How good the model is", text, parts)
}

fn sensitivity(document: &Document) -> Section {
    let x = Quantity::new("load, times the scenario's", Unit::Count);
    let y = Quantity::new("p99", Unit::Nanoseconds);
    let see = "A point that is missing cannot serve that load.";
    let mut tail = Lines::new("The tail by load", see, x.clone(), y);
    tail.limit = goal(document);
    let mut power =
        Lines::new("Power by load", see, x, Quantity::new("power of the server", Unit::Watts).linear());
    for (place, candidate) in document.candidates.iter().enumerate() {
        let mut loads: Vec<(f64, &Row)> = vec![(1.0, candidate)];
        loads.extend(
            document.sensitivity.iter().filter_map(|load| Some((load.load, load.candidates.get(place)?))),
        );
        loads.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let points = |value: fn(&Row) -> Option<f64>| {
            loads.iter().map(move |(load, row)| Point::new(*load, value(row)))
        };
        tail.add(starred(candidate), Style::Line, points(|row| row.p99_ns.map(|p99| p99.value)));
        let watts = points(|row| row.is_stable.then_some(row.server_watts));
        power.add(starred(candidate), Style::Line, watts);
    }
    Section::new("If the load changes", "", vec![tail.part(), power.part()])
}
