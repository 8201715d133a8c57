//! The same against this machine's own kernel, where this user may: per-CPU pm_qos, and `disable`
//! where the machine has more than one halt state. The tests check that everything is put back.
//!
//! The locks and the journal go to a folder of the test's own whose `sys` leads to the real one.

use linux::{
    IdleActuator, IdleControl, IdleOptions, LimitState, Root, allowed_cpus, idle_table, restore, state_counts,
};
use machine::{CpuId, Duration, IdleLimit};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::sync::{Mutex, MutexGuard};
use tempfile::TempDir;

/// One test at a time touches the machine.
static MACHINE: Mutex<()> = Mutex::new(());

/// A CPU for the trial, or a line with the reason that there is none.
fn machine(what: &str) -> Option<(MutexGuard<'static, ()>, TempDir, CpuId)> {
    let cpu = *allowed_cpus().unwrap().0.last().unwrap();
    let file = format!("/sys/devices/system/cpu/cpu{}/{what}", cpu.0);
    if let Err(cause) = OpenOptions::new().write(true).open(&file) {
        eprintln!("skipped: {file} is not to be written here: {cause}");
        return None;
    }
    let guard = MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    for part in ["sys", "proc", "dev"] {
        symlink(format!("/{part}"), folder.path().join(part)).unwrap();
    }
    Some((guard, folder, cpu))
}

fn qos(cpu: CpuId) -> String {
    let file = format!("/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", cpu.0);
    fs::read_to_string(file).unwrap().trim().to_owned()
}

#[test]
fn this_kernel_takes_every_limit_and_gets_its_own_back() {
    let Some((_guard, folder, cpu)) = machine("power/pm_qos_resume_latency_us") else { return };
    let before = qos(cpu);
    if before != "0" && before.parse().is_ok_and(|micros: u32| micros < 50) {
        eprintln!("skipped: another limit keeps {cpu} below {before} us already");
        return;
    }
    let root = Root::at(folder.path());
    let mut control = IdleControl::open(&root, &cpu_list(cpu), IdleOptions::new("test")).unwrap();
    // A limit that the administrator has set already is never loosened.
    let loosest = if before == "0" { "2147483646" } else { &before };
    for (micros, text) in [(50, "50"), (0, "n/a"), (1, "1"), (3_000_000_000, loosest)] {
        let state = control.apply(cpu, IdleLimit::ExitLatency(Duration::from_micros(micros)));
        assert!(matches!(state, LimitState::InForce { .. }), "{state}");
        assert_eq!(qos(cpu), text);
    }
    control.apply(cpu, IdleLimit::None);
    assert_eq!(qos(cpu), before);
    control.apply(cpu, IdleLimit::ExitLatency(Duration::from_micros(9)));
    drop(control);
    assert_eq!(qos(cpu), before);
}

#[test]
fn a_run_that_never_ends_properly_is_undone_on_this_kernel() {
    let Some((_guard, folder, cpu)) = machine("power/pm_qos_resume_latency_us") else { return };
    let before = qos(cpu);
    // A limit that is as narrow already is left alone, and nothing is to be put back.
    if before != "0" && before.parse().is_ok_and(|micros: u32| micros <= 9) {
        eprintln!("skipped: {cpu} is kept below {before} us already");
        return;
    }
    let root = Root::at(folder.path());
    let mut control = IdleControl::open(&root, &cpu_list(cpu), IdleOptions::new("test")).unwrap();
    control.apply(cpu, IdleLimit::ExitLatency(Duration::from_micros(9)));
    // The remains of a SIGKILL: the journal's bytes, without a holder of its lock.
    let run = folder.path().join("run/roost");
    let entries = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path());
    let journal =
        entries.into_iter().find(|path| path.extension().is_some_and(|end| end == "journal")).unwrap();
    let bytes = fs::read(&journal).unwrap();
    drop(control);
    fs::write(&journal, bytes).unwrap();
    fs::write(format!("/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", cpu.0), "9").unwrap();
    let report = restore(&root).unwrap();
    assert_eq!((report.put_back, report.failed), (1, 0), "{report:?}");
    assert_eq!(qos(cpu), before);
}

#[test]
fn disabling_is_undone_on_this_kernel() {
    let Some((_guard, folder, cpu)) = machine("cpuidle/state1/disable") else { return };
    let root = Root::at(folder.path());
    let off = || state_counts(&root, cpu).unwrap().iter().map(|state| state.disabled).collect::<Vec<_>>();
    let before = off();
    let options = IdleOptions { actuator: IdleActuator::Disable, ..IdleOptions::new("test") };
    let mut control = IdleControl::open(&root, &cpu_list(cpu), options).unwrap();
    let state = control.apply(cpu, IdleLimit::ExitLatency(Duration::ZERO));
    assert!(matches!(state, LimitState::InForce { .. }), "{state}");
    let shallowest = idle_table(&root, cpu).unwrap().0.iter().map(|state| state.exit_latency).min().unwrap();
    for (state, off) in idle_table(&root, cpu).unwrap().0.iter().zip(off()) {
        assert!(off || state.exit_latency <= shallowest, "{}", state.name);
    }
    drop(control);
    assert_eq!(off(), before);
}

fn cpu_list(cpu: CpuId) -> machine::CpuList {
    machine::CpuList([cpu].into())
}
