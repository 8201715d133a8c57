//! What a person reads at the end: columns as wide as their widest cell, a contestant a row.

use super::figures::{Figure, Unit};
use super::results::{Entry, Results};
use sim::outcome::Verdict;
use std::fmt::Write as _;

/// Rows under a header. Names stand to the left, figures to the right.
pub struct Table {
    rows: Vec<Row>,
    /// Leading columns of words.
    words: usize,
}

enum Row {
    Cells(Vec<String>),
    /// A name, and a sentence where the figures would be.
    Remark(String, String),
}

/// A first cell longer than this has a line of its own.
const NAME_CHARS: usize = 24;

impl Table {
    /// A table with this header, of which the first `words` columns hold words.
    pub fn new(words: usize, header: Vec<String>) -> Self {
        Self { rows: vec![Row::Cells(header)], words }
    }

    /// A row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(Row::Cells(cells));
    }

    /// A row without figures.
    pub fn remark(&mut self, name: String, remark: &str) {
        self.rows.push(Row::Remark(name, remark.to_owned()));
    }

    /// The whole table.
    pub fn text(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            let cells = match row {
                Row::Cells(cells) => &cells[..],
                Row::Remark(name, _) => std::slice::from_ref(name),
            };
            for (column, cell) in cells.iter().enumerate() {
                let chars = cell.chars().count();
                let width = if column == 0 && chars > NAME_CHARS { 0 } else { chars };
                match widths.get_mut(column) {
                    Some(known) => *known = (*known).max(width),
                    None => widths.push(width),
                }
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let line = match row {
                Row::Cells(cells) => self.line(cells, &widths, &mut text),
                Row::Remark(name, remark) => format!("{name:<width$}  {remark}", width = widths[0]),
            };
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize], text: &mut String) -> String {
        let mut line = String::new();
        for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = if column == 0 && cell.chars().count() > width {
                writeln!(text, "{cell}").and_then(|()| write!(line, "{:width$}", ""))
            } else if column < self.words {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        line
    }
}

/// The tables of one run: times, power, residency, and what else there is to say.
pub fn of_run(results: &Results) -> String {
    let mut text = format!("{}\n", results.title);
    let mut part = |heading: &str, table: String| {
        let _ = write!(text, "\n{heading}\n{table}");
    };
    part(
        "response times, with 95% intervals",
        of_figures(&results.entries, &["mean", "p50", "p95", "p99", "p999"], false),
    );
    let power = ["throughput", "core_watts", "cpu_watts", "server_watts", "joules_per_request"];
    part(
        &format!("power, {}; cpu is cores and uncore", energy_sources(results)),
        of_figures(&results.entries, &power, false),
    );
    let rest = ["awake_cores", "working", "waking", "polling"];
    let mut figures: Vec<String> = rest.map(str::to_owned).to_vec();
    let all = Figure::of_all(results.entries.iter().map(|entry| &entry.outcome));
    figures.extend(all.iter().filter(|figure| matches!(figure, Figure::Residency(_))).map(Figure::to_string));
    figures.extend(["package_asleep".to_owned()]);
    let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
    part("cores: mean number awake, and shares of their time", of_figures(&results.entries, &figures, true));
    part(
        "sleeps: how often; shorter than worth it, long enough for a deeper state",
        of_figures(&results.entries, &["transitions_per_s", "premature", "missed_deep"], false),
    );
    if let Some(table) = deadlines(&results.entries) {
        part("deadlines", table);
    }
    let _ = write!(text, "{}", verdicts(&results.entries));
    text
}

/// Some figures of all entries. With `sparse`, a column without anything in it is left out.
fn of_figures(entries: &[Entry], names: &[&str], sparse: bool) -> String {
    let figures: Vec<Figure> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let nothing = |figure: &Figure| {
        entries.iter().all(|entry| figure.of(&entry.outcome).is_none_or(|found| found.value == 0.0))
    };
    let figures: Vec<Figure> = figures.into_iter().filter(|figure| !(sparse && nothing(figure))).collect();
    let header = std::iter::once(String::new()).chain(figures.iter().map(heading));
    let mut table = Table::new(1, header.collect());
    for entry in entries {
        let name = entry.outcome.contestant.clone();
        if entry.outcome.verdict == Verdict::Unstable {
            table.remark(name, "unstable");
            continue;
        }
        table.row(
            std::iter::once(name).chain(figures.iter().map(|figure| figure.text(&entry.outcome))).collect(),
        );
    }
    table.text()
}

