//! Waking later than one could.
//!
//! Under these policies a core that runs out of work sleeps in the deepest state at once, and an
//! arrival does not wake it: the policy says when the wake-up must begin, and in which operating
//! point the core runs from then on. Each core has its own queue.

use super::event_queue::NEVER;
use super::known::{WakeDelays, wake_delay_policy};
use super::task::Task;
use super::{Doing, Engine, Later, Setup};
use machine::{Duration, Instant};
use policy::kind::WakeDelayPolicy;

pub(super) struct WakeDelay {
    /// Requests wake their cores at once without one.
    policy: Option<WakeDelays>,
    timer_ns: u64,
}

impl WakeDelay {
    pub fn new(setup: &Setup) -> Self {
        Self { policy: setup.policies.wake_delay(setup).map(WakeDelays::from), timer_ns: NEVER }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.policy.is_some()
    }
}

impl Engine {
    /// Where a request goes that would by itself go to `home`.
    pub(super) fn reroute(&mut self, home: usize) -> usize {
        let now = Instant::from_nanos(self.now);
        let Some(policy) = &self.wake_delay.policy else { return home };
        let chance = &mut self.chance.route;
        wake_delay_policy!(policy, p => WakeDelayPolicy::route(&**p, home, now, &mut || chance.bits()))
    }

    /// A request has joined the queue of a core, awake or not.
    pub(super) fn delay_arrival(&mut self, core: usize) {
        let now = Instant::from_nanos(self.now);
        let Some(policy) = &mut self.wake_delay.policy else { return };
        let begin = wake_delay_policy!(policy, p => WakeDelayPolicy::handle_arrival(&mut **p, core, now));
        if let Some(begin) = begin
            && matches!(self.cores[core].doing, Doing::Asleep | Doing::Polling)
        {
            if begin <= now {
                self.signal_work(core);
            } else {
                self.events.set(core, begin.as_nanos());
            }
        }
    }

    /// A core begins to wake up: it will run in the operating point that was planned.
    pub(super) fn delay_waking(&mut self, core: usize) {
        let Some(policy) = &self.wake_delay.policy else { return };
        if let Some(point) = wake_delay_policy!(policy, p => p.wake_point(core)) {
            self.wish(core, point);
        }
    }

    pub(super) fn delay_awake(&mut self, core: usize) {
        // The arrivals while it woke may have changed the plan.
        self.delay_waking(core);
        if let Some(policy) = &mut self.wake_delay.policy {
            wake_delay_policy!(policy, p => WakeDelayPolicy::handle_awake(&mut **p, core));
        }
    }

    /// A core has nothing to do.
    pub(super) fn delay_idle(&mut self, core: usize) {
        let now = Instant::from_nanos(self.now);
        if let Some(policy) = &mut self.wake_delay.policy {
            wake_delay_policy!(policy, p => WakeDelayPolicy::handle_idle(&mut **p, core, now));
        }
    }

    /// A core has completed a request.
    pub(super) fn delay_completed(&mut self, core: usize, task: &Task) {
        let now = Instant::from_nanos(self.now);
        let needed = (Duration::from_nanos(task.compute_ns), Duration::from_nanos(task.memory_ns));
        let Some(policy) = &mut self.wake_delay.policy else { return };
        let queue = &self.cores[core].queue;
        let waiting = |place: usize| queue.get(place).map(|task| Instant::from_nanos(task.arrived_ns));
        let (point, timeout) = wake_delay_policy!(policy, p => {
            let point = WakeDelayPolicy::handle_completion(&mut **p, core, now, needed, &waiting);
            (point, WakeDelayPolicy::poll_timeout(&**p))
        });
        if let Some(point) = point {
            self.wish(core, point);
        }
        if let Some(due) = timeout
            && self.wake_delay.timer_ns == NEVER
        {
            self.wake_delay.timer_ns = due.as_nanos().max(self.now + 1);
            self.events.add(self.wake_delay.timer_ns, Later::WakeDelay);
        }
    }

    pub(super) fn delay_timer(&mut self) {
        let now = Instant::from_nanos(self.now);
        self.wake_delay.timer_ns = NEVER;
        if let Some(policy) = &mut self.wake_delay.policy {
            wake_delay_policy!(policy, p => WakeDelayPolicy::handle_timeout(&mut **p, now));
        }
    }
}
