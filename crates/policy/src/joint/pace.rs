//! Which gear a queue of some length needs.
//!
//! A *pace* says for each gear up to how many requests it is quick enough for. Two kinds:
//! - *graded*: whatever is in the system shall be done within the *patience*, n E S <= patience for
//!   each core; so the gear rises with the queue, from the one that works at least energy to the
//!   fastest. A queue then holds itself at the length at which work is done as fast as it comes,
//!   which makes this frugal: the speed is even, although no gear need fit the load.
//! - *steady*: one gear, and the fastest from where the goal is in danger. For clocks that change
//!   slowly.

use crate::frequency::{GearIndex, GearTable};
use serde::{Deserialize, Serialize};

/// Gears by the number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pace {
    lowest: GearIndex,
    fastest: GearIndex,
    /// By gear: quick enough for so many requests. Of those between the two above; never falls.
    limits: [u32; GearTable::MAX_GEARS],
}

impl Pace {
    /// The fastest gear at every queue length.
    pub fn fastest(gears: &GearTable) -> Self {
        let fastest = gears.fastest();
        Self { lowest: fastest, fastest, limits: [0; GearTable::MAX_GEARS] }
    }

    /// `gear` for up to `danger` requests.
    pub fn steady(gear: GearIndex, danger: u32, gears: &GearTable) -> Self {
        Self { lowest: gear, fastest: gears.fastest(), limits: [danger; GearTable::MAX_GEARS] }
    }

    /// From `lowest` upwards, each for as many requests as `servers` cores do in it within
    /// `patience_ns`; a mean service takes `service_ns` in each.
    pub fn graded(
        lowest: GearIndex,
        servers: f64,
        patience_ns: f64,
        gears: &GearTable,
        service_ns: impl Fn(GearIndex) -> f64,
    ) -> Self {
        let mut limits = [0; GearTable::MAX_GEARS];
        for (limit, gear) in limits.iter_mut().zip(gears.iter()) {
            *limit = (servers * patience_ns / service_ns(gear)) as u32;
        }
        Self { lowest, fastest: gears.fastest(), limits }
    }

    /// The gear for so many requests.
    #[inline]
    pub fn gear(&self, requests: u32) -> GearIndex {
        let gears = &self.limits[self.lowest.index()..self.fastest.index()];
        let above = gears.partition_point(|&limit| limit < requests);
        GearIndex(self.lowest.0 + above as u8)
    }

    /// With more requests than this `gear` is not quick enough.
    pub fn limit(&self, gear: GearIndex) -> u32 {
        if gear >= self.fastest { u32::MAX } else { self.limits[gear.index()] }
    }

    /// With so few requests a slower gear than `gear` will do, with an eighth of them to spare;
    /// `None` if there is none.
    pub fn slower_at(&self, gear: GearIndex) -> Option<u32> {
        let below = (gear > self.lowest).then(|| self.limits[gear.index() - 1])?;
        // The greatest n with n + n / 8 + 1 <= limit.
        (below > 0).then(|| (below - 1) * 8 / 9)
    }

    /// The gear for `requests`, with an eighth to spare.
    pub fn slower(&self, requests: u32) -> GearIndex {
        self.gear(requests + requests / 8 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::gears::tests::gears_at;
    use proptest::prelude::*;

    #[test]
    fn each_gear_does_what_it_can_within_the_patience() {
        let gears = gears_at(&[1_000, 1_500, 2_000]);
        let pace = Pace::graded(GearIndex(0), 2.0, 100e3, &gears, |gear| 10e3 / gears.speed(gear));
        // Two cores: 5, 7.5 and 10 services each.
        for (requests, gear) in [(0, 0), (10, 0), (11, 1), (15, 1), (16, 2), (1_000, 2)] {
            assert_eq!(pace.gear(requests), GearIndex(gear), "{requests}");
        }
        assert_eq!(pace.limit(GearIndex(2)), u32::MAX);
    }

    #[test]
    fn a_steady_pace_has_two_gears() {
        let gears = gears_at(&[1_000, 1_500, 2_000]);
        let pace = Pace::steady(GearIndex(0), 7, &gears);
        assert_eq!((pace.gear(7), pace.gear(8)), (GearIndex(0), GearIndex(2)));
        assert_eq!((pace.slower_at(GearIndex(2)), pace.slower(5)), (Some(5), GearIndex(0)));
        assert_eq!(Pace::fastest(&gears).gear(0), GearIndex(2));
    }

    proptest! {
        #[test]
        fn going_slower_is_never_too_slow_and_never_at_once_too_fast_again(
            servers in 1.0..40.0_f64,
            patience in 1e3..1e6_f64,
            requests in 0_u32..5_000,
        ) {
            let gears = gears_at(&[800, 900, 1_100, 1_500, 2_100]);
            let pace = Pace::graded(GearIndex(1), servers, patience, &gears, |gear| 10e3 / gears.speed(gear));
            let gear = pace.gear(requests);
            prop_assert!(gear >= GearIndex(1) && requests <= pace.limit(gear));
            prop_assert!(gear == GearIndex(1) || pace.limit(GearIndex(gear.0 - 1)) < requests);
            for gear in gears.iter().skip(2) {
                if let Some(at) = pace.slower_at(gear) {
                    prop_assert!(pace.slower(at) < gear, "{gear} at {at}");
                    prop_assert!(pace.gear(at + 1) <= pace.slower(at));
                }
            }
        }
    }
}
