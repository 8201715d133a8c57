//! When a disk will answer (the CPU sleeps paper, section 2): from the kind of operation and its
//! size.
//!
//! A flash disk's time for one operation is linear in its size, separately for reads and writes
//! (the paper's disk: correlation 1.00 and 0.91). The line is learned while the disk is used, and
//! forgets. An outlier (the disk collects garbage) pulls it little: its weight falls with its
//! distance (Huber's).
//!
//! "If the OS dispatches multiple I/O operations to the SSD [...] the I/O time prediction would be
//! more difficult", says the paper, and stops. Ours: each class of depth (1, 2, 3-4, 5-8, 9-16,
//! more outstanding, itself included) has a line and errors of its own. The average delay of
//! queueing is then in the line, and its scatter is in the window, which widens with depth just as
//! much as this disk makes it; where it becomes too wide to be of use, nothing is predicted.
//!
//! Invariants: nothing is predicted before four operations of the kind and depth were seen,
//! nor for a size about which those seen say nothing; a slip handed back twice or never leaves the
//! count of outstanding operations at or above zero, and at worst in a wrong class.

use super::band::{Band, BandParams};
use super::line::Line;
use super::{Prediction, Record};
use crate::check::Check;
use crate::registry::{Parameter, number, table};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// The kind of the operation on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Read,
    Write,
}

/// The constants of a disk's model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceParams {
    pub memory: f64,
    pub outlier: f64,
    pub band: BandParams,
}

impl Check for DeviceParams {
    const PARAMETERS: &'static [Parameter] = &[
        number("memory", "how long the line remembers, in operations of one kind and depth")
            .within(1.0, 1e9)
            .source("ours: no longer than the errors"),
        number("outlier", "an operation off by more typical errors counts for less")
            .above_zero()
            .source("ours"),
        table("band", "the window", BandParams::PARAMETERS),
    ];
}

impl Default for DeviceParams {
    fn default() -> Self {
        let band = BandParams { short: Duration::from_micros(500), ..BandParams::default() };
        Self { memory: 32.0, outlier: 3.0, band }
    }
}

/// An operation that was sent to the disk: to be handed back when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    pub at: Instant,
    pub operation: Operation,
    pub bytes: u64,
    /// When it will be over, counted from `at`.
    pub prediction: Option<Prediction>,
    class: u8,
}

/// Number of classes of the depth.
const CLASSES: usize = 6;

/// Operations of a kind and depth before the first prediction. With fewer, one outlier would be all
/// that is known.
const FIRST: u32 = 4;

/// The state of one disk's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    params: DeviceParams,
    outstanding: u32,
    /// Reads by class of depth, then writes.
    models: Vec<Model>,
}

/// One operation at one class of depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Model {
    line: Line,
    band: Band,
    seen: u32,
}

impl Device {
    /// A disk of which nothing is known.
    pub fn new(params: DeviceParams) -> Self {
        let model = Model { line: Line::default(), band: Band::new(params.band), seen: 0 };
        Self { params, outstanding: 0, models: vec![model; 2 * CLASSES] }
    }

    /// An operation goes to the disk.
    pub fn handle_issued(&mut self, now: Instant, operation: Operation, bytes: u64) -> Issued {
        self.outstanding = self.outstanding.saturating_add(1);
        let class = class(self.outstanding);
        let model = &self.models[place(operation, class)];
        let prediction = (model.seen >= FIRST).then(|| model.predict(bytes)).flatten();
        Issued { at: now, operation, bytes, prediction, class }
    }

