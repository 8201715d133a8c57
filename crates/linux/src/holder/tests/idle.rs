use super::*;
use crate::cpuidle::control::{IdleOptions, LimitState};
use crate::cpuidle::idle_table;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn parts_of_one_process_are_combined_and_withdrawing_gives_what_the_rest_asks_for() {
    let machine = FakeMachine::intel_server(1);
    let mut holder = open(&machine, "0", "a test");
    holder.limit("cache", CpuId(0), us(100));
    holder.limit("search", CpuId(0), us(20));
    assert_eq!(limit_of(&machine, 0), "20");
    holder.limit("cache", CpuId(0), us(50));
    assert_eq!(limit_of(&machine, 0), "20");
    holder.withdraw("search");
    assert_eq!(limit_of(&machine, 0), "50");
    holder.withdraw("cache");
    assert_eq!(limit_of(&machine, 0), "0");
    holder.limit("cache", CpuId(0), us(50));
    drop(holder);
    assert_eq!(limit_of(&machine, 0), "0");
}

#[test]
fn who_comes_second_asks_who_came_first() {
    let machine = FakeMachine::intel_server(4);
    let mut first = open(&machine, "0-1", "roost govern");
    let mut second = open(&machine, "1-2", "roost serve");
    let notices = second.drain_notices();
    assert!(notices.iter().any(|notice| notice.contains("CPU 1: held by roost govern")), "{notices:?}");
    first.limit("shop", CpuId(1), us(100));
    let state = second.limit("serve", CpuId(1), us(10));
    assert_eq!((state.limit(), limit_of(&machine, 1).as_str()), (Some(us(10)), "10"));
    let asked = first.asked_by_others();
    let [asked] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(
        (asked.cpus.to_string(), asked.wish, asked.together),
        ("1".into(), Wish::Idle(us(10)), Some(Wish::Idle(us(10))))
    );
    assert_eq!((asked.asker.as_str(), asked.process), ("roost serve", std::process::id()));
    assert!(now_unix_s() - asked.since_unix_s < 60);
    // And what each of them says of itself.
    let all = first.asked();
    assert!(
        all.iter().any(|asked| asked.asker == "shop"
            && asked.wish == Wish::Idle(us(100))
            && asked.held_by.is_none()),
        "{all:?}"
    );
    let all = second.asked();
    assert!(
        all.iter().any(|asked| asked.asker == "serve"
            && asked.held_by.as_ref().is_some_and(|by| by.starts_with("roost govern"))),
        "{all:?}"
    );
    // What is free it holds itself, and nobody has what nobody opened.
    second.limit("serve", CpuId(2), us(7));
    assert_eq!(limit_of(&machine, 2), "7");
    assert!(matches!(second.limit("serve", CpuId(3), us(7)), LimitState::Refused { .. }));
    second.limit("serve", CpuId(1), IdleLimit::None);
    assert_eq!(limit_of(&machine, 1), "100", "the rest's combination, no constant");
    second.limit("serve", CpuId(1), us(10));
    drop(second);
    soon("withdrawn with its connection", || limit_of(&machine, 1) == "100");
    assert_eq!(limit_of(&machine, 2), "0");
    assert_eq!(first.asked_by_others(), []);
    drop(first);
    assert_eq!(limit_of(&machine, 1), "0");
}

#[test]
fn when_the_holder_ends_who_asked_takes_over_with_what_it_asked_for() {
    let machine = FakeMachine::intel_server(2);
    let mut first = open(&machine, "0-1", "roost govern");
    let mut second = open(&machine, "0-1", "roost serve");
    first.limit("shop", CpuId(0), us(5));
    second.limit("serve", CpuId(0), us(40));
    second.look_after();
    assert_eq!(limit_of(&machine, 0), "5", "it lives");
    drop(first);
    assert_eq!(limit_of(&machine, 0), "0");
    second.drain_notices();
    second.look_after();
    assert_eq!(limit_of(&machine, 0), "40");
    assert!(second.drain_notices().iter().any(|notice| notice.contains("seen to anew")));
    // And now it is the one who is asked.
    let mut third = open(&machine, "0", "roost wake");
    third.limit("wake", CpuId(0), us(3));
    assert_eq!(limit_of(&machine, 0), "3");
    drop(third);
    soon("withdrawn", || limit_of(&machine, 0) == "40");
    drop(second);
    assert_eq!(limit_of(&machine, 0), "0");
    let left: Vec<_> = std::fs::read_dir(machine.path("run/roost")).unwrap().flatten().collect();
    assert!(left.iter().all(|file| file.file_name().to_string_lossy().ends_with(".lock")), "{left:?}");
}

