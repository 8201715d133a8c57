//! Gears: the frequency policy is told what the cores do, and its answers become wishes of the
//! clocks.
//!
//! Three kinds. *Sampled* ones look at each core once a period (ondemand, sensitivity) or at the
//! whole service (Pegasus). *Following* ones are called whenever a core begins or ends to execute
//! (schedutil, Hurry-up, Adrenaline). Rubik decides at every arrival, begin and completion, from
//! the queue; Crescendo also as the work goes on.

use super::agenda::{Agenda, NEVER};
use super::books::histogram;
use super::setup::Dispatch;
use super::task::Task;
use super::{Doing, Engine, Later, Setup};
use crate::policies::ClockPolicy;
use hdrhistogram::Histogram;
use literature::frequency::adrenaline::Adrenaline;
use literature::frequency::crescendo::Crescendo;
use literature::frequency::rubik::{Head, Rubik};
use literature::frequency::{Ondemand, Schedutil};
use literature::timing::sleep_scale::{Served, SleepScale};
use machine::{CpuId, Duration, Instant};
use policy::SleepState;
use policy::frequency::hurry_up::{HurryUp, ThreadId};
use policy::frequency::{
    GearIndex, GearTable, Pegasus, Sensitivity, pegasus::Latency, sensitivity::Progress,
};

/// The policy and what it needs to remember between two calls.
pub(super) struct Clocking {
    gears: GearTable,
    kind: Kind,
    /// When the policy is called next.
    timer_ns: u64,
}

enum Kind {
    /// One gear.
    Fixed(GearIndex),
    /// One per CPU, each looked at in turn.
    Ondemand(Vec<(Ondemand, Look)>),
    Sensitivity(Vec<(Sensitivity, Look)>),
    Schedutil(Vec<Schedutil>),
    Pegasus(Box<(Pegasus, Histogram<u64>, f64)>),
    Rubik(Box<Rubik>),
    /// And when each core is to be looked at again: of its reviews only the one at that time
    /// counts.
    Crescendo(Box<Crescendo>, Vec<u64>),
    HurryUp(Box<HurryUp>),
    Adrenaline(Box<Adrenaline>),
    SleepScale(Box<SleepScale>),
}

/// Sums of one CPU at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    at_ns: u64,
    awake_ns: u64,
    working_ns: u64,
    work_done: f64,
    due_ns: u64,
}

impl Clocking {
    pub fn new(setup: &Setup) -> Self {
        // The platform was checked, so its gears make a table.
        let gears = GearTable::new(&setup.platform.frequencies).expect("a checked platform has gears");
        let cpus = setup.platform.cpus();
        let kind = match &setup.policies.clock {
            ClockPolicy::Fixed(fixed) => Kind::Fixed(fixed.gear(&gears)),
            ClockPolicy::Ondemand(params) => {
                Kind::Ondemand(vec![(Ondemand::new(*params), Look::default()); cpus])
            }
            ClockPolicy::Sensitivity(params) => {
                Kind::Sensitivity(vec![(Sensitivity::new(*params), Look::default()); cpus])
            }
            ClockPolicy::Schedutil(params) => Kind::Schedutil(vec![Schedutil::new(*params); cpus]),
            ClockPolicy::Pegasus(params, quantile) => {
                let responses = histogram(3);
                Kind::Pegasus(Box::new((Pegasus::new(*params), responses, *quantile)))
            }
            ClockPolicy::Rubik(params) => Kind::Rubik(Box::new(Rubik::new(*params, &gears))),
            ClockPolicy::Crescendo(params) => {
                Kind::Crescendo(Box::new(Crescendo::new(*params, &gears)), vec![NEVER; cpus])
            }
            ClockPolicy::HurryUp(params) => {
                // Each worker has a thread of its own, bound to it; the hot function is all that a
                // request does.
                let threads = (0..setup.workers).map(|cpu| (ThreadId(cpu as u32), CpuId(cpu as u16)));
                Kind::HurryUp(Box::new(HurryUp::new(*params, &gears, threads)))
            }
            ClockPolicy::Adrenaline(params) => Kind::Adrenaline(Box::new(Adrenaline::new(params, &gears))),
            ClockPolicy::SleepScale(params) => {
                let states = setup.platform.cstates.0.iter().map(|state| SleepState {
                    exit_latency: state.true_exit_latency.unwrap_or(state.exit_latency),
                    power: state.power.unwrap_or_default(),
                });
                let (states, cores) = (states.collect(), setup.workers as u16);
                Kind::SleepScale(Box::new(SleepScale::new(*params, states, gears, cores, Instant::ZERO)))
            }
        };
        Self { gears, kind, timer_ns: NEVER }
    }

