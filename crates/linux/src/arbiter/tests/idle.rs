use super::*;
use crate::cpuidle::control::{IdleControl, IdleOptions, LimitState};
use crate::cpuidle::idle_table;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn parts_of_one_process_are_combined_and_withdrawing_gives_what_the_rest_asks_for() {
    let machine = FakeMachine::intel_server(1);
    let idle = open(&machine, "0").idle;
    idle.limit("cache", CpuId(0), us(100));
    idle.limit("search", CpuId(0), us(20));
    assert_eq!(limit_of(&machine, 0), "20");
    idle.limit("cache", CpuId(0), us(50));
    assert_eq!(limit_of(&machine, 0), "20");
    idle.withdraw("search");
    assert_eq!(limit_of(&machine, 0), "50");
    idle.withdraw("cache");
    assert_eq!(limit_of(&machine, 0), "0");
    idle.limit("cache", CpuId(0), us(50));
    drop(idle);
    assert_eq!(limit_of(&machine, 0), "0");
}

#[test]
fn what_each_asks_is_told_and_what_is_not_held_is_refused() {
    let machine = FakeMachine::intel_server(4);
    let idle = open(&machine, "0-2").idle;
    let store = lease(1, "roost serve");
    idle.limit("shop", CpuId(1), us(100));
    let state = idle.limit(store.clone(), CpuId(1), us(10));
    assert_eq!((state.limit(), limit_of(&machine, 1).as_str()), (Some(us(10)), "10"));
    let asked = idle.asked();
    let asked = asked.iter().find(|asked| asked.asker == "roost serve").unwrap();
    assert_eq!(
        (asked.cpus.to_string(), asked.wish, asked.together, asked.process),
        ("1".into(), Wish::Idle(us(10)), Some(Wish::Idle(us(10))), 7)
    );
    assert!(now_unix_s() - asked.since_unix_s < 60);
    assert!(matches!(idle.limit(store.clone(), CpuId(3), us(7)), LimitState::Refused { .. }));
    assert_eq!(idle.cpus_of(store.clone()), cpus("1"), "what was refused was not asked");
    idle.limit(store, CpuId(1), IdleLimit::None);
    assert_eq!(limit_of(&machine, 1), "100", "the rest's combination, no constant");
}

/// A CPU that one asker alone asked for is free when the asker withdraws, its lock included.
#[test]
fn cpus_are_held_for_as_long_as_an_asker_holds_them() {
    let machine = FakeMachine::intel_server(2);
    let idle = open(&machine, "0").idle;
    idle.hold("wake", &cpus("0-1")).unwrap();
    idle.limit("wake", CpuId(1), us(3));
    let alone = |list: &str| IdleControl::open(machine.root(), &cpus(list), IdleOptions::new("roost bench"));
    assert!(alone("1").is_err());
    idle.withdraw("wake");
    assert_eq!(limit_of(&machine, 1), "0");
    assert!(alone("1").is_ok() && alone("0").is_err());
}

#[test]
fn the_deepest_sleep_yields_to_any_bound_and_comes_back() {
    let machine = FakeMachine::intel_server(1);
    let disabled = || {
        let states = 0..idle_table(machine.root(), CpuId(0)).unwrap().0.len();
        let file = |state| format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}/disable");
        states.map(|state| machine.read(&file(state))).collect::<String>()
    };
    let before = disabled();
    let idle = open(&machine, "0").idle;
    let store = lease(1, "roost serve");
    let state = idle.limit("batch", CpuId(0), IdleLimit::Deepest);
    assert!(matches!(state, LimitState::Floor { has_effect: true, .. }), "{state:?}");
    let floor = disabled();
    assert!(floor.ends_with('0') && floor[..floor.len() - 1].chars().all(|state| state == '1'), "{floor}");
    idle.limit(store.clone(), CpuId(0), us(10));
    assert_eq!((disabled(), limit_of(&machine, 0).as_str()), (before.clone(), "10"));
    idle.limit(store, CpuId(0), IdleLimit::None);
    assert_eq!((disabled(), limit_of(&machine, 0).as_str()), (floor, "0"));
    drop(idle);
    assert_eq!(disabled(), before);
}

