//! The doctor's facts as the archive has them: numbers, and names that drivers give to kinds.
//!
//! Each value is asked for by name here; nothing is copied whole. Left out on purpose: the maker's
//! names and serial numbers (DMI), the kernel's command line, holders and rivals (processes), paths
//! of control groups, names of network cards, labels of sensors, the suffix of the kernel's release.

use crate::prove::meters::MeterName;
use linux::{FrequencyDomain, Root};
use machine::{CstateKind, EnergySource, IdleLimit};
use observe::doctor::{Facts, gather};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use study::kit::{ClockDomains, IdleState, IdleTable, Machine, Meter, MeterKind, Nic, Uncore, Word};

/// The meters as the archive calls them; the first so many are commands.
pub fn meters(names: &[MeterName], commands: usize) -> Vec<Meter> {
    let of = |(at, meter): (usize, &MeterName)| match &meter.source {
        _ if at < commands => {
            Meter { kind: MeterKind::Command, name: Word::of(&format!("command {}", at + 1)) }
        }
        EnergySource::Modelled(name) => Meter { kind: MeterKind::Model, name: Word::of(name) },
        EnergySource::Measured(name) => match name.strip_prefix("hwmon ") {
            // The chip's name is its driver's; the label is the board's.
            Some(sensor) => {
                let chip = sensor.split(' ').next().and_then(Word::name).unwrap_or_default();
                Meter { kind: MeterKind::Sensor, name: Word::of(&format!("sensor {} {chip}", at + 1)) }
            }
            None => Meter { kind: MeterKind::Rapl, name: Word::of(name) },
        },
    };
    names.iter().enumerate().map(of).collect()
}

pub fn machine(root: &Root, meters: &[Meter]) -> Machine {
    let programs = (root == &Root::system()).then(|| linux::probes::survey(root));
    let facts = gather(root, programs);
    let topology = &facts.cpus.topology.0;
    let cores: BTreeSet<(u16, u16)> = topology.iter().map(|cpu| (cpu.package, cpu.core)).collect();
    let sockets: BTreeSet<u16> = topology.iter().map(|cpu| cpu.package).collect();
    let name = |name: &Option<String>| name.as_deref().and_then(Word::name);
    Machine {
        processor: facts.identity.processor.as_deref().map(Word::of),
        kernel: facts.identity.kernel.as_deref().and_then(numbers),
        virtual_machine: facts.identity.virtual_machine,
        cpus: facts.cpus.online.0.len() as u32,
        cores: cores.len() as u32,
        sockets: sockets.len() as u32,
        numa_nodes: facts.cpus.numa.len() as u32,
        idle_driver: name(&facts.idle.driver.driver),
        idle_governor: name(&facts.idle.driver.governor),
        idle_tables: idle_tables(&facts),
        c1_demotion: facts.idle.c1_demotion,
        idle_limit_ns: strictest(&facts),
        clocks: clocks(&facts.frequency.domains),
        turbo: facts.frequency.turbo,
        pstate_mode: facts
            .frequency
            .mode
            .as_ref()
            .and_then(|(driver, mode)| Word::name(&format!("{driver} {mode}"))),
        uncore: uncore(root),
        meters: meters.to_vec(),
        nics: nics(root),
        cgroups: Word::of(match facts.cgroups.version {
            linux::CgroupVersion::None => "none",
            linux::CgroupVersion::V1 => "v1",
            linux::CgroupVersion::V2 => "v2",
            linux::CgroupVersion::Hybrid => "hybrid",
        }),
        cpuset: facts.cgroups.cpuset.is_some(),
        bpf_loaded: facts.bpf_programs.as_ref().map(|programs| {
            let loaded = programs.iter().filter(|program| program.refused.is_none()).count();
            (loaded as u32, programs.len() as u32)
        }),
    }
}

/// The release's numbers alone: `6.12.0` of `6.12.0-13-company-amd64`.
fn numbers(release: &str) -> Option<Word> {
    let end = release.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    Word::name(release[..end.unwrap_or(release.len())].trim_end_matches('.'))
}

