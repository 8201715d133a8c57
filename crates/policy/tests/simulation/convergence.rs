//! From any start the store ends on as few workers as the load needs.

use crate::store::{Place, Store};
use machine::{Duration, Instant};
use policy::Why;
use policy::peafowl::Params;
use proptest::prelude::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Half-second blocks and a learning time of a second: the same policy, for tests that shall not
/// take long.
fn brisk() -> Params {
    Params::default().scaled(60.0)
}

#[test]
fn eight_workers_become_one_within_ten_seconds_after_the_last_block() {
    // The bar of the specification: 8 workers, 64 connections, 5 % of the learned peak.
    let mut store = Store::new(Params::default(), 8, 1);
    store.teach(4_000.0);
    for _ in 0..64 {
        store.connect(450.0);
    }
    store.run_for(secs(2));
    assert_eq!(store.serving(), 8, "nothing is packed near the peak");
    store.set_rates(25.0);
    let begin = store.now;
    let end = begin + secs(10);
    assert!(store.run_until(end, |store| store.serving() == 1), "{} still serve", store.serving());
    assert!(store.now.since(begin) < secs(5), "took {}", store.now.since(begin));
    store.run_for(secs(1));
    assert_eq!(store.active.len(), 1);
    store.check_settled();
    let sent_home = store.moves.iter().filter(|(_, moved)| moved.why.is_sent_home()).count();
    assert_eq!(sent_home, 0, "what was packed stays packed");
}

#[test]
fn silent_connections_are_packed_too() {
    let mut store = Store::new(Params::default(), 4, 2);
    for _ in 0..32 {
        store.connect(0.0);
    }
    assert!(store.run_until(Instant::ZERO + secs(5), |store| store.serving() == 1));
    store.check();
}

#[test]
fn a_block_ends_without_any_request() {
    // The published timers ticked only with requests.
    let mut store = Store::new(Params::default(), 2, 3);
    store.teach(1_000.0);
    let clients: Vec<_> = (0..8).map(|at| store.connect_at(100.0, at % 2, 0)).collect();
    store.run_for(secs(1));
    for &client in &clients {
        store.set_rate(client, 1_000.0);
    }
    store.run_for(secs(1));
    assert!(store.moves.iter().any(|(_, moved)| moved.why.is_sent_home()), "a burst spreads them");
    for &client in &clients {
        store.set_rate(client, 0.0);
    }
    store.run_for(secs(20));
    assert_eq!(store.serving(), 2, "blocked for 30 s");
    store.run_for(secs(15));
    assert_eq!(store.serving(), 1, "and then free, though no request was sent");
}

#[test]
fn the_load_that_needs_three_workers_gets_three() {
    let mut store = Store::new(Params::default(), 8, 4);
    store.teach(2_000.0);
    // 4300 requests per second on workers that are filled to 1600: three.
    for _ in 0..86 {
        store.connect(50.0);
    }
    store.run_for(secs(60));
    assert_eq!(store.serving(), 3);
    store.check_settled();
    let late = store.moves.iter().filter(|(at, _)| *at > Instant::ZERO + secs(30)).count();
    assert!(late <= 3, "{late} moves after it had settled: it oscillates");
}

#[test]
fn fat_connections_are_spread() {
    let mut store = Store::new(Params::default(), 2, 5);
    store.teach(20_000.0);
    // Round robin put two fat ones on the same worker; together they do not fit on one.
    for (home, rate) in [(0, 8_000.0), (0, 8_000.0), (0, 200.0), (1, 200.0), (1, 200.0), (1, 1_000.0)] {
        store.connect_at(rate, home, home);
    }
    store.run_for(secs(30));
    store.check_settled();
    let loads: Vec<f64> = store.readings.iter().map(|reading| reading.load.as_per_second()).collect();
    assert!((loads[0] - loads[1]).abs() < 3_000.0, "{loads:?}");
    assert!(store.moves_by(Why::Ordered) <= 4, "without much ado: {:?}", store.moves);
    // The connections of the crowded worker live on the other now.
    let fat = &store.clients[..2];
    assert_ne!(fat[0].home, fat[1].home);
}

/// The rules of the authors' code (peafowl-kvs): it packs to 1.0 of a limit, and above 0.9 of that
/// guests go home.
fn published() -> Params {
    let second = Duration::from_secs(1);
    Params {
        window_requests: 1,
        window_span: second,
        report_period: second,
        approach: 0.9,
        headroom: 1.0,
        rerate: 1.1,
        ..Params::paper()
    }
}

#[test]
fn the_authors_code_packs_a_small_load_and_lets_it_be() {
    let mut store = Store::new(published(), 4, 6);
    store.teach(2_000.0);
    for _ in 0..40 {
        store.connect(20.0);
    }
    store.run_for(secs(60));
    assert_eq!(store.serving(), 1);
    let settled = store.moves.len();
    store.run_for(secs(240));
    assert_eq!(store.moves.len(), settled, "800 of 2000 a second leave no reason to move");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn under_the_authors_code_no_connection_comes_home_more_than_once_in_a_block(
        seed in any::<u64>(),
        workers in 2_u16..6,
        clients in prop::collection::vec(20.0..200.0_f64, 4..24),
        limit in 300.0..2000.0_f64,
    ) {
        // It packs above the load at which guests go home: only the block keeps connections from
        // going to and fro for ever.
        let params = published().scaled(10.0);
        let mut store = Store::new(params, workers, seed);
        store.teach(limit);
        clients.iter().for_each(|&rate| { store.connect(rate); });
        store.run_for(secs(30));
        store.check();
        for (at, client) in &store.homecomings {
            // An order under way when the block began may take it out once more.
            let within = |until: &Instant| *until >= *at && until.since(*at) < params.block;
            let count = store.homecomings.iter().filter(|(until, other)| other == client && within(until)).count();
            prop_assert!(count <= 2, "client {} came home {} times from {:?}", client, count, at);
        }
        let blocks = 30.0 / params.block.as_secs_f64();
        let most = 2.0 * blocks * clients.len() as f64;
        prop_assert!((store.moves.len() as f64) <= most, "{} moves", store.moves.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_connection_is_lost_or_doubled_and_the_store_settles(
        seed in any::<u64>(),
        workers in 1_u16..9,
        clients in prop::collection::vec((0.0..600.0_f64, any::<u8>(), any::<u8>()), 0..40),
        acts in prop::collection::vec((any::<u8>(), 0.0..1500.0_f64), 0..40),
    ) {
        let mut store = Store::new(brisk(), workers, seed);
        // Without any limit it is not known how much fits; a connection that is not silent yet
        // stays.
        store.teach(300.0);
        for (rate, home, serve) in clients {
            // From any start: homes and places have nothing to do with each other.
            store.connect_at(rate, usize::from(home) % usize::from(workers), usize::from(serve) % usize::from(workers));
        }
        for (pick, rate) in acts {
            let any = usize::from(pick) % store.clients.len().max(1);
            match pick % 4 {
                0 if !store.clients.is_empty() => store.close(any),
                1 => { store.connect(rate); }
                _ if !store.clients.is_empty() => store.set_rate(any, rate),
                _ => {}
            }
            store.run_for(Duration::from_millis(u64::from(pick)));
            store.check();
        }
        store.set_rates(0.0);
        store.run_for(secs(4));
        store.check_settled();
        prop_assert_eq!(store.active.len(), 1, "silent clients need one worker");
        let open = store.clients.iter().filter(|client| client.place != Place::Closed).count();
        let kept: u32 = store.entries.iter().map(|entry| entry.policy.connections()).sum();
        prop_assert_eq!(open, kept as usize);
    }
}
