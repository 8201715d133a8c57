//! By a cpuset: the kernel keeps all tasks in it on its CPUs, future threads and children included.
//!
//! *Version 2*: the service must have a cgroup of its own. Its `cpuset.cpus` is usually empty,
//! which means "as the parent", and should be empty again in the end. The file is there only if
//! every cgroup above enables the controller in its `cgroup.subtree_control`. We disable the
//! controller again where we enabled it, unless another program has come to use it, and that
//! empties the file. Where the controller was enabled before us the kernel (6.1 and 6.12 were
//! tried) refuses to empty the CPUs of a cgroup that has processes. Then it gets all CPUs of the
//! cgroup above, and a notice gives the reason. `cpuset.cpus.partition` is never touched.
//!
//! *Version 1*: a cpuset that the service has for itself is used; one that it shares, and usually
//! that is the root, gets a child `roost-PROCESS`. A fresh one has neither CPUs nor memory nodes
//! and takes no process until it has both, so it gets its parent's; then all processes of the
//! service move in. To undo it, all of them move up again, and it is removed.
//!
//! Since 6.2 the kernel remembers the CPUs that a thread chose for itself. The thread gets those of
//! them that its cpuset has, or all if there is none, and gets them all back when the cpuset grows:
//! our rule for pinned threads, and the kernel's own. Older kernels forget, so there a service with
//! pinned threads is not confined by cpusets (`place::remembers_pins`).

use super::{ConfineActuator, ConfineError, Confined, Drift, Foreign, place, threads_of};
use crate::Root;
use crate::files::persistent::PersistentFile;
use crate::journal::Journal;
use crate::knob::{CPUSET, PRESENT, same_cpus};
use crate::processes::threads as kernel;
use crate::root::{FileError, overwrite};
use machine::CpuList;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::path::Path;

/// A service of more processes pays for opening the files of the others each time: descriptors are
/// limited.
const KEPT_MAX: usize = 64;
/// Processes that begin while others move in: after this many rounds the rest stays outside, and is
/// reported.
const ROUNDS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Cpuset {
    root: Root,
    version: u8,
    /// The file that we write, in its tree.
    group: String,
    /// The same, below the root.
    folder: String,
    /// Version 2: each `cgroup.subtree_control` on the way that lacks the controller, from the top.
    disabled: Vec<String>,
    /// Version 1: true if we make the folder.
    is_child: bool,
    /// True once all of that is done.
    entered: bool,
    /// The last text that we wrote.
    ours: Option<CpuList>,
    /// The cgroup of each process.
    groups: BTreeMap<u32, PersistentFile>,
}

impl Cpuset {
    /// The service's own cgroup of version 2, or why there is none.
    pub(super) fn v2(root: &Root, processes: &BTreeMap<u32, u64>) -> Result<Self, String> {
        let mount = place::tree(root, 2)?;
        let group = place::common_group(processes, 2)?;
        if group == "/" {
            return Err("it lives in the root cgroup, with all other processes".to_owned());
        }
        let folder = place::folder_of(&mount, &group);
        place::only_of(root, &folder, processes)?;
        let text = |file: String| root.text(&file).unwrap_or_default();
        let kind = text(format!("{folder}/cgroup.type"));
        if !matches!(kind.as_str(), "" | "domain" | "domain threaded") {
            return Err(format!("/{folder} is of type {kind}: it holds parts of processes"));
        }
        let partition = text(format!("{folder}/cpuset.cpus.partition"));
        if !matches!(partition.as_str(), "" | "member") {
            return Err(format!("/{folder} is a partition ({partition}), which an administrator decided"));
        }
        let above =
            group.match_indices('/').map(|(at, _)| format!("{mount}{}/cgroup.subtree_control", &group[..at]));
        let lacks = |file: &String| !text(file.clone()).split(' ').any(|name| name == CPUSET);
        let disabled = above.filter(lacks).collect();
        let cpuset = Self::new(root, 2, group, folder, false);
        Ok(Self { disabled, ..cpuset })
    }

    /// The service's own cpuset of version 1, or the one to make inside its present cpuset.
    pub(super) fn v1(root: &Root, processes: &BTreeMap<u32, u64>) -> Result<Self, String> {
        let mount = place::tree(root, 1)?;
        let group = place::common_group(processes, 1)?;
        for &process in processes.keys() {
            for thread in kernel::of_process(process).unwrap_or_default() {
                // Threads may be spread in version 1; moved as one process they could not be put
                // back.
                match place::group_of(process, thread, 1) {
                    Ok(other) if other != group => {
                        return Err(format!("its threads are in several cpusets: {group} and {other}"));
                    }
                    _ => {}
                }
            }
        }
        let folder = place::folder_of(&mount, &group);
        let has_children = fs::read_dir(root.path(&folder))
            .map_err(|cause| format!("/{folder}: {cause}"))?
            .flatten()
            .any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        if group != "/" && !has_children && place::only_of(root, &folder, processes).is_ok() {
            return Ok(Self::new(root, 1, group, folder, false));
        }
        let first = processes.keys().next().copied().unwrap_or_default();
        let child = format!("/roost-{first}");
        let group = format!("{}{child}", group.trim_end_matches('/'));
        Ok(Self::new(root, 1, group, folder + &child, true))
    }

    fn new(root: &Root, version: u8, group: String, folder: String, is_child: bool) -> Self {
        let (root, disabled, ours, entered) = (root.clone(), Vec::new(), None, false);
        Self { root, version, group, folder, disabled, is_child, entered, ours, groups: BTreeMap::new() }
    }

    pub(super) fn actuator(&self) -> ConfineActuator {
        if self.version == 2 { ConfineActuator::CpusetV2 } else { ConfineActuator::CpusetV1 }
    }

