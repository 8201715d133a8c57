//! On a real kernel with four idle states, which `lab/run` boots in an emulator: the kernel's
//! *behaviour* under a limit, by its own `usage` counts, and that everything is put back.
//!
//! A thread sleeps on the CPU under test for lengths that the kernel would give to every state;
//! states that the limit forbids must not be entered once. Nothing here depends on the emulator's
//! speed.

use crate::crash;
use linux::{
    IdleActuator, IdleControl, IdleOptions, LimitState, Root, idle_table, pin_current_thread, state_counts,
};
use machine::{CpuId, CpuList, CstateIndex, Duration, IdleLimit};
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const CPU: CpuId = CpuId(4);

/// The real machine, with locks and journals in a folder of the test's own.
fn machine() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    for part in ["sys", "proc", "dev"] {
        symlink(format!("/{part}"), folder.path().join(part)).unwrap();
    }
    let root = Root::at(folder.path());
    let depth = idle_table(&root, CPU).map_or(0, |table| table.0.len());
    assert_eq!(depth, 4, "this needs the lab's machine: run `make lab`");
    (folder, root)
}

/// Lets `cpu` sleep many times, and returns how often it entered each state.
fn sleeps(root: &Root, cpu: CpuId) -> Vec<u64> {
    let usage = || -> Vec<u64> {
        let root = root.clone();
        std::thread::spawn(move || {
            // Running there ends the sleep that was begun before, so that it is counted.
            pin_current_thread(cpu).unwrap();
            state_counts(&root, cpu).unwrap().iter().map(|state| state.usage).collect()
        })
        .join()
        .unwrap()
    };
    let before = usage();
    std::thread::spawn(move || {
        pin_current_thread(cpu).unwrap();
        for round in 0..60 {
            std::thread::sleep(std::time::Duration::from_micros(if round % 2 == 0 { 200 } else { 15_000 }));
        }
    })
    .join()
    .unwrap();
    usage().iter().zip(before).map(|(after, before)| after - before).collect()
}

/// Every file that a limit could have changed.
fn knobs() -> Vec<String> {
    let text =
        |file: String| fs::read_to_string(&file).map(|text| format!("{file} {text}")).unwrap_or_default();
    (0..8)
        .flat_map(|cpu| {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
            let qos = text(format!("{folder}/power/pm_qos_resume_latency_us"));
            (0..4).map(move |state| format!("{folder}/cpuidle/state{state}/disable")).map(text).chain([qos])
        })
        .collect()
}

fn micros(micros: u64) -> IdleLimit {
    IdleLimit::ExitLatency(Duration::from_micros(micros))
}

#[test]
#[ignore = "needs a kernel with four idle states: make lab"]
fn only_permitted_states_are_entered() {
    let (_folder, root) = machine();
    let untouched = knobs();
    let deep = sleeps(&root, CPU);
    assert!(deep[3] > 0, "without a limit the deepest state is entered: {deep:?}");
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        let options = IdleOptions { actuator, ..IdleOptions::new("lab") };
        let mut control = IdleControl::open(&root, &CpuList([CPU].into()), options).unwrap();
        assert_eq!(control.drain_notices(), [""; 0], "this machine lacks nothing");
        assert_eq!(control.active_limit(CPU), micros(2));
        for (limit, permitted) in [(micros(50), 3), (micros(2), 2), (micros(0), 1), (IdleLimit::None, 4)] {
            let state = control.apply(CPU, limit);
            assert!(matches!(state, LimitState::InForce { kept_stricter: false, .. }), "{state}");
            let entered = sleeps(&root, CPU);
            println!("{actuator:?}, {state}: entered {entered:?}");
            assert!(entered[..permitted].iter().sum::<u64>() > 0, "{actuator:?}, {state}: {entered:?}");
            assert!(
                entered[permitted..].iter().all(|&count| count == 0),
                "{actuator:?}, {state}: {entered:?}"
            );
        }
        control.apply(CPU, micros(2));
        // The neighbour sleeps as it likes (the published code limited CPU worker + 1).
        assert!(sleeps(&root, CpuId(CPU.0 + 1))[3] > 0);
        drop(control);
        assert_eq!(knobs(), untouched, "{actuator:?}");
    }
    assert!(sleeps(&root, CPU)[3] > 0, "and the deepest state is back");
}

#[test]
#[ignore = "needs a kernel with four idle states: make lab"]
fn in_a_window_a_cpu_polls_and_after_it_sleeps_as_deeply_as_before() {
    let (_folder, root) = machine();
    let untouched = knobs();
    let mut control = IdleControl::open(&root, &CpuList([CPU].into()), IdleOptions::new("lab")).unwrap();
    control.prepare_window(CPU).unwrap();
    assert!(sleeps(&root, CPU)[3] > 0, "a window that was prepared is not open");
    for (rest, deepest) in [(IdleLimit::None, 3), (micros(2), 1)] {
        control.apply(CPU, rest);
        for _ in 0..2 {
            control.set_window(CPU, true).unwrap();
            let entered = sleeps(&root, CPU);
            assert_eq!(entered[1..], [0, 0, 0], "{entered:?}");
            assert!(entered[0] > 0, "{entered:?}");
            control.set_window(CPU, false).unwrap();
            let entered = sleeps(&root, CPU);
            assert!(
                entered[deepest] > 0 && entered[deepest + 1..].iter().all(|&count| count == 0),
                "{entered:?}"
            );
        }
    }
    control.set_window(CPU, true).unwrap();
    assert!(sleeps(&root, CpuId(CPU.0 + 1))[3] > 0, "the neighbour sleeps as it likes");
    drop(control);
    assert_eq!(knobs(), untouched, "dropped in a window");
    assert!(sleeps(&root, CPU)[3] > 0, "and the deepest state is back");
}

