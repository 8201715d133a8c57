//! By systemd: the unit's `AllowedCPUs=`, as a runtime property.
//!
//! Where systemd runs, it owns the cgroups of its units and writes them anew at any time; so the
//! change goes through systemd. It needs cgroups of version 2, and systemd 244 or later. Putting
//! back means setting the list that the unit had, or, if it had none, all CPUs first and then
//! unsetting it (`knob/unit.rs` says why). A question takes some ten milliseconds, for a command is
//! run each time. So a check reads the cgroup's own `cpuset.cpus`, where systemd writes its list,
//! and asks only if that differs from our request. A write behind systemd's back is seen as well.
//!
//! The tests here show our calls of `systemctl` and how we read its answers; `lab/systemd` shows
//! that systemd then does as it says.

use super::{ConfineError, Confined, Drift, Foreign, place, threads_of};
use crate::Root;
use crate::files::persistent::PersistentFile;
use crate::journal::Journal;
use crate::knob::{NO_DROP_IN, called, drop_in_of, is_unit, path_of, same_cpus};
use crate::system::topology::online_cpus;
use machine::CpuList;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// systemd answers first and writes the cgroup soon after: how often and how long we poll until it
/// has.
const LOOKS_MAX: usize = 40;
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Unit {
    root: Root,
    path: String,
    /// The file in which systemd keeps it for this boot, in the journal.
    drop_in: String,
    /// The list that systemd has given to the kernel.
    cpus: String,
    written: PersistentFile,
    /// The list in force in its cgroup.
    effective: String,
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
        place::remembers_pins(
            &crate::processes::threads::kernel_release(),
            processes,
            &in_force(root, &folder),
        )?;
        let (path, drop_in) = (path_of(unit), drop_in_of(unit));
        journal.read(&path).map_err(|error| error.to_string())?;
        let (cpus, effective) = (format!("{folder}/cpuset.cpus"), format!("{folder}/cpuset.cpus.effective"));
        let written = PersistentFile::new(root.path(&cpus));
        Ok(Self { root: root.clone(), path, drop_in, cpus, written, effective, ours: None })
    }

    /// Sets the property and waits until the kernel has it.
    pub(super) fn confine(
        &mut self,
        journal: &mut Journal,
        processes: &BTreeMap<u32, u64>,
        cpus: &CpuList,
    ) -> Result<Confined, ConfineError> {
        self.expect_drop_in(journal, cpus)?;
        let set = journal.set_from(&self.path, |_| cpus.to_string());
        self.ours = Some(cpus.clone());
        let set = set?;
        if !set.changed && self.written_behind(&cpus.to_string()).is_some() {
            // systemd has the right list and the kernel another: told again, it writes it again.
            journal.write_again(&self.path, &set.reads)?;
        }
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
        let Some(ours) = self.ours.as_ref().map(ToString::to_string) else { return Ok(Drift::default()) };
        let mut drift = Drift::default();
        let Some(written) = self.written_behind(&ours) else { return Ok(drift) };
        let reads = journal.read(&self.path)?;
        if !same_cpus(&self.root, &ours, &reads) {
            drift.foreign.push(Foreign { what: called(&self.path), reads, ours });
        } else if let Some(reads) = self.written_behind(&ours).filter(|reads| *reads == written) {
            // The reading is settled: it was the same before and after systemd reported success.
            drift.foreign.push(Foreign { what: called(&self.cpus), reads, ours });
        }
        Ok(drift)
    }

    /// Notes that systemd will keep a list of ours in a file that is not there. Where the unit has
    /// no list of its own that file goes with ours; else it would override an administrator's later
    /// choice.
    fn expect_drop_in(&self, journal: &mut Journal, cpus: &CpuList) -> Result<(), ConfineError> {
        let before = journal.earlier(&self.path)?;
        if before.is_empty() || journal.earlier(&self.drop_in)? != NO_DROP_IN {
            return Ok(());
        }
        for list in [before, cpus.to_string()] {
            journal.promise(&self.drop_in, &list)?;
        }
        Ok(())
    }

    /// The cgroup's list, where that is not `ours`.
    fn written_behind(&mut self, ours: &str) -> Option<String> {
        let reads = self.written.read().unwrap_or_default();
        (!same_cpus(&self.root, ours, &reads)).then_some(reads)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Everything has been put back.
    pub(super) fn forget(&mut self) {
        self.ours = None;
    }
}

