use super::*;
use crate::cpufreq::control::{FrequencyError, FrequencyState};
use machine::Kilohertz;

const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

/// CPUs that share a clock.
fn machine(affected: &str) -> FakeMachine {
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

fn open(machine: &FakeMachine, list: &str) -> ClockLimits {
    let clocks = Arbiter::new(machine.root(), "roost govern").clocks;
    clocks.hold("services", &cpus(list)).unwrap();
    clocks
}

fn at_most(mhz: u64) -> FrequencyLimit {
    FrequencyLimit::AtMost(Kilohertz(mhz * 1_000))
}

fn cap(machine: &FakeMachine) -> String {
    machine.read(&format!("{POLICY}/scaling_max_freq"))
}

#[test]
fn the_fastest_of_two_wins_and_the_rest_is_what_it_was() {
    let machine = machine("0 1");
    let clocks = open(&machine, "0-1");
    for cpu in [0, 1] {
        clocks.limit("shop", CpuId(cpu), at_most(1_000));
    }
    assert_eq!(cap(&machine), "1000000");
    // It has a say and wants no limit yet, so the full clock.
    clocks.limit("cache", CpuId(1), FrequencyLimit::None);
    assert_eq!(cap(&machine), "2600000");
    let state = clocks.limit("cache", CpuId(1), at_most(2_000));
    assert_eq!(cap(&machine), "2000000");
    assert!(matches!(state, FrequencyState::InForce { limit, .. } if limit == at_most(2_000)), "{state:?}");
    let asked = clocks.asked();
    let theirs = asked.iter().find(|asked| asked.asker == "cache").unwrap();
    assert_eq!(
        (theirs.wish, theirs.together),
        (Wish::Clock(at_most(2_000)), Some(Wish::Clock(at_most(2_000))))
    );
    clocks.withdraw("cache");
    assert_eq!(cap(&machine), "1000000", "the rest's combination, no constant");
    clocks.limit("cache", CpuId(1), at_most(2_000));
    drop(clocks);
    assert_eq!(cap(&machine), "2600000");
}

#[test]
fn what_cannot_be_had_stands_in_no_others_way() {
    let machine = machine("0 1");
    let clocks = open(&machine, "0-1");
    for cpu in [0, 1] {
        clocks.limit("shop", CpuId(cpu), at_most(1_400));
    }
    let refused = clocks.limit("cache", CpuId(0), at_most(9_000));
    assert!(
        matches!(&refused, FrequencyState::Refused { reason } if reason.contains("beyond")),
        "{refused:?}"
    );
    assert_eq!(cap(&machine), "1400000");
    // The requests of the others still take effect.
    for cpu in [0, 1] {
        clocks.limit("shop", CpuId(cpu), at_most(1_000));
    }
    assert_eq!(cap(&machine), "1000000");
}

#[test]
fn a_clock_that_another_holds_alone_is_named() {
    let machine = machine("0 1");
    let options = crate::FrequencyOptions::new("roost bench");
    let _bench = crate::FrequencyControl::open(machine.root(), &cpus("1"), options).unwrap();
    let error = Arbiter::new(machine.root(), "x").clocks.hold("shop", &cpus("0-1")).unwrap_err();
    assert!(
        matches!(&error, FrequencyError::Lock(_)) && error.to_string().contains("roost bench"),
        "{error}"
    );
}

#[test]
fn more_cpus_of_a_clock_are_held_together_and_what_was_asked_stands() {
    let machine = machine("0 1");
    let clocks = open(&machine, "0");
    assert!(
        matches!(clocks.limit("shop", CpuId(0), at_most(1_400)), FrequencyState::Refused { .. }),
        "cpu1 is not ours"
    );
    clocks.hold("hurry-up", &cpus("0-1")).unwrap();
    for cpu in [0, 1] {
        clocks.limit("shop", CpuId(cpu), at_most(1_400));
    }
    assert_eq!(cap(&machine), "1400000");
    let other = ClockMeans { actuator: Some(crate::FrequencyActuator::PowerCap), allow_msr: false };
    clocks.use_means(other).unwrap_err();
    assert_eq!(cap(&machine), "1400000", "as before, where other means are not to be had");
}
