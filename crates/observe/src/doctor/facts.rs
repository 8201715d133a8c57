//! Everything that the doctor knows of a machine, gathered by `linux`'s readers from one root.
//!
//! CPUs that are alike are one group: a page about 256 CPUs should state their common facts once,
//! and an odd one out should stand out.

use linux::{
    BootWord, Cache, Cgroups, CounterUnit, CpuHolder, FileError, FrequencyDomain, Gaps, Identity, IdleDriver,
    LatencyHolders, MeterZone, NumaNode, Privileges, Rival, Root, SchedExt, StateSettings, Tracing,
    UncoreDomain,
};
use machine::{CpuId, CpuList, Cstate, CstateKind, Duration, IdleLimit, Topology};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The facts of a machine. In JSON, lengths are in nanoseconds, clocks in kHz, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    pub identity: Identity,
    pub cpus: Cpus,
    /// A scheduler in BPF in place of the kernel's own.
    pub sched_ext: Option<SchedExt>,
    pub idle: Idle,
    pub limits: Limits,
    pub frequency: Frequency,
    pub meters: Vec<MeterZone>,
    pub counters: Vec<CounterUnit>,
    pub tracing: Tracing,
    /// Which of Roost's BPF programs load, where that was tried.
    pub bpf_programs: Option<Vec<BpfProgram>>,
    pub privileges: Privileges,
    pub cgroups: Cgroups,
    pub cannot_see: Vec<Unseen>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpus {
    pub online: CpuList,
    pub topology: Topology,
    /// Why none can be taken offline; `None` if they can.
    pub kept_online: Option<String>,
    /// Whether two threads share a core now.
    pub smt: Option<bool>,
    pub numa: Vec<NumaNode>,
    /// Caches, nearest first.
    pub caches: Vec<Cache>,
}

/// Idle states and the governor that chooses among them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Idle {
    pub driver: IdleDriver,
    /// CPUs with equal tables; those without cpuidle are in none.
    pub groups: Vec<IdleGroup>,
    pub without: CpuList,
    /// Parameters of drivers, `module.parameter` and value.
    pub parameters: Vec<(String, String)>,
    /// Whether the hardware may demote requests to C1, where the kernel shows it.
    pub c1_demotion: Option<bool>,
}

/// CPUs with the same idle states in the same condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleGroup {
    pub cpus: CpuList,
    pub states: Vec<IdleState>,
}

