//! The settings that Roost changes on a machine, each as a text that can be read and written. So
//! one journal records all of them, and one way of putting back serves all of them.
//!
//! | path below the root, as the journal records it | reads |
//! |---|---|
//! | `sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us` | the file |
//! | `sys/devices/system/cpu/cpuN/cpuidle/stateN/disable` | the file |
//! | `sys/module/haltpoll/parameters/guest_halt_poll_ns`, `..._grow`, `..._grow_start` | the file |
//! | `sys/devices/system/cpu/cpuN/online` | the file: 0 or 1 |
//! | `sys/devices/system/cpu/cpufreq/policyN/scaling_setspeed` | the file |
//! | `.../scaling_min_freq`, `.../scaling_max_freq` | the file, brought up to date a little after a write |
//! | `.../scaling_governor` | who sets the clock, and that governor's settings, which go with it |
//! | `.../energy_performance_preference` | the file; a number may read back as a name |
//! | `msr/cpuN/clock_modulation` | five bits of a register of CPU N, through `dev/cpu/N/msr` |
//! | `.../intel_uncore_frequency/NAME/min_freq_khz`, `max_...`, `elc_...` | the file |
//! | `sys/class/powercap/intel-rapl:N/constraint_0_power_limit_uw`, `.../enabled` | the file |
//! | `sys/fs/cgroup/.../cpuset.cpus` | the file; empty means "as the parent" in version 2 |
//! | `sys/fs/cgroup/.../cgroup.subtree_control` | `cpuset` if that controller is enabled below, else nothing |
//! | `sys/fs/cgroup/roost-parked` | the CPUs of an isolated partition that we made, or `absent` |
//! | `sys/fs/cgroup/.../roost-N` | `present` or `absent`: a version-1 cpuset that we made |
//! | `sys/fs/cgroup/.../cgroup.freeze` | the file: 0 or 1; without the groups above |
//! | `sys/fs/cgroup/.../freezer.state` | `FROZEN` or `THAWED`: the group's own request |
//! | `sys/fs/cgroup/.../cpu.idle` | the file: 1 if all tasks of the group yield to any other |
//! | `sys/fs/cgroup/.../cpu.weight`, `.../cpu.shares` | the file; after `cpu.idle`, which replaces it |
//! | `stopped/PROCESS:BEGAN` | `stopped` or `running`: whether that process was stopped by a signal |
//! | `sys/devices/virtual/workqueue/cpumask`, `proc/irq/default_smp_affinity` | a hexadecimal mask |
//! | `proc/irq/N/smp_affinity`, `sys/class/net/DEVICE/queues/rx-N/rps_cpus` | the same |
//! | `ethtool/DEVICE/indirection` | over which receive queues a network card spreads packets, entry by entry |
//! | `napi/DEVICE/ID/gro-flush-timeout`, `.../defer-hard-irqs`, `.../irq-suspend-timeout` | a number |
//! | `affinity/PROCESS:BEGAN/THREAD:BEGAN` | the CPUs on which that thread may run |
//! | `unit/NAME/AllowedCPUs` | that property of a systemd unit; nothing if it is unset |
//! | `unit/NAME/AllowedCPUs-drop-in` | the list in the file below `/run` in which systemd keeps it; `absent` |
//!
//! Invariants:
//! - Only knobs are ever written through a journal, whatever the journal says, for `roost restore`
//!   runs as root.
//! - A thread or cgroup that is gone is [`FileError::Missing`].

mod cpuset;
mod file;
mod freeze;
mod frequency;
mod indirection;
mod mask;
mod msr;
mod napi;
mod power;
mod thread;
mod unit;

use crate::cpufreq::uncore::uncore_file;
use crate::cpuidle::control::is_parameter;
use crate::processes::threads::ThreadName;
use crate::root::{FileError, Root, cpu_folder};
use crate::system::topology::online_cpus;
use cpuset::{ControllerKnob, CpusKnob, FolderKnob, PartitionKnob};
use file::FileKnob;
use freeze::{StateKnob, StopKnob};
use frequency::{BoundKnob, GovernorKnob};
use indirection::IndirectionKnob;
use machine::{CpuId, CpuList};
use mask::{MaskKnob, is_mask_file, same_mask};
use msr::DutyCycleKnob;
use napi::{NapiKnob, NapiName};
use power::power_file;
use thread::ThreadKnob;
use unit::{DropInKnob, UnitKnob};

