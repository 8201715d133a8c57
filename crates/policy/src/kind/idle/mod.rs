//! Policies that choose a CPU's idle state when it has nothing to do, as plain calls.
//!
//! **Problem.** A deep state saves power only in a sleep of at least its *target residency*, and
//! the request that wakes the CPU pays the *exit latency*. How long the sleep will last is not
//! known when the state is chosen.
//!
//! At every idle entry [`IdlePolicy::select`] gets an [`IdleEntry`] and answers with a [`Sleep`];
//! when the CPU is back at work [`IdlePolicy::reflect`] gets the sleep that is over, [`Woken`].
//! Both allocate nothing: a simulator makes millions of these calls a second.
//!
//! Terms. A sleep is *premature* if the CPU idled for less than the state's target residency, and
//! a *missed deep* one if it idled for the residency of a deeper state that was allowed; cpuidle's
//! own counters call them `above` and `below`. The *tick* is the scheduler's periodic timer, which
//! a CPU may stop while it sleeps.

mod table;

pub use table::{IdleTable, MAX_STATES};

use machine::{CstateIndex, Duration, Instant};
use serde::{Deserialize, Serialize};
use std::any::Any;

/// One CPU's idle governor.
///
/// No state is chosen whose exit latency is above the limit; under a limit that no state meets, or
/// of zero, it polls.
pub trait IdlePolicy: Any {
    /// The CPU has nothing to do now.
    fn select(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep;

    /// The CPU is back at work after the sleep that was selected last. Not for [`Sleep::Poll`], of
    /// which there is nothing to learn.
    fn reflect(&mut self, _table: &IdleTable, _woken: &Woken) {}

    /// Why it cannot decide any more, and polls; a driver then ends the run.
    fn fault(&self) -> Option<&str> {
        None
    }
}

/// The knowledge of a CPU that goes idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleEntry {
    pub now: Instant,
    /// Until the CPU's next timer event if the tick is stopped; [`Duration::MAX`]: there is none.
    pub next_timer: Duration,
    /// Until the next scheduler tick if it is kept; [`Duration::MAX`]: the machine has none.
    pub next_tick: Duration,
    /// The longest exit latency that is tolerated; [`Duration::MAX`]: no limit.
    pub limit: Duration,
}

/// How a CPU spends its idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sleep {
    Poll,
    State {
        index: CstateIndex,
        /// The next tick wakes it, if nothing else does before.
        keep_tick: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeCause {
    /// An interrupt of a device or of another CPU.
    Interrupt,
    Timer,
    /// The tick, where it was kept.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Woken {
    pub selected: CstateIndex,
    /// From entry to back at work, exit latency included, as cpuidle measures it.
    pub residency: Duration,
    pub by: WakeCause,
}

impl Woken {
    /// How long the CPU idled before it was woken: the residency without the advertised exit
    /// latency. Where that would leave less than half, half \[K\], as menu does: so short a sleep
    /// was never as deep as to take all of it.
    #[inline]
    pub fn idle(&self, table: &IdleTable) -> Duration {
        let (residency, exit_latency) = (self.residency, table.exit_latency(self.selected.index()));
        if residency > exit_latency + exit_latency { residency - exit_latency } else { residency / 2 }
    }

    /// True if the state did not pay.
    #[inline]
    pub fn is_premature(&self, table: &IdleTable) -> bool {
        self.idle(table) < table.target_residency(self.selected.index())
    }
}

/// How well a CPU's states were chosen; for every governor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepStats {
    /// Number of sleeps; polling is not counted.
    pub sleeps: u64,
    /// Those too short for their state.
    pub premature: u64,
    /// Those long enough for a deeper state that was allowed.
    pub missed_deep: u64,
}

impl SleepStats {
    /// Counts a sleep that was chosen under `limit`.
    #[inline]
    pub fn record(&mut self, table: &IdleTable, woken: &Woken, limit: Duration) {
        self.sleeps += 1;
        self.premature += u64::from(woken.is_premature(table));
        let paid = table.deepest_for(woken.idle(table), limit);
        self.missed_deep += u64::from(paid > woken.selected.index());
    }
}
