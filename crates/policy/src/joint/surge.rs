//! Between two plans: more requests than the plan is good for, and the way back.

use super::{Joint, Plan, Queueing};
use machine::Instant;
use serde::{Deserialize, Serialize};

/// How many cores more than the base plan's were active, since an epoch began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Surges {
    began: Instant,
    counted_to: Instant,
    core_ns: f64,
}

impl Surges {
    pub fn new(now: Instant) -> Self {
        Self { began: now, counted_to: now, core_ns: 0.0 }
    }

    fn count(&mut self, now: Instant, more: u16) {
        self.core_ns += f64::from(more) * now.since(self.counted_to).as_nanos() as f64;
        self.counted_to = now;
    }
}

impl Joint {
    /// More requests than the operating point, or than the plan, is good for.
    pub(super) fn hurry(&mut self, now: Instant) -> Option<Plan> {
        let before = self.plan;
        if self.in_system > self.guard.alarm {
            self.answer_alarm(now);
        }
        if self.surge_until.is_none() && self.params.queueing == Queueing::Shared {
            self.plan.point = self.guard.pace.point(self.in_system);
        }
        self.watch();
        (self.plan != before).then_some(self.plan)
    }

    /// The cores that were more than the base plan's, on average since this was asked last.
    pub(super) fn take_surges(&mut self, now: Instant) -> f64 {
        self.count_surge(now);
        let Surges { began, core_ns, .. } = std::mem::replace(&mut self.surges, Surges::new(now));
        core_ns / (now.since(began).as_nanos() as f64).max(1.0)
    }

    fn count_surge(&mut self, now: Instant) {
        self.surges.count(now, self.plan.active.saturating_sub(self.base.active));
    }

    /// All cores, awake, until the epoch ends.
    pub(super) fn surge_of_all(&mut self, now: Instant) {
        self.count_surge(now);
        let idle = self.plan.idle.min(self.ready);
        self.plan = Plan { active: self.cores, point: self.points.fastest(), idle };
    }

    fn answer_alarm(&mut self, now: Instant) {
        self.count_surge(now);
        let present = self.arrivals.at_present(now);
        let active = self.guard.cores_for(self.in_system, present).max(self.plan.active);
        // Where each core has its own queue and its operating point is not asked for, more than
        // usual is reason enough.
        let blind = self.params.queueing == Queueing::PerCore && !self.params.graded;
        if active > self.base.active || blind {
            let idle = self.plan.idle.min(self.ready);
            self.plan = Plan { active, point: self.points.fastest(), idle };
            self.surge_until = Some(now + self.guard.hold);
        }
        let soon = now + self.params.epoch_after_jump();
        if self.guard.has_jumped(present) && self.epoch_ends.is_none_or(|ends| ends > soon) {
            self.arrivals.restart(now);
            self.correction.forget();
            self.reserve.handle_jump();
            self.epoch_ends = Some(soon);
        }
    }

    /// So few requests that less will do.
    pub(super) fn relax(&mut self, now: Instant) -> Option<Plan> {
        let before = self.plan;
        match self.surge_until {
            Some(until) if until <= now => self.calm_down(now),
            Some(_) => {}
            None => {
                self.plan.point = self.guard.pace.slower(self.in_system);
                self.watch();
            }
        }
        (self.plan != before).then_some(self.plan)
    }

    /// The queue is short again. Back to the base plan, unless the rate is above the one that it
    /// was made for.
    pub(super) fn calm_down(&mut self, now: Instant) {
        self.count_surge(now);
        if self.guard.has_jumped(self.arrivals.at_present(now)) {
            self.surge_until = Some(now + self.guard.hold);
        } else {
            self.surge_until = None;
            self.plan = self.base_plan();
            self.watch();
        }
    }
}