    #[inline]
    pub fn watches_arrivals(&self) -> bool {
        matches!(self.kind, Kind::Rubik(_) | Kind::Crescendo(..))
    }

    /// The gear for a core with this queue, and a note to look at it again.
    #[inline]
    fn by_queue(
        &mut self,
        core: usize,
        now: Instant,
        head: Option<Head>,
        waiting: impl Iterator<Item = Instant>,
        agenda: &mut Agenda<Later>,
    ) -> GearIndex {
        match &mut self.kind {
            Kind::Rubik(rubik) => rubik.choose(now, head, waiting),
            Kind::Crescendo(crescendo, reviews) => {
                let choice = crescendo.choose(now, head, waiting);
                let at = choice.review.map_or(NEVER, Instant::as_nanos);
                if at != reviews[core] {
                    reviews[core] = at;
                    if at != NEVER {
                        agenda.add(at, Later::Review { cpu: core });
                    }
                }
                choice.gear
            }
            _ => self.gears.fastest(),
        }
    }

    #[inline]
    pub fn watches_work(&self) -> bool {
        !matches!(self.kind, Kind::Fixed(_))
    }
}

impl Engine {
    pub(super) fn begin_clocking(&mut self) {
        let first = match &self.clocking.kind {
            Kind::Fixed(gear) => {
                let gear = *gear;
                (0..self.hardware.cpus()).for_each(|cpu| self.wish(cpu, gear));
                None
            }
            Kind::Ondemand(cpus) => cpus.first().map(|(policy, _)| policy.period()),
            Kind::Sensitivity(cpus) => cpus.first().map(|(policy, _)| policy.period()),
            Kind::Schedutil(cpus) => cpus.first().map(Schedutil::period),
            Kind::Pegasus(pegasus) => Some(pegasus.0.period()),
            Kind::Rubik(_) | Kind::Crescendo(..) | Kind::Adrenaline(_) => None,
            Kind::HurryUp(_) => {
                self.obey_hurry_up();
                None
            }
            Kind::SleepScale(policy) => {
                let (state, due) = (policy.choice().state.0, policy.poll_timeout());
                self.settle_sleep(state, state);
                Some(due.since(Instant::ZERO))
            }
        };
        if let Some(period) = first {
            self.clock_timer_at(self.now + period.as_nanos());
        }
    }

    fn clock_timer_at(&mut self, at: u64) {
        if at < self.clocking.timer_ns {
            self.clocking.timer_ns = at;
            self.agenda.add(at, Later::Clocking);
        }
    }

    /// A policy wants a gear for a CPU.
    #[inline]
    pub(super) fn wish(&mut self, cpu: usize, gear: GearIndex) {
        if let Some((at, domain)) = self.hardware.wish(cpu, gear.0, self.now) {
            if at == self.now {
                self.clock_changes(domain);
            } else {
                self.agenda.add(at, Later::Clock { domain });
            }
        }
    }

    /// A clock changes now.
    pub(super) fn clock_changes(&mut self, domain: usize) {
        let Some(stall_ns) = self.hardware.take_effect(domain, self.now) else { return };
        for place in 0..self.hardware.cpus_of_domain(domain).len() {
            let cpu = self.hardware.cpus_of_domain(domain)[place];
            self.retime(cpu, stall_ns);
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

    /// The core's queue has changed: which gear does it need?
    #[inline]
    pub(super) fn clock_choose(&mut self, core: usize) {
        if !self.clocking.watches_arrivals() {
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
            }
        });
        let arrived = |task: &Task| Instant::from_nanos(task.arrived_ns);
        let gear = if self.setup.dispatch == Dispatch::Shared {
            // Of a queue that all serve, this core will see every so-manieth.
            let (every, mut place) = (self.active_count, 0);
            let seen = std::iter::from_fn(|| {
                let task = self.shared.get(place)?;
                place += every;
                Some(task)
            });
            let waiting = seen.map(arrived);
            self.clocking.by_queue(core, now, head, waiting, &mut self.agenda)
        } else {
            let waiting = state.queue.iter().map(arrived);
            self.clocking.by_queue(core, now, head, waiting, &mut self.agenda)
        };
        self.wish(core, gear);
    }

