//! Invariants, under anything that may happen.

use super::simulated::{completion, states};
use super::*;
use crate::frequency::points::tests::nine_points;
use machine::Duration;
use proptest::prelude::*;

/// An event that a driver reports next, some time later.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrivals(u32),
    /// So many are done, each after so many us of computing and of waiting for memory.
    Completions(u32, u64, u64),
    Timeout,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let gap_us = prop_oneof![8 => 0_u64..50, 2 => 50_u64..5_000, 1 => 5_000_u64..400_000];
    let event = prop_oneof![
        5 => (1_u32..30).prop_map(Event::Arrivals),
        5 => (1_u32..40, 0_u64..60, 0_u64..20).prop_map(|(count, c, m)| Event::Completions(count, c, m)),
        3 => Just(Event::Timeout),
    ];
    prop::collection::vec((gap_us, event), 20..400)
}

fn params() -> impl Strategy<Value = Params> {
    (any::<bool>(), any::<bool>(), 20_u64..2_000, 0.5..0.9999_f64, 1_u32..100).prop_map(
        |(shared, graded, target_us, quantile, samples_min)| Params {
            queueing: if shared { Queueing::Shared } else { Queueing::PerCore },
            graded,
            target: Duration::from_micros(target_us),
            quantile,
            samples_min,
            epoch: Duration::from_millis(2),
            epoch_after_jump: Duration::from_micros(500),
            ..Params::default()
        },
    )
}

/// One event; how the plan changes, and whether by an arrival.
fn play(
    joint: &mut Joint,
    now: Instant,
    event: Event,
    in_system: &mut u32,
    mut see: impl FnMut(&Joint, bool, Plan),
) {
    match event {
        Event::Arrivals(count) => {
            for _ in 0..count {
                *in_system += 1;
                let before = joint.plan();
                let said = joint.handle_arrival(now, *in_system);
                assert_eq!(said, (joint.plan() != before).then(|| joint.plan()));
                see(joint, true, before);
            }
        }
        Event::Completions(count, compute_us, memory_us) => {
            for _ in 0..count.min(*in_system) {
                *in_system -= 1;
                let before = joint.plan();
                let [compute, memory] = [compute_us, memory_us].map(Duration::from_micros);
                let done = completion(compute, memory, (compute + memory) * 3);
                let said = joint.handle_completion(now, &done, *in_system);
                assert_eq!(said, (joint.plan() != before).then(|| joint.plan()));
                see(joint, false, before);
            }
        }
        Event::Timeout => {
            let before = joint.plan();
            let said = joint.handle_timeout(now);
            assert_eq!(said, (joint.plan() != before).then(|| joint.plan()));
            see(joint, false, before);
        }
    }
}

proptest! {
    #[test]
    fn plans_are_possible_and_arrivals_never_weaken_them(
        params in params(),
        cores in 1_u16..20,
        events in events(),
    ) {
        let points = nine_points();
        let mut joint = Joint::new(params, cores, &points, &states(), Instant::ZERO);
        let (mut now, mut in_system) = (Instant::ZERO, 0);
        for (gap_us, event) in events {
            now += Duration::from_micros(gap_us);
            let mut failed = None;
            play(&mut joint, now, event, &mut in_system, |joint, arrival, before| {
                let plan = joint.plan();
                let possible = (1..=cores).contains(&plan.active)
                    && plan.point.index() < points.count()
                    && plan.idle.index() < states().len();
                let stronger = !arrival || plan.stronger(before) == plan;
                let points_rise = (0..100).all(|queued| joint.point(queued) <= joint.point(queued + 1));
                if !(possible && stronger && points_rise && joint.point(0) >= plan.point) {
                    failed = Some((plan, before));
                }
            });
            prop_assert_eq!(failed, None);
            if let Some(due) = joint.poll_timeout()
                && due <= now
            {
                joint.handle_timeout(now);
                prop_assert!(joint.poll_timeout().is_none_or(|next| next > now), "a timer must not be due for ever");
            }
        }
    }

    #[test]
    fn the_same_calls_give_the_same_plans_also_after_being_written_and_read(
        params in params(),
        events in events(),
        at in 0_usize..400,
    ) {
        let mut one = Joint::new(params, 8, &nine_points(), &states(), Instant::ZERO);
        let mut other = one.clone();
        let (mut now, mut in_system, mut in_other) = (Instant::ZERO, 0, 0);
        for (step, (gap_us, event)) in events.into_iter().enumerate() {
            if step == at {
                let text = serde_json::to_string(&other).unwrap();
                other = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(&other, &one);
            }
            now += Duration::from_micros(gap_us);
            play(&mut one, now, event, &mut in_system, |_, _, _| {});
            play(&mut other, now, event, &mut in_other, |_, _, _| {});
        }
        prop_assert_eq!(one, other);
    }

    #[test]
    fn timeouts_that_nobody_asked_for_change_nothing(params in params(), events in events()) {
        let mut joint = Joint::new(params, 8, &nine_points(), &states(), Instant::ZERO);
        let (mut now, mut in_system) = (Instant::ZERO, 0);
        for (gap_us, event) in events {
            now += Duration::from_micros(gap_us);
            play(&mut joint, now, event, &mut in_system, |_, _, _| {});
            if joint.poll_timeout().is_none_or(|due| due > now) {
                let before = joint.clone();
                prop_assert_eq!(joint.handle_timeout(now), None);
                prop_assert_eq!(&joint, &before);
            }
        }
    }
}
