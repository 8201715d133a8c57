use super::*;
use crate::peafowl::Sample;

pub(super) const HERE: WorkerId = WorkerId(0);
pub(super) const THERE: WorkerId = WorkerId(1);
const ELSEWHERE: WorkerId = WorkerId(2);

pub(super) fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

pub(super) fn limited(limit: f64, params: Params) -> Worker {
    let mut learned = LearnedLimit::default();
    learned.observe(Rate::per_second(limit), true, &params);
    Worker::new(params, HERE, Some(learned))
}

/// A worker with connections of these homes, in slots 0, 1, ...
pub(super) fn with_homes(mut worker: Worker, homes: &[WorkerId]) -> Worker {
    for (slot, &home) in (0..).zip(homes) {
        worker.handle_arrival(
            at_ms(0),
            slot,
            ConnId(100 + u64::from(slot)),
            home,
            ConnectionLoad::new(at_ms(0)),
        );
    }
    worker
}

pub(super) fn fresh(homes: &[WorkerId]) -> Worker {
    with_homes(Worker::new(Params::default(), HERE, None), homes)
}

fn next_to(target: WorkerId) -> Order {
    Order::Move { target, pick: Pick::NextServed }
}

pub(super) fn sent(target: WorkerId, why: Why) -> Verdict {
    Verdict::Send { target, why }
}

#[test]
fn an_order_takes_the_connection_just_served_and_only_that() {
    let mut worker = fresh(&[HERE, HERE]);
    assert_eq!(worker.handle_order(at_ms(1), next_to(THERE)), Answer::Accepted);
    assert_eq!(worker.handle_served(at_ms(2), 1, 1, Duration::ZERO), sent(THERE, Why::Ordered));
    assert_eq!(worker.handle_served(at_ms(2), 0, 1, Duration::ZERO), Verdict::Stay);
    assert_eq!(worker.poll_timeout(), None);
}

#[test]
fn a_connection_whose_home_is_the_target_goes_first() {
    let mut worker = fresh(&[HERE, THERE]);
    worker.handle_order(at_ms(1), next_to(THERE));
    assert_eq!(worker.handle_served(at_ms(2), 0, 1, Duration::ZERO), Verdict::Stay);
    assert_eq!(worker.handle_served(at_ms(2), 1, 1, Duration::ZERO), sent(THERE, Why::Ordered));
    let mut paper = with_homes(Worker::new(Params::paper(), HERE, None), &[HERE, THERE]);
    paper.handle_order(at_ms(1), next_to(THERE));
    assert_eq!(paper.handle_served(at_ms(2), 0, 1, Duration::ZERO), sent(THERE, Why::Ordered));
}

#[test]
fn after_patience_the_quietest_goes() {
    let mut worker = fresh(&[HERE, HERE, HERE]);
    for ms in 1..200 {
        for slot in [0, 0, 2] {
            worker.handle_served(at_ms(ms), slot, 1, Duration::ZERO);
        }
        worker.handle_served(at_ms(ms), 1, if ms % 10 == 0 { 1 } else { 0 }, Duration::ZERO);
    }
    worker.handle_order(at_ms(200), next_to(THERE));
    assert_eq!(worker.poll_timeout(), Some(at_ms(210)));
    worker.handle_timeout(at_ms(209));
    assert_eq!(worker.poll_transfer(), None, "too early is harmless");
    worker.handle_timeout(at_ms(210));
    worker.handle_timeout(at_ms(210));
    assert_eq!(worker.poll_transfer(), Some(Transfer { slot: 1, target: THERE, why: Why::Ordered }));
    assert_eq!(worker.poll_transfer(), None);
}

#[test]
fn an_order_that_cannot_be_obeyed_is_refused() {
    let mut worker = fresh(&[]);
    assert_eq!(worker.handle_order(at_ms(1), next_to(THERE)), Answer::Refused);
    let mut worker = fresh(&[HERE]);
    assert_eq!(worker.handle_order(at_ms(1), next_to(HERE)), Answer::Refused);
    let this = Order::Move { target: THERE, pick: Pick::This(ConnId(7)) };
    assert_eq!(worker.handle_order(at_ms(1), this), Answer::Refused);
}

