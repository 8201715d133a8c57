//! Cores, frequency and idle states chosen jointly: as few awake cores, as slow a clock and as
//! deep a sleep as the latency goal allows, and more within microseconds when the queue says that
//! the goal is in danger.
//!
//! **The problem.** Packing (CARB, Peafowl) lets most cores sleep, but knows no latency goal and
//! runs the rest at full speed; DVFS (Rubik, Pegasus) knows the goal, but keeps all cores awake,
//! most of the time for nothing; governors that choose sleeps (menu, uDPM) find only the gaps that
//! the others leave. The Peafowl paper names the combination as future work (section 6). The three
//! are one choice: the slack that the goal leaves can be spent on fewer cores, on a slower clock,
//! or on longer exits from sleep, and which is worth most depends on the load.
//!
//! **The approach.** Once an epoch, which lasts until some dozens of requests were seen, the policy
//! knows the arrival rate, its irregularity, and the distribution of service times. A model
//! predicts tail and power of every *plan*: how many cores are active, how fast they run, in which
//! idle state they spend their gaps; the others are *parked* in the deepest. The plan of least
//! power within the goal is the *base*. How fast is a *pace*: one operating point, or operating
//! points that follow the length of the queue at each event, which keeps the speed even at the
//! load's need. Three things make up for the model's limits:
//! - the measured tail corrects the predicted one by a factor (`correction`), and a goal that is
//!   missed by jumps of the load, which teach the model nothing, has plans made for the peaks
//!   (`reserve`); with a gain the aim follows the misses ([`ErrorBudget`]); the power of surges is
//!   learned as well (`correction`);
//! - more requests in the system than the active cores can do in time, and than are usual where all share
//!   one queue, are an *alarm*. If the fastest operating point is not enough, it begins a *surge*: as many
//!   cores as the queue and the present rate need are woken, and all run in the fastest operating point
//!   until the queue is short again and their wake-up has paid (`guard`);
//! - an alarm at which the rate turns out to be another ends the epoch early; a load that stops
//!   ends it with the least plan at its regular end.
//!
//! **Anticipation.** Active cores sleep more deeply than C1 where the goal has room for the exit
//! latency; a surge counts the requests that will have come by the time that a core is awake.
//!
//! **Terms.** Times that are learned are nanoseconds at the nominal clock. The *tail* is the goal's
//! quantile of the response time. A *core* is one server of the queue: with hyperthreads, a
//! hyperthread.
//!
//! **Invariants.** At least one core is active and at most all; operating point and state are in
//! their tables; a base plan's cores are busy for at most 98 % of the time in their fastest
//! operating point at the rate that it is made for, and if no such plan keeps the goal it is all
//! cores, or as many as make the tail no longer by more than is no matter to the goal, in the fastest
//! operating point and *ready*, in the deepest state whose exit is no matter; until enough is known it is
//! all cores; an arrival lowers nothing (cores, operating point, readiness); the same calls give the same
//! plans; timeouts may come early, late or twice. Work per event is constant, and nothing is allocated but
//! when a plan is made.
//!
//! Files: `arrivals`, `service` and `lengths` measure, from each request or from counts (`answered`);
//! `waiting`, `model` and `chain` predict for a `pace`, with the power of a `package`, for the time that a
//! `device` leaves; `search` chooses; `guard` watches, and leaves queues alone that are `usual`;
//! `correction` and `reserve` learn; `server` and `scheduler` are for drivers that tell each request, and
//! that place connections.

mod answered;
mod arrivals;
mod chain;
mod correction;
mod device;
mod guard;
mod lengths;
mod model;
mod pace;
mod package;
mod params;
mod reserve;
mod scheduler;
mod search;
mod server;
mod service;
mod surge;
mod usual;
mod waiting;

pub use answered::Answered;
pub use params::{ENTRY, Params, Queueing, STORE_ENTRY};
pub use scheduler::Scheduler;
pub use server::Server;

