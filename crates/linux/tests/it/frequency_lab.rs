//! Frequencies on a real kernel with six of them for each of eight CPUs, which `lab/run frequency`
//! boots in an emulator.
//!
//! A frequency is a byte in an I/O port there, one port for each CPU. So a port shows Linux's
//! command, even if its own files differ: `scaling_cur_freq` is cached on this machine. Nothing
//! here depends on the emulator's speed.

use crate::frequency;
use crate::lab_ports::commanded;
use linux::{FrequencyActuator, FrequencyControl, FrequencyOptions, FrequencyState, Root, restore};
use machine::{CpuId, CpuList, FrequencyLimit, Kilohertz};
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// The real machine, with locks and journals in a folder of the test's own.
fn machine() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    for part in ["sys", "proc", "dev"] {
        symlink(format!("/{part}"), folder.path().join(part)).unwrap();
    }
    let root = Root::at(folder.path());
    assert_eq!(
        linux::speeds(&root, &all()).len(),
        8,
        "this needs the lab's machine: run `lab/run frequency`"
    );
    (folder, root)
}

fn all() -> CpuList {
    "0-7".parse().unwrap()
}

fn policy(cpu: u16, file: &str) -> String {
    format!("/sys/devices/system/cpu/cpufreq/policy{cpu}/{file}")
}

fn write(cpu: u16, file: &str, text: &str) {
    fs::write(policy(cpu, file), text)
        .unwrap_or_else(|error| panic!("{} {text}: {error}", policy(cpu, file)));
}

fn read(cpu: u16, file: &str) -> String {
    fs::read_to_string(policy(cpu, file)).unwrap().trim().to_owned()
}

fn files() -> Vec<String> {
    let files = ["scaling_min_freq", "scaling_max_freq", "scaling_setspeed", "scaling_governor"];
    (0..8).flat_map(|cpu| files.map(|file| format!("cpu{cpu} {file} {}", read(cpu, file)))).collect()
}

/// Every CPU under this governor, at full speed. The kernel gives no command that it believes to be
/// in force, as it does of full speed after boot: so there and back.
fn begin(governor: &str) {
    for cpu in 0..8 {
        write(cpu, "scaling_governor", "userspace");
        write(cpu, "scaling_setspeed", "1000000");
        write(cpu, "scaling_setspeed", "2600000");
        write(cpu, "scaling_governor", governor);
    }
    until([26; 8]);
}