pub(crate) use cpuset::{CPUSET, PRESENT};
pub(crate) use freeze::{FROZEN, STOPPED, StopName, is_let_go, is_stopped, stands_still};
pub(crate) use indirection::{entries_of, indirection_of, is_device, table_of};
pub(crate) use mask::{MASKS, cpus_of, mask_of};
pub(crate) use msr::{bits_of, duty_cycle_of, registers_of, text_of};
pub(crate) use napi::napi_of;
pub(crate) use power::{UNIT_UW, same_power};
pub(crate) use unit::{NO_DROP_IN, drop_in_of, is_unit, path_of};

/// Where control groups are mounted, in every distribution. We change none elsewhere.
pub(crate) const CGROUPS: &str = "sys/fs/cgroup";

/// The CPUs on which nothing shall run that can be moved: a partition of cpusets.
pub(crate) const PARTITION: &str = "sys/fs/cgroup/roost-parked";

/// The hints to hardware that chooses its frequency by itself, the fastest first.
const PREFERENCES: [&str; 4] = ["performance", "balance_performance", "balance_power", "power"];

/// One setting that can be read and written.
#[derive(Debug)]
pub(crate) struct Knob {
    root: Root,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A CPU's presence: online or offline.
    Switch(FileKnob),
    File(FileKnob),
    Preference(FileKnob),
    Cpus(CpusKnob),
    Mask(MaskKnob),
    Thread(ThreadKnob),
    Folder(FolderKnob),
    Partition(PartitionKnob),
    Controller(ControllerKnob),
    Unit(UnitKnob),
    DropIn(DropInKnob),
    Bound(BoundKnob),
    Governor(GovernorKnob),
    DutyCycle(DutyCycleKnob),
    Power(FileKnob),
    /// The weight of a group, which `cpu.idle` replaces.
    Weight(FileKnob),
    Indirection(IndirectionKnob),
    Napi(NapiKnob),
    State(StateKnob),
    Stop(StopKnob),
}

/// True of a path that names a setting of a network card.
pub(crate) fn is_of_card(path: &str) -> bool {
    indirection::device_in(path).is_some() || NapiName::from_path(path).is_some()
}

impl Knob {
    /// The knob that `path` names; `None` if Roost changes no such object.
    pub(crate) fn at(root: &Root, path: &str) -> Option<Self> {
        let kind = if let Some(name) = ThreadName::from_path(path) {
            Kind::Thread(ThreadKnob::new(name))
        } else if let Some(name) = StopName::from_path(path) {
            Kind::Stop(StopKnob::new(name))
        } else if let Some(name) = unit::name_in(path) {
            Kind::Unit(UnitKnob::new(root, name))
        } else if let Some(name) = unit::drop_in_name(path) {
            Kind::DropIn(DropInKnob::new(root, name))
        } else if path == PARTITION {
            Kind::Partition(PartitionKnob::new(root.path(path)))
        } else if is_mask_file(path) {
            Kind::Mask(MaskKnob::new(root.path(path)))
        } else if cpu_of_switch(path).is_some() {
            Kind::Switch(FileKnob::new(root.path(path)))
        } else if is_idle_file(path) || is_parameter(path) || uncore_file(path).is_some() {
            Kind::File(FileKnob::new(root.path(path)))
        } else if let Some(file) = frequency_file(path) {
            match file {
                "scaling_setspeed" => Kind::File(FileKnob::new(root.path(path))),
                "energy_performance_preference" => Kind::Preference(FileKnob::new(root.path(path))),
                "scaling_min_freq" | "scaling_max_freq" => Kind::Bound(BoundKnob::new(root.path(path))),
                "scaling_governor" => Kind::Governor(GovernorKnob::new(root, path)),
                _ => return None,
            }
        } else if let Some(cpu) = msr::cpu_in(path) {
            Kind::DutyCycle(DutyCycleKnob::new(root.path(&registers_of(cpu))))
        } else if let Some(device) = indirection::device_in(path) {
            Kind::Indirection(IndirectionKnob::new(root, device))
        } else if let Some(name) = NapiName::from_path(path) {
            Kind::Napi(NapiKnob::new(root, name))
        } else if let Some(file) = power_file(path) {
            match file {
                "constraint_0_power_limit_uw" => Kind::Power(FileKnob::new(root.path(path))),
                "enabled" => Kind::File(FileKnob::new(root.path(path))),
                _ => return None,
            }
        } else {
            match cgroup_file(path)? {
                "cpuset.cpus" => Kind::Cpus(CpusKnob::new(root.path(path))),
                "cgroup.freeze" | "cpu.idle" => Kind::File(FileKnob::new(root.path(path))),
                "cpu.weight" | "cpu.shares" => Kind::Weight(FileKnob::new(root.path(path))),
                "freezer.state" => Kind::State(StateKnob::new(root.path(path))),
                "cgroup.subtree_control" => Kind::Controller(ControllerKnob::new(root.path(path))),
                name if is_number(name.strip_prefix("roost-")?) => {
                    Kind::Folder(FolderKnob::new(root.path(path)))
                }
                _ => return None,
            }
        };
        Some(Self { root: root.clone(), kind })
    }

