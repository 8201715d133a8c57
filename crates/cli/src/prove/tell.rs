//! Lines while it runs, and the result: as text, or as one document.

use super::options::Args;
use super::{Setup, meters::MeterName};
use crate::table::{self, Table};
use anyhow::Result;
use machine::EnergySource;
use report::figures::Unit;
use report::money::Year;
use serde::Serialize;
use study::prove::{Block, Change, Figure, Outcome, tenths};

pub fn begin(args: &Args, setup: &Setup) {
    if args.json {
        return;
    }
    let goal = setup.goal.map_or_else(|| "no goal".to_owned(), |goal| format!("goal {goal}"));
    eprintln!(
        "{}, {goal}: {} blocks of {}, governed and not, of each the first {} not counted; seed {}",
        setup.service, setup.blocks, setup.block, setup.settling, setup.seed
    );
    for meter in &setup.meters {
        eprintln!("power {}", meter.source);
    }
    let most = machine::Duration::from_nanos(setup.block.as_nanos() * u64::from(setup.blocks));
    eprintln!("it takes {most} at most; Ctrl-C ends it with the verdict so far");
}

/// A block has ended: its line, with the interval of the power so far.
pub fn block(args: &Args, setup: &Setup, block: &Block, power: Option<&Change>) {
    if args.json {
        return;
    }
    let mut line = format!("block {} of {}: {}", block.number, setup.blocks, block.treatment);
    if let Some(why) = &block.void {
        line.push_str(&format!(", does not count: {}", why.lines().next().unwrap_or_default()));
    } else {
        let of = |figure: Figure| block.figures.get(&figure.to_string()).copied();
        let watts = setup.meters.first().and_then(|meter| of(Figure::Watts(meter.name.clone())));
        let parts = [
            block.rate_per_s.map(|rate| format!("{rate:.0}/s")),
            of(Figure::Tail).map(|tail| format!("{} {}", tail_name(setup), Unit::Nanoseconds.text(tail))),
            of(Figure::ClientTail).map(|tail| format!("client tail {}", Unit::Nanoseconds.text(tail))),
            watts.map(|watts| format!("{watts:.2} W")),
            of(Figure::Cores).map(|cores| format!("{cores:.1} cores")),
            of(Figure::BusyCpus).map(|busy| format!("{busy:.2} CPUs busy")),
        ];
        parts.into_iter().flatten().for_each(|part| line.push_str(&format!(", {part}")));
    }
    for (name, why) in &block.missing {
        line.push_str(&format!(", {} not known: {why}", figure(name, setup).0));
    }
    if block.missed_goal == Some(true) {
        line.push_str(", goal MISSED");
    }
    if let Some((low, high)) = power.and_then(|change| change.low.zip(change.high)) {
        line.push_str(&format!(
            "; power so far {:+.1} to {:+.1} %",
            tenths(100.0 * low),
            tenths(100.0 * high)
        ));
    }
    eprintln!("{line}");
}

/// The percentile's name, such as `p99`.
pub fn tail_name(setup: &Setup) -> String {
    format!("p{}", (setup.quantile * 1e8).round() / 1e6)
}

/// A figure for people: its name, and a value of it with its unit.
pub fn figure(name: &str, setup: &Setup) -> (String, fn(f64) -> String) {
    let several = setup.meters.len() > 1;
    let of = |meter: String| if several { format!(" ({meter})") } else { String::new() };
    match name.parse() {
        Ok(Figure::Watts(meter)) => (format!("power{}", of(meter)), |watts| format!("{watts:.2} W")),
        Ok(Figure::JoulesPerRequest(meter)) => {
            (format!("energy per request{}", of(meter)), |joules| match joules {
                ..1e-3 => format!("{:.2} uJ", joules * 1e6),
                ..1.0 => format!("{:.2} mJ", joules * 1e3),
                _ => format!("{joules:.2} J"),
            })
        }
        Ok(Figure::Tail) => (tail_name(setup), |tail| Unit::Nanoseconds.text(tail)),
        Ok(Figure::ClientTail) => ("client tail".to_owned(), |tail| Unit::Nanoseconds.text(tail)),
        Ok(Figure::BusyCpus) => ("CPUs busy".to_owned(), |cpus| format!("{cpus:.3}")),
        Ok(Figure::CpuPerRequest) => {
            ("CPU time per request".to_owned(), |secs| Unit::Nanoseconds.text(secs * 1e9))
        }
        Ok(Figure::AwakeCpus) => ("CPUs awake".to_owned(), |cpus| format!("{cpus:.3}")),
        Ok(Figure::Cores) => ("cores given".to_owned(), |cores| format!("{cores:.2}")),
        Err(_) => (name.to_owned(), |value| format!("{value}")),
    }
}

/// The rows of all changes: figure, ungoverned, governed, change, interval.
pub fn rows(setup: &Setup, outcome: &Outcome) -> Vec<[String; 5]> {
    let row = |change: &Change| {
        let (name, text) = figure(&change.figure, setup);
        let interval = change.low.zip(change.high).map_or_else(
            || "-".to_owned(),
            |(low, high)| format!("{:+.1} to {:+.1} %", tenths(100.0 * low), tenths(100.0 * high)),
        );
        let by = format!("{:+.1} %", tenths(100.0 * change.change));
        [name, text(change.ungoverned), text(change.governed), by, interval]
    };
    outcome.changes.iter().map(row).collect()
}

