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

use super::{Load, Params};
use crate::roster::{PendingMigration, WorkerTable};
use crate::{Guidance, Movable, Moved, Placement};
use machine::{Command, CpuId, Instant, Pick, Rate, Reading, WorkerId, WorkerReading};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A difference of so much of a worker's time is not worth a move.
const BUSY_NOISE: f64 = 0.05;

/// A worker that is being woken for the latency goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Waking {
    target: usize,
    moves_left: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduler {
    params: Params,
    roster: WorkerTable,
    barred_until: Vec<Instant>,
    /// The scale-down worker, while it is being emptied.
    draining: Option<usize>,
    /// Since when the least loaded worker fits on the others.
    fits_since: Option<Instant>,
    waking: Option<Waking>,
    flight: Option<PendingMigration>,
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
            roster: WorkerTable::new(workers),
            barred_until: vec![Instant::ZERO; workers.len()],
            draining: None,
            fits_since: None,
            waking: None,
            flight: None,
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
        self.roster.handle_reading(reading, &mut self.commands);
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
        if let Some(at) = self.roster.place_of(worker) {
            self.movable[at] = movable;
        }
    }

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

    /// A worker could not obey an order, or the connection closed in mid-transfer. The next order
    /// waits for the next reading or timeout, or it would be refused again.
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

    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Where a new connection goes: home by round robin. A home that is inactive, or is about to
    /// be, lets the least loaded active worker serve, unless that has no room either, or the home
    /// has learned nothing yet: then the connection wakes its home.
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

    /// The figures of the whole that every worker needs.
    pub fn guidance(&self) -> Guidance {
        Guidance { fallback_limit: self.fallback_limit(), share: self.unfair_since.map(|_| self.share()) }
    }

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

    /// Deactivates active workers that have no connection and expect none; the last ones named go
    /// first.
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

    /// The scale-down worker, `draining` if it still can be, and the destination of its next
    /// connection.
    fn fit(&self, now: Instant, draining: Option<usize>) -> Option<(usize, usize)> {
        let is_occupied = |at: usize| self.roster.seats[at].active && self.roster.seats[at].connections > 0;
        let is_free = |at: usize| !self.is_barred(at, now);
        let occupied: Vec<usize> = (0..self.roster.seats.len()).filter(|&at| is_occupied(at)).collect();
        let unknown = occupied.iter().any(|&at| !self.roster.seats[at].seen);
        let too_much = self.goal_missed > 0 || self.swamped > 0;
        if occupied.len() <= self.min_active() || unknown || too_much {
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
        // Which connection will be served next is not known: the usual one must fit with headroom,
        // the heaviest at all.
        let mean = seat.load.scale(1.0 / f64::from(seat.connections));
        let heaviest = seat.heaviest.min(seat.load);
        let fits = |at: usize| self.room(at, self.params.headroom) >= mean && self.room(at, 1.0) >= heaviest;
        let target = takers().filter(|&at| fits(at)).min_by(|&a, &b| self.roster.by_load(a, b))?;
        Some((victim, target))
    }

    /// After several readings with the tail above the goal, or with a worker that is busy all the
    /// time: gives one more worker its share of the connections.
    fn wake(&mut self, now: Instant) -> bool {
        let patience = self.params.goal_readings.max(1);
        let too_much = self.goal_missed >= patience || self.swamped >= patience;
        if too_much && self.waking.is_none() {
            self.goal_missed = 0;
            self.swamped = 0;
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

    /// A lasting imbalance between active workers: moves the connection that fits best from the one
    /// to the other.
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
        // Three standard deviations of the measurement's own noise, or small loads would never look
        // even.
        let span_s = self.params.window_span.max(self.params.report_period).as_secs_f64();
        let noise = match self.params.load {
            Load::Requests => Rate::per_second(3.0 * (share.as_per_second() / span_s).sqrt()),
            Load::BusyTime => Rate::per_second(BUSY_NOISE),
        };
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
        self.flight = Some(PendingMigration { source, target, deadline: now + self.params.order_deadline });
        self.roster.expect(target, now, self.params.order_deadline);
        self.commands.push_back(Command::MoveConnection {
            source: self.roster.seats[source].id,
            target: self.roster.seats[target].id,
            pick,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Why;
    use machine::{ConnId, Duration, Ratio, ServiceReading};

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn scheduler(workers: u16, params: Params) -> Scheduler {
        let workers: Vec<_> = (0..workers).map(|id| (WorkerId(id), CpuId(id / 2))).collect();
        Scheduler::new(params, &workers)
    }

    /// Load, connections, limit of each worker.
    fn reading(workers: &[(f64, u32, f64)]) -> Reading {
        let report = |(id, &(load, connections, limit)): (u16, &(f64, u32, f64))| WorkerReading {
            worker: WorkerId(id),
            connections,
            residents: connections,
            load: Rate::per_second(load),
            resident_load: Rate::per_second(load),
            limit: (limit > 0.0).then(|| Rate::per_second(limit)),
            heaviest: Rate::per_second(load / f64::from(connections.max(1))),
            rate: None,
            busy: Ratio::ZERO,
            tail: None,
        };
        Reading { workers: (0..).zip(workers).map(report).collect(), ..Reading::default() }
    }

    fn commands(scheduler: &mut Scheduler) -> Vec<Command> {
        std::iter::from_fn(|| scheduler.poll_command()).collect()
    }

    /// The same reading until a fit has lasted for long enough.
    fn persist(scheduler: &mut Scheduler, from_ms: u64, reading: &Reading) -> Vec<Command> {
        (0..6).for_each(|period| scheduler.handle_reading(at_ms(from_ms + 100 * period), reading));
        commands(scheduler)
    }

    fn moves(source: u16, target: u16) -> Command {
        Command::MoveConnection { source: WorkerId(source), target: WorkerId(target), pick: Pick::NextServed }
    }

    fn moved(source: u16, target: u16, why: Why, load: f64) -> Moved {
        Moved { source: WorkerId(source), target: WorkerId(target), why, load: Rate::per_second(load) }
    }

    #[test]
    fn the_least_loaded_gives_to_the_then_least_loaded() {
        let mut scheduler = scheduler(3, Params::default());
        let light = reading(&[(100.0, 4, 1000.0), (300.0, 4, 1000.0), (200.0, 4, 1000.0)]);
        assert_eq!(persist(&mut scheduler, 0, &light), [moves(0, 2)]);
        scheduler.handle_moved(at_ms(1000), &moved(0, 2, Why::Ordered, 150.0));
        assert_eq!(commands(&mut scheduler), [moves(0, 1)], "worker 2 has more now");
    }

    #[test]
    fn nothing_is_packed_that_does_not_fit_with_headroom() {
        // 0.8 x 1000 x 2 = 1600 for the two that would remain.
        for (load, fits) in [(540.0, false), (530.0, true)] {
            let mut scheduler = scheduler(3, Params::default());
            let all = reading(&[(load, 10, 1000.0), (load, 10, 1000.0), (load, 10, 1000.0)]);
            assert_eq!(!persist(&mut scheduler, 0, &all).is_empty(), fits, "{load}");
        }
    }

    #[test]
    fn the_printed_rules_pack_at_once_and_up_to_the_limit() {
        let mut scheduler = scheduler(2, Params::paper());
        scheduler.handle_reading(at_ms(0), &reading(&[(500.0, 10, 1000.0), (500.0, 10, 1000.0)]));
        assert_eq!(commands(&mut scheduler), [moves(0, 1)]);
    }

    #[test]
    fn one_low_reading_among_high_ones_empties_nobody() {
        let mut scheduler = scheduler(2, Params::default());
        let (low, high) = ([(300.0, 5, 1000.0); 2], [(450.0, 5, 1000.0); 2]);
        for period in 0..100 {
            let now = if period % 4 == 0 { reading(&high) } else { reading(&low) };
            scheduler.handle_reading(at_ms(100 * period), &now);
        }
        assert_eq!(commands(&mut scheduler), []);
    }

    #[test]
    fn a_connection_too_heavy_for_every_destination_stays() {
        let mut scheduler = scheduler(3, Params::default());
        let mut fat = reading(&[(350.0, 2, 1000.0), (600.0, 9, 1000.0), (600.0, 9, 1000.0)]);
        assert_eq!(persist(&mut scheduler, 0, &fat), [moves(0, 1)]);
        let mut scheduler = super::tests::scheduler(3, Params::default());
        fat.workers[0].heaviest = Rate::per_second(349.0);
        fat.workers[1].load = Rate::per_second(700.0);
        fat.workers[2].load = Rate::per_second(500.0);
        fat.workers[2].limit = Some(Rate::per_second(840.0));
        assert_eq!(persist(&mut scheduler, 0, &fat), [], "300 and 340 are free below the limits");
    }

    #[test]
    fn both_ends_of_a_homecoming_are_barred_for_thirty_seconds() {
        let mut scheduler = scheduler(3, Params::default());
        let light = reading(&[(100.0, 4, 1000.0), (100.0, 4, 1000.0), (100.0, 4, 1000.0)]);
        scheduler.handle_reading(at_ms(0), &light);
        scheduler.handle_moved(at_ms(0), &moved(0, 1, Why::Burst, 10.0));
        assert_eq!(
            persist(&mut scheduler, 10, &light),
            [],
            "one is left, with nowhere to give and none to take from"
        );
        assert_eq!(scheduler.poll_timeout(), Some(at_ms(30_000)));
        scheduler.handle_timeout(at_ms(29_999));
        assert_eq!(commands(&mut scheduler), []);
        scheduler.handle_timeout(at_ms(30_000));
        assert_eq!(scheduler.poll_timeout(), Some(at_ms(30_500)), "it fits, and must do so for a while");
        scheduler.handle_timeout(at_ms(30_500));
        assert_eq!(commands(&mut scheduler), [moves(0, 1)], "no reading was needed");
    }

    #[test]
    fn an_order_without_an_answer_is_forgotten() {
        let mut scheduler = scheduler(2, Params { fit_patience: Duration::ZERO, ..Params::default() });
        let light = reading(&[(100.0, 4, 1000.0), (100.0, 4, 1000.0)]);
        let orders: Vec<_> = (0..5)
            .map(|period| {
                scheduler.handle_reading(at_ms(100 * period), &light);
                commands(&mut scheduler).len()
            })
            .collect();
        assert_eq!(orders, [1, 0, 1, 0, 1], "one per 200 ms");
        // An answer that comes too late counts by its own content and answers no other order.
        scheduler.handle_moved(at_ms(450), &moved(1, 0, Why::Ordered, 10.0));
        assert_eq!(commands(&mut scheduler), []);
    }

    #[test]
    fn a_refusal_waits_for_the_next_look() {
        let mut scheduler = scheduler(2, Params { fit_patience: Duration::ZERO, ..Params::default() });
        let light = reading(&[(100.0, 4, 1000.0), (100.0, 4, 1000.0)]);
        scheduler.handle_reading(at_ms(0), &light);
        assert_eq!(commands(&mut scheduler), [moves(0, 1)]);
        scheduler.handle_refused(WorkerId(1));
        assert!(scheduler.flight.is_some(), "the other's refusal is none of this order's");
        scheduler.handle_refused(WorkerId(0));
        assert_eq!(commands(&mut scheduler), []);
        scheduler.handle_reading(at_ms(100), &reading(&[(0.0, 0, 1000.0), (100.0, 4, 1000.0)]));
        assert_eq!(commands(&mut scheduler), [Command::Deactivate(WorkerId(0))]);
    }

    #[test]
    fn new_connections_go_home_round_robin_or_to_the_least_loaded_active() {
        let mut scheduler = scheduler(3, Params::default());
        let homes: Vec<_> = (0..4).map(|_| scheduler.place(at_ms(0))).collect();
        assert!(homes.iter().all(|placement| placement.home == placement.serve));
        assert_eq!(homes.iter().map(|placement| placement.home.0).collect::<Vec<_>>(), [0, 1, 2, 0]);
        // Worker 1 was emptied; its next connection is served by the lighter of the others.
        scheduler.handle_reading(
            at_ms(100),
            &reading(&[(700.0, 9, 1000.0), (0.0, 0, 1000.0), (650.0, 9, 1000.0)]),
        );
        assert_eq!(commands(&mut scheduler), [Command::Deactivate(WorkerId(1))]);
        assert_eq!(scheduler.place(at_ms(200)), Placement { home: WorkerId(1), serve: WorkerId(2) });
        assert_eq!(scheduler.place(at_ms(200)).serve, WorkerId(2));
        assert_eq!(scheduler.place(at_ms(200)).serve, WorkerId(0));
        // With no room anywhere it wakes its home.
        scheduler.handle_reading(
            at_ms(300),
            &reading(&[(950.0, 9, 1000.0), (0.0, 0, 1000.0), (950.0, 9, 1000.0)]),
        );
        assert_eq!(scheduler.place(at_ms(300)), Placement { home: WorkerId(1), serve: WorkerId(1) });
        assert_eq!(commands(&mut scheduler), [Command::Activate(WorkerId(1))]);
    }

    #[test]
    fn an_inactive_home_that_has_learned_nothing_is_woken() {
        let mut scheduler = scheduler(2, Params::default());
        scheduler.handle_timeout(at_ms(0));
        assert_eq!(commands(&mut scheduler), [Command::Deactivate(WorkerId(1))]);
        scheduler.place(at_ms(1));
        assert_eq!(scheduler.place(at_ms(2)), Placement { home: WorkerId(1), serve: WorkerId(1) });
        assert_eq!(commands(&mut scheduler), [Command::Activate(WorkerId(1))]);
        scheduler.handle_timeout(at_ms(20));
        assert_eq!(commands(&mut scheduler), [], "it is on its way");
    }

    #[test]
    fn a_reading_older_than_a_placement_puts_nobody_to_sleep() {
        let mut scheduler = scheduler(2, Params::default());
        scheduler.place(at_ms(0));
        scheduler.place(at_ms(0));
        let stale = reading(&[(0.0, 0, 0.0), (0.0, 0, 0.0)]);
        scheduler.handle_reading(at_ms(1), &stale);
        assert_eq!(commands(&mut scheduler), [], "both connections may be on their way");
        assert_eq!(scheduler.poll_timeout(), Some(at_ms(50)));
        scheduler.handle_timeout(at_ms(50));
        assert_eq!(commands(&mut scheduler), [Command::Deactivate(WorkerId(1))]);
    }

    #[test]
    fn workers_without_a_limit_take_the_mean_of_the_others() {
        let mut scheduler = scheduler(3, Params::default());
        assert_eq!(scheduler.guidance().fallback_limit, None);
        let some = reading(&[(100.0, 4, 1000.0), (100.0, 4, 0.0), (0.0, 0, 3000.0)]);
        scheduler.handle_reading(at_ms(0), &some);
        assert_eq!(scheduler.guidance().fallback_limit, Some(Rate::per_second(2000.0)));
    }

    #[test]
    fn at_least_the_minimum_stays_active() {
        let mut scheduler = scheduler(4, Params { min_active: 2, ..Params::default() });
        let idle = reading(&[(0.0, 0, 0.0), (0.0, 0, 0.0), (0.0, 0, 0.0), (10.0, 2, 100.0)]);
        let commands = persist(&mut scheduler, 0, &idle);
        assert_eq!(commands, [Command::Deactivate(WorkerId(2)), Command::Deactivate(WorkerId(1))]);
        assert_eq!(scheduler.active().collect::<Vec<_>>(), [WorkerId(0), WorkerId(3)]);
    }

    #[test]
    fn a_missed_goal_wakes_a_worker_on_the_idlest_cpu() {
        let params = Params { latency_goal: Some(Duration::from_micros(500)), ..Params::default() };
        // Workers 0 and 1 share a CPU, 2 and 3 another.
        let mut scheduler = scheduler(4, params);
        let mut slow = reading(&[(400.0, 8, 1000.0), (0.0, 0, 0.0), (0.0, 0, 0.0), (0.0, 0, 0.0)]);
        slow.service = ServiceReading { p99: Some(Duration::from_millis(2)), ..ServiceReading::default() };
        scheduler.handle_reading(at_ms(0), &slow);
        scheduler.handle_reading(at_ms(100), &slow);
        assert_eq!(scheduler.active().collect::<Vec<_>>(), [WorkerId(0)]);
        commands(&mut scheduler);
        scheduler.handle_reading(at_ms(200), &slow);
        assert_eq!(commands(&mut scheduler), [Command::Activate(WorkerId(2)), moves(0, 2)]);
        for step in 1..4 {
            scheduler.handle_moved(at_ms(200 + step), &moved(0, 2, Why::Ordered, 50.0));
            assert_eq!(commands(&mut scheduler), [moves(0, 2)], "half of the connections");
        }
        scheduler.handle_moved(at_ms(210), &moved(0, 2, Why::Ordered, 50.0));
        assert_eq!(commands(&mut scheduler), []);
        slow.service.p99 = Some(Duration::from_micros(100));
        slow.workers =
            reading(&[(200.0, 4, 1000.0), (0.0, 0, 0.0), (200.0, 4, 1000.0), (0.0, 0, 0.0)]).workers;
        assert_eq!(persist(&mut scheduler, 300, &slow), [], "and they are barred from being packed again");
    }

    #[test]
    fn a_lasting_imbalance_is_relieved_by_the_connection_that_fits() {
        let mut scheduler = scheduler(2, Params::default());
        let crooked = reading(&[(9_000.0, 3, 10_000.0), (1_000.0, 3, 10_000.0)]);
        let heavy = Movable { conn: ConnId(42), load: Rate::per_second(3_500.0) };
        let mut relieved = None;
        for period in 0..80 {
            scheduler
                .handle_movable(WorkerId(0), Some(heavy).filter(|_| scheduler.guidance().share.is_some()));
            scheduler.handle_reading(at_ms(100 * period), &crooked);
            if let Some(command) = commands(&mut scheduler).pop() {
                relieved.get_or_insert((period, command));
            }
        }
        let this = Command::MoveConnection {
            source: WorkerId(0),
            target: WorkerId(1),
            pick: Pick::This(ConnId(42)),
        };
        assert_eq!(relieved, Some((50, this)), "after five seconds");
    }

    #[test]
    fn an_imbalance_of_small_loads_is_noise() {
        let mut scheduler =
            scheduler(2, Params { fit_patience: Duration::from_secs(1000), ..Params::default() });
        let small = reading(&[(60.0, 3, 10_000.0), (20.0, 3, 10_000.0)]);
        for period in 0..200 {
            scheduler
                .handle_movable(WorkerId(0), Some(Movable { conn: ConnId(1), load: Rate::per_second(20.0) }));
            scheduler.handle_reading(at_ms(100 * period), &small);
        }
        assert_eq!(commands(&mut scheduler), []);
    }

    #[test]
    fn readings_of_unknown_workers_are_ignored() {
        let mut scheduler = scheduler(1, Params::default());
        let strange = reading(&[(1.0, 1, 1.0), (5.0, 1, 1.0)]);
        assert_eq!(persist(&mut scheduler, 0, &strange), []);
        scheduler.handle_moved(at_ms(1), &moved(7, 9, Why::Ordered, 1.0));
        scheduler.handle_refused(WorkerId(9));
        scheduler.handle_released(at_ms(2), WorkerId(9));
    }
}
