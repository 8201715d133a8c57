//! The cost of programs in the kernel, by the kernel's own count.

use anyhow::{Context as _, Result};
use machine::Duration;
use std::collections::BTreeMap;
use std::fs;

/// The kernel counts the time of programs while this lives.
pub(super) struct Statistics {
    before: Option<String>,
}

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl Statistics {
    /// From now on, where this user may.
    pub(super) fn on() -> Self {
        let before = fs::read_to_string(STATISTICS).ok();
        let set = fs::write(STATISTICS, "1");
        if let Err(cause) = &set {
            eprintln!("{STATISTICS}: {cause}; the time of programs in the kernel is not counted");
        }
        Self { before: before.filter(|_| set.is_ok()) }
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = fs::write(STATISTICS, before.trim());
        }
    }
}

/// Time of all programs in the kernel that a process holds open (`run_time_ns` of its descriptors).
pub(super) fn program_time(process: u32) -> Result<Duration> {
    let folder = format!("/proc/{process}/fdinfo");
    let mut programs = BTreeMap::new();
    for file in fs::read_dir(&folder).with_context(|| format!("reading {folder}"))?.flatten() {
        // A descriptor that was closed meanwhile is no program.
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse::<u64>().ok())
        };
        if let (Some(id), Some(nanos)) = (field("prog_id"), field("run_time_ns")) {
            programs.insert(id, nanos);
        }
    }
    Ok(Duration::from_nanos(programs.values().sum()))
}