/// A figure's name at the head of a column.
pub fn heading(figure: &Figure) -> String {
    let name = match figure {
        Figure::Plain(name) => name,
        Figure::Residency(state) => return state.clone(),
        other => return other.to_string(),
    };
    match *name {
        "throughput" => "requests",
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

/// Late answers by class; nothing if no class has a deadline.
fn deadlines(entries: &[Entry]) -> Option<String> {
    let mut table = Table::new(2, ["", "class", "requests", "missed", "share"].map(str::to_owned).to_vec());
    let mut any = false;
    for entry in entries.iter().filter(|entry| entry.outcome.verdict != Verdict::Unstable) {
        for class in &entry.outcome.classes {
            let Some(missed) = class.missed else { continue };
            any = true;
            let share = Unit::Share.text(missed as f64 / class.requests.max(1) as f64);
            let (requests, missed) = (class.requests.to_string(), missed.to_string());
            table.row(vec![entry.outcome.contestant.clone(), class.name.clone(), requests, missed, share]);
        }
    }
    any.then(|| table.text())
}

/// Goals, precision that was not reached, and queues that grew without end.
fn verdicts(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let name = &entry.outcome.contestant;
        match entry.outcome.verdict {
            Verdict::Unstable => {
                let _ = writeln!(
                    text,
                    "unstable: {name}: more arrives than it can serve; its figures would mean nothing"
                );
            }
            Verdict::Imprecise => {
                let asked = entry.precision.as_deref().unwrap_or_default();
                let requests = entry.outcome.requests;
                let _ = writeln!(text, "imprecise: {name}: {asked} was not reached with {requests} requests");
            }
            Verdict::Unsettled => {
                let requests = entry.outcome.requests;
                let _ = writeln!(
                    text,
                    "unsettled: {name}: response times still changed after half of {requests} requests: no intervals"
                );
            }
            Verdict::Complete | Verdict::Precise => {}
        }
        if let Some(goal) = &entry.goal {
            let word = match goal.met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "not judged",
            };
            let _ = writeln!(text, "{word}: {name}: {}, goal {}", goal.found, goal.goal);
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// Where the energy figures come from, each once.
fn energy_sources(results: &Results) -> String {
    let mut sources: Vec<String> = Vec::new();
    for entry in &results.entries {
        let source = entry.outcome.power.source.to_string();
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources.join(", ")
}

/// What the figures rest on: assumptions, ESTIMATEs, and the machine's sources. For the end.
pub fn foundations(results: &Results, columns: usize) -> String {
    let mut text = String::new();
    let mut list = |heading: &str, lines: &[String]| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{heading}");
            lines.iter().for_each(|line| wrap(&mut text, line, columns));
        }
    };
    list("assumed:", &results.assumptions);
    list("ESTIMATEs of papers/estimates.toml:", &results.estimates);
    for machine in &results.machines {
        list(&format!("machine {}:", machine.name), &machine.sources);
    }
    text
}

/// `line` as an entry of a list.
fn wrap(text: &mut String, line: &str, columns: usize) {
    let (mut mark, mut used) = ("- ", 0);
    for word in line.split_whitespace() {
        let chars = word.chars().count();
        if used == 0 || used + 1 + chars > columns {
            let newline = if used == 0 { "" } else { "\n" };
            let _ = write!(text, "{newline}{mark}{word}");
            (mark, used) = ("  ", 2 + chars);
        } else {
            let _ = write!(text, " {word}");
            used += 1 + chars;
        }
    }
    text.push('\n');
}

/// How wide standard output is: the terminal, or `COLUMNS`, or 100.
pub fn columns() -> usize {
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal =
        || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    named.or_else(terminal).filter(|&columns| columns >= 40).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn figures_stand_below_each_other_and_long_names_above_their_row() {
        let mut table = Table::new(1, cells(&["", "mean", "p99"]));
        table.row(cells(&["menu", "12.0us ±1.2%", "40us"]));
        table.row(cells(&["peafowl + menu-feedback + pegasus", "9us ±1%", "140us"]));
        table.remark("deep".into(), "unstable");
        let expected = "
              mean    p99
menu  12.0us ±1.2%   40us
peafowl + menu-feedback + pegasus
           9us ±1%  140us
deep  unstable
";
        assert_eq!(table.text(), expected[1..].to_owned());
    }

    #[test]
    fn long_sentences_are_wrapped_between_words() {
        let mut text = String::new();
        wrap(&mut text, "one two three four five", 12);
        assert_eq!(text, "- one two\n  three four\n  five\n");
    }
}
