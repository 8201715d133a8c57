//! Frequencies: the policy hears of the cores, and its answers become wishes of their P-states.

use super::decisions::Readers;
use super::event_queue::NEVER;
use super::known::{Frequencies, frequency_policy};
use super::task::Task;
use super::{Doing, Engine, Later, Setup};
use machine::{CpuId, Duration, Instant};
use policy::frequency::PointIndex;
use policy::kind::{Constant, Decision, Ends, FrequencyPolicy, Head, Policy, Request, Waiting, Watch};

/// The policy and its driver's state.
pub(super) struct Dvfs {
    policy: Frequencies,
    /// Another policy may choose frequencies besides.
    pub is_constant: bool,
    watch: Watch,
    readers: Readers,
    /// When the policy is called next.
    timer_ns: u64,
}

impl Dvfs {
    pub fn new(setup: &Setup) -> Self {
        let made = setup.policies.frequency(setup);
        let policy = made.unwrap_or_else(|| Box::new(Constant(None)));
        Self {
            is_constant: setup.policies.frequency_is_constant(),
            watch: policy.watches(),
            readers: Readers::new(policy.readings()),
            policy: policy.into(),
            timer_ns: NEVER,
        }
    }

    #[inline]
    pub fn watches_arrivals(&self) -> bool {
        self.watch == Watch::Queues
    }

    #[inline]
    pub fn watches_work(&self) -> bool {
        self.watch != Watch::Nothing || self.readers.wants_responses()
    }
}

fn request(task: &Task, (phase, ends): (u8, Ends)) -> Request {
    Request {
        arrived: Instant::from_nanos(task.arrived_ns),
        class: usize::from(task.class),
        compute: Duration::from_nanos(task.compute_ns),
        memory: Duration::from_nanos(task.memory_ns),
        phase,
        ends,
    }
}

impl Engine {
    pub(super) fn begin_clocking(&mut self) {
        self.obey_frequency_policy(None);
    }

    /// Carries out all decisions, then that of a call for one core, and sets the timer.
    #[inline]
    fn obey_frequency_policy(&mut self, answer: Option<(usize, PointIndex)>) {
        while let Some(decision) = frequency_policy!(&mut self.dvfs.policy, p => p.poll_decision()) {
            self.carry_out(decision);
        }
        if let Some((core, point)) = answer {
            if self.chronicle.is_some() && self.hardware.point(core) != point.0 {
                self.tell_of_decision(Decision::OperatingPoint { cpu: CpuId(core as u16), point });
            }
            self.wish(core, point);
        }
        if let Some(due) = frequency_policy!(&self.dvfs.policy, p => p.poll_timeout())
            && due.as_nanos() < self.dvfs.timer_ns
        {
            self.clock_timer_at(due.as_nanos().max(self.now + 1));
        }
    }

    fn clock_timer_at(&mut self, at: u64) {
        if at < self.dvfs.timer_ns {
            self.dvfs.timer_ns = at;
            self.events.add(at, Later::Dvfs);
        }
    }

    /// A policy wants an operating point for a CPU.
    #[inline]
    pub(super) fn wish(&mut self, cpu: usize, point: PointIndex) {
        let change = self.hardware.wish(cpu, point.0, self.now);
        self.clock_to_change(change);
    }

    /// A thread has begun or ended its work, and its sibling's wishes may decide now.
    #[inline]
    pub(super) fn clock_siblings(&mut self, cpu: usize) {
        let change = self.hardware.ask_anew(cpu, self.now);
        self.clock_to_change(change);
    }

    /// A change of a domain's clock may have begun: when it takes effect.
    #[inline]
    pub(super) fn clock_to_change(&mut self, change: Option<(u64, usize)>) {
        match change {
            Some((at, domain)) if at == self.now => self.clock_changes(domain),
            Some((at, domain)) => self.events.add(at, Later::Clock { domain }),
            None => {}
        }
    }

    pub(super) fn clock_changes(&mut self, domain: usize) {
        let Some(stall_ns) = self.hardware.take_effect(domain, self.now) else { return };
        for place in 0..self.hardware.cpus_of_domain(domain).len() {
            let cpu = self.hardware.cpus_of_domain(domain)[place];
            self.retime(cpu, stall_ns);
            self.tell_of_clock(cpu);
        }
    }

