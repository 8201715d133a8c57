//! One holder per knob: one process holds it, and others ask that one over its socket.
//!
//! The kernel has one slot for all of user space: two programs that write the same CPU's idle limit or clock, or that tell everybody
//! else where to be, undo each other. Here the process that came first takes the lock and writes; whoever comes second finds the lock taken, and
//! in the lock's file the socket at which its holder listens. What all of them ask is combined (`laws.rs` has the laws and why).
//!
//! | knob | who | lock | asked | together |
//! |---|---|---|---|---|
//! | how deeply a CPU sleeps | [`IdleHolder`] | `cpuN.lock` | an [`IdleLimit`] | the least latency |
//! | how fast a CPU runs | [`ClockHolder`] | `cpuN.clock.lock` | a [`FrequencyLimit`] | the fastest |
//! | which CPUs are needed | [`ActiveCpus`] | `active.lock` | a [`Claim`] | the union |
//!
//! ```text
//!   Holder<Knob>, ActiveCpus
//!     |-- what this process holds --- Desk   (desk.rs)    others ask here                 run/roost/holder-PROCESS-K.sock
//!     |                                 '--- wire.rs      a line of JSON each way
//!     '-- what another holds -------- Lease  (lease.rs)   a connection to that one
//! ```
//!
//! *Active* is what a service needs of the machine, and not where it is confined: its cpuset or affinity is its own. Several
//! services share what is done to a CPU for everybody, so whoever would park one asks here first: no other slice, work queue or
//! interrupt leaves a CPU that anybody has active (`surroundings`), a floor under its sleep yields to others who have it
//! active, and who would take a CPU offline asks [`ActiveCpus::needed`].
//!
//! What always holds:
//! - What is in force is the combination of what is asked for and of the administrator's own. Withdrawing a request restores
//!   the combination of the rest, never a constant; a CPU of which nobody asks anything is as it was before us.
//! - A request lasts as long as its connection: who ends, however it ends, asks for nothing any more. What was refused was not asked.
//! - When a holder ends, those who asked it take what it had at their next look ([`Holder::look_after`], [`ActiveCpus::look_after`]), and ask
//!   again for what they had. One that hangs is asked ever more rarely.
//! - Only the holder's own user and root may ask, and nothing that a peer does keeps the holder waiting (`desk.rs`).

mod active;
mod clock;
mod desk;
mod idle;
mod laws;
mod lease;
mod per_cpu;
mod register;
mod window;
pub mod wire;

pub use active::ActiveCpus;
pub use clock::{ClockHolder, ClockMeans};
pub use idle::IdleHolder;
pub use laws::Claim;
pub use per_cpu::{Holder, Knob, Taken};
pub use window::IdleWindow;
pub use wire::Needed;

use machine::{CpuList, Duration, FrequencyLimit, IdleLimit, Instant};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

/// Who asks for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Of which CPUs.
    pub cpus: CpuList,
    /// Who: a service of this process, or another process as it calls itself.
    pub asker: String,
    /// Its process.
    pub process: u32,
    /// For what.
    pub wish: Wish,
    /// Since when, in seconds of the Unix clock.
    pub since_unix_s: u64,
    /// What all ask together; unknown where another process holds it.
    pub together: Option<Wish>,
    /// The process that holds it, where that is another.
    pub held_by: Option<String>,
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
fn grouped(all: Vec<Asked>) -> Vec<Asked> {
    let mut groups: Vec<Asked> = Vec::new();
    for asked in all {
        let is_alike = |group: &&mut Asked| {
            (&group.asker, group.process, group.wish) == (&asked.asker, asked.process, asked.wish)
                && (group.together, &group.held_by) == (asked.together, &asked.held_by)
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

/// Who did not answer is asked again after ever longer: each question to it costs the asker's whole patience.
#[derive(Debug, Default)]
struct Backoff {
    last: Duration,
    until: Option<Instant>,
}

impl Backoff {
    fn wait(&mut self) {
        self.last = (self.last * 2).clamp(FIRST_WAIT, LAST_WAIT);
        self.until = Some(crate::now() + self.last);
    }

    fn is_waiting(&self) -> bool {
        self.until.is_some_and(|until| crate::now() < until)
    }
}

/// Several times a lease's patience, which is 2 s: who waits in vain does other things most of the time.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// Who came back is found again within this time.
const LAST_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
