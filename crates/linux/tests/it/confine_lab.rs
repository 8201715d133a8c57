//! A service in a cgroup of version 2 of its own, on the lab's machine of eight CPUs
//! (`lab/run confine`): its cpuset shrinks and grows, and everything comes back, the controllers in
//! the cgroups above included.

use crate::confine::dies_at;
use crate::service::{Running, machine, mask};
use linux::service::{cpus_in_force, cpuset_file};
use linux::{ConfineActuator, ConfineError, ConfineOptions, Confiner, Root, restore};
use machine::CpuList;
use std::fs;
use std::path::{Path, PathBuf};

const CGROUPS: &str = "/sys/fs/cgroup";

/// `/sys/fs/cgroup/NAME/shop`, removed in the end.
struct Shop {
    slice: PathBuf,
    folder: PathBuf,
}

impl Shop {
    fn open(name: &str) -> Self {
        let slice = Path::new(CGROUPS).join(name);
        let folder = slice.join("shop");
        fs::create_dir_all(&folder).expect("this needs the lab's machine: run `lab/run confine`");
        Self { slice, folder }
    }

    fn take_in(&self, process: u32) {
        fs::write(self.folder.join("cgroup.procs"), process.to_string()).unwrap();
    }

    /// The state to compare before and after: enabled controllers, and CPUs.
    fn state(&self) -> Vec<Option<String>> {
        let files = [
            Path::new(CGROUPS).join("cgroup.subtree_control"),
            self.slice.join("cgroup.subtree_control"),
            self.slice.join("cpuset.cpus"),
            self.cpus(),
        ];
        files.iter().map(|file| fs::read_to_string(file).ok()).collect()
    }

