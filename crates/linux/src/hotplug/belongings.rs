//! The settings that go with a CPU, and the CPUs that take their place.
//!
//! *Cpusets, interrupts and threads* are arranged for the CPUs that stay, each time some come or go
//! ([`Hotplug::arrange`]). One that may use a CPU that stays keeps its own CPUs; any other gets all
//! that stay, and gets its own back as soon as one of them returns. In version 1 a cpuset gets
//! those of its own that stay; in version 2 the kernel does that by itself and undoes it.
//!
//! *Settings of the CPU itself* are files that some drivers remove while it is away
//! (`cpuidle-haltpoll` unregisters, cpufreq keeps a policy without CPUs shut) and others keep. No
//! file shows which. So their texts are written down, and a file that could not be read just before
//! the CPU comes back is set again after. A readable file may have been changed by another program,
//! and stays.

use super::Hotplug;
use crate::cpufreq::{FOLDER as CLOCKS, spaced_list};
use crate::cpuidle::disable_file;
use crate::cpuset::cgroups::cgroups;
use crate::journal::ChangeError;
use crate::knob::{CGROUPS, cpus_of, mask_of};
use crate::processes::threads::{self, AFFINITY, ThreadName, is_gone};
use crate::root::{FileError, Gaps, Root, cpu_folder};
use crate::system::interrupts::masks_of_interrupts;
use crate::system::topology::online_cpus;
use machine::{CpuId, CpuList, CstateIndex};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A cpuset that must not be left without a CPU.
pub(super) struct CpusetOf {
    /// Below the root.
    pub(super) folder: String,
    /// The file with its CPUs.
    pub(super) cpus: String,
    /// The kernel takes CPUs from it for good: a cpuset of version 1. Else a partition of version
    /// 2, an administrator's decision.
    pub(super) is_narrowed: bool,
}

/// Deeper trees are not followed.
const DEPTH_MAX: usize = 16;

/// The cpusets of version 1 except the root, which has all CPUs; or the partitions of version 2.
pub(super) fn cpusets(root: &Root) -> Vec<CpusetOf> {
    let Some(place) = cgroups(root, &mut Gaps::default()).cpuset else { return Vec::new() };
    let mount = place.path.trim_start_matches('/').to_owned();
    // Elsewhere Roost changes none, and so cannot undo the kernel's changes to them.
    if !(mount == CGROUPS || mount.starts_with(&format!("{CGROUPS}/"))) {
        return Vec::new();
    }
    let is_first = place.version == 1;
    let (mut found, mut level) = (Vec::new(), vec![mount]);
    for _ in 0..DEPTH_MAX {
        let below = level.iter().flat_map(|folder| {
            let names = root.names(folder).unwrap_or_default();
            names.into_iter().map(move |name| format!("{folder}/{name}")).collect::<Vec<_>>()
        });
        level = below.filter(|folder| root.path(folder).is_dir()).collect();
        found.extend(level.iter().filter_map(|folder| {
            if is_first {
                let cpus = format!("{folder}/cpuset.cpus");
                return Some(CpusetOf { folder: folder.clone(), cpus, is_narrowed: true });
            }
            let partition = root.text(&format!("{folder}/cpuset.cpus.partition")).ok()?;
            let cpus = format!("{folder}/cpuset.cpus.effective");
            matches!(partition.as_str(), "root" | "isolated").then(|| CpusetOf {
                folder: folder.clone(),
                cpus,
                is_narrowed: false,
            })
        }));
        if level.is_empty() {
            break;
        }
    }
    found
}

impl Hotplug {
    /// Moves everything to the CPUs that stay. Returns those that must stay as well, for a task
    /// could not be moved off them.
    pub(super) fn arrange(&mut self, staying: &CpuList) -> BTreeSet<CpuId> {
        // Before cpusets change: that makes threads forget, on old kernels.
        self.note_threads(staying);
        self.arrange_cpusets(staying);
        self.arrange_interrupts(staying);
        self.arrange_threads(staying)
    }

    fn arrange_cpusets(&mut self, staying: &CpuList) {
        let mut changes = Vec::new();
        for CpusetOf { cpus: path, is_narrowed, .. } in cpusets(&self.root) {
            let Some(own) = self.own_of(&path) else { continue };
            let Some(has) = own.parse::<CpuList>().ok().filter(|_| is_narrowed) else { continue };
            let left = CpuList(&has.0 & &staying.0);
            let wanted = if left == has { own } else { left.to_string() };
            // A task that has none left keeps its own: its CPUs stay.
            if !left.0.is_empty() && (left != has || self.journal.held().contains_key(&path)) {
                let reads: CpuList =
                    self.journal.read(&path).ok().and_then(|text| text.parse().ok()).unwrap_or_default();
                changes.push((left.0.is_subset(&reads.0), path, wanted));
            }
        }
        // A cpuset has only CPUs that the one above has: so they grow from above and shrink from
        // below.
        changes.sort_by_key(|(shrinks, path, _)| match shrinks {
            false => (0, path.len(), Reverse(0)),
            true => (1, 0, Reverse(path.len())),
        });
        for (_, path, wanted) in changes {
            self.set(&path, |_| wanted);
        }
    }

