use super::*;
use crate::fake::FakeMachine;

#[test]
fn a_server_reads_as_the_kernel_lists_it() {
    let machine = FakeMachine::intel_server(8);
    let table = idle_table(machine.root(), CpuId(7)).unwrap();
    let names: Vec<&str> = table.0.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["POLL", "C1", "C1E", "C6"]);
    assert_eq!(table.0[3].exit_latency, Duration::from_micros(133));
    assert_eq!(table.0[3].target_residency, Duration::from_micros(600));
    assert_eq!(table.0[0].kind, CstateKind::Polling);
    assert!(table.0[1..].iter().all(|state| state.kind == CstateKind::Halting));
    assert_eq!(
        idle_driver(machine.root()),
        IdleDriver { driver: Some("intel_idle".into()), governor: Some("menu".into()) }
    );
}

#[test]
fn a_machine_without_cpuidle_is_a_state_not_a_crash() {
    let machine = FakeMachine::intel_server(2);
    machine.remove("sys/devices/system/cpu/cpu1/cpuidle");
    machine.remove("sys/devices/system/cpu/cpuidle");
    assert!(matches!(idle_table(machine.root(), CpuId(1)), Err(FileError::Missing { .. })));
    assert!(matches!(state_counts(machine.root(), CpuId(1)), Err(FileError::Missing { .. })));
    assert!(Residency::start(machine.root(), CpuId(1)).is_err());
    assert_eq!(idle_driver(machine.root()), IdleDriver { driver: None, governor: None });
}

#[test]
fn an_empty_or_nonsensical_table_is_an_error_that_shows_it() {
    let machine = FakeMachine::intel_server(1);
    machine.write("sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "soon\n");
    let text = idle_table(machine.root(), CpuId(0)).unwrap_err().to_string();
    assert!(text.contains("state2/latency") && text.contains("soon"), "{text}");
}

#[test]
fn a_halt_that_advertises_zero_is_not_taken_for_polling() {
    let machine = FakeMachine::with_states(1, &[("POLL", 0, 0), ("C1", 0, 0)]);
    let table = idle_table(machine.root(), CpuId(0)).unwrap();
    assert_eq!(table.0[1].kind, CstateKind::Halting);
    // A limit of zero would make it poll.
    assert_eq!(table.shallowest_halt(), Some(Duration::from_micros(1)));
    let lone = FakeMachine::with_states(1, &[("HLT", 0, 0)]);
    assert_eq!(idle_table(lone.root(), CpuId(0)).unwrap().0[0].kind, CstateKind::Halting);
    let unnamed = FakeMachine::with_states(1, &[("SPIN", 0, 0), ("C2", 9, 9)]);
    assert_eq!(idle_table(unnamed.root(), CpuId(0)).unwrap().0[0].kind, CstateKind::Polling);
    let lpi = FakeMachine::with_states(1, &[("LPI-0", 0, 0), ("LPI-1", 100, 500)]);
    assert_eq!(idle_table(lpi.root(), CpuId(0)).unwrap().0[0].kind, CstateKind::Halting);
}

#[test]
fn an_arm_machine_without_a_polling_state_has_none() {
    let machine = FakeMachine::arm_server(4);
    let table = idle_table(machine.root(), CpuId(3)).unwrap();
    assert!(table.0.iter().all(|state| state.kind == CstateKind::Halting));
    assert_eq!(table.shallowest_halt(), Some(Duration::from_micros(1)));
}

#[test]
fn a_state_that_is_forbidden_by_default_is_told_from_one_that_somebody_forbade() {
    let machine = FakeMachine::intel_server(1);
    let state = |index: u8| format!("sys/devices/system/cpu/cpu0/cpuidle/state{index}");
    machine.write(&format!("{}/default_status", state(2)), "disabled\n");
    machine.write(&format!("{}/disable", state(2)), "1\n");
    machine.write(&format!("{}/disable", state(3)), "maybe\n");
    machine.write(&format!("{}/desc", state(1)), "MWAIT 0x00\n");
    let mut gaps = Gaps::default();
    let settings = state_settings(machine.root(), CpuId(0), &mut gaps);
    assert_eq!((settings[1].disabled, settings[1].disabled_by_default), (Some(false), Some(false)));
    assert_eq!((settings[2].disabled, settings[2].disabled_by_default), (Some(true), Some(true)));
    assert_eq!(settings[1].description.as_deref(), Some("MWAIT 0x00"));
    assert_eq!((settings[3].disabled, gaps.0.len()), (None, 1), "nonsense is no answer, and is noted");
    assert!(state_settings(machine.root(), CpuId(9), &mut gaps).is_empty());
}

#[test]
fn residency_survives_a_reset_of_the_kernels_counts() {
    let machine = FakeMachine::intel_server(1);
    let time = "sys/devices/system/cpu/cpu0/cpuidle/state3/time";
    machine.write(time, "5000\n");
    let mut residency = Residency::start(machine.root(), CpuId(0)).unwrap();
    machine.write(time, "7000\n");
    assert_eq!(residency.read(machine.root()).unwrap()[3], Duration::from_micros(2000));
    machine.write(time, "300\n");
    assert_eq!(residency.read(machine.root()).unwrap()[3], Duration::from_micros(2300));
    // Registered again: other files under the same names.
    machine.remove(time);
    machine.write(time, "400\n");
    assert_eq!(
        residency.read(machine.root()).unwrap()[3],
        Duration::from_micros(2300),
        "the old file still reads"
    );
    machine.write(&time.replace("state3", "state1"), "later\n");
    assert!(residency.read(machine.root()).is_err());
    machine.write(&time.replace("state3", "state1"), "50\n");
    let times = residency.read(machine.root()).unwrap();
    assert_eq!((times[1], times[3]), (Duration::from_micros(50), Duration::from_micros(2400)));
}
