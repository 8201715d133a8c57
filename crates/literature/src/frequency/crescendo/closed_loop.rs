//! Crescendo on one simulated core whose clock changes 10 us after it was asked to. The test checks
//! a thing that the policy is not told: that the tail comes to lie at the target, and that this
//! takes less energy than the same tail by Rubik.

use super::*;
use crate::frequency::points::tests::{points_at, whole};
use crate::frequency::rubik;
use std::collections::VecDeque;

const DVFS_NS: f64 = 10_000.0;
const WORK_NS: f64 = 250_000.0;
/// At full speed 99 % of requests take no more than 1151 us.
const TARGET_US: u64 = 2_000;

#[derive(Clone, Copy, Debug)]
struct Outcome {
    p99_us: f64,
    /// In nominal watts; an idle core draws nothing.
    mean_watts: f64,
}

enum Policy {
    Crescendo(Box<Crescendo>),
    Rubik(Box<Rubik>),
}

/// 800 MHz to 2.1 GHz, as in the Peafowl paper's section 4.3.
fn points() -> PointTable {
    points_at(&[800, 900, 1_000, 1_100, 1_200, 1_300, 1_400, 1_500, 1_600, 1_700, 1_800, 1_900, 2_000, 2_100])
}

fn params(target_us: u64) -> rubik::Params {
    let feedback_every = Duration::from_secs(4);
    rubik::Params { target: Duration::from_micros(target_us), feedback_every, ..rubik::Params::default() }
}

/// A core that is busy for the share `load` at full speed with requests of 250 us on average,
/// exponential; measured is the second half.
fn run(mut policy: Policy, load: f64, seconds: f64) -> Outcome {
    let mut state = 1_u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    let at = |ns: f64| Instant::from_nanos(ns as u64);
    let points = points();
    let gap_ns = WORK_NS / load;
    let (mut now, mut next_arrival) = (0.0_f64, -gap_ns * unit().ln());
    let mut queue: VecDeque<(f64, f64)> = VecDeque::new();
    let (mut left, mut review_at) = (0.0, f64::INFINITY);
    let (mut point, mut asked, mut changes_at) = (points.fastest(), points.fastest(), f64::INFINITY);
    let (mut responses, mut joules) = (Vec::new(), 0.0);
    while now < seconds * 1e9 {
        let speed = points.speed(point);
        let done_at = if queue.is_empty() { f64::INFINITY } else { now + left / speed };
        let due = match &policy {
            Policy::Crescendo(crescendo) => crescendo.poll_timeout(),
            Policy::Rubik(rubik) => rubik.poll_timeout(),
        };
        let timeout = due.map_or(f64::INFINITY, |due| (due.as_nanos() as f64).max(now));
        let event = next_arrival.min(done_at).min(changes_at).min(timeout).min(review_at);
        if !queue.is_empty() {
            left -= (event - now) * speed;
            if event > seconds * 0.5e9 {
                joules += (event - now) * 1e-9 * points.power(point).as_watts();
            }
        }
        now = event;
        if event == timeout {
            match &mut policy {
                Policy::Crescendo(crescendo) => crescendo.handle_timeout(at(now + 1.0)),
                Policy::Rubik(rubik) => rubik.handle_timeout(at(now + 1.0)),
            }
            continue;
        }
        if event == changes_at {
            (point, changes_at) = (asked, f64::INFINITY);
            continue;
        }
        if event == next_arrival {
            next_arrival = now - gap_ns * unit().ln();
            queue.push_back((now, -WORK_NS * unit().ln()));
            if queue.len() == 1 {
                left = queue[0].1;
            }
        } else if event == done_at
            && let Some((arrived, work)) = queue.pop_front()
        {
            let response = now - arrived;
            if now > seconds * 0.5e9 {
                responses.push(response);
            }
            let (compute, response) =
                (Duration::from_nanos(work as u64), Duration::from_nanos(response as u64));
            match &mut policy {
                Policy::Crescendo(all) => all.handle_completion(at(now), &whole(at(arrived), compute)),
                Policy::Rubik(all) => all.handle_completion(at(now), compute, Duration::ZERO, response),
            }
            left = queue.front().map_or(0.0, |(_, work)| *work);
        }
        review_at = f64::INFINITY;
        if let Some(&(arrived, work)) = queue.front() {
            let done_compute = Duration::from_nanos((work - left) as u64);
            let head = Head { arrived: at(arrived), done_compute, phase: 0 };
            let waiting = queue.iter().skip(1).map(|(arrived, _)| at(*arrived));
            let wanted = match &mut policy {
                Policy::Crescendo(crescendo) => {
                    let waiting = waiting.map(|arrived| Waiting { arrived, phase: 0 });
                    let choice = crescendo.choose(at(now), Some(head), waiting);
                    review_at = choice.review.map_or(f64::INFINITY, |due| due.as_nanos() as f64);
                    choice.point
                }
                Policy::Rubik(rubik) => rubik.choose(at(now), Some(head), waiting),
            };
            if wanted != asked {
                asked = wanted;
                changes_at = now + DVFS_NS;
            }
        }
    }
    responses.sort_by(f64::total_cmp);
    Outcome { p99_us: responses[responses.len() * 99 / 100] / 1e3, mean_watts: joules / (seconds * 0.5) }
}

#[test]
fn the_tail_comes_to_lie_at_the_target_for_less_energy_than_at_one_point_per_request() {
    for load in [0.02, 0.1] {
        let crescendo = Params { rubik: params(TARGET_US), ..Params::default() };
        let ours =
            run(Policy::Crescendo(Box::new(Crescendo::new(crescendo, 1, &points(), &[]))), load, 240.0);
        let rubiks = run(Policy::Rubik(Box::new(Rubik::new(params(TARGET_US), &points()))), load, 240.0);
        for outcome in [ours, rubiks] {
            assert!((0.9..1.05).contains(&(outcome.p99_us / TARGET_US as f64)), "{load}: {outcome:?}");
        }
        assert!(ours.mean_watts < 0.97 * rubiks.mean_watts, "{load}: {ours:?}, Rubik {rubiks:?}");
    }
}
