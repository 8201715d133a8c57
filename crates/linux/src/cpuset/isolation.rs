//! Housekeeping: keeps everything that is not governed off the parked CPUs.
//!
//! A CPU that its service has left still wakes for others: for the kernel's own work queues, for
//! interrupts, for the rest of the machine's services. This module moves the movable ones:
//!
//! | object | by | text |
//! |---|---|---|
//! | unbound work queues of the kernel | `workqueue/cpumask` | a mask |
//! | grace-period threads (`rcu_preempt`, `rcu_sched`), woken by every close | their affinity | a list |
//! | interrupts requested from now on | `irq/default_smp_affinity` | a mask |
//! | other services, with systemd | `AllowedCPUs=` of each slice at the top, at run time | a list |
//! | other cgroups, without systemd | `cpuset.cpus` of each at the top that has it (version 2) | a list |
//!
//! And on request ([`Scope::interrupts`]), for it cannot be undone whole:
//!
//! | object | by | text |
//! |---|---|---|
//! | interrupts that are there, a network card's queues among them | `irq/N/smp_affinity` | a mask |
//! | the work of network queues that is spread by software (RPS) | `rps_cpus` | a mask |
//! | packets for queues whose interrupts go to other CPUs (RSS) | the card's indirection table | queues |
//!
//! The masks come back as they were. The kernel then chooses anew which of those CPUs an interrupt
//! goes to.
//!
//! Not movable: interrupts that their drivers keep (a queue for each CPU of an NVMe disk), threads
//! of the kernel that belong to a CPU, processes in the root cgroup, timers that were set there.
//! `roost govern status --wakeups` counts the rest.
//!
//! Invariants:
//! - One Roost process does this: there is a lock, held until the end.
//! - Everything is journalled first and put back: on release, on drop, and by
//!   [`restore`](crate::restore) after a SIGKILL.
//! - A cgroup or unit that a [`Confiner`](crate::Confiner) keeps is its own and is left alone.
//!   Narrowing a service comes before widening the others, and the other way round: a service never
//!   waits for its surroundings.

use crate::journal::{ChangeError, Journal, restore_at_start};
use crate::knob::{CGROUPS, MASKS, called, cpus_of, entries_of, indirection_of, mask_of, path_of, table_of};
use crate::lock::{LockError, Refusal, run_folder, take};
use crate::processes::service::{command, parent};
use crate::processes::threads::{ThreadName, began};
use crate::root::{FileError, Root};
use crate::system::interrupts::{
    interrupts_of_queues, masks_of_interrupts, masks_of_queues, network_devices,
};
use machine::CpuList;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;

/// The groups that are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scope {
    /// Work queues, new interrupts, other services.
    pub all_tasks: bool,
    /// Interrupts that are there already.
    pub interrupts: bool,
}

impl Scope {
    /// True if no group is moved.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Work queues, new interrupts, other services; `None`: where they were before.
    pub(crate) all_tasks: Option<CpuList>,
    /// Interrupts that are there already; `None`: where they were before.
    pub(crate) interrupts: Option<CpuList>,
    /// Places that are left alone (`Confiner::place`).
    pub(crate) own: BTreeSet<String>,
}

impl Placement {
    /// True if all are where they were before.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.all_tasks.is_none() && self.interrupts.is_none()
    }
}

/// Keeps all tasks and interrupts outside the service on some CPUs.
#[derive(Debug)]
pub(crate) struct CpuIsolation {
    root: Root,
    journal: Journal,
    /// Places that refused, each once.
    refused: BTreeSet<String>,
    notices: Vec<String>,
    _lock: File,
}

impl CpuIsolation {
    /// Takes the lock; an error names its holder.
    pub(crate) fn open(root: &Root, holder: &str) -> Result<Self, LockError> {
        let path = run_folder(root)?.join("surroundings.lock");
        let lock = take(&path, holder).map_err(|refusal| match refusal {
            Refusal::Taken(holder) => LockError::CpuIsolation { holder, path: path.clone() },
            other => other.at(path.clone()),
        })?;
        let notices = restore_at_start(root)?;
        let journal = Journal::begin(root, holder, None)?;
        Ok(Self { root: root.clone(), journal, refused: BTreeSet::new(), notices, _lock: lock })
    }

