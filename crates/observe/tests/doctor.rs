//! The doctor on machines that are text files: right on each, and never at a loss.
//!
//! `testdata/README.md` says which machines are real. The pages are kept as files; the assertions
//! beside them name the facts that a rewritten page must keep.

use linux::Root;
use machine::CpuId;
use observe::doctor::{Facts, Verdict, VerdictKind, gather, page, record, unpack, verdicts};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A machine in a folder of its own.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn named(name: &str) -> Self {
        let text = fs::read_to_string(testdata(&format!("{name}.tree"))).unwrap();
        Self::from_text(&text)
    }

    fn from_text(text: &str) -> Self {
        // A machine is hundreds of small files: in memory, where there is such a place.
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        unpack(text, folder.path()).unwrap();
        Self { folder }
    }

    fn root(&self) -> Root {
        Root::at(self.folder.path())
    }

    fn facts(&self) -> Facts {
        gather(&self.root(), None)
    }

    fn page(&self) -> String {
        let facts = self.facts();
        page(&facts, &verdicts(&facts))
    }

    fn write(&self, below: &str, bytes: impl AsRef<[u8]>) {
        let path = self.folder.path().join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        }
        fs::write(path, bytes).unwrap();
    }

    fn remove(&self, below: &str) {
        let path = self.folder.path().join(below);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(name)
}

fn verdict(facts: &Facts, family: &str) -> Verdict {
    let found = verdicts(facts).into_iter().find(|verdict| verdict.family == family);
    found.unwrap_or_else(|| panic!("no family {family}"))
}

fn kinds(facts: &Facts) -> Vec<(&'static str, VerdictKind)> {
    verdicts(facts).into_iter().map(|verdict| (verdict.family, verdict.verdict)).collect()
}

const MACHINES: [&str; 5] = ["intel-server", "amd-server", "arm-server", "vm-without-cpuidle", "lab"];

/// The lab's machine with a kernel of that release, which takes all of Roost's programs but those.
fn of_kernel(release: &str, refused: &[(&str, &str)]) -> Facts {
    let machine = Machine::named("lab");
    machine.write("proc/sys/kernel/osrelease", format!("{release}\n"));
    let programs = [
        "sleeps:cpu_idle",
        "requests:sockets",
        "requests:packets",
        "threads:sched_switch",
        "alarms:bpf_timer",
        "waits:sched_switch",
        "calls:uprobe",
    ];
    let told = |name: &str| {
        let lack = refused.iter().find(|(program, _)| *program == name);
        lack.map_or(Ok(()), |(_, why)| Err(format!("this kernel lacks {why}\nhint: none")))
    };
    let programs = programs.iter().map(|name| ((*name).to_owned(), told(name))).collect();
    gather(&machine.root(), Some(programs))
}

#[test]
fn each_part_is_told_by_what_the_kernel_takes() {
    use VerdictKind::{Cannot, Works, WorksWithLess};
    let of = |facts: &Facts, family: &str| {
        let verdict = verdict(facts, family);
        (verdict.verdict, verdict.reasons.join("; "))
    };
    let parts = ["active CPUs", "CPUs offline", "hurry-up", "counted calls", "quiescence"];
    let new = of_kernel("6.12.43", &[]);
    assert_eq!(parts.map(|part| of(&new, part).0), [Works; 5]);
    let refused = [
        ("alarms:bpf_timer", "timers of BPF"),
        ("threads:sched_switch", "the fourth argument"),
        ("waits:sched_switch", "atomic operations"),
        ("calls:uprobe", "cookies of uprobes"),
    ];
    let old = of_kernel("5.10.0-32", &refused);
    let (kinds, reasons): (Vec<_>, Vec<_>) = parts.iter().map(|part| of(&old, part)).unzip();
    assert_eq!(kinds, [WorksWithLess, Cannot, WorksWithLess, Cannot, WorksWithLess]);
    let words = ["timers of BPF", "before 6.2", "the fourth argument", "cookies of uprobes", "atomic"];
    for (reason, word) in reasons.iter().zip(words) {
        assert!(reason.contains(word) && !reason.contains("hint"), "{word}: {reason}");
    }
    // The release decides nothing that can be asked.
    let brought_back = of_kernel("5.14.0-600.el9", &[]);
    assert_eq!(of(&brought_back, "hurry-up").0, Works);
    let observation = of(&old, "observation").1;
    assert!(!observation.contains("fourth argument"), "each is told where it is missed: {observation}");
}

