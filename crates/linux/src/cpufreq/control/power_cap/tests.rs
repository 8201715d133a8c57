use super::*;
use crate::fake::FakeMachine;
use crate::{FrequencyControl, FrequencyError, FrequencyOptions};
use FrequencyLimit::{AtMost, None as Free};
use machine::FrequencyLimit;
use proptest::prelude::*;

/// Two sockets of two CPUs, 100 W each, at 2 GHz.
fn machine() -> FakeMachine {
    let machine = FakeMachine::intel_server(4);
    machine.write("proc/cpuinfo", "vendor_id : GenuineIntel\nmodel name : Xeon @ 2.00GHz\n");
    for cpu in 0..4 {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        machine.write(&file, &format!("{}\n", cpu / 2));
    }
    for socket in 0..2 {
        for (file, text) in [
            ("name", format!("package-{socket}")),
            (LIMIT, "100000000".to_owned()),
            (DESIGN, "100000000".to_owned()),
            (ENABLED, "1".to_owned()),
        ] {
            machine.write(&format!("{FOLDER}/intel-rapl:{socket}/{file}"), &format!("{text}\n"));
        }
    }
    machine
}

fn options() -> FrequencyOptions {
    FrequencyOptions { actuator: Some(FrequencyActuator::PowerCap), ..FrequencyOptions::new("a test") }
}

fn open(machine: &FakeMachine, cpus: &str) -> FrequencyControl {
    FrequencyControl::open(machine.root(), &cpus.parse().unwrap(), options()).unwrap()
}

fn reads(machine: &FakeMachine, socket: u8, file: &str) -> String {
    machine.read(&format!("{FOLDER}/intel-rapl:{socket}/{file}"))
}

/// The frequency of half of full power.
fn half() -> FrequencyLimit {
    AtMost(clock_of(Kilohertz(2_000_000), STEPS / 2))
}