    /// Moves each group to its CPUs; a place in two groups is set by each.
    pub(crate) fn keep_on(&mut self, whereabouts: &Placement) {
        self.move_interrupts(whereabouts.interrupts.as_ref());
        let (mask, list) = (
            whereabouts.all_tasks.as_ref().map(mask_of),
            whereabouts.all_tasks.as_ref().map(CpuList::to_string),
        );
        for path in MASKS {
            self.set(path, mask.as_deref());
        }
        for path in self.grace_period_threads() {
            self.set(&path, list.as_deref());
        }
        for path in self.groups() {
            // A place that its Confiner keeps from now on gets its earlier text back.
            self.set(&path, list.as_deref().filter(|_| !whereabouts.own.contains(&path)));
        }
    }

    /// The notices since the last call: the remains of a dead run, and places that refused.
    pub(crate) fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Puts everything back now, one line per thing that is news. Dropping does the same in
    /// silence.
    pub(crate) fn release(&mut self) -> Vec<String> {
        let done = self.journal.put_back_all();
        done.iter().filter(|undone| undone.is_news()).map(ToString::to_string).collect()
    }

    /// `None` puts back.
    fn set(&mut self, path: &str, value: Option<&str>) {
        let told = match value {
            Some(value) => self.journal.set(path, value).map(drop),
            None => self.journal.put_back(path).map(drop),
        };
        match told {
            Ok(()) | Err(ChangeError::File(FileError::Missing { .. })) => {}
            Err(error) => {
                if self.refused.insert(path.to_owned()) {
                    self.notices.push(format!("{} stays as it is: {error}", called(path)));
                }
            }
        }
    }

    /// Interrupts that could go to another CPU shall not; one that could go to none of `cpus` may
    /// go to all of them.
    fn move_interrupts(&mut self, cpus: Option<&CpuList>) {
        let Some(cpus) = cpus else { return self.give_interrupts_back() };
        // Packets first: a queue whose interrupt moves onto a CPU is busy there until it gets none.
        let mut kept = self.spread_packets(cpus);
        for path in masks_of_interrupts(&self.root).into_iter().chain(masks_of_queues(&self.root)) {
            let Some(before) = self.journal.earlier(&path).ok().and_then(|mask| cpus_of(&mask)) else {
                continue;
            };
            // No mask at all: the queue's work is not spread.
            if before.0.is_empty() {
                continue;
            }
            let both = CpuList(&before.0 & &cpus.0);
            let wanted = if both.0.is_empty() { cpus } else { &both };
            let told = if *wanted == before {
                self.journal.put_back(&path).map(drop)
            } else {
                self.journal.set(&path, &mask_of(wanted)).map(drop)
            };
            // It has gone meanwhile, or its driver keeps it: the kernel says EIO or EPERM of those.
            if told.is_err() && self.refused.insert(path.clone()) {
                kept.push(path);
            }
        }
        if let Some(first) = kept.first() {
            let first = called(first);
            self.notices.push(match kept.len() - 1 {
                0 => format!("{first} stays as it is: the kernel or its driver keeps it"),
                more => {
                    format!("{first} and {more} more stay as they are: the kernel or their drivers keep them")
                }
            });
        }
    }

    /// Makes network cards give packets only to queues whose interrupts could go to one of the CPUs
    /// before we moved any. Returns the places that refused. A card all of whose queues belong
    /// elsewhere keeps its table: then only their interrupts can move.
    fn spread_packets(&mut self, cpus: &CpuList) -> Vec<String> {
        let mut kept = Vec::new();
        for device in network_devices(&self.root) {
            let path = indirection_of(&device);
            let Some(table) = self.journal.earlier(&path).ok().as_deref().and_then(entries_of) else {
                continue;
            };
            let mut elsewhere = BTreeSet::new();
            for (queue, interrupt) in interrupts_of_queues(&self.root, &device) {
                let mask = self.journal.earlier(&interrupt).ok().and_then(|mask| cpus_of(&mask));
                if mask.is_some_and(|mask| mask.0.is_disjoint(&cpus.0)) {
                    elsewhere.insert(queue);
                }
            }
            let told = match without(&table, &elsewhere) {
                Some(narrower) => self.journal.set(&path, &table_of(&narrower)).map(drop),
                None => self.journal.put_back(&path).map(drop),
            };
            if told.is_err() && self.refused.insert(path.clone()) {
                kept.push(path);
            }
        }
        kept
    }

