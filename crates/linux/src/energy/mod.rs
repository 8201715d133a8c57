//! Energy of some CPUs since the run began: measured where there is a meter, else modelled, always
//! labelled.
//!
//! RAPL ([`EnergyMeter::open`] prefers it) measures whole sockets with their memory, including
//! everything else that runs there. The model ([`EnergyMeter::modelled`]) charges only the CPUs
//! named: busy time at the active power of a [`PowerModel`], each idle state at the power of its
//! state in the table, polling as active, and a sleep in progress as the shallowest halt until it
//! ends. It leaves out memory, uncore, and everything else outside the cores; use it to compare two
//! runs on one machine.
//!
//! Invariants: the figure never falls; a reading that fails is `None`; every reading carries
//! its source.

mod hwmon;
mod rapl;

pub use hwmon::PowerSensor;
pub use rapl::{MeterZone, meter_zones};

use crate::root::Root;
use crate::system::usage::{CpuUsage, UsageMeter};
use machine::{
    CpuId, CpuList, CstateKind, CstateTable, EnergyReading, EnergySource, Instant, Microjoules, PowerModel,
    Processor,
};
use rapl::Rapl;
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct EnergyMeter {
    means: Means,
    last: Microjoules,
}

#[derive(Debug)]
enum Means {
    Rapl(Rapl),
    Model { model: PowerModel, meter: UsageMeter, why: String },
}

impl EnergyMeter {
    /// RAPL if this user can read it, otherwise the model of this processor, for `cpus`.
    pub fn open(root: &Root, cpus: &CpuList, now: Instant) -> Self {
        match Rapl::open(root) {
            Ok(rapl) => Self { means: Means::Rapl(rapl), last: Microjoules(0) },
            Err(why) => Self::with_model(root, cpus, PowerModel::for_processor(&processor(root)), now, why),
        }
    }

    /// The model, whether there is a meter or not: for a part of a socket, or for a named machine's
    /// table.
    pub fn modelled(root: &Root, cpus: &CpuList, model: PowerModel, now: Instant) -> Self {
        Self::with_model(root, cpus, model, now, "as asked".to_owned())
    }

    fn with_model(root: &Root, cpus: &CpuList, model: PowerModel, now: Instant, why: String) -> Self {
        let meter = UsageMeter::start(root, cpus, now);
        Self { means: Means::Model { model, meter, why }, last: Microjoules(0) }
    }

    /// Energy since this was made. Call it at least once a minute: RAPL's counters wrap in as
    /// little as four.
    pub fn read(&mut self, now: Instant) -> Option<EnergyReading> {
        let used = match &mut self.means {
            Means::Rapl(rapl) => rapl.read()?,
            Means::Model { model, meter, .. } => {
                let usage = meter.read(now);
                let tables: BTreeMap<CpuId, &CstateTable> = meter.tables().collect();
                usage
                    .iter()
                    .map(|usage| charge(model, usage, tables[&usage.cpu]))
                    .try_fold(Microjoules(0), |sum, cpu| Some(sum + cpu?))?
            }
        };
        // A sleep in progress may turn out deeper, so cheaper, than it was charged.
        self.last = self.last.max(used);
        Some(EnergyReading { used: self.last, source: self.source() })
    }

    /// The source of its figures.
    pub fn source(&self) -> EnergySource {
        match &self.means {
            Means::Rapl(rapl) => EnergySource::Measured(rapl.name()),
            Means::Model { model, .. } => EnergySource::Modelled(model.name.clone()),
        }
    }

    /// True if a meter measures it.
    pub fn is_measured(&self) -> bool {
        matches!(self.means, Means::Rapl(_))
    }

    /// For people, a line each: the source and the reason; for a model, the power that each idle
    /// state of this machine is charged with.
    pub fn describe(&self) -> Vec<String> {
        let Means::Model { model, meter, why } = &self.means else {
            return vec![format!("energy is {}: whole sockets, whatever runs on them", self.source())];
        };
        let mut lines = vec![
            format!("energy is {}: {why}", self.source()),
            format!("  busy is charged {:.2} W a CPU", model.active.as_watts()),
        ];
        // CPUs of one kind have one table; a hybrid machine has several.
        let mut tables: Vec<(CpuList, &CstateTable)> = Vec::new();
        for (cpu, table) in meter.tables() {
            match tables.iter_mut().find(|(_, known)| *known == table) {
                Some((cpus, _)) => drop(cpus.0.insert(cpu)),
                None => tables.push((CpuList([cpu].into()), table)),
            }
        }
        for (cpus, table) in tables {
            if table.0.is_empty() {
                let halt = model.idle.first().map_or("busy", |state| &state.name);
                lines.push(format!("  CPU {cpus}: no cpuidle, all idleness is charged as {halt}"));
            }
            for state in &table.0 {
                let charged = match (model.charged_as(state), state.kind) {
                    (Some(charged), CstateKind::Halting) => charged.name.as_str(),
                    _ => "busy",
                };
                let (name, watts) = (&state.name, model.idle_power(state).as_watts());
                let latency = state.exit_latency;
                lines.push(format!(
                    "  CPU {cpus}: {name} (exit {latency}) is charged as {charged}, {watts:.2} W"
                ));
            }
        }
        lines
    }
}

