//! An aim that ends at the goal, learned from the requests that missed it.
//!
//! The goal allows a share of the requests to be late: its *error budget*. Decisions made for a fixed share of
//! the target leave a part of it unused wherever their model errs to the safe side, and overspend it where
//! jumps of the load or coarse settings cost more than the model knows. So the misses are counted whatever
//! happened meanwhile, and the *aim*, the share of the target that decisions are made for, moves by the
//! rest of the budget: integral control on the count itself.
//!
//! A round lasts until the goal would have allowed some dozens of misses, or as many have come: clients that
//! wait for each answer ask less the later it is, and a policy that waits for many requests would never see
//! that all of them are late. Response times whose tail is exponential miss the target
//! `1 / -ln(1 - quantile)` more often for each share by which their tail is longer, so the gain is divided by
//! that: a gain of 1 mends in one round all of the error that it saw.
//!
//! A peak at which nothing keeps the goal overspends the budget whatever the aim. That *debt* is paid back
//! within the operator's window: while there is one, fewer misses are allowed, by four times its share of
//! those that the window allowed. Savings are not kept: a quiet night is no reason for a slow day.
//!
//! Invariants: the aim stays within its bounds, so it does not wind up while the weakest decision is better
//! than the goal or the strongest worse. While it is within them, the misses of rounds of one size since any
//! moment are at most those that the goal allowed, but for the distance of the bounds divided by the gain, in
//! rounds: a stated budget, however the load steps. A round counts as three times its budget at the most.

use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorBudget {
    aim: f64,
    late: u32,
    seen: u32,
    /// The misses that the goal allowed in the largest round of late.
    largest: f64,
    /// Within the window: those allowed, and how many more than these there were.
    allowed: f64,
    debt: f64,
    counted: Instant,
}

/// The goal, and how it is pursued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    pub target: Duration,
    /// The share of requests that may miss it.
    pub missable: f64,
    /// How much of the rest of the budget moves the aim at once; 0 keeps the aim.
    pub gain: f64,
    /// Least and most that the aim may be, in targets.
    pub aims: [f64; 2],
    /// A debt that is older by this counts by a third, as do the misses that were allowed then.
    pub window: Duration,
}

/// A round lasts until so many misses were allowed, or seen \[D\]: 30 of them are 20 % of chance.
const MISSES: f64 = 30.0;
/// A round of fewer requests counts for less, so that requests count alike: beside the largest, which
/// the next one replaces by so much of it at the least \[D\].
const FORGOTTEN: f64 = 0.95;
/// No round is believed to have cost more than so many times its budget above it \[D\]: a jump is no
/// reason to be ready for it for long.
const WORST: f64 = 2.0;
/// So many times the debt's share of the window is paid back at once \[D\]: it halves in a sixth of the window.
const REPAID: f64 = 4.0;
/// At least this share of the budget may be spent whatever the debt \[D\].
const SPENDABLE: f64 = 0.1;

impl ErrorBudget {
    pub fn new(aim: f64) -> Self {
        Self { aim, late: 0, seen: 0, largest: 0.0, allowed: 0.0, debt: 0.0, counted: Instant::ZERO }
    }

    /// The share of the target that decisions are made for.
    pub fn aim(&self) -> f64 {
        self.aim
    }

    #[inline]
    pub fn record(&mut self, response: Duration, target: Duration) {
        self.seen += 1;
        self.late += u32::from(response > target);
    }

    /// So many requests, of which so many missed the target.
    pub fn record_all(&mut self, seen: u32, late: u32) {
        self.seen = self.seen.saturating_add(seen);
        self.late = self.late.saturating_add(late);
    }