    pub(crate) fn read(&mut self) -> Result<String, FileError> {
        match &mut self.kind {
            Kind::Switch(knob)
            | Kind::File(knob)
            | Kind::Preference(knob)
            | Kind::Power(knob)
            | Kind::Weight(knob) => knob.read(),
            Kind::Mask(knob) => knob.read(),
            Kind::Cpus(knob) => knob.file.read(),
            Kind::Thread(knob) => knob.read(),
            Kind::Folder(knob) => Ok(knob.read()),
            Kind::Partition(knob) => knob.read(),
            Kind::Controller(knob) => knob.read(),
            Kind::Unit(knob) => knob.read(),
            Kind::DropIn(knob) => knob.read(),
            Kind::Bound(knob) => knob.read(),
            Kind::Governor(knob) => knob.read(),
            Kind::DutyCycle(knob) => knob.read(),
            Kind::Indirection(knob) => knob.read(),
            Kind::Napi(knob) => knob.read(),
            Kind::State(knob) => knob.read(),
            Kind::Stop(knob) => knob.read(),
        }
    }

    /// Writes `value` and returns the text read then: `value` itself where the difference is only
    /// CPUs that are offline.
    pub(crate) fn write(&mut self, value: &str) -> Result<String, FileError> {
        let reads = match &mut self.kind {
            Kind::Switch(knob)
            | Kind::File(knob)
            | Kind::Preference(knob)
            | Kind::Power(knob)
            | Kind::Weight(knob) => knob.write(value)?,
            Kind::Mask(knob) => knob.write(value).and_then(|()| knob.read())?,
            Kind::Cpus(knob) => knob.file.write(value)?,
            Kind::Thread(knob) => knob.write(value)?,
            Kind::Folder(knob) => knob.write(value).map(|()| knob.read())?,
            Kind::Partition(knob) => knob.write(value)?,
            Kind::Controller(knob) => knob.write(value).and_then(|()| knob.read())?,
            Kind::Unit(knob) => knob.write(value).and_then(|()| knob.read())?,
            Kind::DropIn(knob) => knob.write(value).and_then(|()| knob.read())?,
            Kind::Bound(knob) => knob.write(value)?,
            Kind::Governor(knob) => knob.write(value)?,
            Kind::DutyCycle(knob) => knob.write(value).and_then(|()| knob.read())?,
            Kind::Indirection(knob) => knob.write(value).and_then(|()| knob.read())?,
            Kind::Napi(knob) => knob.write(value).and_then(|()| knob.read())?,
            Kind::State(knob) => knob.write(value).and_then(|()| knob.read())?,
            Kind::Stop(knob) => knob.write(value).map(|()| value.to_owned())?,
        };
        Ok(if self.same(value, &reads) { value.to_owned() } else { reads })
    }

    /// Writes the text from before us, and returns the text read then: the nearest one where the
    /// kernel refuses it.
    pub(crate) fn give_back(&mut self, before: &str) -> Result<String, FileError> {
        match &mut self.kind {
            Kind::Cpus(knob) => return knob.give_back(before),
            Kind::Unit(knob) if before.is_empty() => {
                knob.free(&self.root)?;
                knob.write(before)?;
                let reads = knob.read()?;
                if reads.is_empty() {
                    knob.forget();
                }
                return Ok(reads);
            }
            Kind::Thread(knob) => {
                knob.free()?;
                let reads = knob.read()?;
                if same_cpus(&self.root, before, &reads) {
                    return Ok(before.to_owned());
                }
            }
            Kind::Indirection(knob) => {
                knob.free(before)?;
                let reads = knob.read()?;
                if reads == before {
                    return Ok(reads);
                }
            }
            _ => {}
        }
        self.write(before)
    }

    /// True if the text `reads` satisfies `text`. The kernel leaves out CPUs that are offline.
    pub(crate) fn same(&self, text: &str, reads: &str) -> bool {
        match self.kind {
            Kind::Thread(_) | Kind::Cpus(_) | Kind::Unit(_) | Kind::DropIn(_) => {
                same_cpus(&self.root, text, reads)
            }
            Kind::Partition(_) => {
                same_cpus(&self.root, text, reads) || PartitionKnob::is_half_made(text, reads)
            }
            Kind::Mask(_) => same_mask(text, reads),
            Kind::Power(_) => same_power(text, reads),
            _ => text == reads,
        }
    }

