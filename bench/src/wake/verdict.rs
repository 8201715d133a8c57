//! Gaps, times awake, bars.

use super::bystander::Pair;
use super::{Block, GAPS, Part, Predicted, Way};
use crate::harness::figure::{bootstrap, geometric_mean, median_of};
use clap::ValueEnum as _;
use daemon::wake::{Alarm, BooksCheck, Calibration};
use machine::CpuId;
use serde::Serialize;

/// The share of the gap that has to be closed.
const GAP_BAR: f64 = 0.85;
/// Time awake over the needed time.
const AWAKE_BAR: f64 = 1.2;
/// Predictions within a tenth.
const TENTH_BAR: f64 = 0.9;
/// The bound on a bystander's work.
pub(super) const BYSTANDER_BAR: f64 = 1.01;
/// The accounts and cpuidle, in percent.
pub(super) const BOOKS_BAR: f64 = 1.0;

#[derive(Debug, Serialize)]
pub struct Verdict {
    pub(super) parts: Vec<PartVerdict>,
    /// Mean cost and its 95 % interval, of so many pairs of blocks.
    pub(super) bystander: Option<(f64, (f64, f64))>,
    pub(super) pairs: usize,
    /// Of the planners' accounts, those that are furthest off.
    pub(super) books: Option<BooksCheck>,
}

#[derive(Debug, Serialize)]
pub(super) struct PartVerdict {
    pub part: Part,
    pub rounds: usize,
    /// Stock, anticipatory, always: the rounds' medians.
    pub p50_us: [f64; 3],
    pub p99_us: [f64; 3],
    pub awake_us: [f64; 3],
    /// `None`: always awake is no better than stock here.
    pub gap_closed_p50: Option<f64>,
    pub gap_closed_p99: Option<f64>,
    /// Of the CPU that waits: time awake per event over the needed time.
    pub awake_over_needed: Option<f64>,
    pub predicted: Option<Predicted>,
    /// Disk reads' slowdown against always awake, by the gap before: stock and ours.
    pub slowdown_by_gap: Option<[[f64; 2]; GAPS]>,
    /// Repeated runs, the wake-up at their end included.
    pub run_us: Option<[f64; 3]>,
    pub bars: Vec<(String, bool)>,
}

impl Verdict {
    pub fn of(
        blocks: &[Block],
        bystander: &[Pair],
        calibration: &Calibration,
        sleeper: CpuId,
        checks: &[BooksCheck],
    ) -> Self {
        let parts = Part::value_variants()
            .iter()
            .filter_map(|&part| PartVerdict::of(part, blocks, calibration, sleeper));
        let costs: Vec<f64> = bystander.iter().map(Pair::cost).collect();
        Self {
            parts: parts.collect(),
            bystander: (!costs.is_empty())
                .then(|| (geometric_mean(&mut costs.clone()), bootstrap(&costs, geometric_mean))),
            pairs: costs.len(),
            books: checks.iter().copied().max_by(|a, b| a.percent.total_cmp(&b.percent)),
        }
    }

    pub fn is_met(&self) -> bool {
        let bystander = self.bystander.is_none_or(|(_, (_, high))| high <= BYSTANDER_BAR);
        let books = self.books.is_none_or(|books| books.percent <= BOOKS_BAR);
        bystander && books && self.parts.iter().all(|part| part.bars.iter().all(|(_, met)| *met))
    }
}

impl PartVerdict {
    fn of(part: Part, blocks: &[Block], calibration: &Calibration, sleeper: CpuId) -> Option<Self> {
        let of = |way: Way, value: fn(&Block) -> f64| {
            median_of(blocks.iter().filter(|block| (block.part, block.way) == (part, way)).map(value))
        };
        let three = |value: fn(&Block) -> f64| -> Option<[f64; 3]> {
            Some([of(Way::Stock, value)?, of(Way::Anticipatory, value)?, of(Way::Always, value)?])
        };
        let (p50_us, p99_us) = (three(|block| block.p50_us)?, three(|block| block.p99_us)?);
        let awake_us = three(|block| block.awake_us)?;
        let closed =
            |[stock, ours, always]: [f64; 3]| (stock > always).then(|| (stock - ours) / (stock - always));
        let (gap_closed_p50, gap_closed_p99) = (closed(p50_us), closed(p99_us));
        // The event's own work is the CPU's work for it without us. The needed time is that of a
        // thread's timer, whatever was chosen: a slower alarm shall not excuse longer windows.
        let wake = calibration.exit_latency(sleeper, Alarm::Thread).map(|exit| exit.as_nanos() as f64 / 1e3);
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
        // Disks have no such bar: the latency judges their window.
        if let Some(predicted) = predicted.filter(|predicted| predicted.runs > 0) {
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
            run_us: run_us(part, blocks),
            bars,
        })
    }
}

/// By the rounds' medians of the means.
fn slowdown(part: Part, blocks: &[Block]) -> Option<[[f64; 2]; GAPS]> {
    let mean = |way: Way, gap: usize| {
        let of = blocks.iter().filter(|block| (block.part, block.way) == (part, way));
        median_of(of.filter_map(|block| Some(block.by_gap_us?[gap])))
    };
    let mut all = [[0.0; 2]; GAPS];
    for (gap, slowdown) in all.iter_mut().enumerate() {
        let always = mean(Way::Always, gap)?;
        *slowdown = [mean(Way::Stock, gap)? / always - 1.0, mean(Way::Anticipatory, gap)? / always - 1.0];
    }
    Some(all)
}

/// The rounds' medians of the length of a run.
fn run_us(part: Part, blocks: &[Block]) -> Option<[f64; 3]> {
    let of = |way: Way| {
        let of = blocks.iter().filter(|block| (block.part, block.way) == (part, way));
        median_of(of.filter_map(|block| block.run_us))
    };
    Some([of(Way::Stock)?, of(Way::Anticipatory)?, of(Way::Always)?])
}
