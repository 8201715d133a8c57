//! How many cores new work may go to, where connections are not moved one by one.
//!
//! The set of active cores is a prefix of one order: sockets one after the other, in each the
//! cores, of each core both threads, so that parking takes whole cores and then whole sockets. A
//! core that is parked ends what it has begun and what is queued at it, and takes no more. Policies
//! that let the whole machine sleep are in `napping`.

use super::agenda::NEVER;
use super::books::histogram;
use super::hardware::CpuSet;
use super::task::Task;
use super::{Engine, Later, Setup, napping};
use crate::policies::{ClockPolicy, CoresPolicy};
use hdrhistogram::Histogram;
use literature::cores::auto_scale::AutoScale;
use machine::{Duration, Instant, Rate, Ratio};
use policy::SleepState;
use policy::carb::{Controller, Epoch, GoalSearch};
use policy::frequency::GearTable;
use policy::joint::{Joint, Plan};

/// The policy and what it has seen.
pub(super) struct Counting {
    pub kind: Kind,
    /// When the policy is called next.
    pub timer_ns: u64,
}

pub(super) enum Kind {
    /// All cores, always.
    All,
    Carb(Box<Carb>),
    AutoScale(Box<AutoScale>),
    Napping(Box<napping::Nap>),
    Joint(Box<Joint>),
}

pub(super) struct Carb {
    search: Search,
    epoch: Duration,
    /// Which tail the search looks at.
    quantile: f64,
    responses: Histogram<u64>,
    /// What all CPUs together had worked when the epoch began.
    worked_ns: u64,
}

enum Search {
    Slope(Controller),
    Goal(GoalSearch),
}

impl Carb {
    fn kind(search: Search, epoch: Duration, quantile: f64) -> Kind {
        Kind::Carb(Box::new(Self { search, epoch, quantile, responses: histogram(3), worked_ns: 0 }))
    }
}

impl Counting {
    pub fn new(setup: &Setup) -> Self {
        let workers = setup.workers as u16;
        let kind = match &setup.policies.cores {
            // On connections CARB is the live scheduler's.
            CoresPolicy::Carb(_) if setup.dispatch == super::Dispatch::Connections => Kind::All,
            // The paper evaluates the 95th percentile.
            CoresPolicy::Carb(params) => {
                Carb::kind(Search::Slope(Controller::new(*params, workers)), params.epoch, 0.95)
            }
            CoresPolicy::CarbGoal(params, goal) => {
                let search = Search::Goal(GoalSearch::new(*params, *goal, workers));
                Carb::kind(search, params.epoch, goal.quantile)
            }
            CoresPolicy::AutoScale(params) => Kind::AutoScale(Box::new(AutoScale::new(*params, workers))),
            CoresPolicy::PowerNap => Kind::Napping(Box::new(napping::Nap::power_nap())),
            CoresPolicy::DreamWeaver(params) => {
                Kind::Napping(Box::new(napping::Nap::dream_weaver(*params, setup)))
            }
            CoresPolicy::Joint(params) => {
                let platform = &setup.platform;
                let gears = GearTable::new(&platform.frequencies).expect("a checked platform has gears");
                let states = platform.cstates.0.iter().map(|state| SleepState {
                    exit_latency: state.true_exit_latency.unwrap_or(state.exit_latency),
                    power: state.power.unwrap_or_default(),
                });
                let states: Vec<SleepState> = states.collect();
                Kind::Joint(Box::new(Joint::new(*params, workers, &gears, &states, Instant::ZERO)))
            }
            CoresPolicy::AllAwake | CoresPolicy::Peafowl(_) => Kind::All,
        };
        Self { kind, timer_ns: NEVER }
    }

    /// It wants to know of every request that comes and leaves.
    #[inline]
    pub fn watches(&self) -> bool {
        !matches!(self.kind, Kind::All)
    }
}

impl Engine {
    pub(super) fn begin_counting(&mut self) {
        match &self.counting.kind {
            Kind::All => {}
            Kind::Carb(carb) => {
                let epoch = carb.epoch.as_nanos();
                self.counting_timer_at(self.now + epoch);
            }
            Kind::AutoScale(policy) => {
                let on = usize::from(policy.on());
                self.activate(on);
            }
            Kind::Napping(_) => self.nap_change(),
            Kind::Joint(policy) => {
                let plan = policy.plan();
                self.obey_joint(Some(plan));
            }
        }
    }

    fn obey_joint(&mut self, plan: Option<Plan>) {
        if let Some(plan) = plan {
            let deepest = (self.sleepers.table.len() - 1) as u8;
            if !self.place_on(usize::from(plan.active)) {
                self.activate(usize::from(plan.active));
            }
            self.settle_sleep(plan.idle.0, deepest);
            // Another policy may choose gears request by request.
            if matches!(self.setup.policies.clock, ClockPolicy::Fixed(_)) {
                (0..self.hardware.cpus()).for_each(|cpu| self.wish(cpu, plan.gear));
            }
        }
        if let Kind::Joint(policy) = &self.counting.kind
            && let Some(due) = policy.poll_timeout()
        {
            self.counting_timer_at(due.as_nanos().max(self.now + 1));
        }
    }

    pub(super) fn counting_timer_at(&mut self, at: u64) {
        if at < self.counting.timer_ns {
            self.counting.timer_ns = at;
            self.agenda.add(at, Later::Counting);
        }
    }