fn idle_tables(facts: &Facts) -> Vec<IdleTable> {
    let table = |group: &observe::doctor::IdleGroup| {
        let states = group.states.iter().map(|state| IdleState {
            name: Word::name(&state.state.name).unwrap_or_else(|| Word::of("?")),
            halts: state.state.kind == CstateKind::Halting,
            exit_latency_ns: state.state.exit_latency.as_nanos(),
            target_residency_ns: state.state.target_residency.as_nanos(),
            disabled: state.settings.disabled,
        });
        IdleTable { cpus: group.cpus.0.len() as u32, states: states.collect() }
    };
    facts.idle.groups.iter().map(table).collect()
}

/// Of all limits in force, the machine's own among them.
fn strictest(facts: &Facts) -> Option<u64> {
    let limits = facts.limits.per_cpu.iter().map(|group| group.limit).chain(facts.limits.global);
    let bounds = limits.filter_map(|limit| match limit {
        IdleLimit::ExitLatency(latency) => Some(latency.as_nanos()),
        IdleLimit::None | IdleLimit::Deepest => None,
    });
    bounds.min()
}

fn clocks(domains: &[FrequencyDomain]) -> Vec<ClockDomains> {
    let mut alike: Vec<ClockDomains> = Vec::new();
    for domain in domains {
        let khz = |clock: Option<machine::Kilohertz>| clock.map(|clock| clock.0);
        let name = |name: &Option<String>| name.as_deref().and_then(Word::name);
        let own = ClockDomains {
            domains: 0,
            cpus: 0,
            driver: name(&domain.driver),
            governor: name(&domain.governor),
            preference: name(&domain.preference),
            hardware_min_khz: khz(domain.hardware_min),
            hardware_max_khz: khz(domain.hardware_max),
            base_khz: khz(domain.base),
            min_khz: khz(domain.min),
            max_khz: khz(domain.max),
        };
        let same =
            |known: &&mut ClockDomains| ClockDomains { domains: 0, cpus: 0, ..(**known).clone() } == own;
        let at = match alike.iter_mut().find(same) {
            Some(known) => known,
            None => {
                alike.push(own);
                alike.last_mut().expect("just pushed")
            }
        };
        at.domains += 1;
        at.cpus += domain.cpus.0.len() as u32;
    }
    alike
}

