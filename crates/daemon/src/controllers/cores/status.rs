//! The status of a service.

use super::Governed;
use linux::{ConfineActuator, Confiner, FrequencyActuator};
use machine::{CpuId, CpuList, Duration, FrequencyLimit, Goal, Kilohertz, ServiceReading};
use policy::governing::{FrequencyMode, Mode, UncoreMode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The status of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub name: String,
    pub command: String,
    pub processes: usize,
    pub policy: String,
    pub goal: Option<Goal>,
    pub mode: Mode,
    pub cpus: CpuList,
    pub allowed: CpuList,
    /// Cores awake, and cores there are.
    pub cores: (u16, u16),
    pub service: ServiceReading,
    /// The tail by number of cores at the present load, as far as it was seen.
    pub curve: Vec<(u16, Duration)>,
    /// The confiner that keeps it there; `None` in a dry run.
    pub actuator: Option<String>,
    /// The means of observing its requests.
    pub seen_by: String,
    pub epochs: u64,
    /// Epochs in a row in which the goal was missed.
    pub missed: u32,
    #[serde(default)]
    pub frequency: FrequencyMode,
    /// The named means of setting them; `None` if the configuration names none.
    pub frequency_actuator: Option<FrequencyActuator>,
    /// The caps on the clocks of its CPUs; one that is not here is free.
    #[serde(default)]
    pub clocks: BTreeMap<CpuId, FrequencyLimit>,
    #[serde(default)]
    pub uncore: UncoreStatus,
}

/// The uncore of a service's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UncoreStatus {
    pub mode: UncoreMode,
    pub limit: FrequencyLimit,
    /// The fastest present clock, where the hardware tells it and it is to be chosen.
    pub current: Option<Kilohertz>,
}

impl Default for UncoreStatus {
    fn default() -> Self {
        Self { mode: UncoreMode::Stock, limit: FrequencyLimit::None, current: None }
    }
}

/// The last change of a service's CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastChange {
    /// In which epoch of the service.
    pub epoch: u64,
    pub why: String,
}

impl Governed {
    pub fn status(&self) -> Status {
        let actuator = self.confiner.as_ref().map(Confiner::actuator);
        Status {
            name: self.config.name.clone(),
            command: self.service.name.clone(),
            processes: self.service.processes.len(),
            policy: self.config.policy_name(),
            goal: self.policy.goal(),
            mode: self.policy.mode().clone(),
            cpus: self.cpus.clone(),
            allowed: CpuList(self.last_usage.iter().map(|usage| usage.cpu).collect()),
            cores: self.policy.cores(),
            service: self.last.clone(),
            curve: self.policy.curve(),
            actuator: actuator.map(|actuator| by_what(actuator, self.config.hotplug)),
            seen_by: self.telemetry.to_string(),
            epochs: self.epochs,
            missed: self.missed,
            frequency: self.config.frequency,
            frequency_actuator: self.means.actuator,
            clocks: (self.limits_of_clocks.iter())
                .filter(|(_, limit)| **limit != FrequencyLimit::None)
                .map(|(&cpu, &limit)| (cpu, limit))
                .collect(),
            uncore: UncoreStatus {
                mode: self.config.uncore,
                limit: self.limit_of_uncore,
                current: self.last_uncore,
            },
        }
    }
}

fn by_what(actuator: ConfineActuator, hotplug: bool) -> String {
    if hotplug { format!("{actuator}, and hotplug of parked CPUs") } else { actuator.to_string() }
}