#[test]
fn a_close_while_a_transfer_is_ready_takes_it_back() {
    let mut worker = fresh(&[HERE]);
    worker.handle_order(at_ms(1), next_to(THERE));
    worker.handle_timeout(at_ms(20));
    worker.handle_departure(at_ms(20), 0, false);
    assert_eq!(worker.poll_transfer(), None);
    worker.handle_order(at_ms(30), next_to(THERE));
    worker.handle_timeout(at_ms(99));
    assert_eq!((worker.poll_transfer(), worker.poll_timeout()), (None, None));
}

#[test]
fn a_named_connection_goes_at_once_and_moves_house() {
    let mut worker = fresh(&[HERE, ELSEWHERE]);
    worker.handle_order(at_ms(1), Order::Move { target: THERE, pick: Pick::This(ConnId(100)) });
    assert_eq!(worker.poll_timeout(), Some(at_ms(1)));
    worker.handle_timeout(at_ms(1));
    assert_eq!(worker.poll_transfer().map(|transfer| transfer.slot), Some(0));
    assert_eq!(worker.handle_departure(at_ms(1), 0, true).home, THERE);
    // A guest keeps its home: it never lived here.
    worker.handle_order(at_ms(2), Order::Move { target: THERE, pick: Pick::This(ConnId(101)) });
    worker.handle_timeout(at_ms(2));
    assert_eq!(worker.poll_transfer().map(|transfer| transfer.slot), Some(1));
    assert_eq!(worker.handle_departure(at_ms(2), 1, true).home, ELSEWHERE);
    let reading = worker.handle_report(at_ms(100), &Sample::default());
    assert_eq!((reading.connections, reading.residents), (0, 0));
}

#[test]
fn what_a_worker_gives_away_while_it_misses_the_goal_moves_house() {
    let goal = Params { latency_goal: Some(Duration::from_micros(500)), ..Params::default() };
    let tail = |us| Sample { tail: Some(Duration::from_micros(us)), requests: 1_000, ..Sample::default() };
    for (us, home) in [(501, THERE), (499, HERE)] {
        let mut worker = with_homes(Worker::new(goal, HERE, None), &[HERE]);
        worker.handle_report(at_ms(100), &tail(us));
        worker.handle_order(at_ms(101), next_to(THERE));
        assert_eq!(worker.handle_served(at_ms(102), 0, 1, Duration::ZERO), sent(THERE, Why::Ordered));
        assert_eq!(worker.handle_departure(at_ms(102), 0, true).home, home, "tail {us} us");
    }
}

#[test]
fn one_bad_tail_sends_nobody_home_and_two_do() {
    let goal = Params { latency_goal: Some(Duration::from_micros(500)), ..Params::default() };
    let mut worker = with_homes(Worker::new(goal, HERE, None), &[THERE]);
    let bad = Sample { tail: Some(Duration::from_millis(9)), requests: 1_000, ..Sample::default() };
    worker.handle_report(at_ms(100), &bad);
    assert_eq!(worker.handle_served(at_ms(101), 0, 1, Duration::ZERO), Verdict::Stay);
    worker.handle_report(at_ms(200), &bad);
    assert_eq!(worker.handle_served(at_ms(201), 0, 1, Duration::ZERO), sent(THERE, Why::Tail));
}

