//! The page for people: sections of labelled lines, no wider than 100 columns.
//!
//! A line states a fact, in the kernel's words where it has some, and its meaning where that is not
//! plain. Facts common to many CPUs are stated once, with their numbers before them.

use super::facts::{Facts, IdleState};
use super::verdict::Verdict;
use linux::{Capability, CgroupVersion, FrequencyDomain, UncoreDomain};
use machine::{CpuList, CstateKind, Duration, IdleLimit, Kilohertz};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// No line is longer, but for a word that is.
pub(crate) const WIDTH: usize = 100;
/// Where the text behind a label begins.
const INDENT: usize = 18;

/// The page about `facts` and the verdicts drawn from them.
pub fn page(facts: &Facts, verdicts: &[Verdict]) -> String {
    let mut page = Page(String::new());
    machine(&mut page, facts);
    cpus(&mut page, facts);
    idle_states(&mut page, facts);
    limits(&mut page, facts);
    frequency(&mut page, facts);
    meters(&mut page, facts);
    watching(&mut page, facts);
    leave(&mut page, facts);
    cannot_see(&mut page, facts);
    policies(&mut page, verdicts);
    page.0
}

struct Page(String);

impl Page {
    fn section(&mut self, title: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(title);
        self.0.push('\n');
    }

    /// A label and its text, wrapped below itself. A long label has a line of its own.
    fn line(&mut self, label: &str, text: &str) {
        let mut head = format!("  {label}");
        if head.chars().count() >= INDENT && !label.is_empty() {
            self.0.push_str(&head);
            self.0.push('\n');
            head = String::new();
        }
        let lines = wrapped(text, WIDTH - INDENT);
        for (index, line) in lines.iter().enumerate() {
            let head = if index == 0 { head.as_str() } else { "" };
            let padded = format!("{head:<INDENT$}{line}");
            self.0.push_str(padded.trim_end());
            self.0.push('\n');
        }
    }

    /// Text that is laid out already.
    fn as_is(&mut self, label: &str, text: &str) {
        let head = format!("  {label}");
        let padded = format!("{head:<INDENT$}{text}");
        self.0.push_str(padded.trim_end());
        self.0.push('\n');
    }
}

/// `text` in lines of at most `width` characters, but for words that are longer.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn machine(page: &mut Page, facts: &Facts) {
    page.section("Machine");
    let identity = &facts.identity;
    page.line("processor", identity.processor.as_deref().unwrap_or("does not say"));
    let made = [&identity.vendor, &identity.product].map(|name| name.clone().unwrap_or_default()).join(" ");
    if !made.trim().is_empty() {
        page.line("made by", made.trim());
    }
    page.line("kernel", identity.kernel.as_deref().unwrap_or("does not say"));
    page.line(
        "virtual",
        match identity.virtual_machine {
            Some(true) => "yes: idle states, clocks and counters are what the host chooses to show",
            Some(false) => "no",
            None => "nothing tells",
        },
    );
}

fn cpus(page: &mut Page, facts: &Facts) {
    page.section("CPUs");
    let cpus = &facts.cpus;
    if cpus.online.0.is_empty() {
        page.line("online", "none seen");
        return;
    }
    let distinct = |places: BTreeSet<(u16, u16)>| places.len();
    let packages = distinct(cpus.topology.0.iter().map(|cpu| (cpu.package, 0)).collect());
    let cores = distinct(cpus.topology.0.iter().map(|cpu| (cpu.package, cpu.core)).collect());
    page.line(
        "online",
        &format!(
            "{} ({}): {}, {}",
            cpus.online,
            many(cpus.online.0.len(), "CPU"),
            many(packages, "socket"),
            many(cores, "core"),
        ),
    );
    let mut kinds: BTreeMap<Reverse<u16>, usize> = BTreeMap::new();
    for cpu in &cpus.topology.0 {
        *kinds.entry(Reverse(cpu.capacity)).or_default() += 1;
    }
    if kinds.len() > 1 {
        let kinds: Vec<String> = (kinds.iter())
            .map(|(speed, &count)| format!("{} of speed {}", many(count, "CPU"), speed.0))
            .collect();
        page.line("kinds", &format!("{}; the slow ones are parked first", kinds.join(", ")));
    }
    if let Some(scheduler) = &facts.sched_ext {
        let name = scheduler.name.as_deref().unwrap_or("without a name");
        let whole = match scheduler.has_all {
            Some(false) => ", for tasks of its class alone",
            Some(true) | None => "",
        };
        page.line("scheduler", &format!("sched_ext: {name}, {}{whole}", scheduler.state));
    }
    page.line(
        "hyperthreads",
        match (cpus.smt, facts.threads_per_core()) {
            (Some(true), _) | (None, 2..) => {
                "on: two CPUs of a core share its sleep, which is as deep as the shallower"
            }
            (Some(false), _) => "off, or none",
            (None, _) => "none seen",
        },
    );
    match cpus.numa.as_slice() {
        [] => page.line("memory", "no NUMA nodes listed"),
        nodes => {
            let nodes: Vec<String> = nodes
                .iter()
                .map(|node| match node.cpus.0.is_empty() {
                    true => format!("node {}: no CPUs", node.node),
                    false => format!("node {}: cpu{}", node.node, node.cpus),
                })
                .collect();
            page.line("memory", &nodes.join("; "));
        }
    }
    caches(page, facts);
    if let Some(allowed) = facts.privileges.cpus.as_ref().filter(|allowed| **allowed != cpus.online) {
        page.line("for this process", &format!("cpu{allowed} alone (affinity or cpuset)"));
    }
}

