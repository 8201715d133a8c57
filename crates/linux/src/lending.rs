//! Lending: a group of batch processes has the CPUs that no service needs, until a service wants them.
//!
//! The problem: a CPU that a service has left is paid for. Batch work could have it, if it gave the
//! CPU back faster than the service notices. Moving processes takes milliseconds; so giving back must not
//! wait for it.
//!
//! | means | text | effect |
//! |---|---|---|
//! | `cpu.idle` | 1, always | any other task takes a CPU from the group as it wakes up (`SCHED_IDLE`) |
//! | `cpuset.cpus` | the lent CPUs | the group runs nowhere else |
//! | the freezer | while no CPU is lent | the group stands still |
//!
//! A service that wants a CPU takes it by the first means; the other two follow, and keep the group out
//! of the service's caches. Versions 1 and 2 of control groups have all three (`cpu.idle` since Linux
//! 5.15), in version 1 in three trees with a group of the same name in each.
//!
//! Invariants:
//! - Everything is journalled first and put back: on release, on drop, and by
//!   [`restore`](crate::restore) after a SIGKILL.
//! - `cpu.idle` is set before the group has a CPU of a service, and put back after it has left.
//! - The weight (`cpu.shares`, `cpu.weight`) comes back as it was: the kernel replaces it where
//!   `cpu.idle` is written, both ways.
//! - A group that the [`Freezer`] would not freeze is not lent to, and neither is one that holds a
//!   service.
//!
//! Not here: bandwidth of memory and of the last-level cache, which the group shares with the service, and
//! hyperthreads, two of which share a core. The kernel gives `cpu.idle` to normal tasks: a real-time
//! thread of the group would keep its CPU until the freezer stops it.

use crate::Root;
use crate::freezer::{Freezer, FreezerError, FreezerOptions, Frozen, is_same_group, survey};
use crate::journal::{ChangeError, Checkpoint, Journal};
use crate::knob::{CGROUPS, path_of};
use crate::lock::LockError;
use crate::processes::service::cgroup_folder;
use machine::{CpuList, Duration};
use std::collections::BTreeSet;