#[test]
fn a_holder_that_does_not_yield_is_named_and_nothing_is_taken() {
    let machine = FakeMachine::intel_server(2);
    let _bench = IdleControl::open(machine.root(), &cpus("1"), IdleOptions::new("roost bench")).unwrap();
    let arbiter = Arbiter::new(machine.root(), "roost govern");
    let error = arbiter.idle.hold("shop", &cpus("0-1")).unwrap_err();
    assert!(error.to_string().contains("roost bench"), "{error}");
    assert!(!arbiter.idle.is_for(&cpus("0")));
    IdleControl::open(machine.root(), &cpus("0"), IdleOptions::new("another")).unwrap();
}

#[test]
fn what_a_holder_yields_is_pending_and_set_when_it_lets_go() {
    let machine = FakeMachine::intel_server(2);
    let options = IdleOptions { yields: true, ..IdleOptions::new("roost serve") };
    let mut store = IdleControl::open(machine.root(), &cpus("1"), options).unwrap();
    store.apply(CpuId(1), us(9));
    let arbiter = open(&machine, "0-1");
    let notices = arbiter.drain_notices();
    assert!(
        notices.iter().any(|notice| notice.contains("roost serve") && notice.contains("lets go")),
        "{notices:?}"
    );
    arbiter.idle.limit("shop", CpuId(0), us(70));
    assert!(matches!(arbiter.idle.limit("shop", CpuId(1), us(70)), LimitState::Refused { .. }));
    arbiter.look_after();
    assert_eq!(
        (limit_of(&machine, 0), limit_of(&machine, 1), arbiter.is_waiting()),
        ("70".into(), "9".into(), true)
    );
    drop(store);
    arbiter.look_after();
    assert_eq!((limit_of(&machine, 1), arbiter.is_waiting()), ("70".into(), false));
}

#[test]
fn a_window_is_open_beside_what_is_asked_and_closes_with_its_handle() {
    let machine = FakeMachine::intel_server(1);
    let idle = open(&machine, "0").idle;
    idle.limit("shop", CpuId(0), us(70));
    let mut window = idle.window(CpuId(0)).unwrap();
    window.open().unwrap();
    assert_eq!(limit_of(&machine, 0), "n/a");
    idle.limit("shop", CpuId(0), us(20));
    assert_eq!(limit_of(&machine, 0), "n/a", "the strictest");
    window.close().unwrap();
    assert_eq!(limit_of(&machine, 0), "20");
    window.open().unwrap();
    drop(window);
    assert_eq!(limit_of(&machine, 0), "20");
    assert!(idle.window(CpuId(9)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// After any requests and withdrawals in any order, the strictest of the rest is in force.
    #[test]
    fn the_strictest_of_what_stands_is_in_force(
        steps in proptest::collection::vec((0u64..2, 0usize..3, 0u16..2, 0u64..4), 1..40),
    ) {
        let machine = FakeMachine::intel_server(2);
        let idle = open(&machine, "0-1").idle;
        let mut stands = BTreeMap::new();
        for (number, asker, cpu, latency) in steps {
            let limit = if latency == 0 { IdleLimit::None } else { us(latency * 10) };
            idle.limit(lease(number, ["a", "b", "c"][asker]), CpuId(cpu), limit);
            if latency == 0 {
                stands.remove(&(cpu, number, asker));
            } else {
                stands.insert((cpu, number, asker), latency * 10);
            }
            let strictest = stands.iter().filter(|((of, ..), _)| *of == cpu).map(|(_, &us)| us).min();
            prop_assert_eq!(limit_of(&machine, cpu), strictest.unwrap_or(0).to_string());
        }
    }
}
