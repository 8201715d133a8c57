//! Hurry-up where each worker has a thread of its own, bound to its CPU, and the hot function is
//! all that a request does.

use super::{HurryUp, Shift, ThreadId};
use crate::frequency::PointIndex;
use crate::kind::{Decision, FrequencyPolicy, Making, Policy, Request, Seen, Watch};
use machine::{CpuId, Instant};

/// The policy of such a server.
pub struct Bound(HurryUp);

impl Bound {
    pub(super) fn new(making: &Making<'_>) -> Self {
        let threads = (0..making.workers).map(|cpu| (ThreadId(u32::from(cpu)), CpuId(cpu)));
        Self(HurryUp::new(making.params(), &making.points(), threads))
    }
}

impl Policy for Bound {
    fn handle_timeout(&mut self, now: Instant, _: &Seen<'_>) {
        self.0.handle_timeout(now);
    }

    #[inline]
    fn poll_decision(&mut self) -> Option<Decision> {
        let Shift { cpu, point, .. } = self.0.poll_command()?;
        Some(Decision::OperatingPoint { cpu, point })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }
}

impl FrequencyPolicy for Bound {
    fn watches(&self) -> Watch {
        Watch::Work
    }

    fn handle_start(&mut self, now: Instant, cpu: usize, _: &Request, _: PointIndex) -> Option<PointIndex> {
        self.0.handle_enter(now, ThreadId(cpu as u32));
        None
    }

    fn handle_completion(&mut self, now: Instant, cpu: usize, _: &Request) {
        self.0.handle_exit(now, ThreadId(cpu as u32));
    }
}
