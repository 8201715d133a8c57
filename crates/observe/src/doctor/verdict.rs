//! The verdict on each family of Roost's policies: works, works with less, cannot; with the reason
//! and the remedy.
//!
//! Each conclusion rests on [`Facts`] alone, and each family has one function that reads as its
//! list of needs. A need that is not met either ends the matter ([`Case::cannot`]) or costs
//! something ([`Case::less`]); the worst one decides, and all are told.

use super::Facts;
use linux::{Capability, CgroupVersion};
use machine::IdleLimit;
use serde::Serialize;

/// How well a policy can do its work on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// All that it needs is here.
    Works,
    /// It runs, and something of its gain or its sight is missing.
    WorksWithLess,
    /// There is nothing here for it to act on, or it may not.
    Cannot,
}

impl VerdictKind {
    pub fn words(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::WorksWithLess => "works with less",
            Self::Cannot => "cannot",
        }
    }
}

/// One family of policies, on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub family: &'static str,
    /// The policies and commands in it.
    pub policies: &'static str,
    pub verdict: VerdictKind,
    pub reasons: Vec<String>,
    pub remedies: Vec<String>,
}

/// All families, in the order of the papers' concern: sleep first, then CPUs, then clocks, then
/// time.
pub fn verdicts(facts: &Facts) -> Vec<Verdict> {
    vec![
        idle_limits(facts),
        active_cpus(facts),
        offline_cpus(facts),
        idle_feedback(facts),
        sensitivity(facts),
        clocks_by_load(facts),
        uncore(facts),
        hurry_up(facts),
        calls(facts),
        wake_ups(facts),
        staged_bursts(facts),
        quiescence(facts),
        observation(facts),
    ]
}

/// The needs of one family, as they are met or not.
struct Case {
    verdict: Verdict,
    findings: Vec<(VerdictKind, String)>,
}

impl Case {
    fn of(family: &'static str, policies: &'static str) -> Self {
        let (reasons, remedies) = (Vec::new(), Vec::new());
        let verdict = Verdict { family, policies, verdict: VerdictKind::Works, reasons, remedies };
        Self { verdict, findings: Vec::new() }
    }

    fn find(&mut self, kind: VerdictKind, why: impl Into<String>, remedy: &str) {
        self.verdict.verdict = self.verdict.verdict.max(kind);
        self.findings.push((kind, why.into()));
        if !remedy.is_empty() && !self.verdict.remedies.iter().any(|known| known == remedy) {
            self.verdict.remedies.push(remedy.to_owned());
        }
    }

    fn good(&mut self, why: impl Into<String>) {
        self.find(VerdictKind::Works, why, "");
    }

    fn less(&mut self, why: impl Into<String>, remedy: &str) {
        self.find(VerdictKind::WorksWithLess, why, remedy);
    }

    fn cannot(&mut self, why: impl Into<String>, remedy: &str) {
        self.find(VerdictKind::Cannot, why, remedy);
    }

    fn end(mut self) -> Verdict {
        self.findings.sort_by_key(|(kind, _)| std::cmp::Reverse(*kind));
        self.verdict.reasons = self.findings.into_iter().map(|(_, why)| why).collect();
        self.verdict
    }
}

const GIVE_PM_QOS: &str =
    "run as root, or give this user cpuN/power/pm_qos_resume_latency_us (udev, tmpfiles)";
const BARE_METAL: &str =
    "use bare metal, or a virtual machine whose host exposes its idle states (QEMU: cpu-pm=on)";
const GIVE_BPF: &str = "grant CAP_BPF and CAP_PERFMON, or run as root";
const GIVE_BTF: &str = "a kernel with CONFIG_DEBUG_INFO_BTF";
const ASK_HOST: &str = "measure what sleep costs here: roost doctor --probe";

/// The needs of any policy of idle depth: states to choose from, and permission to choose.
fn idle_depth(facts: &Facts, case: &mut Case) {
    let (halts, usable) = (facts.halts(), facts.usable_halts());
    if halts == 0 {
        let driver = facts.idle.driver.driver.as_deref().unwrap_or("none");
        case.less(
            format!("no cpuidle (driver {driver}): how deep a CPU sleeps is not ours to limit"),
            ASK_HOST,
        );
    } else if halts == 1 {
        case.less("one halt state only: a limit can change nothing but halting to polling", BARE_METAL);
    } else if usable < 2 {
        let (who, remedy) = who_limits(facts);
        case.less(format!("{halts} halt states, but only {usable} may be used: {who}"), &remedy);
    } else {
        case.good(format!("{usable} halt states to choose from"));
    }
    if halts > 0 {
        leave_to_limit(facts, case);
    }
}

