//! The results of a run, as text: the end of `roost demo` and the output of `roost report`.
//!
//! Nothing is wider than 80 columns but a phase's or a figure's own long name.

use crate::figures::Page;
use crate::run::equally_long;
use crate::run::{Compared, Phase, Summary};
use crate::text::{MISSING, distinct, grouped, or_missing};
use machine::{Duration, EnergySource};
use std::fmt::Write as _;

/// The clients' latency, the cost, the source of the energy figures, each phase against the first,
/// and the verdicts.
pub fn outcome(summary: &Summary) -> String {
    // A ratio without an interval beside one that has it would be believed as much.
    let first = summary.phases.first().filter(|_| summary.compared.is_empty());
    let mut seen = vec![["phase", "requests/s", "errors", "p50", "p99", "p99.9", "max"].map(str::to_owned)];
    seen.extend(summary.phases.iter().map(|phase| seen_by_clients(phase, first)));
    let mut cost = vec![["phase", "awake", "energy", "moved", "idle residency"].map(str::to_owned)];
    cost.extend(summary.phases.iter().map(|phase| cost_of(phase, first)));
    let mut text = format!("{}\n{}", aligned(&seen, None), aligned(&cost, Some(4)));
    let energies = summary.phases.iter().filter_map(|phase| phase.energy.as_ref());
    let sources = distinct(energies.map(|energy| energy.source.to_string()));
    if !sources.is_empty() {
        let of = format!("energy of the workers' CPUs: {}", sources.join(", "));
        let _ = write!(text, "\n{}", folded(&of));
    }
    for phase in &summary.phases {
        let rows: Vec<&Compared> =
            summary.compared.iter().filter(|compared| compared.phase == phase.name).collect();
        let baseline = summary.phases.first().map(|first| first.name.clone()).unwrap_or_default();
        if !rows.is_empty() {
            let _ = write!(text, "\n{}", against_first(&rows, &baseline));
        }
    }
    if summary.compared.iter().any(Compared::is_within_noise) {
        text.push_str("~ the interval holds 1: within the noise of this machine\n");
    }
    if !summary.verdicts.is_empty() {
        text.push('\n');
    }
    for verdict in &summary.verdicts {
        let mark = if verdict.met == Some(false) { "MISSED" } else { verdict.mark() };
        let _ = writeln!(text, "{mark}: {} {}\n    bar: {}", verdict.figure, verdict.found, verdict.bar);
    }
    for remark in &summary.remarks {
        let _ = write!(text, "\n{}", folded(remark));
    }
    if let Some(why) = &summary.invalid {
        let _ = write!(text, "\n{}", folded(&format!("This measurement is INVALID. {why}")));
    }
    text
}

/// A phase's figures beside the first phase's.
fn against_first(rows: &[&Compared], baseline: &str) -> String {
    let phase = rows.first().map(|row| row.phase.clone()).unwrap_or_default();
    let mut table =
        vec![["".to_owned(), baseline.to_owned(), phase, "ratio (99 % interval)".to_owned(), String::new()]];
    table.extend(rows.iter().map(|row| {
        let noise = if row.is_within_noise() { "~" } else { "" };
        [row.figure.clone(), row.first.clone(), row.value.clone(), row.interval(), noise.to_owned()]
    }));
    aligned(&table, Some(4))
}

/// A page's results without its figures.
pub fn page(page: &Page) -> String {
    let mut text = folded(&page.title);
    let paragraphs = page.alarms.iter().chain([&page.summary]).filter(|text| !text.is_empty());
    paragraphs.for_each(|paragraph| text += &format!("\n{}", folded(paragraph)));
    for card in &page.cards {
        let verdict = match card.met {
            Some(true) => " (met)",
            Some(false) => " (missed)",
            None => "",
        };
        text += &format!("\n{}: {}{verdict}", card.what, card.figure);
    }
    text + if page.cards.is_empty() { "" } else { "\n" }
}

