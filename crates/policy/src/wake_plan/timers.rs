//! When a timer will fire: when it was set to, and a little later.
//!
//! A timer's expiry is known, for once. The model learns how late it fires (the kernel groups
//! timers, the interrupt takes its time), so that the window is neither shorter nor longer than
//! that needs. A periodic timer is armed anew for every period.

use super::band::{Band, BandParams};
use super::{Prediction, Record};
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimerParams {
    /// How late (or early) a timer is taken to be before any has fired. 50 us: Linux's default
    /// timer slack (the kernel's).
    #[serde(with = "machine::duration_text")]
    pub slack: Duration,
    /// The window. Its `first_guess` and `widest` mean nothing here: lateness is no fraction of the
    /// wait.
    pub band: BandParams,
}

impl Default for TimerParams {
    fn default() -> Self {
        Self { slack: Duration::from_micros(50), band: BandParams::default() }
    }
}

/// A timer that was armed: to be handed back when it fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Armed {
    pub at: Instant,
    /// The time that it was set to.
    pub expiry: Instant,
    /// When it will fire, counted from `at`.
    pub prediction: Prediction,
}

/// The timers of one source, and how late they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timers {
    params: TimerParams,
    band: Band,
}

impl Timers {
    pub fn new(params: TimerParams) -> Self {
        Self { params, band: Band::new(params.band) }
    }

    /// A timer is set to fire at `expiry`.
    pub fn handle_armed(&mut self, now: Instant, expiry: Instant) -> Armed {
        let prediction = self.band.around_with(expiry.since(now), self.params.slack, 1.0);
        Armed { at: now, expiry, prediction }
    }

    pub fn handle_fired(&mut self, now: Instant, armed: &Armed) {
        let set_to = armed.expiry.since(armed.at);
        self.band.handle_came(Some(armed.prediction), Some(set_to), now.since(armed.at));
    }

    pub fn handle_disarmed(&mut self, armed: &Armed) {
        self.band.record.note_absent(Some(armed.prediction));
    }

    pub fn record(&self) -> Record {
        self.band.record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_learned_whatever_the_wait() {
        let mut timers = Timers::new(TimerParams::default());
        let ms = Duration::from_millis(1);
        let first = timers.handle_armed(Instant::ZERO, Instant::ZERO + ms);
        assert_eq!((first.prediction.expected, first.prediction.window()), (ms, Duration::from_micros(100)));
        let mut now = Instant::ZERO;
        for n in 0..100 {
            let expiry = now + ms * (1 + n % 7);
            let armed = timers.handle_armed(now, expiry);
            now = expiry + Duration::from_micros(8 + n % 5);
            timers.handle_fired(now, &armed);
        }
        let armed = timers.handle_armed(now, now + ms * 500);
        assert_eq!(armed.prediction.earliest, ms * 500 + Duration::from_micros(8));
        assert_eq!(armed.prediction.latest, ms * 500 + Duration::from_micros(12));
        assert_eq!((timers.record().hits, timers.record().late), (100, 0));
    }

    #[test]
    fn an_expiry_in_the_past_is_now() {
        let mut timers = Timers::new(TimerParams::default());
        let now = Instant::from_nanos(1_000_000);
        let armed = timers.handle_armed(now, Instant::from_nanos(5));
        assert_eq!((armed.prediction.earliest, armed.prediction.expected), (Duration::ZERO, Duration::ZERO));
        timers.handle_disarmed(&armed);
        assert_eq!(timers.record().absent, 1);
    }
}
