//! How the store's connections are placed, whichever policy does it: the live server drives this.
//!
//! The workers measure their load under every policy; only under [`Scheduling::Peafowl`] do they
//! send guests home by themselves. [`Scheduling::worker_params`] sees to that.

use crate::all_awake::AllAwake;
use crate::spread::Spread;
use crate::{Guidance, Movable, Moved, Placement, carb, joint, peafowl};
use machine::{Command, CpuId, Instant, Ratio, Reading, WorkerId};
use serde::{Deserialize, Serialize};

/// One of the policies that place connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    Peafowl(peafowl::Scheduler),
    /// By searching for the number of workers with the shortest response time.
    Carb(carb::Scheduler),
    /// On as few workers as a plan for a goal needs.
    Joint(Box<joint::Scheduler>),
    /// On as many workers as the driver says.
    Counted(Spread),
    AllAwake(AllAwake),
}

impl Scheduling {
    pub fn peafowl(params: peafowl::Params, workers: &[(WorkerId, CpuId)]) -> Self {
        Self::Peafowl(peafowl::Scheduler::new(params, workers))
    }

    pub fn carb(params: carb::Params, workers: &[(WorkerId, CpuId)]) -> Self {
        Self::Carb(carb::Scheduler::new(params, workers))
    }

    /// As many workers awake as [`set_wanted`](Self::set_wanted) says; all, to begin with.
    pub fn counted(workers: &[(WorkerId, CpuId)]) -> Self {
        Self::Counted(Spread::new(workers))
    }

    pub fn all_awake(workers: &[(WorkerId, CpuId)]) -> Self {
        Self::AllAwake(AllAwake::new(workers))
    }

    /// The parameters for the workers under this policy: those given, but only Peafowl's workers
    /// send guests home, and only Peafowl compares loads with limits; the others compare rates with
    /// rates.
    pub fn worker_params(&self, params: peafowl::Params) -> peafowl::Params {
        if matches!(self, Self::Peafowl(_)) {
            return params;
        }
        peafowl::Params {
            send_home: false,
            load: peafowl::Load::Requests,
            overload_busy: Ratio::ONE,
            ..params
        }
    }

    /// So many workers shall be awake from now on. Means nothing to policies that decide it
    /// themselves.
    pub fn set_wanted(&mut self, now: Instant, wanted: u16) {
        if let Self::Counted(spread) = self {
            spread.set_wanted(wanted);
            spread.handle_timeout(now);
        }
    }

    /// True for policies that limit the idle states of active workers' CPUs themselves, and that learn
    /// from [`Self::handle_answered`].
    pub fn is_planned(&self) -> bool {
        matches!(self, Self::Joint(_))
    }

    /// The requests that were answered since the last report; before `handle_reading`.
    pub fn handle_answered(&mut self, now: Instant, answered: &joint::Answered) {
        if let Self::Joint(scheduler) = self {
            scheduler.handle_answered(now, answered);
        }
    }

    /// Reports arrived; workers that are not among them are as they were.
    pub fn handle_reading(&mut self, now: Instant, reading: &Reading) {
        match self {
            Self::Peafowl(scheduler) => scheduler.handle_reading(now, reading),
            Self::Carb(scheduler) => scheduler.handle_reading(now, reading),
            Self::Joint(scheduler) => scheduler.handle_reading(now, reading),
            Self::Counted(spread) => spread.handle_reading(now, reading),
            Self::AllAwake(_) => {}
        }
    }

    /// The answer of `Worker::movable` with the last report; before `handle_reading`.
    pub fn handle_movable(&mut self, worker: WorkerId, movable: Option<Movable>) {
        match self {
            Self::Peafowl(scheduler) => scheduler.handle_movable(worker, movable),
            Self::Carb(_) | Self::Joint(_) | Self::Counted(_) | Self::AllAwake(_) => {}
        }
    }

    pub fn handle_moved(&mut self, now: Instant, moved: &Moved) {
        match self {
            Self::Peafowl(scheduler) => scheduler.handle_moved(now, moved),
            Self::Carb(scheduler) => scheduler.handle_moved(now, moved),
            Self::Joint(scheduler) => scheduler.handle_moved(now, moved),
            Self::Counted(spread) => spread.handle_moved(now, moved),
            Self::AllAwake(_) => {}
        }
    }

    /// A worker answered an order with `Refused`, or the connection closed in mid-transfer.
    pub fn handle_refused(&mut self, worker: WorkerId) {
        match self {
            Self::Peafowl(scheduler) => scheduler.handle_refused(worker),
            Self::Carb(scheduler) => scheduler.handle_refused(worker),
            Self::Joint(scheduler) => scheduler.handle_refused(worker),
            Self::Counted(spread) => spread.handle_refused(worker),
            Self::AllAwake(_) => {}
        }
    }

    /// The last connection of a worker closed.
    pub fn handle_released(&mut self, now: Instant, worker: WorkerId) {
        match self {
            Self::Peafowl(scheduler) => scheduler.handle_released(now, worker),
            Self::Carb(scheduler) => scheduler.handle_released(now, worker),
            Self::Joint(scheduler) => scheduler.handle_released(now, worker),
            Self::Counted(spread) => spread.handle_released(now, worker),
            Self::AllAwake(_) => {}
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Peafowl(scheduler) => scheduler.handle_timeout(now),
            Self::Carb(scheduler) => scheduler.handle_timeout(now),
            Self::Joint(scheduler) => scheduler.handle_timeout(now),
            Self::Counted(spread) => spread.handle_timeout(now),
            Self::AllAwake(_) => {}
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Peafowl(scheduler) => scheduler.poll_timeout(),
            Self::Carb(scheduler) => scheduler.poll_timeout(),
            Self::Joint(scheduler) => scheduler.poll_timeout(),
            Self::Counted(spread) => spread.poll_timeout(),
            Self::AllAwake(_) => None,
        }
    }

    pub fn poll_command(&mut self) -> Option<Command> {
        match self {
            Self::Peafowl(scheduler) => scheduler.poll_command(),
            Self::Carb(scheduler) => scheduler.poll_command(),
            Self::Joint(scheduler) => scheduler.poll_command(),
            Self::Counted(spread) => spread.poll_command(),
            Self::AllAwake(_) => None,
        }
    }

    pub fn place(&mut self, now: Instant) -> Placement {
        match self {
            Self::Peafowl(scheduler) => scheduler.place(now),
            Self::Carb(scheduler) => scheduler.place(now),
            Self::Joint(scheduler) => scheduler.place(now),
            Self::Counted(spread) => spread.place(now),
            Self::AllAwake(all) => all.place(),
        }
    }

    /// The guidance for every worker after a reading, as `Order::Guidance`.
    pub fn guidance(&self) -> Guidance {
        match self {
            Self::Peafowl(scheduler) => scheduler.guidance(),
            Self::Joint(scheduler) => scheduler.guidance(),
            Self::Carb(_) | Self::Counted(_) | Self::AllAwake(_) => Guidance::default(),
        }
    }

    /// The workers that are active, in order.
    pub fn active(&self) -> Vec<WorkerId> {
        match self {
            Self::Peafowl(scheduler) => scheduler.active().collect(),
            Self::Carb(scheduler) => scheduler.active().collect(),
            Self::Joint(scheduler) => scheduler.active().collect(),
            Self::Counted(spread) => spread.active().collect(),
            Self::AllAwake(all) => all.active().collect(),
        }
    }
}