/// One state, and whether it may be used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleState {
    #[serde(flatten)]
    pub state: Cstate,
    /// Forbidden or not, and the driver's words.
    #[serde(flatten)]
    pub settings: StateSettings,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Each CPU's own limit; CPUs whose kernel has none, or whose file cannot be read, are in no
    /// group.
    pub per_cpu: Vec<LimitGroup>,
    /// True if this user could set them; `None` for a recorded machine.
    pub may_limit: Option<bool>,
    pub global: Option<IdleLimit>,
    /// The device through which it is asked for.
    pub device: &'static str,
    pub holders: LatencyHolders,
    /// Words of the kernel's command line.
    pub boot_words: Vec<BootWord>,
    /// Other programs that set the same knobs.
    pub rivals: Vec<Rival>,
    /// Roost processes, by the CPUs that they hold.
    pub roost: Vec<CpuHolder>,
    /// Journals of changes that Roost made.
    pub roost_journals: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitGroup {
    pub cpus: CpuList,
    pub limit: IdleLimit,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frequency {
    pub domains: Vec<FrequencyDomain>,
    /// The clocks of caches, mesh and memory controllers.
    pub uncore: Vec<UncoreDomain>,
    pub turbo: Option<bool>,
    /// `intel_pstate` or `amd_pstate` and its mode.
    pub mode: Option<(&'static str, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BpfProgram {
    pub name: String,
    /// Why it does not load; `None` if it does.
    pub refused: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unseen {
    /// The subject: a file, many files alike, or a fact.
    pub what: String,
    pub reason: String,
    pub remedy: String,
}

/// Examines the machine at `root`. `bpf_programs` is the result of loading the programs, where that
/// was tried.
pub fn gather(root: &Root, bpf_programs: Option<Vec<(String, Result<(), String>)>>) -> Facts {
    let mut gaps = Gaps::default();
    let identity = linux::identity(root, &mut gaps);
    let (cpus, mut unseen) = gather_cpus(root, &mut gaps);
    let idle = gather_idle(root, &cpus.online, &mut gaps);
    let limits = gather_limits(root, &cpus.online, &mut gaps);
    let frequency = Frequency {
        domains: linux::frequency_domains(root, &mut gaps),
        uncore: linux::uncore_domains(root, &mut gaps),
        turbo: linux::turbo(root, &mut gaps),
        mode: linux::pstate_mode(root, &mut gaps),
    };
    let mut facts = Facts {
        identity,
        cpus,
        sched_ext: linux::sched_ext(root, &mut gaps),
        idle,
        limits,
        frequency,
        meters: linux::meter_zones(root, &mut gaps),
        counters: linux::counter_units(root, &mut gaps),
        tracing: linux::tracing(root, &mut gaps),
        bpf_programs: bpf_programs.map(|programs| {
            let program =
                |(name, loaded): (String, Result<(), String>)| BpfProgram { name, refused: loaded.err() };
            programs.into_iter().map(program).collect()
        }),
        privileges: linux::privileges(root, &mut gaps),
        cgroups: linux::cgroups(root, &mut gaps),
        cannot_see: Vec::new(),
    };
    unseen.extend(unread_files(root, &gaps.0));
    unseen.extend(facts.unseen());
    facts.cannot_see = unseen;
    facts
}

fn gather_cpus(root: &Root, gaps: &mut Gaps) -> (Cpus, Vec<Unseen>) {
    let mut unseen = Vec::new();
    let listed = gaps.see(linux::online_cpus(root)).unwrap_or_default();
    // A list may name anything; a CPU has a folder.
    let has_folder =
        |cpu: &CpuId| Path::new(&root.path(&format!("sys/devices/system/cpu/cpu{}", cpu.0))).is_dir();
    let (online, absent): (BTreeSet<CpuId>, BTreeSet<CpuId>) = listed.0.into_iter().partition(has_folder);
    if !absent.is_empty() {
        unseen.push(Unseen {
            what: format!("CPU {}", CpuList(absent)),
            reason: "listed as online, but without a folder in /sys/devices/system/cpu".to_owned(),
            remedy: "mount all of /sys here".to_owned(),
        });
    }
    if online.is_empty() {
        unseen.push(Unseen {
            what: "the CPUs".to_owned(),
            reason: "no folder /sys/devices/system/cpu/cpuN".to_owned(),
            remedy: "mount /sys here; for --root, name a folder that holds sys and proc, or a recording"
                .to_owned(),
        });
    }
    let online = CpuList(online);
    let cpus = Cpus {
        topology: linux::topology_in_full(root, &online),
        smt: linux::smt_active(root, gaps),
        kept_online: match linux::Hotplug::supported(root) {
            Ok(()) => None,
            Err(linux::HotplugError::Unsupported(why)) => Some(why),
            Err(error) => Some(error.to_string()),
        },
        numa: linux::numa_nodes(root, gaps),
        caches: linux::caches(root, &online, gaps),
        online,
    };
    (cpus, unseen)
}

fn gather_idle(root: &Root, online: &CpuList, gaps: &mut Gaps) -> Idle {
    let (mut groups, mut without) = (Vec::<IdleGroup>::new(), CpuList::default());
    for &cpu in &online.0 {
        let table = match linux::idle_table(root, cpu) {
            Ok(table) => table,
            Err(error) => {
                // The folder's absence is an answer. A file's absence within the folder is not.
                match error {
                    FileError::Missing { path } if path.ends_with("cpuidle") => {}
                    FileError::Missing { path } => gaps.0.push(FileError::Unreadable {
                        path,
                        cause: std::io::Error::other("the state's folder lacks it"),
                    }),
                    other => gaps.0.push(other),
                }
                without.0.insert(cpu);
                continue;
            }
        };
        let settings = linux::state_settings(root, cpu, gaps);
        let states: Vec<IdleState> = table
            .0
            .into_iter()
            .zip(settings)
            .map(|(state, settings)| IdleState { state, settings })
            .collect();
        match groups.iter_mut().find(|group| group.states == states) {
            Some(group) => drop(group.cpus.0.insert(cpu)),
            None => groups.push(IdleGroup { cpus: CpuList([cpu].into()), states }),
        }
    }
    Idle {
        driver: linux::idle_driver(root),
        groups,
        without,
        parameters: linux::idle_parameters(root, gaps),
        c1_demotion: linux::c1_demotion(root, gaps),
    }
}

fn gather_limits(root: &Root, online: &CpuList, gaps: &mut Gaps) -> Limits {
    let mut per_cpu: Vec<LimitGroup> = Vec::new();
    for &cpu in &online.0 {
        let Some(limit) = gaps.see(linux::cpu_limit(root, cpu)) else { continue };
        match per_cpu.iter_mut().find(|group| group.limit == limit) {
            Some(group) => drop(group.cpus.0.insert(cpu)),
            None => per_cpu.push(LimitGroup { cpus: CpuList([cpu].into()), limit }),
        }
    }
    let (roost, roost_journals) = linux::cpu_holders(root, gaps);
    Limits {
        per_cpu,
        may_limit: online.0.first().and_then(|&cpu| linux::may_limit(root, cpu)),
        global: gaps.see(linux::try_global_limit(root)),
        device: linux::latency_device(root),
        holders: linux::latency_holders(root, gaps),
        boot_words: linux::boot_words(root, gaps),
        rivals: linux::rivals(root, gaps),
        roost,
        roost_journals,
    }
}

/// One gap for all files that differ in their numbers alone: a machine of 256 CPUs fails 256 times
/// alike.
fn unread_files(root: &Root, errors: &[FileError]) -> Vec<Unseen> {
    let mut alike: BTreeMap<String, Vec<(&FileError, String)>> = BTreeMap::new();
    for error in errors {
        let below = error.path().strip_prefix(root.path("")).unwrap_or(error.path());
        let path = format!("/{}", below.display()).replacen("//", "/", 1);
        alike.entry(without_numbers(&path)).or_default().push((error, path));
    }
    let gap = |(pattern, errors): (String, Vec<(&FileError, String)>)| {
        let (first, path) = &errors[0];
        let what = match errors.len() {
            1 => path.clone(),
            count => format!("{pattern} ({count} files)"),
        };
        let remedy = match first {
            FileError::Unreadable { cause, .. } if cause.kind() == std::io::ErrorKind::PermissionDenied => {
                "run as root, or give this user the file"
            }
            _ => "look at the file: no kernel that we know writes this",
        };
        Unseen { what, reason: first.reason(), remedy: remedy.to_owned() }
    };
    alike.into_iter().map(gap).collect()
}

fn without_numbers(path: &str) -> String {
    let mut pattern = String::new();
    for character in path.chars() {
        if !character.is_ascii_digit() {
            pattern.push(character);
        } else if !pattern.ends_with('*') {
            pattern.push('*');
        }
    }
    pattern
}

impl Facts {
    /// Why the program in the kernel whose name begins so does not load, where that was tried.
    pub(super) fn refused(&self, program: &str) -> Option<&str> {
        let programs = self.bpf_programs.as_ref()?;
        programs.iter().find(|known| known.name.starts_with(program))?.refused.as_deref()
    }

    /// Facts that no file gives, or not to this user.
    fn unseen(&self) -> Vec<Unseen> {
        let mut unseen = Vec::new();
        let mut add = |what: &str, reason: String, remedy: &str| {
            unseen.push(Unseen { what: what.to_owned(), reason, remedy: remedy.to_owned() });
        };
        if self.limits.holders.unseen > 0 {
            let count = self.limits.holders.unseen;
            let files = if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
            add(
                "all holders of /dev/cpu_dma_latency",
                format!("this user may not see what {files} of others hold open"),
                "run as root",
            );
        }
        let table = !self.idle.groups.is_empty();
        if self.identity.virtual_machine == Some(true) {
            add(
                "what the hardware does when a CPU halts",
                "this is a virtual machine: the host decides, and shows nothing of it".to_owned(),
                "measure what a wake-up costs: roost doctor --probe",
            );
        } else if table && self.idle.c1_demotion.is_none() {
            add(
                "hardware demotion (a deep state asked for, a shallower one taken)",
                "this kernel has no file for it on this processor, and to read an MSR wakes the core"
                    .to_owned(),
                "compare the residency asked for with the hardware's, where there are cstate_core counters",
            );
        }
        if self.tracing.tracepoints.iter().all(|point| point.present.is_none()) {
            add(
                "tracepoints",
                "neither tracefs nor the kernel's types (BTF) can be looked into".to_owned(),
                "run as root, or mount tracefs on /sys/kernel/tracing",
            );
        }
        unseen
    }

    /// The halting states as the kernel describes them, of the group with the most of them.
    pub fn halts(&self) -> usize {
        self.idle.groups.iter().map(|group| halts(&group.states).count()).max().unwrap_or(0)
    }

    /// The same, of those that may be used now: not forbidden, within every limit.
    pub fn usable_halts(&self) -> usize {
        let within = |group: &IdleGroup| {
            let bound = self.bound(&group.cpus);
            halts(&group.states)
                .filter(|state| state.settings.disabled != Some(true) && state.state.exit_latency <= bound)
                .count()
        };
        self.idle.groups.iter().map(within).max().unwrap_or(0)
    }

    /// The longest exit latency that is allowed on the least limited of `cpus`.
    fn bound(&self, cpus: &CpuList) -> Duration {
        let groups = self.limits.per_cpu.iter().filter(|group| !group.cpus.0.is_disjoint(&cpus.0));
        let own = groups.map(|group| latency_of(group.limit)).max().unwrap_or(Duration::MAX);
        own.min(self.limits.global.map_or(Duration::MAX, latency_of))
    }

    /// True if some CPU has a state that polls.
    pub fn can_poll(&self) -> bool {
        let polls = |state: &IdleState| state.state.kind == CstateKind::Polling;
        self.idle.groups.iter().any(|group| group.states.iter().any(polls))
    }

    pub fn deepest(&self) -> Option<Duration> {
        let states = self.idle.groups.iter().flat_map(|group| &group.states);
        states.map(|state| state.state.exit_latency).max()
    }
}

fn halts(states: &[IdleState]) -> impl Iterator<Item = &IdleState> {
    states.iter().filter(|state| state.state.kind == CstateKind::Halting)
}

/// The longest exit latency that a limit lets through.
pub(super) fn latency_of(limit: IdleLimit) -> Duration {
    match limit {
        IdleLimit::None | IdleLimit::Deepest => Duration::MAX,
        IdleLimit::ExitLatency(latency) => latency,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_fail_alike_are_one_gap() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let error = |cpu: u16| FileError::Nonsense {
            path: root.path(&format!("sys/cpu{cpu}/cpuidle/state12/latency")),
            text: "x".to_owned(),
            expected: "a number",
        };
        let gaps = unread_files(&root, &[error(0), error(11)]);
        assert_eq!(gaps[0].what, "/sys/cpu*/cpuidle/state*/latency (2 files)");
        assert_eq!(unread_files(&root, &[error(7)])[0].what, "/sys/cpu7/cpuidle/state12/latency");
    }

    #[test]
    fn an_empty_folder_is_a_machine_of_which_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let facts = gather(&Root::at(folder.path()), None);
        assert!(facts.cpus.online.0.is_empty() && facts.idle.groups.is_empty());
        assert_eq!((facts.halts(), facts.limits.global, facts.limits.may_limit), (0, None, None));
        let what: Vec<&str> = facts.cannot_see.iter().map(|gap| gap.what.as_str()).collect();
        assert_eq!(what, ["the CPUs", "tracepoints"]);
    }
}
