//! The contestants against one of them: their differences, pair by pair.

use super::super::figures::Figure as Named;
use super::super::paired::{self, Compared};
use super::Tail;
use super::parts::unit;
use report::figures::{Lines, Part, Point, Quantity, Row, Section, Style, Table, Unit};
use sim::Outcome;
use sim::statistics::{Difference, Interval};

/// A map of power and tail against the reference, and the differences themselves; nothing where no
/// run has pairs.
pub(super) fn section(tail: &Tail, outcomes: &[Outcome], compared: &[Compared]) -> Option<Section> {
    let reference = &compared.first()?.against;
    let text = format!(
        "All contestants had the same arrivals, services and noise, so a congested spell lengthens \
         the answers of all of them. These are the differences, pair by pair ({}), with their 95 % \
         confidence intervals, in percent of {reference}.",
        paired::basis(compared)
    );
    let map = map(tail, outcomes, compared, reference);
    let parts = map.into_iter().chain([Part::Table(table(tail, outcomes, compared, reference))]);
    Some(Section { title: format!("Against {reference}, in pairs"), text, parts: parts.collect() })
}

fn found<'a>(compared: &'a [Compared], contestant: &str, figure: &Named) -> Option<&'a Difference> {
    let mut of = compared.iter().filter(|one| one.contestant == contestant && one.figure == *figure);
    of.next().map(|one| &one.difference)
}

fn map(tail: &Tail, outcomes: &[Outcome], compared: &[Compared], reference: &str) -> Option<Part> {
    let axis = |name: &str| Quantity::new(&format!("{name} against {reference}"), Unit::Share).linear();
    let see = "Left of zero costs less, below zero answers faster. A bar that crosses zero is no difference \
               that the run can tell.";
    let mut lines = Lines::new("Power and tail, in pairs", see, axis("power"), axis(&tail.name));
    lines.limit = Some(report::figures::Limit::level(format!("as {reference}"), 0.0));
    let nothing = Interval { estimate: 0.0, half_width: 0.0 };
    for Outcome { contestant, .. } in outcomes {
        let share = |figure: &Named| {
            if contestant == reference {
                Some(nothing)
            } else {
                found(compared, contestant, figure)?.relative
            }
        };
        let point = share(&Named::Plain("cpu_watts")).zip(share(&tail.figure)).map(|(power, time)| Point {
            x: power.estimate,
            y: Some(time.estimate),
            spread: Some(time.half_width),
            spread_x: Some(power.half_width),
        });
        // Without a point too: the colours are those of the other figures.
        lines.add(contestant.clone(), Style::Marks, point);
    }
    let drawn = lines.series.iter().filter(|series| !series.points.is_empty()).count();
    (drawn > 1).then(|| lines.part())
}

/// Heads of the table, and the figures below them.
const COLUMNS: [(&str, &str); 6] = [
    ("power", "cpu_watts"),
    ("mean", "mean"),
    ("p50", "p50"),
    ("p95", "p95"),
    ("p99", "p99"),
    ("p99.9", "p999"),
];

fn table(tail: &Tail, outcomes: &[Outcome], compared: &[Compared], reference: &str) -> Table {
    let mut columns: Vec<(&str, Named)> =
        COLUMNS.into_iter().map(|(head, name)| (head, Named::Plain(name))).collect();
    if !columns.iter().any(|(_, figure)| *figure == tail.figure) {
        columns.push((&tail.name, tail.figure.clone()));
    }
    columns.retain(|(_, figure)| compared.iter().any(|one| one.figure == *figure));
    let cell = |contestant: &str, figure: &Named| {
        let Some(found) = found(compared, contestant, figure) else { return "-".to_owned() };
        let share = paired::relative_text(found).replace('%', " %");
        format!("{share} ({})", absolute_text(unit(figure.unit()), found.absolute.estimate))
    };
    let others = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.contestant != reference);
    let rows = others.map(|(place, outcome)| Row {
        name: outcome.contestant.clone(),
        remark: String::new(),
        cells: columns.iter().map(|(_, figure)| cell(&outcome.contestant, figure)).collect(),
        look: Some(place),
    });
    let head = std::iter::once(String::new()).chain(columns.iter().map(|(head, _)| (*head).to_owned()));
    Table::new(format!("Difference from {reference}"), head, rows)
}

fn absolute_text(unit: Unit, estimate: f64) -> String {
    let sign = if estimate > 0.0 { "+" } else { "" };
    format!("{sign}{}", unit.text(estimate))
}
