//! The machine's CPUs, and those that share a core, a socket and a memory.

use super::cache::caches;
use crate::root::{FileError, Gaps, Root, cpu_folder};
use machine::{Cpu, CpuId, CpuList, Topology};
use serde::Serialize;
use std::collections::BTreeMap;

/// The online CPUs. A machine whose kernel has no hotplug does not list them; then every CPU with a
/// folder counts.
pub fn online_cpus(root: &Root) -> Result<CpuList, FileError> {
    match root.parse("sys/devices/system/cpu/online", "a list of CPUs such as 0-3,8") {
        Err(FileError::Missing { .. }) => {
            let names = root.names("sys/devices/system/cpu")?;
            let ids = names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok().map(CpuId));
            Ok(CpuList(ids.collect()))
        }
        result => result,
    }
}

/// The online CPUs with their cores and sockets. Where the kernel shows none (some Arm boards and
/// containers), each CPU is a core of its own in socket 0.
pub fn topology(root: &Root) -> Result<Topology, FileError> {
    Ok(topology_of(root, &online_cpus(root)?))
}

/// The same of `cpus` alone. CPUs share a core if the kernel says so: by its list of a core's threads,
/// since numbers of cores begin anew in each cluster of an Arm machine, and on each die of older x86
/// ones. Such a core gets the next number that none of its socket has.
pub fn topology_of(root: &Root, cpus: &CpuList) -> Topology {
    let place = |cpu: CpuId, file: &str, unknown: u16| {
        // Arm firmware without the tables makes the kernel print -1.
        let number: Option<i64> =
            root.parse(&format!("{}/topology/{file}", cpu_folder(cpu)), "a number").ok();
        number.and_then(|number| u16::try_from(number).ok()).unwrap_or(unknown)
    };
    // By socket and number, the first thread of the core that has it.
    let mut taken: BTreeMap<(u16, u16), Option<CpuId>> = BTreeMap::new();
    let of = |&id: &CpuId| {
        let mut cpu = Cpu::at(id, place(id, "core_id", id.0), place(id, "physical_package_id", 0));
        let threads = format!("{}/topology/thread_siblings_list", cpu_folder(id));
        let threads: Option<CpuList> = root.parse(&threads, "a list of CPUs such as 0-3,8").ok();
        let first = threads.and_then(|threads| threads.0.first().copied());
        while *taken.entry((cpu.package, cpu.core)).or_insert(first) != first {
            cpu.core = cpu.core.wrapping_add(1);
        }
        cpu
    };
    Topology(cpus.0.iter().map(of).collect())
}

/// The same with that which decides about the order in which cores are kept awake: memory, last-level
/// cache, capacity.
pub fn topology_in_full(root: &Root, cpus: &CpuList) -> Topology {
    let mut topology = topology_of(root, cpus);
    let mut gaps = Gaps::default();
    let nodes = numa_nodes(root, &mut gaps);
    let caches = caches(root, cpus, &mut gaps);
    for cpu in &mut topology.0 {
        let node = nodes.iter().find(|node| node.cpus.0.contains(&cpu.id));
        cpu.node = node.map_or(0, |node| node.node);
        // Its own: small cores may have no third level.
        let own = caches.iter().filter(|cache| cache.cpus.0.contains(&cpu.id));
        let cache = own.max_by_key(|cache| cache.level);
        cpu.cache = cache.and_then(|cache| cache.cpus.0.first()).map_or(0, |first| first.0);
        // Of 1024, on machines with cores of several kinds.
        cpu.capacity = root.parse(&format!("{}/cpu_capacity", cpu_folder(cpu.id)), "a capacity").unwrap_or(0);
    }
    let are_equal = topology.0.windows(2).all(|pair| pair[0].capacity == pair[1].capacity);
    if are_equal && let Ok(small) = root.parse::<CpuList>("sys/devices/cpu_atom/cpus", "a list of CPUs") {
        capacity_by_clock(root, &mut topology, &small);
    }
    topology
}