    fn give_interrupts_back(&mut self) {
        let tables = network_devices(&self.root).into_iter().map(|device| indirection_of(&device));
        let masks = masks_of_interrupts(&self.root).into_iter().chain(masks_of_queues(&self.root));
        for path in masks.chain(tables) {
            if self.journal.put_back(&path).is_err() && self.refused.insert(path.clone()) {
                self.notices.push(format!("/{path} cannot be put back now; it is tried again at the end"));
            }
        }
    }

    /// Threads of the kernel that belong to no CPU and have a timer running while any task waits
    /// for a grace period: after each file that is closed, on 6.1.
    fn grace_period_threads(&self) -> Vec<String> {
        let is_one = |name: &str| matches!(name, "rcu_preempt" | "rcu_sched");
        let pids = self.root.names("proc").unwrap_or_default();
        pids.iter()
            .filter_map(|name| name.parse::<u32>().ok())
            .filter(|&pid| is_one(&command(&self.root, pid)) && parent(&self.root, pid) == Some(KTHREADD))
            .filter_map(|pid| Some(ThreadName::now(pid, began(pid, pid).ok()?, pid).ok()?.path()))
            .collect()
    }

    /// The movable groups at the top of the tree of cgroups.
    fn groups(&self) -> Vec<String> {
        let names = self.root.names(CGROUPS).unwrap_or_default();
        if self.root.has("run/systemd/system") == Some(true) {
            return names.iter().filter(|name| name.ends_with(".slice")).map(|name| path_of(name)).collect();
        }
        let file = |name: &String| format!("{CGROUPS}/{name}/cpuset.cpus");
        // In version 1 there is one such folder, the controller's own, and its root cannot be
        // moved.
        let is_group =
            |path: &String| self.root.has(&path.replace("cpuset.cpus", "cgroup.type")) == Some(true);
        names.iter().map(file).filter(|path| self.root.has(path) == Some(true)).filter(is_group).collect()
    }
}

/// A card's table with the remaining queues in place of those `elsewhere`, evenly; `None` if
/// nothing changes, or none is left.
fn without(table: &[u32], elsewhere: &BTreeSet<u32>) -> Option<Vec<u32>> {
    let left: BTreeSet<u32> = table.iter().copied().filter(|queue| !elsewhere.contains(queue)).collect();
    let is_needed = table.iter().any(|queue| elsewhere.contains(queue)) && !left.is_empty();
    let mut turn = left.iter().cycle();
    is_needed.then(|| {
        let entry =
            |&queue| if elsewhere.contains(&queue) { *turn.next().expect("some are left") } else { queue };
        table.iter().map(entry).collect()
    })
}

