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

    /// The core has completed a request, or a piece of one.
    fn handle_completion(&mut self, _now: Instant, _cpu: usize, _request: &Request) {}

    /// The core has nothing to do.
    fn handle_idle(&mut self, _now: Instant, _cpu: usize, _point: PointIndex) -> Option<PointIndex> {
        None
    }

    /// The core's queue has changed: it executes `head`, and `waiting` tells by their places of the
    /// requests behind it. The P-state for the core.
    fn handle_queue(
        &mut self,
        _now: Instant,
        _cpu: usize,
        _head: Option<Head>,
        _waiting: &dyn Fn(usize) -> Option<Waiting>,
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
    /// Below [`PHASES`]: a call of a device, or the answer of all shards, ends a phase.
    pub phase: u8,
    /// At its completion; a request that begins ends nothing yet: [`Ends::Piece`].
    pub ends: Ends,
}

/// How much is over when a core has done its work on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// A piece; others of the same phase are still to be done.
    Piece,
    Phase,
    Request,
}

/// Shards, their second round, and the work after the call of a device.
pub const PHASES: usize = 3;

/// The request that a core executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub arrived: Instant,
    /// Its computing so far, at the nominal frequency.
    pub done_compute: Duration,
    pub phase: u8,
}

/// A request that waits for a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub arrived: Instant,
    pub phase: u8,
}
