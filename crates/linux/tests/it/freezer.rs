//! Groups that stand still and go on, on this machine's own kernel: by each way of freezing that it
//! has, with a death at any step.
//!
//! It takes root and a cgroup tree with a freezer; by signals it runs everywhere. A missing part is
//! reported.

use crate::service::machine;
use linux::freezer::{Freezer, FreezerError, FreezerOptions, FreezerWay, Frozen, survey};
use linux::{Root, Step, restore};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const CHILD_ROOT: &str = "ROOST_TEST_FREEZER_ROOT";
const CHILD_PLAN: &str = "ROOST_TEST_FREEZER_PLAN";

/// Processes to be frozen, in a cgroup of their own or in none. They end, and the cgroup goes, with
/// this.
struct Group {
    way: FreezerWay,
    folder: Option<PathBuf>,
    members: Vec<Child>,
}

/// Where a tree with a freezer of this version is mounted, and may be written.
fn tree(way: FreezerWay) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let path = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let is_it = match way {
            FreezerWay::V2 => fields[2] == "cgroup2",
            FreezerWay::V1 => fields[2] == "cgroup" && fields[3].split(',').any(|word| word == "freezer"),
            FreezerWay::Signal => false,
        };
        is_it.then(|| PathBuf::from(fields[1]))
    });
    if path.is_none() && way != FreezerWay::Signal {
        println!("SKIPPED by {way}: no such tree is mounted");
    }
    path
}

fn ways() -> Vec<FreezerWay> {
    let trees = [FreezerWay::V2, FreezerWay::V1].into_iter().filter(|way| {
        let Some(tree) = tree(*way) else { return false };
        let probe = tree.join(format!("roost-test-probe-{}-{way}", std::process::id()));
        let made = fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe));
        if let Err(error) = &made {
            println!("SKIPPED by {way}: {}: {error}", probe.display());
        }
        made.is_ok()
    });
    trees.chain([FreezerWay::Signal]).collect()
}

impl Group {
    /// With one member, which sleeps.
    fn new(way: FreezerWay) -> Self {
        Self::of(way, "exec sleep 600")
    }

    /// With one member, a shell that runs this.
    fn of(way: FreezerWay, script: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = tree(way).map(|tree| tree.join(format!("roost-test-{}-{number}", std::process::id())));
        if let Some(folder) = &folder {
            fs::create_dir(folder).unwrap();
        }
        let mut group = Self { way, folder, members: Vec::new() };
        group.add(script);
        group
    }

