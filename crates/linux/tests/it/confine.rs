//! A real service with several threads on this machine's own kernel: kept on its CPUs, and given
//! its own back, after a death at any step too.
//!
//! It takes two CPUs. By affinity it runs everywhere; by cpusets where this user may make one, and
//! says so otherwise.

use crate::service::{Running, machine, mask, masks};
use linux::{ConfineActuator, ConfineError, ConfineOptions, Confiner, Root, Step, allowed_cpus, restore};
use machine::{CpuId, CpuList};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const CHILD_ROOT: &str = "ROOST_TEST_CONFINE_ROOT";
const CHILD_PLAN: &str = "ROOST_TEST_CONFINE_PLAN";

/// Two CPUs that this process may use, or a line with the reason that there are none.
fn two_cpus() -> Option<(u16, u16)> {
    let allowed = allowed_cpus().unwrap();
    let mut cpus = allowed.0.iter().map(|cpu| cpu.0);
    let pair = cpus.next().zip(cpus.next());
    if pair.is_none() {
        eprintln!("skipped: it takes two CPUs, and CPU {allowed} is all there is");
    }
    pair
}

/// The actuators that can be tried here.
fn actuators() -> Vec<ConfineActuator> {
    let mut actuators = vec![ConfineActuator::Affinity];
    let (_folder, root) = machine();
    let probe = Running::start();
    let options =
        ConfineOptions { actuator: Some(ConfineActuator::CpusetV1), ..ConfineOptions::new("probe") };
    match Confiner::open(&root, &probe.service(), options) {
        Ok(_) => actuators.push(ConfineActuator::CpusetV1),
        Err(error) => eprintln!("skipped by cpuset v1: {error}"),
    }
    actuators
}

fn open(root: &Root, service: &Running, actuator: ConfineActuator) -> Result<Confiner, ConfineError> {
    let options = ConfineOptions { actuator: Some(actuator), ..ConfineOptions::new("test") };
    Confiner::open(root, &service.service(), options)
}

fn one(cpu: u16) -> CpuList {
    CpuList([CpuId(cpu)].into())
}

/// Every thread, its CPUs, and the cgroups of the process.
type State = (BTreeMap<u32, String>, String);

fn state(service: &Running) -> State {
    (service.masks(), service.cgroups())
}

#[test]
fn every_thread_is_kept_there_and_gets_its_own_back() {
    let Some((first, second)) = two_cpus() else { return };
    for actuator in actuators() {
        let (_folder, root) = machine();
        let mut service = Running::start();
        let free = service.thread(None);
        let (pinned_in, pinned_out) = (service.thread(Some(second)), service.thread(Some(first)));
        let before = state(&service);
        let mut confiner = open(&root, &service, actuator).unwrap();
        assert_eq!((confiner.actuator(), confiner.allowed()), (actuator, &allowed_cpus().unwrap()));
        assert_eq!(service.masks(), before.0, "opening takes no CPU away");
        let confined = confiner.confine(&one(second)).unwrap();
        assert_eq!((confined.threads, confined.in_force), (before.0.len(), one(second)), "{actuator}");
        assert!(
            service.masks().values().all(|mask| *mask == second.to_string()),
            "{actuator}: {:?}",
            service.masks()
        );
        let again = confiner.confine(&one(second)).unwrap();
        assert_eq!(again.changed, 0, "{actuator}: what holds already is not written");
        // Grown again to both, the pinned keep to their own.
        confiner.confine(&CpuList([CpuId(first), CpuId(second)].into())).unwrap();
        let masks = service.masks();
        assert_eq!(
            (&masks[&pinned_in], &masks[&pinned_out]),
            (&second.to_string(), &first.to_string()),
            "{actuator}"
        );
        assert_ne!(masks[&free], first.to_string(), "{actuator}");
        confiner.confine(&one(first)).unwrap();
        assert!(service.masks().values().all(|mask| *mask == first.to_string()), "{actuator}");
        assert_eq!(confiner.check().unwrap(), Default::default(), "{actuator}: nothing else changed");
        let lines = confiner.release();
        assert!(!lines.is_empty() && lines.iter().all(|line| !line.contains("not put back")), "{lines:?}");
        assert_eq!(state(&service), before, "{actuator}: {lines:?}");
        // After a release it can be confined again, and a drop puts back as well.
        confiner.confine(&one(second)).unwrap();
        assert!(service.masks().values().all(|mask| *mask == second.to_string()), "{actuator}");
        drop(confiner);
        assert_eq!(state(&service), before, "{actuator}");
        assert_eq!(fs::read_dir(root.path("run/roost")).unwrap().count(), 0, "no journal, no lock is left");
    }
}