fn leave_to_limit(facts: &Facts, case: &mut Case) {
    if !may_limit(facts) {
        case.less("this user may not set idle limits", GIVE_PM_QOS);
    }
    let running: Vec<_> = facts.limits.roost.iter().filter(|holder| holder.runs).collect();
    if let Some(first) = running.first() {
        case.less(
            format!("{} CPUs are held by {}", running.len(), first.holder),
            "stop that run, or choose other CPUs",
        );
    }
}

/// The needs of a policy that makes sleeps longer and leaves their depth to the kernel.
fn longer_sleeps(facts: &Facts, case: &mut Case) {
    match facts.halts() {
        0 | 1 => case.less("what longer sleeps save is the host's affair, or a plain halt's", ASK_HOST),
        _ if facts.usable_halts() < 2 => {
            let (who, remedy) = who_limits(facts);
            case.less(format!("the longer sleeps stay shallow: {who}"), &remedy);
        }
        usable => case.good(format!("longer sleeps can be deeper: {usable} halt states")),
    }
}

/// The limits on deeper states, their owners, and the remedy.
fn who_limits(facts: &Facts) -> (String, String) {
    if let Some(IdleLimit::ExitLatency(latency)) = facts.limits.global
        && facts.deepest().is_some_and(|deepest| deepest > latency)
    {
        let names: Vec<String> = facts
            .limits
            .holders
            .holders
            .iter()
            .map(|holder| format!("{} (process {})", holder.name, holder.pid))
            .collect();
        let who = if names.is_empty() { "a process".to_owned() } else { names.join(", ") };
        let remedy = format!("stop {who}, or change its profile (for tuned: force_latency)");
        return (format!("{who} holds {} at {latency}", facts.limits.device), remedy);
    }
    let forbidden = facts.idle.groups.iter().flat_map(|group| &group.states).any(|state| {
        state.settings.disabled == Some(true) && state.settings.disabled_by_default != Some(true)
    });
    if forbidden {
        let who = "states were forbidden through cpuidle's disable files";
        return (who.to_owned(), "write 0 to cpuN/cpuidle/stateM/disable".to_owned());
    }
    let who = "the CPUs' own limits (pm_qos_resume_latency_us) forbid the deeper ones";
    (who.to_owned(), "write 0 to cpuN/power/pm_qos_resume_latency_us, or stop who set it".to_owned())
}

/// True if the per-CPU limits can be set. A recording's files say nothing about that; its
/// capabilities do.
fn may_limit(facts: &Facts) -> bool {
    !facts.limits.per_cpu.is_empty() && facts.limits.may_limit.unwrap_or_else(|| writes_sysfs(facts))
}

/// True if this user's capabilities let it write the kernel's files.
fn writes_sysfs(facts: &Facts) -> bool {
    facts.privileges.has(Capability::DacOverride) == Some(true) && facts.cgroups.sysfs_writable != Some(false)
}

fn idle_limits(facts: &Facts) -> Verdict {
    let mut case = Case::of("idle limits", "roost serve: peafowl, active-idle, roost");
    idle_depth(facts, &mut case);
    if facts.cpus.online.0.len() == 1 {
        case.cannot("one CPU: there is no other worker to hand connections to", "give it two CPUs or more");
    } else if case.verdict.verdict != VerdictKind::Works {
        case.good("connections are still gathered on few workers, and the others left idle");
    }
    case.end()
}

