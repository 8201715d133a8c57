//! The requests of a policy to its driver. Commands are data: they can be logged, compared,
//! replayed and refused.

use crate::{ConnId, CpuId, CpuList, Duration, Kilohertz, WorkerId};
use serde::{Deserialize, Serialize};

/// One act that a policy wants done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// `source` shall hand one of its connections, chosen by `pick`, to `target`.
    MoveConnection {
        source: WorkerId,
        target: WorkerId,
        pick: Pick,
    },
    /// The worker serves no connections from now on: its CPU may sleep deeply once all its workers
    /// are inactive.
    Deactivate(WorkerId),
    Activate(WorkerId),
    /// The CPU's idle states shall be limited so.
    LimitIdle {
        /// The CPU, by the kernel's number.
        cpu: CpuId,
        limit: IdleLimit,
    },
    /// The service shall run on these CPUs and on no others.
    SetActiveCpus(CpuList),
    /// The limits of the CPU's frequency. CPUs of one frequency domain get the fastest of their
    /// requests.
    SetFrequency {
        /// The CPU, by the kernel's number.
        cpu: CpuId,
        limit: FrequencyLimit,
    },
    /// The limit of the uncore's clock on the service's sockets, which get the fastest of their CPUs'
    /// requests.
    SetUncore(FrequencyLimit),
}

/// Which connection a worker shall give away.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The next one served (Peafowl, Algorithm 1), or any if none sends a request for a while.
    NextServed,
    This(ConnId),
}

/// How deep a CPU may sleep, as a bound on exit latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleLimit {
    None,
    /// Only states with an exit latency of at most this. [`Duration::ZERO`] means polling.
    ExitLatency(Duration),
    /// Only the deepest state that is allowed, however short the sleep.
    Deepest,
}

/// How fast a CPU may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrequencyLimit {
    /// No limit of ours: as fast as the machine allows.
    None,
    /// A cap: at most this, and less where the governor finds less enough.
    AtMost(Kilohertz),
    /// A speed: this, whatever the load.
    Exactly(Kilohertz),
}
