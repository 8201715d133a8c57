//! Idle states as Linux's cpuidle describes them.

use crate::{CstateIndex, Duration, Microwatts};
use serde::{Deserialize, Serialize};

/// A core's properties in an idle state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CstateKind {
    /// Spins: ready at once, at full power.
    Polling,
    /// Stops executing; deeper states also flush caches and drop voltage.
    Halting,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cstate {
    /// As the driver calls it. For people: choose by latency, never by name.
    pub name: String,
    pub kind: CstateKind,
    /// Advertised worst case from wake-up signal to first instruction (cpuidle `latency`).
    pub exit_latency: Duration,
    /// The measured wake-up latency, where there is one; real machines differ from the advertised
    /// by up to 10x.
    pub true_exit_latency: Option<Duration>,
    /// Time to get into the state, which cannot be cut short; `None` where no source tells it
    /// apart. Linux's exit latency already covers the worst case of entry and exit together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_latency: Option<Duration>,
    /// The shortest sleep for which this state saves energy (cpuidle `residency`), its entry
    /// included.
    pub target_residency: Duration,
    /// Core power in this state, where known.
    pub power: Option<Microwatts>,
}

impl Cstate {
    /// The time that a wake-up takes: measured where that is known, else as advertised.
    pub fn real_exit_latency(&self) -> Duration {
        self.true_exit_latency.unwrap_or(self.exit_latency)
    }
}

/// A CPU's idle states in cpuidle's order, shallow to deep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CstateTable(pub Vec<Cstate>);

impl CstateTable {
    pub fn state(&self, index: CstateIndex) -> Option<&Cstate> {
        self.0.get(index.index())
    }

    /// The tightest limit under which an active core still halts: the exit latency of the
    /// shallowest state that does not poll. At least 1 us, because a limit of zero means polling,
    /// and a plain `HLT` may advertise zero.
    pub fn shallowest_halt(&self) -> Option<Duration> {
        self.halting().map(|state| state.exit_latency.max(Duration::from_micros(1))).min()
    }

    /// True if a limit on exit latency can make a difference: at least two states that halt.
    pub fn has_depth(&self) -> bool {
        self.halting().count() > 1
    }

    fn halting(&self) -> impl Iterator<Item = &Cstate> {
        self.0.iter().filter(|state| state.kind == CstateKind::Halting)
    }
}
