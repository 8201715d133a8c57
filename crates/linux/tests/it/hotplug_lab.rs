//! CPUs go offline and come back on a real kernel (`lab/run hotplug`): everything else on the
//! machine is as it was, after a death at any step too, in cgroups of version 2 and of version 1.
//!
//! With two CPUs, as this machine may have, the same is tried with less; it takes a machine without
//! other users.

use crate::service::{Running, machine, mask};
use linux::{Hotplug, Root, Step, allowed_cpus, online_cpus, restore};
use machine::{CpuId, CpuList};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CHILD_ROOT: &str = "ROOST_TEST_HOTPLUG_ROOT";
const CHILD_STEP: &str = "ROOST_TEST_HOTPLUG_STEP";
const CGROUPS: &str = "/sys/fs/cgroup";

fn cpus(text: &str) -> CpuList {
    if text.is_empty() { CpuList::default() } else { text.parse().unwrap() }
}

/// The CPUs that go offline, one after the other: some, others, more, all back, one again.
fn plan(many: bool) -> [&'static str; 5] {
    if many { ["4-5", "5-6", "3-7", "", "5"] } else { ["1", "", "1", "", "1"] }
}

fn pin(thread: u32, to: &str) {
    let mut set = CpuSet::new();
    cpus(to).0.iter().for_each(|cpu| set.set(cpu.index()));
    sched_setaffinity(Pid::from_raw(thread as i32), &set).unwrap();
}

/// True for a thread that belongs to its CPU or its interrupt, and moves with it.
fn is_kernels(stat: &str) -> bool {
    let (name, rest) = stat.rsplit_once(')').unwrap_or_default();
    let flags: u32 = rest.split_whitespace().nth(6).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    flags & 0x0400_0000 != 0 || name.contains("(irq/")
}

/// Everything that may be lost: the CPUs and the cgroup of each thread of the machine, every
/// cpuset, every interrupt, every CPU's own settings.
fn snapshot() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let read = |path: &Path| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let mut see = |path: PathBuf| {
        if let Ok(text) = read(&path) {
            all.insert(path.display().to_string(), text);
        }
    };
    see("/sys/devices/system/cpu/online".into());
    for folder in walk(Path::new(CGROUPS)) {
        for file in ["cpuset.cpus", "cpuset.mems", "cpuset.cpus.partition", "cgroup.subtree_control"] {
            see(folder.join(file));
        }
    }
    for folder in walk(Path::new("/proc/irq")) {
        see(folder.join("smp_affinity"));
    }
    for cpu in 0..16 {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        see(format!("{folder}/power/pm_qos_resume_latency_us").into());
        (0..8).for_each(|state| see(format!("{folder}/cpuidle/state{state}/disable").into()));
        for file in ["governor", "min_freq", "max_freq", "setspeed"] {
            see(format!("{folder}/cpufreq/scaling_{file}").into());
        }
    }
    for process in fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
        for thread in
            fs::read_dir(process.join("task")).into_iter().flatten().flatten().map(|entry| entry.path())
        {
            let stat = read(&thread.join("stat")).unwrap_or_default();
            let status = read(&thread.join("status")).unwrap_or_default();
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
            if let Some(list) = list.filter(|_| !is_kernels(&stat)) {
                let began = stat.split_whitespace().rev().nth(30).unwrap_or_default();
                let place = read(&thread.join("cgroup")).unwrap_or_default();
                all.insert(format!("{} {began}", thread.display()), format!("{list} in {place}"));
            }
        }
    }
    all
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut at = 0;
    while at < found.len() {
        let below = fs::read_dir(&found[at]).into_iter().flatten().flatten();
        found.extend(
            below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
        at += 1;
    }
    found
}

/// The differences, without threads that began or ended in between.
fn difference(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let is_thread = |name: &str| name.contains("/task/");
    let mut lines: Vec<String> = (before.iter())
        .filter(|(name, text)| now.get(*name).map_or(!is_thread(name), |now| now != *text))
        .map(|(name, text)| format!("{name}: was {text}, is {:?}", now.get(name)))
        .collect();
    let is_new = |name: &&String| !before.contains_key(*name) && !is_thread(name);
    lines.extend(now.keys().filter(is_new).map(|name| format!("{name} is new")));
    lines
}

/// Another program on the machine, which has set all that can be lost.
struct Neighbours {
    service: Running,
    cgroup: Option<PathBuf>,
    /// The earlier state, in files of the machine.
    files: Vec<(PathBuf, String)>,
    /// Threads that chose the last CPU alone, and the last two.
    chosen: [u32; 2],
    last: u16,
}

