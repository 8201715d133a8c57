//! Policies that say how many cores new work may go to.

use super::Policy;
use machine::{Duration, Instant};

/// How many cores new work may go to.
pub trait CorePolicy: Policy {
    /// A request came; there are `in_system` with it, without those that wait for a device and hold no
    /// core.
    fn handle_arrival(&mut self, _now: Instant, _in_system: u32) {}

    /// A request left; `in_system` are left.
    fn handle_completion(&mut self, _now: Instant, _done: &Completion, _in_system: u32) {}

    /// Why it cannot decide any more; a driver asks at the beginning and after each timeout, and
    /// ends the run.
    fn fault(&self) -> Option<&str> {
        None
    }

    /// The core for a request, where each core has its own queue; `load` is the number of requests
    /// at a core. `None`: the driver's choice stands.
    fn route(&self, _load: &dyn Fn(usize) -> u32) -> Option<usize> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Time of computing, at the nominal frequency.
    pub compute: Duration,
    /// Time in which it waited for memory.
    pub memory: Duration,
    /// Time from the arrival to the answer.
    pub response: Duration,
    /// Time of it in which the request waited for a device and held no core.
    pub device: Duration,
}
