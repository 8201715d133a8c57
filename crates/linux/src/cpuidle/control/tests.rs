use super::*;
use crate::fake::FakeMachine;
use std::os::unix::fs::PermissionsExt;

const CPU: CpuId = CpuId(3);
const HALT: IdleLimit = IdleLimit::ExitLatency(Duration::from_micros(2));
const POLL: IdleLimit = IdleLimit::ExitLatency(Duration::ZERO);

fn open(machine: &FakeMachine, actuator: IdleActuator, cpus: &str) -> IdleControl {
    let options = IdleOptions { actuator, ..IdleOptions::new("a test") };
    IdleControl::open(machine.root(), &cpus.parse().unwrap(), options).unwrap()
}

fn qos(cpu: u16) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us")
}

fn disabled(machine: &FakeMachine, cpu: u16) -> String {
    (0..4)
        .map(|state| format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable"))
        .filter(|file| machine.path(file).exists())
        .map(|file| machine.read(&file))
        .collect()
}

#[test]
fn it_writes_the_files_of_the_cpu_it_was_told_and_of_no_other() {
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        let machine = FakeMachine::intel_server(8);
        let before = machine.snapshot();
        let mut control = open(&machine, actuator, "3");
        let state = control.apply(CPU, HALT);
        assert_eq!(state, LimitState::InForce { limit: HALT, kept_stricter: false, has_effect: true });
        let changed: Vec<_> = machine
            .snapshot()
            .into_iter()
            .zip(&before)
            .filter(|(now, then)| now != *then)
            .map(|(now, _)| now.0.to_string_lossy().into_owned())
            .collect();
        assert!(!changed.is_empty() && changed.iter().all(|path| path.contains("/cpu3/")), "{changed:?}");
        // Not ours, so not touched: neither cpu4 (the published fault) nor any other.
        let refused = control.apply(CpuId(4), HALT);
        assert!(matches!(refused, LimitState::Refused { .. }));
        drop(control);
        assert_eq!(machine.snapshot(), before);
    }
}

#[test]
fn an_active_core_halts_and_a_polling_one_spins() {
    let machine = FakeMachine::intel_server(8);
    let mut control = open(&machine, IdleActuator::PmQos, "0-7");
    assert_eq!(control.active_limit(CPU), HALT);
    control.apply(CPU, HALT);
    assert_eq!(machine.read(&qos(3)), "2");
    control.apply(CPU, POLL);
    assert_eq!(machine.read(&qos(3)), "n/a");
    control.apply(CPU, IdleLimit::None);
    assert_eq!(machine.read(&qos(3)), "0");
}

#[test]
fn a_stricter_limit_of_the_administrator_stays_and_a_looser_one_comes_back() {
    let machine = FakeMachine::intel_server(8);
    machine.write(&qos(3), "n/a\n");
    machine.write(&qos(4), "100\n");
    let mut control = open(&machine, IdleActuator::PmQos, "3-4");
    let state = control.apply(CPU, HALT);
    assert_eq!(state, LimitState::InForce { limit: POLL, kept_stricter: true, has_effect: true });
    assert!(state.to_string().contains("administrator"), "{state}");
    control.apply(CpuId(4), HALT);
    assert_eq!((machine.read(&qos(3)).as_str(), machine.read(&qos(4)).as_str()), ("n/a", "2"));
    // Withdrawing ours leaves the rest of the combination, not a constant.
    let state = control.apply(CpuId(4), IdleLimit::None);
    assert_eq!(state.limit(), Some(IdleLimit::ExitLatency(Duration::from_micros(100))));
    assert_eq!(machine.read(&qos(4)), "100");
}