#[test]
fn each_machines_page_is_as_it_was() {
    for name in MACHINES {
        let (text, kept) = (Machine::named(name).page(), testdata(&format!("{name}.page.txt")));
        if std::env::var_os("ROOST_WRITE_PAGES").is_some() {
            fs::write(&kept, &text).unwrap();
        }
        let known = fs::read_to_string(&kept).unwrap_or_default();
        assert!(text == known, "{name} reads now (ROOST_WRITE_PAGES=1 keeps it):\n{text}");
    }
}

#[test]
fn a_page_fits_a_hundred_columns() {
    for name in MACHINES {
        for line in Machine::named(name).page().lines() {
            assert!(line.chars().count() <= 100 && !line.ends_with(' '), "{name}: {line:?}");
        }
    }
}

#[test]
fn cores_of_two_kinds_are_counted_and_none_is_anothers_thread() {
    let machine = Machine::named("arm-server");
    for line in include_str!("../../linux/tests/testdata/topologies/big-little-trixie").lines() {
        let (file, text) = line.split_once(':').unwrap();
        machine.write(file, format!("{text}\n"));
    }
    let page = machine.page();
    assert!(page.contains("1 socket, 8 cores"), "{page}");
    assert!(
        page.contains("4 CPUs of speed 1024, 4 CPUs of speed 446; the slow ones are parked first"),
        "{page}"
    );
    assert!(!Machine::named("arm-server").page().contains("kinds"));
}

#[test]
fn an_intel_server_has_all_that_policies_want() {
    use VerdictKind::{Works, WorksWithLess};
    let facts = Machine::named("intel-server").facts();
    assert_eq!(
        (facts.cpus.online.to_string(), facts.cpus.smt, facts.threads_per_core()),
        ("0-7".into(), Some(true), 2)
    );
    assert_eq!((facts.idle.groups.len(), facts.halts(), facts.usable_halts()), (1, 3, 3));
    assert_eq!(facts.frequency.domains.len(), 8);
    assert_eq!(facts.meters.len(), 4);
    assert_eq!(
        kinds(&facts),
        [
            ("idle limits", Works),
            ("active CPUs", WorksWithLess),
            ("CPUs offline", Works),
            ("idle feedback", Works),
            ("sensitivity DVFS", Works),
            ("clocks by load", Works),
            ("uncore", Works),
            ("hurry-up", Works),
            ("counted calls", Works),
            ("anticipatory wake-ups", Works),
            ("staged bursts", Works),
            ("quiescence", Works),
            ("observation", Works),
        ]
    );
    assert!(verdict(&facts, "active CPUs").reasons[0].contains("irqbalance"));
}