#[test]
fn who_is_born_under_it_gets_what_its_parent_had() {
    let Some((first, second)) = two_cpus() else { return };
    for actuator in actuators() {
        let (_folder, root) = machine();
        let mut service = Running::start();
        let both = mask(service.taker);
        let mut confiner = open(&root, &service, actuator).unwrap();
        confiner.confine(&one(second)).unwrap();
        let (seen, child) = (service.thread(None), service.child());
        assert_eq!((mask(seen), mask(child)), (second.to_string(), second.to_string()), "{actuator}");
        let drift = confiner.check().unwrap();
        assert_eq!((drift.confined, drift.foreign), (0, vec![]), "{actuator}: they were born there");
        assert!(confiner.processes().any(|process| process == child), "{actuator}");
        confiner.confine(&one(first)).unwrap();
        assert_eq!((mask(seen), mask(child)), (first.to_string(), first.to_string()), "{actuator}");
        // No check comes before the end.
        let (unseen, unseen_child) = (service.thread(None), service.child());
        let lines = confiner.release();
        for thread in [seen, child, unseen, unseen_child, service.taker] {
            assert_eq!(mask(thread), both, "{actuator}, {thread}: {lines:?}");
        }
        assert_eq!(fs::read_to_string(format!("/proc/{child}/cgroup")).unwrap(), service.cgroups());
    }
}

#[test]
fn a_thread_that_appears_elsewhere_is_confined_and_keeps_what_it_chose() {
    let Some((first, second)) = two_cpus() else { return };
    let (_folder, root) = machine();
    let mut service = Running::start();
    let mut confiner = open(&root, &service, ConfineActuator::Affinity).unwrap();
    confiner.confine(&one(second)).unwrap();
    let own = service.thread(Some(first));
    assert_eq!(mask(own), first.to_string(), "affinity cannot keep a thread from choosing");
    let drift = confiner.check().unwrap();
    assert_eq!((drift.confined, drift.foreign), (1, vec![]));
    assert_eq!(mask(own), second.to_string());
    confiner.release();
    assert_eq!(mask(own), first.to_string());
}

#[test]
fn somebody_elses_change_is_reported_and_stays() {
    let Some((first, second)) = two_cpus() else { return };
    let (_folder, root) = machine();
    let mut service = Running::start();
    let other = service.thread(None);
    let both = mask(other);
    let mut confiner = open(&root, &service, ConfineActuator::Affinity).unwrap();
    confiner.confine(&one(second)).unwrap();
    let taker = service.here(first);
    for _ in 0..2 {
        let drift = confiner.check().unwrap();
        assert_eq!((drift.confined, drift.foreign.len()), (0, 1), "{drift:?}");
        let text = drift.foreign[0].to_string();
        assert!(text.contains(&format!("thread {taker} of process {}", service.pid())), "{text}");
        assert_eq!(mask(taker), first.to_string(), "a look changes nothing");
    }
    let lines = confiner.release();
    assert_eq!((mask(taker), mask(other)), (first.to_string(), both.clone()));
    assert!(lines.iter().any(|line| line.contains("left alone")), "{lines:?}");
    // Put in force again over their change, their change comes back.
    confiner.confine(&one(second)).unwrap();
    service.here(first);
    assert_eq!(confiner.reassert().unwrap().changed, 1);
    assert_eq!(mask(taker), second.to_string());
    assert_eq!(confiner.check().unwrap(), Default::default());
    confiner.release();
    assert_eq!((mask(taker), mask(other)), (first.to_string(), both));
    assert_eq!(confiner.reassert().unwrap(), Default::default(), "nothing is asked for");
}

