//! Both searches as the policy of a server whose driver measures response times.

use super::{Controller, Epoch, GoalSearch};
use crate::kind::{CorePolicy, Decision, Making, Policy, Readings, Seen};
use machine::{Duration, Instant, Rate, Ratio};

/// A search that decides once an epoch.
pub struct Server<S> {
    search: S,
    epoch: Duration,
    /// Of response times, the tail that it looks at.
    quantile: f64,
    began: Instant,
    /// Of all CPUs together when the epoch began.
    worked: Duration,
    decision: Option<Decision>,
}

/// A search on measured response times.
pub trait Search: 'static {
    fn handle_epoch(&mut self, epoch: &Epoch) -> u16;
}

impl Search for Controller {
    fn handle_epoch(&mut self, epoch: &Epoch) -> u16 {
        self.handle_epoch(epoch)
    }
}

impl Search for GoalSearch {
    fn handle_epoch(&mut self, epoch: &Epoch) -> u16 {
        self.handle_epoch(epoch)
    }
}

impl Server<Controller> {
    pub(super) fn by_slope(making: &Making<'_>) -> Self {
        let params: super::Params = making.params();
        // The paper evaluates the 95th percentile.
        Self::new(Controller::new(params, making.workers), params.epoch, 0.95)
    }
}

impl Server<GoalSearch> {
    pub(super) fn by_goal(making: &Making<'_>) -> Self {
        let (params, goal): (super::GoalParams, _) = (making.params(), making.goal());
        Self::new(GoalSearch::new(params, goal, making.workers), params.epoch, goal.quantile)
    }
}

impl<S: Search> Server<S> {
    fn new(search: S, epoch: Duration, quantile: f64) -> Self {
        let (began, worked) = (Instant::ZERO, Duration::ZERO);
        Self { search, epoch, quantile, began, worked, decision: None }
    }
}

impl<S: Search> Policy for Server<S> {
    fn readings(&self) -> Readings {
        Readings { cpus: true, quantile: Some(self.quantile) }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        let span = now.since(self.began);
        if span < self.epoch {
            return;
        }
        let worked = seen.cpus.iter().fold(Duration::ZERO, |sum, cpu| sum + cpu.working);
        let busy = worked - std::mem::replace(&mut self.worked, worked);
        let available = span.as_nanos() as f64 * f64::from(seen.active.max(1));
        let epoch = Epoch {
            rate: Some(Rate::of(seen.responses.count, span)),
            tail: seen.responses.tail,
            mean: seen.responses.mean,
            busy: Some(Ratio::new(busy.as_nanos() as f64 / available)),
        };
        self.began = now;
        self.decision = Some(Decision::Active(self.search.handle_epoch(&epoch)));
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decision.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.began + self.epoch)
    }
}

impl<S: Search> CorePolicy for Server<S> {}