#[test]
fn an_administrators_change_during_the_run_is_combined_and_kept() {
    let machine = FakeMachine::intel_server(8);
    let mut control = open(&machine, IdleActuator::PmQos, "3");
    control.apply(CPU, HALT);
    machine.write(&qos(3), "1\n");
    assert!(matches!(control.apply(CPU, HALT), LimitState::InForce { kept_stricter: true, .. }));
    machine.write(&qos(3), "500\n");
    control.apply(CPU, HALT);
    assert_eq!(machine.read(&qos(3)), "2");
    let lines = control.restore();
    assert_eq!(machine.read(&qos(3)), "500");
    assert!(lines[0].contains("from `2` to `500`"), "{lines:?}");
}

#[test]
fn disabling_forbids_by_latency_and_leaves_what_was_forbidden() {
    let machine = FakeMachine::intel_server(8);
    machine.write("sys/devices/system/cpu/cpu3/cpuidle/state2/disable", "1\n");
    machine.write("sys/devices/system/cpu/cpu3/cpuidle/state2/default_status", "disabled\n");
    let before = machine.snapshot();
    let mut control = open(&machine, IdleActuator::Disable, "3");
    control.apply(CPU, HALT);
    assert_eq!(disabled(&machine, 3), "0011");
    control.apply(CPU, POLL);
    assert_eq!(disabled(&machine, 3), "0111");
    assert_eq!(control.apply(CPU, IdleLimit::ExitLatency(Duration::from_micros(133))).limit().map(bound), {
        Some(Duration::from_micros(133))
    });
    assert_eq!(disabled(&machine, 3), "0010", "what was off before us stays off");
    control.apply(CPU, HALT);
    drop(control);
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn disabling_never_takes_the_last_state_away() {
    let machine = FakeMachine::arm_server(4);
    let mut control = open(&machine, IdleActuator::Disable, "3");
    let state = control.apply(CPU, POLL);
    assert_eq!(disabled(&machine, 3), "01");
    assert_eq!(
        state.limit(),
        Some(IdleLimit::ExitLatency(Duration::from_micros(1))),
        "and it does not claim polling"
    );
}

const DEEPEST: CstateIndex = CstateIndex(3);

fn disable(cpu: u16, state: u8) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable")
}

#[test]
fn a_floor_forbids_whatever_is_shallower_and_goes_with_its_owner() {
    let machines = [
        (FakeMachine::intel_server(4), 3, "1110"),
        (FakeMachine::amd_server(4), 2, "110"),
        (FakeMachine::arm_server(4), 1, "10"),
        (FakeMachine::virtual_machine(4), 1, "10"),
        // A halt that advertises the same as polling is deeper all the same.
        (FakeMachine::with_states(4, &[("POLL", 0, 0), ("C1", 0, 0), ("C2", 0, 9)]), 2, "110"),
    ];
    for (machine, deepest, reads) in machines {
        let before = machine.snapshot();
        for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
            let mut control = open(&machine, actuator, "3");
            assert_eq!(control.deepest_allowed(CPU), Some(CstateIndex(deepest)));
            let state = control.forbid_shallower(CPU, CstateIndex(deepest));
            assert!(
                state.has_effect() && matches!(state, LimitState::Floor { may_poll: false, .. }),
                "{state}"
            );
            assert_eq!((disabled(&machine, 3), machine.read(&qos(3)).as_str()), (reads.to_owned(), "0"));
            // The floor's effect is no reason to lower the allowed depth.
            assert_eq!(control.deepest_allowed(CPU), Some(CstateIndex(deepest)));
            drop(control);
            assert_eq!(machine.snapshot(), before, "{actuator:?}");
        }
    }
}

#[test]
fn a_floor_and_a_ceiling_of_ours_never_meet() {
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        let machine = FakeMachine::intel_server(4);
        let before = machine.snapshot();
        let mut control = open(&machine, actuator, "3");
        control.apply(CPU, HALT);
        control.forbid_shallower(CPU, DEEPEST);
        assert_eq!((disabled(&machine, 3).as_str(), machine.read(&qos(3)).as_str()), ("1110", "0"));
        control.forbid_shallower(CPU, CstateIndex(1));
        assert_eq!(disabled(&machine, 3), "1000");
        assert_eq!(control.apply(CPU, HALT).limit(), Some(HALT));
        let ceiling = if actuator == IdleActuator::PmQos { ("0000", "2") } else { ("0011", "0") };
        assert_eq!((disabled(&machine, 3).as_str(), machine.read(&qos(3)).as_str()), ceiling);
        control.forbid_shallower(CPU, DEEPEST);
        control.apply(CPU, IdleLimit::None);
        assert_eq!(machine.snapshot(), before, "{actuator:?}");
    }
}

