//! A run from beginning to end.

use super::ahead::Ahead;
use super::chance::Chance;
use super::cpu_set::CpuSet;
use super::ended::Ended;
use super::event_queue::{EventQueue, NEVER};
use super::hardware::Hardware;
use super::idle_sets::IdleSets;
use super::metrics::{Metrics, Sample};
use super::task::Task;
use super::{
    Core, Doing, Engine, Later, Setup, cap, clients, core_policy, dvfs, idle, placement, pre_wake, quiescing,
    staging, uncore, wake_delay,
};
use crate::Stop;
use crate::fleet::Leaf;
use crate::statistics::Collector;
use std::collections::VecDeque;
use workload::Jobs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All requests came and left, or the time was over.
    Complete,
    /// The precision asked for was reached.
    Precise,
    /// More work came than the machine can do: its figures mean nothing.
    Unstable,
    /// The caller or a policy's fault ended it before its time: its figures mean nothing.
    Stopped,
}

/// More requests than this in the system at once are no queue but a flood.
const FLOOD: u64 = 4_000_000;
/// Under a policy that adapts, a backlog of more than one in so many of all requests, and more than
/// this, is overload.
const BACKLOG_SHARE: u64 = 50;
const BACKLOG_MIN: u64 = 1000;
/// So often the run looks whether it may end.
const LOOK_EVERY: u64 = 1 << 14;
/// So many events are between two looks whether it shall: a millisecond or two of computing.
const EVENTS_BETWEEN: u32 = 1 << 14;

/// A closed loop is first looked at after so long: a hundred requests of the shortest services
/// \[D\].
const FIRST_SAMPLE_NS: u64 = 1_000_000;

impl Engine {
    /// A run that has not begun.
    pub fn new(setup: Setup, jobs: Jobs) -> Self {
        let uncore = uncore::UncoreControl::new(&setup).map(Box::new);
        let hardware = Hardware::new(&setup.platform);
        let hardware = if uncore.is_some() { hardware.with_paces_that_vary() } else { hardware };
        let cpus = hardware.cpus();
        let mut active = CpuSet::default();
        (0..setup.workers).for_each(|cpu| active.insert(cpu));
        let mut idle = IdleSets::default();
        (0..cpus).for_each(|cpu| idle.insert(1, cpu));
        let classes = jobs.classes();
        let deadlines = classes.iter().map(|class| class.deadline.map_or(u64::MAX, |due| due.as_nanos()));
        let responses = Collector::new(setup.precision);
        let metrics = Metrics::new(responses, deadlines.collect(), setup.platform.cstates.0.len());
        let knows_future = setup.policies.clairvoyance().is_some();
        let core = || Core { limit_ns: u64::MAX, timer_ns: NEVER, ..Core::default() };
        let placement = placement::Placement::new(&setup, &jobs).map(Box::new);
        let core_policy = core_policy::CoreControl::new(&setup);
        let staging = staging::Stage::new(&setup).map(Box::new);
        let is_served_outside = setup.nic.is_some() || setup.closed.is_some() || setup.depth.is_some();
        let is_decided_by =
            core_policy.watches() || placement.is_some() || staging.is_some() || uncore.is_some();
        Self {
            now: 0,
            events: EventQueue::new(cpus),
            cores: (0..cpus).map(|_| core()).collect(),
            shared: VecDeque::new(),
            programs: super::programs::Programs::new(&setup, cpus),
            threads: super::threads::Threads::new(&setup),
            has_shared: setup.has_shared_queue(),
            keeping: setup.stealing.map_or_else(Vec::new, |stealing| {
                vec![policy::stealing::Stealing::new(stealing.after); cpus]
            }),
            drawn: Vec::new(),
            pieces: Default::default(),
            active,
            active_count: setup.workers,
            steers: setup.policies.steers(),
            idle,
            next: Task::default(),
            next_at: NEVER,
            fetched: 0,
            clients: clients::Clients::new(&setup, &jobs),
            stop_at: setup.length.map_or(NEVER, |length| length.as_nanos()),
            is_stopped: false,
            sent_at: 0,
            ahead: Ahead::new(knows_future, setup.workers),
            chance: Chance::new(&setup, cpus),
            turn: 0,
            sleepers: idle::Sleepers::new(&setup),
            dvfs: dvfs::Dvfs::new(&setup),
            core_policy,
            uncore,
            placement,
            wake_delay: wake_delay::WakeDelay::new(&setup),
            staging,
            pre_wake: pre_wake::PreWake::new(&setup).map(Box::new),
            quiescing: quiescing::Quiescing::new(&setup).map(Box::new),
            cap: cap::Cap::new(&setup.platform, &hardware).map(Box::new),
            outside_ns: setup.outside.as_nanos(),
            told_outside_ns: if setup.policies.counts_for_a_goal() { 0 } else { setup.outside.as_nanos() },
            is_watched: is_served_outside || is_decided_by,
            adapts: setup.policies.adapts(),
            backlog: 0,
            blocked: 0,
            device_ns: 0,
            metrics,
            chronicle: None,
            sample_every: 0,
            sampled: Sample::default(),
            leaf: None,
            stop: Stop::default(),
            jobs,
            hardware,
            setup,
        }
    }

