//! `report.html` of a run: how long calls take, where the threshold lies, and how fast each CPU was
//! when.
//!
//! Pure but for [`write()`]. All of it is measured. The energy that a clock saves is not on the
//! page, since no meter is read here.

use crate::run_folder::{Kind, Place};
use anyhow::Result;
use daemon::hurry_up::{CpuTally, Hurry, HurryStatus, level_word};
use machine::Kilohertz;
use policy::frequency::hurry_up::Level;
use report::figures::{
    Card, Limit, Lines, Page, Part, Point as Mark, Quantity, Row, Section, Style, Table, Unit,
};
use report::run::RunInfo;
use serde::Serialize;

const METHOD: [&str; 4] = [
    "Calls are timed by the service itself, from entering the hot function until leaving it; of \
     calls that follow each other faster than the governor \
     looks, the last before each look is seen.",
    "Levels are what was asked of each CPU; that the kernel's files then read so was checked at \
     each write, unless this was a dry run.",
    "The delay is from the time that the service's thread wrote down when it entered until the \
     governor's write to the kernel had returned, on the same \
     clock.",
    "Nothing here is an energy: no meter is read.",
];

pub const KIND: Kind = Kind { name: "hurry-up", mark: "hurry-up.json" };
const SHARES: [f64; 13] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0];

#[derive(Debug, Serialize)]
pub struct Told {
    pub last: HurryStatus,
    /// The clocks of the three levels.
    pub clocks: [Kilohertz; 3],
    /// Seconds.
    pub length_s: f64,
    /// The share of calls that took at most so many nanoseconds.
    pub calls: Vec<(f64, u64)>,
    /// Seconds since the beginning, and the threshold from then on, in nanoseconds.
    pub thresholds: Vec<(f64, u64)>,
    pub cpus: Vec<CpuTally>,
}

/// Writes the run's folder, and says where its page is.
pub fn write(place: &Place, started: String, hurry: &Hurry) -> Result<String> {
    let told = told(hurry);
    let title = format!("process {}: speed for who is in the hot function", told.last.process);
    let info = KIND.info(started, title, &METHOD);
    KIND.write(&place.make()?, &info, &told, &page(&info, &told))
}

fn told(hurry: &Hurry) -> Told {
    let (now, tally) = (linux::now(), hurry.tally());
    let calls = &tally.calls;
    let share = |&share: &f64| (share, calls.value_at_quantile(share));
    Told {
        last: hurry.status(now),
        clocks: hurry.clocks(),
        length_s: tally.length(now).as_secs_f64(),
        calls: if calls.is_empty() { Vec::new() } else { SHARES.iter().map(share).collect() },
        thresholds: tally
            .thresholds
            .iter()
            .map(|(at, threshold)| (at.as_secs_f64(), threshold.as_nanos()))
            .collect(),
        cpus: tally.cpus(now),
    }
}

fn page(info: &RunInfo, told: &Told) -> Page {
    let mut page = Page {
        summary: summary(told),
        cards: cards(told),
        sections: vec![calls(told), levels(told)],
        ..Page::of(info)
    };
    if told.last.dry_run {
        page.alarms
            .push("A dry run: no clock was touched. Levels are what would have been asked for.".to_owned());
    }
    page
}

fn threshold_ns(told: &Told) -> u64 {
    told.thresholds.last().map_or(told.last.threshold_us * 1_000, |(_, threshold)| *threshold)
}

fn summary(told: &Told) -> String {
    let [min, mid, max] = told.clocks;
    format!(
        "For {} an idle core was to run at {min}, one that works at {mid}, and one with a call of \
         more than {} at {max}. {} enters were seen, and {} calls of \
         known length.",
        Unit::Seconds.text(told.length_s),
        Unit::Nanoseconds.text(threshold_ns(told) as f64),
        told.last.enters,
        told.last.calls,
    )
}

/// The share of all CPUs' time at a level.
fn share(told: &Told, level: Level) -> f64 {
    let all: f64 = told.cpus.iter().flat_map(|cpu| cpu.seconds).sum();
    let at: f64 = told.cpus.iter().map(|cpu| cpu.seconds[level as usize]).sum();
    if all > 0.0 { at / all } else { 0.0 }
}

fn cards(told: &Told) -> Vec<Card> {
    let mut cards: Vec<Card> = [(Level::Max, "heavy calls"), (Level::Mid, "at work"), (Level::Min, "idle")]
        .map(|(level, remark)| Card {
            what: format!("time at {}", told.clocks[level as usize]),
            figure: Unit::Share.text(share(told, level)),
            remark: format!("{remark}; of all CPUs"),
            met: None,
        })
        .into();
    if let Some((median, p99)) = told.last.delay_us {
        cards.push(Card::new(
            "from an enter to its clock",
            Unit::Nanoseconds.text(p99 * 1e3),
            format!("p99 of {}; median {}", told.last.delays, Unit::Nanoseconds.text(median * 1e3)),
        ));
    }
    cards
}

