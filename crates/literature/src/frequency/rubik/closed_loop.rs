//! Rubik on one simulated core: Poisson arrivals, exponential work of 10 us, a clock that changes
//! 10 us after it was asked to. Checked is a thing that Rubik is not told: that the tail comes to
//! lie at the target.

use super::*;
use crate::frequency::points::tests::points_at;
use std::collections::VecDeque;

const WORK_NS: f64 = 10_000.0;
const DVFS_NS: f64 = 10_000.0;

struct Outcome {
    p99_us: f64,
    /// Of busy time, as a share of the nominal clock.
    mean_speed: f64,
}

/// 800 MHz to 2.1 GHz, as in the Peafowl paper's section 4.3.
fn points() -> PointTable {
    points_at(&[800, 900, 1_000, 1_100, 1_200, 1_300, 1_400, 1_500, 1_600, 1_700, 1_800, 1_900, 2_000, 2_100])
}

/// Feedback four times per second, to have it settled early.
fn hasty(target_us: u64) -> Params {
    let feedback_every = Duration::from_millis(250);
    Params { target: Duration::from_micros(target_us), feedback_every, ..Params::default() }
}

/// `seconds` of a core that is busy for the share `load` at full speed; measured is the second
/// half.
fn run(params: Params, load: f64, seconds: f64) -> Outcome {
    let mut state = 1_u64;
    let mut exponential = |mean: f64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        -mean * (((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64).ln()
    };
    let at = |ns: f64| Instant::from_nanos(ns as u64);
    let points = points();
    let mut rubik = Rubik::new(params, &points);
    let (mut now, mut next_arrival) = (0.0, exponential(WORK_NS / load));
    // Arrival and work of each request.
    let mut queue: VecDeque<(f64, f64)> = VecDeque::new();
    let mut left = 0.0;
    let (mut point, mut asked, mut changes_at) = (points.fastest(), points.fastest(), f64::INFINITY);
    let (mut responses, mut work_ns, mut busy_ns) = (Vec::new(), 0.0, 0.0);
    while now < seconds * 1e9 {
        let speed = points.speed(point);
        let done_at = if queue.is_empty() { f64::INFINITY } else { now + left / speed };
        let timeout = rubik.poll_timeout().map_or(f64::INFINITY, |due| due.as_nanos() as f64);
        let event = next_arrival.min(done_at).min(changes_at).min(timeout);
        if !queue.is_empty() {
            left -= (event - now) * speed;
            work_ns += (event - now) * speed;
            busy_ns += event - now;
        }
        now = event;
        if event == timeout {
            rubik.handle_timeout(at(now));
            continue;
        }
        if event == changes_at {
            (point, changes_at) = (asked, f64::INFINITY);
            continue;
        }
        if event == next_arrival {
            next_arrival = now + exponential(WORK_NS / load);
            queue.push_back((now, exponential(WORK_NS)));
            if queue.len() == 1 {
                left = queue[0].1;
            }
        } else if let Some((arrived, work)) = queue.pop_front() {
            let response = now - arrived;
            if now > seconds * 0.5e9 {
                responses.push(response);
            }
            let response = Duration::from_nanos(response as u64);
            rubik.handle_completion(at(now), Duration::from_nanos(work as u64), Duration::ZERO, response);
            left = queue.front().map_or(0.0, |(_, work)| *work);
        }
        if let Some(&(arrived, work)) = queue.front() {
            let done_compute = Duration::from_nanos((work - left) as u64);
            let head = Head { arrived: at(arrived), done_compute, phase: 0 };
            let wanted =
                rubik.choose(at(now), Some(head), queue.iter().skip(1).map(|(arrived, _)| at(*arrived)));
            if wanted != asked {
                asked = wanted;
                changes_at = now + DVFS_NS;
            }
        }
    }
    responses.sort_by(f64::total_cmp);
    Outcome { p99_us: responses[responses.len() * 99 / 100] / 1e3, mean_speed: work_ns / busy_ns }
}

#[test]
fn the_tail_comes_to_lie_at_the_target() {
    for (target_us, load) in [(300, 0.5), (300, 0.7), (900, 0.7)] {
        let params = hasty(target_us);
        let outcome = run(params, load, 3.0);
        let of_target = outcome.p99_us / target_us as f64;
        assert!((0.92..1.03).contains(&of_target), "{target_us} us at {load}: {of_target}");
        // No slower than the work that there is.
        assert!(outcome.mean_speed < load + 0.05, "{target_us} us at {load}: {}", outcome.mean_speed);
    }
}

#[test]
fn a_target_that_no_clock_meets_is_tried_at_full_speed() {
    // An M/M/1 queue at 0.7 has its 99th percentile at 154 us.
    let params = hasty(100);
    let outcome = run(params, 0.7, 3.0);
    assert!(outcome.mean_speed > 0.95, "{}", outcome.mean_speed);
    assert!((145.0..165.0).contains(&outcome.p99_us), "{}", outcome.p99_us);
}
