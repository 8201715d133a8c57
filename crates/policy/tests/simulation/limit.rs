//! A worker's limit does not depend on its past: two seconds after the load is the same, so are the
//! limits and the workers awake.

use crate::store::{Place, Store};
use machine::{Duration, Instant, Rate};
use policy::peafowl::Params;
use proptest::prelude::*;

/// CPU time of an ordinary request.
const COST: Duration = Duration::from_micros(20);

/// Number of clients for each worker.
const CLIENTS: usize = 8;

/// One stretch of a store's life.
#[derive(Clone, Copy, Debug)]
enum Past {
    /// One more client stores all its keys, pipelined, and goes.
    Preload,
    /// Each request moves a large value.
    BigValues(f64),
    /// Each request asks for hundreds of keys.
    MultiGets(f64),
    /// Sixteen requests at once, each cheaper than alone.
    Pipelines(f64),
    Idle,
    /// Others have the CPU for most of the time.
    Stolen(f64),
    /// Every client as it likes.
    Noise,
    /// More than all workers can do.
    TooMuch,
}

fn pasts() -> impl Strategy<Value = Vec<(Past, Duration)>> {
    let past = prop_oneof![
        Just(Past::Preload),
        (0.1..0.9_f64).prop_map(Past::BigValues),
        (0.1..0.9_f64).prop_map(Past::MultiGets),
        (0.1..0.9_f64).prop_map(Past::Pipelines),
        Just(Past::Idle),
        (2.0..6.0_f64).prop_map(Past::Stolen),
        Just(Past::Noise),
        Just(Past::TooMuch),
    ];
    let length = (50_u64..700).prop_map(Duration::from_millis);
    prop::collection::vec((past, length), 1..6)
}

/// All ordinary clients do the same: requests of `cost`, `lump` at once, that keep all workers busy
/// for `share`.
fn all_alike(store: &mut Store, share: f64, cost: Duration, lump: u32) {
    let rate = share * store.entries.len() as f64 / (cost.as_secs_f64() * f64::from(lump));
    let rate = rate / (store.entries.len() * CLIENTS) as f64;
    for client in 0..store.entries.len() * CLIENTS {
        store.clients[client].cost = Some(cost);
        store.clients[client].lump = lump;
        store.set_rate(client, rate);
    }
}

fn live_through(store: &mut Store, past: Past, length: Duration) {
    match past {
        Past::Preload => {
            all_alike(store, 0.0, COST, 1);
            let client = store.connect(0.0);
            store.clients[client].cost = Some(Duration::from_nanos(1_300));
            store.clients[client].lump = 512;
            store.set_rate(client, 1_350.0);
            store.run_for(length);
            store.set_rate(client, 0.0);
            store.run_for(Duration::from_millis(20));
            store.close(client);
        }
        Past::BigValues(share) => all_alike(store, share, Duration::from_micros(400), 1),
        Past::MultiGets(share) => all_alike(store, share, Duration::from_micros(900), 1),
        Past::Pipelines(share) => all_alike(store, share, Duration::from_micros(2), 16),
        Past::Idle => all_alike(store, 0.0, COST, 1),
        Past::Stolen(times) => {
            all_alike(store, 0.8 / times, COST, 1);
            store.entries.iter_mut().for_each(|entry| entry.stolen = times);
        }
        Past::Noise => {
            all_alike(store, 0.0, COST, 1);
            for client in 0..store.entries.len() * CLIENTS {
                let rate = store.chance().powi(3) * 10_000.0;
                store.set_rate(client, rate);
            }
        }
        Past::TooMuch => all_alike(store, 1.2, COST, 1),
    }
    if !matches!(past, Past::Preload) {
        store.run_for(length);
    }
    store.entries.iter_mut().for_each(|entry| entry.stolen = 1.0);
}

/// A store with its ordinary clients.
fn opened(params: Params, workers: u16, seed: u64) -> Store {
    let mut store = Store::new(params, workers, seed);
    store.service_time = COST;
    (0..usize::from(workers) * CLIENTS).for_each(|_| {
        store.connect(0.0);
    });
    store
}