    /// The same as one server of a fleet: of the root's requests it serves those that ask it.
    pub(crate) fn into_leaf(self, leaf: Leaf) -> Self {
        Self { leaf: Some(Box::new(leaf)), is_watched: true, ..self }
    }

    /// The same, and it ends when the caller says so.
    pub fn until(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// The same, and it keeps every answer: memory grows with the run.
    pub fn with_visits(mut self) -> Self {
        self.metrics.visits = Some(Vec::new());
        self
    }

    pub fn run(mut self) -> Ended {
        self.begin();
        let mut end = self.go_on();
        // The rest when no request comes any more shows whether the machine kept up.
        if self.adapts && self.backlog > BACKLOG_MIN && self.backlog * BACKLOG_SHARE > self.metrics.entered()
        {
            end = End::Unstable;
        }
        self.take_sample();
        assert!(
            self.metrics.littles_law_holds(),
            "Little's law: a visit was counted wrongly; please report the seed"
        );
        let residency = self.hardware.residency(self.now);
        let all = self.now * self.hardware.cpus() as u64;
        assert_eq!(residency.total_ns(), all, "a core's time is lost; please report the seed");
        Ended { engine: self, end, residency }
    }

    fn begin(&mut self) {
        let mean_rate = self.jobs.mean_rate().as_per_second();
        if self.setup.samples > 0 {
            let by_requests = self.setup.requests as f64 / mean_rate.max(1e-9) * 1e9;
            let length =
                self.setup.length.map_or(f64::INFINITY, |length| length.as_nanos() as f64).min(by_requests);
            // How long the requests of a closed loop take shows only as it runs: samples are merged
            // as they become many.
            self.sample_every = match self.setup.closed {
                Some(_) if self.setup.length.is_none() => FIRST_SAMPLE_NS,
                _ => ((length / f64::from(self.setup.samples)) as u64).max(1),
            };
            self.events.add(self.sample_every, Later::Sample);
        }
        if self.setup.closed.is_none() {
            self.fetch();
        }
        // Every CPU without work selects an idle state anew.
        for cpu in 0..self.hardware.cpus() {
            self.idle.remove(1, cpu);
            self.cores[cpu].doing = Doing::Waking;
            self.go_idle(cpu);
        }
        self.begin_noise();
        self.begin_placing();
        self.begin_counting();
        self.begin_clocking();
        self.begin_uncore();
        self.begin_capping();
        self.begin_clients();
    }

    fn go_on(&mut self) -> End {
        let stop_at = self.stop_at;
        let mut look_at = LOOK_EVERY;
        let mut events = 0u32;
        loop {
            let may_end = events.is_multiple_of(EVENTS_BETWEEN);
            if may_end && (self.stop.is_set() || self.core_policy.fault.is_some()) {
                return End::Stopped;
            }
            events = events.wrapping_add(1);
            let (core_at, core) = self.events.next_core();
            let rare_at = self.events.next_rare();
            if core_at <= self.next_at && core_at <= rare_at {
                if core_at == NEVER {
                    return End::Complete;
                }
                self.now = core_at;
                match self.cores[core].doing {
                    Doing::Working => {
                        self.complete(core);
                        if self.metrics.left() >= look_at {
                            look_at += LOOK_EVERY;
                            if let Some(end) = self.look() {
                                return end;
                            }
                        }
                    }
                    Doing::Interrupted => self.end_interrupt(core),
                    Doing::Program => self.end_slice(core),
                    Doing::Waking => self.ready(core),
                    Doing::Asleep | Doing::Polling => self.idle_timer(core),
                    // A core that is stopped, or being looked after, waits for nothing.
                    Doing::Between | Doing::Napping => self.events.clear(core),
                }
                if self.next_at == NEVER && self.metrics.left() == self.metrics.entered() && self.is_over() {
                    return End::Complete;
                }
            } else if self.next_at <= rare_at {
                if self.next_at > stop_at {
                    // The requests that are here are served; no others come.
                    self.backlog = self.metrics.in_system() + self.unsent();
                    self.next_at = NEVER;
                    self.is_stopped = true;
                    self.fetched = self.setup.requests;
                    if self.metrics.in_system() == 0 {
                        self.now = self.now.max(stop_at);
                        return End::Complete;
                    }
                    continue;
                }
                self.now = self.next_at;
                self.arrive();
                if self.metrics.in_system() + self.unsent() > FLOOD {
                    return End::Unstable;
                }
            } else {
                if rare_at > stop_at && self.metrics.in_system() == 0 {
                    self.is_stopped = true;
                    self.now = self.now.max(stop_at);
                    return End::Complete;
                }
                self.now = rare_at;
                if let Some(what) = self.events.pop_rare() {
                    self.seldom(what);
                }
            }
        }
    }

    /// Whether the run may end before its requests do.
    #[cold]
    fn look(&self) -> Option<End> {
        if self.metrics.in_system() > FLOOD || self.metrics.responses.is_unstable() {
            return Some(End::Unstable);
        }
        self.metrics.responses.is_precise().then_some(End::Precise)
    }

    /// No more requests will come. A leaf that gets no more requests draws power until the fleet's
    /// run is over.
    fn is_over(&self) -> bool {
        let is_last =
            self.fetched >= self.setup.requests || (self.setup.closed.is_none() && self.next_at == NEVER);
        is_last && self.unsent() == 0 && self.leaf.as_ref().is_none_or(|leaf| self.now >= leaf.until_ns())
    }

    fn seldom(&mut self, what: Later) {
        match what {
            Later::Clock { domain } => self.clock_changes(domain),
            Later::Then(then) => self.follow(then),
            Later::Noise { source } => self.strike(source),
            Later::Device { request } => self.device_done(request),
            Later::Client { client } => self.client_timer(client),
            Later::Quiescing => self.quiesce_timer(),
            Later::PreWake => self.anticipate(),
            Later::Review { cpu } => self.review(cpu),
            Later::CoreControl => self.count_cores(),
            Later::Dvfs => self.clock_timer(),
            Later::Uncore => self.uncore_timer(),
            Later::Placement(post) => self.place(post),
            Later::Staging => self.stage_timer(),
            Later::WakeDelay => self.delay_timer(),
            Later::Cap => self.look_at_power(),
            Later::Sample => {
                self.take_sample();
                if self.metrics.thin() {
                    self.sample_every *= 2;
                }
                self.events.add(self.now + self.sample_every, Later::Sample);
            }
        }
    }

    /// The machine's figures since the last sample.
    fn take_sample(&mut self) {
        let now = self.now;
        if now == self.sampled.until_ns {
            return;
        }
        let mut residency = self.hardware.residency(now);
        // Part of a sleep can turn out to be its entry or its exit when it is over, after a sample has
        // had it: the next samples have so much less.
        for (ns, counted) in residency.asleep_ns.iter_mut().zip(&self.sampled.asleep_ns) {
            *ns = (*ns).max(*counted);
        }
        debug_assert_eq!(self.active_count, self.active.len());
        let active_ns = self.active_count as u64 * (now - self.sampled.until_ns);
        let awake_ns = (0..self.hardware.cpus()).map(|cpu| self.hardware.awake_ns(cpu, now)).sum();
        let sum = Sample {
            until_ns: now,
            length_ns: now,
            core_joules: self.hardware.core_joules(now),
            package_asleep_ns: self.hardware.package_asleep_ns(now),
            uncore_spared_joules: self.hardware.uncore_spared_joules(now),
            awake_ns,
            working_ns: residency.working_ns,
            asleep_ns: residency.asleep_ns,
            ..Sample::default()
        };
        let since = std::mem::replace(&mut self.sampled, sum.clone());
        let difference = |new: &[u64], old: &[u64]| {
            new.iter().enumerate().map(|(at, ns)| ns - old.get(at).copied().unwrap_or(0)).collect()
        };
        self.metrics.sample(Sample {
            until_ns: now,
            length_ns: now - since.until_ns,
            core_joules: sum.core_joules - since.core_joules,
            package_asleep_ns: sum.package_asleep_ns - since.package_asleep_ns,
            uncore_spared_joules: sum.uncore_spared_joules - since.uncore_spared_joules,
            active_ns,
            awake_ns: sum.awake_ns - since.awake_ns,
            working_ns: difference(&sum.working_ns, &since.working_ns),
            asleep_ns: difference(&sum.asleep_ns, &since.asleep_ns),
            ..Sample::default()
        });
    }
}