fn calls(told: &Told) -> Section {
    let title = "How long calls take".to_owned();
    if told.calls.is_empty() {
        return Section::new(title, "No call was seen to end.", Vec::new());
    }
    let mut lines = Lines::new(
        "Calls by their length",
        "Above the line a call is heavy, and its core runs at the highest clock.",
        Quantity::new("share of calls", Unit::Share),
        Quantity::new("time in the hot function", Unit::Nanoseconds).log(),
    );
    let points = told.calls.iter().map(|&(share, ns)| Mark::new(share, Some(ns as f64)));
    lines.add("calls", Style::Line, points);
    lines.limit = Some(Limit::level("threshold at the end", threshold_ns(told) as f64));
    let mut parts = vec![lines.part()];
    if told.thresholds.len() > 1 {
        let mut lines = Lines::new(
            "The threshold",
            "Learned from the calls since it was last set.",
            Quantity::new("time", Unit::Seconds),
            Quantity::new("threshold", Unit::Nanoseconds).log(),
        );
        let end = (told.length_s, threshold_ns(told));
        let points = told.thresholds.iter().chain([&end]).map(|&(at, ns)| Mark::new(at, Some(ns as f64)));
        lines.add("threshold", Style::Steps, points);
        parts.push(lines.part());
    }
    Section::new(title, "", parts)
}

fn levels(told: &Told) -> Section {
    let mut lines = Lines::new(
        "Clocks over time",
        "What each CPU was asked to run at. CPUs whose lines cover each other changed together.",
        Quantity::new("time", Unit::Seconds),
        Quantity::new("clock in GHz", Unit::Count),
    );
    let ghz = |level: Level| told.clocks[level as usize].0 as f64 / 1e6;
    for cpu in told.cpus.iter().take(CPUS_DRAWN) {
        let changes = cpu.changes.iter().map(|&(at, level)| Mark::new(at, Some(ghz(level))));
        let last = cpu.changes.last().filter(|_| cpu.left_out == 0);
        let end = last.map(|&(_, level)| Mark::new(told.length_s, Some(ghz(level))));
        let points = changes.chain(end);
        lines.add(cpu.cpu.to_string(), Style::Steps, points);
    }
    let row = |cpu: &CpuTally| {
        let mut cells: Vec<String> = cpu.seconds.iter().map(|&seconds| Unit::Seconds.text(seconds)).collect();
        cells.push((cpu.changes.len() as u64 + cpu.left_out).to_string());
        Row::new(cpu.cpu.to_string(), cells)
    };
    let mut head = vec!["CPU".to_owned()];
    for level in [Level::Min, Level::Mid, Level::Max] {
        head.push(format!("at {} ({})", told.clocks[level as usize], level_word(level)));
    }
    head.push("changes".to_owned());
    let table = Table::new("", head, told.cpus.iter().map(row));
    let left_out: u64 = told.cpus.iter().map(|cpu| cpu.left_out).sum();
    let mut text = String::new();
    if left_out > 0 {
        text += &format!("Of long runs the first changes are drawn; {left_out} came after. ");
    }
    if told.cpus.len() > CPUS_DRAWN {
        text += &format!("The first {CPUS_DRAWN} CPUs are drawn; the table has all.");
    }
    Section::new("How fast each CPU was", text, vec![lines.part(), Part::Table(table)])
}

/// A reader cannot tell more lines apart.
const CPUS_DRAWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::hurry_up::CpuLevel;
    use machine::CpuId;

    fn info() -> RunInfo {
        KIND.info("2026-11-22".into(), "process 7".into(), &METHOD)
    }

    fn run(calls: Vec<(f64, u64)>, dry_run: bool) -> Told {
        let clocks = [1_000_000, 2_000_000, 2_600_000].map(Kilohertz);
        let cpu = |number, seconds, changes| CpuTally { cpu: CpuId(number), seconds, changes, left_out: 3 };
        Told {
            last: HurryStatus {
                at_ms: 10_000,
                process: 7,
                threshold_us: 12_000,
                hot: Vec::new(),
                cpus: vec![CpuLevel { cpu: CpuId(0), level: Level::Min, clock: clocks[0] }],
                dry_run,
                enters: 30,
                calls: 20,
                looks: 40,
                writes: 50,
                delay_us: Some((80.0, 420.0)),
                delays: 11,
            },
            clocks,
            length_s: 10.0,
            calls,
            thresholds: vec![(0.0, 350_000_000), (2.0, 12_000_000)],
            cpus: vec![
                cpu(0, [5.0, 3.0, 2.0], vec![(1.0, Level::Mid), (2.0, Level::Max)]),
                cpu(1, [10.0, 0.0, 0.0], vec![]),
            ],
        }
    }

    #[test]
    fn the_page_tells_calls_threshold_and_clocks() {
        let json = page(&info(), &run(vec![(0.5, 3_000_000), (0.99, 40_000_000)], false)).json();
        for words in [
            "10.0 %",
            "75.0 %",
            "2600MHz",
            "p99 of 11",
            "threshold at the end",
            "Calls by their length",
            "6 came after",
        ] {
            assert!(json.contains(words), "{words}: {json}");
        }
        assert!(!json.contains("dry run:"), "{json}");
    }

    #[test]
    fn what_was_not_seen_and_not_done_is_said() {
        let json = page(&info(), &run(Vec::new(), true)).json();
        assert!(json.contains("No call was seen to end") && json.contains("A dry run"), "{json}");
    }
}
