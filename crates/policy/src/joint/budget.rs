//! An aim that ends at the goal, learned from the requests that missed it.
//!
//! The goal allows a share of the requests to be late: its *error budget*. Plans made for a fixed share of
//! the target leave a part of it unused wherever the model errs to the safe side, and overspend it where
//! jumps of the load or coarse settings cost more than the model knows. So the misses are counted whatever
//! happened meanwhile, and the *aim*, the share of the target that plans are made for, moves by the
//! rest of the budget: integral control on the count itself.
//!
//! A window lasts until the goal would have allowed some dozens of misses. Response times whose tail is
//! exponential miss the target `1 / -ln(1 - quantile)` more often for each share by which their tail is
//! longer, so the gain is divided by that: a gain of 1 mends in one window all of the error that it saw.
//!
//! Invariants: the aim stays within its bounds, so it does not wind up while the weakest plan is better than
//! the goal or the strongest worse. While it is within them, the misses of windows of one size since any
//! moment are those that the goal allowed, but for the distance of the bounds divided by the gain, in windows:
//! a stated budget, however the load steps. A window counts as three times its budget at the most.

use super::params::Params;
use machine::Duration;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Budget {
    aim: f64,
    late: u32,
    seen: u32,
    /// The misses that the goal allowed in the largest window of late.
    largest: f64,
}

/// A window lasts until the goal would have allowed so many misses \[D\]: 30 of them are 20 % of
/// chance.
const MISSES: f64 = 30.0;
/// The aim, in targets \[D\]. Where the next weaker plan is beyond the most, a fifth of the goal stays
/// unused: the misses of such a plan would come in lumps of more than twice the budget.
pub(super) const AIMS: [f64; 2] = [0.6, 1.2];
/// A window of fewer requests counts for less, so that requests count alike: beside the largest, which
/// the next one replaces by so much of it at the least \[D\].
const FORGOTTEN: f64 = 0.95;
/// No window is believed to have cost more than so many times its budget above it \[D\]: a jump is no
/// reason to be ready for it for long.
const WORST: f64 = 2.0;

impl Budget {
    pub fn new(params: &Params) -> Self {
        Self { aim: params.aim, late: 0, seen: 0, largest: 0.0 }
    }

    /// The share of the target that plans are made for.
    pub fn aim(&self) -> f64 {
        self.aim
    }

    #[inline]
    pub fn record(&mut self, response: Duration, params: &Params) {
        self.seen += 1;
        self.late += u32::from(response > params.target);
    }

    pub fn end_epoch(&mut self, params: &Params) {
        let missable = 1.0 - params.quantile();
        let allowed = f64::from(self.seen) * missable;
        if allowed < MISSES {
            return;
        }
        self.largest = allowed.max(self.largest * FORGOTTEN);
        let left = (allowed - f64::from(self.late)) / self.largest;
        let [least, most] = AIMS;
        let step = params.budget_gain / -missable.ln() * left.max(-WORST);
        self.aim = (self.aim + step).clamp(least.min(params.aim), most);
        (self.late, self.seen) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn params(budget_gain: f64) -> Params {
        Params { budget_gain, ..Params::default() }
    }

    /// A window of 3,000 requests, `late` of which miss.
    fn window(budget: &mut Budget, params: &Params, late: u32) -> f64 {
        for request in 0..3_000 {
            budget.record(if request < late { params.target * 2 } else { params.target }, params);
        }
        budget.end_epoch(params);
        budget.aim()
    }

    #[test]
    fn an_aim_at_which_the_goal_is_just_kept_stays() {
        let params = params(0.3);
        let mut budget = Budget::new(&params);
        assert!((window(&mut budget, &params, 30) - params.aim).abs() < 1e-12);
        assert!(window(&mut budget, &params, 20) > params.aim);
        assert!(window(&mut budget, &params, 40) - params.aim < 1e-12);
    }

    #[test]
    fn without_a_gain_the_aim_is_the_parameter() {
        let params = params(0.0);
        let mut budget = Budget::new(&params);
        assert_eq!(window(&mut budget, &params, 3_000), params.aim);
        assert_eq!((budget.seen, budget.late), (0, 0), "a count never grows without end");
    }

    proptest! {
        /// The bounds hold the misses beyond those allowed, whatever comes.
        #[test]
        fn overspending_is_bounded_while_the_aim_is_within_its_bounds(
            lates in prop::collection::vec(0..90_u32, 1..300), gain in 0.05..1.0_f64,
        ) {
            let params = params(gain);
            let [least, most] = AIMS;
            let mut budget = Budget::new(&params);
            let (mut overspent, mut worst) = (0.0, 0.0_f64);
            for late in lates {
                let aim = window(&mut budget, &params, late);
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