#[test]
fn the_deepest_is_the_deepest_that_others_allow() {
    let machine = FakeMachine::intel_server(4);
    machine.write(&disable(3, 3), "2\n");
    let before = machine.snapshot();
    let mut control = open(&machine, IdleActuator::PmQos, "2-3");
    assert_eq!(control.deepest_allowed(CPU), Some(CstateIndex(2)));
    control.forbid_shallower(CPU, CstateIndex(2));
    assert_eq!(disabled(&machine, 3), "1102");
    // The administrator's own limits count, though the floor does not write there.
    for (text, deepest) in [("9", Some(CstateIndex(1))), ("1", None), ("n/a", None)] {
        machine.write(&qos(2), &format!("{text}\n"));
        assert_eq!(control.deepest_allowed(CpuId(2)), deepest, "{text}");
    }
    assert!(matches!(control.forbid_shallower(CpuId(2), CstateIndex(1)), LimitState::Refused { .. }));
    assert_eq!(disabled(&machine, 2), "0000");
    machine.write(&qos(2), "0\n");
    drop(control);
    assert_eq!(machine.snapshot(), before);
    // So does a limit of another process on all CPUs.
    std::fs::create_dir(machine.path("dev")).unwrap();
    std::fs::write(machine.path("dev/cpu_dma_latency"), i32::to_ne_bytes(5)).unwrap();
    let mut control = open(&machine, IdleActuator::PmQos, "2-3");
    assert_eq!(control.deepest_allowed(CPU), Some(CstateIndex(1)));
}

#[test]
fn a_floor_never_leaves_a_cpu_without_a_state_that_halts() {
    let machine = FakeMachine::intel_server(4);
    machine.write(&disable(3, 2), "1\n");
    machine.write(&disable(3, 3), "1\n");
    let before = machine.snapshot();
    let mut control = open(&machine, IdleActuator::Disable, "2-3");
    for (cpu, than, why) in [
        (CPU, CstateIndex(2), "no state that halts would be left"),
        (CPU, DEEPEST, "no state that halts would be left"),
        (CpuId(2), CstateIndex(4), "the deepest is 3"),
        (CpuId(1), DEEPEST, "not among the CPUs"),
    ] {
        let state = control.forbid_shallower(cpu, than);
        assert!(matches!(&state, LimitState::Refused { reason } if reason.contains(why)), "{state}");
        assert_eq!(machine.snapshot(), before);
    }
    let state = control.apply(CpuId(1), IdleLimit::Deepest);
    assert!(
        matches!(&state, LimitState::Refused { reason } if reason.contains("not among the CPUs")),
        "{state}"
    );
    // Above polling is no floor at all.
    let state = control.forbid_shallower(CpuId(2), CstateIndex(0));
    assert!(!state.has_effect() && state.to_string().contains("no shallower state"), "{state}");
    // Freed before others are forbidden: with each write a state that halts is left.
    let left = machine.path("");
    let mut control = {
        drop(control);
        let checkpoint: Checkpoint = Box::new(move |_| {
            let halts =
                |state: u8| std::fs::read_to_string(left.join(disable(2, state))).unwrap().trim() == "0";
            assert!((1..4).any(halts));
        });
        let options = IdleOptions {
            actuator: IdleActuator::Disable,
            checkpoint: Some(checkpoint),
            ..IdleOptions::new("a test")
        };
        IdleControl::open(machine.root(), &"2".parse().unwrap(), options).unwrap()
    };
    for than in [3, 1, 2, 3] {
        control.apply(CpuId(2), HALT);
        assert!(control.forbid_shallower(CpuId(2), CstateIndex(than)).has_effect());
    }
}

