//! The steps of the scheduler: it rests the empty, empties the scale-down worker, wakes one more,
//! and relieves the loaded.

use super::{Scheduler, Waking};
use crate::peafowl::Load;
use crate::worker_table::PendingMigration;
use machine::{Command, Instant, Pick, Rate};

/// A difference of so much of a worker's time is not worth a move.
const BUSY_NOISE: f64 = 0.05;

impl Scheduler {
    /// Deactivates active workers that have no connection and expect none; the last ones named go
    /// first.
    pub(super) fn rest_the_empty(&mut self, now: Instant) {
        for at in (0..self.table.entries.len()).rev() {
            let entry = &self.table.entries[at];
            let is_woken = self.waking.is_some_and(|waking| waking.target == at);
            let may_rest =
                entry.active && entry.connections == 0 && entry.expecting_until <= now && !is_woken;
            if may_rest && self.table.active() > self.min_active() {
                self.table.deactivate(at, &mut self.commands);
            }
        }
    }

    fn min_active(&self) -> usize {
        usize::from(self.params.min_active.max(1))
    }

    /// The load that `at` can take on before it reaches `filled` times its limit.
    fn room(&self, at: usize, filled: f64) -> Rate {
        self.limit_of(at).map_or(Rate::ZERO, |limit| limit.scale(filled) - self.table.entries[at].load)
    }

    /// Orders the next transfer of a scale-down, if one is possible.
    pub(super) fn drain(&mut self, now: Instant) -> bool {
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
        let is_occupied = |at: usize| self.table.entries[at].active && self.table.entries[at].connections > 0;
        let is_free = |at: usize| !self.is_barred(at, now);
        let occupied: Vec<usize> = (0..self.table.entries.len()).filter(|&at| is_occupied(at)).collect();
        let unknown = occupied.iter().any(|&at| !self.table.entries[at].seen);
        let too_much = self.goal_missed > 0 || self.swamped > 0;
        if occupied.len() <= self.min_active() || unknown || too_much {
            return None;
        }
        let free = || occupied.iter().copied().filter(|&at| is_free(at));
        let current = draining.filter(|&at| is_occupied(at) && is_free(at));
        let victim = current.or_else(|| free().min_by(|&a, &b| self.table.by_load(a, b)))?;
        let takers = || free().filter(|&at| at != victim);
        let entry = &self.table.entries[victim];
        let room: Rate = takers().map(|at| self.room(at, self.params.headroom)).sum();
        if room < entry.load {
            return None;
        }
        // Which connection will be served next is not known: the usual one must fit with headroom,
        // the heaviest at all.
        let mean = entry.load.scale(1.0 / f64::from(entry.connections));
        let heaviest = entry.heaviest.min(entry.load);
        let fits = |at: usize| self.room(at, self.params.headroom) >= mean && self.room(at, 1.0) >= heaviest;
        let target = takers().filter(|&at| fits(at)).min_by(|&a, &b| self.table.by_load(a, b))?;
        Some((victim, target))
    }

    /// After several readings with the tail above the goal, or with a worker that is busy all the
    /// time: gives one more worker its share of the connections.
    pub(super) fn wake(&mut self, now: Instant) -> bool {
        let patience = self.params.goal_readings.max(1);
        let too_much = self.goal_missed >= patience || self.swamped >= patience;
        if too_much && self.waking.is_none() {
            self.goal_missed = 0;
            self.swamped = 0;
            self.draining = None;
            let entries = &self.table.entries;
            let neighbours =
                |at: usize| entries.iter().filter(|s| s.active && s.cpu == entries[at].cpu).count();
            // A worker on a CPU that already works hard helps least.
            let asleep =
                (0..entries.len()).filter(|&at| !entries[at].active).min_by_key(|&at| neighbours(at));
            let connections: u32 = entries.iter().map(|entry| entry.connections).sum();
            let share = connections / (self.table.active() as u32 + 1);
            if let Some(target) = asleep.filter(|_| share > 0) {
                self.waking = Some(Waking { target, moves_left: share });
                self.table.activate(target, &mut self.commands);
                self.bar(target, now);
            }
        }
        let Some(waking) = self.waking.take() else { return false };
        let target = waking.target;
        let gives = |at: usize| {
            at != target && self.table.entries[at].active && self.table.entries[at].connections > 1
        };
        let source =
            (0..self.table.entries.len()).filter(|&at| gives(at)).max_by(|&a, &b| self.table.by_load(a, b));
        let has_share = waking.moves_left == 0 || self.table.entries[target].load > self.share();
        let Some(source) = source.filter(|_| !has_share) else { return false };
        self.waking = Some(Waking { moves_left: waking.moves_left - 1, ..waking });
        self.bar(source, now);
        self.order(now, source, target, Pick::NextServed);
        true
    }

    /// A lasting imbalance between active workers: moves the connection that fits best from the one
    /// to the other.
    pub(super) fn relieve(&mut self, now: Instant) -> bool {
        let Some(patience) = self.params.imbalance_patience else { return false };
        let share = self.share();
        let candidates = || {
            (0..self.table.entries.len())
                .filter(|&at| self.table.entries[at].active && !self.is_barred(at, now))
        };
        let most = candidates().max_by(|&a, &b| self.table.by_load(a, b));
        let least = candidates().min_by(|&a, &b| self.table.by_load(a, b));
        let (Some(most), Some(least)) = (most, least) else {
            self.unfair_since = None;
            return false;
        };
        let (above, below) = (self.table.entries[most].load, self.table.entries[least].load);
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
        self.pending = Some(PendingMigration { source, target, deadline: now + self.params.order_deadline });
        self.table.expect(target, now, self.params.order_deadline);
        self.commands.push_back(Command::MoveConnection {
            source: self.table.entries[source].id,
            target: self.table.entries[target].id,
            pick,
        });
    }
}
