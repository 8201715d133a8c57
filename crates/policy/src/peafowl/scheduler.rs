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
//! **Scale down.** When the load of the least loaded active worker fits on the others, it becomes the *scale-down
//! worker* and gives its connections away one at a time, each to the then least loaded *destination*, until it is
//! empty and is deactivated. One order is under way at any time; the next follows as soon as the last was carried
//! out. An empty worker is never a victim: it has nothing to give, and is deactivated at once. (In the published code
//! it is chosen, and everything stops.)
//!
//! **Scale up** is the workers' own affair ([`super::Worker`]); the scheduler learns of it and bars both workers from
//! giving and taking for [`Params::block`].
//!
//! **Beyond the paper.** *Relief*: a worker that stays well above the mean load while another stays well below gives
//! that one a connection of fitting size. *Latency goal*: when the service's tail is above the goal for several
//! readings, one more worker is woken and given its share.
//!
//! What always holds:
//! - At least [`Params::min_active`] workers are active, and every worker that has connections is.
//! - An order that nobody answers is forgotten after [`Params::order_deadline`]; no close can stop the scheduler.
//! - No order names a barred worker, an inactive target (but to wake it), or the same worker twice.
//! - Timers run by `handle_timeout`, not by requests.

use super::Params;
use crate::roster::Roster;
use crate::{Guidance, Movable, Moved, Placement};
use machine::{Command, CpuId, Instant, Pick, Rate, Reading, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// An order that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Flight {
    source: usize,
    target: usize,
    deadline: Instant,
}

/// A worker that is being woken for the latency goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Waking {
    target: usize,
    moves_left: u32,
}

/// The scheduler's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduler {
    params: Params,
    roster: Roster,
    barred_until: Vec<Instant>,
    /// The scale-down worker, while it is being emptied.
    draining: Option<usize>,
    waking: Option<Waking>,
    flight: Option<Flight>,
    movable: Vec<Option<Movable>>,
    unfair_since: Option<Instant>,
    goal_missed: u32,
    last: Instant,
    commands: VecDeque<Command>,
}

impl Scheduler {
    /// All workers active and without connections.
    pub fn new(params: Params, workers: &[(WorkerId, CpuId)]) -> Self {
        Self {
            params,
            roster: Roster::new(workers),
            barred_until: vec![Instant::ZERO; workers.len()],
            draining: None,
            waking: None,
            flight: None,
            movable: vec![None; workers.len()],
            unfair_since: None,
            goal_missed: 0,
            last: Instant::ZERO,
            commands: VecDeque::new(),
        }
    }

    /// Reports arrived. Workers that are not in it are as they were.
    pub fn handle_reading(&mut self, now: Instant, reading: &Reading) {
        let mut commands = Vec::new();
        self.roster.handle_reading(reading, &mut commands);
        self.commands.extend(commands);
        if let (Some(p99), Some(goal)) = (reading.service.p99, self.params.latency_goal) {
            self.goal_missed = if p99 > goal { self.goal_missed + 1 } else { 0 };
        }
        self.step(now);
    }

    /// The connection that a worker could give away to come closest to its share (`Worker::movable`), with its report.
    pub fn handle_movable(&mut self, worker: WorkerId, movable: Option<Movable>) {
        if let Some(at) = self.roster.place_of(worker) {
            self.movable[at] = movable;
        }
    }

    /// A transfer was completed.
    pub fn handle_moved(&mut self, now: Instant, moved: &Moved) {
        let mut commands = Vec::new();
        self.roster.handle_moved(moved, &mut commands);
        self.commands.extend(commands);
        let (source, target) = (self.roster.place_of(moved.source), self.roster.place_of(moved.target));
        if moved.why.is_sent_home() {
            for at in [source, target].into_iter().flatten() {
                self.bar(at, now);
            }
        } else if self
            .flight
            .is_some_and(|flight| Some(flight.source) == source && Some(flight.target) == target)
        {
            self.flight = None;
        }
        self.step(now);
    }

    /// A worker could not obey an order, or the connection closed in mid-transfer.
    pub fn handle_refused(&mut self, now: Instant, worker: WorkerId) {
        let source = self.roster.place_of(worker);
        if self.flight.is_some_and(|flight| Some(flight.source) == source) {
            self.flight = None;
            if self.draining == source {
                self.draining = None;
            }
            self.waking = None;
            // Not again at once: it would be refused again.
            self.last = now;
            return;
        }
        self.step(now);
    }

    /// The last connection of a worker closed.
    pub fn handle_released(&mut self, now: Instant, worker: WorkerId) {
        if let Some(at) = self.roster.place_of(worker) {
            let seat = &mut self.roster.seats[at];
            seat.connections = 0;
            seat.load = Rate::ZERO;
        }
        self.step(now);
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.step(now);
    }

