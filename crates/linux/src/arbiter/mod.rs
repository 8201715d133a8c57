//! The arbiter combines the requests of several askers for one knob, in the process that holds the
//! knob.
//!
//! The kernel has one slot for all of user space. Two programs that write the idle limit or the
//! clock of one CPU, or that move other tasks, undo each other. So one process of a machine is the
//! arbiter (it has the [`ArbiterLock`]), and controllers, services and leases ask there. `laws.rs` has the
//! rules of combination and their reasons.
//!
//! | knob | type | locks below `run/roost` | request | combination |
//! |---|---|---|---|---|
//! | how deeply a CPU sleeps | [`IdleLimits`] | `cpuN.lock` | an [`IdleLimit`] | the least latency |
//! | how fast a CPU runs | [`ClockLimits`] | `cpuN.clock.lock` | a [`FrequencyLimit`] | the fastest |
//! | the clock of a socket's uncore | [`ClockLimits`] | `cpuN.uncore.lock` | the same | the fastest |
//! | which CPUs are needed | [`ActiveCpus`] | `arbiter.lock` | a [`Claim`] | the union |
//!
//! ```text
//!   controllers, services ----+
//!                             +-- Asker --> Arbiter --> laws --+--> IdleControl, FrequencyControl -+
//!   leases (other processes) -+                                +--> CpuIsolation, Hotplug ---------+--> journal
//! ```
//!
//! *Active* CPUs are those that a service needs of the machine. Its own confinement (a cpuset, an
//! affinity mask) is separate. Several services share a change that acts on a CPU for all tasks, so
//! a service asks here before it parks a CPU. No other slice, work queue or interrupt leaves a CPU
//! that any claim has active (`cpuset::isolation`), and a floor under a CPU's sleep yields to
//! claims that have it active.
//!
//! Properties:
//! - The state in force combines all requests with the administrator's own settings. Withdrawing a
//!   request restores the combination of the rest, never a constant. A CPU without requests is as
//!   it was before this process.
//! - A refused request counts as not made: it stands in the way of no other.
//! - A second arbiter is refused with the name of the first. The arbiter waits for a program that
//!   limits CPUs alone and yields them to an arbiter (`IdleOptions::yields`): the CPUs are
//!   *pending* until that program releases them.

mod active;
mod arbiter_lock;
mod clock;
mod connection;
mod idle;
mod laws;
mod per_cpu;
pub mod request;
mod window;

pub use active::{ActiveCpus, Needed};
pub use arbiter_lock::ArbiterLock;
pub(crate) use arbiter_lock::{YIELDS, yields};
use clock::UNCORE;
pub use clock::{ClockLimits, ClockMeans};
pub use connection::{Connection, Doorway};
pub use idle::IdleLimits;
pub use laws::Claim;
pub use per_cpu::{Knob, Shared, Taken};
pub use window::IdleWindow;

use crate::root::Root;
use machine::{CpuList, FrequencyLimit, IdleLimit};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

/// All knobs of a machine, for the parts of this process. Clones of this handle share one state.
#[derive(Clone, Debug)]
pub struct Arbiter {
    pub idle: IdleLimits,
    pub clocks: ClockLimits,
    /// The uncore of sockets, by their CPUs.
    pub uncore: ClockLimits,
    pub active: ActiveCpus,
}

impl Arbiter {
    /// Takes nothing: the first knob takes the lock.
    pub fn new(root: &Root, name: &str) -> Self {
        let lock = ArbiterLock::new(root, name);
        Self {
            idle: IdleLimits::new(lock.clone()),
            clocks: ClockLimits::new(lock.clone()),
            uncore: ClockLimits::with_means(lock.clone(), UNCORE),
            active: ActiveCpus::new(lock),
        }
    }

    /// Takes CPUs that their holder has released, and parks CPUs. To be called now and then.
    pub fn look_after(&self) {
        self.idle.look_after();
        self.active.look_after();
    }