    pub fn handle_completed(&mut self, now: Instant, issued: &Issued) {
        self.outstanding = self.outstanding.saturating_sub(1);
        let DeviceParams { memory, outlier, .. } = self.params;
        let model = &mut self.models[place(issued.operation, issued.class)];
        let (actual, pages) = (now.since(issued.at), pages(issued.bytes));
        let expected = model.line.at(pages).map(|(nanos, _)| nanos.max(0.0));
        let actual_ns = actual.as_nanos() as f64;
        let weight = match (expected, model.band.spread_ns()) {
            (Some(expected), Some(spread)) => {
                let bearable = outlier * spread;
                bearable / (actual_ns - expected).abs().max(bearable).max(1.0)
            }
            _ => 1.0,
        };
        let expected = expected.map(|nanos| Duration::from_nanos(nanos as u64));
        model.band.handle_came(issued.prediction, expected, actual);
        model.line.add(pages, actual_ns, weight.max(f64::MIN_POSITIVE), 1.0 - 1.0 / memory.max(2.0));
        model.seen = model.seen.saturating_add(1);
    }

    /// An operation failed, or will not be waited for: nothing is learned from it.
    pub fn handle_abandoned(&mut self, issued: &Issued) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.models[place(issued.operation, issued.class)].band.record.note_absent(issued.prediction);
    }

    /// How the predictions for one kind of operation fared, whatever the depth.
    pub fn record(&self, operation: Operation) -> Record {
        let first = place(operation, 0);
        let mut total = Record::default();
        self.models[first..first + CLASSES].iter().for_each(|model| total += model.band.record);
        total
    }
}

impl Model {
    fn predict(&self, bytes: u64) -> Option<Prediction> {
        let (nanos, leverage) = self.line.at(pages(bytes))?;
        self.band.around(Duration::from_nanos(nanos.max(0.0) as u64), (1.0 + leverage).sqrt())
    }
}

fn pages(bytes: u64) -> f64 {
    bytes as f64 / 4096.0
}

/// Which class so many outstanding operations are: each reaches to a power of two.
fn class(outstanding: u32) -> u8 {
    (outstanding.max(1) - 1).checked_ilog2().map_or(0, |log| log + 1).min(CLASSES as u32 - 1) as u8
}