/// One line per kind of cache: how large, and shared by how many.
fn caches(page: &mut Page, facts: &Facts) {
    let mut kinds: Vec<(String, Vec<&CpuList>)> = Vec::new();
    for cache in &facts.cpus.caches {
        let letter = match cache.kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        let size = cache.bytes.map_or("size unknown".to_owned(), bytes);
        let kind = format!("L{}{letter} {size}", cache.level);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, shared)) => shared.push(&cache.cpus),
            None => kinds.push((kind, vec![&cache.cpus])),
        }
    }
    let shared = |lists: &[&CpuList]| {
        let sizes: BTreeSet<usize> = lists.iter().map(|list| list.0.len()).collect();
        match (lists, sizes.len()) {
            ([one], _) if one.0.len() > 1 => format!("shared by cpu{one}"),
            (_, 1) if sizes.contains(&1) => "per CPU".to_owned(),
            (_, 1) => format!("one for {} CPUs each", sizes.first().expect("one")),
            _ => format!("{} of them", lists.len()),
        }
    };
    let texts: Vec<String> = kinds.iter().map(|(kind, lists)| format!("{kind} {}", shared(lists))).collect();
    page.line("caches", if texts.is_empty() { "none listed".to_owned() } else { texts.join("; ") }.as_str());
}

fn idle_states(page: &mut Page, facts: &Facts) {
    page.section("Idle states");
    let driver = &facts.idle.driver;
    let governor = driver.governor.as_deref().unwrap_or("unknown");
    match &driver.driver {
        Some(name) => page.line("driver", &format!("{name}, governor {governor}")),
        None => page.line(
            "driver",
            "none: an idle CPU takes the architecture's plain halt, and nothing counts or limits it",
        ),
    }
    for group in &facts.idle.groups {
        page.as_is(
            &format!("cpu{}", group.cpus),
            &state_row("state", "exit", "pays from", "now", "driver's words"),
        );
        for (index, state) in group.states.iter().enumerate() {
            let name = format!("{index} {}", state.state.name);
            let words = state.settings.description.as_deref().unwrap_or("");
            let kind = if state.state.kind == CstateKind::Polling { "polls" } else { "" };
            let latency =
                if kind.is_empty() { state.state.exit_latency.to_string() } else { kind.to_owned() };
            page.as_is(
                "",
                &state_row(
                    &name,
                    &latency,
                    &state.state.target_residency.to_string(),
                    condition(state),
                    words,
                ),
            );
        }
    }
    if !facts.idle.without.0.is_empty() && driver.driver.is_some() {
        page.line(&format!("cpu{}", facts.idle.without), "no usable table of idle states");
    }
    let parameters: Vec<String> =
        facts.idle.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !parameters.is_empty() {
        page.line("parameters", &parameters.join(" "));
    }
    if let Some(on) = facts.idle.c1_demotion {
        let text = if on { "on: hardware may take C1 where a deeper state was asked for" } else { "off" };
        page.line("C1 demotion", text);
    }
}

