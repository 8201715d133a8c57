//! In which order cores are kept awake, and so which are parked first.
//!
//! Power is saved by a whole physical core without work, and more so by a whole socket:
//! hyperthreads share a core's clock and caches, sockets an uncore and, where the machine has them,
//! package sleep states. So the unit is a physical core with all its threads, and cores
//! are filled socket by socket: the parked ones are as whole as can be.

use machine::{CpuId, CpuList, Topology};
use std::collections::BTreeMap;

/// The cores that `allowed` leaves, in the order in which they are taken. The socket with the most
/// of them comes first, so that the service stays on one as long as possible; among equals the
/// lowest number. A CPU that the topology does not know is a core of its own at the end.
pub fn cores_in_order(topology: &Topology, allowed: &CpuList) -> Vec<Vec<CpuId>> {
    let mut sockets: BTreeMap<u16, BTreeMap<u16, Vec<CpuId>>> = BTreeMap::new();
    for cpu in topology.0.iter().filter(|cpu| allowed.0.contains(&cpu.id)) {
        sockets.entry(cpu.package).or_default().entry(cpu.core).or_default().push(cpu.id);
    }
    let known = |id: &CpuId| topology.0.iter().any(|cpu| cpu.id == *id);
    let unknown: Vec<Vec<CpuId>> = allowed.0.iter().filter(|id| !known(id)).map(|&id| vec![id]).collect();
    let mut sockets: Vec<_> = sockets.into_values().collect();
    // Stable: sockets with equally many cores stay in order of number.
    sockets.sort_by_key(|cores| std::cmp::Reverse(cores.len()));
    sockets.into_iter().flat_map(BTreeMap::into_values).chain(unknown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn numbers(cores: &[Vec<CpuId>]) -> Vec<Vec<u16>> {
        cores.iter().map(|core| core.iter().map(|cpu| cpu.0).collect()).collect()
    }

    #[test]
    fn whole_cores_and_then_whole_sockets() {
        let machine = Topology::uniform(2, 2, 2);
        assert_eq!(numbers(&cores_in_order(&machine, &list("0-7"))), [[0, 4], [1, 5], [2, 6], [3, 7]]);
    }

    #[test]
    fn a_service_that_may_use_some_cpus_only_gets_those() {
        let machine = Topology::uniform(2, 2, 2);
        assert_eq!(numbers(&cores_in_order(&machine, &list("1-3,6"))), [vec![2, 6], vec![3], vec![1]]);
        assert_eq!(numbers(&cores_in_order(&machine, &list("0,99"))), [[0], [99]]);
    }

    proptest! {
        #[test]
        fn every_allowed_cpu_has_one_core(
            packages in 1u16..4, cores in 1u16..6, threads in 1u16..3,
            allowed in proptest::collection::btree_set(0u16..40, 0..40),
        ) {
            let machine = Topology::uniform(packages, cores, threads);
            let allowed = CpuList(allowed.into_iter().map(CpuId).collect());
            let cores = cores_in_order(&machine, &allowed);
            let mut listed: Vec<CpuId> = cores.iter().flatten().copied().collect();
            listed.sort_unstable();
            prop_assert_eq!(listed, allowed.0.into_iter().collect::<Vec<_>>());
            prop_assert!(cores.iter().all(|core| !core.is_empty()));
        }
    }
}
