//! Crescendo as the frequency policy of a server.

use super::Crescendo;
use crate::frequency::PointIndex;
use machine::{CpuId, Instant};
use policy::kind::{Decision, FrequencyPolicy, Head, Making, Policy, Request, Seen, Watch};

/// One for all cores.
pub struct Server {
    crescendo: Crescendo,
    /// By core, when it is to be looked at again: of its reviews only the one at that time counts.
    reviews: Vec<Option<Instant>>,
    decision: Option<Decision>,
    /// A window that begins while another is open ends with it.
    due: Option<Instant>,
}

impl Server {
    pub(super) fn new(making: &Making<'_>) -> Self {
        Self {
            crescendo: Crescendo::new(making.params(), &making.points()),
            reviews: vec![None; making.cpus()],
            decision: None,
            due: None,
        }
    }
}

impl Policy for Server {
    fn handle_timeout(&mut self, now: Instant, _: &Seen<'_>) {
        self.crescendo.handle_timeout(now);
        self.due = self.crescendo.poll_timeout();
    }

    #[inline]
    fn poll_decision(&mut self) -> Option<Decision> {
        self.decision.take()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

impl FrequencyPolicy for Server {
    fn watches(&self) -> Watch {
        Watch::Queues
    }

    #[inline]
    fn handle_queue(
        &mut self,
        now: Instant,
        cpu: usize,
        head: Option<Head>,
        waiting: &dyn Fn(usize) -> Option<Instant>,
    ) -> Option<PointIndex> {
        let choice = self.crescendo.choose(now, head, (0..).map_while(waiting));
        if choice.review != self.reviews[cpu] {
            self.reviews[cpu] = choice.review;
            self.decision = choice.review.map(|at| Decision::Review { cpu: CpuId(cpu as u16), at });
        }
        Some(choice.point)
    }

    #[inline]
    fn handle_completion(&mut self, now: Instant, _: usize, request: &Request) {
        let response = now.since(request.arrived);
        self.crescendo.handle_completion(now, request.compute, request.memory, response);
        self.due = self.due.or_else(|| self.crescendo.poll_timeout());
    }

    fn handle_review(&mut self, now: Instant, cpu: usize) -> bool {
        self.reviews[cpu].take_if(|at| *at == now).is_some()
    }
}
