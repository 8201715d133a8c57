//! `frames.jsonl`: one moment of a run per line.

use machine::{CpuId, Duration, EnergyReading, IdleLimit, Rate, Ratio, WorkerId};
use serde::{Deserialize, Serialize};

/// One moment of a run: rates and percentiles over the interval since the frame before, counters
/// since the phase's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Name of the phase, as in [`crate::run::Phase::name`].
    pub phase: String,
    #[serde(rename = "at_ns")]
    pub at: Duration,
    /// Requests per second of the load's schedule.
    #[serde(rename = "offered_per_s", alias = "asked_per_s", skip_serializing_if = "Option::is_none")]
    pub offered: Option<Rate>,
    /// Requests per second that were answered.
    #[serde(rename = "achieved_per_s", alias = "reached_per_s", skip_serializing_if = "Option::is_none")]
    pub achieved: Option<Rate>,
    /// Median latency from the intended send time.
    #[serde(rename = "p50_ns", skip_serializing_if = "Option::is_none")]
    pub p50: Option<Duration>,
    #[serde(rename = "p99_ns", skip_serializing_if = "Option::is_none")]
    pub p99: Option<Duration>,
    #[serde(rename = "p999_ns", skip_serializing_if = "Option::is_none")]
    pub p999: Option<Duration>,
    /// One entry per worker, in order of number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerFrame>,
    /// One entry per CPU that the workers run on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuFrame>,
    /// Connections moved between workers since the phase's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<u64>,
    /// Time that workers were active since the phase's start, summed over the workers.
    #[serde(rename = "awake_ns", skip_serializing_if = "Option::is_none")]
    pub awake: Option<Duration>,
    /// Energy since the phase's start, with its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyReading>,
}

impl Frame {
    /// How many workers are active; `None` where the frame holds no worker.
    pub fn workers_awake(&self) -> Option<usize> {
        (!self.workers.is_empty()).then(|| self.workers.iter().filter(|worker| worker.active).count())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerFrame {
    pub worker: WorkerId,
    /// The CPU that it is pinned to.
    pub cpu: CpuId,
    /// Serving, or emptied so that its CPU may sleep.
    pub active: bool,
    /// Requests per second that its connections send.
    #[serde(rename = "load_per_s")]
    pub load: Rate,
    /// Its capacity by the requests that it served last, per second.
    #[serde(rename = "limit_per_s", skip_serializing_if = "Option::is_none")]
    pub limit: Option<Rate>,
    /// Share of the interval in which it was working.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<Ratio>,
    /// Connections served here that are at home here.
    pub residents: u32,
    /// Connections served here that are at home elsewhere.
    pub guests: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuFrame {
    pub cpu: CpuId,
    /// Share of the interval that it was not idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<Ratio>,
    /// Share of the interval in each idle state, shallow to deep, as cpuidle counts it (requested,
    /// not achieved).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residency: Option<Vec<StateShare>>,
    /// The idle limit that Roost asked for.
    pub limit: IdleLimit,
    /// Whether the kernel took it; `None` where nothing was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_force: Option<bool>,
}

/// An idle state's share of some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateShare {
    /// The state by the driver's name.
    pub state: String,
    /// Its share of all time, busy time included.
    pub share: Ratio,
}
