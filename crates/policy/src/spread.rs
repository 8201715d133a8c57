//! Getting connections onto the workers that shall be awake, when their number is decided
//! elsewhere.
//!
//! Given "c workers awake", this chooses which (those that are stay, the least loaded leave first,
//! the first named come first), moves the connections of the others to the chosen ones one at a
//! time, evens out the load among the chosen, and lets the emptied ones rest.
//!
//! Invariants: every chosen worker is active; a worker with connections is active; one order
//! is under way at a time, and one that is not answered is forgotten; evening out stops, because
//! every move that is ordered lessens the difference between two workers, whichever connection is
//! taken.

use crate::worker_table::{Entry, PendingMigration, WorkerTable};
use crate::{Moved, Placement};
use machine::{Command, CpuId, Duration, Instant, Pick, Reading, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// An order that is not answered for this long is forgotten. The worker's own patience (10 ms) ends
/// long before.
const ORDER_DEADLINE: Duration = Duration::from_millis(200);
/// A connection may be under way to a worker for this long after it was sent.
const ARRIVAL_GRACE: Duration = Duration::from_millis(50);
/// Differences of load below this share of the mean are not evened out: they are noise.
const UNEVEN: f64 = 0.2;

/// A move makes two workers more even if the connection is lighter than their difference. By so
/// much lighter at least, whichever it is: loads are measured with an error.
const FITTING: f64 = 1.25;

/// Connections spread over a given number of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    table: WorkerTable,
    /// By entry, true if it shall be awake.
    chosen: Vec<bool>,
    pending: Option<PendingMigration>,
    last: Instant,
    commands: VecDeque<Command>,
}

impl Spread {
    /// The policy begins with all workers chosen.
    pub fn new(workers: &[(WorkerId, CpuId)]) -> Self {
        Self {
            table: WorkerTable::new(workers),
            chosen: vec![true; workers.len()],
            pending: None,
            last: Instant::ZERO,
            commands: VecDeque::new(),
        }
    }

    /// `wanted` workers shall be awake, at least one. Takes effect with the next `handle_*`.
    pub fn set_wanted(&mut self, wanted: u16) {
        let wanted = usize::from(wanted).clamp(1, self.chosen.len());
        let mut count = self.chosen.iter().filter(|&&chosen| chosen).count();
        while count < wanted {
            let next =
                self.chosen.iter().position(|&chosen| !chosen).expect("fewer are chosen than there are");
            self.chosen[next] = true;
            count += 1;
        }
        while count > wanted {
            let candidates = (0..self.chosen.len()).rev().filter(|&at| self.chosen[at]);
            let leaver = candidates.min_by(|&a, &b| self.table.by_load(a, b)).expect("one is chosen");
            self.chosen[leaver] = false;
            count -= 1;
        }
    }

    pub fn handle_reading(&mut self, now: Instant, reading: &Reading) {
        self.table.handle_reading(reading, &mut self.commands);
        self.step(now);
    }

    pub fn handle_moved(&mut self, now: Instant, moved: &Moved) {
        self.table.handle_moved(moved, &mut self.commands);
        if self.pending.is_some_and(|pending| pending.is_answered_by(&self.table, moved)) {
            self.pending = None;
        }
        self.step(now);
    }

