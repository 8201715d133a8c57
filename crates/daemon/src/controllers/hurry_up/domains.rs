//! Which CPUs can only be fast or slow together.

use linux::{FrequencyError, Root};
use machine::{CpuId, CpuList};
use std::collections::BTreeSet;

/// `cpus` in groups: those that share a clock by this means, and siblings of one core.
pub(super) fn domains(
    root: &Root,
    cpus: &CpuList,
    actuator: Option<linux::FrequencyActuator>,
) -> Result<Vec<Vec<CpuId>>, FrequencyError> {
    let by_clock = linux::speeds_by(root, cpus, actuator)?;
    let topology = linux::topology_of(root, cpus);
    let cores = cpus.0.iter().map(|&cpu| topology.siblings(cpu).collect());
    Ok(joined(cpus, by_clock.into_iter().map(|speeds| speeds.cpus.0).chain(cores)))
}

/// The same where no clock can be set: cores alone.
pub(super) fn cores(root: &Root, cpus: &CpuList) -> Vec<Vec<CpuId>> {
    let topology = linux::topology_of(root, cpus);
    joined(cpus, cpus.0.iter().map(|&cpu| topology.siblings(cpu).collect()))
}

/// Sets that have a CPU in common become one. CPUs outside `cpus` still join sets, and are then
/// left out.
fn joined(cpus: &CpuList, sets: impl Iterator<Item = BTreeSet<CpuId>>) -> Vec<Vec<CpuId>> {
    let mut groups: Vec<BTreeSet<CpuId>> = cpus.0.iter().map(|&cpu| BTreeSet::from([cpu])).collect();
    for set in sets {
        let (touched, mut others): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| !group.is_disjoint(&set));
        let mut one: BTreeSet<CpuId> = touched.into_iter().flatten().collect();
        if !one.is_empty() {
            one.extend(set);
            others.push(one);
        }
        groups = others;
    }
    let ours = |group: BTreeSet<CpuId>| group.intersection(&cpus.0).copied().collect();
    let mut groups: Vec<Vec<CpuId>> = groups.into_iter().map(ours).collect();
    groups.sort();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(cpus: &str, sets: &[&str]) -> Vec<String> {
        let list = |text: &&str| text.parse::<CpuList>().expect("CPUs").0;
        let joined = joined(&cpus.parse().expect("CPUs"), sets.iter().map(list));
        joined.into_iter().map(|group| CpuList(group.into_iter().collect()).to_string()).collect()
    }

    #[test]
    fn clocks_and_cores_are_joined() {
        assert_eq!(groups("0-3", &[]), ["0", "1", "2", "3"]);
        // Two hyperthreads on one core each: 0 with 4, 1 with 5.
        assert_eq!(groups("0-1,4-5", &["0", "1", "4", "5", "0,4", "1,5"]), ["0,4", "1,5"]);
        // Clocks of two cores each, and siblings across: all one.
        assert_eq!(groups("0-3", &["0-1", "2-3", "1-2"]), ["0-3"]);
        // A stranger joins two of ours and is left out.
        assert_eq!(groups("0,2", &["0-1", "1-2"]), ["0,2"]);
        assert_eq!(groups("0", &["7"]), ["0"]);
    }
}