    /// A request came.
    pub(super) fn counting_sees_arrival(&mut self, arrived_ns: u64) {
        let now = Instant::from_nanos(self.now);
        let in_system = self.books.in_system() as u32;
        match &mut self.counting.kind {
            Kind::All | Kind::Carb(_) => {}
            Kind::AutoScale(policy) => {
                let on = policy.handle_arrival(now, in_system);
                self.activate(usize::from(on));
                self.auto_scale_timer();
            }
            Kind::Napping(nap) => {
                nap.enter(now, arrived_ns);
                self.nap_change();
            }
            Kind::Joint(policy) => {
                let plan = policy.handle_arrival(now, in_system);
                if plan.is_some() || self.counting.timer_ns == NEVER {
                    self.obey_joint(plan);
                }
            }
        }
    }

    /// A request left.
    #[inline]
    pub(super) fn counting_sees_completion(&mut self, task: &Task, response_ns: u64) {
        let now = Instant::from_nanos(self.now);
        let in_system = self.books.in_system() as u32;
        match &mut self.counting.kind {
            Kind::All => {}
            Kind::Carb(carb) => carb.responses.saturating_record(response_ns),
            Kind::AutoScale(policy) => {
                let on = policy.handle_completion(now, in_system);
                self.activate(usize::from(on));
                self.auto_scale_timer();
            }
            Kind::Napping(nap) => {
                nap.leave(task.arrived_ns);
                self.nap_change();
            }
            Kind::Joint(policy) => {
                let (compute, memory) =
                    (Duration::from_nanos(task.compute_ns), Duration::from_nanos(task.memory_ns));
                let response = Duration::from_nanos(response_ns);
                let plan = policy.handle_completion(now, compute, memory, response, in_system);
                if plan.is_some() {
                    self.obey_joint(plan);
                }
            }
        }
    }

    fn auto_scale_timer(&mut self) {
        if let Kind::AutoScale(policy) = &self.counting.kind
            && let Some(due) = policy.poll_timeout()
        {
            self.counting_timer_at(due.as_nanos().max(self.now + 1));
        }
    }

    /// The policy's time has come.
    pub(super) fn count_cores(&mut self) {
        if self.now < self.counting.timer_ns {
            return;
        }
        self.counting.timer_ns = NEVER;
        let now = Instant::from_nanos(self.now);
        let cpus = 0..self.hardware.cpus();
        let active = self.active_count as f64;
        match &mut self.counting.kind {
            Kind::All => {}
            Kind::Carb(carb) => {
                let worked_ns = cpus.map(|cpu| self.hardware.working_ns(cpu, self.now)).sum();
                let worked = worked_ns - std::mem::replace(&mut carb.worked_ns, worked_ns);
                let available = carb.epoch.as_nanos() as f64 * active.max(1.0);
                let seen = &carb.responses;
                let some = !seen.is_empty();
                let epoch = Epoch {
                    rate: Some(Rate::of(seen.len(), carb.epoch)),
                    tail: some.then(|| Duration::from_nanos(seen.value_at_quantile(carb.quantile))),
                    mean: some.then(|| Duration::from_nanos(seen.mean() as u64)),
                    busy: Some(Ratio::new(worked as f64 / available)),
                };
                carb.responses.reset();
                let wanted = usize::from(match &mut carb.search {
                    Search::Slope(controller) => controller.handle_epoch(&epoch),
                    Search::Goal(search) => search.handle_epoch(&epoch),
                });
                let next = self.now + carb.epoch.as_nanos();
                self.counting_timer_at(next);
                self.activate(wanted);
            }
            Kind::AutoScale(policy) => {
                let on = policy.handle_timeout(now);
                self.activate(usize::from(on));
                self.auto_scale_timer();
            }
            Kind::Napping(_) => self.nap_timer(),
            Kind::Joint(policy) => {
                let plan = policy.handle_timeout(now);
                self.obey_joint(plan);
            }
        }
    }

    /// The first `wanted` cores of the order are active from now on.
    pub(super) fn activate(&mut self, wanted: usize) {
        let wanted = wanted.clamp(1, self.setup.workers);
        if wanted == self.active.len() {
            return;
        }
        let mut active = CpuSet::default();
        self.parking_order().take(wanted).for_each(|cpu| active.insert(cpu));
        let was = std::mem::replace(&mut self.active, active);
        self.active_count = active.len();
        // Those who join may find work waiting.
        let mut waiting = self.shared.len();
        for cpu in active.iter().filter(|&cpu| !was.contains(cpu)) {
            if waiting > 0 && self.idle.contains(cpu) {
                self.signal_work(cpu);
                waiting -= 1;
            }
        }
    }

    /// Cores in the order in which they are kept awake.
    fn parking_order(&self) -> impl Iterator<Item = usize> + use<> {
        let workers = self.setup.workers;
        let threads = usize::from(self.setup.platform.threads_per_core);
        let cores = self.hardware.cpus() / threads;
        let all = (0..cores).flat_map(move |core| (0..threads).map(move |thread| core + thread * cores));
        all.filter(move |&cpu| cpu < workers)
    }

    /// The core that AutoScale's packing gives a request to; `None` under other policies.
    #[inline]
    pub(super) fn packed_core(&self) -> Option<usize> {
        let Kind::AutoScale(policy) = &self.counting.kind else { return None };
        let load = |cpu: usize| {
            let core = &self.cores[cpu];
            core.queue.len() as u32 + u32::from(core.doing == super::Doing::Working)
        };
        Some(policy.route((0..self.setup.workers).map(load)))
    }
}
