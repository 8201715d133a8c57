//! RAPL through powercap: each socket's energy counter, and its memory's where there is one.
//!
//! `/sys/class/powercap/intel-rapl:N` is socket N (`name` = `package-N`; AMD's driver uses the same
//! names) and `intel-rapl:N:M` a part of it. Of the parts only `dram` lies outside `package`, so
//! only it is added; `psys` holds everything and would count twice, and the `-mmio` twins are the
//! same counters by another road. `energy_uj` may be read by root alone, and starts again from zero
//! after `max_energy_range_uj`.

use crate::root::{FileError, Gaps, Root};
use machine::{Microjoules, Microwatts};
use serde::Serialize;

const FOLDER: &str = "sys/class/powercap";

#[derive(Debug)]
pub(super) struct Rapl {
    root: Root,
    zones: Vec<Zone>,
    used: u64,
}

#[derive(Debug)]
struct Zone {
    name: String,
    counter: String,
    range: u64,
    last: u64,
}

impl Rapl {
    /// Starts counting, or returns the reason that it cannot.
    pub(super) fn open(root: &Root) -> Result<Self, String> {
        let mut zones = Vec::new();
        for entry in root.names(FOLDER).map_err(|error| error.to_string())? {
            let folder = format!("{FOLDER}/{entry}");
            let Some(place) = entry.strip_prefix("intel-rapl:") else { continue };
            let Ok(name) = root.text(&format!("{folder}/name")) else { continue };
            if !(name.starts_with("package-") || name == "dram") {
                continue;
            }
            let socket = place.split(':').next().unwrap_or(place);
            let name = if name == "dram" { format!("dram-{socket}") } else { name };
            zones.push(Zone::open(root, name, &folder).map_err(|error| format!("RAPL's {error}"))?);
        }
        if zones.is_empty() {
            return Err("no RAPL meter in /sys/class/powercap, as in a virtual machine".to_owned());
        }
        Ok(Self { root: root.clone(), zones, used: 0 })
    }

    /// Energy since the start; `None` if a counter cannot be read now.
    pub(super) fn read(&mut self) -> Option<Microjoules> {
        for zone in &mut self.zones {
            let now: u64 = self.root.parse(&zone.counter, "microjoules").ok()?;
            let gone = if now >= zone.last {
                now - zone.last
            } else {
                (zone.range - zone.last.min(zone.range)) + now
            };
            self.used = self.used.saturating_add(gone);
            zone.last = now;
        }
        Some(Microjoules(self.used))
    }

    /// `RAPL package-0 + dram-0`.
    pub(super) fn name(&self) -> String {
        let names: Vec<&str> = self.zones.iter().map(|zone| zone.name.as_str()).collect();
        format!("RAPL {}", names.join(" + "))
    }
}

impl Zone {
    fn open(root: &Root, name: String, folder: &str) -> Result<Self, FileError> {
        let counter = format!("{folder}/energy_uj");
        let range = root.parse(&format!("{folder}/max_energy_range_uj"), "microjoules")?;
        let last = root.parse(&counter, "microjoules")?;
        Ok(Self { name, counter, range, last })
    }
}

/// One of powercap's meters, as a survey sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeterZone {
    /// `intel-rapl:0`, or a part of it: `intel-rapl:0:0`.
    pub zone: String,
    /// `package-0`, `dram`, `core`, `psys`.
    pub name: String,
    /// Why its counter cannot be read; `None` if it can.
    pub unreadable: Option<String>,
    /// The cap on its average power, where it has one.
    pub cap: Option<Microwatts>,
}

