//! Waking later than one could: DynSleep and uDPM.
//!
//! Under these a core that runs out of work sleeps in the deepest state at once, and an arrival
//! does not wake it: the policy says when the wake-up must begin, and in which gear the core runs
//! from then on. Each core has its own queue.

use super::agenda::NEVER;
use super::task::Task;
use super::{Doing, Engine, Later, Setup};
use crate::policies::DelayPolicy;
use literature::timing::dyn_sleep::DynSleep;
use literature::timing::udpm::UDpm;
use machine::{Duration, Instant};
use policy::SleepState;
use policy::frequency::GearTable;

/// The policy.
pub(super) struct Delaying {
    kind: Kind,
    timer_ns: u64,
}

enum Kind {
    Off,
    DynSleep(Box<DynSleep>),
    UDpm(Box<UDpm>),
}

impl Delaying {
    pub fn new(setup: &Setup) -> Self {
        let platform = &setup.platform;
        let gears = GearTable::new(&platform.frequencies).expect("a checked platform has gears");
        let sleep = platform.cstates.0.last().map(|state| SleepState {
            // Plans rest on what the machine advertises; what waking takes is the machine's.
            exit_latency: state.exit_latency,
            power: state.power.unwrap_or_default(),
        });
        let (cpus, now) = (platform.cpus(), Instant::ZERO);
        let kind = match (&setup.policies.delay, sleep) {
            (Some(DelayPolicy::DynSleep(params)), Some(sleep)) => {
                Kind::DynSleep(Box::new(DynSleep::new(*params, sleep, 1.0, cpus, now)))
            }
            (Some(DelayPolicy::UDpm(params)), Some(sleep)) => {
                Kind::UDpm(Box::new(UDpm::new(*params, gears, sleep, cpus, now)))
            }
            _ => Kind::Off,
        };
        Self { kind, timer_ns: NEVER }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        !matches!(self.kind, Kind::Off)
    }
}

impl Engine {
    /// Where a request goes that would by itself go to `home`.
    pub(super) fn reroute(&mut self, home: usize) -> usize {
        let now = Instant::from_nanos(self.now);
        match &self.delaying.kind {
            Kind::UDpm(policy) => policy.route(home, now, self.chance.bits()),
            Kind::DynSleep(_) | Kind::Off => home,
        }
    }

    /// A request has joined the queue of a core, awake or not.
    pub(super) fn delay_arrival(&mut self, core: usize) {
        let now = Instant::from_nanos(self.now);
        let begin = match &mut self.delaying.kind {
            Kind::Off => None,
            Kind::DynSleep(policy) => policy.handle_arrival(core, now),
            Kind::UDpm(policy) => policy.handle_arrival(core, now).map(|wake| wake.begin),
        };
        if let Some(begin) = begin
            && matches!(self.cores[core].doing, Doing::Asleep | Doing::Polling)
        {
            if begin <= now {
                self.signal_work(core);
            } else {
                self.agenda.set(core, begin.as_nanos());
            }
        }
    }

    /// A core begins to wake up: it will run in the gear that was planned.
    pub(super) fn delay_waking(&mut self, core: usize) {
        if let Kind::UDpm(policy) = &self.delaying.kind
            && let Some(wake) = policy.wake(core)
        {
            self.wish(core, wake.gear);
        }
    }

    /// A core is up.
    pub(super) fn delay_awake(&mut self, core: usize) {
        // What came while it woke may have changed the plan.
        self.delay_waking(core);
        match &mut self.delaying.kind {
            Kind::Off => {}
            Kind::DynSleep(policy) => policy.handle_awake(core),
            Kind::UDpm(policy) => policy.handle_awake(core),
        }
    }

    /// A core has nothing to do.
    pub(super) fn delay_idle(&mut self, core: usize) {
        let now = Instant::from_nanos(self.now);
        match &mut self.delaying.kind {
            Kind::Off => {}
            Kind::DynSleep(policy) => policy.handle_idle(core, now),
            Kind::UDpm(policy) => policy.handle_idle(core, now),
        }
    }

    /// A core has completed a request.
    pub(super) fn delay_completed(&mut self, core: usize, task: &Task) {
        let now = Instant::from_nanos(self.now);
        let (compute, memory) = (Duration::from_nanos(task.compute_ns), Duration::from_nanos(task.memory_ns));
        let timeout = match &mut self.delaying.kind {
            Kind::Off => None,
            Kind::DynSleep(policy) => {
                policy.handle_completion(core, now, compute, memory);
                policy.poll_timeout()
            }
            Kind::UDpm(policy) => {
                let waiting = self.cores[core].queue.iter().map(|task| Instant::from_nanos(task.arrived_ns));
                let gear = policy.handle_completion(core, now, (compute, memory), waiting);
                let timeout = policy.poll_timeout();
                if let Some(gear) = gear {
                    self.wish(core, gear);
                }
                timeout
            }
        };
        if let Some(due) = timeout
            && self.delaying.timer_ns == NEVER
        {
            self.delaying.timer_ns = due.as_nanos().max(self.now + 1);
            self.agenda.add(self.delaying.timer_ns, Later::Delaying);
        }
    }

    /// The policy wants to learn.
    pub(super) fn delay_timer(&mut self) {
        let now = Instant::from_nanos(self.now);
        self.delaying.timer_ns = NEVER;
        match &mut self.delaying.kind {
            Kind::Off => {}
            Kind::DynSleep(policy) => policy.handle_timeout(now),
            Kind::UDpm(policy) => policy.handle_timeout(now),
        }
    }
}
