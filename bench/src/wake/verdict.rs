//! Gaps and times awake over all rounds, and their targets.

use super::{Block, GAP_NAMES, GAPS, Part, Predicted, Way};
use crate::harness::figure::{Target, median_of};
use clap::ValueEnum as _;
use daemon::wake::{Alarm, Calibration};
use machine::CpuId;

/// The share of the gap that has to be closed.
const GAP_TARGET: f64 = 0.85;
/// Time awake over the needed time.
const AWAKE_TARGET: f64 = 1.2;
/// Predictions within a tenth, or as many as the oracle has.
const TENTH_TARGET: f64 = 0.9;

#[derive(Debug)]
pub struct PartVerdict {
    pub part: Part,
    /// Stock, anticipatory, always: the rounds' medians.
    pub p50_us: [f64; 3],
    pub p99_us: [f64; 3],
    pub awake_us: [f64; 3],
    /// `None`: always awake is no better than stock here.
    pub gap_closed_p50: Option<f64>,
    pub gap_closed_p99: Option<f64>,
    /// Of the CPU that waits: time awake per event over the needed time.
    awake_over_needed: Option<f64>,
    pub predicted: Option<Predicted>,
    /// Disk reads' slowdown against always awake, by the gap before: stock and ours.
    pub slowdown_by_gap: Option<[[f64; 2]; GAPS]>,
    /// Repeated runs, the wake-up at their end included.
    pub run_us: Option<[f64; 3]>,
}

/// A value over all rounds, and its target.
pub type Judged = (&'static str, f64, Option<Target>);

impl PartVerdict {
    /// Of the parts that were measured.
    pub fn all(blocks: &[Block], calibration: &Calibration, sleeper: CpuId) -> Vec<Self> {
        let parts = Part::value_variants().iter();
        parts.filter_map(|&part| Self::of(part, blocks, calibration, sleeper)).collect()
    }

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
        Some(Self {
            part,
            p50_us,
            p99_us,
            awake_us,
            gap_closed_p50,
            gap_closed_p99,
            awake_over_needed,
            predicted,
            slowdown_by_gap: slowdown(part, blocks),
            run_us: run_us(part, blocks),
        })
    }

    pub fn judged(&self) -> Vec<Judged> {
        let is_cross = self.part == Part::Cross;
        let mut judged = Vec::new();
        for (metric, closed) in
            [("gap_closed_p50", self.gap_closed_p50), ("gap_closed_p99", self.gap_closed_p99)]
        {
            // The target is missed as well where there is no gap to close.
            let closed = closed.or(is_cross.then_some(0.0));
            let target = is_cross.then_some(Target::AtLeast(GAP_TARGET));
            judged.extend(closed.map(|closed| (metric, closed, target)));
        }
        let target = is_cross.then_some(Target::AtMost(AWAKE_TARGET));
        judged.extend(self.awake_over_needed.map(|ratio| ("awake_over_needed", ratio, target)));
        if let Some(predicted) = self.predicted {
            let share = |count: u64, of: u64| count as f64 / of.max(1) as f64;
            // Disks have no oracle, and no target here: the latency judges their window.
            let oracle = (predicted.runs > 0).then(|| share(predicted.oracle_within_tenth, predicted.runs));
            let target = oracle.map(|oracle| Target::AtLeast(oracle.min(TENTH_TARGET)));
            judged.push(("within_tenth", share(predicted.within_tenth, predicted.predicted), target));
            judged.extend(oracle.map(|oracle| ("oracle_within_tenth", oracle, None)));
            judged.push(("in_window", share(predicted.in_window, predicted.predicted), None));
            judged.push(("predicted", predicted.predicted as f64, None));
        }
        judged
    }

    /// Beside the paper's figures.
    pub fn remarks(&self) -> Vec<String> {
        let name = self.part.name();
        let mut remarks = Vec::new();
        if let Some([stock, ours, _]) = self.run_us {
            remarks.push(format!(
                "{name}: a run and its wake-up {stock:.1} us stock, {ours:.1} us anticipatory: {:+.1} % \
                 speed (the paper's: about +10 %); a thread stands in for the device",
                100.0 * (stock / ours - 1.0)
            ));
        }
        if let Some(slowdown) = self.slowdown_by_gap {
            for (gap, [stock, ours]) in GAP_NAMES.iter().zip(slowdown) {
                remarks.push(format!(
                    "{name}: after {gap} slower than always awake by {:.0} % stock, {:.0} % ours",
                    100.0 * stock,
                    100.0 * ours
                ));
            }
            remarks.push(format!(
                "{name}: the paper, its own disk and kernel: by 101 % stock, 37 % anticipatory at 1 ms \
                 (its figure 1)"
            ));
        }
        remarks
    }
}

pub fn gap(closed: Option<f64>) -> String {
    closed.map_or("no gap to close".to_owned(), |closed| format!("gap closed {:.0} %", 100.0 * closed))
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
