//! A machine as one text file: the doctor's input and nothing else, to be sent by mail.
//!
//! A line is a path below the root, a tab, and the file's bytes, with `\n`, `\t`, `\\` and `\xNN`
//! for bytes that would not stay in a line. A path that ends with `/` is a folder. `path -> target`
//! is a link. A file that could not be read has, behind the tab, `!` and the reason: such a file is
//! unpacked as a folder and such a folder as a file, so that it cannot be read here either, not
//! even by root. Lines that begin with `#` are remarks.
//!
//! Invariants:
//! - Only files of the list [`FILES`] are taken. Of files that hold more than the doctor's
//!   business, only the doctor's part is ([`reduced`]): of the kernel's command line the words with
//!   a meaning here, of the mounts the control groups, of the processes those that limit this
//!   machine. No address, no serial number, no other process's name.
//! - A recording gives the same facts as the machine, except for facts that change by themselves
//!   and for permissions, which are judged by the recorded capabilities.

use linux::{Gaps, Root, TRACEPOINTS};
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

/// The recorded paths. `#` stands for a number, `*` for any name.
const FILES: &[&str] = &[
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/cpu#/online",
    "sys/devices/system/cpu/cpu#/topology/core_id",
    "sys/devices/system/cpu/cpu#/topology/physical_package_id",
    "sys/devices/system/cpu/cpu#/topology/die_id",
    "sys/devices/system/cpu/cpu#/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu#/topology/cluster_cpus_list",
    "sys/devices/system/cpu/cpu#/cpu_capacity",
    "sys/devices/cpu_atom/cpus",
    "sys/devices/system/cpu/cpu#/cache/index#/level",
    "sys/devices/system/cpu/cpu#/cache/index#/type",
    "sys/devices/system/cpu/cpu#/cache/index#/size",
    "sys/devices/system/cpu/cpu#/cache/index#/shared_cpu_list",
    "sys/devices/system/cpu/cpu#/cpuidle/state#/name",
    "sys/devices/system/cpu/cpu#/cpuidle/state#/desc",
    "sys/devices/system/cpu/cpu#/cpuidle/state#/latency",
    "sys/devices/system/cpu/cpu#/cpuidle/state#/residency",
    "sys/devices/system/cpu/cpu#/cpuidle/state#/disable",
    "sys/devices/system/cpu/cpu#/cpuidle/state#/default_status",
    "sys/devices/system/cpu/cpu#/power/pm_qos_resume_latency_us",
    "sys/devices/system/cpu/cpuidle/current_driver",
    "sys/devices/system/cpu/cpuidle/current_governor",
    "sys/devices/system/cpu/cpuidle/current_governor_ro",
    "sys/devices/system/cpu/cpuidle/intel_c1_demotion",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/cpufreq/policy#/affected_cpus",
    "sys/devices/system/cpu/cpufreq/policy#/scaling_driver",
    "sys/devices/system/cpu/cpufreq/policy#/scaling_governor",
    "sys/devices/system/cpu/cpufreq/policy#/scaling_available_governors",
    "sys/devices/system/cpu/cpufreq/policy#/scaling_min_freq",
    "sys/devices/system/cpu/cpufreq/policy#/scaling_max_freq",
    "sys/devices/system/cpu/cpufreq/policy#/scaling_cur_freq",
    "sys/devices/system/cpu/cpufreq/policy#/cpuinfo_min_freq",
    "sys/devices/system/cpu/cpufreq/policy#/cpuinfo_max_freq",
    "sys/devices/system/cpu/cpufreq/policy#/base_frequency",
    "sys/devices/system/cpu/cpufreq/policy#/energy_performance_preference",
    "sys/devices/system/cpu/cpufreq/policy#/energy_performance_available_preferences",
    "sys/devices/system/cpu/intel_uncore_frequency/*/package_id",
    "sys/devices/system/cpu/intel_uncore_frequency/*/initial_min_freq_khz",
    "sys/devices/system/cpu/intel_uncore_frequency/*/initial_max_freq_khz",
    "sys/devices/system/cpu/intel_uncore_frequency/*/min_freq_khz",
    "sys/devices/system/cpu/intel_uncore_frequency/*/max_freq_khz",
    "sys/devices/system/cpu/intel_uncore_frequency/*/current_freq_khz",
    "sys/devices/system/cpu/intel_uncore_frequency/*/elc_floor_freq_khz",
    "sys/devices/system/cpu/intel_uncore_frequency/*/elc_low_threshold_percent",
    "sys/devices/system/cpu/intel_uncore_frequency/*/elc_high_threshold_percent",
    "sys/devices/system/cpu/intel_uncore_frequency/*/elc_high_threshold_enable",
    "sys/devices/platform/*/fclk_input",
    "sys/kernel/sched_ext/state",
    "sys/kernel/sched_ext/switch_all",
    "sys/kernel/sched_ext/root/ops",
    "sys/devices/system/cpu/intel_pstate/status",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/amd_pstate/status",
    "sys/devices/system/node/node#/cpulist",
    "sys/class/powercap/*/name",
    "sys/class/powercap/*/constraint_0_power_limit_uw",
    "sys/class/powercap/*/energy_uj",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/product_name",
    "sys/hypervisor/type",
    "sys/bus/event_source/devices/*/cpumask",
    "sys/kernel/btf/vmlinux",
    "sys/fs/cgroup/cgroup.controllers",
    "sys/fs/cgroup/unified/cgroup.controllers",
    "dev/cpu_dma_latency",
    "dev/cpu_wakeup_latency",
    "proc/cmdline",
    "proc/cpuinfo",
    "proc/self/mounts",
    "proc/self/status",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/perf_event_paranoid",
    "proc/sys/kernel/unprivileged_bpf_disabled",
    "sys/module/cpuidle/parameters/off",
    "sys/module/cpuidle/parameters/governor",
    "sys/module/cpuidle_haltpoll/parameters/force",
    "sys/module/haltpoll/parameters/guest_halt_poll_ns",
    "sys/module/intel_idle/parameters/max_cstate",
    "sys/module/intel_idle/parameters/states_off",
    "sys/module/intel_idle/parameters/no_acpi",
    "sys/module/intel_idle/parameters/use_acpi",
    "sys/module/processor/parameters/max_cstate",
    "sys/module/processor/parameters/nocst",
    "run/roost/cpu#.lock",
    "run/roost/*.journal",
];

