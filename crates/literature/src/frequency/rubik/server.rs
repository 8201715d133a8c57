//! Rubik as the frequency policy of a server.

use super::Rubik;
use crate::frequency::PointIndex;
use machine::Instant;
use policy::kind::{Ends, FrequencyPolicy, Head, Making, Policy, Request, Seen, Waiting, Watch};

/// One for all cores.
pub struct Server {
    rubik: Rubik,
    /// A window that begins while another is open ends with it.
    due: Option<Instant>,
}

impl Server {
    pub(super) fn new(making: &Making<'_>) -> Self {
        Self { rubik: Rubik::new(making.params(), &making.points()), due: None }
    }
}

impl Policy for Server {
    fn handle_timeout(&mut self, now: Instant, _: &Seen<'_>) {
        self.rubik.handle_timeout(now);
        self.due = self.rubik.poll_timeout();
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
        _: usize,
        head: Option<Head>,
        waiting: &dyn Fn(usize) -> Option<Waiting>,
    ) -> Option<PointIndex> {
        Some(self.rubik.choose(now, head, (0..).map_while(waiting).map(|waiting| waiting.arrived)))
    }

    #[inline]
    fn handle_completion(&mut self, now: Instant, _: usize, request: &Request) {
        self.rubik.handle_work(now, request.compute, request.memory);
        if request.ends == Ends::Request {
            self.rubik.handle_answer(now, now.since(request.arrived));
        }
        self.due = self.due.or_else(|| self.rubik.poll_timeout());
    }
}