    fn add(&mut self, script: &str) -> u32 {
        // It joins before it does anything else, so that its children are born there.
        let join = self
            .folder
            .as_ref()
            .map_or(String::new(), |folder| format!("echo $$ >{}/cgroup.procs; ", folder.display()));
        let child = Command::new("sh")
            .args(["-c", &format!("{join}echo ready; {script}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let pid = child.id();
        self.members.push(child);
        pid
    }

    fn first(&self) -> u32 {
        self.members[0].id()
    }

    /// The name that a user would give.
    fn unit(&self) -> String {
        match &self.folder {
            Some(folder) => folder.display().to_string(),
            None => self.first().to_string(),
        }
    }

    fn open(&self, root: &Root) -> Result<Freezer, FreezerError> {
        self.open_as(root, FreezerOptions::new("test"))
    }

    fn open_as(&self, root: &Root, options: FreezerOptions) -> Result<Freezer, FreezerError> {
        let options = FreezerOptions { without: self.without(), ..options };
        Freezer::open(root, &[self.unit()], &BTreeSet::new(), options)
    }

    /// A process whose cgroup is its own would be frozen by that.
    fn without(&self) -> Vec<FreezerWay> {
        match self.way {
            FreezerWay::Signal => vec![FreezerWay::V2, FreezerWay::V1],
            _ => Vec::new(),
        }
    }

    /// The state by its own file or, without one, by a stop of its first member.
    fn is_frozen(&self) -> bool {
        match (&self.folder, self.way) {
            (Some(folder), FreezerWay::V2) => read(&folder.join("cgroup.freeze")) == "1",
            (Some(folder), _) => read(&folder.join("freezer.state")) != "THAWED",
            (None, _) => state(self.first()) == 'T',
        }
    }

    /// Another program does this.
    fn set_frozen(&self, frozen: bool) {
        match (&self.folder, self.way) {
            (Some(folder), FreezerWay::V2) => {
                fs::write(folder.join("cgroup.freeze"), if frozen { "1" } else { "0" }).unwrap();
            }
            (Some(folder), _) => {
                fs::write(folder.join("freezer.state"), if frozen { "FROZEN" } else { "THAWED" }).unwrap();
            }
            (None, _) => {
                signal(self.first(), frozen);
                until("it stops or goes on", || (state(self.first()) == 'T') == frozen);
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // Frozen, version 1 does not even let them die.
            let _ = fs::write(folder.join("freezer.state"), "THAWED");
            let _ = fs::write(folder.join("cgroup.freeze"), "0");
        }
        for member in &mut self.members {
            for child in children(member.id()) {
                let child = rustix::process::Pid::from_raw(child as i32).unwrap();
                let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
            }
            let _ = member.kill();
            let _ = member.wait();
        }
        if let Some(folder) = &self.folder {
            remove(folder);
        }
    }
}

/// Its members are dead, but perhaps not quite gone.
fn remove(folder: &Path) {
    for _ in 0..5_000 {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                for process in read(&folder.join("cgroup.procs")).lines() {
                    if let Some(process) = process.parse().ok().and_then(rustix::process::Pid::from_raw) {
                        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
                    }
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            _ => return,
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Field 3 of its `stat`; `-` once it is gone.
fn state(process: u32) -> char {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('-')
}

fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    text.split_ascii_whitespace().map(|child| child.parse().unwrap()).collect()
}

fn signal(process: u32, stop: bool) {
    use rustix::process::Signal;
    let process = rustix::process::Pid::from_raw(process as i32).unwrap();
    rustix::process::kill_process(process, if stop { Signal::STOP } else { Signal::CONT }).unwrap();
}

/// The expected state comes soon, or the test fails.
fn until(what: &str, holds: impl Fn() -> bool) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < patience, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// No journal and no lock is left.
fn is_clean(root: &Root) -> bool {
    fs::read_dir(root.path("run/roost")).is_ok_and(|mut entries| entries.next().is_none())
}

#[test]
fn a_group_stands_still_and_goes_on() {
    for way in ways() {
        let (_folder, root) = machine();
        let group = Group::of(way, "while :; do :; done");
        let mut freezer = group.open(&root).unwrap();
        assert_eq!(freezer.group(0), (group.unit().as_str(), way));
        assert!(!freezer.stands(0) && !group.is_frozen());
        for _ in 0..3 {
            assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "{way}");
            until("it stands still", || freezer.stands(0));
            assert!(group.is_frozen() && freezer.is_told(0), "{way}");
            assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "twice is once");
            freezer.thaw(0).unwrap();
            until("it goes on", || !group.is_frozen() && matches!(state(group.first()), 'R' | 'S'));
            freezer.thaw(0).unwrap();
        }
        let cost = freezer.measure(0, 5).unwrap().expect("it stands still in time");
        assert!(!cost.is_zero() && !group.is_frozen(), "{way}: {cost}");
        println!("{way}: freeze and thaw of a process that computes: {cost}");
        freezer.freeze(0).unwrap();
        drop(freezer);
        assert!(is_clean(&root), "{way}");
        until("the end lets it go on", || !group.is_frozen());
    }
}

#[test]
fn who_is_frozen_by_somebody_else_is_left_alone() {
    for way in ways() {
        let (_folder, root) = machine();
        let group = Group::new(way);
        let mut freezer = group.open(&root).unwrap();
        group.set_frozen(true);
        assert_eq!(freezer.freeze(0).unwrap(), Frozen::Foreign, "{way}");
        assert_eq!(freezer.measure(0, 3).unwrap(), None, "{way}");
        freezer.thaw(0).unwrap();
        freezer.release();
        assert!(group.is_frozen(), "{way}: theirs stays");
        group.set_frozen(false);
        assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "{way}: and is ours again when they let go");
        // Another program thaws our group: then it stays thawed.
        until("it stands still", || freezer.stands(0));
        group.set_frozen(false);
        assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "{way}");
        until("it goes on", || !group.is_frozen());
        freezer.thaw(0).unwrap();
        assert!(!group.is_frozen(), "{way}");
        drop(freezer);
        assert!(is_clean(&root), "{way}");
    }
}

#[test]
fn who_is_frozen_from_above_is_left_alone_and_who_is_frozen_below_stays_so() {
    for way in ways().into_iter().filter(|way| *way != FreezerWay::Signal) {
        let (_folder, root) = machine();
        let mut outer = Group::new(way);
        let inner = outer.folder.clone().unwrap().join("inner");
        fs::create_dir(&inner).unwrap();
        let inside = outer.add("exec sleep 600");
        fs::write(inner.join("cgroup.procs"), inside.to_string()).unwrap();
        let group = Group { way, folder: Some(inner), members: Vec::new() };
        // From above.
        outer.set_frozen(true);
        let inner = group.folder.clone().unwrap();
        until("the inner one stands", || match way {
            FreezerWay::V2 => read(&inner.join("cgroup.events")).contains("frozen 1"),
            _ => read(&inner.join("freezer.state")) == "FROZEN",
        });
        let mut freezer = group.open(&root).unwrap();
        assert_eq!(freezer.freeze(0).unwrap(), Frozen::Foreign, "{way}");
        drop(freezer);
        outer.set_frozen(false);
        // Below: the outer one freezes all, and gives the earlier state back.
        until("it goes on", || !group.is_frozen());
        group.set_frozen(true);
        let mut freezer = outer.open(&root).unwrap();
        assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "{way}");
        until("all stand", || freezer.stands(0));
        freezer.thaw(0).unwrap();
        until("the outer goes on", || !outer.is_frozen());
        assert!(group.is_frozen(), "{way}: another program froze it");
        group.set_frozen(false);
        until("the inner one goes on", || match way {
            FreezerWay::V2 => read(&inner.join("cgroup.events")).contains("frozen 0"),
            _ => !group.is_frozen(),
        });
        // Both at once, by two holders.
        let mut inner_freezer = group.open(&root).unwrap();
        assert_eq!(inner_freezer.freeze(0).unwrap(), Frozen::Told);
        assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told);
        // Linux 6.18 calls a group frozen once its own tasks are, whatever its inner groups do.
        until("all stand", || freezer.stands(0) && inner_freezer.stands(0));
        freezer.thaw(0).unwrap();
        assert!(group.is_frozen() && inner_freezer.stands(0), "{way}");
        inner_freezer.thaw(0).unwrap();
        until("all go on", || !group.is_frozen() && !outer.is_frozen());
        drop((freezer, inner_freezer));
        assert!(is_clean(&root), "{way}");
    }
}