/// No file that the doctor reads is longer, but the kernel's types, which are reduced.
const BYTES_MAX: u64 = 64 << 20;

/// The machine at `root`, as text.
pub fn record(root: &Root) -> String {
    let mut text =
        "# roost doctor --record: what the doctor reads of one machine, and nothing else\n".to_owned();
    for path in &FILES.iter().flat_map(|pattern| expand(root, pattern)).collect::<Vec<String>>() {
        match fs::read(root.path(path)) {
            Ok(bytes) if bytes.len() as u64 <= BYTES_MAX => {
                line(&mut text, path, &reduced(path, bytes));
            }
            Ok(_) => note(&mut text, path, "too long to record"),
            // Some of powercap's and perf's folders lack one of the files: nothing to tell.
            Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(cause) => note(&mut text, path, &cause.to_string()),
        }
    }
    for folder in CLOSABLE {
        match fs::read_dir(root.path(folder)) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                note(&mut text, &format!("{folder}/"), &cause.to_string());
            }
            _ => {}
        }
    }
    folders(root, &mut text);
    processes(root, &mut text);
    text
}

/// Folders that an ordinary user may find closed.
const CLOSABLE: [&str; 2] = ["run/roost", "sys/class/powercap"];

/// Paths without a text of interest: CPUs, counters, tracepoints.
fn folders(root: &Root, text: &mut String) {
    let patterns = [
        "sys/devices/system/cpu/cpu#",
        "sys/bus/event_source/devices/*",
        "sys/bus/event_source/devices/*/events/*",
    ];
    for path in patterns.iter().flat_map(|pattern| expand(root, pattern)) {
        let _ = writeln!(text, "{path}/");
    }
    for tracefs in ["sys/kernel/tracing", "sys/kernel/debug/tracing"] {
        if !root.path(&format!("{tracefs}/events")).is_dir() {
            continue;
        }
        let _ = writeln!(text, "{tracefs}/events/");
        for (name, _) in TRACEPOINTS {
            let path = format!("{tracefs}/events/{}", name.replace(':', "/"));
            if root.path(&path).exists() {
                let _ = writeln!(text, "{path}/");
            }
        }
    }
}

