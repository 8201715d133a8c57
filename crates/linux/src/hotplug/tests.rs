//! On a machine that is a folder, whose kernel acts at each write as the real one does: so its
//! destruction is seen. `tests/it/hotplug_lab.rs` shows the restoration after a SIGKILL, on real
//! kernels.

use super::*;
use crate::EndsWithParent as _;
use crate::fake::FakeMachine;
use crate::journal::Step;
use crate::knob::{cpu_of_switch, cpus_of, mask_of};
use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

const CPUSETS: &str = "sys/fs/cgroup/cpuset";

/// Eight CPUs, of which 0 cannot go; threads 0-4, 1-5, 2-6, 3-7 share a core where `smt`.
fn machine(smt: bool) -> FakeMachine {
    let machine = FakeMachine::intel_server(8);
    machine.write("proc/self/mounts", "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n");
    machine.write(&format!("{CPUSETS}/cpuset.cpus"), "0-7\n");
    for cpu in 1..8 {
        machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/online"), "1\n");
        if smt {
            let core = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id");
            machine.write(&core, &format!("{}\n", cpu % 4));
        }
    }
    machine
}

/// The kernel's action once a switch has been written. It moves no task off a CPU by force in these
/// tests: that is the fault that they look for.
fn kernel(folder: &Path) {
    let file = |below: &str| folder.join(below);
    let read = |below: &str| fs::read_to_string(file(below)).unwrap().trim().to_owned();
    let is_online = |cpu: u16| cpu == 0 || read(&format!("sys/devices/system/cpu/cpu{cpu}/online")) == "1";
    let online = CpuList((0..8).filter(|&cpu| is_online(cpu)).map(CpuId).collect());
    fs::write(file("sys/devices/system/cpu/online"), format!("{online}\n")).unwrap();
    for cpu in 1..8 {
        // As cpuidle-haltpoll: away with the CPU, and fresh after.
        let (here, away) =
            (file(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle")), file(&format!("away/{cpu}")));
        if !is_online(cpu) && here.exists() {
            fs::create_dir_all(file("away")).unwrap();
            fs::rename(&here, &away).unwrap();
        } else if is_online(cpu) && away.exists() {
            fs::rename(&away, &here).unwrap();
            for state in 0..4 {
                fs::write(here.join(format!("state{state}/disable")), "0\n").unwrap();
            }
        }
    }
    let mut folders = VecDeque::from([file(CPUSETS)]);
    while let Some(folder) = folders.pop_front() {
        folders.extend(
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()),
        );
        let cpus: CpuList = fs::read_to_string(folder.join("cpuset.cpus")).unwrap().parse().unwrap();
        let is_root = folder.ends_with("cpuset");
        assert!(
            is_root || cpus.0.is_subset(&online.0),
            "{} loses CPUs: {cpus} of {online}",
            folder.display()
        );
    }
    for irq in fs::read_dir(file("proc/irq")).into_iter().flatten() {
        let mask = fs::read_to_string(irq.unwrap().path().join("smp_affinity")).unwrap();
        assert!(
            !cpus_of(&mask).unwrap().0.is_disjoint(&online.0),
            "an interrupt is thrown to {online}: {mask}"
        );
    }
}

fn open(machine: &FakeMachine) -> Hotplug {
    let folder = machine.path("");
    let acts = Box::new(move |step| {
        if step == Step::Written {
            kernel(&folder);
        }
    });
    Hotplug::open(machine.root(), "a test", Some(acts)).unwrap()
}

fn cpus(text: &str) -> CpuList {
    if text.is_empty() { CpuList::default() } else { text.parse().unwrap() }
}

fn online(machine: &FakeMachine) -> String {
    machine.read("sys/devices/system/cpu/online")
}

#[test]
fn cpus_go_and_come_and_what_they_took_along_is_there_again() {
    let machine = machine(false);
    let sets = ["a", "a/b", "c"].map(|name| format!("{CPUSETS}/{name}/cpuset.cpus"));
    for (file, text) in sets.iter().zip(["2-5", "4-5", "7"]) {
        machine.write(file, &format!("{text}\n"));
    }
    for (irq, mask) in [(4, "20"), (5, "ff"), (6, "30")] {
        machine.write(&format!("proc/irq/{irq}/smp_affinity"), &format!("{mask}\n"));
    }
    let forbidden = "sys/devices/system/cpu/cpu5/cpuidle/state2/disable";
    machine.write(forbidden, "1\n");
    let masks = || [4, 5, 6].map(|irq| machine.read(&format!("proc/irq/{irq}/smp_affinity")));
    let reads = || sets.each_ref().map(|file| machine.read(file));
    let mut hotplug = open(&machine);
    let before = (machine.snapshot(), masks());

    hotplug.keep_offline(&cpus("5-6"));
    assert_eq!((online(&machine).as_str(), hotplug.taken()), ("0-4,7", cpus("5-6")));
    assert_eq!(
        (reads(), masks()),
        (["2-4", "4", "7"].map(String::from), ["9f", "ff", "30"].map(String::from))
    );
    // 7 is the only CPU of a cpuset, 0 has no switch.
    hotplug.keep_offline(&cpus("0,3,5-7"));
    assert_eq!((online(&machine).as_str(), hotplug.taken()), ("0-2,4,7", cpus("3,5-6")));
    assert_eq!(reads(), ["2,4", "4", "7"]);
    let notices = hotplug.drain_notices().join("\n");
    assert!(notices.contains("CPU 7 stays online: /sys/fs/cgroup/cpuset/c has no other"), "{notices}");
    assert!(notices.contains("cpu0 stays online: the kernel shows no `online` file"), "{notices}");
    hotplug.keep_offline(&cpus("3"));
    assert_eq!((reads(), masks()), (["2,4-5", "4-5", "7"].map(String::from), before.1.clone()));
    assert_eq!(machine.read(forbidden), "1", "the kernel had made it fresh");
    hotplug.keep_offline(&cpus(""));
    assert_eq!((machine.snapshot(), masks()), before);
    assert_eq!(hotplug.release(), Vec::<String>::new(), "nothing is left to be done");
}

#[test]
fn all_is_in_the_journal_before_the_first_cpu_goes() {
    let machine = machine(false);
    let (set, irq) = (format!("{CPUSETS}/a/cpuset.cpus"), "proc/irq/4/smp_affinity");
    machine.write(&set, "5-7\n");
    machine.write(irq, "20\n");
    let seen: Arc<Mutex<Option<(String, String)>>> = Arc::default();
    let (folder, first) = (machine.path(""), Arc::clone(&seen));
    let acts = Box::new(move |step| {
        let switch = fs::read_to_string(folder.join("sys/devices/system/cpu/cpu5/online")).unwrap();
        let mut first = first.lock().unwrap();
        if step == Step::Written && switch.trim() == "0" && first.is_none() {
            let journals = fs::read_dir(folder.join("run/roost")).unwrap().map(|entry| entry.unwrap().path());
            let journal = journals.filter(|path| path.extension().is_some_and(|kind| kind == "journal"));
            let text: String = journal.map(|path| fs::read_to_string(path).unwrap()).collect();
            *first = Some((text, fs::read_to_string(folder.join("sys/devices/system/cpu/online")).unwrap()));
        }
        if step == Step::Written {
            kernel(&folder);
        }
    });
    let mut hotplug = Hotplug::open(machine.root(), "a test", Some(acts)).unwrap();
    hotplug.keep_offline(&cpus("5"));
    let (journal, online) = seen.lock().unwrap().take().expect("it went");
    assert_eq!(online, "0-7\n", "it was the first");
    for path in [set.as_str(), irq, "cpu5/online", "cpu5/cpuidle/state3/disable"] {
        assert!(journal.contains(path), "{path}: {journal}");
    }
}

#[test]
fn a_core_goes_whole_or_stays() {
    let machine = machine(true);
    let mut hotplug = open(&machine);
    hotplug.keep_offline(&cpus("2-3,5-7"));
    assert_eq!(hotplug.taken(), cpus("2-3,6-7"), "5 shares a core with 1, which was not given up");
    // The kernel refuses one of two.
    hotplug.keep_offline(&cpus(""));
    machine.remove("sys/devices/system/cpu/cpu7/online");
    fs::create_dir(machine.path("sys/devices/system/cpu/cpu7/online")).unwrap();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut hotplug = open_deaf(&machine, hotplug);
        hotplug.keep_offline(&cpus("3,7"));
        (hotplug.taken(), hotplug.drain_notices())
    }));
    let (taken, notices) = refused.unwrap();
    assert_eq!((taken, machine.read("sys/devices/system/cpu/cpu3/online")), (cpus(""), "1".to_owned()));
    assert!(notices.iter().any(|notice| notice.starts_with("cpu7 stays online: ")), "{notices:?}");
}