fn state_row(name: &str, exit: &str, pays: &str, now: &str, words: &str) -> String {
    format!("{name:<16} {exit:>7} {pays:>10}  {now:<22} {words}")
}

fn condition(state: &IdleState) -> &'static str {
    match (state.settings.disabled, state.settings.disabled_by_default) {
        (Some(true), Some(true)) => "forbidden by default",
        (Some(true), _) => "FORBIDDEN",
        (Some(false), Some(true)) => "allowed (not default)",
        (Some(false), _) => "allowed",
        (None, _) => "unknown",
    }
}

fn limits(page: &mut Page, facts: &Facts) {
    page.section("Who limits the C-states now");
    let limits = &facts.limits;
    if limits.per_cpu.is_empty() {
        page.line("each CPU", "not seen");
    }
    for group in &limits.per_cpu {
        page.line(&format!("cpu{}", group.cpus), &format!("pm_qos: {}", limit(group.limit)));
    }
    page.line(
        "all CPUs",
        &match limits.global {
            Some(at) => format!("{}: {}", limits.device, limit(at)),
            None => format!("{}: not seen", limits.device),
        },
    );
    for holder in &limits.holders.holders {
        page.line(
            "held by",
            &format!("{} (process {}) holds {}", name(&holder.name), holder.pid, limits.device),
        );
    }
    if limits.holders.holders.is_empty() {
        let text = match limits.holders.unseen {
            0 => format!("no process holds {}", limits.device),
            count => format!("no process seen; {} may not be looked at", many_es(count, "process")),
        };
        page.line("held by", &text);
    }
    let forbidden = |group: &&super::IdleGroup| {
        group.states.iter().any(|state| {
            state.settings.disabled == Some(true) && state.settings.disabled_by_default != Some(true)
        })
    };
    for group in facts.idle.groups.iter().filter(forbidden) {
        let states: Vec<&str> = group
            .states
            .iter()
            .filter(|state| state.settings.disabled == Some(true))
            .map(|state| state.state.name.as_str())
            .collect();
        page.line(&format!("cpu{}", group.cpus), &format!("disable: forbidden: {}", states.join(", ")));
    }
    for word in &limits.boot_words {
        page.line("kernel was told", &format!("{}: {}", word.word, word.does));
    }
    if limits.boot_words.is_empty() {
        page.line("kernel was told", "nothing about idle states, clocks or CPUs");
    }
    for rival in &limits.rivals {
        page.line(
            "daemon",
            &format!("{} (process {}) sets {}", rival.program.name, rival.program.pid, rival.sets),
        );
    }
    if limits.rivals.is_empty() {
        page.line("daemon", "none known runs");
    }
    roost(page, facts);
}

fn roost(page: &mut Page, facts: &Facts) {
    let mut holders: Vec<(&str, CpuList)> = Vec::new();
    for holder in facts.limits.roost.iter().filter(|holder| holder.runs) {
        match holders.iter_mut().find(|(known, _)| *known == holder.holder) {
            Some((_, cpus)) => drop(cpus.0.insert(holder.cpu)),
            None => holders.push((&holder.holder, CpuList([holder.cpu].into()))),
        }
    }
    for (holder, cpus) in &holders {
        page.line("Roost", &format!("{holder} holds cpu{cpus}"));
    }
    match (holders.is_empty(), facts.limits.roost_journals) {
        (true, 0) => page.line("Roost", "no run holds a CPU"),
        (true, count) => page.line(
            "Roost",
            &format!(
                "no run holds a CPU, and {} left: roost restore puts back what they tell",
                many(count, "journal")
            ),
        ),
        (false, _) => {}
    }
}

