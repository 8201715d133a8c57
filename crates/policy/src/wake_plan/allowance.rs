//! A payer's allowance in the long run, and that of all the machine's callers together: so often,
//! and for so much of the time.
//!
//! A bound on outstanding requests keeps the planner small, but not the machine asleep: one payer
//! could ask again each time and keep a CPU awake for ever. So each has two buckets. One fills with
//! requests at `rate` and holds a second's worth; an accepted request takes one. The other counts
//! the time for which CPUs were kept awake on its account as a debt, which is paid off at `share`
//! of one CPU's time; a payer that owes more than `share` of `over` is refused until it owes less.
//!
//! Invariants: over any length of time t no more than rate * (t + 1 s) requests are accepted, and
//! the time awake on one's account is at most share * (t + over), plus the requests accepted and
//! not over when the debt reached its bound. A refused request takes nothing.

use super::Refused;
use crate::check::Check;
use crate::registry::{Parameter, count, share, time};
use machine::{Duration, Instant, Ratio};
use serde::{Deserialize, Serialize};

/// The bounds of one payer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AllowanceParams {
    pub rate: u32,
    pub share: Ratio,
    #[serde(with = "machine::duration_text")]
    pub over: Duration,
}

impl Check for AllowanceParams {
    const PARAMETERS: &'static [Parameter] = &[
        count("rate", "requests per second")
            .source("ours: one for each operation of a fast disk at depth one"),
        share("share", "the share of one CPU's time for which CPUs may be kept awake").source("ours"),
        time("over", "over so long a time").source("ours"),
    ];
}

impl Default for AllowanceParams {
    fn default() -> Self {
        Self { rate: 20_000, share: Ratio::new(0.5), over: Duration::from_secs(1) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Allowance {
    /// Since then both are kept; `None` before the first request.
    at: Option<Instant>,
    /// Requests taken and not yet earned back, in billionths.
    taken_nano: u64,
    /// Time awake that is not paid off.
    owed: Duration,
    /// Of the account's time awake, this is in `owed` or was.
    counted: Duration,
}

/// A request, in billionths.
const ONE: u64 = 1_000_000_000;

impl Allowance {
    /// One request, by a principal whose account says `awake`.
    pub fn take(&mut self, params: &AllowanceParams, now: Instant, awake: Duration) -> Result<(), Refused> {
        let passed = self.at.map_or(Duration::ZERO, |at| now.since(at));
        // A rate of so many in a second earns so many billionths in a nanosecond.
        self.taken_nano =
            self.taken_nano.saturating_sub(passed.as_nanos().saturating_mul(u64::from(params.rate)));
        self.owed = self.owed + (awake - self.counted) - passed.scale(params.share.as_f64());
        self.counted = awake;
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
        if self.owed > params.over.scale(params.share.as_f64()) {
            return Err(Refused::TooMuch(params.share));
        }
        if self.taken_nano + ONE > u64::from(params.rate).saturating_mul(ONE) {
            return Err(Refused::TooOften(params.rate));
        }
        self.taken_nano += ONE;
        Ok(())
    }
}

impl Allowance {
    /// Nothing is owed any more: a payer that begins anew has no more than this one.
    pub fn is_settled(&self, params: &AllowanceParams, now: Instant, awake: Duration) -> bool {
        let passed = self.at.map_or(Duration::ZERO, |at| now.since(at));
        let earned = passed.as_nanos().saturating_mul(u64::from(params.rate));
        let paid = passed.scale(params.share.as_f64());
        self.taken_nano <= earned && self.owed + (awake - self.counted) <= paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn a_second_of_requests_at_once_and_then_as_they_are_earned() {
        let params = AllowanceParams { rate: 10, ..AllowanceParams::default() };
        let mut allowance = Allowance::default();
        for _ in 0..10 {
            allowance.take(&params, at(0), Duration::ZERO).unwrap();
        }
        assert_eq!(allowance.take(&params, at(0), Duration::ZERO), Err(Refused::TooOften(10)));
        assert_eq!(allowance.take(&params, at(99_999), Duration::ZERO), Err(Refused::TooOften(10)));
        allowance.take(&params, at(100_000), Duration::ZERO).unwrap();
        assert!(allowance.take(&params, at(100_000), Duration::ZERO).is_err());
    }

    #[test]
    fn who_keeps_cpus_awake_for_too_long_waits() {
        let params = AllowanceParams { rate: 1000, share: Ratio::new(0.5), over: Duration::from_secs(1) };
        let mut allowance = Allowance::default();
        allowance.take(&params, at(0), Duration::ZERO).unwrap();
        let awake = Duration::from_millis(900);
        // 900 ms awake in 700 ms: two CPUs. 350 are paid, so 550 are owed, of which 500 may be.
        assert_eq!(allowance.take(&params, at(700_000), awake), Err(Refused::TooMuch(params.share)));
        allowance.take(&params, at(800_000), awake).unwrap();
    }

    proptest! {
        #[test]
        fn no_more_is_accepted_than_was_earned(
            rate in 1_u32..50,
            waits in prop::collection::vec((0_u64..200_000, 0_u64..200_000), 1..300),
        ) {
            let params = AllowanceParams { rate, share: Ratio::new(0.25), over: Duration::from_secs(1) };
            let (mut allowance, mut now, mut accepted, mut awake) = (Allowance::default(), 0, 0_u64, 0);
            for (wait, stay) in waits {
                now += wait;
                if allowance.take(&params, at(now), Duration::from_micros(awake)).is_ok() {
                    accepted += 1;
                    // Kept awake no longer than time passes on four CPUs.
                    awake += stay.min(4 * wait);
                    prop_assert!(awake as f64 <= 0.25 * (now as f64 + 1e6) + 200_000.0 + 1.0);
                }
            }
            prop_assert!(accepted as f64 <= f64::from(rate) * (now as f64 / 1e6 + 1.0) + 1e-6);
        }
    }
}