    /// The core begins a task.
    #[inline]
    pub(super) fn clock_started(&mut self, core: usize) {
        match &mut self.clocking.kind {
            Kind::Rubik(_) | Kind::Crescendo(..) => self.clock_choose(core),
            Kind::Schedutil(_) => self.follow_schedutil(core, true),
            Kind::HurryUp(policy) => {
                policy.handle_enter(Instant::from_nanos(self.now), ThreadId(core as u32));
                self.obey_hurry_up();
            }
            Kind::Adrenaline(policy) => {
                let task = &self.cores[core].task;
                let arrived = Instant::from_nanos(task.arrived_ns);
                let now = Instant::from_nanos(self.now);
                let class = usize::from(task.class);
                let gear = policy.choose(class, now.since(arrived));
                if let Some(at) = policy.boost_at(class, arrived).filter(|&at| at > now) {
                    let arrived_ns = task.arrived_ns;
                    self.agenda.add(at.as_nanos(), Later::Boost { cpu: core, arrived_ns });
                }
                self.wish(core, gear);
            }
            _ => {}
        }
    }

    /// A request has become old: if the core is still at it, it gets the gear for old ones.
    pub(super) fn boost(&mut self, core: usize, arrived_ns: u64) {
        let task = &self.cores[core].task;
        if self.cores[core].doing != Doing::Working || task.arrived_ns != arrived_ns {
            return;
        }
        if let Kind::Adrenaline(policy) = &self.clocking.kind {
            let age = Duration::from_nanos(self.now - arrived_ns);
            let gear = policy.choose(usize::from(task.class), age);
            self.wish(core, gear);
        }
    }

    /// A request has got to where its plan looks at it again.
    pub(super) fn review(&mut self, core: usize) {
        if let Kind::Crescendo(_, reviews) = &mut self.clocking.kind
            && reviews[core] == self.now
        {
            reviews[core] = NEVER;
            if self.cores[core].doing == Doing::Working {
                self.clock_choose(core);
            }
        }
    }

    fn obey_hurry_up(&mut self) {
        while let Kind::HurryUp(policy) = &mut self.clocking.kind
            && let Some(shift) = policy.poll_command()
        {
            self.wish(shift.cpu.index(), shift.gear);
        }
        if let Kind::HurryUp(policy) = &self.clocking.kind
            && let Some(due) = policy.poll_timeout()
        {
            self.clock_timer_at(due.as_nanos().max(self.now + 1));
        }
    }

    /// The core has nothing to do.
    #[inline]
    pub(super) fn clock_idle(&mut self, core: usize) {
        if matches!(self.clocking.kind, Kind::Schedutil(_)) {
            self.follow_schedutil(core, false);
        }
    }

    fn follow_schedutil(&mut self, core: usize, running: bool) {
        let Kind::Schedutil(cpus) = &mut self.clocking.kind else { return };
        let speed = self.clocking.gears.speed(GearIndex(self.hardware.gear(core)));
        let now = Instant::from_nanos(self.now);
        if let Some(gear) = cpus[core].handle_change(now, &self.clocking.gears, running, speed) {
            self.wish(core, gear);
        }
    }

    /// The core has completed a task.
    #[inline]
    pub(super) fn clock_completed(&mut self, core: usize, task: &Task) {
        match &mut self.clocking.kind {
            Kind::Rubik(_) | Kind::Crescendo(..) => self.clock_learns(task),
            Kind::Pegasus(pegasus) => pegasus.1.saturating_record(self.now - task.arrived_ns),
            Kind::HurryUp(policy) => {
                policy.handle_exit(Instant::from_nanos(self.now), ThreadId(core as u32));
                self.obey_hurry_up();
            }
            Kind::SleepScale(policy) => policy.handle_completion(Served {
                arrived: Instant::from_nanos(task.arrived_ns),
                core: core as u16,
                compute: Duration::from_nanos(task.compute_ns),
                memory: Duration::from_nanos(task.memory_ns),
            }),
            _ => {}
        }
    }

    /// A policy that decides by the queue is told what a request needed.
    #[inline]
    fn clock_learns(&mut self, task: &Task) {
        let now = Instant::from_nanos(self.now);
        let compute = Duration::from_nanos(task.compute_ns);
        let memory = Duration::from_nanos(task.memory_ns);
        let response = Duration::from_nanos(self.now - task.arrived_ns);
        let due = match &mut self.clocking.kind {
            Kind::Rubik(rubik) => {
                rubik.handle_completion(now, compute, memory, response);
                rubik.poll_timeout()
            }
            Kind::Crescendo(crescendo, _) => {
                crescendo.handle_completion(now, compute, memory, response);
                crescendo.poll_timeout()
            }
            _ => None,
        };
        if self.clocking.timer_ns == NEVER
            && let Some(due) = due
        {
            self.clock_timer_at(due.as_nanos());
        }
    }

