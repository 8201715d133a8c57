//! In which order cores are kept awake, and so which are parked first.
//!
//! Power is saved by a whole physical core without work, and more so by a whole socket:
//! hyperthreads share a core's clock and caches, sockets an uncore and, where the machine has them,
//! package sleep states. So the unit is a physical core with all its threads, and cores
//! are filled socket by socket: the parked ones are as whole as can be.
//!
//! Within a socket they are filled by memory (NUMA node) and by last-level cache (a die, a cluster, a
//! CCD of AMD's): cores that share one hand requests and data over cheaply, and a cache whose cores all
//! rest can be switched off. Of cores of several kinds the fastest come first: a service that has a
//! goal needs these, and the slow ones are the first to be parked.

use machine::{CpuId, CpuList, Topology};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The cores that `allowed` leaves, in the order in which they are taken. Of sockets, of the nodes of a
/// socket and of the caches of a node, the one with the fastest cores comes first, then that with the
/// most, so that the service stays on one as long as possible; among equals the lowest number. A CPU
/// that the topology does not know is a core of its own at the end.
pub fn cores_in_order(topology: &Topology, allowed: &CpuList) -> Vec<Vec<CpuId>> {
    let mut cores: BTreeMap<(u16, u16), Core> = BTreeMap::new();
    for cpu in topology.0.iter().filter(|cpu| allowed.0.contains(&cpu.id)) {
        let core = cores.entry((cpu.package, cpu.core)).or_insert_with(|| Core {
            within: [cpu.package, cpu.node, cpu.cache],
            capacity: cpu.capacity,
            threads: Vec::new(),
        });
        core.threads.push(cpu.id);
    }
    let mut cores: Vec<Core> = cores.into_values().collect();
    // How fast the cores of a socket, of its node and of its cache are, and how many.
    let rank = |core: &Core| {
        [1, 2, 3].map(|depth| {
            let shares = |other: &&Core| other.within[..depth] == core.within[..depth];
            let alike: Vec<&Core> = cores.iter().filter(shares).collect();
            let fastest = alike.iter().map(|core| core.capacity).max();
            (Reverse(fastest), Reverse(alike.len()), core.within[depth - 1])
        })
    };
    let ranks: Vec<_> = cores.iter().map(|core| (rank(core), Reverse(core.capacity))).collect();
    let mut order: Vec<usize> = (0..cores.len()).collect();
    // Stable: equal cores stay in order of number.
    order.sort_by_key(|&at| ranks[at]);
    let known = |id: &CpuId| topology.0.iter().any(|cpu| cpu.id == *id);
    let unknown: Vec<Vec<CpuId>> = allowed.0.iter().filter(|id| !known(id)).map(|&id| vec![id]).collect();
    order.into_iter().map(|at| std::mem::take(&mut cores[at].threads)).chain(unknown).collect()
}

/// A physical core, as far as it is allowed.
struct Core {
    /// Its socket, its memory's node, its last-level cache.
    within: [u16; 3],
    capacity: u16,
    threads: Vec<CpuId>,
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

    /// The machine with places by CPU.
    fn with(mut machine: Topology, place: impl Fn(u16, &mut machine::Cpu)) -> Topology {
        for cpu in &mut machine.0 {
            let id = cpu.id.0;
            place(id, cpu);
        }
        machine
    }

    fn firsts(machine: &Topology, allowed: &str) -> Vec<u16> {
        cores_in_order(machine, &list(allowed)).iter().map(|core| core[0].0).collect()
    }

    #[test]
    fn caches_of_a_socket_are_filled_one_by_one() {
        // As EPYC numbers its CCDs, and as a firmware may: by turns.
        let in_turn = with(Topology::uniform(1, 8, 1), |id, cpu| cpu.cache = id / 4 * 4);
        assert_eq!(firsts(&in_turn, "0-7"), [0, 1, 2, 3, 4, 5, 6, 7]);
        let by_turns = with(Topology::uniform(1, 8, 1), |id, cpu| cpu.cache = id % 2);
        assert_eq!(firsts(&by_turns, "0-7"), [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(firsts(&by_turns, "1,3-7"), [1, 3, 5, 7, 4, 6], "the cache that has more of them");
        // Two memories of two caches each: one memory first.
        let nodes = with(Topology::uniform(1, 8, 1), |id, cpu| {
            (cpu.node, cpu.cache) = (id % 2, id % 4);
        });
        assert_eq!(firsts(&nodes, "0-7"), [0, 4, 2, 6, 1, 5, 3, 7]);
    }

    #[test]
    fn of_cores_of_two_kinds_the_fast_ones_come_first() {
        // Four slow cores, numbered first, and two fast ones behind one cache; then each kind its own.
        let capacity = |id: u16| if id >= 4 { 1024 } else { 446 };
        let hybrid = with(Topology::uniform(1, 6, 1), |id, cpu| cpu.capacity = capacity(id));
        assert_eq!(firsts(&hybrid, "0-5"), [4, 5, 0, 1, 2, 3]);
        let clusters = with(hybrid, |id, cpu| cpu.cache = id / 4 * 4);
        assert_eq!(firsts(&clusters, "0-5"), [4, 5, 0, 1, 2, 3]);
        assert_eq!(firsts(&clusters, "0-3,5"), [5, 0, 1, 2, 3]);
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