fn place(operation: Operation, class: u8) -> usize {
    let first = match operation {
        Operation::Read => 0,
        Operation::Write => CLASSES,
    };
    first + usize::from(class).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Ratio;

    const KB: u64 = 1024;

    /// A disk with a clock and chance of its own.
    struct Bench {
        device: Device,
        now: Instant,
        state: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self { device: Device::new(DeviceParams::default()), now: Instant::ZERO, state: 7 }
        }

        /// Between 0 and 1.
        fn chance(&mut self) -> f64 {
            self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.state >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// One operation alone, of so many us.
        fn one(&mut self, operation: Operation, bytes: u64, us: f64) -> Issued {
            let issued = self.device.handle_issued(self.now, operation, bytes);
            self.now += Duration::from_nanos((us * 1e3) as u64);
            self.device.handle_completed(self.now, &issued);
            issued
        }

        /// The paper's reads: 80 us and 5 us per page, with a scatter of +- 3 us.
        fn read(&mut self, bytes: u64) -> Issued {
            let us = 80.0 + 5.0 * pages(bytes) + 6.0 * self.chance() - 3.0;
            self.one(Operation::Read, bytes, us)
        }
    }

    #[test]
    fn classes_reach_to_powers_of_two() {
        let classes = [1, 2, 3, 4, 5, 8, 9, 16, 17, 1000].map(class);
        assert_eq!(classes, [0, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    }

    #[test]
    fn it_learns_time_linear_in_size() {
        let mut bench = Bench::new();
        for n in 0..200 {
            bench.read([4 * KB, 16 * KB, 64 * KB][n % 3]);
        }
        // 128 KB were never read.
        let prediction = bench.read(128 * KB).prediction.unwrap();
        let expected_us = prediction.expected.as_nanos() as f64 / 1e3;
        assert!((expected_us - 240.0).abs() < 5.0, "{expected_us}");
        let four = bench.read(4 * KB).prediction.unwrap();
        assert!(four.window() < Duration::from_micros(8), "{four:?}");
        assert!(prediction.window() > four.window());
    }

    #[test]
    fn windows_hold_what_they_promise() {
        let mut bench = Bench::new();
        for n in 0..5000 {
            bench.read([4 * KB, 16 * KB, 64 * KB][n % 3]);
        }
        let record = bench.device.record(Operation::Read);
        assert!((0.87..0.93).contains(&record.hit_rate().as_f64()), "{record:?}");
        assert_eq!(record.unpredicted, 4);
        assert_eq!(bench.device.record(Operation::Write), Record::default());
    }

    #[test]
    fn reads_tell_nothing_of_writes() {
        let mut bench = Bench::new();
        for _ in 0..100 {
            bench.read(4 * KB);
        }
        assert_eq!(bench.one(Operation::Write, 4 * KB, 400.0).prediction, None);
    }

    #[test]
    fn a_size_never_seen_is_not_predicted_from_a_single_other() {
        let mut bench = Bench::new();
        for _ in 0..100 {
            bench.read(4 * KB);
        }
        assert!(bench.read(4 * KB).prediction.is_some());
        assert_eq!(bench.read(64 * KB).prediction, None);
    }

    #[test]
    fn outliers_do_not_bend_the_line() {
        let mut bench = Bench::new();
        for n in 0..400 {
            if n % 50 == 49 {
                bench.one(Operation::Read, 4 * KB, 3_000.0);
            } else {
                bench.read(4 * KB);
            }
            if n > 100 {
                let prediction = bench.read(4 * KB).prediction.unwrap();
                let expected_us = prediction.expected.as_nanos() as f64 / 1e3;
                assert!((expected_us - 85.0).abs() < 4.0, "{n}: {expected_us}");
            }
        }
    }

    #[test]
    fn a_lasting_change_is_learned() {
        let mut bench = Bench::new();
        for _ in 0..200 {
            bench.one(Operation::Read, 4 * KB, 85.0);
        }
        for _ in 0..150 {
            bench.one(Operation::Read, 4 * KB, 170.0);
        }
        let prediction = bench.one(Operation::Read, 4 * KB, 170.0).prediction.unwrap();
        let expected_us = prediction.expected.as_nanos() as f64 / 1e3;
        assert!((expected_us - 170.0).abs() < 2.0, "{expected_us}");
    }

    #[test]
    fn several_outstanding_widen_the_window() {
        // Bunches of 1, 2 and 4 reads; the disk does two at a time, in an order of its own.
        let mut bench = Bench::new();
        let mut last = [None; 3];
        for n in 0..900_usize {
            let depth = [1, 2, 4][n % 3];
            let issued: Vec<_> =
                (0..depth).map(|_| bench.device.handle_issued(bench.now, Operation::Read, 4 * KB)).collect();
            last[n % 3] = issued.last().map(|issued| issued.prediction);
            let start = bench.now;
            let mut ends: Vec<_> = issued
                .iter()
                .map(|issued| {
                    let turn = (bench.chance() * depth as f64 / 2.0).floor();
                    let us = 85.0 * (1.0 + turn) + 6.0 * bench.chance();
                    (start + Duration::from_nanos((us * 1e3) as u64), *issued)
                })
                .collect();
            ends.sort_by_key(|&(end, _)| end);
            for (end, issued) in ends {
                bench.device.handle_completed(end, &issued);
                bench.now = end;
            }
        }
        let window = |n: usize| last[n].flatten().map(|prediction: Prediction| prediction.window());
        assert!(window(0).unwrap() < Duration::from_micros(8), "{last:?}");
        let four = window(2).unwrap();
        assert!(four > Duration::from_micros(80) && four < Duration::from_micros(180), "{last:?}");
    }

    #[test]
    fn abandoned_operations_are_counted_and_not_learned_from() {
        let mut bench = Bench::new();
        for _ in 0..100 {
            bench.read(4 * KB);
        }
        let issued = bench.device.handle_issued(bench.now, Operation::Read, 4 * KB);
        let before = bench.device.models.clone();
        bench.device.handle_abandoned(&issued);
        bench.device.handle_abandoned(&issued);
        assert_eq!(bench.device.outstanding, 0);
        assert_eq!(bench.device.record(Operation::Read).absent, 2);
        assert_eq!(bench.device.models[0].line, before[0].line);
        assert_ne!(bench.device.record(Operation::Read).hit_rate(), Ratio::ZERO);
    }
}
