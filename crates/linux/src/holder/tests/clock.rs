use super::*;
use crate::cpufreq::control::{FrequencyError, FrequencyState};
use machine::Kilohertz;

const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

/// CPUs that share a clock.
pub(super) fn machine(affected: &str) -> FakeMachine {
    let machine = FakeMachine::intel_server(2);
    for (file, text) in [
        ("affected_cpus", affected),
        ("cpuinfo_min_freq", "1000000"),
        ("cpuinfo_max_freq", "2600000"),
        ("scaling_min_freq", "1000000"),
        ("scaling_max_freq", "2600000"),
        ("scaling_setspeed", "<unsupported>"),
        ("scaling_governor", "schedutil"),
        ("scaling_available_frequencies", "2600000 2000000 1400000 1000000"),
    ] {
        machine.write(&format!("{POLICY}/{file}"), &format!("{text}\n"));
    }
    machine
}

pub(super) fn open(machine: &FakeMachine, list: &str, name: &str) -> ClockHolder {
    ClockHolder::open(machine.root(), &cpus(list), name, ClockMeans::default()).unwrap()
}

pub(super) fn at_most(mhz: u64) -> FrequencyLimit {
    FrequencyLimit::AtMost(Kilohertz(mhz * 1_000))
}

pub(super) fn cap(machine: &FakeMachine) -> String {
    machine.read(&format!("{POLICY}/scaling_max_freq"))
}

#[test]
fn the_fastest_of_two_processes_wins_and_the_rest_is_what_it_was() {
    let machine = machine("0 1");
    let mut first = open(&machine, "0-1", "roost govern");
    let mut second = open(&machine, "0-1", "another governor");
    assert!(
        second
            .drain_notices()
            .iter()
            .any(|notice| notice.contains("held by roost govern") && notice.contains("clocks"))
    );
    for cpu in [0, 1] {
        first.limit("shop", CpuId(cpu), at_most(1_000));
    }
    assert_eq!(cap(&machine), "1000000");
    // It has a say and wants nothing yet: all.
    second.limit("cache", CpuId(1), FrequencyLimit::None);
    assert_eq!(cap(&machine), "2600000");
    let state = second.limit("cache", CpuId(1), at_most(2_000));
    assert_eq!(cap(&machine), "2000000");
    assert!(matches!(state, FrequencyState::InForce { limit, .. } if limit == at_most(2_000)), "{state:?}");
    let asked = first.asked();
    let theirs = asked.iter().find(|asked| asked.asker == "another governor").unwrap();
    assert_eq!(
        (theirs.wish, theirs.together),
        (Wish::Clock(at_most(2_000)), Some(Wish::Clock(at_most(2_000))))
    );
    second.withdraw("cache");
    assert_eq!(cap(&machine), "1000000", "the rest's combination, no constant");
    second.limit("cache", CpuId(1), at_most(2_000));
    drop(second);
    soon("withdrawn with its connection", || cap(&machine) == "1000000");
    drop(first);
    assert_eq!(cap(&machine), "2600000");
}

#[test]
fn when_the_holder_ends_who_asked_takes_the_clocks_over() {
    let machine = machine("0 1");
    let first = open(&machine, "0-1", "roost govern");
    let mut second = open(&machine, "0-1", "another governor");
    for cpu in [0, 1] {
        second.limit("cache", CpuId(cpu), at_most(1_400));
    }
    assert_eq!(cap(&machine), "1400000", "by the holder, on its behalf");
    drop(first);
    assert_eq!(cap(&machine), "2600000");
    second.look_after();
    assert_eq!(cap(&machine), "1400000");
    // Somebody else's change is now its own to see.
    machine.write(&format!("{POLICY}/scaling_max_freq"), "2000000\n");
    assert_eq!(second.drift().len(), 1);
    second.reassert();
    assert_eq!(cap(&machine), "1400000");
    drop(second);
    assert_eq!(cap(&machine), "2000000", "theirs stays");
}

#[test]
fn a_clock_that_is_held_by_one_that_takes_no_requests_is_named() {
    let machine = machine("0 1");
    let options = crate::FrequencyOptions::new("roost bench");
    let _bench = crate::FrequencyControl::open(machine.root(), &cpus("1"), options).unwrap();
    let error = ClockHolder::open(machine.root(), &cpus("0-1"), "x", ClockMeans::default()).unwrap_err();
    assert!(
        matches!(&error, FrequencyError::Lock(_)) && error.to_string().contains("roost bench"),
        "{error}"
    );
}

#[test]
fn more_cpus_may_be_held_later() {
    let machine = machine("0 1");
    let mut holder = open(&machine, "0", "roost govern");
    assert!(
        matches!(holder.limit("shop", CpuId(0), at_most(1_400)), FrequencyState::Refused { .. }),
        "cpu1 is not ours"
    );
    assert!(matches!(holder.limit("shop", CpuId(1), at_most(1_400)), FrequencyState::Refused { .. }));
    holder.extend(&cpus("0-1")).unwrap();
    let mut second = open(&machine, "1", "second");
    assert!(second.drain_notices()[0].contains("CPU 1: held by roost govern"));
}