/// There are more than have their file kept open.
#[test]
fn a_process_that_somebody_moves_out_is_found_among_many() {
    let Some((_, second)) = two_cpus() else { return };
    if !actuators().contains(&ConfineActuator::CpusetV1) {
        return;
    }
    let (_folder, root) = machine();
    let mut service = Running::start();
    let before = service.cgroups();
    let children: Vec<u32> = (0..80).map(|_| service.child()).collect();
    let mut confiner = open(&root, &service, ConfineActuator::CpusetV1).unwrap();
    confiner.confine(&one(second)).unwrap();
    assert_eq!(confiner.check().unwrap(), Default::default());
    let file_of = |process: u32| format!("/proc/{process}/task/{process}/cgroup");
    let ours: Vec<_> = children.iter().copied().chain([service.pid()]).map(file_of).collect();
    let kept = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        links.filter(|link| ours.iter().any(|file| Path::new(file) == link)).count()
    };
    assert_eq!(kept(), 64, "descriptors are not without end");
    let place = Path::new("/").join(confiner.place().unwrap());
    let above = place.ancestors().nth(2).unwrap().join("cgroup.procs");
    let (first, last) = (children[0], children[79]);
    for (left, gone) in [(first, vec![first]), (last, vec![first, last])] {
        fs::write(&above, left.to_string()).unwrap();
        for _ in 0..2 {
            let found: BTreeSet<_> =
                confiner.check().unwrap().foreign.into_iter().map(|one| one.what).collect();
            let gone: BTreeSet<_> =
                gone.iter().map(|process| format!("cgroup of process {process}")).collect();
            assert_eq!(found, gone);
        }
    }
    let lines = confiner.release();
    assert_eq!(kept(), 0, "no process is kept any more");
    for child in children {
        assert_eq!(fs::read_to_string(format!("/proc/{child}/cgroup")).unwrap(), before, "{lines:?}");
    }
}

#[test]
fn a_service_that_becomes_another_program_is_still_the_same() {
    let Some((_, second)) = two_cpus() else { return };
    for actuator in actuators() {
        let (_folder, root) = machine();
        let mut service = Running::start();
        service.thread(None);
        let both = mask(service.taker);
        let mut confiner = open(&root, &service, actuator).unwrap();
        confiner.confine(&one(second)).unwrap();
        service.become_another();
        assert_eq!(masks(service.pid()), [(service.pid(), second.to_string())].into(), "{actuator}");
        assert_eq!(confiner.check().unwrap(), Default::default(), "{actuator}");
        let lines = confiner.release();
        assert_eq!(mask(service.pid()), both, "{actuator}: {lines:?}");
    }
}

/// A cpuset of version 1, which goes with its last process.
struct Own(std::path::PathBuf);

impl Own {
    fn with(service: &Running, cpus: &CpuList) -> Option<Self> {
        let all = Path::new("/sys/fs/cgroup/cpuset");
        let own = Self(all.join(format!("roost-test-{}", std::process::id())));
        if let Err(error) = fs::create_dir(&own.0) {
            eprintln!("SKIPPED: no cpuset of version 1 can be made here: {error}");
            return None;
        }
        fs::write(own.0.join("cpuset.mems"), fs::read(all.join("cpuset.mems")).unwrap()).unwrap();
        own.set(cpus);
        fs::write(own.0.join("cgroup.procs"), service.pid().to_string()).unwrap();
        Some(own)
    }

