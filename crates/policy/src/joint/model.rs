//! The effect of a plan: the tail of the response time, and the power. Here for cores that run in
//! one operating point; with an operating point that follows the queue, `chain` says how many wait
//! and how long.
//!
//! Terms. `k` cores are active, in an operating point in which everything takes `stretch` as long
//! as at the nominal clock; a mean service then takes E S. The load is rho = lambda E S / k.
//!
//! **Tail.** Response = wait + service (+ exit latency).
//! - *A queue per core*: each core is an M/G/1 queue with lambda / k. A request waits with
//!   probability rho, and then as [`Waiting`] says: exact.
//! - *A shared queue*: it waits with the probability of M/M/k, Erlang's C, and those that wait,
//!   wait as at one server that is k times as fast: exact for M/M/k, a good approximation for
//!   others (Tijms, A First Course in Stochastic Models, 9.6.2).
//! - *Irregular arrivals* stretch the wait of those that wait by (c_a^2 + c_s^2) / (1 + c_s^2),
//!   Allen and Cunneen's correction (Allen, Probability, Statistics and Queueing Theory, 1990).
//!   c_a^2 of one core out of k that requests are dealt to at random is 1 + (c_a^2 - 1) / k.
//! - *Exit latency*: every request pays all of it. Of M/G/1 with set-up the truth is a random part
//!   of it that is independent of the rest (Welch 1964), never more. From a shared queue it is
//!   often much less: another core is free before the one that was woken is ready. Deep states are
//!   so taken for slower than they are, until the measured tail says so.
//!
//! **Power.** A core works lambda E S / k of its time. A sleep begins whenever a core runs out of
//! work, and costs the energy of waking beside the state's power. With nu sleeps per second, k -
//! lambda E S idle or waking cores and exit latency x:
//!
//! ```text
//!   nu = lambda (1 - P(wait)) / (1 + lambda (1 - P(wait)) x / (k - lambda E S))
//! ```
//!
//! which is exact for M/G/1 with set-up; x nu of the idle time are spent waking, the rest asleep.
//! The energy of waking is the table's own ([`SleepState::wake_joules`]): where sleeps are as long as
//! a state's target residency, it costs as much as the next shallower one, in every operating point.
//!
//! Beside its cores a package draws power, while they do not all sleep: [`Package`].
//!
//! Error: `accuracy` tests it against exact values and simulation.

use super::package::Package;
use super::params::Queueing;
use super::service::{Part, Shape};
use super::waiting::Waiting;
use crate::SleepState;
use crate::frequency::{PointIndex, PointTable};

/// A load and a machine, as a plan is made for them. Times in nanoseconds, power in microwatts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model<'a> {
    pub shape: &'a Shape,
    /// Rate of arrivals, requests per nanosecond.
    pub rate: f64,
    /// Irregularity of the arrivals; 1 for Poisson.
    pub scv: f64,
    pub quantile: f64,
    pub queueing: Queueing,
    pub cores: u16,
    pub siblings: Siblings,
    pub points: &'a PointTable,
    pub states: &'a [SleepState],
    pub package: Option<Package>,
}

/// Threads that share a core, and how fast they are then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Siblings {
    /// So many CPUs have a core to themselves; the others are their siblings.
    pub whole_cores: u16,
    /// The speed of both while both work, relative to one alone.
    pub shared_speed: f64,
}

#[cfg(test)]
impl Siblings {
    pub const NONE: Self = Self { whole_cores: u16::MAX, shared_speed: 1.0 };
}

/// One of the queues: how many cores serve it, how many requests come to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Queue {
    pub servers: f64,
    pub rate: f64,
    pub scv: f64,
}

/// Active cores at work, before any sleeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Running {
    /// Cores that work, on average, and the power of those.
    pub busy: f64,
    pub work_power: f64,
    /// The share of requests that find no idle core.
    pub waits: f64,
    /// Requests in the system: mean and standard deviation.
    pub number: f64,
    pub deviation: f64,
}

/// In a joule.
pub(super) const MICROWATT_NANOSECONDS: f64 = 1e15;

/// No core is planned to be busy for more than this share of time: the tail would be longer than
/// any goal, and the estimate of the rate is not so good \[D\].
pub(super) const STABLE: f64 = 0.98;