#[test]
fn two_that_asked_agree_on_who_takes_over() {
    let machine = FakeMachine::intel_server(1);
    let first = open(&machine, "0", "first");
    let mut others = [open(&machine, "0", "second"), open(&machine, "0", "third")];
    others[0].limit("a", CpuId(0), us(30));
    others[1].limit("b", CpuId(0), us(20));
    drop(first);
    others.iter_mut().for_each(IdleHolder::look_after);
    assert_eq!(limit_of(&machine, 0), "20");
    let [second, third] = others;
    drop(third);
    soon("withdrawn", || limit_of(&machine, 0) == "30");
    drop(second);
}

#[test]
fn the_deepest_sleep_yields_to_anybodys_bound_and_comes_back() {
    let machine = FakeMachine::intel_server(1);
    let disabled = || {
        let states = 0..idle_table(machine.root(), CpuId(0)).unwrap().0.len();
        let file = |state| format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}/disable");
        states.map(|state| machine.read(&file(state))).collect::<String>()
    };
    let before = disabled();
    let mut first = open(&machine, "0", "roost govern");
    let mut second = open(&machine, "0", "roost serve");
    let state = first.limit("batch", CpuId(0), IdleLimit::Deepest);
    assert!(matches!(state, LimitState::Floor { has_effect: true, .. }), "{state:?}");
    let floor = disabled();
    assert!(floor.ends_with('0') && floor[..floor.len() - 1].chars().all(|state| state == '1'), "{floor}");
    second.limit("serve", CpuId(0), us(10));
    assert_eq!((disabled(), limit_of(&machine, 0).as_str()), (before.clone(), "10"));
    second.limit("serve", CpuId(0), IdleLimit::None);
    assert_eq!((disabled(), limit_of(&machine, 0).as_str()), (floor, "0"));
    // Asked over the socket as well.
    first.withdraw("batch");
    assert!(matches!(second.limit("serve", CpuId(0), IdleLimit::Deepest), LimitState::Floor { .. }));
    drop(second);
    drop(first);
    assert_eq!(disabled(), before);
}

#[test]
fn a_holder_that_takes_no_requests_is_named() {
    let machine = FakeMachine::intel_server(2);
    let _bench =
        crate::IdleControl::open(machine.root(), &cpus("1"), IdleOptions::new("roost bench")).unwrap();
    let error =
        IdleHolder::open(machine.root(), &cpus("0-1"), "roost serve", IdleActuator::PmQos).unwrap_err();
    assert!(error.to_string().contains("roost bench"), "{error}");
    // It took nothing.
    open(&machine, "0", "another");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever is asked and withdrawn in whatever order: the strictest of what stands is in force.
    #[test]
    fn the_strictest_of_what_stands_is_in_force(
        steps in proptest::collection::vec((0usize..2, 0usize..3, 0u16..2, 0u64..4), 1..40),
    ) {
        let machine = FakeMachine::intel_server(2);
        let mut holders = [open(&machine, "0-1", "first"), open(&machine, "0-1", "second")];
        let mut stands = BTreeMap::new();
        for (holder, asker, cpu, latency) in steps {
            let limit = if latency == 0 { IdleLimit::None } else { us(latency * 10) };
            holders[holder].limit(["a", "b", "c"][asker], CpuId(cpu), limit);
            if latency == 0 {
                stands.remove(&(cpu, holder, asker));
            } else {
                stands.insert((cpu, holder, asker), latency * 10);
            }
            let strictest = stands.iter().filter(|((of, ..), _)| *of == cpu).map(|(_, &us)| us).min();
            prop_assert_eq!(limit_of(&machine, cpu), strictest.unwrap_or(0).to_string());
        }
    }
}
