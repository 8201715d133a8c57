//! The programs that run, looked at for two questions: who holds all C-states shallow, and who else sets the knobs.
//!
//! Whoever keeps `/dev/cpu_dma_latency` open with a small number in it limits every CPU's sleep, and nothing but the
//! links in `/proc/PID/fd` tells who that is; other users' links may be read by root alone. Other daemons that set
//! idle states, clocks or cpusets are known by the name in `/proc/PID/comm`, which the kernel cuts at 15 bytes.
//!
//! What always holds: of a process that may not be looked at, it is said that it was not, by a count; processes that
//! end while they are looked at are passed over.

use crate::root::{Gaps, Root};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::Path;

/// A process, as people name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its number.
    pub pid: u32,
    /// The first 15 bytes of its name; empty if it may not be read.
    pub name: String,
}

/// Who holds `/dev/cpu_dma_latency` open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencyHolders {
    /// These do.
    pub holders: Vec<Program>,
    /// So many processes may, because this user may not see what they hold open.
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
            && target == Path::new("/dev/cpu_dma_latency")
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Another program that sets what Roost would set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rival {
    /// Which.
    pub program: Program,
    /// What it sets.
    pub sets: &'static str,
    /// Which of that Roost sets as well.
    pub contests: &'static [Contested],
}

/// A kind of knob that two programs may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contested {
    /// How deep CPUs may sleep.
    Idle,
    /// How fast they run.
    Frequency,
    /// Which of them a service uses.
    Cpus,
    /// Which of them interrupts wake.
    Interrupts,
}

/// Programs by the name that the kernel keeps of them, and what they do to the same knobs.
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

/// The rivals that run here.
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
        process(&machine, 9, "sshd", &["/dev/null", "socket:[1]"]);
        machine.write("proc/77/cmdline", "");
        machine.write("proc/77/fd", "a kernel thread's, which cannot be listed");
        machine.write("proc/78/cmdline", "postgres");
        machine.write("proc/78/fd", "another user's, which cannot be listed");
        let found = latency_holders(machine.root(), &mut Gaps::default());
        assert_eq!(found.holders, [Program { pid: 10, name: "tuned".into() }]);
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