/// Why a group is lent nothing.
#[derive(Debug, thiserror::Error)]
pub enum LendError {
    /// It is not there, must not stand still, or is held by another process.
    #[error(transparent)]
    Group(#[from] FreezerError),
    /// The kernel does not show a file of the group.
    #[error("{group} has no {file}\nhint: {fix}")]
    Missing { group: String, file: &'static str, fix: String },
    #[error("{group}: {reason}")]
    Change { group: String, reason: String },
    #[error(transparent)]
    Unavailable(#[from] LockError),
}

/// The CPUs lent to one group.
#[derive(Debug)]
pub struct Lending {
    root: Root,
    group: String,
    cpuset: String,
    idle: String,
    weight: Option<String>,
    /// The file of the group's CPU time so far: `cpu.stat`, or `cpuacct.usage` of version 1.
    used: Option<String>,
    used_before: Duration,
    lent: CpuList,
    /// Reasons that were told, each once.
    told: BTreeSet<String>,
    notices: Vec<String>,
    // Fields drop in this order: the group goes on only after it has its own CPUs again.
    journal: Journal,
    freezer: Freezer,
}

impl Lending {
    /// Takes hold of the group, which stands still until [`Self::lend`] gives it CPUs. It may hold
    /// none of the processes `services`.
    pub fn open(
        root: &Root,
        group: &str,
        services: &BTreeSet<u32>,
        holder: &str,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Self, LendError> {
        let path = by_path(group);
        let folder = cgroup_folder(root, &path).map_err(FreezerError::from)?;
        let find = |file| file_of(root, &folder, file);
        let [cpuset, idle] = needed_files(root, &folder, group)?;
        let weight = ["cpu.weight", "cpu.shares"].into_iter().find_map(find);
        let mut files = ["cpu.stat", "cpuacct.usage"].into_iter().filter_map(find);
        let used = files.find(|file| cpu_time(root, file).is_some());
        let freezer = Freezer::open(root, &[path], services, FreezerOptions::new(holder))?;
        let journal = Journal::begin(root, holder, checkpoint)?;
        let mut lending = Self {
            root: root.clone(),
            group: group.to_owned(),
            cpuset,
            idle,
            weight,
            used,
            used_before: Duration::ZERO,
            lent: CpuList::default(),
            told: BTreeSet::new(),
            notices: Vec::new(),
            journal,
            freezer,
        };
        lending.used_before = lending.used_until_now().unwrap_or_default();
        lending
            .yield_always()
            .map_err(|error| LendError::Change { group: group.to_owned(), reason: error.to_string() })?;
        lending.stop();
        Ok(lending)
    }

    /// The places that are this group's own, so that it is not moved as surroundings.
    pub fn places(&self) -> BTreeSet<String> {
        let name = self.group.trim_matches('/').rsplit('/').next().unwrap_or_default();
        BTreeSet::from([self.cpuset.clone(), path_of(name)])
    }

    /// The group has these CPUs from now on, and no others.
    pub fn lend(&mut self, cpus: &CpuList) {
        if cpus.0.is_empty() {
            self.stop();
            return;
        }
        // Another program's change of the file is repaired too.
        let reads = self.journal.read(&self.cpuset);
        let is_set = reads.is_ok_and(|reads| reads.parse() == Ok(cpus.clone()));
        if *cpus == self.lent && is_set {
            return;
        }
        let set = self.journal.set(&self.idle, "1").map(drop);
        if let Err(error) = set.and_then(|()| self.journal.set(&self.cpuset, &cpus.to_string()).map(drop)) {
            self.tell(format!("it is lent nothing: {error}"));
            self.stop();
            return;
        }
        self.lent = cpus.clone();
        if let Err(error) = self.freezer.thaw(0) {
            self.tell(error.to_string());
        }
    }

    /// The CPUs that the group has now.
    pub fn lent(&self) -> &CpuList {
        &self.lent
    }

    /// True once all its processes stand still, after [`Self::lend`] has left it no CPU.
    pub fn stands(&self) -> bool {
        self.freezer.stands(0)
    }

    pub fn group(&self) -> &str {
        &self.group
    }

    /// All processes that are in the group now.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.freezer.processes(0)
    }

    /// True once the group has ended.
    pub fn is_gone(&self) -> bool {
        self.root.has(&self.cpuset) != Some(true)
    }

    /// CPU time of the group since it was taken hold of; `None` where the kernel does not count it.
    pub fn used(&self) -> Option<Duration> {
        Some(self.used_until_now()? - self.used_before)
    }

    /// The notices since the last call; each fact comes once.
    pub fn drain_notices(&mut self) -> Vec<String> {
        self.notices.extend(self.freezer.drain_notices());
        self.notices.drain(..).map(|notice| format!("{}: {notice}", self.group)).collect()
    }

    /// Puts everything back now, one line per thing that is news. Dropping does the same in silence.
    pub fn release(&mut self) -> Vec<String> {
        self.lent = CpuList::default();
        let done = self.journal.put_back_all();
        let mut lines: Vec<String> =
            done.iter().filter(|undone| undone.is_news()).map(ToString::to_string).collect();
        lines.extend(self.freezer.release());
        lines
    }

    fn stop(&mut self) {
        self.lent = CpuList::default();
        match self.freezer.freeze(0) {
            Ok(Frozen::Told | Frozen::Foreign) => {}
            Ok(Frozen::Gone) => self.tell("it is gone".to_owned()),
            Err(error) => self.tell(error.to_string()),
        }
    }

    fn yield_always(&mut self) -> Result<(), ChangeError> {
        if let Some(weight) = self.weight.clone() {
            let (least, normal, shown) = if weight.ends_with("cpu.weight") {
                ("1", "100", &["0"][..])
            } else {
                ("3", "1024", &[][..])
            };
            self.journal.set(&weight, least)?;
            // The kernel's, when cpu.idle goes back to 0, and while it is 1.
            for text in shown.iter().chain([&normal]) {
                self.journal.expect(&weight, text)?;
            }
        }
        self.journal.set(&self.idle, "1").map(drop)
    }

    fn used_until_now(&self) -> Option<Duration> {
        cpu_time(&self.root, self.used.as_ref()?)
    }

    fn tell(&mut self, notice: String) {
        if self.told.insert(notice.clone()) {
            self.notices.push(notice);
        }
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.release();
    }
}

/// Whether the group could be lent CPUs now. Nothing is held or changed.
pub fn lendable(root: &Root, group: &str) -> Result<(), LendError> {
    let path = by_path(group);
    needed_files(root, &cgroup_folder(root, &path).map_err(FreezerError::from)?, group)?;
    survey(root, &[path], &BTreeSet::new(), &[])?;
    Ok(())
}

/// Its path, so that it is not taken for a unit of this name.
fn by_path(group: &str) -> String {
    format!("/{}", group.trim_matches('/'))
}

fn needed_files(root: &Root, folder: &str, group: &str) -> Result<[String; 2], LendError> {
    let find =
        |file, controller| file_of(root, folder, file).ok_or_else(|| missing(root, group, file, controller));
    Ok([find("cpuset.cpus", "cpuset")?, find("cpu.idle", "cpu")?])
}

/// This file of the group in `folder`: there, or in the tree that has it, if the group of that name there
/// holds the same processes.
fn file_of(root: &Root, folder: &str, file: &str) -> Option<String> {
    let trees = root.names(CGROUPS).unwrap_or_default();
    let below = folder.strip_prefix(CGROUPS)?.trim_start_matches('/');
    // The first part may be the tree's own folder, or the group's.
    let inside = below.split_once('/').map(|(_, rest)| rest).into_iter().chain([below]);
    let twins = inside.flat_map(|inside| trees.iter().map(move |tree| format!("{CGROUPS}/{tree}/{inside}")));
    let mut folders = std::iter::once(folder.to_owned()).chain(twins);
    let has = |folder: &String| root.has(&format!("{folder}/{file}")) == Some(true);
    let found = folders.find(|twin| has(twin) && (twin == folder || is_same_group(root, folder, twin)))?;
    Some(format!("{found}/{file}"))
}

/// CPU time by a group's `cpu.stat`, in microseconds, or by its `cpuacct.usage`, in nanoseconds.
fn cpu_time(root: &Root, file: &str) -> Option<Duration> {
    let text = root.text(file).ok()?;
    if file.ends_with("cpuacct.usage") {
        return Some(Duration::from_nanos(text.trim().parse().ok()?));
    }
    let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(Duration::from_micros(line.trim().parse().ok()?))
}

fn missing(root: &Root, group: &str, file: &'static str, controller: &str) -> LendError {
    let above = group.trim_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
    let fix = if root.has(&format!("{CGROUPS}/cgroup.controllers")) == Some(true) {
        format!("echo +{controller} > /{CGROUPS}/{above}/cgroup.subtree_control").replace("//", "/")
    } else {
        format!("make the group in the tree of {controller} too, and move the same processes there")
    };
    LendError::Missing { group: group.to_owned(), file, fix }
}