/// The processes that limit this machine, by name and number alone.
fn processes(root: &Root, text: &mut String) {
    let mut gaps = Gaps::default();
    let found = linux::latency_holders(root, &mut gaps);
    for holder in &found.holders {
        line(text, &format!("proc/{}/comm", holder.pid), format!("{}\n", holder.name).as_bytes());
        let _ = writeln!(text, "proc/{}/fd/0 -> /dev/cpu_dma_latency", holder.pid);
    }
    for rival in linux::rivals(root, &mut gaps) {
        let known = found.holders.iter().any(|holder| holder.pid == rival.program.pid);
        if !known {
            line(
                text,
                &format!("proc/{}/comm", rival.program.pid),
                format!("{}\n", rival.program.name).as_bytes(),
            );
            let _ = writeln!(text, "proc/{}/fd/", rival.program.pid);
        }
    }
    // Those that may not be looked at are a number, and get numbers that no process has.
    for unseen in 0..found.unseen as u64 {
        let pid = u64::from(u32::MAX) - unseen;
        line(text, &format!("proc/{pid}/cmdline"), b"another user's\n");
        note(text, &format!("proc/{pid}/fd/"), "may not be listed");
    }
    for holder in linux::cpu_holders(root, &mut gaps).0.iter().filter(|holder| holder.runs) {
        if let Some((_, rest)) = holder.holder.rsplit_once("(process ") {
            let _ = writeln!(text, "proc/{}/fd/", rest.trim_end_matches(')'));
        }
    }
}

/// The part of a file that is the doctor's business.
fn reduced(path: &str, bytes: Vec<u8>) -> Vec<u8> {
    let lines = |wanted: &dyn Fn(&str) -> Option<String>| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines().filter_map(wanted).map(|line| line + "\n").collect::<String>().into_bytes()
    };
    match path {
        "proc/cmdline" => {
            let words = linux::meaningful(&String::from_utf8_lossy(&bytes));
            let words: Vec<String> = words.into_iter().map(|word| word.word).collect();
            (words.join(" ") + "\n").into_bytes()
        }
        "proc/cpuinfo" => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let first = text.split("\n\n").next().unwrap_or_default();
            let wanted = ["vendor_id", "cpu family", "model name", "CPU implementer", "CPU part"];
            let line = |line: &str| {
                let (key, value) = line.split_once(':')?;
                let virt = value.split(' ').any(|flag| flag == "hypervisor");
                match key.trim() {
                    "flags" => Some(format!("flags : {}\n", if virt { "hypervisor" } else { "" })),
                    key if wanted.contains(&key) => Some(format!("{line}\n")),
                    _ => None,
                }
            };
            first.lines().filter_map(line).collect::<String>().into_bytes()
        }
        "proc/self/mounts" => lines(&|line| {
            let kind = line.split(' ').nth(2)?;
            ["cgroup", "cgroup2", "sysfs", "tracefs"].contains(&kind).then(|| line.to_owned())
        }),
        "proc/self/status" => lines(&|line| {
            let wanted = ["Uid:", "CapEff:", "Cpus_allowed_list:"];
            wanted.iter().any(|begins| line.starts_with(begins)).then(|| line.to_owned())
        }),
        "sys/kernel/btf/vmlinux" => {
            let names = TRACEPOINTS.map(|(name, _)| name);
            let found = linux::described(&bytes, &names);
            let present = names.iter().zip(found).filter(|(_, found)| *found);
            let types = present
                .map(|(name, _)| format!("btf_trace_{}\0", name.split(':').next_back().unwrap_or(name)));
            types.collect::<String>().into_bytes()
        }
        // A journal tells which files were written; that there is one is enough here.
        path if path.ends_with(".journal") => Vec::new(),
        _ => bytes,
    }
}

fn line(text: &mut String, path: &str, bytes: &[u8]) {
    let _ = write!(text, "{path}\t");
    for &byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            other => {
                let _ = write!(text, "\\x{other:02x}");
            }
        }
    }
    text.push('\n');
}

fn note(text: &mut String, path: &str, reason: &str) {
    let _ = writeln!(text, "{path}\t!{}", reason.replace(['\n', '\t'], " "));
}

/// The paths that a pattern stands for, in order.
fn expand(root: &Root, pattern: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for segment in pattern.split('/') {
        let joined = |folder: &str, name: &str| match folder {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        };
        if !segment.contains(['#', '*']) {
            found = found.iter().map(|folder| joined(folder, segment)).collect();
            continue;
        }
        let mut deeper = Vec::new();
        for folder in &found {
            let Ok(entries) = fs::read_dir(root.path(folder)) else { continue };
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let mut names: Vec<String> = names.filter(|name| fits(segment, name)).collect();
            // By number where there is one: cpu2 before cpu10.
            names.sort_by_key(|name| (name.len(), name.clone()));
            deeper.extend(names.iter().map(|name| joined(folder, name)));
        }
        found = deeper;
    }
    found
}

/// Whether one name fits one segment of a pattern that has one `#` or begins with `*`.
fn fits(segment: &str, name: &str) -> bool {
    match segment.split_once('#') {
        Some((before, after)) => name
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())),
        None => name.ends_with(segment.trim_start_matches('*')),
    }
}