/// Another machine, on whose kernel nothing is known of switches.
fn open_deaf(machine: &FakeMachine, old: Hotplug) -> Hotplug {
    drop(old);
    Hotplug::open(machine.root(), "a test", None).unwrap()
}

#[test]
fn what_somebody_else_did_stays() {
    let machine = machine(false);
    let (set, other) = (format!("{CPUSETS}/a/cpuset.cpus"), format!("{CPUSETS}/b/cpuset.cpus"));
    machine.write(&set, "2-5\n");
    machine.write(&other, "4-5\n");
    machine.write("sys/devices/system/cpu/cpu6/online", "0\n");
    kernel(&machine.path(""));
    let mut hotplug = open(&machine);
    hotplug.keep_offline(&cpus("3-7"));
    assert_eq!(
        (hotplug.taken(), online(&machine)),
        (cpus("3,7"), "0-2,4-5".to_owned()),
        "b has 4 and 5 alone"
    );
    // An administrator, meanwhile.
    machine.write("sys/devices/system/cpu/cpu7/online", "1\n");
    machine.write(&set, "1-2\n");
    kernel(&machine.path(""));
    hotplug.keep_offline(&cpus("3-7"));
    assert_eq!((hotplug.taken(), online(&machine)), (cpus("3"), "0-2,4-5,7".to_owned()));
    assert!(hotplug.drain_notices().iter().any(|notice| notice.contains("cpu7 was brought back by another")));
    hotplug.keep_offline(&cpus(""));
    assert_eq!((online(&machine), machine.read(&set)), ("0-5,7".to_owned(), "1-2".to_owned()));
    // After a service has had it again it is ours to take.
    hotplug.keep_offline(&cpus("7"));
    assert_eq!(hotplug.taken(), cpus("7"));
}

