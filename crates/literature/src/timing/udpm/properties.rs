//! Deadlines are kept, and wake-ups only move to earlier.

use super::Params;
use super::tests::{EXIT, GOAL, knowing, us};
use machine::{Duration, Kilohertz, Microwatts, OperatingPoint, PointKind};
use policy::frequency::PointTable;
use proptest::prelude::*;

proptest! {
    #[test]
    fn deadlines_that_can_be_kept_are_and_wake_ups_only_move_to_earlier(
        gaps in prop::collection::vec(0_u64..150_000, 1..40),
        service in prop::collection::vec((0_u64..60_000, 0_u64..20_000), 20),
        watts in prop::collection::vec(1_u64..10, 4),
    ) {
        // Powers that make sometimes a fast operating point the best, and sometimes a slow one.
        let mut total = 0;
        let points = (1..).zip(watts).map(|(step, more)| {
            total += more;
            let (frequency, power) = (Kilohertz(step * 500_000), Microwatts(total * 1_000_000));
            OperatingPoint { frequency, power, kind: PointKind::Pstate }
        });
        let points = PointTable::try_from(points.collect::<Vec<_>>()).unwrap();
        let mut policy = knowing(Params::default(), points, &service);
        let (mut now, mut queue, mut last) = (us(10), Vec::new(), None);
        for gap in gaps {
            now += Duration::from_nanos(gap);
            if policy.wake(0).is_some_and(|plan| plan.begin + EXIT <= now) {
                break;
            }
            queue.push(now);
            let plan = policy.handle_arrival(0, now).unwrap();
            prop_assert!(last.is_none_or(|last| plan.begin <= last));
            last = Some(plan.begin);
            let speed = policy.points.speed(plan.point);
            let fastest = plan.point == policy.points.fastest();
            let switch = if fastest { Duration::ZERO } else { policy.params.switch };
            let deadlines = (1..).zip(&queue).map(|(place, &arrived)| {
                arrived + GOAL - policy.tails.tail(place, speed).unwrap() - switch
            });
            // Kept, or the core is as early and as fast as it could be made.
            let missed = deadlines.min().is_some_and(|deadline| plan.begin + EXIT > deadline);
            prop_assert!(!missed || (plan.begin <= now && plan.point == policy.points.fastest()));
            prop_assert!(plan.begin >= queue[0]);
        }
    }
}
