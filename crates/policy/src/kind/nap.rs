//! Policies that stop the whole machine.

use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::any::Any;

/// When the whole machine stops and sleeps.
pub trait NapPolicy: Any {
    /// The mark that a request which arrives now carries; `None` if none is needed.
    fn mark(&self, _now: Instant) -> Option<StallMark> {
        None
    }

    /// A request came or left, or the machine is `awake` again after a nap. `in_system` requests
    /// are there, `busy` cores have work, and `oldest` is the least mark of all requests.
    fn handle_change(
        &mut self,
        now: Instant,
        awake: bool,
        in_system: u32,
        busy: u16,
        oldest: Option<StallMark>,
    ) -> Option<NapOrder>;

    fn handle_timeout(&mut self, _now: Instant) -> Option<NapOrder> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// An order to the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NapOrder {
    /// All cores stop, and the machine sleeps.
    Nap,
    Wake,
}

/// A reading of the clock that runs while the machine does not. The smaller, the longer the request
/// was stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StallMark(pub Duration);