    /// True if the kernel may take up a write later than it reads back, so a written text counts as
    /// ours even if it was never read.
    pub(crate) fn is_deferred(&self) -> bool {
        matches!(self.kind, Kind::Bound(_) | Kind::Stop(_))
    }

    /// The other texts that `value` may read as: a driver calls a number by its name where it has
    /// one, and the name depends on the processor.
    pub(crate) fn other_words(&self, value: &str) -> &'static [&'static str] {
        match self.kind {
            Kind::Preference(_) if value.parse::<u8>().is_ok() => &PREFERENCES,
            _ => &[],
        }
    }

    /// The order of putting back: CPUs that are away or set aside, the CPUs of an existing cpuset, then the
    /// cpuset's existence, from the leaves up, and threads when nothing narrows them any more.
    pub(crate) fn turn(&self) -> u8 {
        match self.kind {
            Kind::Switch(_) | Kind::Partition(_) => 0,
            Kind::File(_)
            | Kind::Preference(_)
            | Kind::Cpus(_)
            | Kind::Mask(_)
            | Kind::Unit(_)
            | Kind::Bound(_)
            | Kind::DutyCycle(_)
            | Kind::Power(_)
            | Kind::Indirection(_)
            | Kind::Napi(_) => 1,
            Kind::State(_) | Kind::Stop(_) => 1,
            // After the speed that only its successor takes.
            // And a drop-in after the list that systemd writes there.
            Kind::Folder(_) | Kind::Governor(_) | Kind::DropIn(_) | Kind::Weight(_) => 2,
            Kind::Controller(_) => 3,
            Kind::Thread(_) => 4,
        }
    }

    /// Of nested ones the innermost comes first, except for CPUs: the one above must have the CPUs
    /// that a cpuset of version 1 gets back.
    pub(crate) fn is_undone_from_inside(&self) -> bool {
        !matches!(self.kind, Kind::Cpus(_))
    }
}

/// True if the lists are the same, apart from CPUs that are offline.
pub(crate) fn same_cpus(root: &Root, text: &str, reads: &str) -> bool {
    if text == reads {
        return true;
    }
    let (Ok(asked), Ok(reads)) = (text.parse::<CpuList>(), reads.parse::<CpuList>()) else { return false };
    asked == reads || online_cpus(root).is_ok_and(|online| asked.0.intersection(&online.0).eq(reads.0.iter()))
}

