//! The findings: the table, the page with its flame graph, and `hot.json`.

use super::energy::Energy;
use crate::run_folder::{self, REPORT};
use crate::table::{Table, columns, wrap};
use ::observe::hot::Pool;
use anyhow::Result;
use machine::{Duration, Ratio};
use policy::hot::Verdict;
use report::figures::{Card, Flame, Page, Part, Row as PageRow, Section, Table as PageTable};
use report::run::RunInfo;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Jvm,
    Native,
}

#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub service: String,
    pub pid: u32,
    pub kind: Kind,
    pub samples: u64,
    /// Requests a second while calls were counted.
    pub requests_per_s: Option<f64>,
    pub pools: Vec<Pool>,
    /// Best first.
    pub rows: Vec<Row>,
    /// The command that has the best one watched; `None` if none fits.
    pub option: Option<String>,
    pub notes: Vec<String>,
    /// By clock, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// Of the request threads, for the flame graph.
    #[serde(skip)]
    pub stacks: Vec<(Vec<String>, u64)>,
    /// Of all threads, for other tools.
    #[serde(skip)]
    pub collapsed: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// As people read it.
    pub function: String,
    /// The file with its code, of native ones.
    pub file: Option<String>,
    /// As the agent or the file calls it.
    pub symbol: Option<String>,
    /// Of the request threads' CPU time.
    pub share: Ratio,
    /// The same without callees.
    pub own: Ratio,
    /// Frames before it.
    pub depth: f64,
    /// Calls for each request.
    pub calls_per_request: Option<f64>,
    /// In the function, in the middle.
    pub p50: Option<Duration>,
    /// And in the tail.
    pub p99: Option<Duration>,
    /// Mean of those up to the middle.
    pub light: Option<Duration>,
    pub verdict: Verdict,
    /// Why it was not counted.
    pub why: Option<String>,
}

impl Found {
    pub fn is_found(&self) -> bool {
        self.option.is_some()
    }
}

const HEAD: [&str; 6] = ["function", "share", "calls/request", "p50", "p99", "verdict"];
const POOL_HEAD: [&str; 5] = ["threads", "at work", "CPU time", "read from sockets", "serve requests"];

fn cells(row: &Row) -> Vec<String> {
    let length = |length: Option<Duration>| length.map_or("-".to_owned(), |length| length.to_string());
    let calls = row.calls_per_request.map_or("-".to_owned(), |calls| format!("{calls:.2}"));
    vec![row.share.to_string(), calls, length(row.p50), length(row.p99), row.verdict.to_string()]
}

pub fn text(found: &Found) -> String {
    let mut text = String::new();
    let serving: Vec<String> = found
        .pools
        .iter()
        .filter(|pool| pool.serves)
        .map(|pool| format!("{} ({} of them, {} of the CPU time)", pool.name, pool.threads, pool.share))
        .collect();
    wrap(&mut text, "request threads: ", &serving.join(", "), columns());
    if let Some(rate) = found.requests_per_s {
        let _ = writeln!(text, "requests: {rate:.0}/s while calls were counted");
    }
    text.push('\n');
    let mut table = Table::new(1, HEAD.map(str::to_owned).to_vec());
    for row in &found.rows {
        table.row(std::iter::once(row.function.clone()).chain(cells(row)).collect());
    }
    text.push_str(&table.text());
    text.push('\n');
    for row in found.rows.iter().filter(|row| row.verdict == Verdict::NotCounted) {
        let why = row.why.as_deref().unwrap_or("requests were not seen");
        wrap(&mut text, "- ", &format!("{}: {why}", row.function), columns());
    }
    for note in &found.notes {
        wrap(&mut text, "- ", note, columns());
    }
    if let Some(energy) = &found.energy {
        text.push_str(&energy_text(energy));
    }
    match &found.option {
        Some(option) => {
            let _ = writeln!(text, "\n{option}");
        }
        None => text.push_str("no function is called once a request with most of the work in it\n"),
    }
    text
}

fn energy_text(energy: &Energy) -> String {
    let mut text = format!("\nenergy of a light request, {}:\n", energy.source);
    let (head, rows) = energy_rows(energy);
    let mut table = Table::new(1, head);
    rows.into_iter().for_each(|row| table.row(row));
    text.push_str(&table.text());
    if let Some(best) = energy.best {
        let _ = writeln!(text, "least energy at {best}");
    }
    for note in &energy.notes {
        wrap(&mut text, "- ", note, columns());
    }
    text
}

fn energy_rows(energy: &Energy) -> (Vec<String>, Vec<Vec<String>>) {
    let joules = |joules: f64| format!("{:.3} mJ", joules * 1e3);
    if energy.modelled.is_empty() {
        let row = |clock: &::observe::hot::ClockMeasured| {
            let figure = clock.joules.map(joules).or(clock.why.clone()).unwrap_or_default();
            vec![clock.frequency.to_string(), clock.requests.to_string(), figure]
        };
        let head = ["clock", "requests", "a request"].map(str::to_owned).to_vec();
        return (head, energy.measured.iter().map(row).collect());
    }
    let head = ["clock", "time", "even share of the uncore", "the uncore for it alone", ""]
        .map(str::to_owned)
        .to_vec();
    let row = |clock: &super::energy::Modelled| {
        let carries = if clock.alone.carries { "" } else { "too slow for this load" };
        vec![
            clock.alone.frequency.to_string(),
            clock.alone.time.to_string(),
            joules(clock.shared.joules),
            joules(clock.alone.joules),
            carries.to_owned(),
        ]
    };
    (head, energy.modelled.iter().map(row).collect())
}

