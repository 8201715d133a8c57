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
//! On request ([`Scope::isolated`]) an *isolated partition* of the parked CPUs (version 2, Linux 6.7) comes
//! before all of these: a cgroup `roost-parked` without processes. The kernel keeps every task off its
//! CPUs, those of the root cgroup included, its own unbound threads and its unbound work queues. Tasks that have
//! left are then not moved a second time. The scheduler's domains are built anew at each change. Source:
//! Documentation/admin-guide/cgroup-v2.rst.
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
//! of the kernel that belong to a CPU, timers that were set there; and, without a partition, processes in
//! the root cgroup and most threads of the kernel. `roost govern status --wakeups` counts the rest.
//!
//! Invariants:
//! - One Roost process does this: there is a lock, held until the end.
//! - Everything is journalled first and put back: on release, on drop, and by
//!   [`restore`](crate::restore) after a SIGKILL.
//! - A cgroup or unit that a [`Confiner`](crate::Confiner) keeps is its own and is left alone.
//!   Narrowing a service comes before widening the others, and the other way round: a service never
//!   waits for its surroundings. A partition has a CPU only while no service does.

use crate::journal::{ChangeError, Checkpoint, Journal, restore_at_start};
use crate::knob::{CGROUPS, MASKS, called, cpus_of, entries_of, indirection_of, mask_of, path_of, table_of};
use crate::lock::{FileLock, LockError, Refusal, run_folder, take};
use crate::processes::service::{command, parent};
use crate::processes::threads::{ThreadName, began};
use crate::root::{FileError, Root};
use crate::system::interrupts::{
    interrupts_of_queues, masks_of_interrupts, masks_of_queues, network_devices,
};
use machine::CpuList;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The groups that are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scope {
    /// Work queues, new interrupts, other services.
    pub all_tasks: bool,
    /// Interrupts that are there already.
    pub interrupts: bool,
    /// An isolated partition of the parked CPUs, where the kernel has them.
    pub isolated: bool,
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
    /// The CPUs of the isolated partition; `None`: there is none.
    pub(crate) isolated: Option<CpuList>,
    /// Places that are left alone (`Confiner::place`).
    pub(crate) own: BTreeSet<String>,
}

impl Placement {
    /// True if all are where they were before.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.all_tasks.is_none() && self.interrupts.is_none() && self.isolated.is_none()
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
    _lock: FileLock,
}

impl CpuIsolation {
    /// Takes the lock; an error names its holder.
    pub(crate) fn open(root: &Root, holder: &str) -> Result<Self, LockError> {
        Self::open_with(root, holder, None)
    }

    fn open_with(root: &Root, holder: &str, checkpoint: Option<Checkpoint>) -> Result<Self, LockError> {
        let path = run_folder(root)?.join("surroundings.lock");
        let lock = take(&path, holder).map_err(|refusal| match refusal {
            Refusal::Taken(holder) => LockError::CpuIsolation { holder, path: path.clone() },
            other => other.at(path.clone()),
        })?;
        let notices = restore_at_start(root)?;
        let journal = Journal::begin(root, holder, checkpoint)?;
        Ok(Self { root: root.clone(), journal, refused: BTreeSet::new(), notices, _lock: lock })
    }

    /// Moves each group to its CPUs; a place in two groups is set by each.
    pub(crate) fn keep_on(&mut self, whereabouts: &Placement) {
        let is_parted = self.set_aside(whereabouts);
        self.move_interrupts(whereabouts.interrupts.as_ref());
        self.move_tasks(whereabouts.all_tasks.as_ref(), &whereabouts.own, is_parted);
    }

    /// Other tasks are on these CPUs from now on, or where they were before; those that a partition in
    /// force keeps away anyway are not moved, and places of `own` never.
    fn move_tasks(&mut self, cpus: Option<&CpuList>, own: &BTreeSet<String>, is_parted: bool) {
        let (mask, list) = (cpus.map(mask_of), cpus.map(CpuList::to_string));
        for path in MASKS {
            // The kernel takes the partition's CPUs out of the work queues' by itself.
            self.set(path, mask.as_deref().filter(|_| !(is_parted && path == WORK_QUEUES)));
        }
        for path in self.grace_period_threads() {
            self.set(&path, list.as_deref());
        }
        // systemd takes the controller away, and the partition with it, where none of its units uses it.
        let is_needed = !is_parted || self.is_run_by_systemd();
        for path in self.groups() {
            // A place that its Confiner keeps from now on gets its earlier text back.
            let is_moved = is_needed && !own.contains(&path);
            self.set(&path, list.as_deref().filter(|_| is_moved));
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

    fn is_run_by_systemd(&self) -> bool {
        self.root.has("run/systemd/system") == Some(true)
    }

    /// The movable groups at the top of the tree of cgroups.
    fn groups(&self) -> Vec<String> {
        let names = self.root.names(CGROUPS).unwrap_or_default();
        if self.is_run_by_systemd() {
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

/// The CPUs of the kernel's unbound work queues.
const WORK_QUEUES: &str = MASKS[0];

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

mod partition;
#[cfg(test)]
mod tests;
