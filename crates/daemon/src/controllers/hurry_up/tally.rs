//! The summary of a run, for its page and for queries: calls by their length, time at each level,
//! the delay of writes.
//!
//! What always holds: memory is bounded, however long the run; each figure is measured here, none
//! is modelled.

use hdrhistogram::Histogram;
use machine::{CpuId, CpuList, Duration, Instant};
use policy::frequency::hurry_up::{Happened, Level};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct Tally {
    began: Instant,
    /// How long calls took that were seen to end.
    pub calls: Histogram<u64>,
    /// From an enter until the write that it led to had returned.
    pub delays: Histogram<u64>,
    pub enters: u64,
    pub looks: u64,
    pub writes: u64,
    cpus: BTreeMap<CpuId, OfCpu>,
    /// The threshold, whenever it changed.
    pub thresholds: Vec<(Duration, Duration)>,
}

#[derive(Debug)]
struct OfCpu {
    level: Level,
    since: Instant,
    at: [Duration; 3],
    changes: Vec<(Duration, Level)>,
    left_out: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuTally {
    pub cpu: CpuId,
    /// Seconds at the lowest, the middle and the highest level.
    pub seconds: [f64; 3],
    /// The first changes: seconds since the beginning, and the level from then on.
    pub changes: Vec<(f64, Level)>,
    pub left_out: u64,
}

/// Changes that are kept for each CPU, and of the threshold.
const CHANGES_MAX: usize = 2_000;
/// An hour; longer calls count as that.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Two digits: a percentile is right within 1 %.
const DIGITS: u8 = 2;

impl Tally {
    pub(super) fn begin(now: Instant, cpus: &CpuList) -> Self {
        let cpu = |&cpu: &CpuId| {
            let at = [Duration::ZERO; 3];
            (cpu, OfCpu { level: Level::Min, since: now, at, changes: Vec::new(), left_out: 0 })
        };
        let empty =
            || Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds and digits are allowed");
        Self {
            began: now,
            calls: empty(),
            delays: empty(),
            enters: 0,
            looks: 0,
            writes: 0,
            cpus: cpus.0.iter().map(cpu).collect(),
            thresholds: Vec::new(),
        }
    }

    pub(super) fn looked(&mut self, happened: &[Happened]) {
        self.looks += 1;
        for happened in happened {
            match *happened {
                Happened::Entered { .. } => self.enters += 1,
                Happened::Left { length: Some(length), .. } | Happened::Passed { length } => {
                    self.calls.saturating_record(length.as_nanos());
                }
                _ => {}
            }
        }
    }

    pub(super) fn threshold_is(&mut self, now: Instant, threshold: Duration) {
        let is_new = self.thresholds.last().is_none_or(|(_, last)| *last != threshold);
        if is_new && self.thresholds.len() < CHANGES_MAX {
            self.thresholds.push((now.since(self.began), threshold));
        }
    }

    pub(super) fn level_is(&mut self, now: Instant, cpu: CpuId, level: Level) {
        let Some(of) = self.cpus.get_mut(&cpu) else { return };
        if of.level == level && !of.changes.is_empty() {
            return;
        }
        of.at[of.level as usize] += now.since(of.since);
        (of.level, of.since) = (level, now);
        if of.changes.len() < CHANGES_MAX {
            of.changes.push((now.since(self.began), level));
        } else {
            of.left_out += 1;
        }
    }

    /// How long it has gone on.
    pub fn length(&self, now: Instant) -> Duration {
        now.since(self.began)
    }

    /// The level of each CPU until now.
    pub fn cpus(&self, now: Instant) -> Vec<CpuTally> {
        let told = |(&cpu, of): (&CpuId, &OfCpu)| {
            let mut at = of.at;
            at[of.level as usize] += now.since(of.since);
            let changes = of.changes.iter().map(|(at, level)| (at.as_secs_f64(), *level));
            let (changes, left_out) = (changes.collect(), of.left_out);
            CpuTally { cpu, seconds: at.map(Duration::as_secs_f64), changes, left_out }
        };
        self.cpus.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn time_at_levels_adds_up_and_changes_are_bounded() {
        let mut tally = Tally::begin(at(0), &"0-1".parse().expect("CPUs"));
        tally.level_is(at(100), CpuId(0), Level::Max);
        tally.level_is(at(200), CpuId(0), Level::Max);
        tally.level_is(at(400), CpuId(0), Level::Mid);
        tally.level_is(at(400), CpuId(9), Level::Mid);
        let cpus = tally.cpus(at(1_000));
        assert_eq!(cpus[0].seconds, [0.1, 0.6, 0.3]);
        assert_eq!(cpus[0].changes, [(0.1, Level::Max), (0.4, Level::Mid)]);
        assert_eq!((cpus[1].seconds, cpus.len()), ([1.0, 0.0, 0.0], 2));
        for ms in 0..CHANGES_MAX as u64 {
            tally.level_is(at(1_000 + ms), CpuId(1), if ms % 2 == 0 { Level::Max } else { Level::Min });
        }
        tally.level_is(at(9_000), CpuId(1), Level::Mid);
        let of = &tally.cpus(at(10_000))[1];
        assert_eq!((of.changes.len(), of.left_out), (CHANGES_MAX, 1));
        assert!((of.seconds.iter().sum::<f64>() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn only_calls_whose_length_is_known_are_counted() {
        let mut tally = Tally::begin(at(0), &CpuList::default());
        let thread = policy::frequency::hurry_up::ThreadId(1);
        let length = Duration::from_millis(3);
        tally.looked(&[
            Happened::Entered { thread, at: at(1) },
            Happened::Left { thread, length: None },
            Happened::Left { thread, length: Some(length) },
            Happened::Passed { length },
        ]);
        assert_eq!((tally.calls.len(), tally.enters, tally.looks), (2, 1, 1));
        let median = tally.calls.value_at_quantile(0.5);
        assert!(median.abs_diff(length.as_nanos()) < 30_000, "{median}");
        tally.threshold_is(at(1), length);
        tally.threshold_is(at(2), length);
        assert_eq!(tally.thresholds, [(Duration::from_millis(1), length)]);
    }
}