/// Folders below `folder`, in order; none where there is no such folder.
fn below(root: &Root, folder: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(root.path(folder)).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn number<T: std::str::FromStr>(folder: &Path, file: &str) -> Option<T> {
    fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
}

/// As the kernel's `Documentation` has it: `admin-guide/pm/intel_uncore_frequency_scaling.rst`.
fn uncore(root: &Root) -> Vec<Uncore> {
    let mut alike: Vec<Uncore> = Vec::new();
    for folder in below(root, "sys/devices/system/cpu/intel_uncore_frequency") {
        let own = Uncore {
            domains: 1,
            min_khz: number(&folder, "min_freq_khz"),
            max_khz: number(&folder, "max_freq_khz"),
        };
        if own.min_khz.is_none() && own.max_khz.is_none() {
            continue;
        }
        match alike.iter_mut().find(|known| (known.min_khz, known.max_khz) == (own.min_khz, own.max_khz)) {
            Some(known) => known.domains += 1,
            None => alike.push(own),
        }
    }
    alike
}

/// Network cards: interfaces with a device behind them (kernel `Documentation/ABI/testing/
/// sysfs-class-net` and `sysfs-class-net-queues`). An interface without one is the kernel's own.
fn nics(root: &Root) -> Vec<Nic> {
    let cards = below(root, "sys/class/net").into_iter().filter(|card| card.join("device").exists());
    cards
        .map(|card| {
            let queues = |kind: &str| {
                let entries = fs::read_dir(card.join("queues")).into_iter().flatten().flatten();
                let of_kind = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(kind));
                of_kind.count() as u32
            };
            // -1: no cable, or a card of a virtual machine.
            let speed = number::<i64>(&card, "speed").and_then(|speed| u32::try_from(speed).ok());
            Nic { rx_queues: queues("rx-"), tx_queues: queues("tx-"), mbit_per_s: speed }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::kit::{Archive, FORMAT, Summary};

    /// Texts that lie about on a machine, each in the file where it really is.
    const SECRETS: [(&str, &str); 14] = [
        ("proc/sys/kernel/hostname", "db1-secret-host"),
        ("proc/sys/kernel/domainname", "secret.example.org"),
        ("proc/sys/kernel/osrelease", "6.12.0-13-secretcorp-amd64"),
        ("proc/cmdline", "root=UUID=secret-uuid idle=poll intel_idle.max_cstate=1 secretword"),
        ("proc/4711/comm", "secretd"),
        ("proc/4711/cmdline", "secretd --password=secret"),
        ("proc/4711/status", "Name:\tsecretd\nUid:\t1000 1000 1000 1000\n"),
        ("sys/class/dmi/id/sys_vendor", "secret vendor"),
        ("sys/class/dmi/id/product_name", "secret product"),
        ("sys/class/dmi/id/product_serial", "SECRET-SERIAL-1"),
        ("sys/class/dmi/id/board_serial", "SECRET-SERIAL-2"),
        ("sys/class/net/secret0/address", "52:54:00:5e:c2:e7"),
        ("sys/class/hwmon/hwmon7/power1_label", "secret label 10.11.12.13"),
        ("sys/devices/system/cpu/cpuidle/current_governor", "secret@governor"),
    ];

    #[test]
    fn no_name_address_or_payload_of_the_machine_is_in_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let tree = include_str!("../../../../observe/tests/testdata/intel-server.tree");
        observe::doctor::unpack(tree, folder.path()).unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (file, text) in SECRETS {
            write(file, text);
        }
        write("sys/class/hwmon/hwmon7/name", "power_meter\n");
        write("sys/class/hwmon/hwmon7/power1_average", "215000000\n");
        for queue in ["rx-0", "rx-1", "tx-0"] {
            write(&format!("sys/class/net/secret0/queues/{queue}/x"), "");
        }
        write("sys/class/net/secret0/device/vendor", "0x8086\n");
        write("sys/class/net/secret0/speed", "10000\n");
        write("sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00/min_freq_khz", "1200000\n");
        write("sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00/max_freq_khz", "2400000\n");
        let root = Root::at(folder.path());
        let measured =
            |name: &str| MeterName { name: name.to_owned(), source: EnergySource::Measured(name.to_owned()) };
        let mut names = vec![measured("ipmitool -H 10.11.12.13 -P secret power"), measured("RAPL package-0")];
        names.extend(linux::PowerSensor::all(&root).iter().map(|sensor| measured(&sensor.name)));
        assert!(names[2].name.contains("secret label"), "{names:?}");
        let machine = machine(&root, &meters(&names, 1));
        let summary = Summary {
            format: FORMAT,
            version: Word::of("0"),
            date: Word::of("2026-11-26"),
            planned_s: 60,
            took_s: 1.0,
            ended_early: false,
            parts: Vec::new(),
        };
        let (wakes, idle, clocks, loads) = Default::default();
        let archive = Archive { summary, machine, wakes, idle, clocks, loads };
        let all: String = archive.files().into_iter().map(|(_, text)| text).collect();
        let lower = all.to_lowercase();
        let seeds = ["secret", "52:54", "10.11.12.13", "db1", "uuid", "4711", "max_cstate", "8086"];
        for seed in seeds {
            assert!(!lower.contains(seed), "{seed} is in the archive: {all}");
        }
        // And the facts are there.
        let machine = archive.machine;
        assert_eq!(machine.kernel, Word::name("6.12.0"));
        assert_eq!(machine.nics, [Nic { rx_queues: 2, tx_queues: 1, mbit_per_s: Some(10_000) }]);
        assert_eq!(machine.uncore[0].max_khz, Some(2_400_000));
        let known: Vec<&str> = machine.meters.iter().map(|meter| meter.name.as_str()).collect();
        assert_eq!(known, ["command 1", "RAPL package-0", "sensor 3 power_meter"]);
        assert!(machine.idle_tables[0].states.iter().any(|state| state.name.as_str() == "C6"));
        assert_eq!(machine.idle_governor, None, "a name that no driver has is left out");
    }
}