/// Makes one state's `disable` a file of the real kernel that reads `0` and cannot be written, not
/// even by root.
fn is_stubborn(machine: &FakeMachine, state: u8) -> bool {
    const FILE: &str = "/sys/class/net/lo/addr_assign_type";
    machine.remove(&disable(3, state));
    std::os::unix::fs::symlink(FILE, machine.path(&disable(3, state))).unwrap();
    let is_there = std::fs::read_to_string(FILE).is_ok_and(|text| text == "0\n");
    if !is_there {
        eprintln!("skipped: this kernel has no {FILE} that reads 0");
    }
    is_there
}

#[test]
fn a_kernel_that_keeps_polling_for_itself_gets_the_rest_of_the_floor() {
    let machine = FakeMachine::intel_server(4);
    if !is_stubborn(&machine, 0) {
        return;
    }
    let before = machine.snapshot();
    let mut control = open(&machine, IdleActuator::PmQos, "3");
    let state = control.forbid_shallower(CPU, DEEPEST);
    assert!(matches!(state, LimitState::Floor { may_poll: true, has_effect: true, .. }), "{state}");
    assert!(state.to_string().starts_with("C6 and deeper (and polling"), "{state}");
    assert_eq!(disabled(&machine, 3), "0110");
    drop(control);
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn half_a_floor_is_taken_back() {
    let machine = FakeMachine::intel_server(4);
    if !is_stubborn(&machine, 2) {
        return;
    }
    let before = machine.snapshot();
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        let mut control = open(&machine, actuator, "3");
        let state = control.forbid_shallower(CPU, DEEPEST);
        assert!(matches!(&state, LimitState::Refused { reason } if reason.contains("disable")), "{state}");
        assert_eq!(machine.snapshot(), before);
    }
}

#[test]
fn without_idle_states_there_is_no_floor() {
    let machine = FakeMachine::intel_server(4);
    machine.remove("sys/devices/system/cpu/cpu3/cpuidle");
    let mut control = open(&machine, IdleActuator::PmQos, "0-3");
    assert_eq!(control.deepest_allowed(CPU), None);
    let state = control.forbid_shallower(CPU, DEEPEST);
    assert!(matches!(&state, LimitState::Refused { reason } if reason.contains("does not offer")), "{state}");
}

#[test]
fn choosing_by_latency_is_right_for_every_shape_of_machine() {
    let cases = [
        (FakeMachine::intel_server(4), "2", "0011"),
        (FakeMachine::amd_server(4), "1", "001"),
        (FakeMachine::arm_server(4), "1", "01"),
        (FakeMachine::virtual_machine(4), "1", "00"),
    ];
    for (machine, latency, disable) in cases {
        let mut control = open(&machine, IdleActuator::PmQos, "0-3");
        control.apply(CPU, control.active_limit(CPU));
        assert_eq!(machine.read(&qos(3)), latency);
        drop(control);
        let mut control = open(&machine, IdleActuator::Disable, "0-3");
        control.apply(CPU, control.active_limit(CPU));
        assert_eq!(disabled(&machine, 3), disable);
    }
}

#[test]
fn a_virtual_machine_is_told_that_a_limit_changes_nothing() {
    let machine = FakeMachine::virtual_machine(2);
    let mut control = open(&machine, IdleActuator::PmQos, "0-1");
    let notices = control.drain_notices();
    assert_eq!(notices.len(), 1, "once for all CPUs: {notices:?}");
    assert!(notices[0].contains("0-1") && notices[0].contains("no effect"), "{notices:?}");
    let state = control.apply(CpuId(1), control.active_limit(CpuId(1)));
    assert!(matches!(state, LimitState::InForce { has_effect: false, .. }));
    assert!(matches!(control.apply(CpuId(1), POLL), LimitState::InForce { has_effect: true, .. }));
    assert!(control.drain_notices().is_empty());
}