use crate::SleepState;
use crate::error_budget::ErrorBudget;
use crate::frequency::{PointIndex, PointTable};
use crate::kind::Completion;
use answered::held;
use arrivals::{Arrivals, Load};
use correction::{Correction, Goal};
use device::Devices;
use guard::Guard;
use machine::{CstateIndex, Instant};
use model::Model;
use package::Package;
use reserve::Reserve;
use search::{Base, Rated, Search, Speed};
use serde::{Deserialize, Serialize};
use service::Service;
use surge::Surges;
use usual::Usual;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// So many cores take requests. The others finish their requests and sleep in the deepest
    /// state.
    pub active: u16,
    /// The operating point of the active cores.
    pub point: PointIndex,
    /// The idle state of the active cores.
    pub idle: CstateIndex,
}

impl Plan {
    /// At least as ready as both.
    fn stronger(self, other: Self) -> Self {
        Self {
            active: self.active.max(other.active),
            point: self.point.max(other.point),
            idle: self.idle.min(other.idle),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Joint {
    params: Params,
    cores: u16,
    points: PointTable,
    states: Vec<SleepState>,
    #[serde(default)]
    package: Option<Package>,
    /// In which a core is as good as awake.
    ready: CstateIndex,
    plan: Plan,
    base: Base,
    guard: Guard,
    in_system: u32,
    /// There is nothing to do for an arrival up to so many in the system, ...
    watch_above: u32,
    /// ... nor for a completion with more than so many.
    watch_below: u32,
    /// More cores than the base plan's are active, until then at least.
    surge_until: Option<Instant>,
    surges: Surges,
    #[serde(default = "Usual::new")]
    usual: Usual,
    /// When the next plan is due; never while nothing happens.
    epoch_ends: Option<Instant>,
    /// The last report, where requests are told by their counts.
    told: Option<Instant>,
    /// The plans of the last reports, the latest first.
    reported: [Option<Base>; 2],
    arrivals: Arrivals,
    service: Service,
    #[serde(default = "Devices::new")]
    devices: Devices,
    correction: Correction,
    reserve: Reserve,
    budget: ErrorBudget,
}

impl Joint {
    /// For `cores` cores with these operating points and these idle states, shallow to deep.
    /// Nothing is known yet.
    ///
    /// # Panics
    /// Without a core or an idle state.
    pub fn new(params: Params, cores: u16, points: &PointTable, states: &[SleepState], now: Instant) -> Self {
        assert!(cores > 0 && !states.is_empty(), "a server has cores, and each an idle state");
        let ready = ready(states, params.target_ns() * NO_MATTER);
        let base = Base { active: cores, speed: Speed::Steady(points.fastest()), idle: ready };
        Self {
            params,
            cores,
            points: *points,
            states: states.to_vec(),
            package: None,
            ready,
            plan: Plan { active: cores, point: points.fastest(), idle: ready },
            base,
            guard: Guard::none(cores, points),
            in_system: 0,
            watch_above: u32::MAX,
            watch_below: 0,
            surge_until: None,
            surges: Surges::new(now),
            usual: Usual::new(),
            epoch_ends: None,
            told: None,
            reported: [None; 2],
            arrivals: Arrivals::new(now),
            service: Service::new(),
            devices: Devices::new(),
            correction: Correction::new(params.queueing),
            reserve: Reserve::new(&params, now),
            budget: ErrorBudget::new(params.aim),
        }
    }

    /// The cores' packages sleep when all of them do.
    fn with_package(self, package: Option<Package>) -> Self {
        Self { package, ..self }
    }

    /// The plan of all cores now.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The operating point for a core whose own queue holds so many requests, that in service
    /// included: not slower than the plan's. To be asked whenever that number changes, with
    /// [`Queueing::PerCore`] and [`Params::graded`].
    #[inline]
    pub fn point(&self, queued: u32) -> PointIndex {
        self.plan.point.max(self.guard.pace.point(queued))
    }

    /// A request has come; there are `in_system` with it. Returns the new decision, if it differs
    /// from the present one.
    #[inline]
    pub fn handle_arrival(&mut self, now: Instant, in_system: u32) -> Option<Plan> {
        self.in_system = in_system;
        if self.epoch_ends.is_none() {
            self.begin(now);
        }
        self.arrivals.record(now);
        self.usual.record(in_system.saturating_sub(self.base.active.into()));
        if in_system > self.watch_above { self.hurry(now) } else { None }
    }

    /// A request is done; `in_system` are left. Returns the new decision, if it differs from the present
    /// one.
    #[inline]
    pub fn handle_completion(&mut self, now: Instant, done: &Completion, in_system: u32) -> Option<Plan> {
        let Completion { compute, memory, response, device } = *done;
        self.in_system = in_system;
        self.service.record(compute, memory);
        self.devices.record(device);
        self.correction.record(response);
        self.budget.record(response, self.params.target);
        if self.base.active < self.cores {
            self.reserve.record(response);
        }
        if in_system <= self.watch_below { self.relax(now) } else { None }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.epoch_ends, self.surge_until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Makes a new plan at the end of an epoch, ends a surge that is over. Returns the new
    /// decision, if it differs from the present one.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Plan> {
        let before = self.plan;
        if self.epoch_ends.is_some_and(|due| due <= now) {
            self.end_epoch(now);
        }
        if self.surge_until.is_some_and(|until| until <= now) {
            if self.in_system <= self.guard.calm {
                self.calm_down(now);
            } else {
                self.surge_until = Some(now + self.guard.hold);
            }
        }
        (self.plan != before).then_some(self.plan)
    }

    /// The first request after nothing happened for an epoch: a jump.
    #[cold]
    fn begin(&mut self, now: Instant) {
        if self.arrivals.are_known() || !self.arrivals.are_too_few(now) {
            self.arrivals.resume(now);
        }
        self.epoch_ends = Some(now + self.params.epoch_after_jump());
    }

    /// The base plan, in the operating point that it has for so many requests.
    fn base_plan(&self) -> Plan {
        let point = match self.params.queueing {
            Queueing::Shared => self.guard.pace.point(self.in_system),
            Queueing::PerCore => self.base.speed.lowest(),
        };
        Plan { active: self.base.active, point, idle: self.base.idle }
    }

    /// Sets the limits that the next events are compared with.
    fn watch(&mut self) {
        let (pace, point) = (&self.guard.pace, self.plan.point);
        (self.watch_above, self.watch_below) = match (self.surge_until, self.params.queueing) {
            (Some(_), _) => (self.guard.alarm, self.guard.calm),
            (None, Queueing::Shared) => {
                (pace.limit(point).min(self.guard.alarm), pace.slower_at(point).unwrap_or(0))
            }
            (None, Queueing::PerCore) => (self.guard.alarm, 0),
        };
    }

    /// Learns from the epoch that is over, and makes the plan for the next.
    fn end_epoch(&mut self, now: Instant) {
        if self.arrivals.are_too_few(now) {
            let waits = self.in_system == 0 && !self.arrivals.are_known();
            self.epoch_ends = (!waits).then(|| now + self.params.epoch());
            return;
        }
        let quiet = self.in_system == 0 && self.arrivals.count() == 0.0;
        let mut load = self.arrivals.close(now, self.params.rate_z);
        if self.in_system == 0 && self.arrivals.is_silent(now, load.latest) {
            load = Load { rate: 0.0, prepared: 0.0, latest: 0.0, changed: true, ..load };
        }
        let known = self.service.samples() >= u64::from(self.params.samples_min.max(1));
        let epoch = if known { self.params.epoch() } else { self.params.epoch_after_jump() };
        self.epoch_ends = (!quiet).then_some(now + epoch);
        if !known {
            return;
        }
        let surges = self.take_surges(now);
        let quantile = self.params.quantile();
        self.usual.end_epoch(load.changed, quantile);
        let Some(shape) = self.service.shape(quantile) else { return };
        let reserved = self.reserve.plan_for(now, load.rate, load.peak, &self.params);
        let silent = load.latest == 0.0;
        let model = Model {
            shape: &shape,
            rate: if silent { load.prepared } else { load.prepared.max(reserved) },
            scv: load.scv,
            quantile,
            queueing: self.params.queueing,
            cores: self.cores,
            siblings: self.params.siblings(),
            points: &self.points,
            states: &self.states,
            package: self.package,
        };
        let dvfs_ns = self.params.dvfs_delay.as_nanos() as f64;
        let seen = Search::new(Model { rate: load.latest, ..model }, dvfs_ns).rate(self.base);
        let seen = seen.filter(|_| !load.changed && self.guard.is_on());
        let target_ns = self.params.target_ns();
        let device = self.devices.at(&shape, quantile);
        let predicted_ns = seen.map(|rated| self.params.expected_ns(rated.tail_ns + device.takes_ns));
        let (kind, active) = (self.base.speed.kind(), self.base.active);
        self.correction.end_epoch(kind, active, predicted_ns, &self.params);
        if seen.is_some() {
            self.correction.learn_surges(kind, active, surges, &self.params);
        }
        self.budget.end_epoch(now, &self.params.terms());
        let tail_ns = self.budget.aim() * target_ns;
        let is_graded = self.params.graded;
        let goal = Goal { tail_ns, correction: &self.correction, is_graded, device };
        let mut search = Search::new(model, dvfs_ns);
        let best = search.best(&goal);
        let power = |rated: &Rated| rated.power + model.surge_power(goal.surges(rated.base));
        // A result that is good enough stays.
        let good = |rated: &Rated| rated.tail_ns <= goal.of(rated.base.speed.kind(), rated.base.active);
        let present = search.rate(self.base).filter(good);
        let stays = present.filter(|present| {
            best.is_none_or(|best| {
                // Another pace costs nothing to take up; other cores or states do.
                let same = (best.base.active, best.base.idle) == (present.base.active, present.base.idle);
                let worth = if same { 0.0 } else { self.params.worth_changing };
                power(&best) >= power(present) * (1.0 - worth)
            })
        });
        let rated = stays.or(best);
        let base = rated.map_or_else(|| self.strongest(&model), |rated| rated.base);
        let (base, rated) = match held(self.told.and(Some(&mut self.reported)), base) {
            held if held == base => (base, rated),
            held => (held, search.rate(held)),
        };
        let factor = self.correction.factor(base.speed.kind(), base.active);
        // A long queue and a long time at a device seldom meet.
        let goal_ns = (target_ns / factor.max(1.0) - device.mean_ns).max(0.0);
        self.guard =
            Guard::new(&model, base, rated.as_ref(), &self.params, (goal_ns, self.usual.most(quantile)));
        self.base = base;
        if self.surge_until.is_some() && self.in_system > self.guard.calm {
            self.plan = self.plan.stronger(self.base_plan());
        } else {
            self.surge_until = None;
            self.plan = self.base_plan();
        }
        self.watch();
    }

    /// Of least tail, but for differences that are no matter. Where the aim cannot be lowered any more, a
    /// tenth as much matters.
    fn strongest(&self, model: &Model<'_>) -> Base {
        let is_overspent = self.budget.aim() <= self.params.aims[0];
        let matters = if is_overspent { NO_MATTER / 10.0 } else { NO_MATTER };
        let matters_ns = self.params.target_ns() * matters;
        let point = self.points.fastest();
        let tail_ns = |active| model.steady(active, point).map_or(f64::INFINITY, |(_, tail_ns)| tail_ns);
        let whole = self.params.whole_cores.min(self.cores);
        let most = if tail_ns(whole) < tail_ns(self.cores) { whole } else { self.cores };
        let least_ns = tail_ns(most);
        let as_good = |&active: &u16| least_ns.is_finite() && tail_ns(active) <= least_ns + matters_ns;
        let active = (1..most).find(as_good).unwrap_or(most);
        Base { active, speed: Speed::Steady(point), idle: ready(&self.states, matters_ns) }
    }
}

/// The deepest state whose exit latency is no more than this, or the shallowest.
fn ready(states: &[SleepState], matters_ns: f64) -> CstateIndex {
    let deep = states.iter().rposition(|state| state.exit_latency.as_nanos() as f64 <= matters_ns);
    CstateIndex(deep.unwrap_or(0) as u8)
}

/// An exit latency of this part of the goal is no matter to it, nor is as much of a wait \[D\]: a search
/// engine's cores, with a goal of half a second, are as ready in the deepest state as in the shallowest; a
/// store's, with 300 us, are not.
const NO_MATTER: f64 = 0.01;

#[cfg(test)]
mod accuracy;
#[cfg(test)]
mod closed_loop;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod random;
#[cfg(test)]
mod simulated;
