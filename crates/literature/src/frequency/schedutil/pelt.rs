//! Per-entity load tracking (`kernel/sched/pelt.c`) of one core.

use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// PELT for one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Utilisation {
    half_life_ns: f64,
    pub value: f64,
    at: Instant,
    pub running: bool,
    speed: f64,
    /// Nanoseconds that the slowed clock of PELT is behind real time (`clock_task - clock_pelt`).
    behind_ns: f64,
}

impl Utilisation {
    /// A core at this utilisation was never idle, and no idle time was taken from it
    /// (`update_idle_rq_clock_pelt`).
    pub const FULL: f64 = 0.999;

    pub fn new(half_life: Duration) -> Self {
        let half_life_ns = half_life.as_nanos().max(1) as f64;
        Self { half_life_ns, value: 0.0, at: Instant::ZERO, running: false, speed: 1.0, behind_ns: 0.0 }
    }

    /// Up to `now` everything was as it was set; an earlier `now` changes nothing.
    pub fn advance(&mut self, now: Instant) {
        let span_ns = now.since(self.at).as_nanos() as f64;
        self.at = self.at.max(now);
        if self.running {
            let counted_ns = span_ns * self.speed;
            self.behind_ns += span_ns - counted_ns;
            self.value = 1.0 - (1.0 - self.value) * self.fade(counted_ns);
        } else {
            self.value *= self.fade(span_ns);
        }
    }

    pub fn set(&mut self, running: bool, speed: f64) {
        if self.running && !running {
            let behind_ns = std::mem::take(&mut self.behind_ns);
            if self.value < Self::FULL {
                self.value *= self.fade(behind_ns);
            }
        }
        self.running = running;
        // Above the nominal clock time counts in full: there is no more than 1.
        self.speed = if speed.is_nan() { 1.0 } else { speed.clamp(0.0, 1.0) };
    }

    fn fade(&self, span_ns: f64) -> f64 {
        (-span_ns / self.half_life_ns).exp2()
    }
}