    /// A request joined the shared queue while all cores were busy: those that could take it decide
    /// anew.
    #[inline]
    pub(super) fn clock_arrival_shared(&mut self) {
        // The queue is served by all; the request is counted to one of them in turn.
        self.turn = self.turn.wrapping_add(1);
        self.clock_choose(self.nth_active(self.turn));
    }

    /// The core's queue has changed: which operating point does it need?
    #[inline]
    pub(super) fn clock_choose(&mut self, core: usize) {
        if !self.dvfs.watches_arrivals() {
            return;
        }
        let now = Instant::from_nanos(self.now);
        let state = &self.cores[core];
        let head = (state.doing == Doing::Working).then(|| {
            let planned = state.ends.saturating_sub(state.began);
            let ahead = state.ends.saturating_sub(self.now.max(state.began));
            let left = if planned > 0 { state.left * ahead as f64 / planned as f64 } else { 0.0 };
            Head {
                arrived: Instant::from_nanos(state.task.arrived_ns),
                done_compute: Duration::from_nanos((state.task.compute_ns as f64 * (1.0 - left)) as u64),
                phase: self.pieces.phase(state.task.request),
            }
        });
        let pieces = &self.pieces;
        let waits = |task: &Task| Waiting {
            arrived: Instant::from_nanos(task.arrived_ns),
            phase: pieces.phase(task.request),
        };
        let point = if self.has_shared {
            // Of a queue that all serve, this core will see every so-manieth.
            let (shared, every) = (&self.shared, self.active_count);
            let waiting = |place: usize| shared.get(place * every).map(waits);
            frequency_policy!(&mut self.dvfs.policy, p => p.handle_queue(now, core, head, &waiting))
        } else {
            let waiting = |place: usize| state.queue.get(place).map(waits);
            frequency_policy!(&mut self.dvfs.policy, p => p.handle_queue(now, core, head, &waiting))
        };
        self.obey_frequency_policy(point.map(|point| (core, point)));
    }

    #[inline]
    pub(super) fn clock_started(&mut self, core: usize) {
        match self.dvfs.watch {
            Watch::Queues => self.clock_choose(core),
            Watch::Work => {
                let now = Instant::from_nanos(self.now);
                let task = &self.cores[core].task;
                let request = request(task, (self.pieces.phase(task.request), Ends::Piece));
                let point = PointIndex(self.hardware.point(core));
                let answer = frequency_policy!(
                    &mut self.dvfs.policy,
                    p => p.handle_start(now, core, &request, point)
                );
                self.obey_frequency_policy(answer.map(|point| (core, point)));
            }
            Watch::Nothing | Watch::Completions => {}
        }
    }

    /// A policy asked to look at the core again.
    pub(super) fn review(&mut self, core: usize) {
        let now = Instant::from_nanos(self.now);
        let is_due = frequency_policy!(&mut self.dvfs.policy, p => p.handle_review(now, core));
        if is_due && self.cores[core].doing == Doing::Working {
            self.clock_started(core);
        }
    }

    /// The core has nothing to do.
    #[inline]
    pub(super) fn clock_idle(&mut self, core: usize) {
        if self.dvfs.watches_work() {
            let (now, point) = (Instant::from_nanos(self.now), PointIndex(self.hardware.point(core)));
            let answer = frequency_policy!(&mut self.dvfs.policy, p => p.handle_idle(now, core, point));
            self.obey_frequency_policy(answer.map(|point| (core, point)));
        }
    }

    /// The core has completed a task of this phase of its request, which is over or not.
    #[inline]
    pub(super) fn clock_completed(&mut self, core: usize, task: &Task, (phase, ends): (u8, Ends)) {
        if ends == Ends::Request {
            self.dvfs.readers.record(self.now - task.arrived_ns);
        }
        if self.dvfs.watch != Watch::Nothing {
            let now = Instant::from_nanos(self.now);
            let request = request(task, (phase, ends));
            frequency_policy!(&mut self.dvfs.policy, p => p.handle_completion(now, core, &request));
            self.obey_frequency_policy(None);
        }
    }

    pub(super) fn clock_timer(&mut self) {
        if self.now < self.dvfs.timer_ns {
            return;
        }
        self.dvfs.timer_ns = NEVER;
        let now = Instant::from_nanos(self.now);
        let Self { dvfs, hardware, cores, .. } = self;
        let seen = dvfs.readers.read(hardware, cores, now.as_nanos(), self.active_count);
        frequency_policy!(&mut dvfs.policy, p => p.handle_timeout(now, &seen));
        self.obey_frequency_policy(None);
    }
}
