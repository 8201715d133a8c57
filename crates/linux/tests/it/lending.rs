//! CPUs lent to a group of batch work, on this machine's own kernel, with a death at any step.
//!
//! It takes root, and control groups with cpuset, cpu and freezer, of either version.

use crate::service::machine;
use linux::{LendError, Lending, Root, Step, restore};
use machine::{CpuList, Duration};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const CHILD_ROOT: &str = "ROOST_TEST_LENDING_ROOT";
const CHILD_PLAN: &str = "ROOST_TEST_LENDING_PLAN";

/// A group with one process that never sleeps.
struct Batch {
    name: String,
    folders: Vec<PathBuf>,
    process: Child,
}

/// The trees that have these controllers: one in version 2, several in version 1. Without systemd no
/// program enables those of version 2.
fn trees() -> Option<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let wanted = ["cpuset", "cpu", "cpuacct", "freezer"];
    let mut found = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let tree = PathBuf::from(fields[1]);
        let lists = |file: &str| {
            let text = fs::read_to_string(tree.join(file)).unwrap_or_default();
            ["cpu", "cpuset"].iter().all(|name| text.split_whitespace().any(|one| one == *name))
        };
        if fields[2] == "cgroup2" && lists("cgroup.controllers") {
            if !lists("cgroup.subtree_control") && !Path::new("/run/systemd/system").exists() {
                fs::write(tree.join("cgroup.subtree_control"), "+cpu +cpuset").unwrap();
            }
            return lists("cgroup.subtree_control").then(|| vec![tree]);
        }
        if fields[2] == "cgroup" && fields[3].split(',').any(|word| wanted.contains(&word)) {
            found.push(tree);
        }
    }
    let has = |file: &str| found.iter().any(|tree| tree.join(file).exists());
    (has("cpuset.cpus") && has("cpu.shares")).then_some(found)
}

impl Batch {
    fn begin() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let Some(trees) = trees() else {
            println!("SKIPPED: no control groups with cpu and cpuset here");
            return None;
        };
        let name = format!("roost-test-lend-{}-{number}", std::process::id());
        let folders: Vec<PathBuf> = trees.iter().map(|tree| tree.join(&name)).collect();
        let mut process = Command::new("sh");
        process.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        for folder in &folders {
            if let Err(error) = fs::create_dir(folder) {
                println!("SKIPPED: {}: {error}", folder.display());
                return None;
            }
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(text) = fs::read_to_string(folder.parent().unwrap().join(file)) {
                    let _ = fs::write(folder.join(file), text);
                }
            }
        }
        let process = process.spawn().unwrap();
        for folder in &folders {
            fs::write(folder.join("cgroup.procs"), process.id().to_string()).unwrap();
        }
        let batch = Self { name, folders, process };
        batch.write("cpu.shares", "512");
        batch.write("cpu.weight", "50");
        Some(batch)
    }

    fn read(&self, file: &str) -> String {
        let texts = self.folders.iter().filter_map(|folder| fs::read_to_string(folder.join(file)).ok());
        texts.map(|text| text.trim().to_owned()).next().unwrap_or_default()
    }

    fn write(&self, file: &str, text: &str) {
        for folder in &self.folders {
            if folder.join(file).exists() {
                fs::write(folder.join(file), text).unwrap();
            }
        }
    }

    /// The texts of all files that lending changes. A list of version 2 that has been set cannot be emptied
    /// while there are processes: all CPUs are the same.
    fn state(&self) -> [String; 6] {
        let all = linux::online_cpus(&Root::system()).unwrap().to_string();
        ["cpu.idle", "cpu.shares", "cpu.weight", "cpuset.cpus", "freezer.state", "cgroup.freeze"]
            .map(|file| self.read(file))
            .map(|text| if text == all { String::new() } else { text })
    }

    fn is_frozen(&self) -> bool {
        self.read("freezer.state") == "FROZEN" || self.read("cgroup.freeze") == "1"
    }

    fn open(&self, root: &Root) -> Result<Lending, LendError> {
        Lending::open(root, &self.name, &BTreeSet::new(), "a test", None)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.write("freezer.state", "THAWED");
        self.write("cgroup.freeze", "0");
        let _ = self.process.kill();
        let _ = self.process.wait();
        for folder in &self.folders {
            for _ in 0..1000 {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
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
    let Some(batch) = Batch::begin() else { return };
    let (_folder, root) = machine();
    let before = batch.state();
    linux::lendable(&root, &batch.name).unwrap();
    assert_eq!(batch.state(), before, "a look changes nothing");
    let mut lending = batch.open(&root).unwrap();
    until("it stands still until it is lent a CPU", || batch.is_frozen());
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
    until("all CPUs are needed", || batch.is_frozen());
    let stood = lending.used();
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
    let Some(batch) = Batch::begin() else { return };
    let (_folder, root) = machine();
    let service = BTreeSet::from([batch.process.id()]);
    let error = Lending::open(&root, &batch.name, &service, "a test", None).unwrap_err().to_string();
    assert!(error.contains("critical processes") && error.contains("hint:"), "{error}");
    let held = batch.open(&root).unwrap();
    let error = batch.open(&root).unwrap_err().to_string();
    assert!(error.contains("already"), "{error}");
    drop(held);
    let error = Lending::open(&root, "roost-test-no-such", &BTreeSet::new(), "a test", None).unwrap_err();
    assert!(error.to_string().contains("roost-test-no-such"), "{error}");
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
    let Some(batch) = Batch::begin() else { return };
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