fn frequency(page: &mut Page, facts: &Facts) {
    page.section("Clocks");
    let frequency = &facts.frequency;
    if frequency.domains.is_empty() {
        page.line("driver", "none: no cpufreq, so Linux sets no clocks here");
    }
    // Domains that differ in their CPUs and their momentary speed alone are told together.
    let mut kinds: Vec<(FrequencyDomain, CpuList, BTreeSet<usize>, Vec<Kilohertz>)> = Vec::new();
    for domain in &frequency.domains {
        let kind = FrequencyDomain { cpus: CpuList::default(), current: None, ..domain.clone() };
        let at = kinds.iter().position(|(known, ..)| *known == kind).unwrap_or_else(|| {
            kinds.push((kind, CpuList::default(), BTreeSet::new(), Vec::new()));
            kinds.len() - 1
        });
        let (_, cpus, widths, speeds) = &mut kinds[at];
        cpus.0.extend(&domain.cpus.0);
        widths.insert(domain.cpus.0.len());
        speeds.extend(domain.current);
    }
    for (kind, cpus, widths, speeds) in &kinds {
        domain_lines(page, kind, cpus, widths, speeds);
    }
    if let Some((driver, mode)) = &frequency.mode {
        page.line("mode", &format!("{driver} is {mode}"));
    }
    match frequency.turbo {
        Some(on) => page.line("turbo", if on { "on" } else { "off" }),
        None if frequency.domains.is_empty() => {}
        None => page.line("turbo", "cannot see: neither no_turbo nor boost is there"),
    }
    for domain in &frequency.uncore {
        page.line(&domain.name, &uncore(domain));
    }
}

/// Who limits it is not told by the kernel; that it is limited is.
fn uncore(domain: &UncoreDomain) -> String {
    let mut text = format!("uncore of cpu{}", domain.cpus);
    if let Some((slowest, fastest)) = domain.hardware {
        let [min, max, low, high] = [domain.min, domain.max, Some(slowest), Some(fastest)].map(clock);
        let _ = write!(text, ": {min} to {max} of the hardware's {low} to {high}");
        if domain.max.is_some_and(|max| max < fastest) || domain.min.is_some_and(|min| min > slowest) {
            text += ", limited by the firmware or a program";
        }
    }
    if domain.current.is_some() {
        let _ = write!(text, "; now {}", clock(domain.current));
    }
    if let Some(elc) = domain.elc {
        let below = elc.low_percent.map_or_else(String::new, |low| format!(" below {low} % of load"));
        let _ = write!(text, "; ELC: at least {}{below}", clock(Some(elc.floor)));
    }
    text
}

fn domain_lines(
    page: &mut Page,
    kind: &FrequencyDomain,
    cpus: &CpuList,
    widths: &BTreeSet<usize>,
    speeds: &[Kilohertz],
) {
    let width = match (widths.len(), widths.first()) {
        (1, Some(1)) => "each CPU its own clock".to_owned(),
        (1, Some(width)) => format!("{width} CPUs to a clock"),
        _ => "domains of several sizes".to_owned(),
    };
    let governor = kind.governor.as_deref().unwrap_or("unknown");
    page.line(
        &format!("cpu{cpus}"),
        &format!("{}, governor {governor}, {width}", kind.driver.as_deref().unwrap_or("driver unknown")),
    );
    let range =
        |low: Option<Kilohertz>, high: Option<Kilohertz>| format!("{} to {}", clock(low), clock(high));
    let mut bounds = format!(
        "{} of the hardware's {}",
        range(kind.min, kind.max),
        range(kind.hardware_min, kind.hardware_max)
    );
    if kind.base.is_some() {
        let _ = write!(bounds, ", base {}", clock(kind.base));
    }
    let ends = (speeds.iter().min().copied(), speeds.iter().max().copied());
    let now = match ends {
        (None, _) => "unknown".to_owned(),
        (low, high) if low == high => clock(low),
        (low, high) => range(low, high),
    };
    page.line("", &format!("allowed: {bounds}; now {now}"));
    if !kind.governors.is_empty() {
        page.line("", &format!("governors: {}", kind.governors.join(" ")));
    }
    if let Some(preference) = &kind.preference {
        page.line("", &format!("energy preference (EPP): {preference}; of {}", kind.preferences.join(" ")));
    }
}

