//! The kinds of policies, each a trait: a driver knows kinds and no policy by its name.
//!
//! **The calls.** The world speaks through `handle_*`. A call on the path of a request returns its
//! answer as a value. All that is slower is a [`Decision`], which the driver takes from
//! [`Policy::poll_decision`] after each call until there is none, and carries out. Then
//! [`Policy::poll_timeout`] says when to call [`Policy::handle_timeout`]; early, late and repeated
//! timeouts do no harm.
//!
//! **The kinds.**
//! - [`CorePolicy`]: how many cores new work may go to.
//! - [`NapPolicy`]: when the whole machine stops.
//! - [`FrequencyPolicy`]: how fast each core runs.
//! - [`IdlePolicy`]: which idle state a CPU without work takes.
//! - [`WakeDelayPolicy`]: how long requests may wait at a sleeping core.
//!
//! Connections on workers are placed by [`Scheduling`](crate::Scheduling); the wake-up planner, the
//! stager and quiescence are kinds with one policy each, and have no trait.
//!
//! **A new policy** is a file with its parameters, its registry entry and an implementation of its
//! kind, and one line in its crate's list.

mod cores;
mod frequency;
pub mod idle;
mod make;
mod nap;
mod wake_delay;

pub use cores::{Completion, CorePolicy};
pub use frequency::{Constant, Ends, FrequencyPolicy, Head, PHASES, Request, Waiting, Watch};
pub use idle::IdlePolicy;
pub use make::{Anticipation, Make, Making, Placed, Placement, Workers};
pub use nap::{NapOrder, NapPolicy, StallMark};
pub use wake_delay::WakeDelayPolicy;

use crate::frequency::PointIndex;
use machine::{CpuId, CstateIndex, Duration, FrequencyLimit, Instant};
use std::any::Any;

/// A policy with a clock of its own.
pub trait Policy: Any {
    /// The readings that it needs at each timeout. A driver asks once.
    fn readings(&self) -> Readings {
        Readings::default()
    }

    /// The time that [`Self::poll_timeout`] named has come.
    fn handle_timeout(&mut self, _now: Instant, _seen: &Seen<'_>) {}

    /// The next decision; there may be some from the start.
    fn poll_decision(&mut self) -> Option<Decision> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    /// [`Seen::cpus`] and [`Seen::core_joules`].
    pub cpus: bool,
    /// [`Seen::responses`], with this quantile as their tail.
    pub quantile: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// Of each CPU in order; empty unless asked for.
    pub cpus: &'a [CpuTotals],
    /// Of the requests that left since the last timeout; none unless asked for.
    pub responses: Responses,
    /// Cores that new work may go to.
    pub active: u16,
    /// Energy of all cores since the run began; zero unless CPUs are asked for.
    pub core_joules: f64,
}

/// One CPU since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTotals {
    /// Time in which it was not idle. Polling is idle, as the kernel's idle time counts POLL.
    pub busy: Duration,
    /// Time spent at work on requests.
    pub working: Duration,
    /// Time in which any thread of its core was at work on requests.
    pub core_working: Duration,
    /// Nanoseconds of work at the nominal frequency: a count of instructions in another unit.
    pub work_done: f64,
    /// The P-state that is in effect.
    pub point: PointIndex,
    pub is_working: bool,
}

/// Response times of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Responses {
    pub count: u64,
    /// The quantile that was asked for; `None` without requests.
    pub tail: Option<Duration>,
    pub mean: Option<Duration>,
}

/// Something that a driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// New work goes to so many cores.
    Active(u16),
    /// The idle states of active and of parked cores; `None`: the deepest. A CPU whose own timer is near
    /// enters none that would not pay until then.
    IdleStates {
        active: CstateIndex,
        parked: Option<CstateIndex>,
    },
    /// Active cores enter no state with a longer exit latency, parked ones any; [`Duration::MAX`]
    /// lifts the limit.
    IdleLimit(Duration),
    OperatingPoint {
        cpu: CpuId,
        point: PointIndex,
    },
    Points(PointIndex),
    /// The clock of all sockets' uncore.
    Uncore(FrequencyLimit),
    /// The frequency of this CPU is decided anew at this time, if it works then.
    Review {
        cpu: CpuId,
        at: Instant,
    },
}
