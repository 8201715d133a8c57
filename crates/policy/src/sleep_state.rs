use machine::{Duration, Microwatts};
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
