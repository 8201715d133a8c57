//! The arbiter: what several ask of one knob, combined in the process that holds it.
//!
//! The kernel has one slot for all of user space: two programs that write the same CPU's idle limit or clock, or that tell all
//! others where to be, undo each other. So one process of a machine has the arbiter (its [`Seat`]), and in it controllers,
//! services and leases ask. `laws.rs` has the rules by which requests combine, and why.
//!
//! | knob | type | locks below `run/roost` | asked | together |
//! |---|---|---|---|---|
//! | how deeply a CPU sleeps | [`IdleLimits`] | `cpuN.lock` | an [`IdleLimit`] | the least latency |
//! | how fast a CPU runs | [`ClockLimits`] | `cpuN.clock.lock` | a [`FrequencyLimit`] | the fastest |
//! | which CPUs are needed | [`ActiveCpus`] | `arbiter.lock` | a [`Claim`] | the union |
//!
//! ```text
//!   controllers, services --- Asker --+
//!   leases (another process) - Asker --+--> Arbiter --> laws --> IdleControl, FrequencyControl, CpuIsolation, Hotplug --> journal
//! ```
//!
//! *Active* is what a service needs of the machine, and not where it is confined: its cpuset or affinity is its own. Several
//! services share what is done to a CPU for all tasks, so what would park one asks here first: no other slice, work queue or
//! interrupt leaves a CPU that any claim has active (`cpuset::isolation`), and a floor under its sleep yields to others that have it
//! active.
//!
//! Properties:
//! - What is in force is the combination of what is asked for and of the administrator's own. Withdrawing a request restores
//!   the combination of the rest, never a constant; a CPU of which nothing is asked is as it was before us.
//! - A request that was refused was not asked: it stands in no other's way.
//! - A second arbiter is refused with the name of the first. A program that limits CPUs alone and would yield them to an
//!   arbiter (`IdleOptions::yields`) is waited for: the CPUs are *pending* until it lets go.

mod active;
mod clock;
mod connection;
mod idle;
mod laws;
mod per_cpu;
pub mod request;
mod seat;
mod window;

pub use active::{ActiveCpus, Needed};
pub use clock::{ClockLimits, ClockMeans};
pub use connection::{Connection, Doorway};
pub use idle::IdleLimits;
pub use laws::Claim;
pub use per_cpu::{Knob, Shared, Taken};
pub use seat::Seat;
pub(crate) use seat::{YIELDS, yields};
pub use window::IdleWindow;

use crate::root::Root;
use machine::{CpuList, FrequencyLimit, IdleLimit};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

/// All knobs of a machine, for the parts of this process. A handle: clones share.
#[derive(Clone, Debug)]
pub struct Arbiter {
    /// How deeply CPUs sleep.
    pub idle: IdleLimits,
    /// How fast CPUs run.
    pub clocks: ClockLimits,
    /// Which CPUs are needed.
    pub active: ActiveCpus,
}

impl Arbiter {
    /// Takes nothing yet: the seat is taken with the first knob.
    pub fn new(root: &Root, name: &str) -> Self {
        let seat = Seat::new(root, name);
        Self {
            idle: IdleLimits::new(seat.clone()),
            clocks: ClockLimits::new(seat.clone()),
            active: ActiveCpus::new(seat),
        }
    }

    /// Takes CPUs that were let go of, and parks what there is to park. To be called now and then.
    pub fn look_after(&self) {
        self.idle.look_after();
        self.active.look_after();
    }

    /// True while CPUs are pending: then [`Self::look_after`] is to be called soon again.
    pub fn is_waiting(&self) -> bool {
        self.idle.is_waiting()
    }

    /// `asker` asks for nothing any more.
    pub fn withdraw(&self, asker: &Asker) {
        self.active.withdraw(asker.clone());
        self.idle.withdraw(asker.clone());
        self.clocks.withdraw(asker.clone());
    }

    /// What is asked, and by which part or process.
    pub fn asked(&self) -> Vec<Asked> {
        let mut all = self.active.asked();
        all.extend(self.idle.asked());
        all.extend(self.clocks.asked());
        all
    }

    /// What there is to say since the last call.
    pub fn drain_notices(&self) -> Vec<String> {
        let mut notices = self.active.drain_notices();
        notices.extend(self.idle.drain_notices());
        notices.extend(self.clocks.drain_notices());
        notices
    }
}

/// A part of this process, or another process through its lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asker {
    /// The number of its lease; 0 is this process itself.
    pub lease: u64,
    /// Its process.
    pub process: u32,
    /// As it is called.
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

/// A request, as `status` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Of which CPUs.
    pub cpus: CpuList,
    /// A part of this process, or another process as it calls itself.
    pub asker: String,
    /// Its process.
    pub process: u32,
    /// For what.
    pub wish: Wish,
    /// Since when, in seconds of the Unix clock.
    pub since_unix_s: u64,
    /// What all ask together; `None` while the CPU is pending.
    pub together: Option<Wish>,
}

/// For what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// So deep a sleep.
    Idle(IdleLimit),
    /// So fast a clock.
    Clock(FrequencyLimit),
    /// They are needed.
    Active,
    /// They were left, and others shall leave them.
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
            Self::Active => f.write_str("active"),
            Self::Parked => f.write_str("parked"),
        }
    }
}

/// What is alike but for its CPUs and the second in which it was asked, once.
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
