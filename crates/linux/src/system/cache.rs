//! The CPUs' caches, and the CPUs that share them.
//!
//! `cpuN/cache/indexM/` describes one cache as CPU N sees it: `level`, `type` (Data, Instruction,
//! Unified), `size` (`36608K`), `shared_cpu_list`. The same cache appears under each of its CPUs;
//! here it is listed once. The CPUs of a last level matter for moving connections between workers:
//! a move within it is cheap.

use crate::root::{Gaps, Root, cpu_folder};
use machine::CpuList;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size; firmware of some Arm boards does not say.
    pub bytes: Option<u64>,
    /// The requested CPUs that share it.
    pub cpus: CpuList,
}

/// The caches of `cpus`, nearest first, each once.
pub fn caches(root: &Root, cpus: &CpuList, gaps: &mut Gaps) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    for &cpu in &cpus.0 {
        let folder = format!("{}/cache", cpu_folder(cpu));
        for index in gaps.names(root, &folder) {
            if !index.starts_with("index") {
                continue;
            }
            let file = |name: &str| format!("{folder}/{index}/{name}");
            let Some(level) = gaps.parse(root, &file("level"), "a cache level") else { continue };
            let shared: Option<CpuList> = gaps.parse(root, &file("shared_cpu_list"), "a list of CPUs");
            let shared =
                shared.map(|shared| CpuList(&shared.0 & &cpus.0)).filter(|shared| !shared.0.is_empty());
            let cache = Cache {
                level,
                kind: gaps.text(root, &file("type")).unwrap_or_else(|| "Unified".to_owned()),
                bytes: gaps.text(root, &file("size")).and_then(|size| bytes_of(&size)),
                cpus: shared.unwrap_or_else(|| CpuList([cpu].into())),
            };
            if !caches.contains(&cache) {
                caches.push(cache);
            }
        }
    }
    // Stable: CPUs stay in order within a level.
    caches.sort_by(|one, other| (one.level, &one.kind).cmp(&(other.level, &other.kind)));
    caches
}

/// `36608K` in bytes.
fn bytes_of(size: &str) -> Option<u64> {
    let (number, unit) = match size.strip_suffix(['K', 'M', 'G']) {
        Some(number) => (number, &size[number.len()..]),
        None => (size, ""),
    };
    let scale = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => 1,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn a_shared_cache_is_listed_once() {
        let machine = FakeMachine::intel_server(2);
        for cpu in 0..2 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache");
            for (index, level, kind, size, shared) in
                [(0, "1", "Data", "32K", format!("{cpu}")), (3, "3", "Unified", "36608K", "0-1".to_owned())]
            {
                machine.write(&format!("{folder}/index{index}/level"), level);
                machine.write(&format!("{folder}/index{index}/type"), kind);
                machine.write(&format!("{folder}/index{index}/size"), size);
                machine.write(&format!("{folder}/index{index}/shared_cpu_list"), &shared);
            }
        }
        let caches = caches(machine.root(), &"0-1".parse().unwrap(), &mut Gaps::default());
        let seen: Vec<_> =
            caches.iter().map(|cache| (cache.level, cache.bytes, cache.cpus.to_string())).collect();
        let (l1, l3) = (Some(32 << 10), Some(36608 << 10));
        assert_eq!(seen, [(1, l1, "0".into()), (1, l1, "1".into()), (3, l3, "0-1".into())]);
    }

    #[test]
    fn a_size_that_is_none_is_unknown() {
        for (text, bytes) in [("32K", Some(32768)), ("2M", Some(2 << 20)), ("7", Some(7))] {
            assert_eq!(bytes_of(text), bytes);
        }
        for nonsense in ["", "K", "-1K", "99999999999999999999G", "18446744073709551615K", "\u{fffd}"] {
            assert_eq!(bytes_of(nonsense), None, "{nonsense}");
        }
    }
}