/// The list in force in a cgroup: a group without the controller has that of the one above.
fn in_force(root: &Root, folder: &str) -> CpuList {
    let above = std::iter::successors(Some(folder), |folder| Some(folder.rsplit_once('/')?.0));
    let mut lists = above.filter_map(|folder| root.text(&format!("{folder}/cpuset.cpus.effective")).ok());
    lists.next().and_then(|list| list.parse().ok()).unwrap_or_else(|| online_cpus(root).unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    const GROUP: &str = "sys/fs/cgroup/system.slice/shop.service";

    /// A systemctl that behaves as systemd: it keeps the property, and writes it into the unit's
    /// cgroup.
    fn machine() -> FakeMachine {
        let machine = FakeMachine::intel_server(8);
        let folder = machine.path("").display().to_string();
        let script = format!(
            r#"#!/bin/sh
cd '{folder}' || exit 9
echo "$*" >>calls
case "$*" in
*set-property*) for last; do :; done; list="${{last#AllowedCPUs=}}"
  echo "$list" >property; echo "$list" >{GROUP}/cpuset.cpus; echo "$list" >{GROUP}/cpuset.cpus.effective;;
*) echo LoadState=loaded; echo "AllowedCPUs=$(cat property)";;
esac
"#
        );
        machine.write("usr/bin/systemctl", &script);
        fs::set_permissions(machine.path("usr/bin/systemctl"), Permissions::from_mode(0o755)).unwrap();
        machine.write("property", "");
        machine.write(&format!("{GROUP}/cgroup.procs"), "");
        machine.write("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n");
        machine
    }

    fn calls(machine: &FakeMachine) -> usize {
        machine.read("calls").lines().count()
    }

    #[test]
    fn systemd_is_asked_only_where_the_kernel_has_another_list() {
        let machine = machine();
        let mut journal = Journal::begin(machine.root(), "test", None).unwrap();
        let none = BTreeMap::new();
        let group = "/system.slice/shop.service";
        let mut unit = Unit::in_group(machine.root(), "sys/fs/cgroup", group, &none, &mut journal).unwrap();
        let cpus: CpuList = "2".parse().unwrap();
        assert!(unit.check(&mut journal, &none).unwrap().foreign.is_empty());
        unit.confine(&mut journal, &none, &cpus).unwrap();
        let before = calls(&machine);
        for _ in 0..5 {
            assert_eq!(unit.check(&mut journal, &none).unwrap(), Drift::default());
        }
        assert_eq!(calls(&machine), before, "a check asks no question");

        // By systemd: its word is reported.
        machine.write("property", "0-3\n");
        machine.write(&format!("{GROUP}/cpuset.cpus"), "0-3\n");
        let drift = unit.check(&mut journal, &none).unwrap();
        assert_eq!((drift.foreign.len(), drift.foreign[0].reads.as_str()), (1, "0-3"));
        assert_eq!(drift.foreign[0].what, "AllowedCPUs= of shop.service");
        unit.confine(&mut journal, &none, &cpus).unwrap();
        assert_eq!(unit.check(&mut journal, &none).unwrap(), Drift::default());

        // Behind systemd's back: it has our list and would not be told it again.
        machine.write(&format!("{GROUP}/cpuset.cpus"), "0-7\n");
        machine.write(&format!("{GROUP}/cpuset.cpus.effective"), "0-7\n");
        let drift = unit.check(&mut journal, &none).unwrap();
        assert_eq!((drift.foreign.len(), drift.foreign[0].reads.as_str()), (1, "0-7"));
        assert_eq!(drift.foreign[0].what, format!("/{GROUP}/cpuset.cpus"));
        assert_eq!(unit.confine(&mut journal, &none, &cpus).unwrap().in_force, cpus);
        assert_eq!(machine.read(&format!("{GROUP}/cpuset.cpus")), "2");
        drop(journal);
        assert_eq!(machine.read("property"), "0-3", "another program's list comes back");
    }

    #[test]
    fn a_list_of_the_units_own_file_is_not_overridden_for_ever() {
        const DROP_IN: &str = "run/systemd/system.control/shop.service.d/50-AllowedCPUs.conf";
        let machine = machine();
        // As systemd: it keeps its list below /run.
        let folder = "run/systemd/system.control/shop.service.d";
        let keeps =
            format!("mkdir -p {folder}; printf '[Service]\\nAllowedCPUs=%s\\n' \"$list\" >{DROP_IN}\n");
        let script = machine
            .read("usr/bin/systemctl")
            .replace("  echo \"$list\" >property", &format!("{keeps}echo \"$list\" >property"));
        assert!(script.contains("printf"), "{script}");
        machine.write("usr/bin/systemctl", &script);
        for (was_told, stays) in [(false, false), (true, true)] {
            machine.write("property", "1-3\n");
            if was_told {
                machine.write(DROP_IN, "[Service]\nAllowedCPUs=1-3\n");
            }
            let mut journal = Journal::begin(machine.root(), "test", None).unwrap();
            let none = BTreeMap::new();
            let group = "/system.slice/shop.service";
            let mut unit =
                Unit::in_group(machine.root(), "sys/fs/cgroup", group, &none, &mut journal).unwrap();
            for cpus in ["2", "3", "2-3"] {
                unit.confine(&mut journal, &none, &cpus.parse().unwrap()).unwrap();
                assert!(machine.path(DROP_IN).exists());
            }
            let failed = journal.put_back_all().iter().filter(|undone| undone.is_failure()).count();
            assert_eq!((failed, machine.read("property").as_str()), (0, "1-3"));
            assert_eq!(machine.path(DROP_IN).exists(), stays, "an administrator's stays, ours goes");
        }
        // A change through systemd meanwhile is left alone.
        machine.remove(DROP_IN);
        let mut journal = Journal::begin(machine.root(), "test", None).unwrap();
        let none = BTreeMap::new();
        let group = "/system.slice/shop.service";
        let mut unit = Unit::in_group(machine.root(), "sys/fs/cgroup", group, &none, &mut journal).unwrap();
        unit.confine(&mut journal, &none, &"2".parse().unwrap()).unwrap();
        machine.write("property", "4-5\n");
        machine.write(DROP_IN, "[Service]\nAllowedCPUs=4-5\n");
        journal.put_back_all();
        assert_eq!(machine.read("property"), "4-5");
        assert!(machine.path(DROP_IN).exists());
    }

    #[test]
    fn a_group_without_the_controller_has_what_the_one_above_has() {
        let machine = machine();
        assert_eq!(in_force(machine.root(), GROUP).to_string(), "0-7");
        machine.write("sys/fs/cgroup/system.slice/cpuset.cpus.effective", "0-3\n");
        assert_eq!(in_force(machine.root(), GROUP).to_string(), "0-3");
    }
}
