//! The input of a policy from its driver. One [`Reading`] holds the measurements of one instant; a
//! missing measurement is `None`.

use crate::{CpuId, Duration, EnergySource, Kilohertz, Microjoules, Rate, Ratio, WorkerId};
use serde::{Deserialize, Serialize};

/// All that was seen at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// One entry per worker of the store, in order of number.
    pub workers: Vec<WorkerReading>,
    /// One entry per CPU, in order of number.
    pub cpus: Vec<CpuReading>,
    pub service: ServiceReading,
    pub energy: Option<EnergyReading>,
    /// The fastest present clock of the sockets' uncore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncore: Option<Kilohertz>,
}

/// One worker, as it reports itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerReading {
    pub worker: WorkerId,
    pub connections: u32,
    /// Of those, the ones at home here.
    pub residents: u32,
    /// The load of its connections together, in the policy's unit: requests per second, or seconds
    /// of busy time per second.
    pub load: Rate,
    /// The same, over its resident connections.
    pub resident_load: Rate,
    /// The highest load that is acceptable, in the same unit.
    pub limit: Option<Rate>,
    /// Requests per second, where `load` is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The largest load of any one connection here.
    pub heaviest: Rate,
    /// Share of the last report period in which it was working.
    pub busy: Ratio,
    /// 99th percentile of the time from ready to replied inside the server, where enough requests
    /// were seen.
    pub tail: Option<Duration>,
}

impl WorkerReading {
    /// Requests per second, whatever the policy counts.
    pub fn requests_per_second(&self) -> Rate {
        self.rate.unwrap_or(self.load)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuReading {
    pub cpu: CpuId,
    /// Share of the last period that it was not idle.
    pub busy: Option<Ratio>,
    /// Share of the last period spent in each idle state, in the table's order.
    pub residency: Option<Vec<Ratio>>,
    /// Share of the sleeps of the last period that ended before their state's target residency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub premature: Option<Ratio>,
    /// Instructions per second of the time that it was not idle; missing where nothing counts them,
    /// and of a CPU that was idle, which is not woken to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Rate>,
    /// Its mean clock over the time that it was not idle, as counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Kilohertz>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceReading {
    pub rate: Option<Rate>,
    pub mean: Option<Duration>,
    /// 95th percentile of the response time.
    pub p95: Option<Duration>,
    /// 99th percentile of the response time.
    pub p99: Option<Duration>,
    /// The quantile of the response time that the service has a goal for, where enough requests
    /// were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Duration>,
}

/// Energy used since the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnergyReading {
    pub used: Microjoules,
    pub source: EnergySource,
}