#[test]
fn an_ordinary_user_learns_what_was_not_seen_and_what_it_costs() {
    let machine = Machine::named("amd-server");
    let facts = machine.facts();
    assert_eq!((facts.limits.global, facts.limits.holders.unseen), (None, 1));
    let unseen: Vec<&str> = facts.cannot_see.iter().map(|gap| gap.what.as_str()).collect();
    for what in ["/dev/cpu_dma_latency", "all holders of /dev/cpu_dma_latency", "/run/roost"] {
        assert!(unseen.contains(&what), "{what} among {unseen:?}");
    }
    assert!(facts.meters.iter().all(|zone| zone.unreadable.is_some()));
    assert!(facts.cannot_see.iter().all(|gap| !gap.reason.is_empty() && !gap.remedy.is_empty()));
    assert!(verdict(&facts, "idle limits").reasons[0].contains("this user may not"));
    assert_eq!(verdict(&facts, "clocks by load").verdict, VerdictKind::Cannot);
    // The tracepoints are known all the same, from the kernel's types.
    let idle = facts.tracing.tracepoints.iter().find(|point| point.name == "power:cpu_idle").unwrap();
    assert_eq!((facts.tracing.tracefs.as_deref(), idle.present), (None, Some(true)));
    let text = machine.page();
    for line in ["cannot see: /dev/cpu_dma_latency (", "no process seen; 1 process may not be looked at"] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn whoever_keeps_a_machine_awake_is_named() {
    let machine = Machine::named("arm-server");
    let facts = machine.facts();
    assert_eq!((facts.halts(), facts.usable_halts(), facts.can_poll()), (2, 1, false));
    let limits = verdict(&facts, "idle limits");
    assert!(limits.reasons[0].contains("tuned (process 640)"), "{limits:?}");
    assert!(verdict(&facts, "clocks by load").reasons[0].contains("2 CPUs change speed together"));
    // Let go, and all may sleep again, but for the CPU that is limited by itself.
    machine.write("dev/cpu_dma_latency", 2_000_000_000i32.to_ne_bytes());
    machine.remove("proc/640");
    let facts = machine.facts();
    assert_eq!((facts.usable_halts(), facts.limits.rivals.len()), (2, 0));
    assert_eq!(verdict(&facts, "idle limits").verdict, VerdictKind::Works);
    assert!(machine.page().contains("cpu3            pm_qos: polling only"));
    // Forbidden by hand, on every CPU.
    for cpu in 0..4 {
        machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/disable"), "1\n");
    }
    let facts = machine.facts();
    assert!(verdict(&facts, "idle limits").reasons[0].contains("disable files"));
    assert!(machine.page().contains("disable: forbidden: LPI-1"), "{}", machine.page());
}

#[test]
fn a_cpu_that_is_not_like_the_others_stands_alone() {
    let machine = Machine::named("intel-server");
    machine.write("sys/devices/system/cpu/cpu5/cpuidle/state3/disable", "1\n");
    machine.write("sys/devices/system/cpu/cpu6/power/pm_qos_resume_latency_us", "50\n");
    let facts = machine.facts();
    let groups: Vec<String> = facts.idle.groups.iter().map(|group| group.cpus.to_string()).collect();
    assert_eq!(groups, ["0-4,6-7", "5"]);
    let text = machine.page();
    for line in
        ["cpu0-5,7        pm_qos: no limit", "cpu6            pm_qos: exit latency <= 50.0us", "FORBIDDEN"]
    {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn a_scheduler_in_bpf_and_an_uncore_without_elc_are_told() {
    let machine = Machine::named("intel-server");
    machine.write("sys/kernel/sched_ext/state", "enabled\n");
    machine.write("sys/kernel/sched_ext/root/ops", "lavd_1.1.4\n");
    for cluster in ["uncore00", "uncore01"] {
        let elc = format!("sys/devices/system/cpu/intel_uncore_frequency/{cluster}/elc_floor_freq_khz");
        machine.remove(&elc);
    }
    let facts = machine.facts();
    let active = verdict(&facts, "active CPUs");
    assert!(active.reasons.iter().any(|why| why.contains("sched_ext scheduler (lavd_1.1.4)")), "{active:?}");
    assert_eq!(verdict(&facts, "uncore").verdict, VerdictKind::WorksWithLess);
    assert!(machine.page().contains("sched_ext: lavd_1.1.4, enabled"), "{}", machine.page());
    // A recording of it is the same machine.
    assert_eq!(Machine::from_text(&record(&machine.root())).facts().sched_ext, facts.sched_ext);
}

#[test]
fn this_virtual_machine_can_do_what_a_virtual_machine_can() {
    use VerdictKind::{Cannot, WorksWithLess};
    let machine = Machine::named("vm-without-cpuidle");
    let facts = machine.facts();
    assert_eq!(facts.identity.virtual_machine, Some(true));
    assert_eq!((facts.idle.driver.driver.as_deref(), facts.idle.without.to_string()), (None, "0-1".into()));
    let wanted = [
        ("idle limits", WorksWithLess),
        ("idle feedback", Cannot),
        ("clocks by load", Cannot),
        ("anticipatory wake-ups", WorksWithLess),
    ];
    for (family, kind) in wanted {
        assert_eq!(verdict(&facts, family).verdict, kind, "{family}");
    }
    // Others of its kind have haltpoll: a state that polls, and one halt.
    machine.write("sys/devices/system/cpu/cpuidle/current_driver", "haltpoll\n");
    for cpu in 0..2 {
        for (index, name, latency) in [(0, "POLL", "0\n"), (1, "haltpoll idle", "1\n")] {
            let state = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}");
            machine.write(&format!("{state}/name"), format!("{name}\n"));
            machine.write(&format!("{state}/latency"), latency);
            machine.write(&format!("{state}/residency"), latency);
            machine.write(&format!("{state}/disable"), "0\n");
        }
    }
    let facts = machine.facts();
    assert_eq!((facts.halts(), facts.can_poll()), (1, true));
    assert_eq!(verdict(&facts, "anticipatory wake-ups").verdict, VerdictKind::Works);
    assert!(verdict(&facts, "idle limits").reasons[0].contains("one halt state only"));
}

#[test]
fn a_recording_is_the_machine() {
    for name in MACHINES {
        let machine = Machine::named(name);
        let again = Machine::from_text(&record(&machine.root()));
        assert_eq!(machine.facts(), again.facts(), "{name}");
        assert_eq!(record(&machine.root()), record(&again.root()), "{name}: recorded twice");
    }
}

#[test]
fn the_running_machine_is_recorded_without_its_secrets() {
    let (text, live) = (record(&Root::system()), gather(&Root::system(), None));
    let recorded = Machine::from_text(&text).facts();
    assert_eq!(recorded.idle, live.idle);
    assert_eq!(recorded.cpus, live.cpus);
    assert_eq!(recorded.tracing, live.tracing);
    assert_eq!(recorded.cgroups, live.cgroups);
    assert_eq!(recorded.limits.boot_words, live.limits.boot_words);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
    assert!(!names.iter().any(|name| name.contains("serial") || name.contains("environ")), "of {host}");
}

#[test]
fn garbage_is_told_and_never_fatal() {
    let nonsense: [&[u8]; 6] =
        [b"many\n", b"", b"\xff\xfe\x00", b"-99999999999999999999\n", b"0-65535\n", b"65535\n"];
    for name in MACHINES {
        let lines = fs::read_to_string(testdata(&format!("{name}.tree"))).unwrap();
        let paths: Vec<&str> = lines
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('\t').map(|(path, _)| path))
            .filter(|path| !path.ends_with('/'))
            .collect();
        for bytes in nonsense {
            let machine = Machine::named(name);
            for path in &paths {
                machine.write(path, bytes);
            }
            let facts = machine.facts();
            let text = page(&facts, &verdicts(&facts));
            assert!(text.contains("Roost's policies here"), "{name} of {bytes:?}:\n{text}");
            assert!(!facts.cannot_see.is_empty(), "{name} of {bytes:?}: nothing told");
            serde_json::to_string(&facts).unwrap();
        }
    }
}

#[test]
fn each_file_that_is_missing_leaves_a_page() {
    for name in MACHINES {
        let text = fs::read_to_string(testdata(&format!("{name}.tree"))).unwrap();
        let all: Vec<&str> = text.lines().collect();
        // Every seventh line away, seven times over: each line is missing once.
        for missing in 0..7 {
            let left = all.iter().enumerate().filter(|(line, _)| line % 7 != missing).map(|(_, line)| *line);
            let machine = Machine::from_text(&left.collect::<Vec<_>>().join("\n"));
            assert!(machine.page().contains("Roost's policies here"), "{name} without lines {missing} + 7n");
        }
    }
    assert!(Machine::from_text("").page().contains("cannot see: the CPUs"), "an empty folder has a page");
}

#[test]
fn what_is_absurd_is_named_with_its_place() {
    let machine = Machine::named("intel-server");
    machine.write("sys/devices/system/cpu/cpu2/cpuidle/state1/latency", "soon\n");
    machine.write("sys/devices/system/cpu/online", "0-7,400-65535\n");
    machine.remove("sys/devices/system/cpu/cpu3/cpuidle/state0");
    let facts = machine.facts();
    assert_eq!(facts.idle.without.to_string(), "2-3");
    assert!(facts.cpus.online.0.iter().all(|cpu| *cpu <= CpuId(7)));
    let text = machine.page();
    for words in ["cpu2/cpuidle/state1/latency", "`soon`", "CPU 400-65535", "cpu3/cpuidle/state0/name"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn the_facts_are_json_with_their_gaps() {
    for name in MACHINES {
        let json: serde_json::Value =
            serde_json::from_str(&serde_json::to_string(&Machine::named(name).facts()).unwrap()).unwrap();
        assert!(json["cannot_see"].is_array() && json["idle"]["driver"].is_object(), "{name}");
    }
    let json = serde_json::to_value(Machine::named("intel-server").facts()).unwrap();
    let deepest = &json["idle"]["groups"][0]["states"][3];
    assert_eq!((&deepest["name"], &deepest["exit_latency"]), (&"C6".into(), &133_000.into()));
}

#[test]
fn bpf_programs_are_shown_when_they_were_tried() {
    let machine = Machine::named("intel-server");
    let tried =
        vec![("sleeps".to_owned(), Ok(())), ("requests".to_owned(), Err("no such tracepoint".to_owned()))];
    let facts = gather(&machine.root(), Some(tried));
    let text = page(&facts, &verdicts(&facts));
    assert!(text.contains("BPF loads       sleeps"), "{text}");
    assert!(text.contains("BPF refused     requests: no such tracepoint"), "{text}");
    assert!(verdict(&facts, "observation").reasons[0].contains("refuses requests"));
}