/// The parent of the kernel's threads.
const KTHREADD: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use crate::knob::Knob;

    fn machine() -> FakeMachine {
        let machine = FakeMachine::intel_server(8);
        machine.write("sys/devices/virtual/workqueue/cpumask", "ff\n");
        machine.write("proc/irq/default_smp_affinity", "ff\n");
        for name in ["shop", "rest"] {
            machine.write(&format!("sys/fs/cgroup/{name}/cgroup.type"), "domain\n");
            machine.write(&format!("sys/fs/cgroup/{name}/cpuset.cpus"), "\n");
        }
        machine.write("sys/fs/cgroup/without/cgroup.type", "domain\n");
        machine
    }

    fn all_tasks(cpus: &str) -> Placement {
        Placement { all_tasks: Some(cpus.parse().unwrap()), ..Placement::default() }
    }

    fn reads(machine: &FakeMachine) -> [String; 4] {
        [MASKS[0], MASKS[1], "sys/fs/cgroup/rest/cpuset.cpus", "sys/fs/cgroup/shop/cpuset.cpus"]
            .map(|path| machine.read(path))
    }

    #[test]
    fn all_other_tasks_are_moved_and_moved_back() {
        let machine = machine();
        let before = reads(&machine);
        let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
        around.keep_on(&all_tasks("0-1"));
        assert_eq!(reads(&machine), ["3", "3", "0-1", "0-1"]);
        around.keep_on(&all_tasks("0-3"));
        assert_eq!(reads(&machine)[0], "f");
        assert_eq!(around.drain_notices(), Vec::<String>::new());
        around.release();
        assert_eq!(reads(&machine), before);
        around.keep_on(&all_tasks("2"));
        drop(around);
        assert_eq!(reads(&machine), before);
    }

    #[test]
    fn a_killed_run_is_put_back_and_somebody_elses_change_stays() {
        let machine = machine();
        let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
        around.keep_on(&all_tasks("0-1"));
        // The administrator, meanwhile.
        machine.write(MASKS[1], "f0\n");
        let mut lines = around.release();
        lines.retain(|line| line.contains("left alone"));
        assert_eq!((lines.len(), machine.read(MASKS[1]).as_str()), (1, "f0"), "{lines:?}");
        assert_eq!(machine.read(MASKS[0]), "ff");
    }

    #[test]
    fn interrupts_move_where_that_is_asked_for_and_masks_come_back() {
        let machine = machine();
        let masks = ["proc/irq/4/smp_affinity", "proc/irq/9/smp_affinity", "proc/irq/31/smp_affinity"];
        let queues = ["rx-0", "rx-1"].map(|queue| format!("sys/class/net/eth0/queues/{queue}/rps_cpus"));
        let before = ["ff", "c0", "01", "00", "f0"];
        let files: Vec<&str> = masks.into_iter().chain(queues.iter().map(String::as_str)).collect();
        for (file, mask) in files.iter().zip(before) {
            machine.write(file, &format!("{mask}\n"));
        }
        machine.write("sys/class/net/lo/mtu", "65536\n");
        let read = || files.iter().map(|file| machine.read(file)).collect::<Vec<_>>();
        let interrupts =
            |cpus: &str| Placement { interrupts: Some(cpus.parse().unwrap()), ..Placement::default() };
        let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
        around.keep_on(&interrupts("0-1"));
        assert_eq!(read(), ["3", "3", "01", "00", "3"]);
        assert_eq!(machine.read(MASKS[0]), "ff", "no other group was requested");
        around.keep_on(&interrupts("0-1,6"));
        assert_eq!(read(), ["43", "40", "01", "00", "40"], "as near to what it was as there is");
        drop(around);
        assert_eq!(read(), before);
    }

    #[test]
    fn packets_go_to_queues_of_the_cpus_and_tables_come_back() {
        let machine = machine();
        let table = "ethtool/eth0/indirection";
        // Four queues, each of two CPUs.
        for (queue, mask) in ["03", "0c", "30", "c0"].iter().enumerate() {
            let number = 24 + queue;
            machine.write(&format!("sys/class/net/eth0/device/msi_irqs/{number}"), "msix\n");
            machine.write(&format!("proc/irq/{number}/eth0-TxRx-{queue}/.keep"), "");
            machine.write(&format!("proc/irq/{number}/smp_affinity"), &format!("{mask}\n"));
        }
        let before = "0,1,2,3,0,1,2,3";
        machine.write(table, &format!("{before}\n"));
        let interrupts =
            |cpus: &str| Placement { interrupts: Some(cpus.parse().unwrap()), ..Placement::default() };
        let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
        around.keep_on(&interrupts("0-3"));
        assert_eq!(machine.read(table), "0,1,0,1,0,1,0,1", "those of CPUs 4 to 7 get nothing");
        // Their interrupts were moved here meanwhile; they still are no queues of these CPUs.
        around.keep_on(&interrupts("0"));
        assert_eq!(machine.read(table), "0,0,0,0,0,0,0,0");
        around.keep_on(&interrupts("1,5"));
        assert_eq!(machine.read(table), "0,0,2,2,0,0,2,2");
        around.keep_on(&Placement::default());
        assert_eq!(machine.read(table), before);
        around.keep_on(&interrupts("2"));
        machine.write(table, "3,3,3,3,3,3,3,3\n");
        drop(around);
        assert_eq!(machine.read(table), "3,3,3,3,3,3,3,3", "another program's");
        let mut around = CpuIsolation::open(machine.root(), "a test").unwrap();
        around.keep_on(&interrupts("0-1"));
        assert_eq!(machine.read(table), "3,3,3,3,3,3,3,3", "no queue is left: its interrupt has moved");
        assert_eq!(around.drain_notices(), Vec::<String>::new());
    }

    /// The first card with a table, and that table.
    fn real_card(root: &Root) -> Option<(String, String)> {
        let table = |device: &String| Knob::at(root, &indirection_of(device))?.read().ok();
        network_devices(root).into_iter().find_map(|device| table(&device).map(|table| (device, table)))
    }

    /// Not a test: keeps the packets of a real card on two CPUs until it is killed, when that test
    /// starts this program again.
    #[test]
    #[ignore = "the victim of another test"]
    fn a_real_card_is_held() {
        if std::env::var_os(HOLDS).is_none() {
            return;
        }
        let mut around = CpuIsolation::open(&Root::system(), "a test").unwrap();
        around.keep_on(&Placement { interrupts: Some("2-3".parse().unwrap()), ..Placement::default() });
        println!("\nheld");
        std::thread::park();
    }

    const HOLDS: &str = "ROOST_LAB_HOLDS";

    #[test]
    #[ignore = "needs a network card that spreads packets: run `lab/run queues`"]
    fn a_real_card_gives_packets_to_queues_of_the_cpus() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};
        if std::env::var_os(HOLDS).is_some() {
            return;
        }
        let root = Root::system();
        let Some((device, before)) = real_card(&root) else {
            return println!("SKIPPED: no network card here spreads packets (RSS)");
        };
        let interrupts = interrupts_of_queues(&root, &device);
        assert_eq!(interrupts.len(), 8, "{interrupts:?}");
        let masks = || interrupts.values().map(|path| root.text(path).unwrap()).collect::<Vec<_>>();
        let masks_before = masks();
        let queues = || {
            let table = real_card(&root).unwrap().1;
            entries_of(&table).unwrap().into_iter().collect::<BTreeSet<_>>()
        };
        assert_eq!(queues(), (0..8).collect());
        // This driver gives each queue's interrupt to one CPU.
        let of = |cpus: std::ops::Range<usize>| -> BTreeSet<u32> {
            let is_of = |path: &String| {
                let mask = cpus_of(&root.text(path).unwrap()).unwrap();
                mask.0.iter().any(|cpu| cpus.contains(&cpu.index()))
            };
            interrupts.iter().filter(|(_, path)| is_of(path)).map(|(&queue, _)| queue).collect()
        };
        let (first, middle) = (of(0..2), of(2..4));
        assert_eq!((first.len(), middle.len()), (2, 2), "{masks_before:?}");

        let mut around = CpuIsolation::open(&root, "a test").unwrap();
        around.keep_on(&Placement { interrupts: Some("0-1".parse().unwrap()), ..Placement::default() });
        assert_eq!(queues(), first);
        around.keep_on(&Placement::default());
        assert_eq!((real_card(&root).unwrap().1, masks()), (before.clone(), masks_before.clone()));
        drop(around);

        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["surroundings::tests::a_real_card_is_held", "--exact", "--ignored", "--nocapture"])
            .env(HOLDS, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("held")), "it ended before");
        assert_eq!(queues(), middle);
        victim.kill().unwrap();
        victim.wait().unwrap();
        crate::restore(&root).unwrap();
        assert_eq!((real_card(&root).unwrap().1, masks()), (before, masks_before));
    }

    #[test]
    fn there_is_one_who_does_it_and_what_is_missing_is_no_error() {
        let machine = FakeMachine::intel_server(2);
        let mut first = CpuIsolation::open(machine.root(), "first").unwrap();
        let error = CpuIsolation::open(machine.root(), "second").unwrap_err().to_string();
        assert!(error.contains("first"), "{error}");
        first.keep_on(&all_tasks("0"));
        assert_eq!(first.drain_notices(), Vec::<String>::new());
    }
}
