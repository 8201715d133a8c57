//! A plan as tables in a terminal: the model's error first, then the candidates.

use super::results::{Document, Row};
use crate::table::{Table, wrap};
use report::figures::Unit;
use report::money::Year;
use sim::outcome::Estimate;

pub fn text(document: &Document, columns: usize) -> String {
    let mut text = String::new();
    for note in &document.notes {
        wrap(&mut text, "note: ", note, columns);
        text.push('\n');
    }
    text.push_str("the recorded run: model against measurement\n");
    text.push_str(&fidelity(document).text());
    text.push_str(&lengths(document));
    text.push_str(&format!("\npolicies at this load; power is {}\n", document.power_source));
    text.push_str(&candidates(&document.candidates).text());
    for load in &document.sensitivity {
        text.push_str(&format!("\nat {} times the load\n", load.load));
        text.push_str(&candidates(&load.candidates).text());
    }
    for sentence in &document.words {
        text.push('\n');
        wrap(&mut text, "", sentence, columns.max(40));
    }
    text.push('\n');
    text
}

fn fidelity(document: &Document) -> Table {
    let head = ["", "measured", "model", "error", "limit"];
    let mut table = Table::new(1, head.map(str::to_owned).to_vec());
    for row in &document.fidelity.rows {
        table.row([row.what.to_owned()].into_iter().chain(compared(row)).collect());
    }
    table
}

/// Measured, modelled, the error and its limit.
pub fn compared(row: &sim::plan::Compared) -> [String; 4] {
    let number = |value: Option<f64>| {
        value.map_or("-".to_owned(), |value| match row.unit {
            "us" => Unit::Nanoseconds.text(value * 1e3),
            "/s" => Unit::PerSecond.text(value),
            _ => format!("{value:.3}"),
        })
    };
    [
        number(row.measured),
        number(row.modelled),
        row.error.map_or("-".to_owned(), |error| format!("{:+.1} %", error * 100.0)),
        row.limit.map_or(String::new(), |limit| format!("{:.0} %", limit * 100.0)),
    ]
}

/// The idle lengths of both, by octaves, where they hold one percent of the time.
fn lengths(document: &Document) -> String {
    let known: Vec<_> = document.fidelity.idle_lengths.iter().collect();
    if known.is_empty() {
        return String::new();
    }
    let head = ["idle for", "measured", "model"];
    let mut table = Table::new(1, head.map(str::to_owned).to_vec());
    for row in known.into_iter().filter(|row| row.measured_share.max(row.modelled_share) >= 0.01) {
        let from = machine::Duration::from_nanos(row.from_ns);
        let to = machine::Duration::from_nanos(row.from_ns * 2);
        table.row(vec![
            format!("{from} to {to}"),
            format!("{:.1} %", row.measured_share * 100.0),
            format!("{:.1} %", row.modelled_share * 100.0),
        ]);
    }
    format!("\nshare of CPU time in idle periods of each length\n{}", table.text())
}

/// Money where there is a price, else carbon; the page and the JSON have both.
fn sum(year: Option<&Year>) -> String {
    let text = year.and_then(|year| year.money_text().or_else(|| year.carbon_text()));
    text.unwrap_or_else(|| "-".to_owned())
}

fn candidates(rows: &[Row]) -> Table {
    let has_years = rows.iter().any(|row| row.year.is_some());
    let mut head = vec!["", "p50", "p99", "CPU power", "server", "awake"];
    if has_years {
        head.extend(["a year", "saved"]);
    }
    head.push("goal");
    let mut table = Table::new(1, head.into_iter().map(str::to_owned).collect());
    for row in rows {
        let mark = if row.unable.is_some() { " *" } else { "" };
        if !row.is_stable {
            table.remark(format!("{}{mark}", row.name), "cannot serve this load");
            continue;
        }
        let time = |found: &Option<Estimate>| {
            found.map_or("-".to_owned(), |found| Unit::Nanoseconds.text_with(found.value, found.half_width))
        };
        let mut cells = vec![
            format!("{}{mark}", row.name),
            time(&row.p50_ns),
            time(&row.p99_ns),
            Unit::Watts.text_with(row.cpu_watts.value, row.cpu_watts.half_width),
            Unit::Watts.text(row.server_watts),
            format!("{:.2}", row.awake_cores),
        ];
        if has_years {
            cells.push(sum(row.year.as_ref()));
            cells.push(sum(row.saved_a_year.as_ref()));
        }
        cells.push(match row.keeps_goal {
            Some(true) => "kept".to_owned(),
            Some(false) => "missed".to_owned(),
            None => "-".to_owned(),
        });
        table.row(cells);
    }
    for row in rows {
        if let Some(why) = &row.unable {
            table.remark(format!("* {}", row.name), why);
        }
    }
    table
}
