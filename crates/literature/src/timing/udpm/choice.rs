//! The two costs that uDPM compares: wake-ups in every operating point, and cores for one request
//! more.

use super::super::reschedule::{CoreLoad, Rule};
use super::{Core, Params, UDpm, WakeAt};
use crate::timing::{Form, tails::Tails};
use machine::{Duration, Instant};
use policy::frequency::PointIndex;

impl UDpm {
    /// The wake-up that costs least, for the requests that wait at a sleeping core and perhaps one
    /// more request that came just now.
    pub(super) fn plan(&self, core: &Core, now: Instant, more: Option<Instant>) -> WakeAt {
        let exit = self.sleep.exit_latency;
        let least = self.params.least_sleep.max(exit);
        // A wake-up moves to an earlier time only.
        let planned = core.plan.map_or(Instant::ZERO + Duration::MAX, |plan| plan.begin + exit);
        let mut best: Option<(f64, WakeAt)> = None;
        for point in self.points.iter() {
            let up = self.up_by(core, point, more).min(planned);
            if up.since(now) > least {
                let asleep = up.since(core.since) - exit;
                let (energy, active) = self.active(core, point, core.in_system + u32::from(more.is_some()));
                let energy = energy + asleep.as_nanos() as f64 * self.sleep.power.0 as f64;
                let power = energy / (asleep + active).as_nanos().max(1) as f64;
                if best.is_none_or(|(lowest, _)| power < lowest) {
                    best = Some((power, WakeAt { begin: up - exit, point }));
                }
            }
        }
        if let Some((_, plan)) = best {
            return plan;
        }
        if let Some(plan) = core.plan
            && self.params.form == Form::Exact
            && plan.begin + exit <= self.up_by(core, plan.point, more)
        {
            return plan;
        }
        let point = self.points.fastest();
        let begin = (self.up_by(core, point, more) - exit).max(now);
        WakeAt { begin: core.plan.map_or(begin, |plan| plan.begin.min(begin)), point }
    }

    fn up_by(&self, core: &Core, point: PointIndex, more: Option<Instant>) -> Instant {
        let mut deadline = core.deadlines[point.index()];
        if let Some(arrived) = more {
            deadline.add(self.params.form, arrived, self.params.goal, &self.tails, self.points.speed(point));
        }
        if point == core.point { deadline.up_by } else { deadline.up_by - self.params.switch }
    }

    /// Energy (in microwatts times nanoseconds) and length of a wake-up, a change of operating
    /// point if it takes one, and `count` requests.
    fn active(&self, core: &Core, point: PointIndex, count: u32) -> (f64, Duration) {
        let power = |point| self.points.power(point).0 as f64;
        let switch = if point == core.point { Duration::ZERO } else { self.params.switch };
        let mean = self.tails.mean(self.points.speed(point)).unwrap_or_default();
        let busy = self.sleep.exit_latency + mean * u64::from(count);
        let energy = busy.as_nanos() as f64 * power(point)
            + switch.as_nanos() as f64 * (power(point) + power(core.point)) / 2.0;
        (energy, busy + switch)
    }

    /// A request is critical if it follows the one before it within the time that one may take.
    pub(super) fn is_critical(&self, core: usize, now: Instant) -> bool {
        let core = &self.cores[core];
        let tail = self.tails.tail(1, self.points.speed(core.point));
        core.arrived.zip(tail).is_some_and(|(arrived, tail)| now.since(arrived) < tail)
    }

    pub(super) fn load(&self, core: usize, now: Instant) -> CoreLoad {
        let (core, exit) = (&self.cores[core], self.sleep.exit_latency);
        let point = core.plan.map_or(core.point, |plan| plan.point);
        let wait = if core.asleep {
            core.plan.map(|plan| (plan.begin + exit).since(now))
        } else {
            Some(Duration::ZERO)
        };
        let tail = behind(&self.params, &self.tails, core.in_system + 1, self.points.speed(point));
        let latency = wait.zip(tail).map(|(wait, tail)| wait + tail);
        let cost =
            if self.params.reschedule.rule == Rule::LeastCost { self.cost(core, point, now) } else { 0.0 };
        CoreLoad { awake: !core.asleep, point, latency, cost }
    }

    /// The energy that one more request adds to a core's next busy time, or to its present one.
    fn cost(&self, core: &Core, point: PointIndex, now: Instant) -> f64 {
        let energy = |point, count| self.active(core, point, count).0;
        let more = core.in_system + 1;
        let next = if core.asleep {
            self.plan(core, now, Some(now)).point
        } else {
            let holds = |point: &PointIndex| {
                let tail = behind(&self.params, &self.tails, more, self.points.speed(*point));
                tail.is_some_and(|tail| tail <= self.params.goal)
            };
            self.points.iter().skip(point.index()).find(holds).unwrap_or(self.points.fastest())
        };
        energy(next, more) - energy(point, core.in_system)
    }
}

/// How long it takes at worst until the last of `count` requests is done.
pub(super) fn behind(params: &Params, tails: &Tails, count: u32, speed: f64) -> Option<Duration> {
    match params.form {
        Form::Exact => tails.tail(count, speed),
        Form::Published => tails.tail(1, speed).map(|tail| tail * u64::from(count)),
    }
}