/// Writes the run's folder, and returns where its page is.
pub fn write(out: Option<&Path>, found: &Found) -> Result<PathBuf> {
    let started = run_folder::started()?;
    let place = KIND.place(out, &started)?.make()?;
    // Until the page is there, an older one must not be taken for it.
    run_folder::clear(&place, &[])?;
    let json = serde_json::to_string_pretty(found)?;
    run_folder::write(&place, HOT, |file| writeln!(file, "{json}"))?;
    run_folder::write(&place, STACKS, |file| file.write_all(found.collapsed.as_bytes()))?;
    let info = RunInfo { name: run_folder::name_of(&place), ..KIND.info(started, title(found), &METHOD) };
    run_folder::write_info(&place, &info)?;
    run_folder::write_report(&place, &page(&info, found))?;
    Ok(place.join(REPORT))
}

fn title(found: &Found) -> String {
    format!("The hot function of {}", found.service)
}

fn page(info: &RunInfo, found: &Found) -> Page {
    let best = found.rows.first().filter(|_| found.is_found());
    let summary = match best {
        Some(row) => format!(
            "{}: {}, with {} of the request threads' CPU time in it.",
            row.function, row.verdict, row.share
        ),
        None => "No function is called once a request with most of the work in it.".to_owned(),
    };
    let cards = best.into_iter().flat_map(|row| {
        let length = |length: Option<Duration>| length.map_or("-".to_owned(), |length| length.to_string());
        [
            Card::new("share", row.share.to_string(), "of the request threads' CPU time"),
            Card::new(
                "calls a request",
                row.calls_per_request.map_or("-".into(), |calls| format!("{calls:.2}")),
                "",
            ),
            Card::new("in it, p50", length(row.p50), "of all calls that were counted"),
            Card::new("in it, p99", length(row.p99), "the same"),
        ]
    });
    let rows = found.rows.iter().map(|row| PageRow {
        name: row.function.clone(),
        remark: row.why.clone().or_else(|| row.file.clone()).unwrap_or_default(),
        cells: cells(row),
        look: None,
    });
    let pools = found.pools.iter().map(|pool| {
        let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let cells = [pool.threads.to_string(), pool.share.to_string(), word(pool.reads), word(pool.serves)];
        PageRow::new(pool.name.clone(), cells)
    });
    let flame = Flame {
        title: "Where the request threads' CPU time goes".to_owned(),
        see: " The outermost function is at the bottom; a box is as wide as its share. The hot function has a frame.".to_owned(),
        stacks: found.stacks.clone(),
        marked: best.map(|row| row.function.clone()),
    };
    let mut sections = vec![
        Section::new(
            "Candidates",
            "Best first. Wanted is the innermost function that is called once a request, or \
             once a shard, and holds nearly all of the work.",
            vec![PageTable::new("", HEAD, rows).part()],
        ),
        Section::new("Stacks", "", vec![flame.part()]),
        Section::new(
            "Threads",
            "Those that read from sockets or do a tenth of the work serve requests.",
            vec![PageTable::new("", POOL_HEAD, pools).part()],
        ),
    ];
    if let Some(energy) = &found.energy {
        let (head, rows) = energy_rows(energy);
        let rows = rows.into_iter().map(|mut row| {
            let name = row.remove(0);
            PageRow::new(name, row)
        });
        sections.push(Section::new(
            format!("Energy of a light request by clock, {}", energy.source),
            energy.best.map_or(String::new(), |best| format!("Least at {best}.")),
            std::iter::once(PageTable::new("", head, rows).part())
                .chain(energy.notes.iter().cloned().map(Part::Text))
                .collect(),
        ));
    }
    let mut page = Page {
        summary,
        alarms: found.notes.clone(),
        cards: cards.collect(),
        sections,
        folded: found.option.iter().map(|option| ("To have it watched".to_owned(), option.clone())).collect(),
        ..Page::of(info)
    };
    page.facts.push(format!("{} samples", found.samples));
    page
}

const METHOD: [&str; 4] = [
    "Share: samples of the request threads' CPU time with the function on the stack, by \
     async-profiler (ctimer, 2 ms) or perf (cpu-clock, 499 Hz).",
    "Calls: counted while the agent or uprobes were on them, recursion as one; requests: counted \
     at the service's sockets meanwhile.",
    "In-function times are wall time, and hold what counting costs: some 100 ns a call in a JVM, \
     10 to 20 us under uprobes.",
    "Ranked by policy::hot: the innermost function that is called a whole number of times a \
     request (within 15 %) and holds 90 % of the best one's share.",
];

const HOT: &str = "hot.json";
const KIND: run_folder::Kind = run_folder::Kind { name: "hot", mark: HOT };
const STACKS: &str = "stacks.folded";