fn meters(page: &mut Page, facts: &Facts) {
    page.section("Energy and counters");
    if facts.meters.is_empty() {
        page.line("RAPL", "none: energy is modelled, and labelled so");
    }
    let (readable, closed): (Vec<_>, Vec<_>) =
        facts.meters.iter().partition(|zone| zone.unreadable.is_none());
    let zones = |zones: &[&linux::MeterZone]| {
        let one = |zone: &&linux::MeterZone| {
            let cap = zone.cap.map_or_else(String::new, |cap| format!(", capped at {:.0} W", cap.as_watts()));
            format!("{} ({}{cap})", zone.name, zone.zone)
        };
        zones.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    if !readable.is_empty() {
        page.line("RAPL", &zones(&readable));
    }
    if let Some(first) = closed.first() {
        let reason = first.unreadable.as_deref().unwrap_or_default();
        page.line("RAPL", &format!("cannot see: {} ({reason}; run as root)", zones(&closed)));
    }
    let cycles: Vec<&str> =
        facts.counters.iter().filter(|unit| unit.counts_cycles()).map(|unit| unit.name.as_str()).collect();
    let counters = match (cycles.is_empty(), facts.identity.virtual_machine) {
        (false, _) => cycles.join(", "),
        (true, Some(true)) => "none: virtual machine".to_owned(),
        (true, _) => "none listed".to_owned(),
    };
    page.line("hardware", &counters);
    for unit in &facts.counters {
        if ["power", "cstate_core", "cstate_pkg"].contains(&unit.name.as_str()) {
            let on = unit.read_on.as_ref().map_or(String::new(), |cpus| format!(", read on cpu{cpus}"));
            let events = if unit.events.is_empty() { "no events".to_owned() } else { unit.events.join(" ") };
            page.line(&unit.name, &format!("{events}{on}"));
        }
    }
    let others: Vec<&str> = facts
        .counters
        .iter()
        .filter(|unit| {
            !unit.counts_cycles() && !["power", "cstate_core", "cstate_pkg"].contains(&unit.name.as_str())
        })
        .map(|unit| unit.name.as_str())
        .collect();
    page.line("other units", if others.is_empty() { "none".to_owned() } else { others.join(" ") }.as_str());
}

fn watching(page: &mut Page, facts: &Facts) {
    page.section("Watching");
    let tracing = &facts.tracing;
    page.line(
        "kernel's types",
        match tracing.btf {
            Some(true) => "yes (BTF): compiled BPF programs fit this kernel",
            Some(false) => "no BTF: compiled BPF programs cannot be fitted to this kernel",
            None => "cannot be read",
        },
    );
    page.line(
        "tracefs",
        &tracing
            .tracefs
            .as_ref()
            .map_or_else(|| "not mounted, or closed to this user".to_owned(), |folder| format!("/{folder}")),
    );
    let named = |wanted: Option<bool>| {
        let points = tracing.tracepoints.iter().filter(|point| point.present == wanted);
        points.map(|point| point.name).collect::<Vec<_>>().join(" ")
    };
    for (label, wanted) in [("tracepoints", Some(true)), ("lacking", Some(false)), ("unseen", None)] {
        let names = named(wanted);
        if !names.is_empty() {
            page.line(label, &names);
        }
    }
    if let Some(programs) = &facts.bpf_programs {
        let loads: Vec<&str> = programs
            .iter()
            .filter(|program| program.refused.is_none())
            .map(|program| program.name.as_str())
            .collect();
        page.line("BPF loads", if loads.is_empty() { "none".to_owned() } else { loads.join(" ") }.as_str());
        for program in programs {
            if let Some(reason) = &program.refused {
                page.line("BPF refused", &format!("{}: {reason}", program.name));
            }
        }
    }
}

fn leave(page: &mut Page, facts: &Facts) {
    page.section("What this process may do");
    let privileges = &facts.privileges;
    let user = match privileges.user {
        Some(0) => "root".to_owned(),
        Some(user) => format!("number {user}"),
        None => "unknown".to_owned(),
    };
    page.line("user", &user);
    match &privileges.capabilities {
        None => page.line("capabilities", "unknown"),
        Some(held) => {
            let (has, lacks): (Vec<Capability>, Vec<Capability>) =
                Capability::ALL.into_iter().partition(|capability| held.contains(capability));
            let names = |list: &[Capability]| list.iter().map(|one| one.name()).collect::<Vec<_>>().join(" ");
            page.line("has", if has.is_empty() { "none of ours".to_owned() } else { names(&has) }.as_str());
            if !lacks.is_empty() {
                page.line("lacks", &names(&lacks));
            }
        }
    }
    let number = |value: Option<i32>| value.map_or("unknown".to_owned(), |value| value.to_string());
    page.line(
        "kernel's bars",
        &format!(
            "perf_event_paranoid {}, unprivileged_bpf_disabled {}",
            number(privileges.perf_event_paranoid),
            number(privileges.unprivileged_bpf_disabled.map(i32::from))
        ),
    );
    let cgroups = &facts.cgroups;
    let version = match cgroups.version {
        CgroupVersion::None => "none mounted",
        CgroupVersion::V1 => "v1",
        CgroupVersion::V2 => "v2",
        CgroupVersion::Hybrid => "v1 and v2 (hybrid)",
    };
    let place = |place: &Option<linux::CgroupPlace>| {
        place.as_ref().map_or("none".to_owned(), |place| format!("v{} at {}", place.version, place.path))
    };
    page.line(
        "cgroups",
        &format!("{version}; cpuset: {}; freezer: {}", place(&cgroups.cpuset), place(&cgroups.freezer)),
    );
    if cgroups.sysfs_writable == Some(false) {
        page.line("sysfs", "is mounted read-only here (ProtectKernelTunables=, or a container)");
    }
}

fn cannot_see(page: &mut Page, facts: &Facts) {
    if facts.cannot_see.is_empty() {
        return;
    }
    page.section("What could not be seen");
    for gap in &facts.cannot_see {
        let text = format!("cannot see: {} ({}; {})", gap.what, gap.reason, gap.remedy);
        for (index, line) in wrapped(&text, WIDTH - 4).iter().enumerate() {
            let _ = writeln!(page.0, "{}{line}", if index == 0 { "  " } else { "    " });
        }
    }
}

fn policies(page: &mut Page, verdicts: &[Verdict]) {
    page.section("Roost's policies here");
    for verdict in verdicts {
        let head = format!("  {:<23}{:<17}{}", verdict.family, verdict.verdict.words(), verdict.policies);
        let _ = writeln!(page.0, "{}", head.trim_end());
        for reason in &verdict.reasons {
            bullet(page, "-", reason);
        }
        for remedy in &verdict.remedies {
            bullet(page, ">", remedy);
        }
    }
}

fn bullet(page: &mut Page, mark: &str, text: &str) {
    for (index, line) in wrapped(text, WIDTH - 6).iter().enumerate() {
        let _ = writeln!(page.0, "    {} {line}", if index == 0 { mark } else { " " });
    }
}

fn limit(limit: IdleLimit) -> String {
    match limit {
        IdleLimit::None => "no limit".to_owned(),
        IdleLimit::Deepest => "the deepest state".to_owned(),
        IdleLimit::ExitLatency(Duration::ZERO) => "polling only".to_owned(),
        IdleLimit::ExitLatency(latency) => format!("exit latency <= {latency}"),
    }
}

fn name(name: &str) -> &str {
    if name.is_empty() { "a program without a name" } else { name }
}

fn clock(frequency: Option<Kilohertz>) -> String {
    match frequency {
        None => "?".to_owned(),
        Some(Kilohertz(khz)) if khz < 1_000_000 => format!("{:.0} MHz", khz as f64 / 1e3),
        Some(Kilohertz(khz)) => format!("{:.2} GHz", khz as f64 / 1e6),
    }
}

fn bytes(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes {
        MIB.. if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        MIB.. => format!("{:.1} MiB", bytes as f64 / MIB as f64),
        _ => format!("{} KiB", bytes >> 10),
    }
}

fn many(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn many_es(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "es" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_wraps_below_itself_and_long_labels_stand_alone() {
        let mut page = Page(String::new());
        page.line("short", &"word ".repeat(30));
        page.line("cpu0,2,4,6,8,10,12,14", "text");
        let lines: Vec<&str> = page.0.lines().collect();
        assert!(lines[0].starts_with("  short           word"), "{}", page.0);
        assert!(
            lines[1].starts_with("                  word") && lines.iter().all(|line| line.len() <= WIDTH)
        );
        assert_eq!(lines[lines.len() - 1].trim(), "text");
    }

    #[test]
    fn sizes_and_clocks_read_as_people_say_them() {
        assert_eq!(bytes(32 << 10), "32 KiB");
        assert_eq!(bytes(36608 << 10), "35.8 MiB");
        assert_eq!(bytes(2 << 20), "2 MiB");
        assert_eq!(clock(Some(Kilohertz(800_000))), "800 MHz");
        assert_eq!(clock(Some(Kilohertz(3_500_000))), "3.50 GHz");
        assert_eq!(clock(None), "?");
    }
}