/// A sentence on lines of at most 80 columns.
pub fn folded(sentence: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in sentence.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > COLUMNS {
            text.push('\n');
            width = 0;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text.push('\n');
    text
}

const COLUMNS: usize = 80;

fn seen_by_clients(phase: &Phase, first: Option<&Phase>) -> [String; 7] {
    [
        phase.name.clone(),
        phase
            .achieved
            .map_or_else(|| MISSING.to_owned(), |rate| grouped(rate.as_per_second().round() as u64)),
        phase.errors.map_or_else(|| MISSING.to_owned(), grouped),
        or_missing(phase.p50),
        format!("{}{}", or_missing(phase.p99), against(phase, first, |of| of.p99.map(Duration::as_secs_f64))),
        or_missing(phase.p999),
        or_missing(phase.max),
    ]
}

fn cost_of(phase: &Phase, first: Option<&Phase>) -> [String; 5] {
    // Sums over different times are no ratio.
    let alike = first.filter(|first| match (first.length, phase.length) {
        (Some(one), Some(other)) => equally_long(one, other),
        _ => true,
    });
    let awake =
        phase.awake.map_or_else(|| MISSING.to_owned(), |awake| format!("{:.1} s", awake.as_secs_f64()));
    let energy = phase.energy.as_ref().map_or_else(
        || MISSING.to_owned(),
        |energy| match energy.source {
            EnergySource::Measured(_) => format!("{} measured", energy.used),
            EnergySource::Modelled(_) => format!("{} modelled", energy.used),
        },
    );
    let residency = phase.residency.as_ref().map_or_else(
        || MISSING.to_owned(),
        |shares| {
            let parts =
                shares.iter().map(|share| format!("{} {:.0}%", share.state, share.share.as_f64() * 100.0));
            parts.collect::<Vec<_>>().join(" ")
        },
    );
    [
        phase.name.clone(),
        format!("{awake}{}", against(phase, alike, |of| of.awake.map(Duration::as_secs_f64))),
        format!(
            "{energy}{}",
            against(phase, alike, |of| of.energy.as_ref().map(|energy| energy.used.as_joules()))
        ),
        phase.transfers.map_or_else(|| MISSING.to_owned(), grouped),
        residency,
    ]
}

/// How a figure of a phase compares with the first phase's.
fn against(phase: &Phase, first: Option<&Phase>, figure: impl Fn(&Phase) -> Option<f64>) -> String {
    let baseline =
        first.filter(|first| first.name != phase.name).and_then(&figure).filter(|&value| value > 0.0);
    match figure(phase).zip(baseline) {
        Some((value, baseline)) => format!(" ({:.2}x)", value / baseline),
        None => String::new(),
    }
}

/// Columns as wide as their widest cell: the first, and those called `words`, to the left; numbers
/// to the right.
fn aligned<const N: usize>(rows: &[[String; N]], words: Option<usize>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    // Wide intervals leave room for one space between columns.
    let gap = if widths.iter().sum::<usize>() + 2 * (N - 1) > COLUMNS { " " } else { "  " };
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 || Some(column) == words {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join(gap);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{StateShare, Verdict};
    use machine::{EnergyReading, Microjoules, Rate, Ratio};

    #[test]
    fn wide_intervals_leave_one_space_between_columns() {
        let row = ["workers' CPU time per request", "22.5us", "16.4us", "10.73x (0.0310x to 168.0x)", "~"];
        let other = ["wake-ups/s of the CPU left alone", "2104", "310", "0.15x (0.14x to 0.17x)", "met"];
        let text = aligned(&[row, other].map(|row| row.map(str::to_owned)), Some(4));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn sums_over_different_times_are_no_ratio() {
        let told = |length: u64| {
            let long = |phase: Phase, s: u64| Phase { length: Some(Duration::from_secs(s)), ..phase };
            cost_of(&long(phase("b", 100, 9), length), Some(&long(phase("a", 100, 18), 18)))[1].clone()
        };
        assert!(told(18).contains("(0.50x)"), "{}", told(18));
        assert!(!told(9).contains('x'), "{}", told(9));
    }

    fn verdict(figure: &str, found: &str, met: Option<bool>, within_noise: bool) -> Verdict {
        let bar = "at most 0.75x of stock".to_owned();
        Verdict { figure: figure.to_owned(), found: found.to_owned(), bar, met, within_noise }
    }

    fn phase(name: &str, p99: u64, awake: u64) -> Phase {
        Phase {
            name: name.to_owned(),
            achieved: Some(Rate::per_second(18_170.2)),
            errors: Some(0),
            p50: Some(Duration::from_micros(119)),
            p99: Some(Duration::from_micros(p99)),
            p999: Some(Duration::from_micros(644)),
            max: Some(Duration::from_micros(3_630)),
            awake: Some(Duration::from_secs(awake)),
            residency: Some(vec![StateShare { state: "C1".to_owned(), share: Ratio::new(0.353) }]),
            energy: Some(EnergyReading {
                used: Microjoules(191_400_000),
                source: EnergySource::Modelled("skylake-sp".to_owned()),
            }),
            transfers: Some(0),
            ..Phase::default()
        }
    }

    #[test]
    fn the_outcome_reads_as_a_table_with_its_verdicts() {
        let summary = Summary {
            phases: vec![
                phase("stock", 330, 160),
                phase("scheduler", 318, 90),
                Phase { name: "lost".to_owned(), ..Phase::default() },
            ],
            verdicts: vec![
                verdict("worker-seconds awake", "0.56x (0.50x to 0.62x)", Some(true), false),
                verdict("p99", "1.52x (1.40x to 1.66x)", Some(false), false),
                verdict("CPU time", "0.98x (0.90x to 1.08x)", None, true),
                verdict("joules", "not found", None, false),
            ],
            compared: Vec::new(),
            remarks: vec![
                "What the figures say, in a sentence that is longer than a line of a terminal is, and so \
                 is folded."
                    .to_owned(),
            ],
            invalid: Some("2.1% of the sends were late.".to_owned()),
        };
        let expected = "\
phase      requests/s  errors    p50            p99  p99.9     max
stock          18,170       0  119us          330us  644us  3.63ms
scheduler      18,170       0  119us  318us (0.96x)  644us  3.63ms
lost                -       -      -              -      -       -

phase               awake                    energy  moved  idle residency
stock             160.0 s          191.4 J modelled      0  C1 35%
scheduler  90.0 s (0.56x)  191.4 J modelled (1.00x)      0  C1 35%
lost                    -                         -      -  -

energy of the workers' CPUs: modelled (skylake-sp)

met: worker-seconds awake 0.56x (0.50x to 0.62x)
    bar: at most 0.75x of stock
MISSED: p99 1.52x (1.40x to 1.66x)
    bar: at most 0.75x of stock
within noise: CPU time 0.98x (0.90x to 1.08x)
    bar: at most 0.75x of stock
not measured: joules not found
    bar: at most 0.75x of stock

What the figures say, in a sentence that is longer than a line of a terminal is,
and so is folded.

This measurement is INVALID. 2.1% of the sends were late.
";
        assert_eq!(outcome(&summary), expected);
    }

    #[test]
    fn a_ratio_with_an_interval_takes_the_place_of_those_without() {
        let compared = |figure: &str, first: &str, value: &str, ratio: f64, spread: f64| Compared {
            phase: "scheduler".to_owned(),
            figure: figure.to_owned(),
            first: first.to_owned(),
            value: value.to_owned(),
            ratio,
            low: ratio / spread,
            high: ratio * spread,
        };
        let summary = Summary {
            phases: vec![phase("stock", 330, 160), phase("scheduler", 318, 90)],
            compared: vec![
                compared("wake-ups/s of the CPU left alone", "2104", "310", 0.15, 1.1),
                compared("longest rest of a CPU", "14.2ms", "1.04s", 73.24, 1.5),
                compared("p99 latency", "330us", "318us", 0.96, 1.5),
            ],
            ..Summary::default()
        };
        let told = outcome(&summary);
        let expected = "
                                   stock  scheduler   ratio (99 % interval)
wake-ups/s of the CPU left alone    2104        310  0.15x (0.14x to 0.17x)
longest rest of a CPU             14.2ms      1.04s   73.2x (48.8x to 110x)
p99 latency                        330us      318us  0.96x (0.64x to 1.44x)  ~
~ the interval holds 1: within the noise of this machine
";
        assert!(told.ends_with(expected), "{told}");
        assert!(!told.contains("(0.96x)") && !told.contains("(0.56x)"), "{told}");
        assert!(told.lines().all(|line| line.chars().count() <= COLUMNS), "{told}");
    }

    #[test]
    fn an_empty_outcome_is_a_header() {
        assert!(outcome(&Summary::default()).starts_with("phase  requests/s"));
    }
}
