//! What came out of a run, as text: what `roost demo` ends with and `roost report` prints.

use crate::charts::phases::equally_long;
use crate::run::{Phase, Summary};
use crate::text::{MISSING, grouped, or_missing};
use machine::{Duration, EnergySource};
use std::fmt::Write as _;

/// What the clients saw, what it cost, where the energy figures come from, and the verdicts: two tables of which each
/// fits on 80 columns.
pub fn outcome(summary: &Summary) -> String {
    let first = summary.phases.first();
    let mut seen = vec![["phase", "requests/s", "errors", "p50", "p99", "p99.9", "max"].map(str::to_owned)];
    seen.extend(summary.phases.iter().map(|phase| seen_by_clients(phase, first)));
    let mut cost = vec![["phase", "awake", "energy", "moved", "idle residency"].map(str::to_owned)];
    cost.extend(summary.phases.iter().map(|phase| cost_of(phase, first)));
    let mut text = format!("{}\n{}", aligned(&seen, None), aligned(&cost, Some(4)));
    let mut sources: Vec<String> = Vec::new();
    for energy in summary.phases.iter().filter_map(|phase| phase.energy.as_ref()) {
        let source = energy.source.to_string();
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    if !sources.is_empty() {
        let _ = writeln!(text, "\nenergy: {}; the generator's CPUs are left out", sources.join(", "));
    }
    if !summary.verdicts.is_empty() {
        text.push('\n');
    }
    for verdict in &summary.verdicts {
        let word = match verdict.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not judged",
        };
        let _ = writeln!(text, "{word}: {} {}, bar: {}", verdict.figure, verdict.found, verdict.bar);
    }
    if let Some(why) = &summary.invalid {
        let _ = writeln!(text, "\nThis measurement is INVALID. {why}");
    }
    text
}

fn seen_by_clients(phase: &Phase, first: Option<&Phase>) -> [String; 7] {
    [
        phase.name.clone(),
        phase.reached.map_or_else(|| MISSING.to_owned(), |rate| grouped(rate.as_per_second().round() as u64)),
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

/// Columns as wide as their widest cell: the first, and those called `words`, to the left; numbers to the right.
fn aligned<const N: usize>(rows: &[[String; N]], words: Option<usize>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 || Some(column) == words {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
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
    fn sums_over_different_times_are_no_ratio() {
        let told = |length: u64| {
            let long = |phase: Phase, s: u64| Phase { length: Some(Duration::from_secs(s)), ..phase };
            cost_of(&long(phase("b", 100, 9), length), Some(&long(phase("a", 100, 18), 18)))[1].clone()
        };
        assert!(told(18).contains("(0.50x)"), "{}", told(18));
        assert!(!told(9).contains('x'), "{}", told(9));
    }

    fn phase(name: &str, p99: u64, awake: u64) -> Phase {
        Phase {
            name: name.to_owned(),
            reached: Some(Rate::per_second(18_170.2)),
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
                Verdict::at_most("worker-seconds awake", Some(90.0), Some(160.0), 0.75, "stock"),
                Verdict::at_most("p99", Some(500.0), Some(330.0), 1.25, "stock"),
                Verdict::at_most("joules", None, Some(330.0), 1.25, "stock"),
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

energy: modelled (skylake-sp); the generator's CPUs are left out

met: worker-seconds awake 0.56x, bar: at most 0.75x of stock
MISSED: p99 1.52x, bar: at most 1.25x of stock
not judged: joules not measured, bar: at most 1.25x of stock

This measurement is INVALID. 2.1% of the sends were late.
";
        assert_eq!(outcome(&summary), expected);
    }

    #[test]
    fn an_empty_outcome_is_a_header() {
        assert!(outcome(&Summary::default()).starts_with("phase  requests/s"));
    }
}
