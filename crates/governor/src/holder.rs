//! One holder per knob: what several services ask of one CPU is combined.
//!
//! Two services may share CPUs, and the kernel has one slot per CPU for all of user space. The strictest limit on idle states
//! wins, as in the kernel's own pm_qos; withdrawing one gives what the others still ask for, never a constant.
//!
//! What always holds: what is in force is the combination of what is asked for and of the administrator's own, which
//! `host::IdleControl` keeps; a CPU that nobody asks anything of is as it was before us.

use host::{IdleControl, IdleOptions, LimitState, LockError, Root};
use machine::{CpuId, CpuList, Duration, IdleLimit};
use std::collections::BTreeMap;

/// The idle limits of some CPUs, on behalf of several services.
#[derive(Debug)]
pub struct Holder {
    control: IdleControl,
    asked: BTreeMap<CpuId, BTreeMap<String, Duration>>,
}

impl Holder {
    /// Locks `cpus` for this process; an error names who has one of them.
    pub fn open(root: &Root, cpus: &CpuList, name: &str) -> Result<Self, LockError> {
        let control = IdleControl::open(root, cpus, IdleOptions::new(name))?;
        Ok(Self { control, asked: BTreeMap::new() })
    }

    /// `service` asks for this limit on `cpu`, instead of what it asked for before.
    pub fn limit(&mut self, service: &str, cpu: CpuId, limit: IdleLimit) -> LimitState {
        let asked = self.asked.entry(cpu).or_default();
        match limit {
            IdleLimit::None => asked.remove(service),
            IdleLimit::ExitLatency(latency) => asked.insert(service.to_owned(), latency),
        };
        let combined = combined(asked);
        self.control.apply(cpu, combined)
    }

    /// `service` asks for nothing any more.
    pub fn withdraw(&mut self, service: &str) {
        let cpus: Vec<CpuId> =
            self.asked.iter().filter(|(_, asked)| asked.contains_key(service)).map(|(&cpu, _)| cpu).collect();
        for cpu in cpus {
            self.limit(service, cpu, IdleLimit::None);
        }
    }

    /// What there is to say since the last call.
    pub fn drain_notices(&mut self) -> Vec<String> {
        self.control.drain_notices()
    }

    /// Everything back, one line per file.
    pub fn release(&mut self) -> Vec<String> {
        self.asked.clear();
        self.control.restore()
    }
}

/// The strictest of all.
fn combined(asked: &BTreeMap<String, Duration>) -> IdleLimit {
    asked.values().min().map_or(IdleLimit::None, |&latency| IdleLimit::ExitLatency(latency))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A folder with one CPU that has a limit file, as `sys` has.
    fn machine() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let cpu = folder.path().join("sys/devices/system/cpu/cpu0");
        fs::create_dir_all(cpu.join("power")).unwrap();
        fs::create_dir_all(folder.path().join("run")).unwrap();
        fs::write(cpu.join("power/pm_qos_resume_latency_us"), "0\n").unwrap();
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn the_strictest_wins_and_withdrawing_gives_what_the_rest_asks_for() {
        let (folder, root) = machine();
        let file = folder.path().join("sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us");
        let reads = || fs::read_to_string(&file).unwrap().trim().to_owned();
        let mut holder = Holder::open(&root, &"0".parse().unwrap(), "a test").unwrap();
        let us = |us| IdleLimit::ExitLatency(Duration::from_micros(us));
        holder.limit("cache", CpuId(0), us(100));
        holder.limit("search", CpuId(0), us(20));
        assert_eq!(reads(), "20");
        holder.limit("cache", CpuId(0), us(50));
        assert_eq!(reads(), "20");
        holder.withdraw("search");
        assert_eq!(reads(), "50");
        holder.withdraw("cache");
        assert_eq!(reads(), "0");
        holder.limit("cache", CpuId(0), us(50));
        drop(holder);
        assert_eq!(reads(), "0");
    }
}