#[test]
fn guests_go_home_when_the_reported_load_is_above_the_limit_and_residents_stay() {
    let printed = Params { burst_drain: 0.0, ..Params::paper() };
    let mut worker = with_homes(limited(1_000.0, printed), &[HERE, THERE]);
    for ms in 1..=100 {
        worker.handle_served(at_ms(ms), 0, 1, Duration::ZERO);
        worker.handle_served(at_ms(ms), 1, 1, Duration::ZERO);
    }
    assert_eq!(worker.handle_served(at_ms(100), 1, 1, Duration::ZERO), Verdict::Stay, "not reported yet");
    let reading = worker.handle_report(at_ms(100), &Sample::default());
    assert!(reading.load.as_per_second() > 1_900.0 && reading.resident_load.as_per_second() < 1_100.0);
    assert_eq!(worker.handle_served(at_ms(101), 0, 1, Duration::ZERO), Verdict::Stay);
    assert_eq!(worker.handle_served(at_ms(101), 1, 1, Duration::ZERO), sent(THERE, Why::Overload));
    worker.handle_departure(at_ms(101), 1, true);
    worker.handle_arrival(at_ms(101), 1, ConnId(9), ELSEWHERE, ConnectionLoad::new(at_ms(101)));
    assert_eq!(
        worker.handle_served(at_ms(102), 1, 1, Duration::ZERO),
        Verdict::Stay,
        "what left has lightened the load"
    );
}

#[test]
fn without_send_home_guests_stay() {
    let kept = Params { send_home: false, ..Params::default() };
    let mut worker = with_homes(limited(100.0, kept), &[THERE]);
    for us in 0..5_000 {
        let now = at_ms(1) + Duration::from_micros(us);
        assert_eq!(worker.handle_served(now, 0, 1, Duration::ZERO), Verdict::Stay);
    }
}

#[test]
#[should_panic(expected = "is taken")]
fn a_slot_cannot_be_taken_twice() {
    let mut worker = fresh(&[HERE]);
    worker.handle_arrival(at_ms(1), 0, ConnId(5), HERE, ConnectionLoad::new(at_ms(1)));
}

#[test]
fn a_guest_that_swells_goes_home_before_the_next_report() {
    let second = Duration::from_secs(1);
    let published = Params {
        window_requests: 1,
        window_span: second,
        report_period: second,
        approach: 0.9,
        headroom: 1.0,
        rerate: 1.125,
        ..Params::paper()
    };
    let sends = |homes: &[WorkerId]| {
        let mut worker = with_homes(limited(117.0, published), homes);
        for request in 1..=100 {
            worker.handle_served(at_ms(10 * request), 0, 1, Duration::ZERO);
        }
        worker.handle_report(
            at_ms(1000),
            &Sample { busy: machine::Ratio::new(0.5), requests: 100, tail: None },
        );
        (1..=120)
            .map(|request| worker.handle_served(at_ms(1000 + request), 0, 1, Duration::ZERO))
            .position(|verdict| verdict != Verdict::Stay)
    };
    // 100 a second are below 105.3, 113 are above.
    assert_eq!(sends(&[THERE]), Some(112), "the 113th request re-rates it");
    assert_eq!(sends(&[HERE]), None, "a resident has nowhere to go");
}

/// Whatever the parameters say of sending home by a load.
#[test]
fn with_a_backlog_guests_go_home_until_it_is_gone_or_no_connection_is_left() {
    let params = Params { send_home: false, ..Params::default() };
    let mut worker = with_homes(Worker::new(params, HERE, None), &[THERE, HERE, THERE]);
    let serve = |worker: &mut Worker, slot| worker.handle_served(at_ms(30), slot, 1, Duration::ZERO);
    assert!(!worker.watches_backlog(u32::MAX), "no plan said how many are too many");
    worker.handle_order(at_ms(1), Order::Guidance(Guidance { backlog: Some(10), ..Guidance::default() }));
    assert!(!worker.watches_backlog(10) && worker.watches_backlog(11));
    assert_eq!(serve(&mut worker, 0), Verdict::Stay);
    worker.handle_backlog(at_ms(30), 11);
    assert_eq!(serve(&mut worker, 0), sent(THERE, Why::Burst));
    assert_eq!(serve(&mut worker, 1), Verdict::Stay, "it lives here");
    assert!(worker.watches_backlog(0), "its end is to be told");
    worker.handle_backlog(at_ms(30), 5);
    assert_eq!(serve(&mut worker, 2), Verdict::Stay);
    worker.handle_backlog(at_ms(30), 11);
    for slot in 0..3 {
        worker.handle_departure(at_ms(30), slot, true);
    }
    assert!(!worker.watches_backlog(0));
}
