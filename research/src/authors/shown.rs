//! The comparison as a table, as a document and as a page.

use super::Role;
use super::validated::{Compared, Judged, Pair, Validation};
use anyhow::Result;
use report::figures::{
    Basis, Card, Lines, Page, Part, Point, Quantity, Row, Section, Series, Style, Table, Unit,
};
use report::table;
use std::collections::BTreeMap;

pub fn validation_json(validation: &Validation) -> Result<String> {
    Ok(serde_json::to_string_pretty(validation)? + "\n")
}

const HEAD: [&str; 11] = [
    "run",
    "W measured",
    "predicted",
    "error %",
    "spread %",
    "p99 ms measured",
    "predicted",
    "error %",
    "spread %",
    "clocks off %",
    "role",
];

pub fn validation_text(validation: &Validation) -> String {
    let mut table = table::Table::new(1, HEAD.map(str::to_owned).to_vec());
    for run in &validation.runs {
        let mut cells = vec![run.run.clone()];
        cells.extend(cells_of(run));
        table.row(cells);
    }
    for (run, why) in &validation.left_out {
        table.remark(run.clone(), &format!("left out: {why}"));
    }
    format!("{}\n{}", table.text(), verdicts(validation).join("\n") + "\n")
}

fn cells_of(run: &Compared) -> Vec<String> {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let signed = |share: f64| format!("{:+.1}", share * 100.0);
    let pair = |pair: &Pair, scale: f64, digits: usize| {
        [
            format!("{:.digits$}", pair.measured * scale),
            format!("{:.digits$}", pair.predicted * scale),
            signed(pair.error),
            percent(pair.spread),
        ]
    };
    let mut cells = pair(&run.power, 1.0, 1).to_vec();
    cells.extend(pair(&run.p99, 1e3, 0));
    cells.push(percent(run.clocks_off));
    cells.push(super::list::role(run.role).to_owned());
    cells
}

fn verdicts(validation: &Validation) -> Vec<String> {
    let line = |what: &str, judged: &Judged| {
        format!(
            "{what}: median error {:.1} % (bar {:.0} %), 90th percentile {:.1} % (bar {:.0} %): {}; without \
             the spread of replicates {:.1} % and {:.1} %",
            judged.median * 100.0,
            judged.median_bar * 100.0,
            judged.ninetieth * 100.0,
            judged.ninetieth_bar * 100.0,
            if judged.is_met() { "met" } else { "not met" },
            judged.raw_median * 100.0,
            judged.raw_ninetieth * 100.0,
        )
    };
    let judged = validation.judged_runs().count();
    let role = match validation.judged {
        Role::Baseline => "baselines",
        Role::HeldOut => "runs held out",
    };
    vec![
        format!("{judged} {role}, {} left out by the rule", validation.left_out.len()),
        line("power", &validation.power),
        line("p99", &validation.p99),
    ]
}

/// A page that stands by itself: measured against predicted, a mark a run, and all numbers.
pub fn validation_page(validation: &Validation, started: &str) -> Page {
    let verdicts = verdicts(validation);
    let card = |what: &str, judged: &Judged| Card {
        what: format!("{what}: median error"),
        figure: format!("{:.1} %", judged.median * 100.0),
        remark: format!(
            "bar {:.0} %; 90th percentile {:.1} %, bar {:.0} %",
            judged.median_bar * 100.0,
            judged.ninetieth * 100.0,
            judged.ninetieth_bar * 100.0
        ),
        met: Some(judged.is_met()),
    };
    let mut table =
        Table { title: "Each run".to_owned(), head: HEAD.map(str::to_owned).to_vec(), rows: Vec::new() };
    for run in &validation.runs {
        let name = run.run.clone();
        table.rows.push(Row { name, cells: cells_of(run), ..Row::default() });
    }
    let left_out: Vec<String> =
        validation.left_out.iter().map(|(run, why)| format!("{run} ({why})")).collect();
    Page {
        name: "validation".to_owned(),
        title: "Runs of the Hurry-up authors, simulated".to_owned(),
        summary: format!(
            "Each run is simulated from its own arrivals and numbers of keywords. {}.",
            verdicts.join(". ")
        ),
        facts: vec![started.to_owned(), format!("Roost {}", env!("CARGO_PKG_VERSION"))],
        basis: Some(Basis::Modelled),
        cards: vec![card("power", &validation.power), card("p99", &validation.p99)],
        sections: vec![
            Section {
                title: "Measured against predicted".to_owned(),
                text:
                    "A mark is a run; on the line both are equal, and the dashed lines are 5 % of power and \
                       10 % of p99 to either side."
                        .to_owned(),
                parts: vec![
                    Part::Lines(scatter(validation, "Power of the package", Unit::Watts, 0.05, |run| {
                        run.power
                    })),
                    Part::Lines(scatter(validation, "99th percentile", Unit::Seconds, 0.10, |run| run.p99)),
                ],
            },
            Section {
                title: "All of them".to_owned(),
                parts: vec![Part::Table(table)],
                ..Section::default()
            },
        ],
        notes: vec![
            "Of a run that is held out only arrivals and keywords enter. All constants come from baselines: \
             src/authors/constants.toml, by `roost-papers calibrate`."
                .to_owned(),
            format!("Left out by the rule: {}.", left_out.join(", ")),
        ],
        command: report::run_folder::command(),
        ..Page::default()
    }
}

fn scatter(
    validation: &Validation,
    title: &str,
    unit: Unit,
    band: f64,
    pair: fn(&Compared) -> Pair,
) -> Lines {
    let measured = Quantity { basis: Some(Basis::Measured), ..Quantity::new("measured", unit) };
    let see = "Marks near the line are predictions that hold.";
    let mut lines = Lines::new(title, see, measured.linear(), Quantity::new("predicted", unit).linear());
    let mut groups: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    for run in validation.judged_runs() {
        let name = run.run.split('/').next().unwrap_or_default();
        let pair = pair(run);
        groups.entry(name).or_default().push(Point::new(pair.measured, Some(pair.predicted)));
    }
    for (name, points) in groups {
        lines.series.push(Series { name: name.to_owned(), style: Style::Marks, points });
    }
    let all = || validation.judged_runs().map(|run| pair(run).measured);
    let (least, greatest) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    for (name, factor) in [
        ("equal".to_owned(), 1.0),
        (format!("+{:.0} %", band * 100.0), 1.0 + band),
        (format!("-{:.0} %", band * 100.0), 1.0 - band),
    ] {
        let points = [least, greatest].map(|x| Point::new(x, Some(x * factor))).to_vec();
        lines.series.push(Series { name, style: Style::Line, points });
    }
    lines
}
