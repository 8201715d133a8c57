//! The clock of the sockets' uncore: how much less it takes than at its fastest, and how much longer
//! requests then wait for memory.
//!
//! All sockets have one clock. Work that has begun keeps its pace; the next work has the new one. A
//! socket that sleeps as a whole takes the same at each clock.

use super::decisions::Readers;
use super::event_queue::NEVER;
use super::{Engine, Later, Setup};
use machine::{FrequencyLimit, Instant};
use policy::kind::Policy;

/// The policy and its driver's state.
pub(super) struct UncoreControl {
    policy: Box<dyn Policy>,
    readers: Readers,
    /// When the policy is called next.
    timer_ns: u64,
}

impl UncoreControl {
    pub fn new(setup: &Setup) -> Option<Self> {
        let policy = setup.policies.uncore(setup)?;
        Some(Self { readers: Readers::new(policy.readings()), policy, timer_ns: NEVER })
    }
}

impl Engine {
    pub(super) fn begin_uncore(&mut self) {
        self.obey_uncore();
    }

    pub(super) fn uncore_sees(&mut self, response_ns: u64) {
        if let Some(uncore) = &mut self.uncore {
            uncore.readers.record(response_ns);
        }
    }

    pub(super) fn uncore_timer(&mut self) {
        let Some(uncore) = self.uncore.as_mut().filter(|uncore| self.now >= uncore.timer_ns) else { return };
        uncore.timer_ns = NEVER;
        let seen = uncore.readers.read(&self.hardware, &self.cores, self.now, self.active_count);
        uncore.policy.handle_timeout(Instant::from_nanos(self.now), &seen);
        self.obey_uncore();
    }

    /// Carries out all decisions, and sets the timer.
    fn obey_uncore(&mut self) {
        while let Some(decision) = self.uncore.as_mut().and_then(|uncore| uncore.policy.poll_decision()) {
            self.carry_out(decision);
        }
        let Some(uncore) = &mut self.uncore else { return };
        if let Some(due) = uncore.policy.poll_timeout() {
            uncore.timer_ns = due.as_nanos().max(self.now + 1);
            self.events.add(uncore.timer_ns, Later::Uncore);
        }
    }

    pub(super) fn set_uncore(&mut self, limit: FrequencyLimit) {
        let platform = &self.setup.platform;
        let Some(of) = platform.uncore_clock else { return };
        let clock = match limit {
            FrequencyLimit::None => of.fastest,
            FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock) => clock,
        };
        let spared_watts = platform.uncore.as_watts() * (1.0 - of.power(clock));
        self.hardware.slow_uncore(spared_watts, of.slowness(clock), self.now);
    }
}