/// Intel's hybrids with hyperthreads, and before 6.12 all of them, show one capacity for all; their
/// performance counters tell which are `small`. The ratio of the highest clocks is no less than that of
/// the speeds, so the order is right.
fn capacity_by_clock(root: &Root, topology: &mut Topology, small: &CpuList) {
    let clock = |id: CpuId| -> Option<u64> {
        root.parse(&format!("{}/cpufreq/cpuinfo_max_freq", cpu_folder(id)), "a clock in kHz").ok()
    };
    let Some(highest) = topology.0.iter().filter_map(|cpu| clock(cpu.id)).max() else { return };
    for cpu in &mut topology.0 {
        let own = if small.0.contains(&cpu.id) { clock(cpu.id) } else { None };
        cpu.capacity = own.map_or(1024, |own| (own.saturating_mul(1024) / highest.max(1)).min(1024) as u16);
    }
}

/// The clusters of these CPUs, in the order of their first: CPUs that share a part below the
/// socket's own cache, as the kernel shows it (`cluster_cpus_list`, Linux 5.16), if that is more than
/// one core: x86 servers call the threads of one a cluster. Elsewhere, CPUs that share their last-level
/// cache (a die, a CCX); else CPUs of one capacity; else all are one cluster.
pub fn clusters(root: &Root, cpus: &CpuList) -> Vec<CpuList> {
    let topology = topology_in_full(root, cpus);
    let alike = |key: &dyn Fn(&Cpu) -> String| {
        let mut groups: Vec<(String, CpuList)> = Vec::new();
        for cpu in &topology.0 {
            let key = key(cpu);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => drop(group.0.insert(cpu.id)),
                None => groups.push((key, CpuList([cpu.id].into()))),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect::<Vec<_>>()
    };
    let file = |cpu: &Cpu| format!("{}/topology/cluster_cpus_list", cpu_folder(cpu.id));
    let shown = alike(&|cpu| root.text(&file(cpu)).unwrap_or_default());
    let cores = alike(&|cpu| format!("{}:{}", cpu.package, cpu.core)).len();
    let mut parts = [shown, alike(&|cpu| cpu.cache.to_string())].into_iter();
    let part = parts.find(|parts| (2..cores).contains(&parts.len()));
    part.unwrap_or_else(|| alike(&|cpu| cpu.capacity.to_string()))
}

/// True if two threads share a core now (`smt/active`). Kernels that know no hyperthreads do not
/// say.
pub fn smt_active(root: &Root, gaps: &mut Gaps) -> Option<bool> {
    gaps.parse::<u8>(root, "sys/devices/system/cpu/smt/active", "0 or 1").map(|active| active != 0)
}

/// Memory that is near to some CPUs and farther from the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    pub node: u16,
    /// Near to these; a node may hold memory alone.
    pub cpus: CpuList,
}

