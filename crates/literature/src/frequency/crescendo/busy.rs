//! The cores that work, and whose work keeps the package awake.

use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Busy {
    /// The package sleeps in gaps of so much.
    package_after: Duration,
    cores: u16,
    since: Instant,
    /// Of the period in which the package has not slept.
    began: Instant,
    last_stay: Duration,
    cores_ns: f64,
    periods_ns: f64,
    critical_ns: f64,
}

/// The sums since they were last taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// Time of work, summed over the cores.
    pub cores_ns: f64,
    /// The share of the package's time awake that would be less if all work took less, 0 to 1.
    pub critical: f64,
}

impl Busy {
    pub fn new(package_after: Duration) -> Self {
        Self {
            package_after,
            cores: 0,
            since: Instant::ZERO,
            began: Instant::ZERO,
            last_stay: Duration::ZERO,
            cores_ns: 0.0,
            periods_ns: 0.0,
            critical_ns: 0.0,
        }
    }

    pub fn cores(&self) -> u16 {
        self.cores
    }

    pub fn handle_completion(&mut self, response: Duration) {
        self.last_stay = response;
    }

    /// So many work from now on. True if it is another number.
    pub fn change(&mut self, now: Instant, cores: u16) -> bool {
        let lasted = now.since(self.since);
        self.cores_ns += f64::from(self.cores) * lasted.as_nanos() as f64;
        if self.cores == 0 && lasted >= self.package_after {
            let period = self.since.since(self.began);
            self.periods_ns += period.as_nanos() as f64;
            self.critical_ns += self.last_stay.min(period).as_nanos() as f64;
            self.began = now;
        }
        self.since = now;
        std::mem::replace(&mut self.cores, cores) != cores
    }

    pub fn take(&mut self) -> Seen {
        let unended_ns = self.since.since(self.began).as_nanos() as f64;
        let critical = self.critical_ns / (self.periods_ns + unended_ns).max(1.0);
        let seen = Seen { cores_ns: self.cores_ns, critical: critical.min(1.0) };
        (self.cores_ns, self.periods_ns, self.critical_ns) = (0.0, 0.0, 0.0);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    /// Periods that begin every 1,000 us; in each, cores change at these times (us).
    fn seen(changes: &[(u64, u16)], last_stay_us: u64) -> Seen {
        let mut busy = Busy::new(Duration::from_micros(100));
        for period in 0..50 {
            for &(us, cores) in changes {
                if cores == 0 {
                    busy.handle_completion(Duration::from_micros(last_stay_us));
                }
                busy.change(at(period * 1_000 + us), cores);
            }
        }
        busy.take()
    }

    #[test]
    fn work_that_begins_and_ends_together_keeps_the_package_awake() {
        let Seen { cores_ns, critical } = seen(&[(0, 4), (200, 0)], 200);
        assert_eq!(cores_ns, 50.0 * 4.0 * 200e3);
        assert!(critical > 0.97, "{critical}");
    }

    #[test]
    fn work_that_ends_a_period_is_less_than_the_period() {
        // The last came 50 us before the end.
        let Seen { critical, .. } = seen(&[(0, 1), (150, 2), (180, 1), (200, 0)], 50);
        assert!((0.23..0.27).contains(&critical), "{critical}");
    }

    #[test]
    fn a_gap_that_the_package_cannot_use_ends_no_period() {
        // 60 us of nothing in between.
        let Seen { critical, .. } = seen(&[(0, 1), (100, 0), (160, 1), (200, 0)], 40);
        assert!((0.18..0.22).contains(&critical), "{critical}");
        assert_eq!(Busy::new(Duration::ZERO).take(), Seen { cores_ns: 0.0, critical: 0.0 });
    }
}
