use super::Verdict::{Hold, ReleaseNow};
use super::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn releases(stager: &mut Stager) -> Vec<Release> {
    std::iter::from_fn(|| stager.poll_release()).collect()
}

fn ids(stager: &mut Stager) -> Vec<u64> {
    releases(stager).iter().map(|release| release.id.0).collect()
}

/// A stage that has seen bursts of `size` take `tail_ms`.
fn experienced(params: Params, size: u32, tail_ms: u64) -> Stager {
    let mut stager = Stager::new(params);
    for _ in 0..40 {
        stager.tails.handle_completed(size, ms(tail_ms));
    }
    stager
}

#[test]
fn the_papers_proxy_releases_every_250_ms() {
    let mut stager = Stager::new(Params::paper());
    assert_eq!(stager.poll_timeout(), None);
    for (id, arrival) in [(1, 10), (2, 100), (3, 249)] {
        assert_eq!(stager.handle_arrival(at(arrival), StagedId(id), at(arrival + 1)), Hold);
    }
    assert_eq!(stager.poll_timeout(), Some(at(250)));
    stager.handle_timeout(at(249));
    assert!(ids(&mut stager).is_empty());
    stager.handle_timeout(at(250));
    assert_eq!(ids(&mut stager), [1, 2, 3]);
    assert_eq!(stager.handle_arrival(at(250), StagedId(4), at(251)), Hold);
    assert_eq!(stager.poll_timeout(), Some(at(500)));
    assert_eq!(stager.record().by_period, 1);
}

#[test]
fn a_phase_shifts_the_periods() {
    let mut stager = Stager::new(Params { phase: ms(100), ..Params::paper() });
    for (arrival, end) in [(20, 100), (100, 350), (349, 350), (350, 600)] {
        stager.handle_arrival(at(arrival), StagedId(arrival), at(arrival + 1));
        assert_eq!(stager.poll_timeout(), Some(at(end)), "{arrival}");
        stager.handle_timeout(at(end));
        assert_eq!(ids(&mut stager).len(), 1);
    }
}

#[test]
fn guarded_periods_end_early_for_a_deadline_in_danger_only() {
    let params = Params { mode: Mode::Guarded, ..Params::default() };
    let mut stager = experienced(params, 1, 60);
    (0..40).for_each(|_| stager.tails.handle_completed(2, ms(60)));
    stager.handle_arrival(at(10), StagedId(1), at(510));
    assert_eq!(stager.poll_timeout(), Some(at(250)));
    stager.handle_arrival(at(20), StagedId(2), at(200));
    assert_eq!(stager.poll_timeout(), Some(at(140)));
    stager.handle_timeout(at(140));
    assert_eq!(ids(&mut stager), [1, 2]);
    stager.handle_arrival(at(260), StagedId(3), at(760));
    assert_eq!(stager.poll_timeout(), Some(at(500)));
    stager.handle_timeout(at(500));
    assert_eq!((ids(&mut stager), stager.record().by_deadline, stager.record().by_period), (vec![3], 1, 1));
}

#[test]
fn guarded_periods_hold_nothing_at_high_load() {
    let mut stager = experienced(Params { mode: Mode::Guarded, ..Params::default() }, 1, 500);
    assert_eq!(stager.handle_arrival(at(3), StagedId(1), at(503)), ReleaseNow);
    assert_eq!(ids(&mut stager), [1]);
}

#[test]
fn before_anything_is_known_half_of_the_time_is_waited() {
    let mut stager = Stager::new(Params::default());
    assert_eq!(stager.handle_arrival(at(0), StagedId(1), at(500)), Hold);
    assert_eq!(stager.handle_arrival(at(50), StagedId(2), at(250)), Hold);
    assert_eq!(stager.poll_timeout(), Some(at(150)));
    stager.handle_timeout(at(150));
    assert_eq!(ids(&mut stager), [1, 2]);
}

#[test]
fn the_most_urgent_deadline_less_the_tail_begins_the_burst() {
    let mut stager = experienced(Params::default(), 2, 60);
    (0..40).for_each(|_| stager.tails.handle_completed(1, ms(20)));
    assert_eq!(stager.handle_arrival(at(0), StagedId(1), at(500)), Hold);
    assert_eq!(stager.poll_timeout(), Some(at(480)));
    // Two take longer than one, and the second is more urgent.
    assert_eq!(stager.handle_arrival(at(100), StagedId(2), at(400)), Hold);
    assert_eq!(stager.poll_timeout(), Some(at(340)));
    stager.handle_timeout(at(340));
    let burst = releases(&mut stager);
    assert_eq!(
        burst.iter().map(|release| (release.id.0, release.burst)).collect::<Vec<_>>(),
        [(1, 2), (2, 2)]
    );
    assert_eq!(stager.record().held, ms(580));
}

