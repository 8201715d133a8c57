//! CARB with a latency goal: the fewest workers with which the tail stays below a limit.
//!
//! **Problem.** CARB as printed steers by the slope of the tail: it stops where one worker less
//! makes things worse, and does not know whether worse is bad. An operator has a number
//! (`500us@p99`): below it no user gains from a lower tail, above it an operator is paged.
//!
//! **Approach** \[ours; the paper's search and its jump to all workers are kept\]. Each epoch
//! leaves a point on a *curve*: at this load, with so many workers, the tail was so long. From the
//! curve the search *jumps* where it has been before, and where it has not, it tries.
//!
//! - The goal is missed: to the fewest workers that are known to keep it at such a load, else to
//!   all of them. A user waits, so there is no stepping.
//! - It is kept with room to spare for some epochs: to one worker less, or straight to the fewest
//!   that are known to do. While none was too few and most have little work, it goes down by half of
//!   the idle ones: one at a time, the way from 128 workers to 8 would be six minutes. It does not go
//!   to a number that was too few at this load or a lower one; such a number is *barred* for a time
//!   that doubles with each failure, so that a goal just at the edge makes no saw-tooth.
//! - The rate jumps: to all workers at once, before the tail can tell (the paper's r_th). A rise that
//!   Poisson arrivals at an even rate show by chance is none: at a hundred requests a second about
//!   every thirtieth epoch of a second has one of a fifth.
//! - It is missed with all workers: cores are not lacking. Perhaps there are too many of them, each
//!   sleeping too deeply (CARB, Figure 3), so the search tries fewer while that helps, and stays
//!   where the tail was shortest. [`Why::OutOfReach`] then says that the goal cannot be kept by any
//!   number.
//! - No request at all: the fewest that are allowed.
//!
//! Terms. *Load* is the rate in buckets a fifth wide: a service's tail differs little within one.
//! The epoch after workers were added answers the requests that had queued up before, so it judges
//! nothing but a jump of the rate; the driver begins to count anew when a change is in force, so
//! that fewer workers are judged by their own effect.
//!
//! Invariants: the number stays within its bounds; an epoch without a rate or without a tail
//! changes nothing; under load and tails that stay the same the number settles, and the times
//! between two trials only grow.

mod params;
mod why;

pub use params::GoalParams;
pub use why::Why;

use super::{Epoch, Server, chance};
use crate::kind::Make;
use crate::registry::{Entry, Maturity, Runs, Word, settings};
use machine::{Duration, Goal, Rate, Ratio};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The search with a goal, as the registry lists it.
pub static GOAL_ENTRY: Entry = Entry {
    words: &[Word::new("carb-goal", "the fewest that keep the goal, as `roost govern --goal` does", |_| {
        settings(GoalParams::default())
    })],
    help: "The fewest workers with which the tail stays below the goal. Each epoch leaves a point: at this \
           load, with so many workers, the tail was so long. The search jumps to where it has been \
           before, and tries where it has not. It needs work that any core can take.",
    runs: Runs::Live,
    maturity: Maturity::Production,
    origin: "ours, with CARB's jump to all workers",
    needs_goal: true,
    not_by_connection: Some("write carb, or peafowl with a goal; or set another server.dispatch"),
    make: Make::Cores(|making| Box::new(Server::by_goal(making))),
    ..Entry::of::<GoalParams>()
};

/// The measurement at one load with one number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    /// A running mean over about four epochs, ns.
    tail_ns: f64,
    epochs: u32,
}

/// A number of workers that was too few.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Barred {
    until: u64,
    /// For how many epochs it was barred last.
    span: u64,
}

/// With all workers the goal is missed: fewer are tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Beyond {
    load: i16,
    best_active: u16,
    best: Duration,
    /// Fewer did not help: it stays at the best until this epoch, then everything is tried anew.
    settled_until: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoalSearch {
    params: GoalParams,
    goal: Goal,
    max_active: u16,
    active: u16,
    why: Why,
    epoch: u64,
    /// The next epoch judges nothing: workers were just added.
    changed: bool,
    previous_rate: Option<Rate>,
    peak: Rate,
    /// Epochs in a row with room.
    roomy: u32,
    /// Epochs in a row in which all of them missed the goal.
    missed: u32,
    /// By load, then by number of workers.
    curve: BTreeMap<i16, BTreeMap<u16, Seen>>,
    barred: BTreeMap<i16, BTreeMap<u16, Barred>>,
    beyond: Option<Beyond>,
}