impl Neighbours {
    /// In a cgroup of CPUs of their own, where there is a cpuset controller.
    fn settle(many: bool) -> Self {
        let mut service = Running::start();
        let (last, two, group) = if many { (5, "4-5", "2-5") } else { (1, "0-1", "0-1") };
        let chosen = [service.thread(Some(last)), service.thread(None)];
        service.thread(None);
        let mut neighbours = Self { service, cgroup: None, files: Vec::new(), chosen, last };
        neighbours.cgroup = neighbours.enter(group);
        pin(chosen[0], &last.to_string());
        pin(chosen[1], two);
        neighbours.set(&format!("/sys/devices/system/cpu/cpu{last}/cpuidle/state2/disable"), "1");
        neighbours.set(&format!("/sys/devices/system/cpu/cpu{last}/cpufreq/scaling_setspeed"), "1400000");
        neighbours.set("/proc/irq/4/smp_affinity", &format!("{:x}", 1 << last));
        neighbours
    }

    fn enter(&self, cpus: &str) -> Option<PathBuf> {
        let first = Path::new(CGROUPS).join("cpuset");
        let (mount, is_first) =
            if first.join("cpuset.cpus").exists() { (first, true) } else { (CGROUPS.into(), false) };
        let group = mount.join("roost-test-neighbours");
        fs::create_dir(&group).ok()?;
        if is_first {
            fs::write(group.join("cpuset.mems"), fs::read_to_string(mount.join("cpuset.mems")).unwrap())
                .unwrap();
        } else {
            fs::write(mount.join("cgroup.subtree_control"), "+cpuset").unwrap();
        }
        fs::write(group.join("cpuset.cpus"), cpus).unwrap();
        fs::write(group.join("cgroup.procs"), self.service.pid().to_string()).unwrap();
        Some(group)
    }

    fn set(&mut self, path: &str, text: &str) {
        let before = fs::read_to_string(path);
        match before.and_then(|before| fs::write(path, text).map(|()| before)) {
            Ok(before) => self.files.push((path.into(), before)),
            Err(cause) => eprintln!("skipped: {path}: {cause}"),
        }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for (path, text) in &self.files {
            let _ = fs::write(path, text);
        }
        if let Some(group) = &self.cgroup {
            let above = group.parent().unwrap().join("cgroup.procs");
            let _ = fs::write(above, self.service.pid().to_string());
            let _ = fs::remove_dir(group);
            let _ = fs::write(group.parent().unwrap().join("cgroup.subtree_control"), "-cpuset");
        }
    }
}

/// True with eight CPUs and more; `None`, with a line, where the last cannot go.
fn many() -> Option<bool> {
    let last = if allowed_cpus().unwrap().0.len() >= 8 { 5 } else { 1 };
    let switch = format!("/sys/devices/system/cpu/cpu{last}/online");
    if !Path::new(&switch).exists() {
        eprintln!("skipped: there is no {switch}");
        return None;
    }
    if let Err(refused) = Hotplug::supported(&Root::system()) {
        eprintln!("skipped: {refused}");
        return None;
    }
    Some(last == 5)
}

/// Brings every CPU back that a failed test has left away.
struct AllBack;

impl Drop for AllBack {
    fn drop(&mut self) {
        for cpu in 1..8 {
            let _ = fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "1");
        }
    }
}

/// Not a test of its own: the body of the child process.
#[test]
fn victim() {
    let Ok(root) = std::env::var(CHILD_ROOT) else { return };
    let mut left: usize = std::env::var(CHILD_STEP).unwrap().parse().unwrap();
    let die =
        || rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    let checkpoint = Box::new(move |_: Step| {
        left -= 1;
        if left == 0 {
            die();
        }
    });
    let mut hotplug = Hotplug::open(&Root::at(root), "victim", Some(checkpoint)).unwrap();
    for wanted in plan(allowed_cpus().unwrap().0.len() >= 8) {
        hotplug.keep_offline(&cpus(wanted));
        assert_eq!(hotplug.taken(), cpus(wanted), "{:?}", hotplug.drain_notices());
    }
    println!("they are offline");
    die();
}

/// Runs a child to the given step; true if it has fewer.
fn survives(root: &Path, step: usize) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hotplug_lab::victim", "--nocapture", "--test-threads=1"])
        .env(CHILD_ROOT, root)
        .env(CHILD_STEP, step.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success(), "it is killed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!said.contains("panicked"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said.contains("they are offline")
}

/// 12 of 6.12.
fn minor_of_kernel() -> usize {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    release.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or_default()
}