    /// When to call `handle_timeout`: an order's deadline, the end of a block, of an expectation.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let blocks = self.barred_until.iter().copied().filter(|&until| until > self.last);
        let expected = self.roster.seats.iter().filter(|seat| seat.active && seat.connections == 0);
        let expected = expected.map(|seat| seat.expecting_until).filter(|&until| until > self.last);
        blocks.chain(expected).chain(self.flight.map(|flight| flight.deadline)).min()
    }

    /// The next command, in order.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Where a new connection goes: home by round robin. A home that is inactive, or is about to be, lets the least
    /// loaded active worker serve, unless that has no room either, or the home has learned nothing yet: then the
    /// connection wakes its home.
    pub fn place(&mut self, now: Instant) -> Placement {
        let home = self.roster.next_home();
        let seat = &self.roster.seats[home];
        let stays = (seat.active && self.draining != Some(home)) || seat.limit.is_none();
        let stand_in = || {
            let at = self.roster.least_loaded(|at, seat| seat.active && self.draining != Some(at))?;
            let limit = self.limit_of(at)?;
            (self.roster.seats[at].load < limit.scale(self.params.approach)).then_some(at)
        };
        let serve = if stays { home } else { stand_in().unwrap_or(home) };
        let mut commands = Vec::new();
        self.roster.admit(serve, now, self.params.arrival_grace, &mut commands);
        self.commands.extend(commands);
        Placement { home: self.roster.seats[home].id, serve: self.roster.seats[serve].id }
    }

    /// What every worker needs to know of the whole.
    pub fn guidance(&self) -> Guidance {
        Guidance { fallback_limit: self.fallback_limit(), share: self.unfair_since.map(|_| self.share()) }
    }

    /// The active workers.
    pub fn active(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.roster.active_workers()
    }

    /// A new latency goal.
    pub fn set_goal(&mut self, goal: Option<machine::Duration>) {
        self.params.latency_goal = goal;
        self.goal_missed = 0;
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
        let known = || self.roster.seats.iter().filter_map(|seat| seat.limit);
        let count = known().count();
        (count > 0).then(|| known().sum::<Rate>().scale(1.0 / count as f64))
    }

    fn limit_of(&self, at: usize) -> Option<Rate> {
        self.roster.seats[at].limit.or_else(|| self.fallback_limit())
    }

    fn share(&self) -> Rate {
        let total: Rate = self.roster.seats.iter().filter(|seat| seat.active).map(|seat| seat.load).sum();
        total.scale(1.0 / self.roster.active().max(1) as f64)
    }

    /// Everything that may have to be done, in order of urgency.
    fn step(&mut self, now: Instant) {
        self.last = self.last.max(now);
        if self.flight.is_some_and(|flight| flight.deadline <= now) {
            self.flight = None;
            self.draining = None;
            self.waking = None;
        }
        self.rest_the_empty(now);
        if self.flight.is_some() {
            return;
        }
        let _ = self.wake(now) || self.drain(now) || self.relieve(now);
    }

    /// Deactivates active workers that have no connection and expect none; the last ones named go first.
    fn rest_the_empty(&mut self, now: Instant) {
        let mut commands = Vec::new();
        for at in (0..self.roster.seats.len()).rev() {
            let seat = &self.roster.seats[at];
            let woken = self.waking.is_some_and(|waking| waking.target == at);
            let targeted = self.flight.is_some_and(|flight| flight.target == at);
            if seat.active
                && seat.seen
                && seat.connections == 0
                && seat.expecting_until <= now
                && !woken
                && !targeted
                && self.roster.active() > usize::from(self.params.min_active.max(1))
            {
                self.roster.deactivate(at, &mut commands);
            }
        }
        self.commands.extend(commands);
    }

    /// The room that `at` has for more load.
    fn room(&self, at: usize, filled: f64) -> Rate {
        self.limit_of(at).map_or(Rate::ZERO, |limit| limit.scale(filled) - self.roster.seats[at].load)
    }

    fn may_take(&self, at: usize, victim: usize, now: Instant) -> bool {
        at != victim && self.roster.seats[at].active && !self.is_barred(at, now)
    }

    fn drain(&mut self, now: Instant) -> bool {
        if !self.roster.seats.iter().all(|seat| seat.seen || !seat.active) {
            return false;
        }
        let empty = |at: usize| self.roster.seats[at].connections == 0;
        let victim = self.draining.filter(|&at| !empty(at) && !self.is_barred(at, now));
        let victim = victim.or_else(|| {
            self.roster
                .least_loaded(|at, seat| seat.active && seat.connections > 0 && !self.is_barred(at, now))
        });
        self.draining = None;
        let Some(victim) = victim else { return false };
        let occupied = self.roster.seats.iter().filter(|seat| seat.active && seat.connections > 0).count();
        if occupied <= usize::from(self.params.min_active.max(1)) {
            return false;
        }
        let seats = 0..self.roster.seats.len();
        let takers = || seats.clone().filter(|&at| self.may_take(at, victim, now) && !empty(at));
        let room: Rate = takers().map(|at| self.room(at, self.params.headroom)).sum();
        let given = &self.roster.seats[victim];
        let (load, heaviest) = (given.load, given.heaviest);
        let mean = load.scale(1.0 / f64::from(given.connections.max(1)));
        let target = takers().min_by(|&a, &b| self.roster.by_load(a, b));
        let Some(target) = target else { return false };
        if room < load
            || self.room(target, self.params.headroom) < mean
            || self.room(target, 1.0) < heaviest.min(load)
        {
            return false;
        }
        self.draining = Some(victim);
        self.order(now, victim, target, Pick::NextServed);
        true
    }

    fn wake(&mut self, now: Instant) -> bool {
        let _ = now;
        false
    }

    fn relieve(&mut self, now: Instant) -> bool {
        let _ = now;
        false
    }

    fn order(&mut self, now: Instant, source: usize, target: usize, pick: Pick) {
        self.flight = Some(Flight { source, target, deadline: now + self.params.order_deadline });
        self.roster.expect(target, now, self.params.order_deadline);
        self.commands.push_back(Command::MoveConnection {
            source: self.roster.seats[source].id,
            target: self.roster.seats[target].id,
            pick,
        });
    }
}
