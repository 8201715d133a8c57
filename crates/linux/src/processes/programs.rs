//! A look at the running programs for two questions: which hold all C-states shallow, and which
//! others set the same knobs.
//!
//! A process that keeps `/dev/cpu_dma_latency` open with a small number in it limits every CPU's
//! sleep. Only the links in `/proc/PID/fd` show which process does; other users' links may be read
//! by root alone. Other daemons that set idle states, frequencies or cpusets are known by the name
//! in `/proc/PID/comm`, which the kernel cuts at 15 bytes.
//!
//! Invariants:
//! - Processes that may not be looked at are counted.
//! - Processes that end during the look are passed over.

use crate::cpuidle::pm_qos::DEVICES;
use crate::root::{Gaps, Root};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::Path;

/// A process, by the name that people know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    pub pid: u32,
    /// The first 15 bytes of its name; empty if it may not be read.
    pub name: String,
}

/// The processes that hold `/dev/cpu_dma_latency` or `/dev/cpu_wakeup_latency` open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencyHolders {
    pub holders: Vec<Program>,
    /// The number of processes that may hold it: this user cannot see their open files.
    pub unseen: usize,
}

/// Looks for the holders among all processes that may be looked at.
pub fn latency_holders(root: &Root, gaps: &mut Gaps) -> LatencyHolders {
    let mut found = LatencyHolders::default();
    for pid in pids(root, gaps) {
        match holds_device(root, pid) {
            Ok(true) => found.holders.push(Program { pid, name: name_of(root, pid) }),
            Ok(false) => {}
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            // The kernel's own threads have no command line and no files.
            Err(_) if root.text(&format!("proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty()) => {}
            Err(_) => found.unseen += 1,
        }
    }
    found
}

fn holds_device(root: &Root, pid: u32) -> io::Result<bool> {
    for entry in fs::read_dir(root.path(&format!("proc/{pid}/fd")))? {
        // A file that was closed since, or is not a link, is not the device.
        if let Ok(target) = entry.and_then(|entry| fs::read_link(entry.path()))
            && DEVICES.iter().any(|device| target == Path::new(device))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Another program that sets the same knobs as Roost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rival {
    pub program: Program,
    pub sets: &'static str,
    /// The knobs among them that Roost sets as well.
    pub contests: &'static [Contested],
}

/// A kind of knob that two programs may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contested {
    Idle,
    Frequency,
    /// The CPUs that a service uses.
    Cpus,
    Interrupts,
}

/// Programs by the kernel's name for them, and their effect on the same knobs.
const RIVALS: [(&str, &str, &[Contested]); 13] = [
    ("tuned", "idle limits, governors and clocks, by profile", &[Contested::Idle, Contested::Frequency]),
    ("tuned-ppd", "power profiles, through tuned", &[Contested::Idle, Contested::Frequency]),
    ("auto-cpufreq", "governors, clocks and turbo", &[Contested::Frequency]),
    ("power-profiles-", "the energy preference and turbo", &[Contested::Frequency]),
    (
        "intel_lpmd",
        "which CPUs may run, idle limits, the energy preference",
        &[Contested::Cpus, Contested::Idle, Contested::Frequency],
    ),
    ("thermald", "clocks and powers, when it gets hot", &[Contested::Frequency]),
    ("irqbalance", "which CPU an interrupt wakes", &[Contested::Interrupts]),
    ("cpufreqd", "governors and clocks", &[Contested::Frequency]),
    ("cpuspeed", "governors and clocks", &[Contested::Frequency]),
    ("laptop_mode", "governors and clocks", &[Contested::Frequency]),
    ("system76-power", "governors, clocks and turbo", &[Contested::Frequency]),
    ("kubelet", "cpusets", &[Contested::Cpus]),
    ("crio", "idle limits and clocks of pods that ask for it", &[Contested::Idle, Contested::Frequency]),
];

pub fn rivals(root: &Root, gaps: &mut Gaps) -> Vec<Rival> {
    let mut found = Vec::new();
    for pid in pids(root, gaps) {
        let name = name_of(root, pid);
        if let Some((_, sets, contests)) = RIVALS.iter().find(|(known, ..)| *known == name) {
            found.push(Rival { program: Program { pid, name }, sets, contests });
        }
    }
    found
}

fn pids(root: &Root, gaps: &mut Gaps) -> Vec<u32> {
    let mut pids: Vec<u32> = gaps.names(root, "proc").iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn name_of(root: &Root, pid: u32) -> String {
    crate::printable_name(&root.text(&format!("proc/{pid}/comm")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;
    use std::fs::File;
    use std::os::unix::fs::symlink;

    fn process(machine: &FakeMachine, pid: u32, name: &str, open: &[&str]) {
        machine.write(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        machine.write(&format!("proc/{pid}/cmdline"), name);
        fs::create_dir_all(machine.path(&format!("proc/{pid}/fd"))).unwrap();
        for (fd, target) in open.iter().enumerate() {
            symlink(target, machine.path(&format!("proc/{pid}/fd/{fd}"))).unwrap();
        }
    }

    #[test]
    fn who_holds_the_device_is_named() {
        let machine = FakeMachine::intel_server(1);
        process(&machine, 10, "tuned", &["/dev/null", "/dev/cpu_dma_latency"]);
        process(&machine, 12, "audio", &["/dev/cpu_wakeup_latency"]);
        process(&machine, 9, "sshd", &["/dev/null", "socket:[1]"]);
        machine.write("proc/77/cmdline", "");
        machine.write("proc/77/fd", "a kernel thread's, which cannot be listed");
        machine.write("proc/78/cmdline", "postgres");
        machine.write("proc/78/fd", "another user's, which cannot be listed");
        let found = latency_holders(machine.root(), &mut Gaps::default());
        let names: Vec<(u32, &str)> = found.holders.iter().map(|of| (of.pid, of.name.as_str())).collect();
        assert_eq!(names, [(10, "tuned"), (12, "audio")]);
        assert_eq!(found.unseen, 1, "the kernel's own threads hold nothing");
    }

    #[test]
    fn a_file_that_this_process_holds_is_found_on_the_running_machine() {
        let Ok(_held) = File::open("/dev/cpu_dma_latency") else {
            eprintln!("SKIPPED: /dev/cpu_dma_latency cannot be opened here");
            return;
        };
        let found = latency_holders(&Root::system(), &mut Gaps::default());
        assert!(found.holders.iter().any(|program| program.pid == std::process::id()), "{found:?}");
    }

    #[test]
    fn rivals_are_known_by_name_alone() {
        let machine = FakeMachine::intel_server(1);
        process(&machine, 10, "tuned", &[]);
        process(&machine, 11, "untuned", &[]);
        process(&machine, 12, "power-profiles-", &[]);
        let found = rivals(machine.root(), &mut Gaps::default());
        let names: Vec<&str> = found.iter().map(|rival| rival.program.name.as_str()).collect();
        assert_eq!(names, ["tuned", "power-profiles-"]);
        assert!(RIVALS.iter().all(|(name, ..)| name.len() <= 15), "the kernel would have cut it");
    }
}