    /// The policy's time has come.
    pub(super) fn clock_timer(&mut self) {
        let now_ns = self.now;
        let now = Instant::from_nanos(now_ns);
        if now_ns < self.clocking.timer_ns {
            return;
        }
        self.clocking.timer_ns = NEVER;
        let gears = self.clocking.gears;
        match &mut self.clocking.kind {
            Kind::Fixed(_) | Kind::Adrenaline(_) => {}
            Kind::HurryUp(policy) => {
                policy.handle_timeout(now);
                self.obey_hurry_up();
            }
            Kind::SleepScale(policy) => {
                let choice = policy.handle_timeout(now);
                let due = policy.poll_timeout().as_nanos();
                if let Some(choice) = choice {
                    self.settle_sleep(choice.state.0, choice.state.0);
                    (0..self.hardware.cpus()).for_each(|cpu| self.wish(cpu, choice.gear));
                }
                self.clock_timer_at(due);
            }
            Kind::Ondemand(cpus) => {
                let mut wishes = Vec::with_capacity(cpus.len());
                for (cpu, (policy, look)) in cpus.iter_mut().enumerate() {
                    if look.due_ns > now_ns {
                        continue;
                    }
                    let awake_ns = self.hardware.awake_ns(cpu, now_ns);
                    let span = Duration::from_nanos(now_ns - look.at_ns);
                    let busy = Duration::from_nanos(awake_ns - look.awake_ns);
                    wishes.push((cpu, policy.handle_sample(&gears, span, busy)));
                    let due_ns = now_ns + policy.period().as_nanos();
                    *look = Look { at_ns: now_ns, awake_ns, due_ns, ..*look };
                }
                let next = cpus.iter().map(|(_, look)| look.due_ns).min().unwrap_or(NEVER);
                wishes.into_iter().for_each(|(cpu, gear)| self.wish(cpu, gear));
                self.clock_timer_at(next);
            }
            Kind::Sensitivity(cpus) => {
                let mut wishes = Vec::with_capacity(cpus.len());
                for (cpu, (policy, look)) in cpus.iter_mut().enumerate() {
                    let working_ns = self.hardware.working_ns(cpu, now_ns);
                    let work_done = self.cores[cpu].work_done(now_ns);
                    let busy_ns = working_ns - look.working_ns;
                    let speed = gears.speed(GearIndex(self.hardware.gear(cpu)));
                    let progress = Progress {
                        instructions: work_done - look.work_done,
                        speed,
                        busy: Duration::from_nanos(busy_ns),
                    };
                    wishes.push((cpu, policy.handle_step(&gears, &progress)));
                    *look = Look { at_ns: now_ns, working_ns, work_done, ..*look };
                }
                let period = cpus.first().map_or(NEVER, |(policy, _)| policy.period().as_nanos());
                wishes.into_iter().for_each(|(cpu, gear)| self.wish(cpu, gear));
                self.clock_timer_at(now_ns + period);
            }
            Kind::Schedutil(cpus) => {
                let period = cpus.first().map_or(NEVER, |policy| policy.period().as_nanos());
                for cpu in 0..self.hardware.cpus() {
                    if self.cores[cpu].doing == Doing::Working {
                        self.follow_schedutil(cpu, true);
                    }
                }
                self.clock_timer_at(now_ns + period);
            }
            Kind::Pegasus(pegasus) => {
                let (policy, responses, quantile) = &mut **pegasus;
                let latency = match responses.len() {
                    0 => Latency::NoRequests,
                    _ => Latency::Measured(Duration::from_nanos(responses.value_at_quantile(*quantile))),
                };
                let gear = policy.handle_epoch(now, &gears, latency);
                responses.reset();
                let next = now_ns + policy.period().as_nanos();
                (0..self.hardware.cpus()).for_each(|cpu| self.wish(cpu, gear));
                self.clock_timer_at(next);
            }
            Kind::Rubik(rubik) => {
                rubik.handle_timeout(now);
                if let Some(due) = rubik.poll_timeout() {
                    self.clock_timer_at(due.as_nanos());
                }
            }
            Kind::Crescendo(crescendo, _) => {
                crescendo.handle_timeout(now);
                if let Some(due) = crescendo.poll_timeout() {
                    self.clock_timer_at(due.as_nanos());
                }
            }
        }
    }
}

impl super::Core {
    /// Work done so far, in ns of work at the nominal clock: what a counter of instructions would
    /// say.
    fn work_done(&self, now: u64) -> f64 {
        let open = if self.doing == Doing::Working && self.ends > self.began {
            let all = (self.task.compute_ns + self.task.memory_ns) as f64;
            let ahead =
                self.ends.saturating_sub(now.max(self.began)) as f64 / (self.ends - self.began) as f64;
            all * (1.0 - self.left * ahead)
        } else {
            0.0
        };
        self.completed_ns as f64 + open
    }
}