    /// True while CPUs are pending. [`Self::look_after`] should then be called again soon.
    pub fn is_waiting(&self) -> bool {
        self.idle.is_waiting()
    }

    /// Withdraws all requests of `asker`.
    pub fn withdraw(&self, asker: &Asker) {
        self.active.withdraw(asker.clone());
        self.idle.withdraw(asker.clone());
        self.clocks.withdraw(asker.clone());
        self.uncore.withdraw(asker.clone());
    }

    /// All requests, each with the part or process that made it.
    pub fn asked(&self) -> Vec<Asked> {
        let mut all = self.active.asked();
        all.extend(self.idle.asked());
        all.extend(self.clocks.asked());
        all.extend(self.uncore.asked().into_iter().map(of_uncore));
        all
    }

    /// Takes the notices since the last call.
    pub fn drain_notices(&self) -> Vec<String> {
        let mut notices = self.active.drain_notices();
        notices.extend(self.idle.drain_notices());
        notices.extend(self.clocks.drain_notices());
        notices.extend(self.uncore.drain_notices());
        notices
    }
}

/// A part of this process, or another process through its lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asker {
    /// The number of its lease; 0 stands for this process itself.
    pub lease: u64,
    pub process: u32,
    pub name: String,
}

impl From<&str> for Asker {
    fn from(part: &str) -> Self {
        Self { lease: 0, process: std::process::id(), name: part.to_owned() }
    }
}

impl From<&String> for Asker {
    fn from(part: &String) -> Self {
        part.as_str().into()
    }
}

/// A request as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub cpus: CpuList,
    /// The name of the part, or the name that the other process gave.
    pub asker: String,
    pub process: u32,
    pub wish: Wish,
    /// The time of the request in seconds of the Unix clock.
    pub since_unix_s: u64,
    /// The combination of all requests; `None` while the CPU is pending.
    pub together: Option<Wish>,
}

/// The content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Idle(IdleLimit),
    Clock(FrequencyLimit),
    /// The clock of the uncore that these CPUs share.
    Uncore(FrequencyLimit),
    /// The asker needs these CPUs.
    Active,
    /// The asker has left these CPUs, and other tasks shall leave them.
    Parked,
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(IdleLimit::None) => f.write_str("no idle limit"),
            Self::Idle(IdleLimit::ExitLatency(latency)) => write!(f, "exit latency <= {latency}"),
            Self::Idle(IdleLimit::Deepest) => f.write_str("the deepest state"),
            Self::Clock(FrequencyLimit::None) => f.write_str("a free clock"),
            Self::Clock(FrequencyLimit::AtMost(clock)) => write!(f, "at most {clock}"),
            Self::Clock(FrequencyLimit::Exactly(clock)) => write!(f, "{clock}"),
            Self::Uncore(limit) => write!(f, "{} of the uncore", Self::Clock(*limit)),
            Self::Active => f.write_str("active"),
            Self::Parked => f.write_str("parked"),
        }
    }
}

/// A request for a clock, which is the uncore's.
fn of_uncore(asked: Asked) -> Asked {
    let uncore = |wish| match wish {
        Wish::Clock(limit) => Wish::Uncore(limit),
        other => other,
    };
    Asked { wish: uncore(asked.wish), together: asked.together.map(uncore), ..asked }
}

/// Merges requests that differ only in their CPUs and times.
fn grouped(all: impl Iterator<Item = Asked>) -> Vec<Asked> {
    let mut groups: Vec<Asked> = Vec::new();
    for asked in all {
        let is_alike = |group: &&mut Asked| {
            (&group.asker, group.process, group.wish, group.together)
                == (&asked.asker, asked.process, asked.wish, asked.together)
        };
        match groups.iter_mut().find(is_alike) {
            Some(group) => {
                group.cpus.0.extend(asked.cpus.0);
                group.since_unix_s = group.since_unix_s.min(asked.since_unix_s);
            }
            None => groups.push(asked),
        }
    }
    groups
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