fn active_cpus(facts: &Facts) -> Verdict {
    let mut case = Case::of("active CPUs", "carb, by affinity or cpuset");
    if facts.cpus.online.0.len() < 2 {
        case.cannot("one CPU: there is nothing to choose", "give it two CPUs or more");
    }
    let others = facts.privileges.has(Capability::SysNice) == Some(true);
    let cpuset = facts.cgroups.cpuset.as_ref();
    match cpuset {
        Some(place) => case.good(format!("cpuset by cgroup v{} at {}", place.version, place.path)),
        None => case.less("no cpuset is mounted: affinity alone, which races with new threads", ""),
    }
    if facts.cgroups.partitions {
        case.good("parked CPUs can be an isolated partition (park = \"isolated\" in roost.toml)");
    }
    if !others {
        case.less(
            "affinity of this user's own processes only (no CAP_SYS_NICE)",
            "run as root, or grant CAP_SYS_NICE",
        );
    }
    if let Some(scheduler) = &facts.sched_ext {
        let name = scheduler.name.as_deref().unwrap_or("without a name");
        case.less(
            format!("a sched_ext scheduler ({name}) places tasks: it may pack them onto few CPUs itself"),
            "compare both with roost prove, and keep the one that saves more",
        );
    }
    longer_sleeps(facts, &mut case);
    if facts.limits.rivals.iter().any(|rival| rival.program.name == "irqbalance") {
        case.less(
            "irqbalance wakes parked CPUs with interrupts",
            "tell irqbalance (--banirq, IRQBALANCE_BANNED_CPULIST) or stop it",
        );
    }
    if let Some(why) = facts.refused("alarms:") {
        case.less(format!("no alarm between epochs, it governs by epochs alone: {}", first_line(why)), "");
    }
    case.end()
}

fn offline_cpus(facts: &Facts) -> Verdict {
    let mut case = Case::of("CPUs offline", "govern: actuator = \"hotplug\"");
    match &facts.cpus.kept_online {
        Some(why) => case.cannot(why, "park by cpuset or affinity"),
        None => case.good("parked CPUs can go offline; threads keep the CPUs that they chose"),
    }
    if facts.privileges.has(Capability::DacOverride) != Some(true) {
        case.cannot("this user may take no CPU offline", "run as root");
    }
    case.end()
}

fn first_line(why: &str) -> &str {
    why.lines().next().unwrap_or_default()
}

fn idle_feedback(facts: &Facts) -> Verdict {
    let mut case = Case::of("idle feedback", "idle-feedback: the states by their mispredictions");
    match facts.halts() {
        0 => case
            .cannot("no cpuidle: there is neither a state to choose nor a count to learn from", BARE_METAL),
        1 => case.cannot("one halt state: there is nothing to choose between", BARE_METAL),
        _ => idle_depth(facts, &mut case),
    }
    case.end()
}

/// The needs of any policy of frequency.
fn clocks(facts: &Facts, case: &mut Case) {
    let domains = &facts.frequency.domains;
    if domains.is_empty() {
        let remedy = match facts.identity.virtual_machine {
            Some(true) => "the host sets the clocks: run Roost there, or use bare metal",
            _ => {
                "load a cpufreq driver (intel_pstate, amd-pstate, acpi-cpufreq), or enable it in the firmware"
            }
        };
        case.cannot("no cpufreq: Linux sets no clocks here", remedy);
        return;
    }
    if !domains.iter().all(|domain| domain.may_set.unwrap_or_else(|| writes_sysfs(facts))) {
        case.cannot(
            "this user may not set clocks",
            "run as root, or give this user cpufreq/policyN/scaling_*_freq (udev, tmpfiles)",
        );
    }
    let fixed = |domain: &linux::FrequencyDomain| {
        domain.hardware_min.is_some() && domain.hardware_min == domain.hardware_max
    };
    if domains.iter().all(fixed) {
        case.cannot("the hardware has one frequency only", "");
    }
    if let Some(("intel_pstate", mode)) = &facts.frequency.mode
        && mode == "active"
    {
        case.good("intel_pstate is active: bounds are kept, the hardware chooses within them");
    }
    if domains.iter().all(|domain| domain.preference.is_some()) {
        case.good("the hardware takes a preference as well (EPP): frequency_actuator = \"epp\"");
    }
}

fn sensitivity(facts: &Facts) -> Verdict {
    let mut case = Case::of("sensitivity DVFS", "sensitivity: the clock by how much speed matters");
    clocks(facts, &mut case);
    if let Some(unit) = facts.counters.iter().find(|unit| unit.counts_cycles()) {
        case.good(format!("stalls are counted by {}", unit.name));
        if !may_count(facts) {
            case.less("counters are there, and not for this user", "grant CAP_PERFMON, or run as root");
        }
    } else {
        let why = match facts.identity.virtual_machine {
            Some(true) => "none: virtual machine",
            _ => "none listed by the kernel",
        };
        case.less(
            format!(
                "no hardware counters ({why}): memory-boundness is found by trying clocks, not by stalls"
            ),
            "ask for a virtual PMU, or use bare metal",
        );
    }
    case.end()
}

fn may_count(facts: &Facts) -> bool {
    facts.privileges.has(Capability::Perfmon) == Some(true)
        || facts.privileges.has(Capability::SysAdmin) == Some(true)
        || facts.privileges.perf_event_paranoid.is_some_and(|paranoid| paranoid <= 0)
}