#[test]
fn a_stopped_task_stays_stopped() {
    for way in ways() {
        let (_folder, root) = machine();
        let mut group = Group::of(way, "sleep 600 & sleep 600 & wait");
        let stopped = match way {
            FreezerWay::Signal => {
                until("its children are born", || children(group.first()).len() == 2);
                children(group.first())[0]
            }
            _ => group.add("exec sleep 600"),
        };
        signal(stopped, true);
        until("it is stopped", || state(stopped) == 'T');
        let mut freezer = group.open(&root).unwrap();
        for _ in 0..3 {
            assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "{way}");
            until("all stand", || freezer.stands(0));
            freezer.thaw(0).unwrap();
            until("the others go on", || state(group.first()) == 'S');
            assert_eq!(state(stopped), 'T', "{way}");
        }
        drop(freezer);
        assert_eq!(state(stopped), 'T', "{way}");
        assert!(is_clean(&root), "{way}");
        signal(stopped, false);
        until("only its own signal lets it go on", || state(stopped) == 'S');
    }
}

#[test]
fn a_group_that_forks_all_the_time_stands_still_as_a_whole() {
    for way in ways() {
        let (_folder, root) = machine();
        let group = Group::of(way, "while :; do sleep 0.001 & sleep 0.002 & wait; done");
        let mut freezer = group.open(&root).unwrap();
        for _ in 0..10 {
            assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "{way}");
            let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while !freezer.stands(0) {
                // A process that was born before its parent took up its stop is stopped by the next
                // call.
                assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "{way}");
                let family: Vec<_> = freezer.processes(0).into_iter().map(|one| (one, state(one))).collect();
                assert!(std::time::Instant::now() < patience, "all stand by {way}: {family:?}");
            }
            if way == FreezerWay::Signal {
                // No process was born unseen.
                let family = freezer.processes(0);
                assert!(family.iter().all(|&one| matches!(state(one), 'T' | 'Z' | '-')), "{family:?}");
            }
            freezer.thaw(0).unwrap();
            until("it goes on", || !group.is_frozen());
        }
        drop(freezer);
        assert!(is_clean(&root), "{way}");
    }
}

