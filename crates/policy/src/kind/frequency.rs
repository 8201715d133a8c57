//! Policies that set the frequencies of cores.

use super::{Decision, Policy};
use crate::frequency::PointIndex;
use machine::{Duration, Instant};

pub trait FrequencyPolicy: Policy {
    /// The calls that it needs. A driver asks once.
    fn watches(&self) -> Watch {
        Watch::Nothing
    }

    /// The core begins a request, which runs in `point` so far; or its time for a review has come.
    /// The P-state that the core is to change to.
    fn handle_start(
        &mut self,
        _now: Instant,
        _cpu: usize,
        _request: &Request,
        _point: PointIndex,
    ) -> Option<PointIndex> {
        None
    }

    /// The core has completed a request.
    fn handle_completion(&mut self, _now: Instant, _cpu: usize, _request: &Request) {}

    /// The core has nothing to do.
    fn handle_idle(&mut self, _now: Instant, _cpu: usize, _point: PointIndex) -> Option<PointIndex> {
        None
    }

    /// The core's queue has changed: it executes `head`, and `waiting` tells by their places when
    /// the requests behind it arrived. The P-state for the core.
    fn handle_queue(
        &mut self,
        _now: Instant,
        _cpu: usize,
        _head: Option<Head>,
        _waiting: &dyn Fn(usize) -> Option<Instant>,
    ) -> Option<PointIndex> {
        None
    }

    /// A review that was asked for is due. False: another has replaced it.
    fn handle_review(&mut self, _now: Instant, _cpu: usize) -> bool {
        false
    }
}

/// One P-state for all cores, decided once.
pub struct Constant(pub Option<PointIndex>);

impl Policy for Constant {
    fn poll_decision(&mut self) -> Option<Decision> {
        self.0.take().map(Decision::Points)
    }
}

impl FrequencyPolicy for Constant {}

/// The part of a request's path that a frequency policy follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nothing: its frequencies change at timeouts alone.
    Nothing,
    Completions,
    /// Begin and end of each request, and idle cores.
    Work,
    /// Each change of a queue, and completions.
    Queues,
}

/// A request as the driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub arrived: Instant,
    pub class: usize,
    /// Time of computing, at the nominal frequency.
    pub compute: Duration,
    /// Time in which it waits for memory, whatever the frequency.
    pub memory: Duration,
}

/// The request that a core executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub arrived: Instant,
    /// Its computing so far, at the nominal frequency.
    pub done_compute: Duration,
}
