//! A running store's status: the one snapshot behind `stats roost`, the Prometheus page,
//! `roost top`, the live web page and the recorded run.
//!
//! Counters and times are cumulative since the start, so that two snapshots give any rate between
//! them and a lost one loses nothing.

use machine::{CpuId, Duration, EnergyReading, IdleLimit, Instant, Rate, WorkerId};
use serde::{Deserialize, Serialize};

/// The whole server at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub uptime: Duration,
    /// The policy in force: `peafowl`, `all-awake` or `carb`.
    pub policy: String,
    /// One entry per worker, in order of number.
    pub workers: Vec<WorkerStatus>,
    /// One entry per CPU that the server runs on.
    pub cpus: Vec<CpuStatus>,
    pub transfers: TransferStatus,
    pub requests: u64,
    pub connections: u32,
    pub items: u64,
    /// Bytes charged to `--memory-limit` now: segments, index, connection buffers.
    pub memory_used: u64,
    pub memory_limit: u64,
    /// How long before this status the figures of `cpus` and `energy` were read. `stats` answers
    /// from the last reading.
    pub meters_read: Duration,
    /// Energy since the start, with its source.
    pub energy: Option<EnergyReading>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub worker: WorkerId,
    /// The CPU it is pinned to.
    pub cpu: CpuId,
    /// Serving, or emptied so that its CPU may sleep.
    pub active: bool,
    /// Requests per second that its connections send.
    pub load: Rate,
    /// Its capacity by the requests that it served last, per second; under the paper's rule the
    /// highest load of its own connections that was seen.
    pub limit: Option<Rate>,
    /// Connections served here that are at home here.
    pub residents: u32,
    /// Connections served here that are at home elsewhere.
    pub guests: u32,
    pub requests: u64,
    /// Turns that it took for other workers.
    #[serde(default)]
    pub stolen: u64,
    /// The kernel lets it ask many sockets by one call.
    #[serde(default)]
    pub io_uring: bool,
    pub busy: Duration,
    pub awake: Duration,
    /// 99th percentile from ready to replied, inside the server, over the last report periods.
    pub tail: Option<Duration>,
    /// Connections that moved here while the worker was awake, and how long that took.
    #[serde(default)]
    pub arrivals: ArrivalStatus,
}

/// Moves to one worker while it was awake: from leaving the other's epoll set to the first read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArrivalStatus {
    pub count: u64,
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    pub max: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    pub cpu: CpuId,
    /// The idle limit that Roost asked for.
    pub limit: IdleLimit,
    /// Whether the kernel took it; `None` where nothing was asked.
    pub in_force: Option<bool>,
    /// Time in each idle state by the state's name, as cpuidle counts it (requested, not achieved).
    pub residency: Vec<(String, Duration)>,
    pub busy: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransferStatus {
    /// Because the scheduler ordered it: to empty a worker, or to relieve a lasting imbalance.
    pub ordered: u64,
    /// Back home, because a worker was overloaded.
    pub send_home: u64,
    /// Moves to a worker that was awake.
    #[serde(default)]
    pub to_awake: u64,
    /// Moves to a worker that slept and had to be woken.
    #[serde(default)]
    pub to_sleeper: u64,
    /// From leaving one epoll set to the first read by the other, which was awake: median.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    pub max: Option<Duration>,
    /// Median where the other worker slept and had to be woken.
    pub sleeper_p50: Option<Duration>,
    /// 99th percentile where the other worker slept and had to be woken.
    pub sleeper_p99: Option<Duration>,
    /// Moves of either kind that took at most as long as each bound, by rising bound.
    #[serde(default)]
    pub histogram: Vec<(Duration, u64)>,
    /// Time that all moves took together.
    #[serde(default)]
    pub total: Duration,
    /// When a guest was last sent home, on the system's monotonic clock.
    pub last_sent_home: Option<Instant>,
    /// The last bursts, oldest first: from the first guest sent home until the last worker so woken
    /// had answered.
    #[serde(default)]
    pub scale_ups: Vec<Duration>,
    /// For each of these, when the first guest was sent home, on the system's monotonic clock.
    #[serde(default)]
    pub scale_ups_began: Vec<Instant>,
}
