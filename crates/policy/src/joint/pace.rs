//! Which operating point a queue of some length needs.
//!
//! A *pace* says for each operating point up to how many requests it is quick enough for. Two
//! kinds:
//! - *graded*: whatever is in the system shall be done within the *patience*, n E S <= patience for
//!   each core; so the operating point rises with the queue, from the one that works at least
//!   energy to the fastest. A queue then holds itself at the length at which work is done as fast
//!   as it comes, which makes this frugal: the speed is even, although no operating point need fit
//!   the load.
//! - *steady*: one operating point, and the fastest from where the goal is in danger. For clocks
//!   that change slowly.

use crate::frequency::{PointIndex, PointTable};
use serde::{Deserialize, Serialize};

/// Operating points by the number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pace {
    lowest: PointIndex,
    fastest: PointIndex,
    /// By operating point: quick enough for so many requests. Of those between the two above; never
    /// falls.
    limits: [u32; PointTable::MAX_POINTS],
}

impl Pace {
    /// The fastest operating point at every queue length.
    pub fn fastest(points: &PointTable) -> Self {
        let fastest = points.fastest();
        Self { lowest: fastest, fastest, limits: [0; PointTable::MAX_POINTS] }
    }

    /// `point` for up to `danger` requests.
    pub fn steady(point: PointIndex, danger: u32, points: &PointTable) -> Self {
        Self { lowest: point, fastest: points.fastest(), limits: [danger; PointTable::MAX_POINTS] }
    }

    /// From `lowest` upwards, each for as many requests as `servers` cores do in it within
    /// `patience_ns`; a mean service takes `service_ns` in each.
    pub fn graded(
        lowest: PointIndex,
        servers: f64,
        patience_ns: f64,
        points: &PointTable,
        service_ns: impl Fn(PointIndex) -> f64,
    ) -> Self {
        let mut limits = [0; PointTable::MAX_POINTS];
        for (limit, point) in limits.iter_mut().zip(points.iter()) {
            *limit = (servers * patience_ns / service_ns(point)) as u32;
        }
        Self { lowest, fastest: points.fastest(), limits }
    }

    /// The operating point for so many requests.
    #[inline]
    pub fn point(&self, requests: u32) -> PointIndex {
        let points = &self.limits[self.lowest.index()..self.fastest.index()];
        let above = points.partition_point(|&limit| limit < requests);
        PointIndex(self.lowest.0 + above as u8)
    }

    /// With more requests than this `point` is not quick enough.
    pub fn limit(&self, point: PointIndex) -> u32 {
        if point >= self.fastest { u32::MAX } else { self.limits[point.index()] }
    }

    /// With so few requests a slower operating point than `point` will do, with an eighth of them
    /// to spare; `None` if there is none.
    pub fn slower_at(&self, point: PointIndex) -> Option<u32> {
        let below = (point > self.lowest).then(|| self.limits[point.index() - 1])?;
        // The greatest n with n + n / 8 + 1 <= limit.
        (below > 0).then(|| (below - 1) * 8 / 9)
    }

    /// The operating point for `requests`, with an eighth to spare.
    pub fn slower(&self, requests: u32) -> PointIndex {
        self.point(requests + requests / 8 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::points_at;
    use proptest::prelude::*;

    #[test]
    fn each_point_does_what_it_can_within_the_patience() {
        let points = points_at(&[1_000, 1_500, 2_000]);
        let pace = Pace::graded(PointIndex(0), 2.0, 100e3, &points, |point| 10e3 / points.speed(point));
        // Two cores: 5, 7.5 and 10 services each.
        for (requests, point) in [(0, 0), (10, 0), (11, 1), (15, 1), (16, 2), (1_000, 2)] {
            assert_eq!(pace.point(requests), PointIndex(point), "{requests}");
        }
        assert_eq!(pace.limit(PointIndex(2)), u32::MAX);
    }

    #[test]
    fn a_steady_pace_has_two_points() {
        let points = points_at(&[1_000, 1_500, 2_000]);
        let pace = Pace::steady(PointIndex(0), 7, &points);
        assert_eq!((pace.point(7), pace.point(8)), (PointIndex(0), PointIndex(2)));
        assert_eq!((pace.slower_at(PointIndex(2)), pace.slower(5)), (Some(5), PointIndex(0)));
        assert_eq!(Pace::fastest(&points).point(0), PointIndex(2));
    }

    proptest! {
        #[test]
        fn going_slower_is_never_too_slow_and_never_at_once_too_fast_again(
            servers in 1.0..40.0_f64,
            patience in 1e3..1e6_f64,
            requests in 0_u32..5_000,
        ) {
            let points = points_at(&[800, 900, 1_100, 1_500, 2_100]);
            let pace = Pace::graded(PointIndex(1), servers, patience, &points, |point| 10e3 / points.speed(point));
            let point = pace.point(requests);
            prop_assert!(point >= PointIndex(1) && requests <= pace.limit(point));
            prop_assert!(point == PointIndex(1) || pace.limit(PointIndex(point.0 - 1)) < requests);
            for point in points.iter().skip(2) {
                if let Some(at) = pace.slower_at(point) {
                    prop_assert!(pace.slower(at) < point, "{point} at {at}");
                    prop_assert!(pace.point(at + 1) <= pace.slower(at));
                }
            }
        }
    }
}
