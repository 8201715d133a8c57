use super::super::reschedule;
use super::*;
use crate::frequency::points::tests::{nine_points, points_at};
use machine::Microwatts;

pub(super) const EXIT: Duration = Duration::from_micros(50);
const SLEEP: SleepState = SleepState { exit_latency: EXIT, power: Microwatts(100_000), wake_joules: 0.0 };
pub(super) const GOAL: Duration = Duration::from_micros(300);

pub(super) fn us(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

/// One core that has slept since 0, and knows this service.
pub(super) fn knowing(params: Params, points: PointTable, service: &[(u64, u64)]) -> UDpm {
    let tails = tails::Params { least: service.len() as u32, ..tails::Params::default() };
    let mut policy = UDpm::new(Params { tails, ..params }, points, SLEEP, 1, Instant::ZERO);
    for &(compute, memory) in service {
        let needed = (Duration::from_nanos(compute), Duration::from_nanos(memory));
        policy.handle_completion(0, Instant::ZERO, needed, std::iter::empty());
    }
    policy.handle_timeout(Instant::ZERO);
    policy
}

#[test]
fn the_point_of_least_average_power_is_planned() {
    // Speeds 0.5 and 1, 1.25 and 10 W. A request takes 40 or 20 us.
    let mut policy = knowing(Params::default(), points_at(&[1_000, 2_000]), &[(20_000, 0)]);
    // From 0. Slow: up at 100 + 300 - 40 - 10 = 350; 300 us at 0.1 W, 50 + 40 at 1.25 W, 10 at
    // 5.6: 0.497 W. Fast: up at 380; 330 at 0.1 W, 70 at 10 W: 1.83 W.
    assert_eq!(policy.handle_arrival(0, us(100)), Some(WakeAt { begin: us(300), point: PointIndex(0) }));
    // Slow: the fourth is due at 110 + 300 - 160 - 10 = 240. The fifth, at 200, would leave 90
    // us: too few. Fast: it is due at 310, but the wake-up is not moved back.
    for _ in 2..4 {
        policy.handle_arrival(0, us(110));
    }
    assert_eq!(policy.handle_arrival(0, us(110)), Some(WakeAt { begin: us(190), point: PointIndex(0) }));
    assert_eq!(policy.handle_arrival(0, us(110)), Some(WakeAt { begin: us(190), point: PointIndex(1) }));
}

#[test]
fn without_enough_sleep_it_is_the_fastest_point() {
    let params = Params { goal: Duration::from_micros(120), ..Params::default() };
    let mut policy = knowing(params, points_at(&[1_000, 2_000]), &[(20_000, 0)]);
    // Fast: up at 100 us from now, which is not more than 100.
    assert_eq!(policy.handle_arrival(0, us(500)), Some(WakeAt { begin: us(550), point: PointIndex(1) }));
}

#[test]
fn a_plan_that_keeps_the_new_deadline_stays_unless_published() {
    for (form, point) in [(Form::Exact, 0), (Form::Published, 1)] {
        let mut policy =
            knowing(Params { form, ..Params::default() }, points_at(&[1_000, 2_000]), &[(20_000, 0)]);
        let first = policy.handle_arrival(0, us(100)).unwrap();
        assert_eq!(first.point, PointIndex(0), "{form:?}");
        // While the core is waking no operating point leaves any sleep.
        let second = policy.handle_arrival(0, first.begin + Duration::from_micros(5)).unwrap();
        assert_eq!(second, WakeAt { begin: first.begin, point: PointIndex(point) }, "{form:?}");
    }
}

#[test]
fn a_busy_core_speeds_up_at_the_next_completion_and_never_slows_down() {
    let completed = |policy: &mut UDpm, at, waiting: &[Instant]| {
        policy.handle_completion(0, at, (Duration::from_micros(20), Duration::ZERO), waiting.iter().copied())
    };
    // Speeds 0.5, 0.8 and 1: a request takes 40, 25 or 20 us.
    let mut policy = knowing(Params::default(), points_at(&[1_000, 1_600, 2_000]), &[(20_000, 0)]);
    policy.handle_arrival(0, us(100));
    policy.handle_awake(0);
    assert_eq!(policy.cores[0].point, PointIndex(0));
    // Seven take 280 us: no hurry. An eighth would be 320 us behind.
    let mut waiting: Vec<Instant> = (0..6).map(|_| us(360)).collect();
    for &at in &waiting {
        policy.handle_arrival(0, at);
    }
    assert_eq!(completed(&mut policy, us(390), &waiting), None);
    waiting.extend([us(395), us(395)]);
    policy.handle_arrival(0, us(395));
    assert_eq!(policy.handle_arrival(0, us(395)), None);
    // 430 + 10 + 7 x 25 = 615 <= 660, and the two later ones by 665 <= 695.
    assert_eq!(completed(&mut policy, us(430), &waiting[1..]), Some(PointIndex(1)));
    assert_eq!(completed(&mut policy, us(455), &waiting[2..]), None);
    for place in 3..=8 {
        completed(&mut policy, us(455), &waiting[place..]);
    }
    assert!(policy.cores[0].asleep && policy.cores[0].point == PointIndex(1));
}

#[test]
fn nobody_is_delayed_before_service_times_are_known() {
    let mut policy = UDpm::new(Params::default(), nine_points(), SLEEP, 1, Instant::ZERO);
    assert_eq!(policy.handle_arrival(0, us(400)), Some(WakeAt { begin: us(400), point: PointIndex(8) }));
    assert_eq!(policy.handle_arrival(0, us(410)), Some(WakeAt { begin: us(400), point: PointIndex(8) }));
}

#[test]
fn critical_requests_join_a_core_that_wakes_anyway() {
    let reschedule = reschedule::Params { rule: reschedule::Rule::LeastCost, critical_only: true };
    let params = Params { reschedule, ..Params::default() };
    let one = knowing(params, points_at(&[1_000, 2_000]), &[(20_000, 0)]);
    let mut policy = UDpm { cores: vec![one.cores[0].clone(); 3], ..one };
    policy.handle_arrival(1, us(100));
    assert_eq!(policy.route(0, us(150), 0), 0, "home has slept for long");
    policy.handle_arrival(0, us(150));
    // Home sleeps until 400, which is late for one more; core 1 is up at 350.
    assert_eq!(policy.route(0, us(155), 0), 1);
    // No other core wakes in time: a second request at home has its wake-up moved.
    policy.handle_awake(1);
    for _ in 0..9 {
        policy.handle_arrival(1, us(155));
    }
    assert_eq!(policy.route(0, us(155), 0), 0);
    assert_eq!(policy.load(2, us(155)).latency, None);
}

#[test]
fn a_request_costs_its_service_or_a_higher_point_for_all() {
    let reschedule = reschedule::Params { rule: reschedule::Rule::LeastCost, critical_only: false };
    let mut policy =
        knowing(Params { reschedule, ..Params::default() }, points_at(&[1_000, 2_000]), &[(20_000, 0)]);
    policy.handle_arrival(0, us(100));
    // 40 us at 1.25 W, asleep and awake.
    let more = 40e3 * 1.25e6;
    assert_eq!(policy.load(0, us(110)).cost, more);
    policy.handle_awake(0);
    assert_eq!(policy.load(0, us(360)).cost, more);
    for _ in 2..8 {
        policy.handle_arrival(0, us(360));
    }
    // The eighth takes 320 us in the slow operating point: all eight in the fast one, and a change
    // of operating point.
    let (slow, fast) = ((50e3 + 7.0 * 40e3) * 1.25e6, (50e3 + 8.0 * 20e3) * 10e6 + 10e3 * 5.625e6);
    assert_eq!(policy.load(0, us(360)).cost, fast - slow);
}