#[test]
fn a_machine_without_cpuidle_runs_on_and_says_so_once() {
    let machine = FakeMachine::intel_server(4);
    for cpu in 0..4 {
        machine.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle"));
        machine.remove(&format!("sys/devices/system/cpu/cpu{cpu}/power"));
    }
    machine.remove("sys/devices/system/cpu/cpuidle");
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        let mut control = open(&machine, actuator, "0-3");
        assert!(control.drain_notices()[0].contains("no usable cpuidle table"));
        assert_eq!(control.active_limit(CPU), IdleLimit::None);
        for cpu in 0..4 {
            let state = control.apply(CpuId(cpu), HALT);
            assert!(
                matches!(&state, LimitState::Refused { reason } if reason.contains("does not offer")),
                "{state}"
            );
        }
        assert_eq!(control.drain_notices().len(), 1);
    }
}

#[test]
fn without_a_place_for_the_journal_nothing_is_changed() {
    let machine = FakeMachine::intel_server(4);
    machine.write("run", "a file where a folder should be");
    let before = machine.snapshot();
    let mut control = open(&machine, IdleActuator::PmQos, "0-3");
    assert!(matches!(control.apply(CPU, HALT), LimitState::Refused { .. }));
    assert_eq!(machine.snapshot(), before);
    let notices = control.drain_notices();
    assert!(notices.len() == 1 && notices[0].contains("idle limits are off"), "{notices:?}");
}

#[test]
fn a_refused_permission_is_a_state_with_its_reason() {
    let machine = FakeMachine::intel_server(4);
    let file = machine.path(&qos(3));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    if std::fs::OpenOptions::new().write(true).open(&file).is_ok() {
        eprintln!("skipped: this user (root) may write a file of mode 0444");
        return;
    }
    let mut control = open(&machine, IdleActuator::PmQos, "0-3");
    let state = control.apply(CPU, HALT);
    assert!(matches!(&state, LimitState::Refused { reason } if reason.contains("run as root")), "{state}");
    assert_eq!(control.drain_notices().len(), 1);
    control.apply(CPU, HALT);
    assert!(control.drain_notices().is_empty(), "said once");
}

#[test]
fn nonsense_in_the_kernels_file_is_not_overwritten() {
    let machine = FakeMachine::intel_server(4);
    machine.write(&qos(3), "whatever\n");
    let mut control = open(&machine, IdleActuator::PmQos, "3");
    assert!(matches!(control.apply(CPU, HALT), LimitState::Refused { .. }));
    assert_eq!(machine.read(&qos(3)), "whatever");
}

#[test]
fn a_second_process_is_turned_away_by_name_and_may_have_the_rest() {
    let machine = FakeMachine::intel_server(8);
    let _first = open(&machine, IdleActuator::PmQos, "0-3");
    let error =
        IdleControl::open(machine.root(), &"3-4".parse().unwrap(), IdleOptions::new("another")).unwrap_err();
    assert!(error.to_string().contains("a test (process"), "{error}");
    open(&machine, IdleActuator::PmQos, "4-7");
}

#[test]
fn a_limit_by_another_process_on_all_cpus_is_reported() {
    let machine = FakeMachine::intel_server(2);
    std::fs::create_dir(machine.path("dev")).unwrap();
    std::fs::write(machine.path("dev/cpu_dma_latency"), i32::to_ne_bytes(50)).unwrap();
    let notices = open(&machine, IdleActuator::PmQos, "0-1").drain_notices();
    assert!(notices[0].contains("cpu_dma_latency at 50"), "{notices:?}");
}

#[test]
fn it_may_move_to_the_thread_that_decides() {
    fn is_send<T: Send>(_: &T) {}
    let machine = FakeMachine::virtual_machine(1);
    is_send(&open(&machine, IdleActuator::PmQos, "0"));
}
