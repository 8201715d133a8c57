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
use crate::roster::{Flight, Roster};
use crate::{Guidance, Movable, Moved, Placement};
use machine::{Command, CpuId, Instant, Pick, Rate, Reading, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

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
    /// Since when the least loaded worker fits on the others.
    fits_since: Option<Instant>,
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
            fits_since: None,
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
        self.roster.handle_reading(reading, &mut self.commands);
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
        self.roster.handle_moved(moved, &mut self.commands);
        if moved.why.is_sent_home() {
            for worker in [moved.source, moved.target] {
                if let Some(at) = self.roster.place_of(worker) {
                    self.bar(at, now);
                }
            }
        } else if self.flight.is_some_and(|flight| flight.is_answered_by(&self.roster, moved)) {
            self.flight = None;
        }
        self.step(now);
    }

    /// A worker could not obey an order, or the connection closed in mid-transfer. The next order waits for the next
    /// reading or timeout, or it would be refused again.
    pub fn handle_refused(&mut self, worker: WorkerId) {
        if self.flight.is_some_and(|flight| self.roster.seats[flight.source].id == worker) {
            self.give_up();
        }
    }

    /// The last connection of a worker closed.
    pub fn handle_released(&mut self, now: Instant, worker: WorkerId) {
        self.roster.handle_released(worker);
        self.step(now);
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.step(now);
    }

    /// When to call `handle_timeout`: an order's deadline, the end of a block, of an expectation.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let blocks = self.barred_until.iter().copied();
        let fit = self.fits_since.map(|since| since + self.params.fit_patience);
        let due = blocks.chain(self.roster.expectations()).chain(fit).filter(|&until| until > self.last);
        due.chain(self.flight.map(|flight| flight.deadline)).min()
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
        self.roster.admit(serve, now, self.params.arrival_grace, &mut self.commands);
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
            self.give_up();
        }
        self.rest_the_empty(now);
        if self.flight.is_none() {
            let _ = self.wake(now) || self.drain(now) || self.relieve(now);
        }
    }

    fn give_up(&mut self) {
        self.flight = None;
        self.draining = None;
        self.waking = None;
    }

    /// Deactivates active workers that have no connection and expect none; the last ones named go first.
    fn rest_the_empty(&mut self, now: Instant) {
        for at in (0..self.roster.seats.len()).rev() {
            let seat = &self.roster.seats[at];
            let is_woken = self.waking.is_some_and(|waking| waking.target == at);
            let may_rest = seat.active && seat.connections == 0 && seat.expecting_until <= now && !is_woken;
            if may_rest && self.roster.active() > self.min_active() {
                self.roster.deactivate(at, &mut self.commands);
            }
        }
    }

    fn min_active(&self) -> usize {
        usize::from(self.params.min_active.max(1))
    }

    /// The load that `at` can take on before it reaches `filled` times its limit.
    fn room(&self, at: usize, filled: f64) -> Rate {
        self.limit_of(at).map_or(Rate::ZERO, |limit| limit.scale(filled) - self.roster.seats[at].load)
    }

    /// Orders the next transfer of a scale-down, if one is possible.
    fn drain(&mut self, now: Instant) -> bool {
        let draining = self.draining.take();
        let fits_since = self.fits_since.take();
        let Some((victim, target)) = self.fit(now, draining) else { return false };
        if draining != Some(victim) {
            let since = *self.fits_since.insert(fits_since.unwrap_or(now));
            if now.since(since) < self.params.fit_patience {
                return false;
            }
        }
        self.fits_since = None;
        self.draining = Some(victim);
        self.order(now, victim, target, Pick::NextServed);
        true
    }

    /// The scale-down worker, `draining` if it still can be, and the destination of its next connection.
    fn fit(&self, now: Instant, draining: Option<usize>) -> Option<(usize, usize)> {
        let is_occupied = |at: usize| self.roster.seats[at].active && self.roster.seats[at].connections > 0;
        let is_free = |at: usize| !self.is_barred(at, now);
        let occupied: Vec<usize> = (0..self.roster.seats.len()).filter(|&at| is_occupied(at)).collect();
        let unknown = occupied.iter().any(|&at| !self.roster.seats[at].seen);
        if occupied.len() <= self.min_active() || unknown || self.goal_missed > 0 {
            return None;
        }
        let free = || occupied.iter().copied().filter(|&at| is_free(at));
        let current = draining.filter(|&at| is_occupied(at) && is_free(at));
        let victim = current.or_else(|| free().min_by(|&a, &b| self.roster.by_load(a, b)))?;
        let takers = || free().filter(|&at| at != victim);
        let seat = &self.roster.seats[victim];
        let room: Rate = takers().map(|at| self.room(at, self.params.headroom)).sum();
        if room < seat.load {
            return None;
        }
        // Which connection will be served next is not known: the usual one must fit with headroom, the heaviest at all.
        let mean = seat.load.scale(1.0 / f64::from(seat.connections));
        let heaviest = seat.heaviest.min(seat.load);
        let fits = |at: usize| self.room(at, self.params.headroom) >= mean && self.room(at, 1.0) >= heaviest;
        let target = takers().filter(|&at| fits(at)).min_by(|&a, &b| self.roster.by_load(a, b))?;
        Some((victim, target))
    }

    /// After several readings with the tail above the goal: gives one more worker its share of the connections.
    fn wake(&mut self, now: Instant) -> bool {
        if self.goal_missed >= self.params.goal_readings.max(1) && self.waking.is_none() {
            self.goal_missed = 0;
            self.draining = None;
            let seats = &self.roster.seats;
            let neighbours = |at: usize| seats.iter().filter(|s| s.active && s.cpu == seats[at].cpu).count();
            // A worker on a CPU that already works hard helps least.
            let asleep = (0..seats.len()).filter(|&at| !seats[at].active).min_by_key(|&at| neighbours(at));
            let connections: u32 = seats.iter().map(|seat| seat.connections).sum();
            let share = connections / (self.roster.active() as u32 + 1);
            if let Some(target) = asleep.filter(|_| share > 0) {
                self.waking = Some(Waking { target, moves_left: share });
                self.roster.activate(target, &mut self.commands);
                self.bar(target, now);
            }
        }
        let Some(waking) = self.waking.take() else { return false };
        let target = waking.target;
        let gives =
            |at: usize| at != target && self.roster.seats[at].active && self.roster.seats[at].connections > 1;
        let source =
            (0..self.roster.seats.len()).filter(|&at| gives(at)).max_by(|&a, &b| self.roster.by_load(a, b));
        let has_share = waking.moves_left == 0 || self.roster.seats[target].load > self.share();
        let Some(source) = source.filter(|_| !has_share) else { return false };
        self.waking = Some(Waking { moves_left: waking.moves_left - 1, ..waking });
        self.bar(source, now);
        self.order(now, source, target, Pick::NextServed);
        true
    }

    /// A lasting imbalance between active workers: moves the connection that fits best from the one to the other.
    fn relieve(&mut self, now: Instant) -> bool {
        let Some(patience) = self.params.imbalance_patience else { return false };
        let share = self.share();
        let candidates = || {
            (0..self.roster.seats.len())
                .filter(|&at| self.roster.seats[at].active && !self.is_barred(at, now))
        };
        let most = candidates().max_by(|&a, &b| self.roster.by_load(a, b));
        let least = candidates().min_by(|&a, &b| self.roster.by_load(a, b));
        let (Some(most), Some(least)) = (most, least) else {
            self.unfair_since = None;
            return false;
        };
        let (above, below) = (self.roster.seats[most].load, self.roster.seats[least].load);
        // Three standard deviations of the measurement's own noise, or small loads would never look even.
        let span_s = self.params.window_span.max(self.params.report_period).as_secs_f64();
        let noise = Rate::per_second(3.0 * (share.as_per_second() / span_s).sqrt());
        let margin = share.scale(self.params.imbalance).max(noise);
        if above <= share + margin || below + margin >= share {
            self.unfair_since = None;
            return false;
        }
        let since = *self.unfair_since.get_or_insert(now);
        let movable = self.movable[most].filter(|movable| movable.load < above - below);
        let Some(movable) = movable.filter(|_| now.since(since) >= patience) else { return false };
        self.unfair_since = None;
        self.movable[most] = None;
        self.order(now, most, least, Pick::This(movable.conn));
        true
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