/// The energy of one CPU; `None` if its busy time is not known.
fn charge(model: &PowerModel, usage: &CpuUsage, table: &CstateTable) -> Option<Microjoules> {
    let busy = usage.busy?;
    let halt = model.idle.first().and_then(|state| state.power).unwrap_or(model.active);
    let unknown = match &usage.residency {
        Some(_) => usage.asleep,
        None => usage.elapsed - busy,
    };
    let known = usage.residency.as_deref().unwrap_or_default();
    Some(model.energy(busy, table, known) + halt.over(unknown))
}

/// The processor's name; empty where it has none.
pub fn processor(root: &Root) -> Processor {
    let text = root.text("proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    Processor {
        vendor: field("vendor_id").unwrap_or_default(),
        family: field("cpu family").and_then(|family| family.parse().ok()),
        model_name: field("model name").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    fn at(secs: u64) -> Instant {
        Instant::from_nanos(secs * 1_000_000_000)
    }

    fn time(machine: &FakeMachine, state: u8, secs: u64) {
        let micros = format!("{}\n", secs * 1_000_000);
        machine.write(&format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}/time"), &micros);
    }

    fn used(meter: &mut EnergyMeter, secs: u64) -> u64 {
        meter.read(at(secs)).unwrap().used.0
    }

    #[test]
    fn each_second_is_charged_by_what_the_core_did() {
        let machine = FakeMachine::intel_server(1);
        machine.write("proc/stat", "cpu0 0 0 0 0 0\n");
        machine.write(
            "proc/cpuinfo",
            "vendor_id : GenuineIntel\nmodel name : Intel(R) Xeon(R) Silver 4116 CPU\n",
        );
        let mut meter = EnergyMeter::open(machine.root(), &"0".parse().unwrap(), at(0));
        assert_eq!(meter.source(), EnergySource::Modelled("xeon-silver-4116".into()));
        // 1 s each of polling, C1, C1E, C6, and one busy: 5.7 + 2.0 + 1.2 + 0.1 + 5.7.
        (0..4).for_each(|state| time(&machine, state, 1));
        assert_eq!(used(&mut meter, 5), 14_700_000);
    }

    #[test]
    fn a_sleep_in_progress_costs_at_most_a_halt_and_the_sum_never_falls() {
        let machine = FakeMachine::intel_server(1);
        machine.write("proc/stat", "cpu0 0 0 0 0 0\n");
        let model = PowerModel::by_name("xeon-silver-4116").unwrap();
        let mut meter = EnergyMeter::modelled(machine.root(), &"0".parse().unwrap(), model, at(0));
        machine.write("proc/stat", "cpu0 0 0 0 1000 0\n");
        assert_eq!(used(&mut meter, 10), 20_000_000);
        // The sleep was C6: 1 J. The figure waits until the truth has caught up.
        time(&machine, 3, 10);
        assert_eq!(used(&mut meter, 10), 20_000_000);
        assert_eq!(used(&mut meter, 20), 58_000_000);
    }

    #[test]
    fn a_machine_without_cpuidle_is_charged_busy_or_halted() {
        let machine = FakeMachine::intel_server(1);
        machine.remove("sys/devices/system/cpu/cpu0/cpuidle");
        machine.write("proc/stat", "cpu0 0 0 0 0 0\n");
        let model = PowerModel::by_name("xeon-silver-4116").unwrap();
        let mut meter = EnergyMeter::modelled(machine.root(), &"0".parse().unwrap(), model, at(0));
        machine.write("proc/stat", "cpu0 0 0 0 400 0\n");
        assert_eq!(used(&mut meter, 5), 5_700_000 + 8_000_000);
        assert!(meter.describe().join("\n").contains("no cpuidle"));
        // It is held open, so removing it would take nothing away.
        machine.write("proc/stat", "");
        assert_eq!(meter.read(at(6)), None, "missing, not zero");
    }

    #[test]
    fn the_mapping_is_printed() {
        let machine = FakeMachine::virtual_machine(4);
        machine
            .write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel name\t: AMD EPYC\n");
        let lines = EnergyMeter::open(machine.root(), &"0-3".parse().unwrap(), at(0)).describe();
        assert!(
            lines[0].contains("modelled") && lines[0].contains("ESTIMATE") && lines[0].contains("powercap")
        );
        assert!(lines[2].contains("CPU 0-3: POLL") && lines[2].contains("busy, 2.30 W"), "{lines:?}");
        assert!(lines[3].contains("haltpoll idle") && lines[3].contains("C1, 0.80 W"), "{lines:?}");
    }

    #[test]
    fn a_meter_is_preferred_and_named() {
        let machine = FakeMachine::intel_server(1);
        rapl::tests::package(&machine, 0, 1_000, 10_000);
        let mut meter = EnergyMeter::open(machine.root(), &"0".parse().unwrap(), at(0));
        machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "1700\n");
        let reading = meter.read(at(1)).unwrap();
        assert_eq!(reading.used, Microjoules(700));
        assert!(matches!(reading.source, EnergySource::Measured(name) if name.contains("package-0")));
    }
}
