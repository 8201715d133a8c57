//! A burst wakes all the workers it needs within milliseconds; a mere look-alike wakes
//! none.

use crate::store::Store;
use machine::{Duration, Instant, Rate};
use policy::Why;
use policy::peafowl::Params;

/// The load that one worker of eight carries at the learned peak.
const LIMIT: f64 = 12_000.0;

/// 64 connections of eight workers, all packed onto one, at 5 % of the peak.
fn packed(params: Params, seed: u64) -> Store {
    let mut store = Store::new(params, 8, seed);
    store.teach(LIMIT);
    store.service_time = Duration::from_micros(10);
    for client in 0..64 {
        store.connect_at(0.05 * 8.0 * LIMIT / 64.0, client % 8, 0);
    }
    store.run_for(Duration::from_millis(350));
    assert_eq!(store.serving(), 1);
    store
}

#[test]
fn all_needed_workers_serve_within_two_milliseconds_of_a_burst() {
    // Figure 7 of the paper: from 5 % to 65 % of the peak at once; thirty times.
    let mut delays: Vec<Duration> = (0..30)
        .map(|seed| {
            let mut store = packed(Params::default(), seed);
            let begin = store.now;
            store.set_rates(0.65 * 8.0 * LIMIT / 64.0);
            let all_serve = |store: &Store| store.serving() == 8;
            assert!(store.run_until(begin + Duration::from_millis(100), all_serve), "seed {seed}");
            store.now.since(begin)
        })
        .collect();
    delays.sort_unstable();
    assert!(delays[15] <= Duration::from_millis(2), "median {}, worst {}", delays[15], delays[29]);
    assert!(delays[29] <= Duration::from_millis(4), "worst {}", delays[29]);
}

#[test]
fn after_a_burst_no_worker_is_above_its_limit() {
    let mut store = packed(Params::default(), 99);
    store.set_rates(0.65 * 8.0 * LIMIT / 64.0);
    store.run_for(Duration::from_secs(3));
    for reading in &store.readings {
        assert!(reading.load < Rate::per_second(LIMIT), "{reading:?}");
    }
    store.check_settled();
}

#[test]
fn the_printed_rules_alone_see_a_burst_with_the_next_report() {
    let mut store = packed(Params::paper(), 5);
    let begin = store.now;
    store.set_rates(0.65 * 8.0 * LIMIT / 64.0);
    assert!(store.run_until(begin + Duration::from_millis(250), |store| store.serving() == 8));
    assert!(store.moves.iter().all(|(_, moved)| moved.why == Why::Overload));
}

#[test]
fn poisson_load_near_the_limit_sends_nobody_home() {
    // Ten minutes at 0.8, 0.85 and 0.9 of the limit, from few fast and from many slow connections.
    for (clients, share, seed) in [(4, 0.8, 1), (40, 0.85, 2), (4, 0.85, 3), (40, 0.9, 4)] {
        let mut store = Store::new(Params { imbalance_patience: None, ..Params::default() }, 2, seed);
        store.teach(2_000.0);
        for client in 0..clients {
            store.connect_at(share * 2_000.0 / f64::from(clients), usize::from(client % 2 == 0), 0);
        }
        store.run_for(Duration::from_secs(600));
        let sent: Vec<_> = store.moves.iter().filter(|(_, moved)| moved.why.is_sent_home()).collect();
        assert!(sent.is_empty(), "{clients} clients at {share}: {sent:?}");
    }
}

#[test]
fn a_stall_is_no_burst() {
    // The CPU is taken away for 8 ms every 50 ms; the work of that time comes in one heap.
    let mut store = Store::new(Params { imbalance_patience: None, ..Params::default() }, 2, 8);
    store.teach(20_000.0);
    store.service_time = Duration::from_micros(10);
    for client in 0..32 {
        store.connect_at(0.75 * 20_000.0 / 32.0, client % 2, 0);
    }
    store.run_for(Duration::from_millis(450));
    store.moves.clear();
    for _ in 0..200 {
        store.stalled_until = store.now + Duration::from_millis(8);
        store.run_for(Duration::from_millis(50));
    }
    assert_eq!(store.moves, []);
}

#[test]
fn a_tail_above_the_goal_wakes_workers_below_the_limit() {
    // The limit was learned on a better day: one worker is overloaded long before it.
    let goal = Some(Duration::from_micros(500));
    let mut store = Store::new(Params { latency_goal: goal, ..Params::default() }, 4, 9);
    store.teach(50_000.0);
    store.service_time = Duration::from_micros(100);
    for client in 0..32 {
        store.connect_at(280.0, client % 4, 0);
    }
    store.run_until(Instant::ZERO + Duration::from_secs(5), |store| store.serving() > 2);
    assert!(store.serving() > 2, "{:?}", store.readings);
    assert!(store.moves.iter().any(|(_, moved)| moved.why == Why::Tail));
    store.run_for(Duration::from_secs(2));
    store.check_settled();
}

#[test]
fn residents_alone_can_be_helped_by_waking_a_worker() {
    // All are at home where they are, so none can be sent home: only the scheduler can help.
    let goal = Some(Duration::from_micros(500));
    let mut store = Store::new(Params { latency_goal: goal, ..Params::default() }, 4, 10);
    store.teach(50_000.0);
    store.service_time = Duration::from_micros(100);
    for _ in 0..32 {
        store.connect_at(280.0, 0, 0);
    }
    store.run_for(Duration::from_secs(5));
    assert!(store.serving() > 1, "{:?}", store.readings);
    let tail = store.readings.iter().filter_map(|reading| reading.tail).max();
    assert!(tail.is_none_or(|tail| tail < Duration::from_millis(1)), "{tail:?}");
    store.check_settled();
}