    fn set(&self, cpus: &CpuList) {
        fs::write(self.0.join("cpuset.cpus"), cpus.to_string()).unwrap();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_cpuset_that_another_program_changes_is_followed() {
    let Some((first, second)) = two_cpus() else { return };
    let both = CpuList([CpuId(first), CpuId(second)].into());
    let (_folder, root) = machine();
    let mut service = Running::start();
    service.thread(None);
    let Some(own) = Own::with(&service, &both) else { return };
    let all_on = |cpus: &CpuList| service.masks().values().all(|mask| *mask == cpus.to_string());
    for (before, asked, now) in [(&both, first, &one(second)), (&one(second), second, &both)] {
        let mut confiner = open(&root, &service, ConfineActuator::Affinity).unwrap();
        assert_eq!(confiner.allowed(), before);
        confiner.confine(&one(asked)).unwrap();
        assert!(all_on(&one(asked)), "{:?}", service.masks());
        own.set(now);
        confiner.follow(before);
        assert!(all_on(now), "{:?}", service.masks());
    }
    drop(service);
    drop(own);
}

#[test]
fn a_service_that_ends_is_told_and_leaves_nothing() {
    let Some((_, second)) = two_cpus() else { return };
    for actuator in actuators() {
        let (_folder, root) = machine();
        let service = Running::start();
        let mut confiner = open(&root, &service, actuator).unwrap();
        confiner.confine(&one(second)).unwrap();
        drop(service);
        assert!(matches!(confiner.check(), Err(ConfineError::Ended)), "{actuator}");
        let lines = confiner.release();
        assert!(lines.iter().all(|line| !line.contains("not put back")), "{actuator}: {lines:?}");
        drop(confiner);
        assert_eq!(fs::read_dir(root.path("run/roost")).unwrap().count(), 0, "{actuator}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let Some((first, second)) = two_cpus() else { return };
    let (_folder, root) = machine();
    let service = Running::start();
    let mut confiner = open(&root, &service, ConfineActuator::Affinity).unwrap();
    assert!(matches!(confiner.confine(&CpuList::default()), Err(ConfineError::Empty)));
    let error = confiner.confine(&CpuList([CpuId(first), CpuId(1000)].into())).unwrap_err();
    assert!(error.to_string().contains("CPU 1000 is not available"), "{error}");
    assert_eq!(mask(service.taker), allowed_cpus().unwrap().to_string(), "nothing was changed");
    confiner.confine(&one(second)).unwrap();
    let error = open(&root, &service, ConfineActuator::Affinity).unwrap_err();
    let me = format!("test (process {})", std::process::id());
    assert!(matches!(&error, ConfineError::Held { holder, .. } if *holder == me), "{error}");
    assert_eq!(mask(service.taker), second.to_string(), "and it disturbed no holder");
    let gone = linux::service::Service { processes: [u32::MAX].into(), ..Default::default() };
    let error = Confiner::open(&root, &gone, ConfineOptions::new("test")).unwrap_err();
    assert!(matches!(error, ConfineError::NoProcess { .. }), "{error}");
    for actuator in [ConfineActuator::Systemd, ConfineActuator::CpusetV2] {
        // The root cgroup, the wrong version, no systemd: the reason is reported and nothing is
        // left behind.
        let other = Running::start();
        let (_folder, root) = machine();
        let error = open(&root, &other, actuator).unwrap_err();
        assert!(matches!(error, ConfineError::Unsupported { .. }), "{error}");
        println!("{error}");
    }
}

#[test]
fn beside_a_scheduler_in_bpf_a_bound_thread_tries_first() {
    let Some((_, second)) = two_cpus() else { return };
    let (_folder, root) = machine();
    // The machine's own /sys, and a scheduler in it.
    let beside = |above: &str, but: &str| {
        fs::create_dir(root.path(above)).unwrap();
        for entry in fs::read_dir(Path::new("/").join(above)).unwrap().flatten() {
            if entry.file_name() != but {
                std::os::unix::fs::symlink(entry.path(), root.path(above).join(entry.file_name())).unwrap();
            }
        }
    };
    fs::remove_file(root.path("sys")).unwrap();
    beside("sys", "kernel");
    beside("sys/kernel", "sched_ext");
    let folder = root.path("sys/kernel/sched_ext");
    fs::create_dir_all(folder.join("root")).unwrap();
    fs::write(folder.join("state"), "enabled\n").unwrap();
    fs::write(folder.join("root/ops"), "lavd_1.1.4\n").unwrap();
    let service = Running::start();
    let mut confiner = open(&root, &service, ConfineActuator::Affinity).unwrap();
    let told = confiner.drain_notices();
    assert!(told.iter().any(|notice| notice.contains("lavd_1.1.4, which keeps threads")), "{told:?}");
    confiner.confine(&one(second)).unwrap();
    assert_eq!(mask(service.taker), second.to_string());
}

#[test]
fn the_best_that_works_is_taken_and_the_better_ones_are_named() {
    let Some((_, second)) = two_cpus() else { return };
    let (_folder, root) = machine();
    let service = Running::start();
    let before = state(&service);
    let mut confiner = Confiner::open(&root, &service.service(), ConfineOptions::new("test")).unwrap();
    let notices = confiner.drain_notices();
    assert!(notices.iter().all(|notice| notice.starts_with("not by ")), "{notices:?}");
    assert!(confiner.drain_notices().is_empty(), "each once");
    println!("{}: {notices:?}", confiner.actuator());
    confiner.confine(&one(second)).unwrap();
    assert_eq!(mask(service.taker), second.to_string());
    drop(confiner);
    assert_eq!(state(&service), before);
}

#[test]
fn moving_four_threads_is_quick() {
    let Some((first, second)) = two_cpus() else { return };
    for actuator in actuators() {
        let (_folder, root) = machine();
        let mut service = Running::start();
        while service.masks().len() < 4 {
            service.thread(None);
        }
        let mut confiner = open(&root, &service, actuator).unwrap();
        let mut times: Vec<_> = (0..200)
            .map(|round| {
                let begun = std::time::Instant::now();
                let set = one(if round % 2 == 0 { first } else { second });
                assert_eq!(confiner.confine(&set).unwrap().changed, 4);
                begun.elapsed()
            })
            .collect();
        times.sort();
        let begun = std::time::Instant::now();
        confiner.check().unwrap();
        println!(
            "{actuator}: 4 threads moved in {:?} (p99 {:?}), a check {:?}",
            times[100],
            times[198],
            begun.elapsed()
        );
        // The machine does other work too; the figure is printed, this only catches a wrong order.
        assert!(times[100] < std::time::Duration::from_millis(5), "{actuator}: {:?}", times[100]);
    }
}

/// Not a test of its own: the body of a process that confines a service and dies.
#[test]
fn victim() {
    let Ok(root) = std::env::var(CHILD_ROOT) else { return };
    let plan = std::env::var(CHILD_PLAN).unwrap();
    let words: Vec<&str> = plan.split(' ').collect();
    let [actuator, service, first, second, dies_at] = words[..] else { panic!("{plan}") };
    let actuator = match actuator {
        "v1" => ConfineActuator::CpusetV1,
        "v2" => ConfineActuator::CpusetV2,
        _ => ConfineActuator::Affinity,
    };
    let (first, second): (u16, u16) = (first.parse().unwrap(), second.parse().unwrap());
    let mut left: Option<usize> = dies_at.parse().ok();
    let checkpoint = Box::new(move |_: Step| {
        if let Some(left) = &mut left {
            *left -= 1;
            if *left == 0 {
                die();
            }
        }
    });
    let root = Root::at(root);
    let service = linux::service::of_process(&Root::system(), service.parse().unwrap()).unwrap();
    let options = ConfineOptions {
        actuator: Some(actuator),
        checkpoint: Some(checkpoint),
        ..ConfineOptions::new("victim")
    };
    let mut confiner = Confiner::open(&root, &service, options).unwrap();
    // Narrow, move, widen, narrow again: every kind of change there is.
    confiner.confine(&one(second)).unwrap();
    confiner.confine(&one(first)).unwrap();
    confiner.confine(&CpuList([CpuId(first), CpuId(second)].into())).unwrap();
    confiner.confine(&one(second)).unwrap();
    println!("it is confined");
    die();
}

fn die() {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

/// Runs a victim up to the given step, or to its end; true if it had fewer steps.
pub fn dies_at(
    root: &Path,
    service: &Running,
    actuator: ConfineActuator,
    (first, second): (u16, u16),
    step: Option<usize>,
) -> bool {
    let actuator = match actuator {
        ConfineActuator::CpusetV1 => "v1",
        ConfineActuator::CpusetV2 => "v2",
        _ => "affinity",
    };
    let step = step.map_or("never".to_owned(), |step| step.to_string());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "confine::victim", "--nocapture", "--test-threads=1"])
        .env(CHILD_ROOT, root)
        .env(CHILD_PLAN, format!("{actuator} {} {first} {second} {step}", service.pid()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success(), "it is killed");
    String::from_utf8_lossy(&output.stdout).contains("it is confined")
}

#[test]
fn a_kill_between_any_two_steps_is_undone() {
    let Some((first, second)) = two_cpus() else { return };
    for actuator in actuators() {
        let mut service = Running::start();
        service.thread(None);
        service.thread(Some(first));
        service.thread(Some(second));
        let before = state(&service);
        let (mut step, mut changed) = (1, 0);
        loop {
            let (folder, root) = machine();
            let survived = dies_at(folder.path(), &service, actuator, (first, second), Some(step));
            changed += usize::from(state(&service) != before);
            let report = restore(&root).unwrap();
            assert_eq!(state(&service), before, "{actuator}, step {step}: {report:?}");
            assert_eq!((report.left_alone, report.failed), (0, 0), "{actuator}, step {step}: {report:?}");
            let again = restore(&root).unwrap();
            assert_eq!(again.put_back, 0, "twice is once: {again:?}");
            if survived {
                break;
            }
            step += 1;
        }
        println!("{actuator}: {step} steps, {changed} left the service changed");
        assert!(step > 9 && changed > 6, "{actuator}: {step} steps, {changed} left the service changed");
    }
}

#[test]
fn who_is_born_between_the_kill_and_the_restore_is_freed() {
    let Some((first, second)) = two_cpus() else { return };
    for actuator in actuators() {
        let (folder, root) = machine();
        let mut service = Running::start();
        let pinned = service.thread(Some(first));
        let both = mask(service.taker);
        assert!(dies_at(folder.path(), &service, actuator, (first, second), None));
        let (thread, child) = (service.thread(None), service.child());
        assert_eq!(
            (mask(thread), mask(child), mask(pinned)),
            (second.to_string(), second.to_string(), second.to_string())
        );
        let report = restore(&root).unwrap();
        for one in [service.taker, thread, child] {
            assert_eq!(mask(one), both, "{actuator}: {report:?}");
        }
        assert_eq!(mask(pinned), first.to_string(), "{actuator}: {report:?}");
    }
}

#[test]
fn after_a_kill_somebody_elses_change_is_left_alone() {
    let Some((first, second)) = two_cpus() else { return };
    let (folder, root) = machine();
    let mut service = Running::start();
    let other = service.thread(None);
    let both = mask(other);
    assert!(dies_at(folder.path(), &service, ConfineActuator::Affinity, (first, second), None));
    let taker = service.here(first);
    // The next one to confine it puts the dead one's changes back before its first reading.
    let mut confiner = open(&root, &service, ConfineActuator::Affinity).unwrap();
    let notices = confiner.drain_notices();
    assert!(notices.iter().any(|notice| notice.contains("left alone")), "{notices:?}");
    assert_eq!((mask(taker), mask(other)), (first.to_string(), both.clone()));
    assert_eq!(confiner.allowed().to_string(), both);
}

#[test]
fn a_thread_that_bears_the_number_of_a_dead_one_is_left_alone() {
    let Some((first, second)) = two_cpus() else { return };
    let (folder, root) = machine();
    let mut service = Running::start();
    assert!(dies_at(folder.path(), &service, ConfineActuator::Affinity, (first, second), None));
    let run = folder.path().join("run/roost");
    let journal = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path());
    let journal =
        journal.into_iter().find(|path| path.extension().is_some_and(|end| end == "journal")).unwrap();
    // The dead one's journal, and another process in the place of the service: all numbers, but
    // none of the times.
    drop(service);
    service = Running::start();
    let before = service.here(second);
    let text = fs::read_to_string(&journal).unwrap();
    let entry = format!("affinity/{}:1/{}:1", service.pid(), before);
    let run_line = text.lines().next().unwrap();
    fs::write(&journal, format!("{run_line}\n{}", intent(&entry, "0", &second.to_string()))).unwrap();
    let report = restore(&root).unwrap();
    assert_eq!(report.put_back, 0, "{report:?}");
    assert!(report.lines.iter().any(|line| line.contains("no longer exists")), "{report:?}");
    assert_eq!(mask(before), second.to_string());
}

/// A line of a journal, as `journal/record.rs` describes it.
fn intent(path: &str, before: &str, after: &str) -> String {
    let json = format!(r#"{{"record":"intent","path":"{path}","before":"{before}","after":"{after}"}}"#);
    let sum = json
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{sum:016x} {json}\n")
}

/// As after a program with the set-user-ID bit: a child of another user.
#[test]
fn where_one_users_processes_may_be_confined_others_are_left_alone() {
    const USER: u32 = 65_534;
    let Some((first, _)) = two_cpus() else { return };
    let child_first = "sleep 600 >/dev/null 2>&1 & echo $!; \
                       exec setpriv --reuid 65534 --clear-groups sleep 600 >/dev/null 2>&1";
    let mut parent = Command::new("sh");
    let mut parent = parent.args(["-c", child_first]).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(parent.stdout.take().unwrap()), &mut child)
        .unwrap();
    let (own, foreign) = (parent.id(), child.trim().parse::<u32>().unwrap());
    let end = |mut parent: std::process::Child| {
        parent.kill().unwrap();
        parent.wait().unwrap();
        Command::new("kill").arg(foreign.to_string()).status().unwrap();
    };
    use std::os::unix::fs::MetadataExt as _;
    let runs_sleep = || fs::read_to_string(format!("/proc/{own}/comm")).unwrap().trim() == "sleep";
    while !runs_sleep() && parent.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    if fs::metadata(format!("/proc/{own}")).map(|folder| folder.uid()).ok() != Some(USER) {
        eprintln!("skipped: no process of another user can be had");
        return end(parent);
    }
    let (_folder, root) = machine();
    let service = |process| linux::service::Service {
        name: "test".to_owned(),
        processes: BTreeSet::from([process]),
        ports: BTreeSet::new(),
    };
    let options = || ConfineOptions {
        actuator: Some(ConfineActuator::Affinity),
        only_user: Some(USER),
        ..ConfineOptions::new("test")
    };
    let refused = Confiner::open(&root, &service(foreign), options()).err();
    assert!(
        matches!(refused, Some(ConfineError::NotOwn { process, user: USER }) if process == foreign),
        "{refused:?}"
    );
    let before = mask(foreign);
    let mut confiner = Confiner::open(&root, &service(own), options()).unwrap();
    confiner.confine(&one(first)).unwrap();
    confiner.check().unwrap();
    assert_eq!((mask(own), mask(foreign)), (first.to_string(), before));
    drop(confiner);
    end(parent);
}
