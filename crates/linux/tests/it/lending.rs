//! CPUs lent to a group of batch work, on this machine's own kernel, with a death at any step.
//!
//! It takes root, and control groups with cpuset, cpu and freezer, of either version.

use crate::batch::Batch;
use crate::service::machine;
use linux::{EndsWithParent as _, LendError, Lending, Root, Step, restore};
use machine::{CpuList, Duration};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

const CHILD_ROOT: &str = "ROOST_TEST_LENDING_ROOT";
const CHILD_PLAN: &str = "ROOST_TEST_LENDING_PLAN";

fn open(batch: &Batch, root: &Root) -> Result<Lending, LendError> {
    Lending::open(root, &batch.name, &BTreeSet::new(), "a test", None)
}

fn last_cpu() -> CpuList {
    CpuList(linux::online_cpus(&Root::system()).unwrap().0.into_iter().next_back().into_iter().collect())
}

fn until(why: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{why}: not within a minute");
}

#[test]
fn a_group_works_on_lent_cpus_alone_and_stands_still_without() {
    let Some(batch) = Batch::begin(1) else { return };
    let (_folder, root) = machine();
    let before = batch.state();
    linux::lendable(&root, &batch.name).unwrap();
    assert_eq!(batch.state(), before, "a look changes nothing");
    let mut lending = open(&batch, &root).unwrap();
    until("it stands still until it is lent a CPU", || lending.stands());
    assert!(batch.is_frozen());
    assert_eq!(batch.read("cpu.idle"), "1");
    let cpu = last_cpu();
    lending.lend(&cpu);
    assert_eq!((lending.lent(), batch.read("cpuset.cpus")), (&cpu, cpu.to_string()));
    until("it works", || lending.used().unwrap() > Duration::from_millis(5));
    assert!(!batch.is_frozen());
    // Another program widens it: the next turn narrows it again.
    batch.write("cpuset.cpus", &linux::online_cpus(&Root::system()).unwrap().to_string());
    lending.lend(&cpu);
    assert_eq!(batch.read("cpuset.cpus"), cpu.to_string());
    lending.lend(&CpuList::default());
    until("all CPUs are needed", || lending.stands());
    // The kernel calls a process frozen on its way off the CPU: its last moments are counted after that.
    let mut stood = None;
    until("its CPU time stands still", || {
        let before = std::mem::replace(&mut stood, lending.used());
        std::thread::sleep(std::time::Duration::from_millis(20));
        before == stood
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(lending.used(), stood);
    lending.lend(&cpu);
    until("it works again", || lending.used() > stood);
    assert_eq!(lending.drain_notices(), Vec::<String>::new());
    drop(lending);
    assert_eq!(batch.state(), before);
}

#[test]
fn a_group_that_holds_a_service_or_is_held_already_is_refused() {
    let Some(batch) = Batch::begin(1) else { return };
    let (_folder, root) = machine();
    let service = BTreeSet::from([batch.processes[0].id()]);
    let error = Lending::open(&root, &batch.name, &service, "a test", None).unwrap_err().to_string();
    assert!(error.contains("critical processes") && error.contains("hint:"), "{error}");
    let held = open(&batch, &root).unwrap();
    let error = open(&batch, &root).unwrap_err().to_string();
    assert!(error.contains("already"), "{error}");
    drop(held);
    let error = Lending::open(&root, "roost-test-no-such", &BTreeSet::new(), "a test", None).unwrap_err();
    assert!(error.to_string().contains("roost-test-no-such"), "{error}");
}

#[test]
fn a_group_whose_processes_are_born_and_die_all_the_time_is_found() {
    let Some(mut batch) = Batch::begin(1) else { return };
    let mut forks = Command::new("sh");
    forks.args(["-c", "while :; do /bin/true; done"]).stdin(Stdio::null()).ends_with_parent();
    batch.add(forks);
    let (_folder, root) = machine();
    for _ in 0..500 {
        linux::lendable(&root, &batch.name).unwrap();
    }
}

/// Not a test of its own: the body of the child process.
#[test]
fn victim() {
    let Ok(root) = std::env::var(CHILD_ROOT) else { return };
    let plan = std::env::var(CHILD_PLAN).unwrap();
    let (group, left) = plan.split_once(' ').unwrap();
    let mut left: usize = left.parse().unwrap();
    let checkpoint = Box::new(move |_: Step| {
        left -= 1;
        if left == 0 {
            die();
        }
    });
    let mut lending =
        Lending::open(&Root::at(root), group, &BTreeSet::new(), "victim", Some(checkpoint)).unwrap();
    lending.lend(&last_cpu());
    lending.lend(&CpuList::default());
    lending.lend(&"0".parse().unwrap());
    println!("it is lent to");
    die();
}

fn die() {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_kill_between_any_two_steps_is_undone() {
    let Some(batch) = Batch::begin(1) else { return };
    let before = batch.state();
    let (mut step, mut changed) = (1, 0);
    loop {
        let (folder, root) = machine();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lending::victim", "--nocapture", "--test-threads=1"])
            .env(CHILD_ROOT, folder.path())
            .env(CHILD_PLAN, format!("{} {step}", batch.name))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(!output.status.success(), "it is killed");
        changed += usize::from(batch.state() != before);
        let report = restore(&root).unwrap();
        assert_eq!((report.left_alone, report.failed), (0, 0), "step {step}: {report:?}");
        assert_eq!(batch.state(), before, "step {step}");
        assert_eq!(restore(&root).unwrap().put_back, 0, "twice is once");
        if String::from_utf8_lossy(&output.stdout).contains("it is lent to") {
            break;
        }
        step += 1;
    }
    assert!(step > 9 && changed > 5, "{step} steps, {changed} left a change");
}
