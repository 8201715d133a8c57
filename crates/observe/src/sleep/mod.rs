//! Idle and active periods of CPUs: their lengths, states and wakers.
//!
//! Terms. A CPU is *idle* from the kernel's `cpu_idle` event that names a state until the one for
//! leaving it (4294967295), and *active* in between. The state is the *requested* one: hardware and
//! hypervisors may do less. A *waker* is the event that ended an idle period.
//!
//! Invariants:
//! - The first period of a CPU is not counted, because its beginning was not seen.
//! - A period in progress when a pattern is taken belongs to a later one: `time seen` may lag
//!   `elapsed`.
//! - Patterns of one observation subtract: a live view shows the difference between two.

mod findings;
mod recorder;
mod watch;

pub use findings::{
    CpuSlept, Findings, Known, LatencySource, LengthShare, MeasuredWake, Part, Slept, Slices, StateSlept,
    WakeCost, WakeLatency,
};
pub use recorder::Recorder;
pub use watch::{SleepWatch, Without};

use machine::{CpuId, CstateTable, Duration, LengthHistogram};
use serde::Serialize;
use std::fmt;

/// How the CPUs slept for some time.
#[derive(Clone, Debug, PartialEq)]
pub struct SleepPattern {
    pub elapsed: Duration,
    pub source: SleepSource,
    /// One entry per CPU, in order of number.
    pub cpus: Vec<CpuPattern>,
    /// Events that were lost on the way, so that periods are missing or wrong. Never unreported.
    pub lost: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CpuPattern {
    pub cpu: CpuId,
    /// The kernel's description of its idle states; empty where there is no cpuidle, or a recording
    /// lacks it.
    pub table: CstateTable,
    /// Idle periods by the state that was asked for, by its number; as long as the highest state
    /// seen demands, and at least as long as the table.
    pub idle: Vec<LengthHistogram>,
    pub active: LengthHistogram,
    /// The wakers of the idle periods, where they were watched.
    pub wakers: Option<Wakers>,
}

impl SleepPattern {
    /// The periods since `earlier`, a pattern of the same observation.
    pub fn since(&self, earlier: &Self) -> Self {
        let cpu = |cpu: &CpuPattern| {
            let Some(before) = earlier.cpus.iter().find(|before| before.cpu == cpu.cpu) else {
                return cpu.clone();
            };
            let none = LengthHistogram::default();
            let idle = cpu.idle.iter().enumerate();
            let idle = idle.map(|(state, lengths)| lengths.since(before.idle.get(state).unwrap_or(&none)));
            CpuPattern {
                idle: idle.collect(),
                active: cpu.active.since(&before.active),
                wakers: cpu.wakers.zip(before.wakers).map(|(now, before)| now.since(before)),
                ..cpu.clone()
            }
        };
        Self {
            elapsed: self.elapsed - earlier.elapsed,
            source: self.source.clone(),
            cpus: self.cpus.iter().map(cpu).collect(),
            lost: self.lost.saturating_sub(earlier.lost),
        }
    }
}

impl Wakers {
    fn since(self, earlier: Self) -> Self {
        Self {
            timer: self.timer.saturating_sub(earlier.timer),
            device: self.device.saturating_sub(earlier.device),
            ipi: self.ipi.saturating_sub(earlier.ipi),
            unseen: self.unseen.saturating_sub(earlier.unseen),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wakers {
    pub timer: u64,
    pub device: u64,
    /// Another CPU's interrupt: work was put on this CPU's queue, or a function is to be called
    /// here.
    pub ipi: u64,
    /// Another CPU's mark, seen without an interrupt, or anything else that leaves no trace.
    pub unseen: u64,
}

/// The purpose of an interrupt on an idle CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    Timer,
    Device,
    Ipi,
}

impl Wakers {
    /// One more idle period ended, by `waker` or by nothing that was seen.
    pub fn count(&mut self, waker: Option<Waker>) {
        *match waker {
            Some(Waker::Timer) => &mut self.timer,
            Some(Waker::Device) => &mut self.device,
            Some(Waker::Ipi) => &mut self.ipi,
            None => &mut self.unseen,
        } += 1;
    }

    pub fn add(&mut self, other: &Self) {
        self.timer += other.timer;
        self.device += other.device;
        self.ipi += other.ipi;
        self.unseen += other.unseen;
    }

    /// Idle periods whose end was watched.
    pub fn total(&self) -> u64 {
        self.timer + self.device + self.ipi + self.unseen
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SleepSource {
    /// A program in the kernel counts at each `cpu_idle` event.
    Bpf,
    /// The kernel's events were read one by one.
    PerfRing,
    /// cpuidle's counts alone: residency, no lengths.
    Counts,
    /// A recording of the kernel's events made elsewhere.
    Recording(String),
}

impl fmt::Display for SleepSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bpf => f.write_str("cpu_idle events, counted in the kernel (BPF)"),
            Self::PerfRing => f.write_str("cpu_idle events, read one by one (perf)"),
            Self::Counts => f.write_str("cpuidle's counts (no lengths)"),
            Self::Recording(name) => write!(f, "the recording {name}"),
        }
    }
}