fn clocks_by_load(facts: &Facts) -> Verdict {
    let mut case = Case::of("clocks by load", "pegasus, rubik");
    let capped = facts.meters.iter().any(|zone| zone.name.starts_with("package-") && zone.cap.is_some());
    if capped && facts.frequency.domains.is_empty() {
        case.less("no cpufreq: pegasus alone, by the sockets' power (frequency_actuator = \"rapl\")", "");
    } else {
        clocks(facts, &mut case);
    }
    if capped && !facts.frequency.domains.is_empty() {
        case.good("sockets have a power cap, which pegasus can move: frequency_actuator = \"rapl\"");
    }
    let widest = facts.frequency.domains.iter().map(|domain| domain.cpus.0.len()).max().unwrap_or(0);
    let threads = facts.threads_per_core();
    if widest > threads {
        case.less(
            format!(
                "{widest} CPUs change speed together: pegasus as ever; rubik per domain, not per request"
            ),
            "",
        );
    }
    case.end()
}

fn uncore(facts: &Facts) -> Verdict {
    let mut case = Case::of("uncore", "govern --uncore auto, elc or a clock");
    let all = &facts.frequency.uncore;
    let settable: Vec<_> = all.iter().filter(|domain| domain.hardware.is_some()).collect();
    if settable.is_empty() {
        let (why, remedy) = match (facts.identity.virtual_machine, all.is_empty()) {
            (Some(true), _) => ("its clock is the host's", "run Roost there, or use bare metal"),
            (_, true) => (
                "the kernel shows no clock of it",
                "on an Intel server load its driver (modprobe intel-uncore-frequency)",
            ),
            (_, false) => ("its clock is shown and cannot be set", ""),
        };
        case.cannot(why, remedy);
        return case.end();
    }
    if !settable.iter().all(|domain| domain.may_set.unwrap_or_else(|| writes_sysfs(facts))) {
        case.cannot("this user may not set it", "run as root");
    }
    case.good("as slow as the goal allows: --uncore auto");
    if settable.iter().any(|domain| domain.elc.is_none()) {
        case.less(
            "no efficiency latency control: --uncore elc is not to be had",
            "Linux 6.12, on a processor with TPMI",
        );
    }
    case.end()
}

fn hurry_up(facts: &Facts) -> Verdict {
    let mut case = Case::of("hurry-up", "govern hurry-up: the highest clock for long calls");
    clocks(facts, &mut case);
    let widest = facts.frequency.domains.iter().map(|domain| domain.cpus.0.len()).max().unwrap_or(0);
    if widest > facts.threads_per_core() {
        case.less(format!("{widest} CPUs change speed together: they hurry together"), "");
    }
    if facts.frequency.turbo == Some(false) {
        case.less("turbo is off: there is no more speed to hurry with", "turn turbo on (no_turbo, boost)");
    }
    if let Some(why) = facts.refused("threads:") {
        case.less(
            format!(
                "threads are followed by their files in /proc, and no idle CPU goes to the minimum: {}",
                first_line(why)
            ),
            "",
        );
    }
    case.end()
}

fn calls(facts: &Facts) -> Verdict {
    let mut case = Case::of("counted calls", "roost hot, govern hurry-up --uprobe: native functions");
    if !may_load_programs(facts) {
        case.cannot("BPF is not for this user", GIVE_BPF);
    }
    if let Some(why) = facts.refused("calls:") {
        case.cannot(first_line(why), "");
    } else if facts.tracing.btf == Some(false) {
        case.cannot("the kernel does not describe its types: no BPF program fits", GIVE_BTF);
    }
    if case.verdict.verdict == VerdictKind::Works {
        case.good("functions of native programs can be watched by uprobes");
    }
    case.end()
}

fn may_load_programs(facts: &Facts) -> bool {
    facts.privileges.has(Capability::SysAdmin) == Some(true)
        || (facts.privileges.has(Capability::Bpf) == Some(true)
            && facts.privileges.has(Capability::Perfmon) == Some(true))
}