/// The name of the object at `path`, for people.
pub(crate) fn called(path: &str) -> String {
    if let Some(name) = ThreadName::from_path(path) {
        return format!("CPUs of thread {} of process {}", name.thread, name.process);
    }
    if let Some(name) = StopName::from_path(path) {
        return format!("process {}", name.process);
    }
    if let Some(cpu) = msr::cpu_in(path) {
        return format!("duty cycle of CPU {cpu} (MSR 0x19a)");
    }
    if let Some(device) = indirection::device_in(path) {
        return format!("receive queues of {device} (RSS)");
    }
    if let Some(NapiName { device, id, setting }) = NapiName::from_path(path) {
        return format!("{} of {device}'s queue {id} (NAPI)", setting.name());
    }
    match unit::name_in(path) {
        Some(name) => format!("AllowedCPUs= of {name}"),
        None => format!("/{path}"),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The file that takes a CPU offline and online.
pub(crate) fn switch_of(cpu: CpuId) -> String {
    format!("{}/online", cpu_folder(cpu))
}

/// The CPU whose switch this path names.
pub(crate) fn cpu_of_switch(path: &str) -> Option<CpuId> {
    let cpu = path.strip_prefix("sys/devices/system/cpu/cpu")?.strip_suffix("/online")?;
    is_number(cpu).then(|| cpu.parse().ok().map(CpuId))?
}

fn is_idle_file(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("sys/devices/system/cpu/cpu") else { return false };
    match rest.split('/').collect::<Vec<_>>()[..] {
        [cpu, "power", "pm_qos_resume_latency_us"] => is_number(cpu),
        [cpu, "cpuidle", state, "disable"] => {
            is_number(cpu) && state.strip_prefix("state").is_some_and(is_number)
        }
        _ => false,
    }
}

/// The last part of the path of a frequency domain's file.
fn frequency_file(path: &str) -> Option<&str> {
    let (policy, file) =
        path.strip_prefix(crate::cpufreq::FOLDER)?.strip_prefix("/policy")?.split_once('/')?;
    is_number(policy).then_some(file)
}

/// The last part of a path that stays below the control groups.
fn cgroup_file(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.strip_prefix(CGROUPS)?.strip_prefix('/')?.split('/').collect();
    let leads_on = |part: &&str| !matches!(*part, "" | "." | "..");
    parts.iter().all(leads_on).then(|| parts.last().copied())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn only_what_roost_changes_is_a_knob() {
        let machine = FakeMachine::intel_server(2);
        let ours = [
            "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us",
            "sys/devices/system/cpu/cpu12/cpuidle/state3/disable",
            "sys/devices/system/cpu/cpu3/online",
            "sys/devices/system/cpu/cpufreq/policy12/scaling_max_freq",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_setspeed",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
            "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference",
            "sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw",
            "sys/class/powercap/intel-rapl:0/enabled",
            "sys/devices/system/cpu/intel_uncore_frequency/uncore03/elc_floor_freq_khz",
            "sys/devices/system/cpu/intel_uncore_frequency/package_00_die_01/max_freq_khz",
            "msr/cpu3/clock_modulation",
            "sys/fs/cgroup/a b/cpuset.cpus",
            "sys/fs/cgroup/cgroup.subtree_control",
            "sys/fs/cgroup/cpuset/roost-12",
            "sys/fs/cgroup/unified/shop/cgroup.freeze",
            "sys/fs/cgroup/freezer/shop/freezer.state",
            "stopped/12:345",
            "sys/fs/cgroup/roost-parked",
            "affinity/1:2/3:4",
            "unit/my-shop@1.service/AllowedCPUs",
            "unit/system.slice/AllowedCPUs",
            "sys/devices/virtual/workqueue/cpumask",
            "proc/irq/default_smp_affinity",
            "ethtool/eth0/indirection",
            "napi/eth0/258/irq-suspend-timeout",
        ];
        for path in ours {
            assert!(Knob::at(machine.root(), path).is_some(), "{path}");
        }
        let others = [
            "etc/shadow",
            "sys/devices/system/cpu/online",
            "sys/devices/system/cpu/cpu/online",
            "sys/devices/system/cpu/cpu1/../online",
            "sys/devices/system/cpu/cpu1/hotplug/target",
            "/sys/fs/cgroup/cpuset.cpus",
            "sys/devices/system/cpu/cpufreq/policy0/../policy1/scaling_max_freq",
            "sys/devices/system/cpu/cpufreq/policy/scaling_max_freq",
            "sys/devices/system/cpu/cpufreq/boost",
            "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq",
            "sys/class/powercap/intel-rapl:0:0/constraint_0_power_limit_uw",
            "sys/class/powercap/intel-rapl:0/../../../../etc/shadow",
            "sys/class/powercap/intel-rapl:0/constraint_1_power_limit_uw",
            "sys/devices/system/cpu/intel_uncore_frequency/uncore03/elc_low_threshold_percent",
            "sys/devices/system/cpu/intel_uncore_frequency/../cpu0/max_freq_khz",
            "sys/devices/system/cpu/intel_uncore_frequency/uncore03/../../max_freq_khz",
            "msr/cpu3/0x10",
            "dev/cpu/3/msr",
            "sys/fs/cgroup/../../../etc/cpuset.cpus",
            "sys/fs/cgroup//cpuset.cpus",
            "sys/fs/cgroup/a/cpuset.mems",
            "sys/fs/cgroup/a/cgroup.procs",
            "sys/fs/cgroup/roost-",
            "sys/fs/cgroup/a/roost-parked",
            "sys/fs/cgroup/roost-parked/cpuset.cpus.partition",
            "sys/fs/cgroup/roost-1x",
            "sys/fs/cgroup/shop",
            "affinity/1/3",
            "stopped/12",
            "stopped/+1:2",
            "stopped/1:2:3",
            "sys/fs/cgroup/freezer/../freezer/cgroup.kill",
            "sys/fs/cgroup/a/cgroup.kill",
            "unit/../AllowedCPUs",
            "unit/--host=elsewhere.service/AllowedCPUs",
            "unit/shop.service/ExecStart",
        ];
        for path in others {
            assert!(Knob::at(machine.root(), path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_cpu_that_is_offline_makes_no_difference() {
        let machine = FakeMachine::intel_server(4);
        machine.write("sys/devices/system/cpu/online", "0-1,3\n");
        for (text, reads, same) in [
            ("1-3", "1,3", true),
            ("1-3", "1-3", true),
            ("1-3", "1", false),
            ("1", "1-3", false),
            ("", "", true),
            ("", "0-1,3", false),
        ] {
            assert_eq!(same_cpus(machine.root(), text, reads), same, "{text} {reads}");
        }
    }
}
