//! The faults of the published Peafowl code that are of the policy's making, one test each. Each
//! fails when its fix is taken out.

use crate::store::{Place, Store};
use machine::{Duration, Instant, WorkerId};
use policy::peafowl::Params;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Waits until the connections are on `serving` workers and just those are active.
fn settles_on(store: &mut Store, serving: usize, within: Duration) {
    let end = store.now + within;
    let settled = |store: &Store| store.serving() == serving && store.active.len() == serving.max(1);
    let settles = store.run_until(end, settled);
    assert!(settles, "{} serve, {} are active", store.serving(), store.active.len());
    store.check();
}

#[test]
fn an_empty_worker_does_not_stop_the_others_from_being_packed() {
    // Published: the empty worker has the least load, is picked as victim, can give nothing up, and
    // that is all.
    let mut store = Store::new(Params::default(), 4, 1);
    store.teach(1_000.0);
    for client in 0..9 {
        store.connect_at(20.0, client % 3, client % 3);
    }
    settles_on(&mut store, 1, secs(5));
}

#[test]
fn a_store_without_clients_rests() {
    let mut store = Store::new(Params::default(), 4, 1);
    settles_on(&mut store, 0, secs(2));
}

#[test]
fn a_connection_that_goes_silent_frees_its_worker() {
    // Published: it keeps its last rate for ever.
    let mut store = Store::new(Params::default(), 2, 2);
    store.teach(2_000.0);
    let clients: Vec<_> = (0..8).map(|_| store.connect(400.0)).collect();
    store.run_for(secs(3));
    assert_eq!(store.serving(), 2, "busy clients fill both");
    for client in clients {
        store.set_rate(client, 0.0);
    }
    settles_on(&mut store, 1, secs(5));
}

#[test]
fn connections_that_close_in_mid_transfer_do_not_stop_the_scheduler() {
    let mut store = Store::new(Params::default(), 4, 3);
    store.teach(1_000.0);
    for _ in 0..32 {
        store.connect(10.0);
    }
    let end = Instant::ZERO + secs(10);
    for _ in 0..6 {
        let flies = |store: &Store| store.clients.iter().any(|client| client.place == Place::Flying);
        if store.run_until(end, flies) {
            let flying = store.clients.iter().position(|client| client.place == Place::Flying);
            store.close(flying.expect("one flies"));
        }
    }
    settles_on(&mut store, 1, secs(10));
}

#[test]
fn transfers_that_are_lost_without_a_word_do_not_stop_the_scheduler() {
    let mut store = Store::new(Params::default(), 4, 4);
    store.teach(1_000.0);
    for _ in 0..32 {
        store.connect(10.0);
    }
    store.lose_transfers = 5;
    settles_on(&mut store, 1, secs(10));
    assert_eq!(store.lose_transfers, 0, "they were lost indeed");
}

#[test]
fn the_last_close_lets_a_worker_rest() {
    let mut store = Store::new(Params::default(), 2, 5);
    store.teach(1_000.0);
    let clients: Vec<_> = (0..4).map(|_| store.connect(400.0)).collect();
    store.run_for(secs(2));
    assert_eq!(store.active.len(), 2);
    store.close(clients[1]);
    store.close(clients[3]);
    store.run_for(Duration::from_millis(60));
    assert_eq!(store.active, [WorkerId(0)].into(), "within the grace, not with some later report");
}

#[test]
fn a_worker_emptied_by_going_home_rests() {
    // All that one worker serves are guests; a burst sends them all home.
    let mut store = Store::new(Params::default(), 3, 6);
    store.teach(1_000.0);
    for client in 0..16 {
        store.connect_at(50.0, client % 2, 2);
    }
    store.run_for(Duration::from_millis(350));
    store.set_rates(1_000.0);
    store.run_for(secs(2));
    assert_eq!(store.entries[2].policy.connections(), 0);
    assert!(!store.active.contains(&WorkerId(2)), "it is empty and awake");
    assert_eq!(store.active.len(), 2);
}

#[test]
fn packing_goes_on_when_clients_come_and_go_all_the_time() {
    let mut store = Store::new(Params::default(), 4, 7);
    store.teach(2_000.0);
    let mut clients: Vec<_> = (0..16).map(|_| store.connect(20.0)).collect();
    for round in 0..400 {
        let client = clients[round % clients.len()];
        store.close(client);
        let next = round % clients.len();
        clients[next] = store.connect(20.0);
        store.run_for(Duration::from_millis(25));
        store.check();
    }
    assert_eq!(store.serving(), 1);
}