/// A text that is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// A line that has not the form of a recording's line.
    #[error("line {line} of the recording is not `path<TAB>text`, `path/` or `path -> target`: `{text}`")]
    Line {
        /// Which, from 1.
        line: usize,
        text: String,
    },
    /// A path that leads out of the folder.
    #[error("line {line} of the recording leads out of its folder: `{path}`")]
    Path {
        /// Which line, from 1.
        line: usize,
        path: String,
    },
    #[error("cannot unpack {path}: {cause}", path = path.display())]
    Write {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// Makes the folder `into` that machine.
pub fn unpack(text: &str, into: &Path) -> Result<(), RecordingError> {
    let mut links = Vec::new();
    for (number, content) in text.lines().enumerate() {
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let line = number + 1;
        let malformed = || RecordingError::Line { line, text: content.chars().take(80).collect() };
        let place = |path: &str| {
            let inside = !path.is_empty()
                && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
            if inside {
                Ok(into.join(path))
            } else {
                Err(RecordingError::Path { line, path: path.to_owned() })
            }
        };
        let (path, result) = if let Some((path, value)) = content.split_once('\t') {
            let folder = path.ends_with('/');
            let path = place(path.trim_end_matches('/'))?;
            let result = make_parent(&path).and_then(|()| match (value.starts_with('!'), folder) {
                (true, true) => fs::write(&path, ""),
                (true, false) => fs::create_dir_all(&path),
                (false, _) => match unescaped(value) {
                    Some(bytes) => fs::write(&path, bytes),
                    None => Err(io::Error::new(io::ErrorKind::InvalidData, "an escape that is none")),
                },
            });
            (path, result)
        } else if let Some((path, target)) = content.split_once(" -> ") {
            // The only links there are, so that nothing can be written through one.
            let parts: Vec<&str> = path.split('/').collect();
            let open_file = matches!(parts[..], ["proc", pid, "fd", fd] if fits("#", pid) && fits("#", fd));
            if !open_file || target != "/dev/cpu_dma_latency" {
                return Err(malformed());
            }
            links.push((path.to_owned(), target));
            continue;
        } else {
            let path = place(content.strip_suffix('/').ok_or_else(malformed)?)?;
            let result = if path.exists() { Ok(()) } else { fs::create_dir_all(&path) };
            (path, result)
        };
        result.map_err(|cause| RecordingError::Write { path, cause })?;
    }
    for (path, target) in links {
        let path = into.join(path);
        make_parent(&path)
            .and_then(|()| symlink(target, &path))
            .map_err(|cause| RecordingError::Write { path, cause })?;
    }
    Ok(())
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b't' => b'\t',
                b'\\' => b'\\',
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        let mut text = String::new();
        line(&mut text, "sys/file", &all);
        assert_eq!(text.lines().count(), 1);
        let folder = tempfile::tempdir().unwrap();
        unpack(&text, folder.path()).unwrap();
        assert_eq!(fs::read(folder.path().join("sys/file")).unwrap(), all);
    }

    #[test]
    fn a_recording_writes_nowhere_but_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["../x\tevil", "/tmp/x\tevil", "sys/../../x\tevil", "\tevil", "../x/"] {
            let error = unpack(path, folder.path()).unwrap_err();
            assert!(matches!(error, RecordingError::Path { line: 1, .. }), "{path}: {error}");
        }
        // Nor through a link that it made itself.
        for link in ["out -> /tmp", "proc/1/fd/0 -> /tmp", "out -> /dev/cpu_dma_latency", "../1/fd/0 -> /tmp"]
        {
            assert!(matches!(unpack(link, folder.path()), Err(RecordingError::Line { .. })), "{link}");
        }
        for text in ["words", "file\t\\q", "file\t\\x1", "file\t\\xzz"] {
            assert!(unpack(text, folder.path()).is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_stay_where_they_are() {
        let cmdline = b"root=UUID=1 password=hunter2 idle=poll -- --token 7".to_vec();
        assert_eq!(reduced("proc/cmdline", cmdline), b"idle=poll\n");
        let mounts =
            b"//nas/home /home cifs rw,username=me 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n".to_vec();
        assert_eq!(reduced("proc/self/mounts", mounts), b"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        let info =
            b"processor : 0\nmodel name : X\nflags : fpu hypervisor\nserial : 7\n\nprocessor : 1\n".to_vec();
        assert_eq!(reduced("proc/cpuinfo", info), b"model name : X\nflags : hypervisor\n");
    }
}
