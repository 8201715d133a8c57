//! The policy of a server whose driver tells of every request.

use super::package::Package;
use super::params::Queueing;
use super::{Joint, Params, Plan};
use crate::kind::{Completion, CorePolicy, Decision, Making, Policy, Seen};
use machine::Instant;

/// The policy, and the part of its plan that the driver has not taken yet.
pub struct Server {
    joint: Joint,
    decisions: [Option<Decision>; 3],
    /// The earliest time that was asked for since the last timeout.
    due: Option<Instant>,
}

impl Server {
    pub(super) fn new(making: &Making<'_>) -> Self {
        let (points, states, params) = (making.points(), making.states(), making.params::<Params>());
        // The driver does not ask for each core's clock when its own queue changes.
        let graded = params.graded && (params.queueing == Queueing::Shared || params.paced_elsewhere);
        let params = Params { graded, ..params };
        let joint = Joint::new(params, making.workers, &points, &states, Instant::ZERO);
        let joint = joint.with_package(Package::of(making.platform));
        let plan = joint.plan();
        let mut server = Self { joint, decisions: [None; 3], due: None };
        server.follow(Some(plan));
        server
    }

    fn follow(&mut self, plan: Option<Plan>) {
        if let Some(Plan { active, point, idle }) = plan {
            self.decisions = [
                Some(Decision::Active(active)),
                Some(Decision::IdleStates { active: idle, parked: None }),
                Some(Decision::Points(point)),
            ];
        }
        let due = self.joint.poll_timeout();
        self.due = self.due.into_iter().chain(due).min();
    }
}

impl Policy for Server {
    fn handle_timeout(&mut self, now: Instant, _: &Seen<'_>) {
        self.due = None;
        let plan = self.joint.handle_timeout(now);
        self.follow(plan);
    }

    #[inline]
    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.iter_mut().find_map(Option::take)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

impl CorePolicy for Server {
    #[inline]
    fn handle_arrival(&mut self, now: Instant, in_system: u32) {
        let plan = self.joint.handle_arrival(now, in_system);
        if plan.is_some() || self.due.is_none() {
            self.follow(plan);
        }
    }

    #[inline]
    fn handle_completion(&mut self, now: Instant, done: &Completion, in_system: u32) {
        let plan = self.joint.handle_completion(now, done, in_system);
        if plan.is_some() {
            self.follow(plan);
        }
    }
}