/// RAPL's meters, whether or not this user may read them; none in a virtual machine.
pub fn meter_zones(root: &Root, gaps: &mut Gaps) -> Vec<MeterZone> {
    let mut zones = Vec::new();
    for zone in gaps.names(root, FOLDER) {
        let folder = format!("{FOLDER}/{zone}");
        let Some(name) = zone.contains(':').then(|| gaps.text(root, &format!("{folder}/name"))).flatten()
        else {
            continue;
        };
        let counter = root.parse::<u64>(&format!("{folder}/energy_uj"), "microjoules");
        let cap = gaps.parse(root, &format!("{folder}/constraint_0_power_limit_uw"), "microwatts");
        let unreadable = counter.err().map(|error| error.reason());
        zones.push(MeterZone { zone, name, unreadable, cap: cap.map(Microwatts) });
    }
    zones
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    pub(crate) fn package(machine: &FakeMachine, socket: u8, energy: u64, range: u64) {
        zone(machine, &format!("intel-rapl:{socket}"), &format!("package-{socket}"), energy, range);
    }

    fn zone(machine: &FakeMachine, entry: &str, name: &str, energy: u64, range: u64) {
        let folder = format!("sys/class/powercap/{entry}");
        machine.write(&format!("{folder}/name"), &format!("{name}\n"));
        machine.write(&format!("{folder}/energy_uj"), &format!("{energy}\n"));
        machine.write(&format!("{folder}/max_energy_range_uj"), &format!("{range}\n"));
    }

    #[test]
    fn sockets_and_their_memory_are_added_and_nothing_twice() {
        let machine = FakeMachine::intel_server(2);
        package(&machine, 0, 0, 1_000);
        package(&machine, 1, 0, 1_000);
        zone(&machine, "intel-rapl:0:0", "core", 0, 1_000);
        zone(&machine, "intel-rapl:0:1", "dram", 0, 1_000);
        zone(&machine, "intel-rapl:2", "psys", 0, 1_000);
        zone(&machine, "intel-rapl-mmio:0", "package-0", 0, 1_000);
        let mut rapl = Rapl::open(machine.root()).unwrap();
        assert_eq!(rapl.name(), "RAPL package-0 + dram-0 + package-1");
        let entries = [
            "intel-rapl:0",
            "intel-rapl:1",
            "intel-rapl:0:0",
            "intel-rapl:0:1",
            "intel-rapl:2",
            "intel-rapl-mmio:0",
        ];
        for (entry, energy) in entries.iter().zip([1u64, 10, 100, 200, 400, 800]) {
            machine.write(&format!("sys/class/powercap/{entry}/energy_uj"), &energy.to_string());
        }
        assert_eq!(rapl.read(), Some(Microjoules(211)));
    }

    #[test]
    fn a_meter_that_cannot_be_read_is_still_there() {
        let machine = FakeMachine::intel_server(1);
        assert!(meter_zones(machine.root(), &mut Gaps::default()).is_empty());
        package(&machine, 0, 0, 1_000);
        zone(&machine, "intel-rapl:0:0", "dram", 0, 1_000);
        machine.write("sys/class/powercap/intel-rapl/enabled", "1\n");
        machine.remove("sys/class/powercap/intel-rapl:0:0/energy_uj");
        machine.write("sys/class/powercap/intel-rapl:0:0/energy_uj/in", "the way of the file");
        let zones = meter_zones(machine.root(), &mut Gaps::default());
        let seen: Vec<_> = zones.iter().map(|zone| (&*zone.name, zone.unreadable.is_some())).collect();
        assert_eq!(seen, [("package-0", false), ("dram", true)]);
    }

    #[test]
    fn a_counter_that_wraps_keeps_counting() {
        let machine = FakeMachine::intel_server(1);
        package(&machine, 0, 900, 1_000);
        let mut rapl = Rapl::open(machine.root()).unwrap();
        for (now, used) in [(950, 50), (30, 130), (30, 130), (40, 140)] {
            machine.write("sys/class/powercap/intel-rapl:0/energy_uj", &format!("{now}\n"));
            assert_eq!(rapl.read(), Some(Microjoules(used)), "at {now}");
        }
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_missing_not_zero() {
        let machine = FakeMachine::intel_server(1);
        package(&machine, 0, 900, 1_000);
        let mut rapl = Rapl::open(machine.root()).unwrap();
        machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "lots\n");
        assert_eq!(rapl.read(), None);
        machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "1000\n");
        assert_eq!(rapl.read(), Some(Microjoules(100)));
        machine.remove("sys/class/powercap/intel-rapl:0/energy_uj");
        assert!(Rapl::open(machine.root()).unwrap_err().contains("energy_uj"));
        machine.remove("sys/class/powercap");
        assert!(Rapl::open(machine.root()).unwrap_err().contains("no RAPL meter"));
    }
}
