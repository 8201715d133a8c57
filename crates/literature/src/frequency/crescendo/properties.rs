//! Invariants, whatever the requests and the queue.

use super::*;
use crate::frequency::points::tests::{nine_points, whole};
use crate::frequency::rubik;
use machine::Microwatts;
use proptest::prelude::*;

const NOW: Instant = Instant::from_nanos(10_000_000_000);

fn us(micros: f64) -> Duration {
    Duration::from_secs_f64(micros * 1e-6)
}

/// One that saw requests with these (compute, memory) times, in us, with a goal of 300 us.
fn taught(requests: &[(f64, f64)], shared_watts: f64) -> Crescendo {
    let params = Params {
        rubik: rubik::Params::default(),
        asleep: Microwatts::from_watts(0.1),
        shared: Microwatts::from_watts(shared_watts),
        ..Params::default()
    };
    let mut crescendo = Crescendo::new(params, 4, &nine_points(), &[]);
    for (at, (compute, memory)) in requests.iter().cycle().take(1_000).enumerate() {
        let now = Instant::from_nanos(1_000_000 + at as u64 * 100_000);
        let request = Request { memory: us(*memory), ..whole(now - us(compute + memory), us(*compute)) };
        crescendo.handle_completion(now, &request);
    }
    crescendo.handle_timeout(Instant::from_nanos(101_000_000));
    crescendo
}

fn head(age_us: f64, done_us: f64) -> Option<Head> {
    Some(Head { arrived: NOW - us(age_us), done_compute: us(done_us), phase: 0 })
}

#[test]
fn until_it_knows_the_requests_it_runs_at_full_speed_and_an_idle_core_needs_none() {
    let (points, mut fresh) = (nine_points(), Crescendo::new(Params::default(), 4, &nine_points(), &[]));
    assert_eq!(fresh.choose(NOW, head(0.0, 0.0), []), Choice { point: points.fastest(), review: None });
    let idle = taught(&[(40.0, 0.0)], 0.0).choose(NOW, None, []);
    assert_eq!(idle, Choice { point: points.slowest(), review: None });
}

#[test]
fn a_request_beyond_the_quantile_or_beyond_help_gets_the_fastest_point() {
    let mut crescendo = taught(&[(40.0, 0.0), (80.0, 0.0)], 0.0);
    let fastest = Choice { point: nine_points().fastest(), review: None };
    assert_eq!(crescendo.choose(NOW, head(100.0, 90.0), []), fastest);
    assert_eq!(crescendo.choose(NOW, head(299.0, 0.0), []), fastest);
    assert_ne!(crescendo.choose(NOW, head(0.0, 0.0), []), fastest);
}

/// One that saw requests that computed for 40 us, waited for a device for 100 us, and computed for 40 us
/// more.
fn taught_of_devices() -> Crescendo {
    let mut crescendo = Crescendo::new(Params::default(), 4, &nine_points(), &[]);
    for at in 0..1_000 {
        let arrived = Instant::from_nanos(at * 200_000);
        let first = Request { ends: Ends::Phase, ..whole(arrived, us(40.0)) };
        crescendo.handle_completion(arrived + us(40.0), &first);
        let last = Request { phase: 1, ..whole(arrived, us(40.0)) };
        crescendo.handle_completion(arrived + us(180.0), &last);
    }
    crescendo.handle_timeout(Instant::from_nanos(200_000_000));
    crescendo
}

#[test]
fn a_phase_has_what_the_next_ones_leave_of_the_goal() {
    let mut crescendo = taught_of_devices();
    let mut point = |age_us, phase| {
        let head = head(age_us, 0.0).map(|head| Head { phase, ..head });
        crescendo.choose(NOW, head, []).point
    };
    assert_eq!(point(100.0, 0), point(240.0, 1));
    assert!(point(100.0, 0) > point(100.0, 1));
    assert_eq!(point(130.0, 0), nine_points().fastest(), "with what follows it is too late");
}

#[test]
fn one_that_waits_has_what_the_next_phases_leave_as_well() {
    let mut crescendo = taught_of_devices();
    let head = head(0.0, 0.0).map(|head| Head { phase: 1, ..head });
    let mut point = |age_us, phase| {
        // Prices of waiting are a mean over many goals: asked for so long that only this one counts.
        let other = Waiting { arrived: NOW - us(age_us), phase };
        (0..3_000).fold(PointIndex(0), |_, step| {
            let later = us(20.0 * f64::from(step));
            let head = head.map(|head| Head { arrived: head.arrived + later, ..head });
            let other = Waiting { arrived: other.arrived + later, ..other };
            crescendo.choose(NOW + later, head, [other]).point
        })
    };
    let of_phases = [0, 1].map(|phase| point(60.0, phase));
    assert!(of_phases[0] > of_phases[1], "{of_phases:?}");
}

#[test]
fn where_requests_often_wait_those_before_them_hurry_also_without_a_queue() {
    let mut crescendo = taught(&[(40.0, 0.0), (80.0, 0.0)], 0.0);
    let head_at = |now: Instant| Some(Head { arrived: now, done_compute: Duration::ZERO, phase: 0 });
    let alone = crescendo.choose(NOW, head_at(NOW), []).point;
    let mut now = NOW;
    for _ in 0..1_000 {
        now += us(20.0);
        let other = Waiting { arrived: now - us(150.0), phase: 0 };
        crescendo.choose(now, head_at(now), [other]);
    }
    assert!(crescendo.choose(now, head_at(now), []).point > alone);
    now += us(60_000.0);
    assert_eq!(crescendo.choose(now, head_at(now), []).point, alone, "none has waited for long");
}

fn requests() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let compute = prop_oneof![0.1..200.0_f64, 5.0..6.0_f64, Just(0.0)];
    prop::collection::vec((compute, prop_oneof![0.0..30.0_f64, Just(0.0)]), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn age_and_company_never_lower_the_point_and_reviews_lie_ahead(
        requests in requests(),
        (age, done) in (0.0..400.0_f64, 0.0..200.0_f64),
        ages in prop::collection::vec(0.0..400.0_f64, 0..20),
        later in 0.0..300.0_f64,
        shared in 0.0..50.0_f64,
    ) {
        let crescendo = taught(&requests, shared);
        let waiting: Vec<Waiting> =
            ages.iter().map(|age| Waiting { arrived: NOW - us(*age), phase: 0 }).collect();
        let choose = |age, waiting: &[Waiting]| {
            crescendo.clone().choose(NOW, head(age, done), waiting.iter().copied())
        };
        let chosen = choose(age, &waiting);
        prop_assert!(chosen.point <= nine_points().fastest());
        prop_assert!(chosen.review.is_none_or(|at| at > NOW), "{chosen:?}");
        let older = choose(age + later, &waiting);
        prop_assert!(older.point >= chosen.point, "{older:?} {chosen:?}");
        let mut longer = waiting.clone();
        longer.push(Waiting { arrived: NOW, phase: 0 });
        let fuller = choose(age, &longer);
        prop_assert!(fuller.point >= chosen.point, "{fuller:?} {chosen:?}");
        let alone = choose(age, &[]);
        prop_assert!(chosen.point >= alone.point, "{chosen:?} {alone:?}");
    }

    #[test]
    fn what_is_written_and_read_back_decides_alike(requests in requests(), age in 0.0..400.0_f64) {
        let mut crescendo = taught(&requests, 5.0);
        let text = serde_json::to_string(&crescendo).unwrap();
        let mut read: Crescendo = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read, &crescendo);
        prop_assert_eq!(read.choose(NOW, head(age, 1.0), []), crescendo.choose(NOW, head(age, 1.0), []));
    }
}
