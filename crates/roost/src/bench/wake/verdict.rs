//! Gaps, times awake, bars.

use super::bystander::Pair;
use super::{Block, GAPS, Part, Predicted, Way};
use crate::bench::observe::bootstrap;
use clap::ValueEnum as _;
use governor::wake::{BooksCheck, Calibration, WakeStatus};
use machine::CpuId;
use serde::Serialize;
use std::fmt::Write as _;

/// The share of the gap that has to be closed.
const GAP_BAR: f64 = 0.85;
/// Time awake over what is needed.
const AWAKE_BAR: f64 = 1.2;
/// Predictions within a tenth.
const TENTH_BAR: f64 = 0.9;
/// What a bystander's work may take.
const BYSTANDER_BAR: f64 = 1.01;
/// The accounts and cpuidle, in percent.
const BOOKS_BAR: f64 = 1.0;

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Verdict {
    parts: Vec<PartVerdict>,
    /// Mean cost and its 95 % interval.
    bystander: Option<(f64, (f64, f64))>,
    books: Option<BooksCheck>,
    energy: String,
}

#[derive(Debug, Serialize)]
struct PartVerdict {
    part: Part,
    rounds: usize,
    /// Stock, anticipatory, always: the rounds' medians.
    p50_us: [f64; 3],
    p99_us: [f64; 3],
    awake_us: [f64; 3],
    /// `None`: always awake is no better than stock here.
    gap_closed_p50: Option<f64>,
    gap_closed_p99: Option<f64>,
    /// Of the CPU that waits: time awake per event over what is needed.
    awake_over_needed: Option<f64>,
    predicted: Option<Predicted>,
    /// Disk reads' slowdown against always awake, by the gap before: stock and ours.
    slowdown_by_gap: Option<[[f64; 2]; GAPS]>,
    bars: Vec<(String, bool)>,
}

impl Verdict {
    pub fn of(
        blocks: &[Block],
        bystander: &[Pair],
        calibration: &Calibration,
        sleeper: CpuId,
        status: &WakeStatus,
    ) -> Self {
        let parts = Part::value_variants()
            .iter()
            .filter_map(|&part| PartVerdict::of(part, blocks, calibration, sleeper));
        let costs: Vec<f64> = bystander.iter().map(Pair::cost).collect();
        Self {
            parts: parts.collect(),
            bystander: (!costs.is_empty()).then(|| bootstrap(&costs)),
            books: status.check,
            energy: status.energy.clone(),
        }
    }

    pub fn is_met(&self) -> bool {
        let bystander = self.bystander.is_none_or(|(_, (_, high))| high <= BYSTANDER_BAR);
        let books = self.books.is_none_or(|books| books.percent <= BOOKS_BAR);
        bystander && books && self.parts.iter().all(|part| part.bars.iter().all(|(_, met)| *met))
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            let [stock, ours, always] = part.p50_us;
            let [stock_tail, our_tail, always_tail] = part.p99_us;
            let _ = writeln!(
                text,
                "{:?}, {} rounds (medians; stock, anticipatory, always awake)",
                part.part, part.rounds
            );
            let _ = writeln!(
                text,
                "  p50   {stock:8.1} {ours:8.1} {always:8.1} us   {}",
                gap(part.gap_closed_p50)
            );
            let _ = writeln!(
                text,
                "  p99   {stock_tail:8.1} {our_tail:8.1} {always_tail:8.1} us   {}",
                gap(part.gap_closed_p99)
            );
            let [stock, ours, always] = part.awake_us;
            let _ = writeln!(text, "  awake {stock:8.1} {ours:8.1} {always:8.1} us an event");
            if let Some(predicted) = part.predicted {
                let share = |count: u64, of: u64| 100.0 * count as f64 / of.max(1) as f64;
                let _ = writeln!(
                    text,
                    "  predicted within a tenth {:.1} % of {}, in the window {:.1} %; the oracle {:.1} % (a thread stands in for the device)",
                    share(predicted.within_tenth, predicted.predicted),
                    predicted.predicted,
                    share(predicted.in_window, predicted.predicted),
                    share(predicted.oracle_within_tenth, predicted.runs)
                );
            }
            if let Some(slowdown) = part.slowdown_by_gap {
                let gaps = ["0.1-0.3 ms", "0.3-1 ms", "1-3 ms", "3-10 ms"];
                for (gap, [stock, ours]) in gaps.iter().zip(slowdown) {
                    let _ = writeln!(
                        text,
                        "  after {gap:10} slower than always awake by {:4.0} % stock, {:4.0} % ours",
                        100.0 * stock,
                        100.0 * ours
                    );
                }
                let _ = writeln!(
                    text,
                    "  the paper, its own disk and kernel: by 101 % stock, 37 % anticipatory at 1 ms (its figure 1)"
                );
            }
            for (bar, met) in &part.bars {
                let _ = writeln!(text, "  {bar}: {}", if *met { "met" } else { "MISSED" });
            }
        }
        if let Some((mean, (low, high))) = self.bystander {
            let met = if high <= BYSTANDER_BAR { "met" } else { "MISSED" };
            let _ = writeln!(
                text,
                "bystander: {mean:.4}x, {low:.4} to {high:.4}; upper 95 % end <= {BYSTANDER_BAR}x: {met}"
            );
        }
        if let Some(books) = self.books {
            let met = if books.percent <= BOOKS_BAR { "met" } else { "MISSED" };
            let _ = writeln!(
                text,
                "accounts against cpuidle: {:.3} % of all time apart (independent: {}); <= {BOOKS_BAR} %: {met}",
                books.percent, books.is_independent
            );
        }
        let _ = writeln!(text, "energy is {}", self.energy);
        text
    }
}

