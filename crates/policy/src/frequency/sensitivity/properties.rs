//! The loss of progress, against work whose loss is known.

use super::tests::{Work, closed_loop};
use super::{Params, Progress, Sensitivity};
use crate::frequency::points::tests::{nine_points, points_at};
use machine::{Duration, Ratio};
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_loss_stays_within_the_slack(
        computing in 0.0..=1.0_f64,
        slack in 0.0..0.6_f64,
        steps in prop::collection::vec(50_u64..400, 1..31),
    ) {
        let mut mhz = 800;
        let mut clocks = vec![mhz];
        clocks.extend(steps.iter().map(|step| { mhz += step; mhz }));
        let points = points_at(&clocks);
        let params = Params { slack: Ratio::new(slack), ..Params::default() };
        let work = Work { computing };
        let history = closed_loop(params, &points, work, 1_000);
        // Two steps of the last `stale_after` may be a perturbation.
        let loss = |point| work.loss(points.speed(point));
        prop_assume!(points.iter().all(|point| point == points.fastest() || (loss(point) - slack).abs() > 1e-8));
        let lowest = points.iter().find(|&point| loss(point) <= slack + 1e-8);
        let settled = history.iter().filter(|&&point| Some(point) == lowest).count();
        prop_assert!(settled >= history.len() - 3, "{lowest:?} in {history:?}");
    }

    #[test]
    fn pure_computing_keeps_to_the_slack_in_the_papers_model_too(slack in 0.0..0.6_f64) {
        let points = nine_points();
        let work = Work { computing: 1.0 };
        let history = closed_loop(Params { slack: Ratio::new(slack), ..Params::paper() }, &points, work, 1_000);
        let over = history.iter().filter(|&&point| work.loss(points.speed(point)) > slack + 1e-6).count();
        prop_assert!(over <= 2, "{over}");
    }

    #[test]
    fn nonsense_gives_a_point_of_the_table(
        readings in prop::collection::vec(
            (prop::num::f64::ANY, prop::num::f64::ANY, 0_u64..2_000_000), 0..200),
    ) {
        let points = nine_points();
        let mut policy = Sensitivity::new(Params { slack: Ratio::new(0.1), ..Params::default() });
        for (instructions, speed, busy) in readings {
            let progress = Progress { instructions, speed, busy: Duration::from_nanos(busy) };
            prop_assert!(policy.handle_step(&points, &progress).index() < points.count());
            prop_assert!(policy.sensitivity().is_none_or(|s| (0.0..=1.0).contains(&s)));
        }
    }
}