fn wake_ups(facts: &Facts) -> Verdict {
    let mut case = Case::of("anticipatory wake-ups", "roost wake: ready before the event");
    if facts.idle.groups.is_empty() {
        case.less(
            "no cpuidle: a helper thread must be awake in the CPU's stead, which gains less and costs it",
            ASK_HOST,
        );
    } else if facts.can_poll() {
        case.good("a CPU can be made to poll, then to sleep again, by one write each");
    } else if facts.halts() > 1 {
        case.less("no state polls here: a CPU is made ready in its shallowest halt", "");
    } else {
        case.less("one state, and it halts: a helper thread must keep the CPU awake", BARE_METAL);
    }
    if !facts.idle.groups.is_empty() {
        leave_to_limit(facts, &mut case);
    }
    case.end()
}

fn staged_bursts(facts: &Facts) -> Verdict {
    let mut case = Case::of("staged bursts", "roost stage: requests gathered, served together");
    case.good("a proxy needs no leave from the kernel");
    longer_sleeps(facts, &mut case);
    case.end()
}

fn quiescence(facts: &Facts) -> Verdict {
    let mut case = Case::of("quiescence", "roost quiesce: freeze what can wait");
    let root = facts.privileges.has(Capability::DacOverride) == Some(true);
    match &facts.cgroups.freezer {
        Some(place) if place.version == 2 => {
            case.good(format!("groups freeze by cgroup.freeze under {}", place.path));
        }
        Some(place) => case.less(format!("the v1 freezer at {} takes five times as long", place.path), ""),
        None => case.less("no freezer: SIGSTOP, which the stopped can see", "mount cgroup v2"),
    }
    if facts.cgroups.version == CgroupVersion::Hybrid {
        case.less("v1 and v2 are both mounted: a service may be in either tree", "");
    }
    if let Some(why) = facts.refused("waits:") {
        case.less(format!("what threads wait for cannot be told apart: {}", first_line(why)), "");
    }
    if !root {
        case.less(
            "this user may freeze groups that are delegated to it only",
            "run as root, or delegate the group (systemd: Delegate=yes)",
        );
    }
    case.end()
}

fn observation(facts: &Facts) -> Verdict {
    let mut case = Case::of("observation", "roost observe: sleeps and requests as they are");
    let has = |name: &str| {
        facts.tracing.tracepoints.iter().any(|point| point.name == name && point.present == Some(true))
    };
    if !may_load_programs(facts) {
        case.less("BPF is not for this user: counts of sleeps, no lengths", GIVE_BPF);
    }
    if facts.tracing.btf == Some(false) {
        case.less("the kernel does not describe its types: no BPF program fits", GIVE_BTF);
    }
    if !has("power:cpu_idle") {
        case.less("no tracepoint power:cpu_idle: no lengths of sleeps", "a kernel with CONFIG_EVENT_TRACING");
    }
    let requests = ["sock:sk_data_ready", "sock:sock_recv_length", "sock:sock_send_length"];
    if !requests.into_iter().all(has) {
        case.less("no socket tracepoints: requests are seen at the cgroup's border", "Linux 6.3 or later");
    }
    for program in facts.bpf_programs.iter().flatten() {
        let is_sight = ["sleeps", "requests"].iter().any(|kind| program.name.starts_with(kind));
        if let Some(reason) = program.refused.as_ref().filter(|_| is_sight) {
            case.less(format!("the kernel refuses {}: {}", program.name, first_line(reason)), "");
        }
    }
    if facts.meters.iter().all(|zone| zone.unreadable.is_some()) {
        let remedy = if facts.meters.is_empty() { "" } else { "run as root, or give this user energy_uj" };
        case.less("no meter can be read: energy is modelled, and labelled so", remedy);
    }
    if case.verdict.verdict == VerdictKind::Works {
        case.good("lengths of sleeps, requests at the sockets, and a meter");
    }
    case.end()
}

impl Facts {
    /// The most threads that share a core.
    pub fn threads_per_core(&self) -> usize {
        let cpus = &self.cpus.topology.0;
        let mut cores = std::collections::BTreeMap::<(u16, u16), usize>::new();
        for cpu in cpus {
            *cores.entry((cpu.package, cpu.core)).or_default() += 1;
        }
        cores.into_values().max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_and_is_told_first() {
        let mut case = Case::of("a family", "policies");
        case.good("this is here");
        case.less("that is small", "enlarge it");
        case.cannot("the other is missing", "get it");
        case.less("that is small too", "enlarge it");
        let verdict = case.end();
        assert_eq!(verdict.verdict, VerdictKind::Cannot);
        assert_eq!(verdict.reasons[0], "the other is missing");
        assert_eq!(verdict.reasons.last().unwrap(), "this is here");
        assert_eq!(verdict.remedies, ["enlarge it", "get it"]);
    }
}
