//! Crescendo: a request begins slowly and gains speed the longer it stays, so that the long ones
//! still make it.
//!
//! **The problem.** The length of a request is not known in advance. Rubik runs each as if it
//! were the longest that the goal speaks of; Hurry-up runs all slowly and the ones that have stayed
//! for a threshold at full speed, and the threshold has to be found. The cheapest way lies
//! between the two and follows from the distribution of work: speed is spent where few requests get
//! to.
//!
//! **The approach.** The computing of requests is measured as Rubik does it; from it come
//! *schedules*, operating points along the work of a request with the least energy for the time
//! that they take (`schedule`, from PACE). At every decision a core looks up the cheapest schedule
//! with which the longest request that the goal speaks of, having done as much as its head and
//! being as old as it, would still be in time. So a request that had to wait gets a faster
//! schedule, as does one whose clock came late. Requests that wait behind the head are Rubik's
//! matter: while there are any, the operating point is at least the one that Rubik asks for.
//! An [`ErrorBudget`] moves the goal, so that as many requests miss it as it allows.
//!
//! A stay costs more than the core: while one core is awake, the package is. That part, `shared`,
//! ends only where no other request keeps the package awake, which of Poisson arrivals to plenty of
//! cores one in e^L finds (L requests are there on average, by Little's law).
//!
//! **Invariants.** Until enough requests are known, and for a request that cannot make it any more
//! or is beyond the quantile, the fastest operating point; an older head or a longer queue never
//! lowers the operating point.

mod params;
mod schedule;
mod server;

pub use params::{ENTRY, Params};
pub use server::Server;

use super::rubik::{Head, Rubik};
use super::{PointIndex, PointTable};
use machine::{Duration, Instant};
use policy::error_budget::ErrorBudget;
use policy::frequency::log_histogram::LogHistogram;
use schedule::{Cost, Schedules};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub point: PointIndex,
    /// When to ask again if nothing happens before.
    pub review: Option<Instant>,
}

/// One for any number of cores: all cores share its knowledge, and [`Crescendo::choose`] reads
/// only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crescendo {
    params: Params,
    points: PointTable,
    rubik: Rubik,
    compute: LogHistogram,
    memory_ns: f64,
    stays_ns: f64,
    began: Option<Instant>,
    budget: ErrorBudget,
    schedules: Option<Schedules>,
}

impl Crescendo {
    pub fn new(params: Params, points: &PointTable) -> Self {
        Self {
            params,
            points: *points,
            rubik: Rubik::new(params.rubik(), points),
            compute: LogHistogram::new(),
            memory_ns: 0.0,
            stays_ns: 0.0,
            began: None,
            budget: ErrorBudget::new(1.0),
            schedules: None,
        }
    }

    /// A request is done: its computing (at nominal frequency), how long it waited for memory,
    /// and how long it took from its arrival.
    pub fn handle_completion(
        &mut self,
        now: Instant,
        compute: Duration,
        memory: Duration,
        response: Duration,
    ) {
        self.rubik.handle_completion(now, compute, memory, response);
        self.began.get_or_insert(now);
        self.compute.record(compute);
        self.memory_ns += memory.as_nanos() as f64;
        self.stays_ns += response.as_nanos() as f64;
        self.budget.record(response, self.params.rubik.target);
    }

    /// When to call [`Self::handle_timeout`]; never while no request completes.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.rubik.poll_timeout()
    }

    /// Ends the windows that are over.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.rubik.handle_timeout(now);
        self.budget.end_epoch(now, &self.params.terms());
        self.rubik.set_target(self.params.rubik.target.scale(self.budget.aim()));
        let enough = u64::from(self.params.rubik.samples_min.max(1));
        let window = self.began.map_or(Duration::ZERO, |began| now.since(began));
        if self.compute.total() >= enough && window >= self.params.rubik.rebuild_every {
            self.rebuild(window);
        }
    }

    /// For a core that executes `head` and then, in this order, the requests that came at
    /// `waiting`. A core with nothing to do gets the slowest operating point.
    pub fn choose(
        &self,
        now: Instant,
        head: Option<Head>,
        waiting: impl IntoIterator<Item = Instant>,
    ) -> Choice {
        let mut waiting = waiting.into_iter().peekable();
        let (Some(schedules), Some(head)) = (&self.schedules, head) else {
            return Choice { point: self.rubik.choose(now, head, waiting), review: None };
        };
        let target_ns = self.rubik.corrected_target().as_nanos() as f64;
        let delay_ns = self.params.rubik.dvfs_delay.as_nanos() as f64;
        let time_ns = target_ns - delay_ns - now.since(head.arrived).as_nanos() as f64;
        let Some(step) = schedules.step(head.done_compute.as_nanos() as f64, time_ns, &self.points) else {
            return Choice { point: self.points.fastest(), review: None };
        };
        let point = match waiting.peek() {
            Some(_) if step.point == self.points.fastest() => step.point,
            None => step.point,
            Some(_) => step.point.max(self.rubik.choose(now, Some(head), waiting)),
        };
        // Faster than planned, the next step comes sooner by as much at most.
        let faster = self.points.speed(step.point) / self.points.speed(point);
        let lasts = Duration::from_nanos((step.lasts_ns * faster).max(1.0) as u64);
        let review = (point != self.points.fastest()).then(|| now + lasts.max(self.least_part() / 4));
        Choice { point, review }
    }

    /// Shorter parts than so many changes of the clock are not worth planning.
    fn least_part(&self) -> Duration {
        self.params.rubik.dvfs_delay * CHANGES_IN_PART
    }

    fn rebuild(&mut self, window: Duration) {
        let total = self.compute.total() as f64;
        let present = self.stays_ns / (window.as_nanos() as f64).max(1.0);
        let cost = Cost {
            asleep: self.params.asleep,
            others_watts: self.params.shared.as_watts() * (-present).exp(),
            memory: self.memory_ns / (self.compute.mean_ns() * total).max(1.0),
        };
        let quantile = self.params.quantile();
        let least_ns = self.least_part().as_nanos() as f64;
        self.schedules = Schedules::of(&self.compute, quantile, least_ns, cost, &self.points);
        self.compute.clear();
        (self.memory_ns, self.stays_ns, self.began) = (0.0, 0.0, None);
    }
}

/// A part of the work takes at least so many times as long as the clock takes to change \[D\]; with
/// fewer the request is over before its clock has followed.
const CHANGES_IN_PART: u64 = 4;

#[cfg(test)]
mod closed_loop;
#[cfg(test)]
mod properties;