#[test]
#[ignore = "needs a kernel with four idle states: make lab"]
fn under_a_floor_only_the_deepest_state_is_entered() {
    let (_folder, root) = machine();
    let untouched = knobs();
    let stock = sleeps(&root, CPU);
    assert!(stock[..3].iter().sum::<u64>() > 0, "without a floor shallower states are entered: {stock:?}");
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        let options = IdleOptions { actuator, ..IdleOptions::new("lab") };
        let mut control = IdleControl::open(&root, &CpuList([CPU].into()), options).unwrap();
        // From under a ceiling, and from nothing.
        control.apply(CPU, micros(2));
        let deepest = control.deepest_allowed(CPU).unwrap();
        assert_eq!(deepest, CstateIndex(3));
        for floor in [deepest, CstateIndex(2), deepest] {
            let state = control.forbid_shallower(CPU, floor);
            assert!(matches!(state, LimitState::Floor { may_poll: false, has_effect: true, .. }), "{state}");
            let entered = sleeps(&root, CPU);
            println!("{actuator:?}, {state}: entered {entered:?}");
            let (forbidden, permitted) = entered.split_at(usize::from(floor.0));
            assert!(forbidden.iter().all(|&count| count == 0), "{actuator:?}, {state}: {entered:?}");
            assert!(permitted.iter().sum::<u64>() > 50, "{actuator:?}, {state}: {entered:?}");
        }
        // The neighbour sleeps as it likes.
        assert!(sleeps(&root, CpuId(CPU.0 + 1))[..3].iter().sum::<u64>() > 0);
        drop(control);
        assert_eq!(knobs(), untouched, "{actuator:?}");
    }
    assert!(sleeps(&root, CPU)[..3].iter().sum::<u64>() > 0, "and the shallower states are back");
}

#[test]
#[ignore = "needs a kernel with four idle states: make lab"]
fn a_stricter_limit_of_the_administrator_holds_on_a_real_kernel() {
    let (_folder, root) = machine();
    let file = format!("/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", CPU.0);
    fs::write(&file, "2").unwrap();
    let mut control = IdleControl::open(&root, &CpuList([CPU].into()), IdleOptions::new("lab")).unwrap();
    assert!(matches!(control.apply(CPU, micros(50)), LimitState::InForce { kept_stricter: true, .. }));
    let entered = sleeps(&root, CPU);
    assert_eq!(entered[2..], [0, 0], "{entered:?}");
    drop(control);
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), "2");
    fs::write(&file, "0").unwrap();
}

#[test]
#[ignore = "needs a kernel with four idle states: make lab"]
fn a_cpu_that_went_offline_and_came_back_takes_limits_again() {
    let (_folder, root) = machine();
    let online = format!("/sys/devices/system/cpu/cpu{}/online", CPU.0);
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        let untouched = knobs();
        let options = IdleOptions { actuator, ..IdleOptions::new("lab") };
        let mut control = IdleControl::open(&root, &CpuList([CPU].into()), options).unwrap();
        control.apply(CPU, micros(50));
        fs::write(&online, "0").unwrap();
        let while_offline = control.apply(CPU, micros(2));
        println!("{actuator:?} while offline: {while_offline}");
        fs::write(&online, "1").unwrap();
        let state = control.apply(CPU, micros(2));
        assert!(matches!(state, LimitState::InForce { .. }), "{state}");
        let entered = sleeps(&root, CPU);
        assert_eq!(entered[2..], [0, 0], "{actuator:?}: {entered:?}");
        drop(control);
        assert_eq!(knobs(), untouched, "{actuator:?}");
    }
}

#[test]
#[ignore = "needs a kernel with four idle states: make lab"]
fn a_kill_between_any_two_steps_is_undone_on_a_real_kernel() {
    let untouched = knobs();
    for actuator in [IdleActuator::PmQos, IdleActuator::Disable] {
        for step in 1.. {
            let (folder, root) = machine();
            let died = crash::dies_at(folder.path(), crash::Plan { actuator, dies_at: Some(step) });
            let report = linux::restore(&root).unwrap();
            assert_eq!(knobs(), untouched, "{actuator:?}, step {step}: {report:?}");
            assert_eq!((report.left_alone, report.failed), (0, 0), "{actuator:?}, step {step}: {report:?}");
            if !died {
                assert!(step > 15, "{step}");
                break;
            }
        }
    }
}