    fn arrange_interrupts(&mut self, staying: &CpuList) {
        for path in masks_of_interrupts(&self.root) {
            let Some(own) = self.journal.earlier(&path).ok().and_then(|mask| cpus_of(&mask)) else {
                continue;
            };
            // One that a driver keeps is refused: the kernel shuts it down with its CPU, and starts
            // it again.
            if own.0.is_disjoint(&staying.0) {
                let _ = self.journal.set(&path, &mask_of(staying));
            } else {
                let _ = self.journal.put_back(&path);
            }
        }
    }

    fn arrange_threads(&mut self, staying: &CpuList) -> BTreeSet<CpuId> {
        let held = self.journal.held().iter().filter(|(path, _)| path.starts_with(AFFINITY));
        let held: Vec<(String, String)> =
            held.map(|(path, held)| (path.clone(), held.before.clone())).collect();
        let mut stuck = BTreeSet::new();
        for (path, before) in held {
            // Another program has taken all of its CPUs away: it does not show which they are.
            if self.journal.read(&path).is_ok_and(|reads| reads.is_empty()) {
                continue;
            }
            // The kernel's own result, so that the journal has a text that can be read back.
            let within = self.within.get(&path).map(|cpuset| CpuList(&cpuset.0 & &staying.0));
            let all = within.filter(|all| !all.0.is_empty()).unwrap_or_else(|| staying.clone());
            let result = self.journal.set_from(&path, |own| match own.parse::<CpuList>() {
                Ok(cpus) if cpus.0.is_disjoint(&staying.0) => all.to_string(),
                _ => own.to_owned(),
            });
            match result {
                Ok(_) => {}
                Err(ChangeError::File(FileError::Missing { .. })) => {
                    let _ = self.journal.forget(&path);
                    self.within.remove(&path);
                }
                Err(error) => {
                    self.tell(format!("CPU {before} stays online: {error}"));
                    stuck.extend(before.parse::<CpuList>().unwrap_or_default().0);
                }
            }
        }
        stuck
    }

    /// Writes down every thread of the machine that chose CPUs itself.
    fn note_threads(&mut self, staying: &CpuList) {
        let online = online_cpus(&self.root).unwrap_or_default();
        let mut defaults: BTreeMap<String, CpuList> = BTreeMap::new();
        let processes = self.root.names("proc").unwrap_or_default();
        for process in processes.iter().filter_map(|name| name.parse::<u32>().ok()) {
            let Ok(began) = threads::began(process, process) else { continue };
            for thread in threads::of_process(process).unwrap_or_default() {
                if let Err(error) =
                    self.note_thread((process, began, thread), (&online, staying), &mut defaults)
                {
                    self.tell(format!("thread {thread} of process {process}: {error}"));
                }
            }
        }
    }

    fn note_thread(
        &mut self,
        (process, began, thread): (u32, u64, u32),
        (online, staying): (&CpuList, &CpuList),
        defaults: &mut BTreeMap<String, CpuList>,
    ) -> Result<(), ChangeError> {
        let Ok(cpus) = threads::cpus(thread) else { return Ok(()) };
        // Free; or none of its CPUs is there, and then it does not show which they are.
        if cpus.0.is_superset(&online.0) || cpus.0.is_empty() {
            return Ok(());
        }
        let Ok(name) = ThreadName::now(process, began, thread) else { return Ok(()) };
        let path = name.path();
        let mut is_held = self.journal.held().contains_key(&path);
        let cpuset = threads::cpuset_of(process, thread).filter(|cpuset| cpuset != "/");
        let default = cpuset.map(|cpuset| {
            let root = &self.root;
            defaults
                .entry(cpuset)
                .or_insert_with_key(|cpuset| in_force(root, cpuset).unwrap_or_else(|| online.clone()))
                .clone()
        });
        if !is_held && default.as_ref().unwrap_or(online) != &cpus {
            match threads::is_kept_by_kernel(process, thread) {
                Ok(false) => {
                    let text = cpus.to_string();
                    self.journal.adopt(&path, &text, &text)?;
                    is_held = true;
                }
                Ok(true) => {}
                Err(cause) if is_gone(&cause) => {}
                Err(cause) => return Err(FileError::unreadable(path.as_ref(), cause).into()),
            }
        }
        let Some(default) = default.filter(|_| is_held) else { return Ok(()) };
        if self.forgets_pins {
            self.journal.expect(&path, &default.to_string())?;
            self.journal.expect(&path, &CpuList(&default.0 & &staying.0).to_string())?;
        }
        self.within.insert(path, default);
        Ok(())
    }

