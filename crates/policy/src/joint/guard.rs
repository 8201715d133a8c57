//! Between two plans: how many requests in the system are too many for the active cores, and how
//! many cores it takes then.
//!
//! A plan is made for the load of the last epoch; requests that come before the next show in the
//! number of requests in the system at once. A request that finds `n` before `k` cores waits for
//! `n - k` services, one after each E S / k, and then takes a service itself. In a steady operating
//! point it is in danger when that, with the tail of a service, exceeds the goal:
//!
//! ```text
//!   (n - k) E S / k + tail(S) + exit latency  >  goal
//! ```
//!
//! and from there on the operating point is the fastest. The *alarm* is where the fastest operating
//! point is needed, and at one queue not less than is `usual` there, but for a queue that takes all of
//! the goal. From there on it is asked whether that is enough. The goal leaves a `budget`
//! besides a service's tail; k cores that are awake work through k budget of it, those that have to
//! be woken through the rest of it after their exit latency. If the requests in the system, and
//! those that will come in excess meanwhile, do not fit, as many cores are woken as make them fit,
//! and as many as the present rate needs, if it is above the plan's by more than chance.
//!
//! With a queue per core the number in the whole system says little about any one queue, but it
//! says when the load is another. The alarm is five standard deviations above its mean then, if
//! that is less, and not less than the alarm of a single queue.

use super::model::{MICROWATT_NANOSECONDS, Model, STABLE};
use super::pace::Pace;
use super::params::{Params, Queueing};
use super::search::{Base, Rated, Speed};
use machine::Duration;
use serde::{Deserialize, Serialize};

/// The limits that are looked up at an event, and the needs of the answer to an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Guard {
    /// Operating points by the number of requests in a queue.
    pub pace: Pace,
    /// More in the system than this is an alarm.
    pub alarm: u32,
    /// With so many it is over.
    pub calm: u32,
    /// So many that wait at one core are no chance; `None` where no core is left to help.
    pub backlog: Option<u32>,
    /// The rate that the plan is good for, per nanosecond.
    rate: f64,
    active: u16,
    cores: u16,
    queueing: Queueing,
    /// A mean service in the fastest operating point.
    service_ns: f64,
    /// The time that the goal leaves for waiting in the fastest operating point.
    budget_ns: f64,
    /// Time to wake a parked core.
    exit_ns: f64,
    /// How long cores that were woken stay at least.
    pub hold: Duration,
}

/// Standard deviations of the number in the system that are an alarm, where each core has its own
/// queue \[D\].
const UNUSUAL: f64 = 5.0;
/// Standard deviations by which the present rate must be above the plan's to be another \[D\].
/// Greater than two because it is looked at when the queue is long, and then it is high by chance
/// more often than not.
const JUMPED: f64 = 3.0;
/// Cores are woken for the present rate so that they are busy for this share of time \[D\].
const WOKEN_LOAD: f64 = 0.8;
/// A queue at one core whose work takes so many goals is a jump of the load \[D\]: where 1 % of the
/// waits are longer than the goal, 1 in a million is longer than three.
const BACKLOG_GOALS: f64 = 3.0;
/// And it is not less than a queue that this share of the requests finds by chance \[D\].
const CHANCE: f64 = 1e-6;
/// Woken cores stay no longer than this by their cost \[D\].
const LONGEST_HOLD_NS: f64 = 10e6;

impl Guard {
    /// All cores run in the fastest operating point: nothing can be done.
    pub fn none(cores: u16, points: &crate::frequency::PointTable) -> Self {
        Self {
            pace: Pace::fastest(points),
            alarm: u32::MAX,
            calm: 0,
            backlog: None,
            rate: f64::MAX,
            active: cores,
            cores,
            queueing: Queueing::Shared,
            service_ns: 0.0,
            budget_ns: 0.0,
            exit_ns: 0.0,
            hold: Duration::from_nanos(1),
        }
    }

    /// There is a plan that it watches.
    pub fn is_on(&self) -> bool {
        self.service_ns > 0.0
    }

