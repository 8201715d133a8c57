//! Placing connections and packing them onto fewer workers (sections 3.2.1 and 3.2.3).
//!
//! ```text
//!   driver                                        Scheduler
//!   reports arrived                  ---->        handle_reading, handle_movable
//!   a transfer completed             ---->        handle_moved
//!   a worker could not obey          ---->        handle_refused
//!   a worker's last connection closed ---->       handle_released
//!   poll_timeout() fell due          ---->        handle_timeout
//!   a client connects                ---->        place           ----> home and server
//!                                    <----        poll_command    MoveConnection, Activate, Deactivate
//!                                    <----        guidance        for every worker, after each reading
//! ```
//!
//! **Scale down.** When the load of the least loaded active worker fits on the others, it becomes
//! the *scale-down worker* and gives its connections away one at a time, each to the then least
//! loaded *destination*, until it is empty and is deactivated. One order is under way at any time;
//! the next follows as soon as the last was carried out. An empty worker is never a victim: it has
//! nothing to give, and is deactivated at once. (In the published code it is chosen, and everything
//! stops.)
//!
//! **Scale up** is the workers' own affair ([`super::Worker`]); the scheduler learns of it and bars
//! both workers from giving and taking for [`Params::block`].
//!
//! **Beyond the paper.** *Relief*: a worker that stays well above the mean load while another stays
//! well below gives that one a connection of fitting size. *Latency goal*: when the service's tail
//! is above the goal for several readings, one more worker is woken and given its
//! share. *Overload*: the same when a worker works for more than [`Params::overload_busy`] of the
//! time for several readings, and another sleeps: its connections may all be its own.
//!
//! Invariants:
//! - At least [`Params::min_active`] workers are active, and every worker that has connections is.
//! - An order that is not answered is forgotten after [`Params::order_deadline`]; no close can stop
//!   the scheduler.
//! - No order names a barred worker, an inactive target (but to wake it), or the same worker twice.
//! - Timers run by `handle_timeout`, not by requests.

mod steps;

