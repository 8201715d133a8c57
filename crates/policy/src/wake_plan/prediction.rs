//! A predictor's answer, and the record of how it fared.

use super::{Principal, Request};
use machine::{CpuId, Duration, Instant, Ratio};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// When an event will come, counted from its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// It is unlikely to come before this.
    pub earliest: Duration,
    /// The middle.
    pub expected: Duration,
    /// It is unlikely to come after this.
    pub latest: Duration,
}

impl Prediction {
    /// From the earliest to the latest moment.
    pub fn window(&self) -> Duration {
        self.latest - self.earliest
    }

    /// The request to the planner when the cause was at `start`.
    pub fn request(&self, principal: Principal, cpu: CpuId, start: Instant) -> Request {
        Request { principal, cpu, ready: start + self.earliest, stay: self.window() }
    }
}

/// How often a predictor was right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The event came within the window.
    pub hits: u64,
    /// The event came before the window: its CPU may have slept.
    pub early: u64,
    /// The event came after the window: its CPU may have slept again.
    pub late: u64,
    /// Number of events that never came.
    pub absent: u64,
    /// The event came and nothing had been predicted.
    pub unpredicted: u64,
    /// The event came within a tenth of the expected time.
    pub within_tenth: u64,
    /// Sum of |came - expected| / came over the predicted events, each counted as one at most.
    error_sum: f64,
}

impl Record {
    /// Events that were predicted, those that never came included.
    pub fn predicted(&self) -> u64 {
        self.hits + self.early + self.late + self.absent
    }

    /// The share of predictions whose window held the event.
    pub fn hit_rate(&self) -> Ratio {
        share(self.hits as f64, self.predicted())
    }

    /// The share of predictions that were right within a tenth.
    pub fn within_tenth_rate(&self) -> Ratio {
        share(self.within_tenth as f64, self.predicted())
    }

    /// One less the mean relative error of those that came. Whether this or
    /// [`Self::within_tenth_rate`] is meant by the paper's "predicted with about 87% accuracy" it
    /// does not say.
    pub fn accuracy(&self) -> Ratio {
        let came = self.predicted() - self.absent;
        share(came as f64 - self.error_sum, came)
    }

    pub(super) fn note(&mut self, prediction: Option<Prediction>, actual: Duration) {
        let Some(Prediction { earliest, expected, latest }) = prediction else {
            self.unpredicted += 1;
            return;
        };
        let place = match actual {
            actual if actual < earliest => &mut self.early,
            actual if actual > latest => &mut self.late,
            _ => &mut self.hits,
        };
        *place += 1;
        let error = (actual - expected) + (expected - actual);
        self.within_tenth += u64::from(error <= expected / 10);
        self.error_sum += Ratio::of(error, actual).as_f64();
    }

    pub(super) fn note_absent(&mut self, prediction: Option<Prediction>) {
        self.absent += u64::from(prediction.is_some());
    }
}

impl AddAssign for Record {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.early += other.early;
        self.late += other.late;
        self.absent += other.absent;
        self.unpredicted += other.unpredicted;
        self.within_tenth += other.within_tenth;
        self.error_sum += other.error_sum;
    }
}

fn share(part: f64, whole: u64) -> Ratio {
    if whole == 0 { Ratio::ZERO } else { Ratio::new(part / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_becomes_a_request_for_its_window() {
        let us = Duration::from_micros;
        let prediction = Prediction { earliest: us(90), expected: us(100), latest: us(130) };
        let request = prediction.request(Principal(1), CpuId(3), Instant::from_nanos(1_000));
        assert_eq!(request.ready, Instant::from_nanos(91_000));
        assert_eq!(request.stay, us(40));
    }

    #[test]
    fn the_record_tells_early_from_late_and_both_from_absent() {
        let us = Duration::from_micros;
        let prediction = Some(Prediction { earliest: us(90), expected: us(100), latest: us(130) });
        let mut record = Record::default();
        for actual in [50, 90, 130, 131] {
            record.note(prediction, us(actual));
        }
        record.note(None, us(5));
        record.note_absent(prediction);
        record.note_absent(None);
        assert_eq!((record.early, record.hits, record.late), (1, 2, 1));
        assert_eq!((record.absent, record.unpredicted, record.predicted()), (1, 1, 5));
        assert_eq!(record.within_tenth, 1);
        assert_eq!(record.hit_rate(), Ratio::new(0.4));
        // Errors 50/50, 10/90, 30/130 and 31/131.
        let errors = 1.0 + 10.0 / 90.0 + 30.0 / 130.0 + 31.0 / 131.0;
        assert!((record.accuracy().as_f64() - (1.0 - errors / 4.0)).abs() < 1e-12);
    }
}
