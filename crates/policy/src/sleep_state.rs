use machine::{Cstate, CstateTable, Duration, Microwatts, Platform, PowerModel};
use serde::{Deserialize, Serialize};

/// An idle state that cores enter, all of them the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SleepState {
    /// From the beginning of the wake-up until the core executes.
    pub exit_latency: Duration,
    /// Its power while it sleeps.
    pub power: Microwatts,
    /// Energy of entering and leaving it, beside its power from entry to wake-up signal: with that a
    /// state breaks even at its target residency ([`machine::Platform::wake_joules`]).
    pub wake_joules: f64,
}

impl SleepState {
    fn of((state, wake_joules): (&Cstate, f64)) -> Self {
        let exit_latency = state.real_exit_latency();
        Self { exit_latency, power: state.power.unwrap_or_default(), wake_joules }
    }

    /// A platform's states from shallow to deep, with the exit latencies that it really has.
    pub fn all(platform: &Platform) -> Vec<Self> {
        platform.cstates.0.iter().zip(platform.wake_joules()).map(Self::of).collect()
    }

    /// A machine's halting states as a model charges them. Where it shows one alone, as a virtual machine
    /// does, a CPU that is left alone is taken to sleep in the model's deepest. Never empty.
    pub fn charged(model: &PowerModel, table: &CstateTable) -> Vec<Self> {
        let mut states = model.charged_states(table);
        if states.len() < 2 {
            let own = model.charged_states(&CstateTable(model.idle.clone()));
            let shown = states.first().map_or(Duration::ZERO, |(state, _)| state.exit_latency);
            states.extend(own.into_iter().rfind(|(state, _)| state.exit_latency > shown));
        }
        let mut states: Vec<Self> =
            states.iter().map(|(state, wake_joules)| Self::of((state, *wake_joules))).collect();
        if states.is_empty() {
            states.push(Self { exit_latency: Duration::ZERO, power: model.active, wake_joules: 0.0 });
        }
        states
    }
}
