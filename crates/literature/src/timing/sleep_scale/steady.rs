//! Whether a log says that a queue keeps up.
//!
//! A queue to which more comes than can be served grows by the difference and no faster, so the
//! tail of a short log is within the goal all the same. Its utilisation tells: the need of the
//! requests, as a share of the servers' time from one arrival to the next. That is an estimate, and
//! of n requests its relative standard error is
//!
//! ```text
//!   error = sqrt((ca^2 + cs^2) / n)      ca, cs: deviation of gaps and of service times, in their means
//! ```
//!
//! A queue keeps up if utilisation * (1 + z error) is below one. The same bound says that the log
//! is long enough to show the tail: near saturation a queue forgets how it began in 2 (ca^2 + cs^2)
//! / (1 - utilisation)^2 arrivals (the relaxation time of regulated Brownian motion [Abate and
//! Whitt, Adv. Appl. Prob. 19, 1987]), and with z = 3 a log is at least four and a half times as
//! long.
//!
//! Without a shared queue every core has to keep up by itself, with a log of its own requests only.

use super::{Queueing, Served};
use machine::Instant;

/// How certain it has to be, in standard errors \[D\]: of a thousand looks at a queue that is
/// exactly saturated one errs.
const Z: f64 = 3.0;

/// Whether every queue of a log, which is in order of arrival, keeps up at this speed.
pub(super) fn keeps_up(requests: &[Served], queueing: Queueing, cores: u16, speed: f64) -> bool {
    let (mut queues, servers) = match queueing {
        Queueing::Shared => (vec![Queue::default()], f64::from(cores)),
        Queueing::PerCore => (vec![Queue::default(); usize::from(cores)], 1.0),
    };
    for served in requests {
        let place = if queueing == Queueing::Shared { 0 } else { usize::from(served.core) };
        queues[place].add(served, speed);
    }
    queues.iter().all(|queue| queue.keeps_up(servers))
}

#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    last: Option<Instant>,
    gaps: Sums,
    needs: Sums,
}

impl Queue {
    fn add(&mut self, served: &Served, speed: f64) {
        if let Some(last) = self.last {
            self.gaps.add(served.arrived.since(last).as_nanos() as f64);
        }
        self.last = Some(served.arrived);
        self.needs.add((served.compute.scale(1.0 / speed) + served.memory).as_nanos() as f64);
    }

    /// Two requests at least make a rate.
    fn keeps_up(&self, servers: f64) -> bool {
        if self.gaps.count == 0.0 {
            return true;
        }
        let utilisation = self.needs.mean() / (servers * self.gaps.mean());
        let error = ((self.gaps.scv() + self.needs.scv()) / self.needs.count).sqrt();
        // No time between arrivals at all is no rate to keep up with, unless there is nothing to
        // do.
        self.needs.sum == 0.0 || utilisation * (1.0 + Z * error) < 1.0
    }
}

/// Count, sum and sum of squares.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// Squared coefficient of variation.
    fn scv(&self) -> f64 {
        let mean = self.mean();
        if mean == 0.0 { 0.0 } else { (self.squares / self.count / (mean * mean) - 1.0).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;

    /// So many requests at random, each with a mean of 10 us to do, at this utilisation of ten
    /// cores.
    fn random(requests: u32, utilisation: f64, seed: u64) -> Vec<Served> {
        let mut state = seed;
        // Knuth's generator; the upper half of its bits will do.
        let mut exponential = |mean_ns: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = ((state >> 33) as f64 + 0.5) / (1_u64 << 31) as f64;
            Duration::from_nanos((-uniform.ln() * mean_ns).round() as u64)
        };
        let mut at = Instant::ZERO;
        let mut next = |core| {
            at += exponential(1_000.0 / utilisation);
            Served { arrived: at, core, compute: exponential(10_000.0), memory: Duration::ZERO }
        };
        (0..requests).map(|request| next((request % 10) as u16)).collect()
    }

    /// Of a hundred logs, those that are found to keep up.
    fn found(requests: u32, utilisation: f64, queueing: Queueing) -> usize {
        let logs = (1..=100).map(|seed| random(requests, utilisation, seed));
        logs.filter(|log| keeps_up(log, queueing, 10, 1.0)).count()
    }

    #[test]
    fn a_saturated_queue_is_not_taken_for_one_that_keeps_up_and_a_longer_log_says_more() {
        let shared = |requests, utilisation| found(requests, utilisation, Queueing::Shared);
        assert_eq!([shared(4_096, 1.02), shared(4_096, 1.0), shared(100, 1.0)], [0, 0, 0]);
        assert!(shared(4_096, 0.88) >= 95, "{}", shared(4_096, 0.88));
        // 0.98 is steady, but this log is too short to tell.
        assert!(shared(4_096, 0.98) <= 10, "{}", shared(4_096, 0.98));
        assert!(shared(262_144, 0.98) >= 95, "{}", shared(262_144, 0.98));
        // A queue per core sees a tenth of the log, and any core may be the one that does not keep
        // up.
        assert_eq!(found(4_096, 0.97, Queueing::PerCore), 0);
        assert!(found(4_096, 0.6, Queueing::PerCore) >= 95);
    }

    #[test]
    fn one_request_or_nothing_to_do_keeps_up_and_all_at_once_does_not() {
        let at_once = |compute| Served {
            arrived: Instant::ZERO,
            core: 0,
            compute: Duration::from_micros(compute),
            memory: Duration::ZERO,
        };
        assert!(keeps_up(&[], Queueing::Shared, 2, 1.0));
        assert!(keeps_up(&[at_once(10)], Queueing::Shared, 2, 1.0));
        assert!(keeps_up(&[at_once(0); 3], Queueing::PerCore, 2, 1.0));
        assert!(!keeps_up(&[at_once(10); 3], Queueing::Shared, 2, 1.0));
    }
}
