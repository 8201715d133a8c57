//! How many cores new work may go to, where connections are not moved one by one.
//!
//! The set of active cores is a prefix of the CPUs' numbers: the first thread of each core, socket by
//! socket, and then their siblings, so that parking takes siblings, cores and whole sockets. A core that is
//! parked ends the work that it has begun and that is queued at it, and takes no more.
//! Policies that let the whole machine sleep are in `system_sleep`.

use super::cpu_set::CpuSet;
use super::decisions::Readers;
use super::event_queue::NEVER;
use super::known::{Cores, core_policy};
use super::task::Task;
use super::{Doing, Engine, Later, Setup, system_sleep};
use machine::{Duration, Instant};
use policy::kind::{Completion, CorePolicy, Decision, Policy};

/// The policy and its driver's state.
pub(super) struct CoreControl {
    pub kind: Kind,
    /// When the policy is called next.
    pub timer_ns: u64,
    /// Active cores enter no state with a longer exit latency, parked ones any.
    active_limit: Duration,
    /// A policy's, which ends the run.
    pub fault: Option<String>,
}

pub(super) enum Kind {
    All,
    Counted(Box<Counted>),
    Napping(Box<system_sleep::Nap>),
}

pub(super) struct Counted {
    policy: Cores,
    readers: Readers,
}

impl CoreControl {
    pub fn new(setup: &Setup) -> Self {
        let kind = if let Some(policy) = setup.policies.cores(setup) {
            let readers = Readers::new(policy.readings());
            Kind::Counted(Box::new(Counted { policy: policy.into(), readers }))
        } else if let Some(policy) = setup.policies.nap(setup) {
            Kind::Napping(Box::new(system_sleep::Nap::new(policy)))
        } else {
            Kind::All
        };
        Self { kind, timer_ns: NEVER, active_limit: Duration::MAX, fault: None }
    }

    /// It wants to know of every request that comes and leaves.
    #[inline]
    pub fn watches(&self) -> bool {
        !matches!(self.kind, Kind::All)
    }

    fn look_for_fault(&mut self) {
        if let Kind::Counted(counted) = &self.kind {
            let fault = core_policy!(&counted.policy, p => p.fault());
            self.fault = fault.map(str::to_owned).or(self.fault.take());
        }
    }
}

impl Engine {
    pub(super) fn begin_counting(&mut self) {
        match &self.core_policy.kind {
            Kind::All => {}
            Kind::Counted(_) => {
                self.core_policy.look_for_fault();
                self.obey_core_policy();
            }
            Kind::Napping(_) => self.ask_nap_policy(false),
        }
    }

    /// Carries out all decisions, and sets the timer.
    #[inline]
    fn obey_core_policy(&mut self) {
        while let Kind::Counted(counted) = &mut self.core_policy.kind
            && let Some(decision) = core_policy!(&mut counted.policy, p => p.poll_decision())
        {
            // Another policy may choose frequencies request by request.
            let is_point = matches!(decision, Decision::OperatingPoint { .. } | Decision::Points(_));
            if !is_point || self.dvfs.is_constant {
                self.carry_out(decision);
            }
        }
        if let Kind::Counted(counted) = &self.core_policy.kind
            && let Some(due) = core_policy!(&counted.policy, p => p.poll_timeout())
            && due.as_nanos() < self.core_policy.timer_ns
        {
            self.counting_timer_at(due.as_nanos().max(self.now + 1));
        }
    }

    pub(super) fn counting_timer_at(&mut self, at: u64) {
        if at < self.core_policy.timer_ns {
            self.core_policy.timer_ns = at;
            self.events.add(at, Later::CoreControl);
        }
    }

    pub(super) fn counting_sees_arrival(&mut self, arrived_ns: u64) {
        let now = Instant::from_nanos(self.now);
        let in_system = self.at_cores();
        match &mut self.core_policy.kind {
            Kind::All => {}
            Kind::Counted(counted) => {
                core_policy!(&mut counted.policy, p => p.handle_arrival(now, in_system));
                self.obey_core_policy();
            }
            Kind::Napping(nap) => {
                nap.enter(now, arrived_ns);
                self.ask_nap_policy(false);
            }
        }
    }

    /// Requests in the system that hold a core or wait for one.
    #[inline]
    fn at_cores(&self) -> u32 {
        (self.metrics.in_system() - self.blocked) as u32
    }

    #[inline]
    pub(super) fn counting_sees_completion(&mut self, task: &Task, response_ns: u64) {
        let now = Instant::from_nanos(self.now);
        let in_system = self.at_cores();
        match &mut self.core_policy.kind {
            Kind::All => {}
            Kind::Counted(counted) => {
                counted.readers.record(response_ns + self.told_outside_ns);
                let done = Completion {
                    compute: Duration::from_nanos(task.compute_ns),
                    memory: Duration::from_nanos(task.memory_ns),
                    response: Duration::from_nanos(response_ns),
                    device: Duration::from_nanos(self.device_ns),
                };
                core_policy!(&mut counted.policy, p => p.handle_completion(now, &done, in_system));
                self.obey_core_policy();
            }
            Kind::Napping(nap) => {
                nap.leave(task.arrived_ns);
                self.ask_nap_policy(false);
            }
        }
    }

    pub(super) fn count_cores(&mut self) {
        if self.now < self.core_policy.timer_ns {
            return;
        }
        self.core_policy.timer_ns = NEVER;
        match &mut self.core_policy.kind {
            Kind::All => {}
            Kind::Counted(counted) => {
                let Counted { policy, readers } = &mut **counted;
                let seen = readers.read(&self.hardware, &self.cores, self.now, self.active_count);
                let now = Instant::from_nanos(self.now);
                core_policy!(policy, p => p.handle_timeout(now, &seen));
                self.core_policy.look_for_fault();
                self.obey_core_policy();
            }
            Kind::Napping(_) => self.nap_timer(),
        }
    }

    /// The first `wanted` cores of the order are active from now on.
    pub(super) fn activate(&mut self, wanted: usize) {
        let wanted = wanted.clamp(1, self.setup.workers);
        if wanted == self.active.len() {
            return;
        }
        let mut active = CpuSet::default();
        (0..wanted).for_each(|cpu| active.insert(cpu));
        let was = std::mem::replace(&mut self.active, active);
        self.active_count = active.len();
        if self.core_policy.active_limit != Duration::MAX {
            self.limit_active(self.core_policy.active_limit);
        }
        // Cores that join may find work waiting.
        let mut waiting = self.shared.len();
        for cpu in active.iter().filter(|&cpu| !was.contains(cpu)) {
            if waiting > 0 && self.idle.contains(cpu) {
                self.signal_work(cpu);
                waiting -= 1;
            }
        }
    }

    /// Active cores enter no state with a longer exit latency from now on, parked ones any.
    pub(super) fn limit_active(&mut self, limit: Duration) {
        self.core_policy.active_limit = limit;
        for cpu in 0..self.setup.workers {
            let limit = if self.active.contains(cpu) { limit } else { Duration::MAX };
            self.limit_idle(cpu, limit.as_nanos());
        }
    }

    /// The core that the policy routes a request to; `None`: where it would go by itself.
    #[inline]
    pub(super) fn routed_core(&self) -> Option<usize> {
        let Kind::Counted(counted) = &self.core_policy.kind else { return None };
        let load = |cpu: usize| {
            let core = &self.cores[cpu];
            core.queue.len() as u32 + u32::from(core.doing == Doing::Working)
        };
        core_policy!(&counted.policy, p => p.route(&load))
    }
}