#[test]
fn a_socket_gets_the_most_of_what_its_cpus_ask_for() {
    let machine = machine();
    let before = machine.snapshot();
    let mut control = open(&machine, "0-3");
    control.limit(CpuId(0), half());
    assert_eq!(reads(&machine, 0, LIMIT), "100000000", "its neighbour is asked nothing and wants all");
    let state = control.limit(CpuId(1), AtMost(Kilohertz(1_000_000)));
    // Half way between 30 and 100 W.
    assert_eq!(state.to_string(), "power cap 65.0 W, for at most 1587.401MHz");
    assert_eq!(
        (reads(&machine, 0, LIMIT), reads(&machine, 1, LIMIT)),
        ("65000000".into(), "100000000".into())
    );
    // An eighth of full power: the cube of half the frequency.
    control.limit(CpuId(0), AtMost(Kilohertz(1_000_000)));
    assert_eq!(reads(&machine, 0, LIMIT), "38750000");
    assert_eq!(control.limit(CpuId(0), Free), FrequencyState::Free);
    assert_eq!(machine.snapshot(), before);
    control.limit(CpuId(2), half());
    control.limit(CpuId(3), half());
    drop(control);
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn a_limit_that_was_off_is_on_while_ours_is_there() {
    let machine = machine();
    machine.write(&format!("{FOLDER}/intel-rapl:0/{ENABLED}"), "0\n");
    let before = machine.snapshot();
    let mut control = open(&machine, "0-1");
    (0..2).for_each(|cpu| drop(control.limit(CpuId(cpu), half())));
    assert_eq!(reads(&machine, 0, ENABLED), "1");
    (0..2).for_each(|cpu| drop(control.limit(CpuId(cpu), Free)));
    assert_eq!(machine.snapshot(), before);
    // A driver without a switch.
    machine.remove(&format!("{FOLDER}/intel-rapl:0/{ENABLED}"));
    control.limit(CpuId(0), half());
    assert!(matches!(control.limit(CpuId(1), half()), FrequencyState::InForce { .. }));
}

#[test]
fn a_lower_limit_of_the_administrators_stays() {
    let machine = machine();
    machine.write(&format!("{FOLDER}/intel-rapl:0/{LEAST}"), "40000000\n");
    machine.write(&format!("{FOLDER}/intel-rapl:0/{LIMIT}"), "35000000\n");
    let mut control = open(&machine, "0-1");
    (0..2).for_each(|cpu| drop(control.limit(CpuId(cpu), half())));
    assert_eq!(reads(&machine, 0, LIMIT), "35000000");
    let (_, state) = control.states().next().unwrap();
    assert!(matches!(state, FrequencyState::InForce { kept_stricter: true, .. }), "{state}");
}

#[test]
fn somebody_elses_limit_is_drift_and_theirs_in_the_end() {
    let machine = machine();
    let mut control = open(&machine, "0-1");
    (0..2).for_each(|cpu| drop(control.limit(CpuId(cpu), half())));
    assert_eq!(control.drift(), []);
    machine.write(&format!("{FOLDER}/intel-rapl:0/{LIMIT}"), "80000000\n");
    let drift = control.drift();
    assert_eq!(
        drift[0].to_string(),
        "constraint_0_power_limit_uw of CPU 0-1 reads 80000000 where we had set 65000000"
    );
    control.reassert();
    // 80 W is all there is now: half way from 30 % of it.
    assert_eq!(reads(&machine, 0, LIMIT), "52000000");
    control.release();
    assert_eq!(reads(&machine, 0, LIMIT), "80000000");
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let machine = machine();
    let state = open(&machine, "0").limit(CpuId(0), half());
    assert!(state.to_string().contains("CPU 1 is not ours"), "{state}");
    let refused = |machine: &FakeMachine| {
        let error = FrequencyControl::open(machine.root(), &"0-1".parse().unwrap(), options()).unwrap_err();
        assert!(matches!(error, FrequencyError::Lacking { by: FrequencyActuator::PowerCap, .. }));
        error.to_string()
    };
    machine.remove(&format!("{FOLDER}/intel-rapl:0/{LIMIT}"));
    let error = refused(&machine);
    assert!(error.contains("meters package-0 and has no limit") && error.contains("hint:"), "{error}");
    machine.remove(FOLDER);
    let error = refused(&machine);
    assert!(error.contains("no RAPL zone") && error.contains("modprobe"), "{error}");
    let locked = FileError::Unwritable {
        path: LIMIT.into(),
        value: "1".into(),
        cause: rustix::io::Errno::ACCESS.into(),
    };
    assert!(PowerCap::explain(&locked).is_some_and(|told| told.contains("firmware has locked it")));
}

#[test]
fn dies_have_a_cap_each() {
    let machine = machine();
    for cpu in 0..4 {
        machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0\n");
        machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/die_id"), &format!("{}\n", cpu % 2));
    }
    let online = "0-3".parse().unwrap();
    let of = |name: &str| cpus_of(machine.root(), &online, name).map(|cpus| cpus.to_string());
    assert_eq!(
        (of("package-0-die-1"), of("package-0"), of("psys")),
        (Some("1,3".into()), Some("0-3".into()), None)
    );
}

proptest! {
    #[test]
    fn a_cap_is_between_the_floor_and_the_limit_and_rises_with_its_share(
        original in 5_000_000_u64..500_000_000,
        design in prop::option::of(5_000_000_u64..500_000_000),
        least in prop::option::of(1_000_000_u64..100_000_000),
        shares in prop::collection::vec(0.0..1.0_f64, 2),
    ) {
        let cap = PowerCap { folder: String::new(), design, least };
        let caps: Vec<Option<u64>> = shares.iter().map(|&share| cap.cap(original, share)).collect();
        for cap in caps.iter().flatten() {
            prop_assert!(*cap < original && cap % UNIT_UW == 0);
            prop_assert!(least.is_none_or(|least| *cap >= least));
        }
        if shares[0] < shares[1] {
            // None stands for the limit that was there.
            prop_assert!(caps[0].unwrap_or(original) <= caps[1].unwrap_or(original));
        }
    }
}
