//! The performance counters that the kernel's perf lists.
//!
//! Each folder of `sys/bus/event_source/devices` is one unit. The processor's own counters (cycles,
//! stalls) are `cpu` on x86, `cpu_core` and `cpu_atom` on hybrids, `armv8_...` on Arm; a virtual
//! machine rarely has any. `power` is RAPL by another road; on Intel, `cstate_core` and
//! `cstate_pkg` count the sleep that the hardware really took. All are discovered by name; there is
//! no table of models here.

use crate::root::{Gaps, Root};
use machine::CpuList;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterUnit {
    pub name: String,
    /// The CPUs that read it, for a unit that many CPUs share.
    pub read_on: Option<CpuList>,
    /// The events that it names, without their `.unit` and `.scale`.
    pub events: Vec<String>,
}

/// All units, in order of name.
pub fn counter_units(root: &Root, gaps: &mut Gaps) -> Vec<CounterUnit> {
    const FOLDER: &str = "sys/bus/event_source/devices";
    let mut units = Vec::new();
    for name in gaps.names(root, FOLDER) {
        let folder = format!("{FOLDER}/{name}");
        let mut events = gaps.names(root, &format!("{folder}/events"));
        events.retain(|event| !event.contains('.'));
        let read_on = gaps.text(root, &format!("{folder}/cpumask"));
        let read_on = read_on
            .and_then(|_| gaps.parse(root, &format!("{folder}/cpumask"), "a list of CPUs such as 0-3,8"));
        units.push(CounterUnit { name, read_on, events });
    }
    units
}

impl CounterUnit {
    /// True for the processor's own counters: cycles, instructions, stalls.
    pub fn counts_cycles(&self) -> bool {
        let arm = ["armv8", "armv9", "apple_", "riscv-pmu"];
        ["cpu", "cpu_core", "cpu_atom"].contains(&self.name.as_str())
            || arm.iter().any(|begins| self.name.starts_with(begins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn units_are_discovered_with_their_events() {
        let machine = FakeMachine::intel_server(1);
        let folder = "sys/bus/event_source/devices";
        machine.write(&format!("{folder}/power/cpumask"), "0,4\n");
        machine.write(&format!("{folder}/power/events/energy-pkg"), "event=0x02\n");
        machine.write(&format!("{folder}/power/events/energy-pkg.unit"), "Joules\n");
        machine.write(&format!("{folder}/cpu/type"), "4\n");
        machine.write(&format!("{folder}/msr/cpumask"), "many\n");
        let mut gaps = Gaps::default();
        let units = counter_units(machine.root(), &mut gaps);
        let names: Vec<_> = units.iter().map(|unit| (unit.name.as_str(), unit.counts_cycles())).collect();
        assert_eq!(names, [("cpu", true), ("msr", false), ("power", false)]);
        assert_eq!((units[2].events.as_slice(), gaps.0.len()), (["energy-pkg".to_owned()].as_slice(), 1));
    }
}
