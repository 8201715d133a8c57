//! The two costs that uDPM compares: wake-ups in every gear, and cores for one request more.

use super::super::reschedule::{CoreLoad, Rule};
use super::{Core, Params, UDpm, WakeAt};
use crate::timing::{Form, tails::Tails};
use machine::{Duration, Instant};
use policy::frequency::GearIndex;

impl UDpm {
    /// The wake-up that costs least, for the requests that wait at a sleeping core and perhaps one
    /// more request that came just now.
    pub(super) fn plan(&self, core: &Core, now: Instant, more: Option<Instant>) -> WakeAt {
        let exit = self.sleep.exit_latency;
        let least = self.params.least_sleep.max(exit);
        // A wake-up moves to an earlier time only.
        let planned = core.plan.map_or(Instant::ZERO + Duration::MAX, |plan| plan.begin + exit);
        let mut best: Option<(f64, WakeAt)> = None;
        for gear in self.gears.iter() {
            let up = self.up_by(core, gear, more).min(planned);
            if up.since(now) > least {
                let asleep = up.since(core.since) - exit;
                let (energy, active) = self.active(core, gear, core.in_system + u32::from(more.is_some()));
                let energy = energy + asleep.as_nanos() as f64 * self.sleep.power.0 as f64;
                let power = energy / (asleep + active).as_nanos().max(1) as f64;
                if best.is_none_or(|(lowest, _)| power < lowest) {
                    best = Some((power, WakeAt { begin: up - exit, gear }));
                }
            }
        }
        if let Some((_, plan)) = best {
            return plan;
        }
        if let Some(plan) = core.plan
            && self.params.form == Form::Exact
            && plan.begin + exit <= self.up_by(core, plan.gear, more)
        {
            return plan;
        }
        let gear = self.gears.fastest();
        let begin = (self.up_by(core, gear, more) - exit).max(now);
        WakeAt { begin: core.plan.map_or(begin, |plan| plan.begin.min(begin)), gear }
    }

    fn up_by(&self, core: &Core, gear: GearIndex, more: Option<Instant>) -> Instant {
        let mut deadline = core.deadlines[gear.index()];
        if let Some(arrived) = more {
            deadline.add(self.params.form, arrived, self.params.goal, &self.tails, self.gears.speed(gear));
        }
        if gear == core.gear { deadline.up_by } else { deadline.up_by - self.params.switch }
    }

    /// Energy (in microwatts times nanoseconds) and length of a wake-up, a change of gear if it
    /// takes one, and `count` requests.
    fn active(&self, core: &Core, gear: GearIndex, count: u32) -> (f64, Duration) {
        let power = |gear| self.gears.power(gear).0 as f64;
        let switch = if gear == core.gear { Duration::ZERO } else { self.params.switch };
        let mean = self.tails.mean(self.gears.speed(gear)).unwrap_or_default();
        let busy = self.sleep.exit_latency + mean * u64::from(count);
        let energy = busy.as_nanos() as f64 * power(gear)
            + switch.as_nanos() as f64 * (power(gear) + power(core.gear)) / 2.0;
        (energy, busy + switch)
    }

    /// A request is critical if it follows the one before it within the time that one may take.
    pub(super) fn is_critical(&self, core: usize, now: Instant) -> bool {
        let core = &self.cores[core];
        let tail = self.tails.tail(1, self.gears.speed(core.gear));
        core.arrived.zip(tail).is_some_and(|(arrived, tail)| now.since(arrived) < tail)
    }

    pub(super) fn load(&self, core: usize, now: Instant) -> CoreLoad {
        let (core, exit) = (&self.cores[core], self.sleep.exit_latency);
        let gear = core.plan.map_or(core.gear, |plan| plan.gear);
        let wait = if core.asleep {
            core.plan.map(|plan| (plan.begin + exit).since(now))
        } else {
            Some(Duration::ZERO)
        };
        let tail = behind(&self.params, &self.tails, core.in_system + 1, self.gears.speed(gear));
        let latency = wait.zip(tail).map(|(wait, tail)| wait + tail);
        let cost =
            if self.params.reschedule.rule == Rule::LeastCost { self.cost(core, gear, now) } else { 0.0 };
        CoreLoad { awake: !core.asleep, gear, latency, cost }
    }

    /// The energy that one more request adds to a core's next busy time, or to its present one.
    fn cost(&self, core: &Core, gear: GearIndex, now: Instant) -> f64 {
        let energy = |gear, count| self.active(core, gear, count).0;
        let more = core.in_system + 1;
        let next = if core.asleep {
            self.plan(core, now, Some(now)).gear
        } else {
            let holds = |gear: &GearIndex| {
                let tail = behind(&self.params, &self.tails, more, self.gears.speed(*gear));
                tail.is_some_and(|tail| tail <= self.params.goal)
            };
            self.gears.iter().skip(gear.index()).find(holds).unwrap_or(self.gears.fastest())
        };
        energy(next, more) - energy(gear, core.in_system)
    }
}

/// How long it takes at worst until the last of `count` requests is done.
pub(super) fn behind(params: &Params, tails: &Tails, count: u32, speed: f64) -> Option<Duration> {
    match params.form {
        Form::Exact => tails.tail(count, speed),
        Form::Published => tails.tail(1, speed).map(|tail| tail * u64::from(count)),
    }
}
