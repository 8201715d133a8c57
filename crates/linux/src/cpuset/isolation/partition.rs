//! An isolated partition of the parked CPUs, a cgroup of our own: the module above says why.

use super::{CpuIsolation, Placement};
use crate::knob::{CPUSET, PARTITION};
use machine::CpuList;

/// The controllers of the groups at the top.
const CONTROLLERS: &str = "sys/fs/cgroup/cgroup.subtree_control";

impl CpuIsolation {
    /// Makes the partition, or ends it. True if it is in force.
    pub(super) fn set_aside(&mut self, whereabouts: &Placement) -> bool {
        if let Some(cpus) = whereabouts.isolated.as_ref().filter(|_| !self.refused.contains(PARTITION)) {
            let mut told = Ok(String::new());
            if !self.journal.held().contains_key(PARTITION) {
                // A text that the kernel changes for a partition must not be ours: it would read as
                // another program's.
                self.move_tasks(None, &whereabouts.own, false);
                told = self.journal.set(CONTROLLERS, CPUSET);
            }
            let told = told.and_then(|_| self.journal.set(PARTITION, &cpus.to_string()));
            let reads = self.journal.read(PARTITION).unwrap_or_default();
            if told.is_ok() && reads.parse::<CpuList>().is_ok() {
                return true;
            }
            let why = told.err().map_or(format!("it reads `{reads}`"), |error| error.to_string());
            self.refused.insert(PARTITION.to_owned());
            self.notices.push(format!(
                "parked CPUs are no isolated partition ({why}); tasks leave them as with park = \"all\""
            ));
        }
        for path in [PARTITION, CONTROLLERS] {
            self.set(path, None);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Root;
    use crate::cpuset::isolation::{KTHREADD, WORK_QUEUES};

    fn all_tasks(cpus: &str) -> Placement {
        Placement { all_tasks: Some(cpus.parse().unwrap()), ..Placement::default() }
    }

    /// Set aside on the lab's machine.
    fn aside(parked: &str, others: &str) -> Placement {
        Placement { isolated: Some(parked.parse().unwrap()), ..all_tasks(others) }
    }

    /// The machine's state that a partition changes: the CPUs of a process in the root cgroup (this one), of
    /// the kernel's first thread and of a pinned one, the work queues' mask, and whether the group and the
    /// controller are there.
    fn parted(root: &Root, pinned: &str) -> [String; 6] {
        let allowed = |pid: &str| {
            let status = root.text(&format!("proc/{pid}/status")).unwrap();
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap().to_owned()
        };
        [
            allowed("self"),
            allowed(&KTHREADD.to_string()),
            allowed(&format!("self/task/{pinned}")),
            root.text(WORK_QUEUES).unwrap(),
            root.has(PARTITION).unwrap().to_string(),
            root.text(CONTROLLERS).unwrap(),
        ]
    }

    /// Not a test: sets CPUs aside, and kills itself at the step that the variable names.
    #[test]
    #[ignore = "the victim of another test"]
    fn a_real_partition_is_made() {
        let Ok(step) = std::env::var(DIES_AT) else { return };
        let mut left: usize = step.parse().unwrap();
        let checkpoint = Box::new(move |_| {
            left -= 1;
            if left == 0 {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
            }
        });
        let mut around = CpuIsolation::open_with(&Root::system(), "a test", Some(checkpoint)).unwrap();
        for (parked, others) in [("4-7", "0-3"), ("1-7", "0"), ("6-7", "0-5")] {
            around.keep_on(&aside(parked, others));
        }
        around.keep_on(&all_tasks("0-6"));
        around.release();
    }

    const DIES_AT: &str = "ROOST_LAB_DIES_AT";

    #[test]
    #[ignore = "needs eight CPUs and cgroups of version 2: run `lab/run isolate`"]
    fn a_real_partition_keeps_tasks_off_and_all_is_as_it_was() {
        use std::process::{Command, Stdio};
        if std::env::var_os(DIES_AT).is_some() {
            return;
        }
        let root = Root::system();
        // A thread that chose a CPU which will be parked.
        let (told, pinned) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            crate::pin_current_thread(machine::CpuId(6)).unwrap();
            told.send(rustix::thread::gettid().as_raw_nonzero().to_string()).unwrap();
            std::thread::park();
        });
        let pinned = pinned.recv().unwrap();
        let parted = || parted(&root, &pinned);
        let before = parted();
        assert_eq!((before[0].as_str(), before[2].as_str()), ("0-7", "6"));
        let mut around = CpuIsolation::open(&root, "a test").unwrap();
        around.keep_on(&aside("3-7", "0-2"));
        let notices = around.drain_notices();
        if !notices.is_empty() {
            println!("SKIPPED: {notices:?}");
            assert_eq!(parted()[4], "false", "nothing half made stays");
        } else {
            let [own, kernel, pinned, queues, ..] = parted();
            assert_eq!([&*own, &kernel, &pinned, queues.trim_start_matches('0')], ["0-2", "0-2", "0-2", "7"]);
            around.keep_on(&aside("6-7", "0-5"));
            assert_eq!(parted()[0], "0-5");
            around.keep_on(&aside("1-7", "0"));
            assert_eq!(parted()[0], "0");
            around.keep_on(&all_tasks("0-6"));
            assert_eq!([&parted()[0], &parted()[2], &parted()[4]], ["0-7", "6", "false"]);
            around.keep_on(&aside("4-7", "0-3"));
        }
        // Another program takes the controller away, and with it the partition.
        let controllers = root.path(CONTROLLERS);
        crate::root::overwrite(&controllers, "-cpuset").unwrap();
        around.keep_on(&aside("2-7", "0-1"));
        assert_eq!(parted()[4], "false", "{:?}", around.drain_notices());
        let lines = around.release();
        assert_eq!(parted(), before, "{lines:?}");
        drop(around);

        for step in 1.. {
            let status = Command::new(std::env::current_exe().unwrap())
                .arg(module_path!().split_once("::").unwrap().1.to_owned() + "::a_real_partition_is_made")
                .args(["--exact", "--ignored", "--nocapture"])
                .env(DIES_AT, step.to_string())
                .stdout(Stdio::null())
                .status()
                .unwrap();
            crate::restore(&root).unwrap();
            assert_eq!(parted(), before, "killed at step {step}");
            if status.success() {
                println!("killed at each of {} steps", step - 1);
                assert!(step > 10, "{step}");
                break;
            }
        }
    }
}