    /// For `base`, towards `goal_ns`; `rated` if it can keep it. In one queue, so many requests more than
    /// cores are usual.
    pub fn new(
        model: &Model<'_>,
        base: Base,
        rated: Option<&Rated>,
        params: &Params,
        (goal_ns, usual): (f64, u32),
    ) -> Self {
        let Model { shape, points, states, .. } = model;
        let (active, servers) = (f64::from(base.active), model.queue(base.active).servers);
        let tail_ns = |point| shape.quantile_ns(model.quantile) * shape.stretch(points.speed(point));
        let exit_ns = states[base.idle.index()].exit_latency.as_nanos() as f64;
        let danger = |point| {
            let room_ns = (goal_ns - exit_ns - tail_ns(point)).max(0.0);
            servers * (1.0 + room_ns / model.service_ns(point))
        };
        let fastest = points.fastest();
        let (pace, per_queue) = match base.speed {
            Speed::Steady(point) => (Pace::steady(point, danger(point) as u32, points), danger(point)),
            Speed::Graded(lowest, patience_ns) => {
                let pace =
                    Pace::graded(lowest, servers, patience_ns, points, |point| model.service_ns(point));
                let below = crate::frequency::PointIndex(fastest.0.saturating_sub(1));
                let alarm = if lowest < fastest { f64::from(pace.limit(below)) } else { danger(fastest) };
                (pace, alarm)
            }
        };
        let load = model.rate * model.service_ns(fastest) / active;
        let (number, deviation) = match rated {
            Some(rated) => (rated.running.number, rated.running.deviation),
            None => (active * load.min(STABLE), 0.0),
        };
        let queues = active / servers;
        let alarm = match model.queueing {
            // A queue that takes all of the goal is an alarm in any case.
            Queueing::Shared => {
                let most = active * (1.0 + goal_ns / model.service_ns(fastest).max(1e-3));
                (active + f64::from(usual)).min(most).max(per_queue)
            }
            Queueing::PerCore => (per_queue * queues).min(number + UNUSUAL * deviation).max(per_queue),
        };
        let alarm = alarm.max(active + 1.0) as u32;
        // At one queue of exponential services, n or more are there for a share of load^n of the time.
        let by_chance = CHANCE.ln() / load.min(STABLE).ln();
        let by_goal = BACKLOG_GOALS * goal_ns / model.service_ns(fastest).max(1e-3);
        let backlog = (base.active < model.cores).then(|| by_chance.max(by_goal).ceil() as u32);
        let (shallowest, deepest) = (&states[0], &states[states.len() - 1]);
        // A core that was woken stays as long as its wake-up has cost \[R AutoScale's t_wait\]: so
        // long does the deepest state take to break even with the shallowest.
        let wake_ns = deepest.exit_latency.as_nanos() as f64;
        let saved = shallowest.power.0.saturating_sub(deepest.power.0).max(1) as f64;
        let cost = (deepest.wake_joules - shallowest.wake_joules).max(0.0) * MICROWATT_NANOSECONDS;
        let paid_back_ns = (cost / saved).min(LONGEST_HOLD_NS);
        let dvfs_ns = params.dvfs_delay.as_nanos() as f64;
        Self {
            pace,
            alarm,
            calm: ((number + deviation) as u32).clamp(u32::from(base.active).min(alarm - 1), alarm - 1),
            backlog,
            rate: model.rate,
            active: base.active,
            cores: model.cores,
            queueing: model.queueing,
            service_ns: model.service_ns(fastest).max(1e-3),
            budget_ns: (goal_ns - tail_ns(fastest) - dvfs_ns).max(0.0),
            exit_ns: wake_ns,
            hold: Duration::from_nanos((2.0 * dvfs_ns).max(paid_back_ns).max(1.0) as u64),
        }
    }

    /// How many cores `in_system` requests need, when `present` is the rate of the last arrivals
    /// and their number.
    pub fn cores_for(&self, in_system: u32, present: Option<(f64, u32)>) -> u16 {
        let active = f64::from(self.active);
        let surely = present.map_or(0.0, at_least);
        let for_rate = if surely > self.rate { surely * self.service_ns / WOKEN_LOAD } else { 0.0 };
        // The arrivals before a woken core is ready, beyond the work that the others do meanwhile.
        let coming = (surely - active / self.service_ns).max(0.0) * self.exit_ns;
        let work_ns = (f64::from(in_system) + coming) * self.service_ns;
        let lacking_ns = work_ns - active * self.budget_ns;
        let helps_ns = self.budget_ns - self.exit_ns;
        let for_queue = if lacking_ns <= 0.0 {
            0.0
        } else if self.queueing == Queueing::Shared && helps_ns > 0.0 {
            active + lacking_ns / helps_ns
        } else if lacking_ns > active * self.budget_ns {
            // No help for requests that wait; but all that come meanwhile would wait behind them.
            f64::INFINITY
        } else {
            0.0
        };
        (for_rate.max(for_queue).ceil() as u16).clamp(self.active, self.cores)
    }

    /// The present rate is above the plan's by more than chance.
    pub fn has_jumped(&self, present: Option<(f64, u32)>) -> bool {
        present.is_some_and(|present| at_least(present) > self.rate)
    }
}

/// A rate that is not overestimated.
fn at_least((rate, count): (f64, u32)) -> f64 {
    rate * (1.0 - JUMPED / f64::from(count).sqrt()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::accuracy::{exponential, shape};
    use super::super::model::Siblings;
    use super::super::simulated::{points, states};
    use super::*;
    use machine::CstateIndex;

    #[test]
    fn a_usual_queue_is_no_alarm_but_one_that_takes_all_of_the_goal() {
        let (shape, points, states) = (shape(exponential, 0.99), points(), states());
        let model = Model {
            shape: &shape,
            rate: 1.0 / shape.mean_ns,
            scv: 1.0,
            quantile: 0.99,
            queueing: Queueing::Shared,
            cores: 8,
            siblings: Siblings::NONE,
            points: &points,
            states: &states,
            package: None,
        };
        let base = Base { active: 2, speed: Speed::Steady(points.fastest()), idle: CstateIndex(0) };
        let goal_ns = 6.0 * model.service_ns(points.fastest());
        let alarm = |usual| Guard::new(&model, base, None, &Params::default(), (goal_ns, usual)).alarm;
        // Danger is from four on; in a queue of fourteen one waits for as long as the goal is.
        assert_eq!([0, 5, 31].map(alarm), [4, 7, 14]);
    }
}