impl GoalSearch {
    /// The search begins with all workers awake.
    pub fn new(params: GoalParams, goal: Goal, max_active: u16) -> Self {
        Self {
            params,
            goal,
            max_active: max_active.max(1),
            active: max_active.max(1),
            why: Why::Start,
            epoch: 0,
            changed: true,
            previous_rate: None,
            peak: Rate::ZERO,
            roomy: 0,
            missed: 0,
            curve: BTreeMap::new(),
            barred: BTreeMap::new(),
            beyond: None,
        }
    }

    /// How many workers shall be awake.
    pub fn active(&self) -> u16 {
        self.active
    }

    pub fn why(&self) -> Why {
        self.why
    }

    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Another goal from now on. Measurements stay true; verdicts by the old goal do not.
    pub fn set_goal(&mut self, goal: Goal) {
        self.goal = goal;
        self.barred.clear();
        self.beyond = None;
        self.roomy = 0;
    }

    /// Something between two epochs says that all workers are needed now.
    pub fn handle_alarm(&mut self) -> u16 {
        self.go(self.max_active, Why::Asked);
        self.active
    }

    /// The curve at the load seen last: by number of workers, the mean tail.
    pub fn curve(&self) -> impl Iterator<Item = (u16, Duration)> + '_ {
        let load = self.previous_rate.map(load_of);
        let at = load.and_then(|load| self.curve.get(&load));
        at.into_iter().flatten().map(|(&active, seen)| (active, Duration::from_nanos(seen.tail_ns as u64)))
    }

    /// An epoch is over; returns how many workers shall be awake in the next.
    pub fn handle_epoch(&mut self, epoch: &Epoch) -> u16 {
        self.epoch += 1;
        // Blind: a long blindness is another's question, and until then nothing changes.
        let Some(rate) = epoch.rate else { return self.active };
        self.peak = self.peak.max(rate);
        let before = self.previous_rate.replace(rate);
        let changed = std::mem::replace(&mut self.changed, false);
        if let Some(before) = before
            && self.has_jumped(before, rate)
        {
            self.go(self.max_active, Why::Jump { before, now: rate });
        } else if rate == Rate::ZERO {
            self.go(self.min_active(), Why::Silence);
        } else if let Some(tail) = epoch.tail
            && !changed
        {
            self.judge(load_of(rate), tail, epoch.busy);
        }
        self.active
    }

    fn has_jumped(&self, before: Rate, now: Rate) -> bool {
        let chance = chance(before + now, self.params.epoch).scale(self.params.noise_z);
        now - before > self.params.rate_jump.against(self.peak).max(chance)
    }

    fn judge(&mut self, load: i16, tail: Duration, busy: Option<Ratio>) {
        self.learn(load, tail);
        if tail > self.goal.latency {
            self.roomy = 0;
            if self.active == self.max_active || self.beyond.is_some_and(|beyond| beyond.load == load) {
                self.missed += 1;
                self.seek_below(load, tail, busy);
            } else {
                self.missed = 0;
                self.bar(load);
                let better = self.known_to_do(load).filter(|&active| active > self.active);
                self.beyond = None;
                self.go(better.unwrap_or(self.max_active), Why::Missed { tail });
            }
            return;
        }
        self.beyond = None;
        self.missed = 0;
        if let Some(barred) = self.barred.get_mut(&load).and_then(|at| at.get_mut(&self.active)) {
            // It does after all; should it fail again, the wait begins where it was.
            barred.until = barred.until.min(self.epoch);
        }
        if tail > self.goal.latency.scale(self.params.room.as_f64()) {
            self.roomy = 0;
            return;
        }
        self.roomy += 1;
        if self.roomy < self.params.patience || self.active <= self.min_active() {
            return;
        }
        let known = self.known_to_do(load).filter(|&known| known < self.active);
        let (fewer, why) =
            known.map_or((self.untried(load, busy), Why::Room { tail }), |known| (known, Why::Known));
        if self.may_try(load, fewer, busy) {
            self.go(fewer, why);
        }
    }

    /// The goal is missed with all workers, or was, and fewer are being tried.
    fn seek_below(&mut self, load: i16, tail: Duration, busy: Option<Ratio>) {
        let beyond = match self.beyond.filter(|beyond| beyond.load == load) {
            // One miss of all of them is bad luck; to take some away for it would be worse.
            None if self.missed < self.params.patience => return,
            None => Beyond { load, best_active: self.active, best: tail, settled_until: None },
            Some(beyond) if beyond.settled_until.is_some_and(|until| self.epoch < until) => {
                self.why = Why::OutOfReach { best: beyond.best };
                return;
            }
            Some(beyond) if beyond.settled_until.is_some() => {
                self.beyond = None;
                self.go(self.max_active, Why::Missed { tail });
                return;
            }
            Some(beyond) if tail < beyond.best => Beyond { best_active: self.active, best: tail, ..beyond },
            // Not clearly worse: further on it may be better.
            Some(beyond) if tail <= beyond.best.scale(1.0 + NOISE) => beyond,
            Some(beyond) => return self.stay_at(beyond),
        };
        self.beyond = Some(beyond);
        // A busy worker does not sleep, so no sleep is to blame.
        if self.active > self.min_active() && self.may_try(load, self.active - 1, busy) {
            self.go(self.active - 1, Why::TooMany { tail });
        } else {
            self.stay_at(beyond);
        }
    }

    /// No number keeps the goal: the best one, until it is time to try again.
    fn stay_at(&mut self, beyond: Beyond) {
        let until = self.epoch + u64::from(self.params.barred_epochs) * 4;
        self.beyond = Some(Beyond { settled_until: Some(until), ..beyond });
        self.go(beyond.best_active, Why::OutOfReach { best: beyond.best });
    }

    fn learn(&mut self, load: i16, tail: Duration) {
        let seen = self.curve.entry(load).or_default().entry(self.active);
        let seen = seen.or_insert(Seen { tail_ns: tail.as_nanos() as f64, epochs: 0 });
        seen.epochs = seen.epochs.saturating_add(1);
        // The mean of the first four, then one that forgets.
        seen.tail_ns += (tail.as_nanos() as f64 - seen.tail_ns) / f64::from(seen.epochs.min(4));
    }

    /// The fewest workers that were seen to keep the goal with room at this load or a little above,
    /// and are not barred.
    fn known_to_do(&self, load: i16) -> Option<u16> {
        let room = self.goal.latency.scale(self.params.room.as_f64()).as_nanos() as f64;
        let near = self.curve.range(load..=load.saturating_add(1));
        let does = near.flat_map(|(_, curve)| curve).filter(|(_, seen)| seen.tail_ns <= room);
        does.map(|(&active, _)| active)
            .filter(|&active| active >= self.min_active() && !self.is_barred(load, active))
            .min()
    }

    /// Fewer workers where it has not been: one less next to a number that was too few, or where the others
    /// would be busy; else less by a share of those without work.
    fn untried(&self, load: i16, busy: Option<Ratio>) -> u16 {
        let was_too_few = self.barred.range(..=load).any(|(_, at)| !at.is_empty());
        let half_busy = busy.filter(|_| !was_too_few).map_or(f64::from(self.active), |busy| {
            2.0 * busy.as_f64() * f64::from(self.active) / self.params.busiest.as_f64()
        });
        let stride = (f64::from(self.active) - half_busy) * self.params.stride.as_f64();
        self.active.saturating_sub((stride as u16).max(1)).max(self.min_active())
    }

    fn may_try(&self, load: i16, fewer: u16, busy: Option<Ratio>) -> bool {
        let busier =
            busy.map_or(0.0, |busy| busy.as_f64() * f64::from(self.active) / f64::from(fewer.max(1)));
        busier <= self.params.busiest.as_f64() && !self.is_barred(load, fewer)
    }

    /// Too few at a lower load are too few at this one, and fewer than too few are.
    fn is_barred(&self, load: i16, active: u16) -> bool {
        let mut barred = self.barred.range(..=load).flat_map(|(_, at)| at.range(active..));
        barred.any(|(_, barred)| self.epoch < barred.until)
    }

    fn bar(&mut self, load: i16) {
        let first = u64::from(self.params.barred_epochs.max(1));
        let at = self.barred.entry(load).or_default();
        let span = at.get(&self.active).map_or(first, |barred| (barred.span * 2).min(first * 128));
        at.insert(self.active, Barred { until: self.epoch + span, span });
    }

    fn go(&mut self, active: u16, why: Why) {
        let active = active.clamp(self.min_active(), self.max_active);
        self.roomy = 0;
        // The queue from before is answered in the epoch after. Fewer workers have only the queue
        // that they cause.
        self.changed = active > self.active;
        self.active = active;
        self.why = why;
    }

    fn min_active(&self) -> u16 {
        self.params.min_active.clamp(1, self.max_active)
    }
}

/// Loads a fifth apart: -inf and zero do not occur, since silence is answered before.
fn load_of(rate: Rate) -> i16 {
    (rate.as_per_second().max(1e-3).ln() / LOAD_STEP.ln()).floor() as i16
}

/// The ratio of neighbouring loads.
const LOAD_STEP: f64 = 1.2;

/// Tails that differ by less are the same: a p99 of a thousand requests scatters by so much.
const NOISE: f64 = 0.1;

#[cfg(test)]
mod tests;