impl PartVerdict {
    fn of(part: Part, blocks: &[Block], calibration: &Calibration, sleeper: CpuId) -> Option<Self> {
        let of = |way: Way, value: fn(&Block) -> f64| {
            median(blocks.iter().filter(|block| (block.part, block.way) == (part, way)).map(value).collect())
        };
        let three = |value: fn(&Block) -> f64| -> Option<[f64; 3]> {
            Some([of(Way::Stock, value)?, of(Way::Anticipatory, value)?, of(Way::Always, value)?])
        };
        let (p50_us, p99_us) = (three(|block| block.p50_us)?, three(|block| block.p99_us)?);
        let awake_us = three(|block| block.awake_us)?;
        let closed =
            |[stock, ours, always]: [f64; 3]| (stock > always).then(|| (stock - ours) / (stock - always));
        let (gap_closed_p50, gap_closed_p99) = (closed(p50_us), closed(p99_us));
        // The event's own work is what the CPU did for it without us.
        let wake = calibration.exit_latency(sleeper).map(|exit| exit.as_nanos() as f64 / 1e3);
        let awake_over_needed = wake.map(|wake| awake_us[1] / (wake + awake_us[0]));
        let predicted =
            blocks.iter().filter(|block| block.part == part).filter_map(|block| block.predicted).reduce(
                |one, other| Predicted {
                    predicted: one.predicted + other.predicted,
                    within_tenth: one.within_tenth + other.within_tenth,
                    in_window: one.in_window + other.in_window,
                    oracle_within_tenth: one.oracle_within_tenth + other.oracle_within_tenth,
                    runs: one.runs + other.runs,
                },
            );
        let mut bars = Vec::new();
        if part == Part::Cross {
            for (name, closed) in [("p50", gap_closed_p50), ("p99", gap_closed_p99)] {
                let bar = format!("gap closed at {name} >= {:.0} %", 100.0 * GAP_BAR);
                bars.push((bar, closed.is_some_and(|closed| closed >= GAP_BAR)));
            }
            if let Some(ratio) = awake_over_needed {
                bars.push((
                    format!("time awake {ratio:.2}x of what is needed, <= {AWAKE_BAR}x"),
                    ratio <= AWAKE_BAR,
                ));
            }
        }
        if let Some(predicted) = predicted {
            let ours = predicted.within_tenth as f64 / predicted.predicted.max(1) as f64;
            let oracle = predicted.oracle_within_tenth as f64 / predicted.runs.max(1) as f64;
            bars.push((
                format!("within a tenth {:.1} %, >= 90 % or as the oracle", 100.0 * ours),
                ours >= TENTH_BAR || ours >= oracle,
            ));
        }
        let rounds = blocks.iter().filter(|block| (block.part, block.way) == (part, Way::Stock)).count();
        Some(Self {
            part,
            rounds,
            p50_us,
            p99_us,
            awake_us,
            gap_closed_p50,
            gap_closed_p99,
            awake_over_needed,
            predicted,
            slowdown_by_gap: slowdown(part, blocks),
            bars,
        })
    }
}

/// By the rounds' medians of the means.
fn slowdown(part: Part, blocks: &[Block]) -> Option<[[f64; 2]; GAPS]> {
    let mean = |way: Way, gap: usize| {
        let of = blocks.iter().filter(|block| (block.part, block.way) == (part, way));
        median(of.filter_map(|block| Some(block.by_gap_us?[gap])).collect())
    };
    let mut all = [[0.0; 2]; GAPS];
    for (gap, slowdown) in all.iter_mut().enumerate() {
        let always = mean(Way::Always, gap)?;
        *slowdown = [mean(Way::Stock, gap)? / always - 1.0, mean(Way::Anticipatory, gap)? / always - 1.0];
    }
    Some(all)
}

fn gap(closed: Option<f64>) -> String {
    closed.map_or("no gap to close".to_owned(), |closed| format!("gap closed {:.0} %", 100.0 * closed))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[count / 2]),
        count => Some(f64::midpoint(values[count / 2 - 1], values[count / 2])),
    }
}
