//! uDPM against a core that does at once as it is told: the effect of the goal, request by request.

use super::tests::{EXIT, GOAL, knowing, us};
use super::{Params, UDpm};
use crate::frequency::points::tests::{nine_points, points_at};
use crate::timing::Form;
use machine::{Duration, Instant};
use proptest::prelude::*;

/// One core that serves first come, first served, and obeys the policy at once: latencies in order.
fn serve(policy: &mut UDpm, requests: &[(Instant, u64)]) -> Vec<Duration> {
    let points = policy.points;
    let (mut latencies, mut queue) = (Vec::new(), std::collections::VecDeque::new());
    let (mut arrivals, mut busy_until) = (requests.iter().peekable(), None);
    loop {
        let arrival = arrivals.peek().map(|&&(at, _)| at);
        let up = policy.wake(0).map(|plan| plan.begin + EXIT);
        let Some(now) = [arrival, up, busy_until].into_iter().flatten().min() else { return latencies };
        if busy_until == Some(now) {
            let (arrived, compute): (Instant, u64) = queue.pop_front().unwrap();
            latencies.push(now.since(arrived));
            let waiting = queue.iter().map(|&(arrived, _)| arrived);
            let needed = (Duration::from_nanos(compute), Duration::ZERO);
            let switch = policy
                .handle_completion(0, now, needed, waiting)
                .map_or(Duration::ZERO, |_| policy.params.switch);
            let speed = points.speed(policy.cores[0].point);
            busy_until =
                queue.front().map(|&(_, next)| now + switch + Duration::from_nanos(next).scale(1.0 / speed));
        } else if up == Some(now) {
            let before = policy.cores[0].point;
            policy.handle_awake(0);
            let point = policy.cores[0].point;
            let switch = if point == before { Duration::ZERO } else { policy.params.switch };
            busy_until =
                Some(now + switch + Duration::from_nanos(queue[0].1).scale(1.0 / points.speed(point)));
        } else {
            let &(at, compute) = arrivals.next().unwrap();
            queue.push_back((at, compute));
            policy.handle_arrival(0, at);
        }
    }
}

#[test]
fn the_published_form_is_late_for_a_single_request() {
    for (form, latency_us) in [(Form::Exact, 300), (Form::Published, 310)] {
        let mut policy = knowing(Params { form, ..Params::default() }, points_at(&[2_000]), &[(20_000, 0)]);
        assert_eq!(serve(&mut policy, &[(us(1_000), 20_000)]), [Duration::from_micros(latency_us)]);
    }
}

proptest! {
    #[test]
    fn with_a_service_that_never_varies_the_goal_is_met_exactly(
        gaps in prop::collection::vec(100_000_u64..900_000, 1..60),
        single_point in any::<bool>(),
    ) {
        // At most 10 % load in batches of up to four, so that a busy period never overlaps the next
        // deadline.
        let points = if single_point { points_at(&[2_000]) } else { nine_points() };
        let mut policy = knowing(Params::default(), points, &[(10_000, 0)]);
        let mut at = us(10);
        let requests: Vec<_> = gaps.iter().map(|&gap| { at += Duration::from_nanos(gap); (at, 10_000) }).collect();
        let latencies = serve(&mut policy, &requests);
        prop_assert_eq!(latencies.len(), requests.len());
        // Slow operating points divide nanoseconds: one each may be lost to rounding.
        let longest = latencies.iter().max().unwrap().as_nanos();
        prop_assert!(longest <= GOAL.as_nanos() + 10, "{longest}");
        prop_assert!(longest + 10 >= GOAL.as_nanos(), "{longest}");
    }
}

/// The share of requests over the goal, of 20 000 Poisson arrivals with exponential service of 10
/// us mean.
fn share_late(form: Form) -> f64 {
    // SplitMix64.
    let mut seed = 0_u64;
    let mut exponential = |mean_ns: f64| {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let uniform = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        (-(1.0 - uniform).ln() * mean_ns) as u64
    };
    let service: Vec<_> = (0..2_000).map(|_| (exponential(10_000.0), 0)).collect();
    let mut policy = knowing(Params { form, ..Params::default() }, nine_points(), &service);
    let mut at = us(10);
    let requests: Vec<_> = (0..20_000)
        .map(|_| {
            at += Duration::from_nanos(exponential(1_000_000.0));
            (at, exponential(10_000.0))
        })
        .collect();
    let late = serve(&mut policy, &requests).iter().filter(|&&latency| latency > GOAL).count();
    late as f64 / requests.len() as f64
}

#[test]
fn the_exact_form_keeps_the_goal_and_the_published_form_does_not() {
    let (exact, published) = (share_late(Form::Exact), share_late(Form::Published));
    // One in a hundred, give or take three standard deviations of the count.
    assert!((0.006..0.0122).contains(&exact), "{exact}");
    assert!(published > 0.05, "{published}");
}