/// The workers that serve, and the limits that they show, after two seconds of `share` of all
/// workers' time.
fn after_two_seconds(store: &mut Store, share: f64) -> (usize, Vec<f64>) {
    all_alike(store, share, COST, 1);
    // The requests that had piled up are answered before the two seconds begin: they are load as
    // well.
    let backlog = |store: &Store| store.clients.iter().map(|client| client.waiting()).max().unwrap_or(0);
    store.run_until(store.now + Duration::from_secs(5), |store| backlog(store) < 64);
    store.run_for(Duration::from_secs(2));
    store.check();
    let serving = store.entries.iter().filter(|entry| entry.policy.connections() > 0);
    let limits = serving.filter_map(|entry| entry.policy.learned().limit()).map(Rate::as_per_second);
    (store.serving(), limits.collect())
}

/// The state of a store without a past, and of the store with that past.
fn compared(
    params: Params,
    workers: u16,
    seed: u64,
    past: &[(Past, Duration)],
    share: f64,
) -> Result<(), String> {
    let fresh = after_two_seconds(&mut opened(params, workers, seed), share);
    let mut store = opened(params, workers, seed);
    for &(past, length) in past {
        live_through(&mut store, past, length);
    }
    let lived = after_two_seconds(&mut store, share);
    if lived.0 != fresh.0 {
        return Err(format!("{} workers serve, and {} without a past", lived.0, fresh.0));
    }
    let mean = fresh.1.iter().sum::<f64>() / fresh.1.len() as f64;
    match lived.1.iter().find(|&&limit| (limit / mean - 1.0).abs() > 0.1) {
        Some(limit) => Err(format!("a limit of {limit:.0}/s, and of {mean:.0}/s without a past")),
        None => Ok(()),
    }
}

#[test]
fn a_preload_teaches_nothing_where_load_is_busy_time_and_spoils_a_count_of_requests() {
    // The first minute of the README: keys are stored as fast as they go, then comes the load.
    let preload = [(Past::Preload, Duration::from_millis(80))];
    for share in [0.05, 0.75] {
        assert_eq!(compared(Params::live(), 2, 1, &preload, share), Ok(()));
    }
    let spoilt = compared(Params::default(), 2, 1, &preload, 0.75).unwrap_err();
    assert!(spoilt.contains("serve") || spoilt.contains("limit"), "{spoilt}");
}

#[test]
fn a_worker_that_is_always_busy_shares_even_what_is_at_home_there() {
    // All connections of the other worker have closed: there is no guest to send home.
    let mut store = opened(Params::live(), 2, 7);
    all_alike(&mut store, 0.2, COST, 1);
    store.run_for(Duration::from_secs(2));
    for client in 0..store.clients.len() {
        if store.clients[client].home.0 == 1 {
            store.close(client);
        }
    }
    store.run_for(Duration::from_secs(1));
    assert_eq!(store.serving(), 1);
    for client in 0..store.clients.len() {
        if store.clients[client].place != Place::Closed {
            store.set_rate(client, 1.3 / COST.as_secs_f64() / CLIENTS as f64);
        }
    }
    let end = store.now + Duration::from_secs(2);
    assert!(store.run_until(end, |store| store.serving() == 2), "one worker does all, the other sleeps");
    store.run_for(Duration::from_secs(3));
    assert_eq!(store.serving(), 2);
    let busiest = store.readings.iter().map(|reading| reading.busy.as_f64()).fold(0.0, f64::max);
    assert!(busiest < 0.95, "{:?}", store.readings);
}

#[test]
fn taken_time_is_not_capacity() {
    // Half of each CPU is gone: the load that fits on one worker of three does not fit any more.
    let serve = |stolen: f64| {
        let mut store = opened(Params::live(), 3, 3);
        store.entries.iter_mut().for_each(|entry| entry.stolen = stolen);
        all_alike(&mut store, 0.45 / 3.0, COST, 1);
        store.run_until(Instant::ZERO + Duration::from_secs(6), |_| false);
        store.serving()
    };
    assert_eq!((serve(1.0), serve(2.0)), (1, 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_past_is_forgotten_within_two_seconds(
        seed in any::<u64>(),
        workers in 2_u16..5,
        past in pasts(),
        is_light in any::<bool>(),
        share in 0.0..1.0_f64,
    ) {
        // Between a load that is packed onto one worker and a load that takes all there is room for
        // either, on purpose: a packed load stays packed, and a spread load stays spread.
        let share = if is_light { (0.1 + 0.4 * share) / f64::from(workers) } else { 0.78 + 0.1 * share };
        prop_assert_eq!(compared(Params::live(), workers, seed, &past, share), Ok(()));
    }
}
