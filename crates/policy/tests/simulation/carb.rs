//! CARB on a store: the connections follow the controller's number.

use crate::store::Store;
use machine::{CpuId, Duration, WorkerId};
use policy::carb::Params;
use policy::{Scheduling, peafowl};
use proptest::prelude::*;

fn store(params: Params, workers: u16, seed: u64) -> Store {
    let places: Vec<_> = (0..workers).map(|id| (WorkerId(id), CpuId(id))).collect();
    let scheduling = Scheduling::carb(params, &places);
    Store::with(peafowl::Params::default(), scheduling, workers, seed)
}

#[test]
fn a_light_load_ends_on_few_workers_and_a_jump_wakes_all() {
    let mut store = store(Params { epoch: Duration::from_millis(200), ..Params::default() }, 6, 1);
    store.service_time = Duration::from_micros(50);
    for _ in 0..24 {
        store.connect(40.0);
    }
    store.run_for(Duration::from_secs(8));
    assert!(store.active.len() <= 2, "960 requests of 50 us per second keep one worker busy for 5 %");
    store.check_settled();
    store.set_rates(2_000.0);
    store.run_for(Duration::from_millis(700));
    assert!(store.active.len() >= 5, "{} are awake after a jump", store.active.len());
    store.run_for(Duration::from_secs(2));
    assert!(store.serving() >= 3, "connections are spread over those awake: {}", store.serving());
    store.check_settled();
}

#[test]
fn workers_send_nobody_home_under_carb() {
    let mut store = store(Params { epoch: Duration::from_millis(200), ..Params::default() }, 3, 2);
    store.teach(100.0);
    for client in 0..9 {
        store.connect_at(200.0, client % 3, 0);
    }
    store.run_for(Duration::from_secs(3));
    assert!(store.moves.iter().all(|(_, moved)| !moved.why.is_sent_home()));
    store.check_settled();
}

#[test]
fn all_awake_moves_nothing_and_commands_nothing() {
    let places: Vec<_> = (0..4).map(|id| (WorkerId(id), CpuId(id))).collect();
    let mut store = Store::with(peafowl::Params::default(), Scheduling::all_awake(&places), 4, 3);
    store.teach(100.0);
    for _ in 0..8 {
        store.connect(300.0);
    }
    store.run_for(Duration::from_secs(3));
    assert_eq!((store.moves.len(), store.active.len(), store.serving()), (0, 4, 4));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn no_connection_is_lost_under_carb(
        seed in any::<u64>(),
        workers in 1_u16..7,
        clients in prop::collection::vec((0.0..300.0_f64, any::<u8>()), 0..30),
        acts in prop::collection::vec((any::<u8>(), 0.0..800.0_f64), 0..30),
    ) {
        let mut store = store(Params { epoch: Duration::from_millis(100), ..Params::default() }, workers, seed);
        store.service_time = Duration::from_micros(20);
        for (rate, serve) in clients {
            store.connect_at(rate, 0, usize::from(serve) % usize::from(workers));
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
        store.run_for(Duration::from_secs(3));
        store.check_settled();
        prop_assert_eq!(store.active.len(), 1);
    }
}