    /// Makes the cpuset, with the service in it and the CPUs that it had.
    pub(super) fn enter(
        &mut self,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
    ) -> Result<(), ConfineError> {
        let parent = self.folder.rsplit_once('/').map(|(parent, _)| parent.to_owned()).unwrap_or_default();
        place::remembers_pins(&kernel::kernel_release(), processes, &self.effective_above()?)
            .map_err(ConfineError::Refused)?;
        for file in &self.disabled {
            journal.set(file, CPUSET)?;
        }
        if self.is_child {
            journal.set(&self.folder, PRESENT)?;
            // The folder is ours as a whole, and so are these files.
            for file in ["cpuset.mems", "cpuset.cpus"] {
                let value = self.root.text(&format!("{parent}/{file}"))?;
                let path = self.root.path(&format!("{}/{file}", self.folder));
                overwrite(&path, &value).map_err(|cause| FileError::unwritable(&path, &value, cause))?;
            }
            self.move_in(processes)?;
        } else {
            let path = self.root.path(&self.cpus_file());
            let opened = OpenOptions::new().write(true).open(&path);
            opened.map_err(|cause| FileError::unwritable(&path, "a list of CPUs", cause))?;
        }
        self.entered = true;
        Ok(())
    }

    /// Moves all processes in, those included that are born meanwhile.
    fn move_in(&self, processes: &BTreeMap<u32, u64>) -> Result<(), ConfineError> {
        let path = self.root.path(&format!("{}/cgroup.procs", self.folder));
        let mut known: BTreeSet<u32> = processes.keys().copied().collect();
        for _ in 0..ROUNDS_MAX {
            known = place::family(&known)?;
            let outside = |process: &&u32| {
                place::group_of(**process, **process, 1).is_ok_and(|group| group != self.group)
            };
            let outside: Vec<u32> = known.iter().filter(outside).copied().collect();
            if outside.is_empty() {
                break;
            }
            for process in outside {
                match overwrite(&path, &process.to_string()) {
                    Err(cause) if kernel::is_gone(&cause) => {}
                    result => {
                        result.map_err(|cause| FileError::unwritable(&path, &process.to_string(), cause))?
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the CPUs and reads back the ones in force.
    pub(super) fn confine(
        &mut self,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
        cpus: &CpuList,
    ) -> Result<Confined, ConfineError> {
        if !self.entered {
            self.enter(journal, processes)?;
        }
        let file = self.cpus_file();
        let set = journal.set_from(&file, |_| cpus.to_string());
        // The present text is ours, whatever became of it.
        self.ours = Some(cpus.clone());
        let set = set?;
        let in_force = self.effective_of(&self.folder)?;
        if in_force.0.is_empty() || !in_force.0.is_subset(&cpus.0) {
            return Err(ConfineError::NotInForce {
                what: format!("/{file} (which reads `{}`)", set.reads),
                asked: cpus.clone(),
                reads: in_force.to_string(),
            });
        }
        let threads = threads_of(processes);
        if threads == 0 {
            return Err(ConfineError::Ended);
        }
        Ok(Confined { threads, changed: if set.changed { threads } else { 0 }, in_force })
    }

    /// Reports other CPUs than ours, and processes that are elsewhere.
    pub(super) fn check(
        &mut self,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
    ) -> Result<Drift, ConfineError> {
        let Some(ours) = &self.ours else { return Ok(Drift::default()) };
        let (file, ours) = (self.cpus_file(), ours.to_string());
        let mut drift = Drift::default();
        let reads = match journal.read(&file) {
            Err(FileError::Missing { .. }) => "nothing, for it is gone".to_owned(),
            reads => reads?,
        };
        if !same_cpus(&self.root, &ours, &reads) {
            drift.foreign.push(Foreign { what: format!("/{file}"), reads, ours });
        }
        self.groups.retain(|process, _| processes.contains_key(process));
        for &process in processes.keys() {
            let Ok(group) = self.group_now(process) else { continue };
            let inside = group.strip_prefix(&self.group);
            if !inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                let what = format!("cgroup of process {process}");
                drift.foreign.push(Foreign { what, reads: group, ours: self.group.clone() });
            }
        }
        Ok(drift)
    }

    /// The cgroup in which a process is now.
    fn group_now(&mut self, process: u32) -> Result<String, String> {
        if self.groups.len() >= KEPT_MAX && !self.groups.contains_key(&process) {
            return place::group_of(process, process, self.version);
        }
        let path = place::group_file(process, process);
        let kept =
            self.groups.entry(process).or_insert_with(|| PersistentFile::new(Path::new("/").join(&path)));
        let text = kept.read().map_err(|cause| format!("/{path}: {cause}"))?;
        place::group_in_text(&text, &path, self.version)
    }

    /// Everything has been put back.
    pub(super) fn forget(&mut self) {
        self.entered = false;
        self.ours = None;
        self.groups.clear();
    }

    pub(super) fn cpus_file(&self) -> String {
        format!("{}/cpuset.cpus", self.folder)
    }

    /// The CPUs in force where the service is now: in version 2 of the nearest cgroup that has the
    /// controller.
    fn effective_above(&self) -> Result<CpuList, FileError> {
        let mut folder = self.folder.as_str();
        loop {
            match (self.effective_of(folder), folder.rsplit_once('/')) {
                (Err(FileError::Missing { .. }), Some((above, _))) => folder = above,
                (result, _) => return result,
            }
        }
    }

    fn effective_of(&self, folder: &str) -> Result<CpuList, FileError> {
        let name = if self.version == 2 { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
        self.root.parse(&format!("{folder}/{name}"), "a list of CPUs such as 0-3,8")
    }
}
