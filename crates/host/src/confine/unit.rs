//! By systemd: the unit's `AllowedCPUs=`, as a runtime property.
//!
//! Where systemd runs, the cgroups of its units are its own, and it writes them anew when it likes; so it is told
//! instead. It needs cgroups of version 2, and systemd 244 or later. Putting back means setting the list that the unit
//! had, or, if it had none, all CPUs first and then unsetting it (`knob/unit.rs` says why). Asking takes some ten milliseconds: a command is run each time.
//!
//! What the tests here show is what we say to `systemctl` and how we read its answers; that systemd then does as it
//! says is to be shown in an image that boots one.

use super::{ConfineError, Confined, Drift, Foreign, place, threads_of};
use crate::Root;
use crate::journal::Journal;
use crate::knob::{called, is_unit, path_of, same_cpus};
use machine::CpuList;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// systemd answers first and writes the cgroup soon after: how often and how long we look until it has.
const LOOKS_MAX: usize = 40;
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Unit {
    root: Root,
    /// Its property, in the journal.
    path: String,
    /// What is in force in its cgroup.
    effective: String,
    /// What we set last.
    ours: Option<CpuList>,
}

impl Unit {
    /// The unit of these processes, or why there is none.
    pub(super) fn of(
        root: &Root,
        processes: &BTreeMap<u32, u64>,
        journal: &mut Journal,
    ) -> Result<Self, String> {
        if place::of_systemd(root).is_none() {
            return Err("systemd does not run this machine".to_owned());
        }
        let mount =
            place::tree(root, 2).map_err(|reason| format!("AllowedCPUs= needs version 2: {reason}"))?;
        let group = place::common_group(processes, 2)?;
        Self::in_group(root, &mount, &group, processes, journal)
    }

    fn in_group(
        root: &Root,
        mount: &str,
        group: &str,
        processes: &BTreeMap<u32, u64>,
        journal: &mut Journal,
    ) -> Result<Self, String> {
        let (unit, group) = unit_in(group)?;
        let folder = place::folder_of(mount, group);
        place::only_of(root, &folder, processes)?;
        let path = path_of(unit);
        journal.read(&path).map_err(|error| error.to_string())?;
        let effective = format!("{folder}/cpuset.cpus.effective");
        Ok(Self { root: root.clone(), path, effective, ours: None })
    }

    /// Sets the property and waits until the kernel has it.
    pub(super) fn confine(
        &mut self,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
        cpus: &CpuList,
    ) -> Result<Confined, ConfineError> {
        let set = journal.set_from(&self.path, |_| cpus.to_string());
        self.ours = Some(cpus.clone());
        let set = set?;
        let threads = threads_of(processes);
        let changed = if set.changed { threads } else { 0 };
        let mut reads = String::new();
        for _ in 0..LOOKS_MAX {
            reads = self.root.text(&self.effective).unwrap_or_default();
            match reads.parse::<CpuList>() {
                Ok(in_force) if in_force.0.is_subset(&cpus.0) => {
                    return Ok(Confined { threads, changed, in_force });
                }
                _ => thread::sleep(PAUSE),
            }
        }
        Err(ConfineError::NotInForce { what: called(&self.path), asked: cpus.clone(), reads })
    }

    /// Reports another list than ours.
    pub(super) fn check(
        &mut self,
        journal: &mut Journal,
        _processes: &BTreeMap<u32, u64>,
    ) -> Result<Drift, ConfineError> {
        let Some(ours) = &self.ours else { return Ok(Drift::default()) };
        let (ours, reads) = (ours.to_string(), journal.read(&self.path)?);
        let mut drift = Drift::default();
        if !same_cpus(&self.root, &ours, &reads) {
            drift.foreign.push(Foreign { what: called(&self.path), reads, ours });
        }
        Ok(drift)
    }

    /// Its property, in the journal.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Everything has been put back.
    pub(super) fn forget(&mut self) {
        self.ours = None;
    }
}

/// The innermost unit on the way to a group, and the group that is its own.
fn unit_in(group: &str) -> Result<(&str, &str), String> {
    if group.contains("/user@") {
        return Err(format!("{group} belongs to a user's own systemd"));
    }
    let mut end = group.len();
    loop {
        let name = group[..end].rsplit('/').next().unwrap_or_default();
        if is_unit(name) {
            return Ok((name, &group[..end]));
        }
        match group[..end].rfind('/') {
            Some(slash) if slash > 0 => end = slash,
            _ => return Err(format!("{group} is no unit's cgroup")),
        }
    }
}
