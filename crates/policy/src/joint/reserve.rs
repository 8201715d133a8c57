//! Readiness for a load that jumps again and again.
//!
//! A surge answers a jump of the load within microseconds, but not at once: cores have to wake, and
//! requests that are queued at a busy core stay there. If jumps are rare that costs no request the
//! goal. If they come every few milliseconds, a plan for the mean of them misses it for good, and
//! nothing else here would notice: epochs in which the load changed teach the model nothing.
//!
//! So misses are counted whatever happened meanwhile, unless all cores were planned for anyway.
//! When the load jumped and they are clearly more than the goal allows, plans are made for a rate
//! between the present one and the recent peak; every further window with too many moves it up,
//! every window with few enough a little down. Without jumps peak and present are the same, and
//! nothing changes.
//!
//! Invariants: the rate that is planned for is not below the present one, nor above the
//! greater of it and the peak.

use super::params::Params;
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// Misses, and how much of the peak is held ready for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reserve {
    target: Duration,
    late: u32,
    seen: u32,
    jumped: bool,
    share: f64,
    peak: f64,
    peak_at: Instant,
}

/// A window lasts until the goal would have allowed so many misses \[D\]: 30 of them are 20 % of
/// chance.
const MISSES: f64 = 30.0;
/// So many times as many as allowed are too many \[D\]: beyond chance.
const TOO_MANY: f64 = 1.3;
/// How far a window moves the share of the peak, up and down \[D\].
const STEPS: [f64; 2] = [0.25, 0.02];

impl Reserve {
    pub fn new(params: &Params, now: Instant) -> Self {
        Self { target: params.target, late: 0, seen: 0, jumped: false, share: 0.0, peak: 0.0, peak_at: now }
    }

    #[inline]
    pub fn record(&mut self, response: Duration) {
        self.seen += 1;
        self.late += u32::from(response > self.target);
    }

    pub fn handle_jump(&mut self) {
        self.jumped = true;
    }

    /// At the end of an epoch with arrivals at `rate`, and at `peak` for a while: the rate to plan
    /// for.
    pub fn plan_for(&mut self, now: Instant, rate: f64, peak: f64, params: &Params) -> f64 {
        let half_lives =
            now.since(self.peak_at).as_secs_f64() / params.peak_half_life.as_secs_f64().max(1e-9);
        self.peak = rate.max(peak).max(self.peak * (-half_lives).exp2());
        self.peak_at = now;
        let allowed = f64::from(self.seen) * (1.0 - params.quantile());
        if allowed >= MISSES {
            let [up, down] = STEPS;
            let too_many = self.jumped && f64::from(self.late) > TOO_MANY * allowed;
            self.share = (self.share + if too_many { up } else { -down }).clamp(0.0, 1.0);
            (self.late, self.seen, self.jumped) = (0, 0, false);
        }
        rate + self.share * (self.peak - rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A window with so many percent late, then the rate planned for.
    fn window(reserve: &mut Reserve, second: u64, percent_late: u32, rate: f64) -> f64 {
        let params = Params::default();
        reserve.handle_jump();
        for request in 0..3_000 {
            let late = request % 100 < percent_late;
            reserve.record(if late { params.target * 2 } else { params.target });
        }
        reserve.plan_for(Instant::ZERO + SECOND * second, rate, 0.0, &params)
    }

    #[test]
    fn a_peak_is_held_ready_for_only_while_it_costs_the_goal() {
        let mut reserve = Reserve::new(&Params::default(), Instant::ZERO);
        assert_eq!(window(&mut reserve, 0, 1, 500.0), 500.0);
        assert_eq!(window(&mut reserve, 0, 1, 20.0), 20.0, "as many as allowed");
        let rates: Vec<f64> = (0..5).map(|_| window(&mut reserve, 0, 5, 20.0)).collect();
        assert_eq!(rates, [140.0, 260.0, 380.0, 500.0, 500.0]);
        let after_a_half_life = window(&mut reserve, 10, 5, 20.0);
        assert!((after_a_half_life - 250.0).abs() < 1e-9, "{after_a_half_life}");
        let quiet: Vec<f64> = (0..60).map(|_| window(&mut reserve, 10, 0, 20.0)).collect();
        assert!(quiet[0] < 250.0 && quiet[59] == 20.0, "{quiet:?}");
    }

    #[test]
    fn a_steady_load_that_misses_is_not_a_peak() {
        let mut reserve = Reserve::new(&Params::default(), Instant::ZERO);
        (0..10).for_each(|second| assert_eq!(window(&mut reserve, second, 50, 100.0), 100.0));
    }

    #[test]
    fn a_load_that_misses_without_jumps_has_no_peaks() {
        let params = Params::default();
        let mut reserve = Reserve::new(&params, Instant::ZERO);
        for _ in 0..10 {
            (0..3_000).for_each(|_| reserve.record(params.target * 2));
            assert_eq!(reserve.plan_for(Instant::ZERO, 100.0, 150.0, &params), 100.0);
        }
    }
}
