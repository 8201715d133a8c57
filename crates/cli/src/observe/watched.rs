//! The facts about the watched machine: its idle states, and its power.

use crate::exit::usage;
use ::observe::probe::Probe;
use ::observe::sleep::{Known, SleepPattern};
use ::observe::verdict::PowerEvidence;
use anyhow::Result;
use machine::{CpuId, Cstate, CstateIndex, CstateKind, CstateTable, Duration, Platform, PowerModel};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A machine as an observation needs it.
#[derive(Debug, Default)]
pub struct Watched {
    /// Its name, as a report prints it; `None` if nothing is known of it.
    pub name: Option<String>,
    /// Idle states of CPUs that differ from the rest.
    tables: BTreeMap<CpuId, CstateTable>,
    /// Idle states of the others.
    table: CstateTable,
    /// The measured latencies and the forbidden states.
    pub known: Known,
    /// The scheduler's part of the measured latencies, if it was measured.
    pub scheduling: Option<Duration>,
    pub power: PowerEvidence,
}

impl Watched {
    /// The machine called so; `here` is this one.
    pub fn named(name: &str) -> Result<Self> {
        if name == HERE { Ok(Self::here()) } else { Self::preset(name) }
    }

    /// This machine, as far as it can be read without permission.
    fn here() -> Self {
        let root = linux::Root::system();
        let cpus = linux::online_cpus(&root).unwrap_or_default();
        let tables: BTreeMap<CpuId, CstateTable> =
            cpus.0.iter().filter_map(|&cpu| Some((cpu, linux::idle_table(&root, cpu).ok()?))).collect();
        let mut known = Known::default();
        for &cpu in &cpus.0 {
            let counts = linux::state_counts(&root, cpu).unwrap_or_default();
            let forbidden = (0u8..).zip(&counts).filter(|(_, counts)| counts.disabled);
            known.disabled.extend(forbidden.map(|(state, _)| (cpu, CstateIndex(state))));
        }
        let siblings = linux::topology(&root)
            .ok()
            .zip(cpus.0.first())
            .map(|(topology, &cpu)| topology.siblings(cpu).count());
        let power = PowerEvidence {
            model: Some(PowerModel::for_processor(&linux::processor(&root))),
            threads_per_core: u16::try_from(siblings.unwrap_or(1)).unwrap_or(1),
            measured: None,
        };
        Self {
            name: Some("This machine".to_owned()),
            tables,
            table: CstateTable::default(),
            known,
            scheduling: None,
            power,
        }
    }

    fn preset(name: &str) -> Result<Self> {
        let platform = Platform::by_name(name).ok_or_else(|| unknown(name))?;
        let power = PowerEvidence {
            model: Some(platform.power_model()),
            threads_per_core: platform.threads_per_core,
            measured: None,
        };
        let table = as_linux_numbers(platform.cstates);
        Ok(Self { name: Some(platform.name), table, power, ..Self::default() })
    }

    /// Takes wake latencies from a file that `roost doctor --json --probe` has printed on this
    /// machine.
    pub fn measured(&mut self, file: &Path) -> Result<()> {
        /// The needed part of the document.
        #[derive(Deserialize)]
        struct Report {
            probe: Option<Probe>,
        }
        const FIX: &str = "hint: on the machine that is observed, with nothing else running: \
                           roost doctor --json --probe > FILE";
        let wrong = |why: String| usage(format!("--wake-latency {}: {why}\n\n{FIX}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|cause| wrong(cause.to_string()))?;
        let report: Report = serde_json::from_str(&text)
            .map_err(|cause| wrong(format!("it is no JSON of `roost doctor` ({cause})")))?;
        let probe = report.probe.ok_or_else(|| wrong("it was written without --probe".to_owned()))?;
        let table = self.table(probe.sleeper);
        if table.0.is_empty() {
            return Err(usage(format!(
                "--wake-latency {}: the idle states of the machine that is observed are not \
                 known, so none can be given its latency\n\n\
                 hint: leave it out, or, for a recording, name its machine with --machine",
                file.display()
            )));
        }
        self.scheduling = probe.scheduling(&table);
        self.known.wake = probe.wake_latencies(&table).map_err(|why| wrong(why.to_string()))?;
        Ok(())
    }

    /// The idle states of a CPU; empty if they are not known.
    pub fn table(&self, cpu: CpuId) -> CstateTable {
        self.tables.get(&cpu).unwrap_or(&self.table).clone()
    }

    /// Remarks on how this machine fits the recorded one.
    pub fn remarks(&self, pattern: &SleepPattern) -> Vec<String> {
        let Some(name) = &self.name else { return Vec::new() };
        if self.table.0.is_empty() && self.tables.is_empty() {
            return vec![format!("{name} has no cpuidle, so its idle states are as unknown as before.")];
        }
        let beyond = pattern.cpus.iter().filter_map(|cpu| {
            let known = cpu.table.0.len();
            let deepest = cpu.idle.iter().rposition(|lengths| lengths.count() > 0)?;
            (known > 0 && deepest >= known).then_some((known, deepest))
        });
        match beyond.max_by_key(|(_, deepest)| *deepest) {
            Some((known, deepest)) => vec![format!(
                "{name} has {known} idle states, and the recording a state {deepest}: it is \
                 hardly the machine that was recorded."
            )],
            None => Vec::new(),
        }
    }
}

/// Linux numbers its own spinning state 0 on every architecture but Arm, whose first is the wait
/// for an interrupt.
fn as_linux_numbers(table: CstateTable) -> CstateTable {
    if table.0.first().is_none_or(|state| state.name == "WFI" || state.kind == CstateKind::Polling) {
        return table;
    }
    let poll = Cstate {
        name: "POLL".to_owned(),
        kind: CstateKind::Polling,
        exit_latency: Duration::ZERO,
        true_exit_latency: None,
        entry_latency: None,
        target_residency: Duration::ZERO,
        power: None,
    };
    CstateTable(std::iter::once(poll).chain(table.0).collect())
}

fn unknown(name: &str) -> anyhow::Error {
    let names: Vec<String> = Platform::presets().into_iter().map(|platform| platform.name).collect();
    let likely = names
        .iter()
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    let meant = likely.map_or_else(String::new, |(_, nearest)| format!("did you mean {nearest}? "));
    usage(format!(
        "--machine {name}: no such machine\nhint: {meant}`--machine {HERE}` is this one; the others are {}",
        names.join(", ")
    ))
}

/// A name less alike than this was not meant: xeon-gold-612 and xeon-gold-6126 have 0.99, nosuch
/// and exynos-5422 0.62.
const ALIKE: f64 = 0.8;
/// This machine's name on the command line.
const HERE: &str = "here";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_has_the_numbers_that_linux_gives_its_states() {
        let table = |name: &str| Watched::named(name).unwrap().table(CpuId(0)).0;
        let names: Vec<String> = table("tradeoffs").into_iter().map(|state| state.name).collect();
        assert_eq!(names[..2], ["POLL", "C1"]);
        let arm =
            Platform::presets().into_iter().find(|platform| platform.cstates.0[0].name == "WFI").unwrap();
        assert_eq!(table(&arm.name)[0].name, "WFI");
    }

    #[test]
    fn a_misspelt_machine_is_told_the_nearest() {
        let said = Watched::named("xeon-gold-612").unwrap_err().to_string();
        assert!(said.contains("did you mean xeon-gold-6126?"), "{said}");
        let said = Watched::named("nosuch").unwrap_err().to_string();
        assert!(!said.contains("did you mean") && said.contains("the others are "), "{said}");
    }
}