    /// The text of a CPU list without us. A file that we do not hold is not kept open: there may be
    /// many.
    pub(super) fn own_of(&mut self, path: &str) -> Option<String> {
        if self.journal.held().contains_key(path) {
            self.journal.earlier(path).ok()
        } else {
            self.root.text(path).ok()
        }
    }

    fn set(&mut self, path: &str, choose: impl FnOnce(&str) -> String) {
        match self.journal.set_from(path, choose) {
            Ok(_) | Err(ChangeError::File(FileError::Missing { .. })) => {}
            Err(error) => self.tell(format!("/{path} stays as it is: {error}")),
        }
    }

    /// Writes down the settings that may go with this CPU.
    pub(super) fn expect_losses(&mut self, cpu: CpuId) {
        let mut files = Vec::new();
        for path in settings_of(&self.root, cpu) {
            match self.journal.expect_loss(&path) {
                Ok(()) => files.push(path),
                // Not every driver has all of them, nor lets them be read.
                Err(ChangeError::File(_)) => {}
                Err(error) => self.tell(error.to_string()),
            }
        }
        self.lost.insert(cpu, files);
    }

    /// It has not gone.
    pub(super) fn forget_losses(&mut self, cpu: CpuId) {
        for path in self.lost.remove(&cpu).unwrap_or_default() {
            let _ = self.journal.forget(&path);
        }
    }

    /// Its settings that cannot be read while the CPU is away.
    pub(super) fn vanished(&self, cpu: CpuId) -> BTreeSet<String> {
        let files = self.lost.get(&cpu).into_iter().flatten();
        files.filter(|path| self.root.text(path).is_err()).cloned().collect()
    }

    /// The CPU is there again.
    pub(super) fn replace_losses(&mut self, cpu: CpuId, vanished: &BTreeSet<String>) {
        for path in self.lost.remove(&cpu).unwrap_or_default() {
            if !vanished.contains(&path) {
                let _ = self.journal.forget(&path);
            } else if let Err(error) = self.journal.replace_lost(&path) {
                self.tell(format!("/{path} was lost with its CPU: {error}"));
            }
        }
    }
}

/// The CPUs in force in a cpuset of either version.
fn in_force(root: &Root, cpuset: &str) -> Option<CpuList> {
    let place = cgroups(root, &mut Gaps::default()).cpuset?;
    let file = if place.version == 1 { "cpuset.effective_cpus" } else { "cpuset.cpus.effective" };
    let mount = place.path.trim_start_matches('/').trim_end_matches('/');
    // A group without the controller has those of the one above.
    let mut above = std::iter::successors(Some(cpuset), |group| Some(group.rsplit_once('/')?.0));
    above.find_map(|group| root.parse(&format!("{mount}{group}/{file}"), "a list of CPUs").ok())
}

/// The files of a CPU's own settings: forbidden idle states, and its frequency, where no CPU that
/// stays shares it.
fn settings_of(root: &Root, cpu: CpuId) -> Vec<String> {
    let states = root.names(&format!("{}/cpuidle", cpu_folder(cpu))).unwrap_or_default();
    let states = states.iter().filter_map(|name| name.strip_prefix("state")?.parse().ok().map(CstateIndex));
    let mut files: Vec<String> = states.map(|state| disable_file(cpu, state)).collect();
    let policies = root.names(CLOCKS).unwrap_or_default();
    let is_its = |name: &&String| {
        let cpus =
            root.text(&format!("{CLOCKS}/{name}/affected_cpus")).ok().and_then(|text| spaced_list(&text));
        name.starts_with("policy") && cpus.is_some_and(|cpus| cpus.0.contains(&cpu))
    };
    if let Some(policy) = policies.iter().find(is_its) {
        files.extend(CLOCK_FILES.map(|file| format!("{CLOCKS}/{policy}/{file}")));
    }
    files
}

/// The settings of a frequency. A speed is `<unsupported>` where a governor chooses, and then there
/// is none to set.
const CLOCK_FILES: [&str; 5] = [
    "scaling_governor",
    "scaling_min_freq",
    "scaling_max_freq",
    "scaling_setspeed",
    "energy_performance_preference",
];