#[test]
fn a_group_that_vanishes_is_told_and_leaves_nothing() {
    for way in ways() {
        let (_folder, root) = machine();
        let mut group = Group::new(way);
        let mut freezer = group.open(&root).unwrap();
        assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told);
        until("it stands", || freezer.stands(0));
        // Frozen tasks of version 1 do not die before they are thawed.
        if way == FreezerWay::V1 {
            group.set_frozen(false);
        }
        for mut member in group.members.drain(..) {
            member.kill().unwrap();
            member.wait().unwrap();
        }
        group.folder.iter().for_each(|folder| remove(folder));
        freezer.thaw(0).unwrap();
        assert_eq!(freezer.freeze(0).unwrap(), Frozen::Gone, "{way}");
        assert!(!freezer.is_told(0));
        if let Some(folder) = &group.folder {
            // A unit that is started again has the same path.
            fs::create_dir(folder).unwrap();
            assert_eq!(freezer.freeze(0).unwrap(), Frozen::Told, "{way}");
            assert!(group.is_frozen());
        }
        let lines = freezer.release();
        assert!(lines.iter().all(|line| !line.contains("not put back")), "{way}: {lines:?}");
        drop(freezer);
        assert!(is_clean(&root), "{way}");
    }
}

#[test]
fn what_must_not_be_frozen_is_refused_and_nothing_changes() {
    let (_folder, root) = machine();
    let nobody = BTreeSet::new();
    let refused = |unit: &str, critical: &BTreeSet<u32>| {
        let survey = survey(&root, &[unit.to_owned()], critical, &[]).unwrap_err();
        let open =
            Freezer::open(&root, &[unit.to_owned()], critical, FreezerOptions::new("test")).unwrap_err();
        assert_eq!(std::mem::discriminant(&survey), std::mem::discriminant(&open));
        open
    };
    let own = std::process::id();
    for unit in ["1".to_owned(), own.to_string()] {
        assert!(matches!(refused(&unit, &nobody), FreezerError::NotOurs { .. }), "{unit}");
    }
    for unit in ["no-such-unit.service", "/sys/fs/cgroup/no-such-group", "4000000", "../../etc"] {
        assert!(
            matches!(refused(unit, &nobody), FreezerError::Unknown(_)),
            "{unit}: {}",
            refused(unit, &nobody)
        );
    }
    for way in ways() {
        let group = Group::new(way);
        let critical = BTreeSet::from([group.first()]);
        let error = refused(&group.unit(), &critical);
        assert!(matches!(&error, FreezerError::Critical { .. }), "{error}");
        assert!(error.to_string().contains(&format!("({})", group.first())), "{error}");
        if let Some(tree) = tree(way) {
            let error = refused(&format!("{}/", tree.display()), &nobody);
            assert!(matches!(&error, FreezerError::NotOurs { .. }), "{error}");
            // A folder of this name holds process 1 wherever systemd runs.
            let scope = group.folder.as_ref().unwrap().join("init.scope");
            fs::create_dir(&scope).unwrap();
            fs::write(scope.join("cgroup.procs"), group.first().to_string()).unwrap();
            let error = refused(&scope.display().to_string(), &nobody);
            assert!(matches!(&error, FreezerError::NotOurs { .. }), "{error}");
            drop(Group { way, folder: Some(scope), members: Vec::new() });
        }
        assert!(!group.is_frozen());
    }
    assert!(!root.path("run").exists(), "neither a lock nor a journal was made");
}