#[test]
fn requests_in_service_make_the_next_burst_larger() {
    let mut stager = experienced(Params::default(), 1, 20);
    (0..40).for_each(|_| stager.tails.handle_completed(2, ms(90)));
    stager.handle_arrival(at(0), StagedId(1), at(0));
    let first = releases(&mut stager)[0];
    stager.handle_arrival(at(0), StagedId(2), at(500));
    assert_eq!(stager.poll_timeout(), Some(at(410)));
    stager.handle_failed(at(0), &first);
    assert_eq!(stager.poll_timeout(), Some(at(480)));
}

#[test]
fn a_burst_larger_than_any_seen_waits_half_of_the_time_at_most() {
    let mut stager = experienced(Params::default(), 1, 20);
    stager.handle_arrival(at(0), StagedId(1), at(500));
    stager.handle_arrival(at(0), StagedId(2), at(600));
    assert_eq!(stager.poll_timeout(), Some(at(250)));
}

#[test]
fn a_withdrawal_that_leaves_an_unknown_size_releases_what_has_waited_long_enough() {
    let mut stager = experienced(Params::default(), 2, 20);
    stager.handle_arrival(at(0), StagedId(1), at(500));
    stager.handle_arrival(at(0), StagedId(2), at(500));
    stager.handle_withdrawn(at(300), StagedId(1));
    assert_eq!(ids(&mut stager), [2]);
}

#[test]
fn a_failure_that_leaves_an_unknown_size_does_too() {
    let mut stager = experienced(Params::default(), 2, 20);
    stager.handle_arrival(at(0), StagedId(1), at(0));
    let first = releases(&mut stager)[0];
    stager.handle_arrival(at(0), StagedId(2), at(500));
    stager.handle_failed(at(300), &first);
    assert_eq!(ids(&mut stager), [2]);
}

#[test]
fn misses_of_the_held_widen_the_margin_within_bounds_and_successes_narrow_it_to_nothing() {
    let params = Params { max_staged: 1, quantile: machine::Ratio::new(0.9), ..Params::default() };
    let mut stager = experienced(params, 1, 20);
    let mut complete = |hold: u64, late: bool| {
        stager.handle_arrival(at(0), StagedId(0), at(100));
        let mut release = releases(&mut stager)[0];
        release.released = at(hold);
        stager.handle_completed(at(if late { 101 } else { 20 }), &release);
        stager.margin_ns / 1e6
    };
    assert_eq!(complete(0, true), 0.0, "it was not held");
    assert!((complete(1, true) - 9.0).abs() < 1e-9);
    assert!((complete(1, false) - 8.0).abs() < 1e-9);
    assert_eq!((0..100).map(|_| complete(1, true)).last(), Some(100.0));
    assert_eq!((0..200).map(|_| complete(1, false)).last(), Some(0.0));
}

#[test]
fn a_full_stage_is_released() {
    let mut stager = Stager::new(Params { max_staged: 3, ..Params::paper() });
    let verdicts = [1, 2, 3, 4].map(|id| {
        let verdict = stager.handle_arrival(at(1), StagedId(id), at(500));
        (verdict, ids(&mut stager))
    });
    let (none, all) = (vec![], vec![1, 2, 3]);
    assert_eq!(verdicts, [(Hold, none.clone()), (Hold, none.clone()), (ReleaseNow, all), (Hold, none)]);
}

#[test]
fn at_high_load_nothing_is_held() {
    let mut stager = experienced(Params::default(), 1, 500);
    for id in 0..10 {
        assert_eq!(stager.handle_arrival(at(id), StagedId(id), at(id + 500)), ReleaseNow);
        assert_eq!(ids(&mut stager), [id]);
    }
}

#[test]
fn a_tail_that_proves_longer_releases_at_once() {
    let mut stager = experienced(Params::default(), 1, 20);
    stager.handle_arrival(at(0), StagedId(1), at(0));
    let first = releases(&mut stager)[0];
    (0..40).for_each(|_| stager.tails.handle_completed(2, ms(20)));
    stager.handle_arrival(at(0), StagedId(2), at(500));
    // The first took 410 ms; the second has 90 left.
    stager.handle_completed(at(410), &first);
    assert_eq!(ids(&mut stager), [2]);
}

#[test]
fn withdrawn_requests_take_their_deadline_with_them() {
    let mut stager = experienced(Params::default(), 2, 20);
    stager.handle_arrival(at(0), StagedId(1), at(500));
    stager.handle_arrival(at(0), StagedId(2), at(100));
    assert!(stager.handle_withdrawn(at(1), StagedId(2)) && !stager.handle_withdrawn(at(1), StagedId(2)));
    assert_eq!(stager.held(), 1);
    stager.handle_timeout(at(100));
    assert!(ids(&mut stager).is_empty());
    assert!(stager.handle_withdrawn(at(101), StagedId(1)));
    assert_eq!(stager.poll_timeout(), None);
}

#[test]
fn draining_releases_what_is_held() {
    let mut stager = Stager::new(Params::paper());
    stager.handle_drain(at(1));
    stager.handle_arrival(at(1), StagedId(1), at(500));
    stager.handle_drain(at(2));
    assert_eq!((ids(&mut stager), stager.record().by_drain), (vec![1], 1));
}