#[test]
fn a_cpu_that_another_roost_needs_stays_and_there_is_one_who_does_it() {
    let machine = machine(false);
    let mut other = std::process::Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap();
    machine.write("run/roost/cpu6.lock", &format!("roost serve (process {})\n", other.id()));
    let lock = std::fs::File::open(machine.path("run/roost/cpu6.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    // Its threads are real, and are looked at: they may run anywhere.
    machine.write(&format!("proc/{}/comm", other.id()), "sleep\n");
    let mut hotplug = open(&machine);
    hotplug.keep_offline(&cpus("5-6"));
    assert_eq!(hotplug.taken(), cpus("5"));
    assert!(hotplug.drain_notices()[0].contains("cpu6 stays online: roost serve"));
    let error = Hotplug::open(machine.root(), "second", None).unwrap_err().to_string();
    assert!(error.contains("a test"), "{error}");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_machine_whose_cpus_stay_is_told_at_once() {
    let machine = FakeMachine::intel_server(4);
    let error = Hotplug::open(machine.root(), "a test", None).unwrap_err();
    assert!(
        matches!(error, HotplugError::Unsupported(_)) && error.to_string().contains("CONFIG_HOTPLUG_CPU")
    );
}

#[test]
fn the_last_cpus_of_a_machine_stay() {
    let machine = machine(false);
    machine.write("sys/devices/system/cpu/cpu0/online", "1\n");
    let mut hotplug = open(&machine);
    hotplug.keep_offline(&cpus("0-7"));
    assert_eq!(hotplug.taken(), cpus(""));
    assert_eq!(
        (cpu_of_switch("sys/devices/system/cpu/cpu0/online"), mask_of(&cpus("0"))),
        (Some(CpuId(0)), "1".into())
    );
}

/// A dead run's journal, of which the switch was not yet written, or was. A setting known to have
/// been readable all the time belongs to its last writer.
#[test]
fn a_dead_runs_cpus_come_back_first() {
    let machine = machine(false);
    let forbidden = "sys/devices/system/cpu/cpu5/cpuidle/state2/disable";
    machine.write(forbidden, "1\n");
    let (set, root) = (format!("{CPUSETS}/a/cpuset.cpus"), machine.root().clone());
    machine.write(&set, "4-5\n");
    let mut hotplug = open(&machine);
    hotplug.keep_offline(&cpus("5"));
    assert_eq!(machine.read(&set), "4");
    // As after a SIGKILL: the journal stays, unlocked.
    let journal = fs::read_dir(machine.path("run/roost"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|kind| kind == "journal"))
        .unwrap();
    let text = fs::read_to_string(&journal).unwrap();
    // The kernel keeps the folder of this driver: an administrator has allowed the state meanwhile.
    fs::rename(machine.path("away/5"), machine.path("sys/devices/system/cpu/cpu5/cpuidle")).unwrap();
    machine.write(forbidden, "0\n");
    let before = online(&machine);
    std::mem::forget(hotplug);
    machine.write("run/roost/1-1-1.journal", &text);
    // No kernel acts while a journal is undone here, and the list of online CPUs is the final one.
    machine.write("sys/devices/system/cpu/online", "0-7\n");
    let report = crate::restore(&root).unwrap();
    assert_eq!((before.as_str(), report.put_back, report.failed), ("0-4,6-7", 2, 0), "{report:?}");
    assert_eq!(
        (machine.read("sys/devices/system/cpu/cpu5/online"), machine.read(&set)),
        ("1".into(), "4-5".into())
    );
    assert_eq!(machine.read(forbidden), "0", "theirs");
}