/// The NUMA nodes; empty on a kernel without them.
pub fn numa_nodes(root: &Root, gaps: &mut Gaps) -> Vec<NumaNode> {
    const FOLDER: &str = "sys/devices/system/node";
    let mut nodes = Vec::new();
    for name in gaps.names(root, FOLDER) {
        let Some(node) = name.strip_prefix("node").and_then(|number| number.parse().ok()) else { continue };
        let below = format!("{FOLDER}/{name}/cpulist");
        // Empty for a node of memory alone.
        let cpus = match gaps.text(root, &below) {
            Some(_) => gaps.parse(root, &below, "a list of CPUs such as 0-3,8").unwrap_or_default(),
            None => CpuList::default(),
        };
        nodes.push(NumaNode { node, cpus });
    }
    nodes.sort_by_key(|node| node.node);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn hyperthreads_and_sockets_are_recognised() {
        let machine = FakeMachine::intel_server(8);
        for cpu in 0..8 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            machine.write(&format!("{folder}/core_id"), &format!("{}\n", cpu % 2));
            machine.write(&format!("{folder}/physical_package_id"), &format!("{}\n", cpu / 2 % 2));
        }
        let topology = topology(machine.root()).unwrap();
        assert_eq!(topology, Topology::uniform(2, 2, 2));
        assert_eq!(topology.siblings(CpuId(1)).collect::<Vec<_>>(), [CpuId(1), CpuId(5)]);
    }

    #[test]
    fn cores_with_the_same_numbers_are_told_apart_by_their_threads() {
        let machine = FakeMachine::intel_server(8);
        for cpu in 0..8 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            machine.write(&format!("{folder}/core_id"), &format!("{}\n", cpu % 2));
            machine.write(&format!("{folder}/physical_package_id"), "0\n");
            machine
                .write(&format!("{folder}/thread_siblings_list"), &format!("{},{}\n", cpu % 4, cpu % 4 + 4));
        }
        let topology = topology(machine.root()).unwrap();
        let siblings = |cpu| topology.siblings(CpuId(cpu)).map(|cpu| cpu.0).collect::<Vec<_>>();
        assert_eq!([siblings(0), siblings(1), siblings(2), siblings(3)], [[0, 4], [1, 5], [2, 6], [3, 7]]);
    }

    /// A machine whose files a kernel showed in an emulator (`lab/topologies`).
    fn recorded(text: &str) -> (Vec<[u16; 5]>, Vec<String>) {
        let machine = FakeMachine::with_states(1, &[]);
        for line in text.lines() {
            let (file, text) = line.split_once(':').unwrap();
            machine.write(file, text);
        }
        let all = online_cpus(machine.root()).unwrap();
        let places = topology_in_full(machine.root(), &all);
        let place = |cpu: &Cpu| [cpu.package, cpu.core, cpu.node, cpu.cache, cpu.capacity];
        let places = places.0.iter().map(place).collect();
        (places, clusters(machine.root(), &all).iter().map(ToString::to_string).collect())
    }

    #[test]
    fn two_sockets_of_two_dies_are_what_their_kernel_shows() {
        for (text, capacity) in [
            (include_str!("../../tests/testdata/topologies/dies-bookworm"), 0),
            (include_str!("../../tests/testdata/topologies/dies-trixie-backports"), 1024),
        ] {
            let (places, clusters) = recorded(text);
            let place = |cpu: u16| [cpu / 8, cpu / 2 % 4, cpu / 4, cpu / 4 * 4, capacity];
            assert_eq!(places, (0..16).map(place).collect::<Vec<_>>());
            // Not the cores, which the kernel calls clusters for the cache that their threads share.
            assert_eq!(clusters, ["0-3", "4-7", "8-11", "12-15"]);
        }
    }

    #[test]
    fn big_and_little_cores_with_the_same_numbers_are_cores_of_their_own() {
        let text = include_str!("../../tests/testdata/topologies/big-little-trixie");
        let (places, clusters) = recorded(text);
        assert_eq!(
            places,
            (0..8).map(|cpu| [0, cpu, 0, 0, if cpu < 4 { 446 } else { 1024 }]).collect::<Vec<_>>()
        );
        assert_eq!(clusters, ["0-3", "4-7"]);
    }

    #[test]
    fn memory_last_level_cache_and_capacity_are_told_where_the_kernel_tells_them() {
        let machine = FakeMachine::intel_server(4);
        let all = online_cpus(machine.root()).unwrap();
        assert_eq!(topology_in_full(machine.root(), &all), topology_of(machine.root(), &all));
        for cpu in 0..4 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            machine.write(&format!("{folder}/cpu_capacity"), if cpu < 2 { "1024\n" } else { "446\n" });
            for (index, level, shared) in
                [(0, 1, cpu.to_string()), (3, 3, format!("{},{}", cpu % 2, cpu % 2 + 2))]
            {
                machine.write(&format!("{folder}/cache/index{index}/level"), &format!("{level}\n"));
                machine
                    .write(&format!("{folder}/cache/index{index}/shared_cpu_list"), &format!("{shared}\n"));
            }
        }
        machine.write("sys/devices/system/node/node0/cpulist", "0,2\n");
        machine.write("sys/devices/system/node/node1/cpulist", "1,3\n");
        let told = topology_in_full(machine.root(), &all);
        let places: Vec<_> = told.0.iter().map(|cpu| (cpu.node, cpu.cache, cpu.capacity)).collect();
        assert_eq!(places, [(0, 0, 1024), (1, 1, 1024), (0, 0, 446), (1, 1, 446)]);
        // A CPU behind no third level shares its cache with none.
        machine.remove("sys/devices/system/cpu/cpu3/cache/index3");
        machine.write("sys/devices/system/cpu/cpu1/cache/index3/shared_cpu_list", "1\n");
        let caches: Vec<_> = topology_in_full(machine.root(), &all).0.iter().map(|cpu| cpu.cache).collect();
        assert_eq!(caches, [0, 1, 0, 3]);
    }

    #[test]
    fn small_cores_of_a_hybrid_with_one_capacity_are_told_by_its_counters() {
        let machine = FakeMachine::intel_server(6);
        let all = online_cpus(machine.root()).unwrap();
        for cpu in 0..6 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            let (core, clock) = if cpu < 4 { (cpu / 2, 4_700_000) } else { (cpu, 3_600_000) };
            machine.write(&format!("{folder}/topology/core_id"), &format!("{core}\n"));
            machine.write(&format!("{folder}/cpufreq/cpuinfo_max_freq"), &format!("{clock}\n"));
            machine.write(&format!("{folder}/cpu_capacity"), "1024\n");
        }
        let told = || -> Vec<u16> {
            topology_in_full(machine.root(), &all).0.iter().map(|cpu| cpu.capacity).collect()
        };
        assert_eq!(told(), [1024; 6]);
        machine.write("sys/devices/cpu_atom/cpus", "4-5\n");
        assert_eq!(told(), [1024, 1024, 1024, 1024, 784, 784]);
        assert_eq!(clusters(machine.root(), &all).len(), 2);
        machine.write("sys/devices/system/cpu/cpu4/cpu_capacity", "623\n");
        assert_eq!(told()[4..], [623, 1024], "the kernel's own word goes first");
    }

    #[test]
    fn clusters_are_told_by_the_kernel_or_by_capacity_or_are_one() {
        let machine = FakeMachine::intel_server(4);
        let all = online_cpus(machine.root()).unwrap();
        let told = |machine: &FakeMachine| -> Vec<String> {
            clusters(machine.root(), &all).iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(&machine), ["0-3"]);
        for (cpu, capacity) in [(0, 446), (1, 446), (2, 1024), (3, 446)] {
            machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"), &format!("{capacity}\n"));
        }
        assert_eq!(told(&machine), ["0-1,3", "2"]);
        for (cpu, cluster) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/cluster_cpus_list");
            machine.write(&file, &format!("{cluster}\n"));
        }
        assert_eq!(told(&machine), ["0-1", "2-3"]);
    }

    #[test]
    fn offline_cpus_do_not_count() {
        let machine = FakeMachine::intel_server(8);
        machine.write("sys/devices/system/cpu/online", "0-2,7\n");
        let ids: Vec<u16> = topology(machine.root()).unwrap().0.iter().map(|cpu| cpu.id.0).collect();
        assert_eq!(ids, [0, 1, 2, 7]);
    }

    #[test]
    fn a_kernel_that_says_little_still_has_cpus() {
        let machine = FakeMachine::arm_server(3);
        machine.remove("sys/devices/system/cpu/online");
        machine.remove("sys/devices/system/cpu/cpu1/topology");
        machine.write("sys/devices/system/cpu/cpu2/topology/physical_package_id", "-1\n");
        assert_eq!(topology(machine.root()).unwrap(), Topology::uniform(1, 3, 1));
    }

    #[test]
    fn memory_without_cpus_is_a_node_too() {
        let machine = FakeMachine::intel_server(2);
        machine.write("sys/devices/system/node/node0/cpulist", "0-1\n");
        machine.write("sys/devices/system/node/node10/cpulist", "\n");
        machine.write("sys/devices/system/node/node2/cpulist", "few\n");
        machine.write("sys/devices/system/node/online", "0,2,10\n");
        let mut gaps = Gaps::default();
        let nodes = numa_nodes(machine.root(), &mut gaps);
        assert_eq!(
            nodes.iter().map(|node| (node.node, node.cpus.0.len())).collect::<Vec<_>>(),
            [(0, 2), (2, 0), (10, 0)]
        );
        assert_eq!(gaps.0.len(), 1);
        assert_eq!(smt_active(machine.root(), &mut gaps), None);
    }

    #[test]
    fn a_nonsensical_list_is_an_error() {
        let machine = FakeMachine::intel_server(2);
        machine.write("sys/devices/system/cpu/online", "all of them\n");
        assert!(matches!(topology(machine.root()), Err(FileError::Nonsense { .. })));
    }

    #[test]
    fn this_machine_has_the_cpus_that_this_thread_may_use() {
        let topology = topology(&Root::system()).unwrap();
        for cpu in crate::allowed_cpus().unwrap().0 {
            assert!(topology.0.iter().any(|online| online.id == cpu), "{cpu}");
        }
    }
}
