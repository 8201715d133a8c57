//! Crescendo as the frequency policy of a server.

use super::Crescendo;
use crate::frequency::PointIndex;
use machine::{CpuId, Instant};
use policy::kind::{Decision, FrequencyPolicy, Head, Making, Policy, Request, Seen, Waiting, Watch};
use std::collections::VecDeque;

/// One for all cores.
pub struct Server {
    crescendo: Crescendo,
    cpus: Vec<Cpu>,
    busy: u16,
    decisions: VecDeque<Decision>,
    /// A window that begins while another is open ends with it.
    due: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    is_busy: bool,
    /// When it is to be looked at again: of its reviews only the one at that time counts.
    review: Option<Instant>,
}

impl Server {
    pub(super) fn new(making: &Making<'_>) -> Self {
        let (points, turbo) = (making.points(), &making.platform.turbo);
        Self {
            crescendo: Crescendo::new(making.params(), making.workers, &points, turbo),
            cpus: vec![Cpu::default(); making.cpus()],
            busy: 0,
            decisions: VecDeque::new(),
            due: None,
        }
    }

    #[inline]
    fn set_busy(&mut self, now: Instant, cpu: usize, is_busy: bool) {
        if std::mem::replace(&mut self.cpus[cpu].is_busy, is_busy) == is_busy {
            return;
        }
        self.busy = if is_busy { self.busy + 1 } else { self.busy - 1 };
        if self.crescendo.handle_busy(now, self.busy) {
            for (other, state) in self.cpus.iter_mut().enumerate() {
                if other != cpu && state.is_busy && state.review != Some(now) {
                    state.review = Some(now);
                    self.decisions.push_back(Decision::Review { cpu: CpuId(other as u16), at: now });
                }
            }
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
        self.decisions.pop_front()
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
        waiting: &dyn Fn(usize) -> Option<Waiting>,
    ) -> Option<PointIndex> {
        self.set_busy(now, cpu, head.is_some());
        let choice = self.crescendo.choose(now, head, (0..).map_while(waiting));
        if choice.review != self.cpus[cpu].review {
            self.cpus[cpu].review = choice.review;
            let review = choice.review.map(|at| Decision::Review { cpu: CpuId(cpu as u16), at });
            self.decisions.extend(review);
        }
        Some(choice.point)
    }

    #[inline]
    fn handle_idle(&mut self, now: Instant, cpu: usize, _: PointIndex) -> Option<PointIndex> {
        self.set_busy(now, cpu, false);
        None
    }

    #[inline]
    fn handle_completion(&mut self, now: Instant, _: usize, request: &Request) {
        self.crescendo.handle_completion(now, request);
        self.due = self.due.or_else(|| self.crescendo.poll_timeout());
    }

    fn handle_review(&mut self, now: Instant, cpu: usize) -> bool {
        self.cpus[cpu].review.take_if(|at| *at == now).is_some()
    }
}