/// The kernel takes bounds up a moment later, and a busy host lets it wait.
fn until(wanted: [u8; 8]) {
    for _ in 0..2_000 {
        if commanded() == wanted {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(commanded(), wanted, "{:?}", files());
}

/// As [`until`]: a file of bounds shows the bound that the kernel has taken up.
fn until_files(wanted: &[String], when: &str) {
    for _ in 0..2_000 {
        if files() == wanted {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(files(), wanted, "{when}");
}

fn ghz(tenths: u64) -> Kilohertz {
    Kilohertz(tenths * 100_000)
}

fn open(root: &Root, may_replace_governor: bool) -> FrequencyControl {
    let options = FrequencyOptions { may_replace_governor, ..FrequencyOptions::new("lab") };
    let mut control = FrequencyControl::open(root, &all(), options).unwrap();
    assert_eq!(control.drain_notices(), [""; 0], "this machine lacks nothing");
    control
}

/// Under a busy host 50 ms may be too little for the kernel of an emulator: then it is asked again.
fn in_force(
    control: &mut FrequencyControl,
    cpu: u16,
    limit: FrequencyLimit,
) -> (Kilohertz, FrequencyActuator) {
    for attempt in 0..20 {
        match control.limit(CpuId(cpu), limit) {
            FrequencyState::InForce { reads, by, .. } => return (reads, by),
            other => println!("attempt {attempt}: cpu{cpu} {limit:?}: {other}"),
        }
    }
    panic!("cpu{cpu}: {limit:?} is refused");
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run frequency"]
fn a_speed_reaches_one_cpu_and_no_other() {
    let (_folder, root) = machine();
    begin("userspace");
    let before = files();
    let mut control = open(&root, false);
    let is = in_force(&mut control, 2, FrequencyLimit::AtMost(ghz(14)));
    assert_eq!(is, (ghz(14), FrequencyActuator::SetSpeed));
    assert_eq!(commanded(), [26, 26, 14, 26, 26, 26, 26, 26], "the write is in force when it returns");
    // A cap between two steps is the lower, a speed the upper.
    in_force(&mut control, 2, FrequencyLimit::AtMost(ghz(15)));
    in_force(&mut control, 5, FrequencyLimit::Exactly(ghz(15)));
    assert_eq!(commanded(), [26, 26, 14, 26, 26, 17, 26, 26]);
    let state = control.limit(CpuId(3), FrequencyLimit::AtMost(ghz(30)));
    assert!(state.to_string().contains("write 1000MHz to 2600MHz"), "{state}");
    assert_eq!(control.limit(CpuId(2), FrequencyLimit::None), FrequencyState::Free);
    assert_eq!(commanded(), [26, 26, 26, 26, 26, 17, 26, 26]);
    drop(control);
    assert_eq!((commanded(), files()), ([26; 8], before));
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run frequency"]
fn bounds_take_effect_under_a_governor_of_the_kernel_s() {
    let (_folder, root) = machine();
    begin("performance");
    let before = files();
    let mut control = open(&root, false);
    let is = in_force(&mut control, 4, FrequencyLimit::AtMost(ghz(17)));
    assert_eq!(is, (ghz(17), FrequencyActuator::Bounds));
    until([26, 26, 26, 26, 17, 26, 26, 26]);
    in_force(&mut control, 4, FrequencyLimit::Exactly(ghz(10)));
    in_force(&mut control, 6, FrequencyLimit::Exactly(ghz(20)));
    until([26, 26, 26, 26, 10, 26, 20, 26]);
    assert_eq!(
        (read(4, "scaling_min_freq"), read(4, "scaling_max_freq")),
        ("1000000".into(), "1000000".into())
    );
    in_force(&mut control, 4, FrequencyLimit::Exactly(ghz(23)));
    until([26, 26, 26, 26, 23, 26, 20, 26]);
    // Another program's: seen, and theirs in the end.
    assert_eq!(control.drift(), []);
    write(6, "scaling_min_freq", "1400000");
    for _ in 0..2_000 {
        if !control.drift().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let drift = control.drift();
    println!("{}", drift.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    assert_eq!(drift.first().map(|drift| drift.cpus.to_string()).as_deref(), Some("6"));
    let lines = control.release();
    println!("{}", lines.join("\n"));
    until([26; 8]);
    assert_eq!(read(6, "scaling_min_freq"), "1400000");
    write(6, "scaling_min_freq", "1000000");
    drop(control);
    until_files(&before, "after another program's change was undone by hand");
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run frequency"]
fn a_governor_is_replaced_at_the_beginning_and_comes_back() {
    let (_folder, root) = machine();
    begin("performance");
    let before = files();
    let mut control = open(&root, true);
    assert_eq!(read(3, "scaling_governor"), "userspace");
    assert_eq!(commanded(), [26; 8], "free is fast, for nothing else raises it");
    in_force(&mut control, 3, FrequencyLimit::AtMost(ghz(10)));
    assert_eq!(commanded(), [26, 26, 26, 10, 26, 26, 26, 26]);
    drop(control);
    until([26; 8]);
    until_files(&before, "released");
}

#[test]
#[ignore = "needs eight CPUs with a clock each: lab/run frequency"]
fn a_kill_between_any_two_steps_is_undone_on_a_real_kernel() {
    for (governor, may_replace) in [("userspace", false), ("performance", false), ("performance", true)] {
        begin(governor);
        let before = files();
        for step in 1.. {
            let (folder, root) = machine();
            let died = frequency::dies_at(folder.path(), may_replace, step);
            let report = restore(&root).unwrap();
            until([26; 8]);
            until_files(&before, &format!("{governor} {may_replace}, step {step}: {report:?}"));
            assert_eq!((report.left_alone, report.failed), (0, 0), "{governor}, step {step}: {report:?}");
            if !died {
                assert!(step > 10, "{step}");
                break;
            }
        }
    }
}