    /// A worker could not obey. The next order waits for the next reading, or it would be refused
    /// again.
    pub fn handle_refused(&mut self, worker: WorkerId) {
        if self.pending.is_some_and(|pending| self.table.entries[pending.source].id == worker) {
            self.pending = None;
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

    pub fn poll_timeout(&self) -> Option<Instant> {
        let resting = self.table.expectations().filter(|&until| until > self.last);
        resting.chain(self.pending.map(|pending| pending.deadline)).min()
    }

    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// At home if home is chosen, else at the chosen worker with the least load.
    pub fn place(&mut self, now: Instant) -> Placement {
        let home = self.table.next_home();
        let stand_in = || self.table.least_loaded(|at, _| self.chosen[at]);
        let serve = if self.chosen[home] { home } else { stand_in().unwrap_or(home) };
        self.table.admit(serve, now, ARRIVAL_GRACE, &mut self.commands);
        Placement { home: self.table.entries[home].id, serve: self.table.entries[serve].id }
    }

    pub fn active(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.table.active_workers()
    }

    fn step(&mut self, now: Instant) {
        self.last = self.last.max(now);
        for at in (0..self.chosen.len()).filter(|&at| self.chosen[at]) {
            self.table.activate(at, &mut self.commands);
        }
        self.rest_the_empty(now);
        if self.pending.is_some_and(|pending| pending.deadline <= now) {
            self.pending = None;
        }
        if self.pending.is_none()
            && let Some((source, target)) = self.vacate().or_else(|| self.even_out())
        {
            self.pending = Some(PendingMigration { source, target, deadline: now + ORDER_DEADLINE });
            self.table.expect(target, now, ORDER_DEADLINE);
            self.commands.push_back(Command::MoveConnection {
                source: self.table.entries[source].id,
                target: self.table.entries[target].id,
                pick: Pick::NextServed,
            });
        }
    }

    fn rest_the_empty(&mut self, now: Instant) {
        for at in (0..self.chosen.len()).filter(|&at| !self.chosen[at]) {
            let Entry { connections, expecting_until, .. } = self.table.entries[at];
            if connections == 0 && expecting_until <= now {
                self.table.deactivate(at, &mut self.commands);
            }
        }
    }

    /// From a worker that shall rest to the least loaded that shall not.
    fn vacate(&self) -> Option<(usize, usize)> {
        let source = self.table.least_loaded(|at, entry| !self.chosen[at] && entry.connections > 0)?;
        let target = self.table.least_loaded(|at, _| self.chosen[at])?;
        Some((source, target))
    }

    /// From the most to the least loaded of the chosen, if that brings them closer whichever
    /// connection is taken.
    fn even_out(&self) -> Option<(usize, usize)> {
        let chosen = || (0..self.chosen.len()).filter(|&at| self.chosen[at]);
        let target = chosen().min_by(|&a, &b| self.table.by_load(a, b))?;
        let source = chosen().max_by(|&a, &b| self.table.by_load(a, b))?;
        let (from, to) = (&self.table.entries[source], &self.table.entries[target]);
        let difference = from.load - to.load;
        let mean = chosen().map(|at| self.table.entries[at].load).sum::<machine::Rate>();
        let mean = mean.scale(1.0 / chosen().count() as f64);
        let by_load = from.connections > 1
            && from.heaviest.as_per_second() > 0.0
            && difference >= from.heaviest.scale(FITTING).max(mean.scale(UNEVEN));
        let silent = mean.as_per_second() == 0.0;
        let by_count = silent && from.connections > to.connections + 1;
        (source != target && (by_load || by_count)).then_some((source, target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Why;
    use machine::{Rate, Ratio, WorkerReading};
    use proptest::prelude::*;

    fn spread(workers: u16) -> Spread {
        Spread::new(&(0..workers).map(|id| (WorkerId(id), CpuId(id))).collect::<Vec<_>>())
    }

    /// By worker, the loads of its connections.
    type Loads = Vec<Vec<f64>>;

    fn reading(loads: &Loads) -> Reading {
        let report = |(id, loads): (u16, &Vec<f64>)| WorkerReading {
            worker: WorkerId(id),
            connections: loads.len() as u32,
            residents: 0,
            load: Rate::per_second(loads.iter().sum()),
            resident_load: Rate::ZERO,
            limit: None,
            rate: None,
            heaviest: Rate::per_second(loads.iter().copied().fold(0.0, f64::max)),
            busy: Ratio::ZERO,
            tail: None,
        };
        Reading { workers: (0..).zip(loads).map(report).collect(), ..Reading::default() }
    }

    /// Obeys every command at once, moving the connection that `pick` chooses; returns the number
    /// of moves.
    fn obey(spread: &mut Spread, loads: &mut Loads, mut pick: impl FnMut(usize) -> usize) -> usize {
        let mut now = Instant::ZERO;
        let mut moves = 0;
        for _ in 0..400 {
            now += Duration::from_millis(100);
            spread.handle_reading(now, &reading(loads));
            while let Some(command) = spread.poll_command() {
                if let Command::MoveConnection { source, target, .. } = command {
                    let from = &mut loads[source.index()];
                    let load = from.remove(pick(from.len()));
                    loads[target.index()].push(load);
                    moves += 1;
                    let load = Rate::per_second(load);
                    spread.handle_moved(now, &Moved { source, target, why: Why::Ordered, load });
                }
            }
        }
        moves
    }

    #[test]
    fn the_least_loaded_leave_and_the_first_come_back() {
        let mut spread = spread(4);
        let mut loads = vec![vec![50.0], vec![10.0], vec![40.0], vec![20.0]];
        spread.handle_reading(Instant::ZERO, &reading(&loads));
        spread.set_wanted(2);
        obey(&mut spread, &mut loads, |_| 0);
        assert_eq!(spread.active().collect::<Vec<_>>(), [WorkerId(0), WorkerId(2)]);
        spread.set_wanted(3);
        obey(&mut spread, &mut loads, |_| 0);
        assert_eq!(spread.active().collect::<Vec<_>>(), [WorkerId(0), WorkerId(1), WorkerId(2)]);
        assert!(!loads[1].is_empty(), "what is awake is used: {loads:?}");
    }

    #[test]
    fn silent_connections_are_spread_by_count() {
        let mut spread = spread(4);
        let mut loads = vec![vec![0.0; 8], vec![], vec![], vec![]];
        obey(&mut spread, &mut loads, |_| 0);
        assert!(loads.iter().all(|loads| loads.len() == 2), "{loads:?}");
    }

    #[test]
    fn an_order_that_is_lost_is_given_again() {
        let mut spread = spread(2);
        let loads = vec![vec![5.0], vec![9.0]];
        spread.handle_reading(Instant::ZERO, &reading(&loads));
        spread.set_wanted(1);
        let orders = (0..10).filter(|&period| {
            spread.handle_reading(Instant::ZERO + Duration::from_millis(period * 100), &reading(&loads));
            spread.poll_command().is_some()
        });
        assert_eq!(orders.count(), 5, "once per deadline");
    }

    proptest! {
        #[test]
        fn any_number_of_workers_ends_with_just_those_serving_and_evenly(
            start in prop::collection::vec(prop::collection::vec(0.0..100.0_f64, 0..12), 1..9),
            wanted in prop::collection::vec(0_u16..12, 1..4),
            seed in any::<usize>(),
        ) {
            let mut spread = spread(start.len() as u16);
            let mut loads = start.clone();
            let mut next = seed;
            for &wanted in &wanted {
                spread.set_wanted(wanted);
                let moves = obey(&mut spread, &mut loads, |count| {
                    next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (next >> 33) % count
                });
                let clamped = usize::from(wanted).clamp(1, start.len());
                let active: Vec<_> = spread.active().collect();
                prop_assert_eq!(active.len(), clamped);
                for (id, loads) in (0..).map(WorkerId).zip(&loads) {
                    prop_assert!(loads.is_empty() || active.contains(&id));
                }
                let total: usize = loads.iter().map(Vec::len).sum();
                prop_assert!(moves <= 4 * total + 4, "{moves} moves for {total} connections");
            }
            let mut before: Vec<f64> = start.concat();
            let mut after: Vec<f64> = loads.concat();
            before.sort_by(f64::total_cmp);
            after.sort_by(f64::total_cmp);
            prop_assert_eq!(before, after);
        }
    }
}