#[test]
fn the_second_holder_of_a_group_learns_who_is_the_first() {
    for way in ways() {
        let (_folder, root) = machine();
        let group = Group::new(way);
        let mut first = group.open(&root).unwrap();
        first.freeze(0).unwrap();
        let error = group.open(&root).unwrap_err();
        let me = format!("test (process {})", std::process::id());
        assert!(matches!(&error, FreezerError::Held { holder, .. } if *holder == me), "{error}");
        assert!(first.is_told(0) && group.is_frozen(), "{way}: and it disturbed no holder");
        drop(first);
        drop(group.open(&root).unwrap());
        assert!(is_clean(&root), "{way}");
    }
}

#[test]
fn a_panic_lets_everybody_go_on() {
    for way in ways() {
        let (_folder, root) = machine();
        let group = Group::new(way);
        let mut freezer = group.open(&root).unwrap();
        let panicked = std::thread::spawn(move || {
            freezer.freeze(0).unwrap();
            std::panic::resume_unwind(Box::new("a fault of ours"));
        });
        assert!(panicked.join().is_err());
        until("it goes on", || !group.is_frozen());
        assert!(is_clean(&root), "{way}");
    }
}

/// Not a test of its own: the body of a process that freezes a group and dies.
#[test]
fn victim() {
    let Ok(root) = std::env::var(CHILD_ROOT) else { return };
    let plan = std::env::var(CHILD_PLAN).unwrap();
    let (unit, rest) = plan.split_once(' ').unwrap();
    let (by_signal, dies_at) = rest.split_once(' ').unwrap();
    let mut left: usize = dies_at.parse().unwrap();
    let checkpoint = Box::new(move |_: Step| {
        left -= 1;
        if left == 0 {
            die();
        }
    });
    let without = if by_signal == "true" { vec![FreezerWay::V2, FreezerWay::V1] } else { Vec::new() };
    let options = FreezerOptions { without, checkpoint: Some(checkpoint), ..FreezerOptions::new("victim") };
    let mut freezer = Freezer::open(&Root::at(root), &[unit.to_owned()], &BTreeSet::new(), options).unwrap();
    for _ in 0..2 {
        freezer.freeze(0).unwrap();
        freezer.thaw(0).unwrap();
    }
    freezer.freeze(0).unwrap();
    println!("it is frozen");
    die();
}

fn die() {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_kill_between_any_two_steps_is_undone() {
    for way in ways() {
        let group = match way {
            FreezerWay::Signal => Group::of(way, "sleep 600 & sleep 600 & wait"),
            _ => Group::new(way),
        };
        if way == FreezerWay::Signal {
            until("its children are born", || children(group.first()).len() == 2);
        }
        let (mut step, mut left_frozen) = (1, 0);
        loop {
            let (folder, root) = machine();
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "freezer::victim", "--nocapture", "--test-threads=1"])
                .env(CHILD_ROOT, folder.path())
                .env(CHILD_PLAN, format!("{} {} {step}", group.unit(), way == FreezerWay::Signal))
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert!(!output.status.success(), "it is killed");
            left_frozen += usize::from(group.is_frozen());
            let report = restore(&root).unwrap();
            assert_eq!((report.left_alone, report.failed), (0, 0), "{way}, step {step}: {report:?}");
            let goes =
                || !group.is_frozen() && children(group.first()).iter().all(|&child| state(child) == 'S');
            until("restore lets all go on", goes);
            assert_eq!(restore(&root).unwrap().put_back, 0, "twice is once");
            if String::from_utf8_lossy(&output.stdout).contains("it is frozen") {
                break;
            }
            step += 1;
        }
        println!("{way}: {step} steps, {left_frozen} left the group frozen");
        assert!(step > 9 && left_frozen > 2, "{way}: {step} steps, {left_frozen} left the group frozen");
    }
}

#[test]
fn after_a_kill_somebody_elses_thaw_is_no_reason_to_do_anything() {
    for way in ways() {
        let (folder, root) = machine();
        let group = Group::new(way);
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "freezer::victim", "--nocapture", "--test-threads=1"])
            .env(CHILD_ROOT, folder.path())
            .env(CHILD_PLAN, format!("{} {} 1000", group.unit(), way == FreezerWay::Signal))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("it is frozen"), "{output:?}");
        until("it is", || group.is_frozen());
        group.set_frozen(false);
        // The next one to open it puts the dead one's changes back first, of which there are none
        // now.
        drop(group.open(&root).unwrap());
        assert!(!group.is_frozen() && is_clean(&root), "{way}");
    }
}