fn every_kill_is_undone(many: bool) {
    let neighbours = Neighbours::settle(many);
    let before = snapshot();
    let mut changed = 0;
    // Some ninety steps, each a boot of a child and CPUs that come back: every other one, and on
    // another kernel the rest.
    for step in (1 + minor_of_kernel() % 2..).step_by(2) {
        println!("step {step}");
        let (folder, root) = machine();
        let survived = survives(folder.path(), step);
        changed += usize::from(!difference(&before, &snapshot()).is_empty());
        let report = restore(&root).unwrap();
        let differs = difference(&before, &snapshot());
        assert!(differs.is_empty(), "step {step}: {differs:#?}\n{report:#?}");
        assert_eq!((report.left_alone, report.failed), (0, 0), "step {step}: {report:?}");
        if survived {
            assert!(step > 20 && changed > 10, "{step} steps, {changed} left the machine changed");
            break;
        }
    }
    drop(neighbours);
}

fn all_comes_back_and_others_changes_stay(many: bool) {
    let neighbours = Neighbours::settle(many);
    let before = snapshot();
    let (_folder, root) = machine();
    let mut hotplug = Hotplug::open(&root, "test", None).unwrap();
    let wanted = cpus(plan(many)[0]);
    hotplug.keep_offline(&wanted);
    assert_eq!(hotplug.taken(), wanted, "{:?}", hotplug.drain_notices());
    assert!(online_cpus(&root).unwrap().0.is_disjoint(&wanted.0));
    assert!(!cpus(&mask(neighbours.chosen[0])).0.contains(&CpuId(neighbours.last)));
    let lines = hotplug.release();
    let differs = difference(&before, &snapshot());
    assert!(differs.is_empty(), "{differs:#?}\n{lines:#?}");

    hotplug.keep_offline(&wanted);
    drop(hotplug);
    let differs = difference(&before, &snapshot());
    assert!(differs.is_empty(), "on drop: {differs:#?}");

    let mut hotplug = Hotplug::open(&root, "test", None).unwrap();
    hotplug.keep_offline(&wanted);
    let theirs = if many { "2" } else { "0" };
    pin(neighbours.chosen[0], theirs);
    let others = neighbours.files.iter().find(|(path, _)| path.ends_with("smp_affinity")).map(|(path, _)| {
        fs::write(path, "1").unwrap();
        path
    });
    hotplug.release();
    let differs = difference(&before, &snapshot());
    let kept: Vec<&String> =
        differs.iter().filter(|line| line.contains("/task/") || line.contains("smp_affinity")).collect();
    assert_eq!((kept.len(), differs.len()), (1 + usize::from(others.is_some()), kept.len()), "{differs:#?}");
    assert!(
        mask(neighbours.chosen[0]) == "0" || neighbours.cgroup.is_some(),
        "{}",
        mask(neighbours.chosen[0])
    );
}

#[test]
#[ignore = "takes CPUs of this machine offline: lab/run hotplug"]
fn a_cpu_that_goes_takes_nothing_along_for_good() {
    let Some(many) = many() else { return };
    let _back = AllBack;
    all_comes_back_and_others_changes_stay(many);
}

#[test]
#[ignore = "takes CPUs of this machine offline: lab/run hotplug"]
fn a_kill_between_any_two_steps_is_undone() {
    let Some(many) = many() else { return };
    let _back = AllBack;
    every_kill_is_undone(many);
}

/// The lab mounts version 2 alone.
struct FirstVersion;

impl FirstVersion {
    fn mounted() -> Option<Self> {
        let run = |program: &str, words: &[&str]| {
            let done = Command::new(program).args(words).status();
            done.is_ok_and(|status| status.success())
        };
        assert!(
            run("umount", &[CGROUPS]) && run("mount", &["-t", "tmpfs", "tmpfs", CGROUPS]),
            "the lab's init is root"
        );
        let folder = Path::new(CGROUPS).join("cpuset");
        fs::create_dir(&folder).unwrap();
        let mounted =
            run("mount", &["-t", "cgroup", "-o", "cpuset", "cpuset", &folder.display().to_string()]);
        let first = Self;
        if !mounted {
            eprintln!("skipped: this kernel has no cpusets of version 1");
        }
        mounted.then_some(first)
    }
}

impl Drop for FirstVersion {
    fn drop(&mut self) {
        for words in [
            &["umount", "/sys/fs/cgroup/cpuset"][..],
            &["umount", CGROUPS],
            &["mount", "-t", "cgroup2", "cgroup2", CGROUPS],
        ] {
            let _ = Command::new(words[0]).args(&words[1..]).status();
        }
    }
}

#[test]
#[ignore = "takes CPUs offline and mounts cgroups of version 1: lab/run hotplug"]
fn in_version_1_as_well() {
    let Some(many) = many() else { return };
    if Path::new(CGROUPS).join("cpuset/cpuset.cpus").exists() {
        eprintln!("skipped: version 1 is mounted here, and the other tests have tried it");
        return;
    }
    let _back = AllBack;
    let Some(_first) = FirstVersion::mounted() else { return };
    all_comes_back_and_others_changes_stay(many);
    every_kill_is_undone(many);
}