impl Model<'_> {
    pub fn service_ns(&self, point: PointIndex) -> f64 {
        self.shape.mean_ns * self.shape.stretch(self.points.speed(point))
    }

    /// Each queue's part of the load.
    pub fn queue(&self, active: u16) -> Queue {
        let cores = f64::from(active);
        match self.queueing {
            Queueing::Shared => Queue { servers: cores, rate: self.rate, scv: self.scv },
            Queueing::PerCore => {
                Queue { servers: 1.0, rate: self.rate / cores, scv: 1.0 + (self.scv - 1.0) / cores }
            }
        }
    }

    /// `active` cores in one operating point, and the quantile of their response time; `None`
    /// beyond the stability bound.
    pub fn steady(&self, active: u16, point: PointIndex) -> Option<(Running, f64)> {
        let cores = f64::from(active);
        let stretch = self.shape.stretch(self.points.speed(point)) * self.sibling_stretch(active, point);
        let busy = self.rate * self.shape.mean_ns * stretch;
        let load = busy / cores;
        if load.is_nan() || load > STABLE {
            return None;
        }
        let Queue { servers, scv, .. } = self.queue(active);
        let waits = erlang_c(servers as u16, load * servers);
        let waiting = Waiting::at(load.max(1e-6), &self.shape.residual);
        // Wait and service at the nominal clock; the wait in mean services of a server that does
        // the work of all.
        let longer = (scv + self.shape.scv) / (1.0 + self.shape.scv);
        let scale = servers / (longer.max(1e-3) * self.shape.mean_ns);
        let beyond = |time_ns: f64| {
            let behind = |part: &Part| part.share * waiting.beyond((time_ns - part.mean_ns) * scale);
            let waited: f64 = self.shape.parts.iter().map(behind).sum();
            (1.0 - waits) * self.shape.beyond(time_ns) + waits * waited
        };
        let tail_ns = stretch * solve(beyond, self.shape.quantile_ns(self.quantile), 1.0 - self.quantile);
        // Of one queue; the number at M/M/k has these.
        let queued = waits * load / (1.0 - load) * (scv + self.shape.scv) / 2.0;
        let variance = load * servers + queued * (1.0 + 2.0 * load / (1.0 - load)).max(queued);
        let queues = cores / servers;
        let running = Running {
            busy,
            work_power: busy * self.points.power(point).0 as f64,
            waits,
            number: busy + queued * queues,
            deviation: (variance * queues).sqrt(),
        };
        Some((running, tail_ns))
    }

    /// How much longer work takes because siblings work as well. Each CPU works for as much of the time as all
    /// do.
    pub fn sibling_stretch(&self, active: u16, point: PointIndex) -> f64 {
        let pairs = active.saturating_sub(self.siblings.whole_cores);
        let load = (self.rate * self.service_ns(point) / f64::from(active)).min(1.0);
        let meets = load * (2.0 * f64::from(pairs) / f64::from(active)).min(1.0);
        1.0 / (1.0 - meets * (1.0 - self.siblings.shared_speed))
    }

    /// Power of all cores, those that are not active in the deepest state, and of their packages.
    pub fn power(&self, active: u16, idle: usize, running: &Running) -> f64 {
        let (state, deepest) = (&self.states[idle], &self.states[self.states.len() - 1]);
        let idle_cores = (f64::from(active) - running.busy).max(1e-6);
        let found_idle = self.rate * (1.0 - running.waits);
        let exit_ns = state.exit_latency.as_nanos() as f64;
        let sleeps = found_idle / (1.0 + found_idle * exit_ns / idle_cores);
        let asleep = (idle_cores - sleeps * exit_ns).max(0.0);
        let share = asleep / f64::from(active);
        let beside = self.package.map_or(0.0, |package| package.power(self.queueing, active, idle, share));
        running.work_power
            + sleeps * state.wake_joules * MICROWATT_NANOSECONDS
            + asleep * state.power.0 as f64
            + f64::from(self.cores - active) * deepest.power.0 as f64
            + beside
    }

    /// Of so many cores in the shallowest state in place of the deepest.
    pub fn surge_power(&self, cores: f64) -> f64 {
        let power = |state: usize| self.states[state].power.0 as f64;
        cores * (power(0) - power(self.states.len() - 1)).max(0.0)
    }

    /// No speed brings `active` cores that idle in this state below it: as if waking cost nothing.
    pub fn least_power(&self, active: u16, idle: usize) -> f64 {
        let power = |state: usize| self.states[state].power.0 as f64;
        let work = self.rate * self.cost(self.frugal_point(idle), idle);
        let busy = self.rate * self.service_ns(self.points.fastest());
        let beside = self.package.map_or(0.0, |package| package.least(idle, busy));
        work + beside
            + f64::from(active) * power(idle)
            + f64::from(self.cores - active) * power(self.states.len() - 1)
    }

    /// The operating point in which work costs least, against sleeping in this state for the time
    /// that it saves.
    pub fn frugal_point(&self, idle: usize) -> PointIndex {
        let cheapest = self.points.iter().min_by(|&a, &b| self.cost(a, idle).total_cmp(&self.cost(b, idle)));
        cheapest.unwrap_or(self.points.fastest())
    }

    /// Of a mean service, more than sleeping for as long.
    fn cost(&self, point: PointIndex, idle: usize) -> f64 {
        (self.points.power(point).0 as f64 - self.states[idle].power.0 as f64) * self.service_ns(point)
    }
}

/// The probability that all of `cores` are busy in M/M/k at an offered load of `busy` cores (Erlang
/// 1917, by the recursion of his B formula).
fn erlang_c(cores: u16, busy: f64) -> f64 {
    let blocked = (1..=cores).fold(1.0, |blocked, k| busy * blocked / (f64::from(k) + busy * blocked));
    blocked / (1.0 - busy / f64::from(cores) * (1.0 - blocked))
}

/// Where a tail that falls has fallen to `misses`, not before `from`.
pub(super) fn solve(beyond: impl Fn(f64) -> f64, from: f64, misses: f64) -> f64 {
    let (mut low, mut high) = (from, from.max(1.0));
    while beyond(high) > misses && high < 1e15 {
        low = high;
        high *= 2.0;
    }
    // Down to a five-hundredth.
    while high - low > high / 500.0 {
        let middle = (low + high) / 2.0;
        if beyond(middle) > misses { low = middle } else { high = middle }
    }
    high
}