use super::Params;
use crate::worker_table::{PendingMigration, WorkerTable};
use crate::{Guidance, Movable, Moved, Placement};
use machine::{Command, CpuId, Instant, Rate, Reading, WorkerId, WorkerReading};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A worker that is being woken for the latency goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Waking {
    target: usize,
    moves_left: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduler {
    params: Params,
    table: WorkerTable,
    barred_until: Vec<Instant>,
    /// The scale-down worker, while it is being emptied.
    draining: Option<usize>,
    /// Since when the least loaded worker fits on the others.
    fits_since: Option<Instant>,
    waking: Option<Waking>,
    pending: Option<PendingMigration>,
    movable: Vec<Option<Movable>>,
    unfair_since: Option<Instant>,
    goal_missed: u32,
    /// Readings in a row in which a worker worked for too much of the time.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    swamped: u32,
    last: Instant,
    commands: VecDeque<Command>,
}

impl Scheduler {
    /// All workers active and without connections.
    pub fn new(params: Params, workers: &[(WorkerId, CpuId)]) -> Self {
        Self {
            params,
            table: WorkerTable::new(workers),
            barred_until: vec![Instant::ZERO; workers.len()],
            draining: None,
            fits_since: None,
            waking: None,
            pending: None,
            movable: vec![None; workers.len()],
            unfair_since: None,
            goal_missed: 0,
            swamped: 0,
            last: Instant::ZERO,
            commands: VecDeque::new(),
        }
    }

    /// Reports arrived. Workers that are not in it are as they were.
    pub fn handle_reading(&mut self, now: Instant, reading: &Reading) {
        self.table.handle_reading(reading, &mut self.commands);
        if let (Some(p99), Some(goal)) = (reading.service.p99, self.params.latency_goal) {
            self.goal_missed = if p99 > goal { self.goal_missed + 1 } else { 0 };
        }
        let is_swamped =
            |worker: &WorkerReading| worker.connections > 1 && worker.busy > self.params.overload_busy;
        self.swamped = if reading.workers.iter().any(is_swamped) { self.swamped + 1 } else { 0 };
        self.step(now);
    }

    /// The connection that a worker could give away to come closest to its share
    /// (`Worker::movable`), with its report.
    pub fn handle_movable(&mut self, worker: WorkerId, movable: Option<Movable>) {
        if let Some(at) = self.table.place_of(worker) {
            self.movable[at] = movable;
        }
    }

    pub fn handle_moved(&mut self, now: Instant, moved: &Moved) {
        self.table.handle_moved(moved, &mut self.commands);
        if moved.why.is_sent_home() {
            for worker in [moved.source, moved.target] {
                if let Some(at) = self.table.place_of(worker) {
                    self.bar(at, now);
                }
            }
        } else if self.pending.is_some_and(|pending| pending.is_answered_by(&self.table, moved)) {
            self.pending = None;
        }
        self.step(now);
    }

    /// A worker could not obey an order, or the connection closed in mid-transfer. The next order
    /// waits for the next reading or timeout, or it would be refused again.
    pub fn handle_refused(&mut self, worker: WorkerId) {
        if self.pending.is_some_and(|pending| self.table.entries[pending.source].id == worker) {
            self.give_up();
        }
    }

    /// The last connection of a worker closed.
    pub fn handle_released(&mut self, now: Instant, worker: WorkerId) {
        self.table.handle_released(worker);
        self.step(now);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.step(now);
    }

    /// When to call `handle_timeout`: an order's deadline, the end of a block, of an expectation.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let blocks = self.barred_until.iter().copied();
        let fit = self.fits_since.map(|since| since + self.params.fit_patience);
        let due = blocks.chain(self.table.expectations()).chain(fit).filter(|&until| until > self.last);
        due.chain(self.pending.map(|pending| pending.deadline)).min()
    }

    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Where a new connection goes: home by round robin. A home that is inactive, or is about to
    /// be, lets the least loaded active worker serve, unless that has no room either, or the home
    /// has learned nothing yet: then the connection wakes its home.
    pub fn place(&mut self, now: Instant) -> Placement {
        let home = self.table.next_home();
        let entry = &self.table.entries[home];
        let stays = (entry.active && self.draining != Some(home)) || entry.limit.is_none();
        let stand_in = || {
            let at = self.table.least_loaded(|at, entry| entry.active && self.draining != Some(at))?;
            let limit = self.limit_of(at)?;
            (self.table.entries[at].load < limit.scale(self.params.approach)).then_some(at)
        };
        let serve = if stays { home } else { stand_in().unwrap_or(home) };
        self.table.admit(serve, now, self.params.arrival_grace, &mut self.commands);
        Placement { home: self.table.entries[home].id, serve: self.table.entries[serve].id }
    }

    /// The figures of the whole that every worker needs.
    pub fn guidance(&self) -> Guidance {
        let share = self.unfair_since.map(|_| self.share());
        Guidance { fallback_limit: self.fallback_limit(), share, ..Guidance::default() }
    }

    pub fn active(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.table.active_workers()
    }

    fn bar(&mut self, at: usize, now: Instant) {
        self.barred_until[at] = now + self.params.block;
        if self.draining == Some(at) {
            self.draining = None;
        }
    }

    fn is_barred(&self, at: usize, now: Instant) -> bool {
        self.barred_until[at] > now
    }

    fn fallback_limit(&self) -> Option<Rate> {
        let known = || self.table.entries.iter().filter_map(|entry| entry.limit);
        let count = known().count();
        (count > 0).then(|| known().sum::<Rate>().scale(1.0 / count as f64))
    }

    fn limit_of(&self, at: usize) -> Option<Rate> {
        self.table.entries[at].limit.or_else(|| self.fallback_limit())
    }

    fn share(&self) -> Rate {
        let total: Rate =
            self.table.entries.iter().filter(|entry| entry.active).map(|entry| entry.load).sum();
        total.scale(1.0 / self.table.active().max(1) as f64)
    }

    /// Everything that may have to be done, in order of urgency.
    fn step(&mut self, now: Instant) {
        self.last = self.last.max(now);
        if self.pending.is_some_and(|pending| pending.deadline <= now) {
            self.give_up();
        }
        self.rest_the_empty(now);
        if self.pending.is_none() {
            let _ = self.wake(now) || self.drain(now) || self.relieve(now);
        }
    }

    fn give_up(&mut self) {
        self.pending = None;
        self.draining = None;
        self.waking = None;
    }
}

#[cfg(test)]
mod tests;