    /// Moves the aim, if enough requests have been seen.
    pub fn end_epoch(&mut self, now: Instant, terms: &Terms) {
        let allowed = f64::from(self.seen) * terms.missable;
        let late = f64::from(self.late);
        if allowed.max(late) < MISSES {
            return;
        }
        let windows = now.since(self.counted).as_secs_f64() / terms.window.as_secs_f64().max(1e-9);
        let kept = (-windows).exp();
        (self.allowed, self.debt) = (self.allowed * kept, self.debt * kept);
        // That of earlier rounds: the misses of this one count at once, and once.
        let spendable = (1.0 - REPAID * self.debt / (self.allowed + allowed)).max(SPENDABLE);
        self.allowed += allowed;
        self.debt = (self.debt + late - allowed).max(0.0);
        self.counted = now;
        self.largest = allowed.max(self.largest * FORGOTTEN);
        let left = (allowed * spendable - late) / self.largest;
        let [least, most] = terms.aims;
        let step = terms.gain / -terms.missable.ln() * left.max(-WORST);
        // An aim that was given beyond a bound goes no further.
        self.aim = (self.aim + step).clamp(least.min(self.aim), most.max(self.aim));
        (self.late, self.seen) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TARGET: Duration = Duration::from_micros(300);

    fn terms(gain: f64) -> Terms {
        Terms { target: TARGET, missable: 0.01, gain, aims: [0.5, 2.0], window: Duration::from_secs(60) }
    }

    /// The rounds of a second each, of 3,000 requests, so many of which miss.
    fn aims(gain: f64, lates: impl IntoIterator<Item = u32>) -> Vec<f64> {
        let mut budget = ErrorBudget::new(0.95);
        let mut now = Instant::ZERO;
        let round = |late: u32| {
            now += Duration::from_secs(1);
            for request in 0..3_000 {
                budget.record(if request < late { TARGET * 2 } else { TARGET }, TARGET);
            }
            budget.end_epoch(now, &terms(gain));
            assert_eq!((budget.seen, budget.late), (0, 0), "a count never grows without end");
            budget.aim()
        };
        lates.into_iter().map(round).collect()
    }

    #[test]
    fn an_aim_at_which_the_goal_is_just_kept_stays() {
        assert_eq!(aims(0.3, [30]), [0.95]);
        assert!(aims(0.3, [20])[0] > 0.95 && aims(0.3, [40])[0] < 0.95);
    }

    #[test]
    fn without_a_gain_the_aim_is_the_parameter() {
        for aim in [0.3, 0.95] {
            let mut budget = ErrorBudget::new(aim);
            (0..3_000).for_each(|_| budget.record(TARGET * 2, TARGET));
            budget.end_epoch(Instant::ZERO, &terms(0.0));
            assert_eq!(budget.aim(), aim);
        }
    }

    /// Requests miss more often the higher the aim is, as of an exponential tail; the first ten rounds have
    /// three times their budget whatever it is.
    #[test]
    fn a_debt_is_paid_back_within_the_window() {
        let spent = |window: Duration| {
            let mut budget = ErrorBudget::new(0.95);
            let (mut now, mut late) = (Instant::ZERO, 0);
            for round in 0..60 {
                now += Duration::from_secs(1);
                let misses = if round < 10 { 90 } else { (30.0 * 100_f64.powf(budget.aim() - 0.95)) as u32 };
                late += misses;
                (0..3_000).for_each(|n| budget.record(if n < misses { TARGET * 2 } else { TARGET }, TARGET));
                budget.end_epoch(now, &Terms { window, ..terms(0.3) });
            }
            f64::from(late) / (60.0 * 30.0)
        };
        let (kept, forgotten) = (spent(Duration::from_secs(60)), spent(Duration::from_millis(1)));
        assert!(kept < 1.05 && forgotten > 1.15, "{kept} and {forgotten} of the budget");
    }

    /// Misses come in pairs and by chance, as of an exponential tail; a window is half a round.
    #[test]
    fn rounds_longer_than_the_window_spend_what_they_may() {
        let (mut budget, mut seed) = (ErrorBudget::new(0.95), 1_u64);
        let mut unit = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut now, mut spent) = (Instant::ZERO, 0);
        for _ in 0..1_000 {
            now += Duration::from_secs(1);
            let share = 0.01 * 100_f64.powf(budget.aim() - 1.0);
            let misses = 2 * (0..1_500).filter(|_| unit() < share).count() as u32;
            spent += misses;
            budget.record_all(3_000, misses);
            budget.end_epoch(now, &Terms { window: Duration::from_millis(500), ..terms(0.1) });
        }
        let spent = f64::from(spent) / (1_000.0 * 30.0);
        assert!((0.92..1.02).contains(&spent), "{spent} of the budget");
    }

    #[test]
    fn savings_are_not_kept() {
        let after = |saved: u32| *aims(0.3, [saved, saved, saved, 60]).last().unwrap();
        let steps = |saved: u32| after(saved) - aims(0.3, [saved; 3])[2];
        assert!((steps(0) - steps(30)).abs() < 1e-9);
    }

    proptest! {
        /// The bounds hold the misses beyond those allowed, whatever comes.
        #[test]
        fn overspending_is_bounded_while_the_aim_is_within_its_bounds(
            lates in prop::collection::vec(0..90_u32, 1..300), gain in 0.05..1.0_f64,
        ) {
            let [least, most] = terms(gain).aims;
            let (mut overspent, mut worst) = (0.0, 0.0_f64);
            for (aim, late) in aims(gain, lates.clone()).into_iter().zip(lates) {
                prop_assert!((least..=most).contains(&aim));
                // At the least aim nothing more can be done; at the most nothing is to be saved.
                let at_bound = aim == least || aim == most;
                overspent = if at_bound { 0.0 } else { overspent + (f64::from(late) - 30.0) / 30.0 };
                worst = worst.max(overspent);
            }
            prop_assert!(worst <= (most - least) * 100_f64.ln() / gain + 1e-9, "{worst}");
        }
    }
}