pub const HEAD: [&str; 5] = ["", "ungoverned", "governed", "change", "95 % interval"];

/// How many pairs were compared, and why the others were not.
pub fn pairs(setup: &Setup, outcome: &Outcome) -> String {
    let mut text = format!("{} pairs of blocks compared", outcome.pairs);
    if outcome.pairs_unlike > 0 {
        let like = 100.0 * setup.like;
        text.push_str(&format!(", {} left out: rates over {like} % apart", outcome.pairs_unlike));
    }
    if outcome.pairs_void > 0 {
        text.push_str(&format!(", {} left out: a block does not count", outcome.pairs_void));
    }
    text
}

/// Why nothing is proven, and how another run could prove it.
pub fn remedy(setup: &Setup, blocks: &[Block], outcome: &Outcome) -> String {
    let meter = setup.meters.first().map(|meter| Figure::Watts(meter.name.clone()).to_string());
    let unknown = meter.map_or_else(Vec::new, |meter| {
        let why = |block: &Block| block.missing.get(&meter).cloned();
        blocks.iter().filter(|block| block.void.is_none()).filter_map(why).collect::<Vec<_>>()
    });
    let void: Vec<&str> = blocks.iter().filter_map(|block| block.void.as_deref()).collect();
    let count = |number: usize| if number == 1 { "1 block".to_owned() } else { format!("{number} blocks") };
    if let Some(why) = unknown.last()
        && unknown.len() > void.len()
    {
        return format!(
            "the power of {} is not known: {why}\nhint: mend --meter, which has to print watts at any \
             time of the run",
            count(unknown.len())
        );
    }
    if let Some(why) = void.last()
        && outcome.pairs_void >= outcome.pairs_unlike
    {
        let fix = if *why == super::block::NO_REQUESTS {
            "send it requests while the run lasts (`roost load` can), or name the service that has them"
        } else {
            "write a longer --block"
        };
        return format!("{} not counted: {why}\nhint: {fix}", count(void.len()));
    }
    format!(
        "{} pairs had rates over {} % apart\nhint: write a longer --block, more --blocks or a larger --like, \
         or keep the load steady",
        outcome.pairs_unlike,
        100.0 * setup.like
    )
}

/// True if the whole interval of the power is a saving.
pub fn is_beyond_doubt(outcome: &Outcome) -> bool {
    outcome.watts_saved_low.is_some_and(|low| low > 0.0)
}

/// The sums of a year at this load.
pub fn year(outcome: &Outcome, year: &Year) -> String {
    let servers = if year.servers == 1 { "1 server".to_owned() } else { format!("{} servers", year.servers) };
    let doubt = if is_beyond_doubt(outcome) { "" } else { " (no saving is beyond doubt)" };
    format!("a year at this load, {servers}: {year} saved{doubt}")
}

/// The document of `--json` and of `summary.json`.
#[derive(Serialize)]
pub struct Document<'a> {
    service: &'a str,
    started: &'a str,
    goal: Option<String>,
    planned_blocks: u32,
    block: machine::Duration,
    settling: machine::Duration,
    like: f64,
    seed: u64,
    meters: Vec<Meter<'a>>,
    #[serde(flatten)]
    outcome: &'a Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    year: Option<&'a Year>,
}

#[derive(Serialize)]
struct Meter<'a> {
    name: &'a str,
    basis: &'static str,
}

pub fn document<'a>(setup: &'a Setup, outcome: &'a Outcome, year: Option<&'a Year>) -> Document<'a> {
    let meter = |meter: &'a MeterName| Meter {
        name: &meter.name,
        basis: match meter.source {
            EnergySource::Measured(_) => "measured",
            EnergySource::Modelled(_) => "modelled",
        },
    };
    Document {
        service: &setup.service,
        started: &setup.started,
        goal: setup.goal.map(|goal| goal.to_string()),
        planned_blocks: setup.blocks,
        block: setup.block,
        settling: setup.settling,
        like: setup.like,
        seed: setup.seed,
        meters: setup.meters.iter().map(meter).collect(),
        outcome,
        year,
    }
}

pub fn end(args: &Args, setup: &Setup, outcome: &Outcome, saved: Option<&Year>) -> Result<()> {
    if args.json {
        return crate::json::print(1, &document(setup, outcome, saved));
    }
    let mut table = Table::new(1, HEAD.map(str::to_owned).to_vec());
    rows(setup, outcome).into_iter().for_each(|row| table.row(row.to_vec()));
    let mut text = String::new();
    if !outcome.changes.is_empty() {
        text.push_str(&format!("{}\n", table.text()));
    }
    text.push_str(&format!("{}\n", pairs(setup, outcome)));
    if let Some(saved) = saved {
        text.push_str(&format!("{}\n", year(outcome, saved)));
    }
    table::print(&format!("{text}{}\n", outcome.sentence))
}
