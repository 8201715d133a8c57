//! The permissions of this process: its user, its capabilities, its CPUs, and the kernel's
//! restrictions on all users.

use crate::root::{Gaps, Root};
use machine::CpuList;
use serde::Serialize;

/// A capability that some part of Roost needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Passes over file permissions: pm_qos, cpufreq and RAPL files.
    DacOverride,
    /// Priority and affinity of other users' processes.
    SysNice,
    /// cpuidle's `disable` files, and most else.
    SysAdmin,
    /// Counters of the whole machine, tracepoints by perf.
    Perfmon,
    /// Loads BPF programs.
    Bpf,
}

impl Capability {
    pub const ALL: [Self; 5] = [Self::DacOverride, Self::SysNice, Self::SysAdmin, Self::Perfmon, Self::Bpf];

    /// The name in `capabilities(7)`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::SysNice => "CAP_SYS_NICE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }

    const fn bit(self) -> u32 {
        match self {
            Self::DacOverride => 1,
            Self::SysAdmin => 21,
            Self::SysNice => 23,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Privileges {
    pub user: Option<u32>,
    /// Its capabilities among [`Capability::ALL`]; `None` if they cannot be read.
    pub capabilities: Option<Vec<Capability>>,
    /// The CPUs that it may use.
    pub cpus: Option<CpuList>,
    /// `perf_event_paranoid`: from -1 (everything for every user) by 2 (own processes only) to 4
    /// (nothing, on some distributions); CAP_PERFMON passes over it.
    pub perf_event_paranoid: Option<i32>,
    /// `unprivileged_bpf_disabled`: 0 lets every user load small programs, 1 and 2 demand CAP_BPF.
    pub unprivileged_bpf_disabled: Option<u8>,
}

impl Privileges {
    /// True if it has `capability`; `None` if that cannot be read.
    pub fn has(&self, capability: Capability) -> Option<bool> {
        self.capabilities.as_ref().map(|held| held.contains(&capability))
    }
}

/// Reads `/proc/self/status` and two of the kernel's settings.
pub fn privileges(root: &Root, gaps: &mut Gaps) -> Privileges {
    let status = gaps.text(root, "proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let bits = field("CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    Privileges {
        // Real, effective, saved, filesystem: the second counts.
        user: field("Uid").and_then(|uids| uids.split_whitespace().nth(1)?.parse().ok()),
        capabilities: bits.map(|bits| {
            Capability::ALL.into_iter().filter(|capability| bits >> capability.bit() & 1 == 1).collect()
        }),
        cpus: field("Cpus_allowed_list").and_then(|list| list.parse().ok()),
        perf_event_paranoid: gaps.parse(root, "proc/sys/kernel/perf_event_paranoid", "a number from -1 to 4"),
        unprivileged_bpf_disabled: gaps.parse(root, "proc/sys/kernel/unprivileged_bpf_disabled", "0, 1 or 2"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn capabilities_are_read_from_their_bits() {
        let machine = FakeMachine::intel_server(1);
        let read = |status: &str| {
            machine.write("proc/self/status", status);
            privileges(machine.root(), &mut Gaps::default())
        };
        let root = read("Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1\n");
        assert_eq!(root.capabilities.as_deref(), Some(Capability::ALL.as_slice()));
        assert_eq!((root.user, root.cpus.unwrap().to_string()), (Some(0), "0-1".to_owned()));
        let nobody = read("Uid:\t7\t1000\t7\t7\nCapEff:\t0000000000000000\n");
        assert_eq!((nobody.user, nobody.has(Capability::Bpf)), (Some(1000), Some(false)));
        let bpf = read("CapEff:\t000000c000000000\n");
        assert_eq!(bpf.capabilities, Some(vec![Capability::Perfmon, Capability::Bpf]));
        let nonsense = read("CapEff:\tall of them\n");
        assert_eq!(nonsense.has(Capability::Bpf), None, "unknown is not no");
    }

    #[test]
    fn this_process_is_a_user_with_cpus() {
        let mut gaps = Gaps::default();
        let me = privileges(&Root::system(), &mut gaps);
        assert_eq!(me.cpus, crate::allowed_cpus().ok());
        assert!(me.user.is_some() && me.capabilities.is_some());
    }
}