    fn cpus(&self) -> PathBuf {
        self.folder.join("cpuset.cpus")
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        // Its members are dead, but perhaps not quite gone.
        for folder in [&self.folder, &self.slice] {
            for _ in 0..1000 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }
}

fn cpus(text: &str) -> CpuList {
    text.parse().unwrap()
}

fn v2() -> ConfineOptions {
    ConfineOptions { actuator: Some(ConfineActuator::CpusetV2), ..ConfineOptions::new("lab") }
}

/// Kernels since 6.2 remember a thread's own CPUs.
fn remembers() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

#[test]
#[ignore = "needs cgroups of version 2 and eight CPUs: lab/run confine"]
fn a_cpuset_shrinks_and_grows_and_is_as_it_was() {
    let (_folder, root) = machine();
    let shop = Shop::open("lab-shrinks");
    let mut service = Running::start();
    let free = service.thread(None);
    shop.take_in(service.pid());
    let (before, masks) = (shop.state(), service.masks());
    let mut confiner = Confiner::open(&root, &service.service(), ConfineOptions::new("lab")).unwrap();
    assert_eq!(confiner.actuator(), ConfineActuator::CpusetV2, "{:?}", confiner.drain_notices());
    assert_eq!(service.masks(), masks, "opening takes no CPU away");
    for set in ["0-3", "2", "1,6-7", "0-7", "5-6"] {
        let confined = confiner.confine(&cpus(set)).unwrap();
        assert_eq!((confined.in_force, confined.threads), (cpus(set), masks.len()));
        assert!(service.masks().values().all(|mask| mask == set), "{set}: {:?}", service.masks());
        assert_eq!(confiner.check().unwrap(), Default::default(), "{set}");
    }
    let (thread, child) = (service.thread(None), service.child());
    assert_eq!((mask(thread), mask(child), mask(free)), ("5-6".into(), "5-6".into(), "5-6".into()));
    let lines = confiner.release();
    assert_eq!(shop.state(), before, "{lines:?}");
    for one in [thread, child, free, service.taker] {
        assert_eq!(mask(one), "0-7", "{lines:?}");
    }
    confiner.confine(&cpus("4")).unwrap();
    drop(confiner);
    assert_eq!((shop.state(), mask(free)), (before, "0-7".to_owned()));
    assert_eq!(fs::read_dir(root.path("run/roost")).unwrap().count(), 0);
}

#[test]
#[ignore = "needs cgroups of version 2 and eight CPUs: lab/run confine"]
fn where_the_controller_was_enabled_already_all_cpus_come_back() {
    let (_folder, root) = machine();
    let shop = Shop::open("lab-enabled");
    let mut service = Running::start();
    shop.take_in(service.pid());
    let enabled = [Path::new(CGROUPS), &shop.slice].map(|folder| folder.join("cgroup.subtree_control"));
    for file in &enabled {
        fs::write(file, "+cpuset").unwrap();
    }
    let mut confiner = Confiner::open(&root, &service.service(), v2()).unwrap();
    confiner.confine(&cpus("3")).unwrap();
    let lines = confiner.release();
    let thread = service.thread(None);
    assert_eq!((mask(thread), mask(service.taker)), ("0-7".into(), "0-7".into()), "{lines:?}");
    let reads = fs::read_to_string(shop.cpus()).unwrap();
    println!("after a release cpuset.cpus reads {reads:?}: {lines:?}");
    assert!(["\n", "0-7\n"].contains(&reads.as_str()), "{reads:?}");
    // A list of its own comes back to the letter.
    fs::write(shop.cpus(), "1-6").unwrap();
    confiner.confine(&cpus("3")).unwrap();
    drop(confiner);
    assert_eq!((fs::read_to_string(shop.cpus()).unwrap().trim(), mask(thread).as_str()), ("1-6", "1-6"));
    for file in enabled.iter().rev() {
        fs::write(file, "-cpuset").unwrap();
    }
}

#[test]
#[ignore = "needs cgroups of version 2 and eight CPUs: lab/run confine"]
fn a_cpuset_that_a_kubelet_changes_is_followed_by_affinity() {
    let (_folder, root) = machine();
    let shop = Shop::open("lab-follows");
    let mut service = Running::start();
    service.thread(None);
    shop.take_in(service.pid());
    let enabled = [Path::new(CGROUPS), &shop.slice].map(|folder| folder.join("cgroup.subtree_control"));
    for file in &enabled {
        fs::write(file, "+cpuset").unwrap();
    }
    let set = |text: &str| fs::write(shop.cpus(), text).unwrap();
    set("0-3");
    let file = cpuset_file(&Root::system(), shop.slice.to_str().unwrap(), service.pid()).unwrap();
    for (before, asked, now) in [("0-3", "0", "2-3"), ("2-3", "2", "2-6"), ("2-6", "5", "0-7")] {
        assert_eq!(cpus_in_force(&Root::system(), &file), Some(cpus(before)));
        let affinity =
            ConfineOptions { actuator: Some(ConfineActuator::Affinity), ..ConfineOptions::new("lab") };
        let mut confiner = Confiner::open(&root, &service.service(), affinity).unwrap();
        assert_eq!(confiner.allowed(), &cpus(before));
        confiner.confine(&cpus(asked)).unwrap();
        set(now);
        confiner.follow(&cpus(before));
        assert!(service.masks().values().all(|mask| mask == now), "{now}: {:?}", service.masks());
    }
    drop(service);
    for file in enabled.iter().rev() {
        fs::write(file, "-cpuset").unwrap();
    }
}

#[test]
#[ignore = "needs cgroups of version 2 and eight CPUs: lab/run confine"]
fn pinned_threads_keep_their_own_or_are_not_put_in_a_cpuset() {
    let (_folder, root) = machine();
    let shop = Shop::open("lab-pinned");
    let mut service = Running::start();
    shop.take_in(service.pid());
    let (two, five) = (service.thread(Some(2)), service.thread(Some(5)));
    let (before, masks) = (shop.state(), service.masks());
    let mut confiner = Confiner::open(&root, &service.service(), ConfineOptions::new("lab")).unwrap();
    let notices = confiner.drain_notices();
    if remembers() {
        assert_eq!(confiner.actuator(), ConfineActuator::CpusetV2, "{notices:?}");
    } else {
        assert_eq!(confiner.actuator(), ConfineActuator::Affinity, "{notices:?}");
        assert!(notices.iter().any(|notice| notice.contains("2 thread(s)")), "{notices:?}");
    }
    assert_eq!(service.masks(), masks);
    confiner.confine(&cpus("2-3")).unwrap();
    assert_eq!((mask(two), mask(five), mask(service.taker)), ("2".into(), "2-3".into(), "2-3".into()));
    confiner.confine(&cpus("4-5")).unwrap();
    assert_eq!((mask(two), mask(five)), ("4-5".into(), "5".into()));
    confiner.release();
    assert_eq!((service.masks(), shop.state()), (masks, before));
}

#[test]
#[ignore = "needs cgroups of version 2 and eight CPUs: lab/run confine"]
fn somebody_elses_cpus_are_reported_and_stay() {
    let (_folder, root) = machine();
    let shop = Shop::open("lab-foreign");
    let service = Running::start();
    shop.take_in(service.pid());
    let mut confiner = Confiner::open(&root, &service.service(), v2()).unwrap();
    confiner.confine(&cpus("2-3")).unwrap();
    fs::write(shop.cpus(), "6").unwrap();
    let drift = confiner.check().unwrap();
    assert_eq!(drift.foreign.len(), 1, "{drift:?}");
    assert!(drift.foreign[0].to_string().contains("cpuset.cpus: reads `6`"), "{}", drift.foreign[0]);
    let lines = confiner.release();
    assert!(lines.iter().any(|line| line.contains("left alone")), "{lines:?}");
    // Without the controller their CPUs would be gone, so that stays as well.
    assert_eq!((fs::read_to_string(shop.cpus()).unwrap().trim(), mask(service.taker).as_str()), ("6", "6"));
    drop(confiner);
    fs::write(shop.slice.join("cgroup.subtree_control"), "-cpuset").unwrap();
    fs::write(Path::new(CGROUPS).join("cgroup.subtree_control"), "-cpuset").unwrap();
}

#[test]
#[ignore = "needs cgroups of version 2 and eight CPUs: lab/run confine"]
fn a_cgroup_with_strangers_and_the_root_are_refused() {
    let (_folder, root) = machine();
    let (service, stranger) = (Running::start(), Running::start());
    let error = Confiner::open(&root, &service.service(), v2()).unwrap_err().to_string();
    assert!(error.contains("root cgroup"), "{error}");
    let shop = Shop::open("lab-strangers");
    shop.take_in(service.pid());
    shop.take_in(stranger.pid());
    let before = shop.state();
    let error = Confiner::open(&root, &service.service(), v2()).unwrap_err();
    assert!(matches!(error, ConfineError::Unsupported { .. }));
    assert!(error.to_string().contains(&format!("({})", stranger.pid())), "{error}");
    assert_eq!(shop.state(), before);
    // As one service, named by its cgroup, the two may.
    let both = linux::service::of_cgroup(&root, "lab-strangers/shop").unwrap();
    let mut confiner = Confiner::open(&root, &both, v2()).unwrap();
    confiner.confine(&cpus("1")).unwrap();
    assert_eq!((mask(service.taker), mask(stranger.taker)), ("1".into(), "1".into()));
    drop(confiner);
    assert_eq!(shop.state(), before);
}

#[test]
#[ignore = "needs cgroups of version 2 and eight CPUs: lab/run confine"]
fn a_cpu_that_goes_offline_is_told_and_nobody_is_blamed() {
    /// CPU 3, which comes back even if the test fails.
    struct Offline;
    impl Offline {
        fn set(online: &str) {
            fs::write("/sys/devices/system/cpu/cpu3/online", online).unwrap();
        }
    }
    impl Drop for Offline {
        fn drop(&mut self) {
            Self::set("1");
        }
    }
    // Before 6.2 the kernel itself overwrites the affinity of every thread when a CPU goes.
    let tried = [ConfineActuator::CpusetV2, ConfineActuator::Affinity];
    for actuator in &tried[..if remembers() { 2 } else { 1 }] {
        let actuator = *actuator;
        let (_folder, root) = machine();
        let shop = Shop::open("lab-offline");
        let service = Running::start();
        shop.take_in(service.pid());
        let before = (shop.state(), service.masks());
        let options = ConfineOptions { actuator: Some(actuator), ..ConfineOptions::new("lab") };
        let mut confiner = Confiner::open(&root, &service.service(), options).unwrap();
        confiner.confine(&cpus("2-3")).unwrap();
        Offline::set("0");
        let offline = Offline;
        assert_eq!(confiner.check().unwrap(), Default::default(), "{actuator}");
        let confined = confiner.confine(&cpus("3-4")).unwrap();
        assert_eq!(confined.in_force, cpus("4"), "{actuator}");
        let error = confiner.confine(&cpus("3")).unwrap_err();
        assert!(matches!(error, ConfineError::NoneOnline { .. }), "{actuator}: {error}");
        drop(offline);
        assert_eq!(confiner.check().unwrap(), Default::default(), "{actuator}");
        let lines = confiner.release();
        assert_eq!((shop.state(), service.masks()), before, "{actuator}: {lines:?}");
    }
}

#[test]
#[ignore = "needs cgroups of version 2 and eight CPUs: lab/run confine"]
fn a_kill_between_any_two_steps_is_undone_in_version_2() {
    let shop = Shop::open("lab-killed");
    let service = Running::start();
    shop.take_in(service.pid());
    let before = (shop.state(), service.masks());
    let mut changed = 0;
    for step in 1.. {
        // Each step starts a process, which takes seconds on a busy host: the output shows that the
        // lab goes on.
        println!("step {step}");
        let (folder, root) = machine();
        let survived = dies_at(folder.path(), &service, ConfineActuator::CpusetV2, (2, 5), Some(step));
        changed += usize::from((shop.state(), service.masks()) != before);
        let report = restore(&root).unwrap();
        assert_eq!((shop.state(), service.masks()), before, "step {step}: {report:?}");
        assert_eq!((report.left_alone, report.failed), (0, 0), "step {step}: {report:?}");
        if survived {
            // Two controllers and four sets of CPUs, at three steps each.
            assert!(step == 19 && changed > 14, "{step} steps, {changed} left the machine changed");
            break;
        }
    }
}
