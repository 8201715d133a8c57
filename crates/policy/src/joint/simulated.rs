//! A server for tests: ten cores with the clocks, idle states and powers of the Peafowl paper's
//! section 4.3, exponential service of 10 us.
//!
//! A request finds its queue; a core without work sleeps in the plan's state, or if it is parked in
//! the deepest; waking takes the exit latency and the table's energy; a clock changes 10 us
//! after it was asked to, the work in progress with it. A core that is parked finishes its
//! requests.

use super::random::Random;
use super::*;
use machine::{ClockDomain, Duration, FrequencyTable, Kilohertz, Microwatts, OperatingPoint, PointKind};
use std::collections::VecDeque;

pub(super) const CORES: u16 = 10;
const WORK_NS: f64 = 10_000.0;
const DVFS_NS: f64 = 10_000.0;

/// A request that called no device.
pub(super) fn completion(compute: Duration, memory: Duration, response: Duration) -> Completion {
    Completion { compute, memory, response, device: Duration::ZERO }
}

/// 0.8 to 2.1 GHz with the powers that the preset `peafowl-simulation` states.
pub(super) fn points() -> PointTable {
    let volts = |mhz: f64| 0.7 + 0.3 * (mhz - 800.0) / 2_200.0;
    let point = |mhz: u64| {
        let (volts, share) = (volts(mhz as f64) / volts(2_100.0), mhz as f64 / 2_100.0);
        let watts = 5.7 * (0.15 * volts + 0.85 * volts * volts * share);
        let power = Microwatts::from_watts(watts.max(2.0));
        OperatingPoint { frequency: Kilohertz(mhz * 1_000), power, kind: PointKind::Pstate }
    };
    let table = FrequencyTable {
        points: (8..=21).map(|step| point(step * 100)).collect(),
        domain: ClockDomain::Core,
        delay: Duration::from_micros(10),
        stall: Duration::ZERO,
    };
    PointTable::new(&table).unwrap()
}

/// C1, C1E and C6 of a Xeon Silver 4116, as in the presets of `machine`. Their energies of waking make
/// them break even after 2, 20 and 600 us, C1 against polling at 5.7 W.
pub(super) fn states() -> Vec<SleepState> {
    let (mut joules, mut above) = (0.0, 5.7);
    let state = |(exit, residency, watts): (u64, f64, f64)| {
        joules += (above - watts) * residency * 1e-6;
        above = watts;
        let exit_latency = Duration::from_micros(exit);
        SleepState { exit_latency, power: Microwatts::from_watts(watts), wake_joules: joules }
    };
    [(2, 2.0, 2.0), (10, 20.0, 1.2), (133, 600.0, 0.1)].map(state).to_vec()
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    /// The rest of the work, at the nominal clock; when the request came; how much it is in all.
    Working {
        left_ns: f64,
        arrived: f64,
        whole_ns: f64,
    },
    Waking {
        until: f64,
        state: usize,
    },
    Asleep {
        state: usize,
    },
}

struct Core {
    doing: Doing,
    queue: VecDeque<(f64, f64)>,
    point: PointIndex,
    point_changes: Option<(f64, PointIndex)>,
}

pub(super) struct Server {
    queueing: Queueing,
    /// The policy that decides; `None` if the plan is fixed.
    pub joint: Option<Joint>,
    pub plan: Plan,
    cores: Vec<Core>,
    shared: VecDeque<(f64, f64)>,
    points: PointTable,
    states: Vec<SleepState>,
    pub package: Option<Package>,
    pub now: f64,
    in_system: u32,
    random: Random,
    /// Since the last `take`.
    energy: f64,
    since: f64,
    responses: Vec<f64>,
    active_ns: f64,
    surging_ns: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub p99_us: f64,
    pub watts: f64,
    /// Number of active cores, on average.
    pub active: f64,
    /// The share of time in a surge.
    pub surging: f64,
    /// Half the width of a 95 % interval around the 99th percentile, from those of ten parts.
    pub error_us: f64,
}

fn p99(responses: &[f64]) -> f64 {
    let mut sorted = responses.to_vec();
    let rank = (sorted.len() as f64 * 0.99) as usize;
    if sorted.is_empty() { 0.0 } else { *sorted.select_nth_unstable_by(rank, f64::total_cmp).1 / 1e3 }
}

impl Server {
    pub fn new(params: Params, fixed: Option<Plan>, seed: u64) -> Self {
        let points = points();
        let joint = Joint::new(params, CORES, &points, &states(), Instant::ZERO);
        let plan = fixed.unwrap_or(joint.plan());
        let joint = fixed.is_none().then_some(joint);
        let core = |at: u16| Core {
            doing: Doing::Asleep {
                state: if at < plan.active { plan.idle.index() } else { states().len() - 1 },
            },
            queue: VecDeque::new(),
            point: plan.point,
            point_changes: None,
        };
        Self {
            queueing: params.queueing,
            joint,
            plan,
            cores: (0..CORES).map(core).collect(),
            shared: VecDeque::new(),
            points,
            states: states(),
            package: None,
            now: 0.0,
            in_system: 0,
            random: Random::new(seed),
            energy: 0.0,
            since: 0.0,
            responses: Vec::new(),
            active_ns: 0.0,
            surging_ns: 0.0,
        }
    }

    /// Runs for so many milliseconds with `rate` arrivals per second, each of `batch` requests, by
    /// the time since the beginning of this call in milliseconds.
    pub fn run(&mut self, millis: f64, batch: u32, rate: impl Fn(f64) -> f64) {
        let (begin, end) = (self.now, self.now + millis * 1e6);
        while self.now < end {
            let per_ns = rate((self.now - begin) / 1e6) / 1e9;
            let gap = self.random.exponential() / per_ns.max(1e-18);
            // Memoryless: an arrival that was not due within a tenth of a millisecond is drawn anew
            // at the rate then.
            let until = (self.now + gap.min(1e5)).min(end);
            self.advance(until);
            if gap <= 1e5 && until < end {
                (0..batch).for_each(|_| self.arrive());
            }
        }
    }

    /// The figures since the last call.
    pub fn take(&mut self) -> Seen {
        let span = self.now - self.since;
        let parts: Vec<f64> =
            self.responses.chunks(self.responses.len().div_ceil(10).max(1)).map(p99).collect();
        let mean = parts.iter().sum::<f64>() / parts.len().max(1) as f64;
        let square: f64 = parts.iter().map(|part| (part - mean).powi(2)).sum();
        let count = parts.len().max(2) as f64;
        let seen = Seen {
            p99_us: p99(&self.responses),
            watts: self.energy / span,
            active: self.active_ns / span,
            surging: self.surging_ns / span,
            // Student's t with nine degrees of freedom.
            error_us: 2.26 * (square / (count - 1.0) / count).sqrt(),
        };
        (self.energy, self.since, self.active_ns, self.surging_ns) = (0.0, self.now, 0.0, 0.0);
        self.responses.clear();
        seen
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now as u64)
    }

    fn advance(&mut self, until: f64) {
        loop {
            let due = |core: &Core| match core.doing {
                Doing::Working { left_ns, .. } => self.now + left_ns / self.points.speed(core.point),
                Doing::Waking { until, .. } => until,
                Doing::Asleep { .. } => f64::INFINITY,
            };
            let dues = self.cores.iter().map(due).enumerate();
            let (core, core_at) = dues.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            let change = |core: &Core| core.point_changes.map_or(f64::INFINITY, |(at, _)| at);
            let changes = self.cores.iter().map(change).enumerate();
            let (clock, clock_at) = changes.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            let timer = self.joint.as_ref().and_then(Joint::poll_timeout);
            let timer_at = timer.map_or(f64::INFINITY, |at| at.as_nanos() as f64);
            let next = core_at.min(clock_at).min(timer_at.max(self.now)).min(until);
            self.pass(next - self.now);
            if next == core_at {
                self.core_is_due(core);
            } else if next == clock_at {
                let core = &mut self.cores[clock];
                core.point = core.point_changes.take().unwrap().1;
            } else if next == until {
                return;
            } else if let Some(joint) = &mut self.joint {
                let plan = joint.handle_timeout(Instant::from_nanos(next as u64));
                self.obey(plan);
            }
        }
    }

    fn pass(&mut self, length: f64) {
        let mut watts = 0.0;
        for core in &mut self.cores {
            watts += match &mut core.doing {
                Doing::Working { left_ns, .. } => {
                    *left_ns = (*left_ns - length * self.points.speed(core.point)).max(0.0);
                    self.points.power(core.point).as_watts()
                }
                Doing::Waking { state, .. } => {
                    let SleepState { exit_latency, wake_joules, .. } = self.states[*state];
                    wake_joules / exit_latency.as_secs_f64()
                }
                Doing::Asleep { state } => self.states[*state].power.as_watts(),
            };
        }
        if let Some(package) = &self.package {
            let least = usize::from(package.from_state);
            let deep = |core: &Core| matches!(core.doing, Doing::Asleep { state } if state >= least);
            let sockets = self.cores.chunks(usize::from(package.cores));
            let awake = sockets.filter(|socket| !socket.iter().all(deep)).count();
            watts += awake as f64 * package.awake / 1e6;
        }
        self.energy += watts * length;
        self.active_ns += f64::from(self.plan.active) * length;
        if self.joint.as_ref().is_some_and(|joint| joint.surge_until.is_some()) {
            self.surging_ns += length;
        }
        self.now += length;
    }

    fn arrive(&mut self) {
        self.in_system += 1;
        if let Some(joint) = &mut self.joint {
            let plan = joint.handle_arrival(Instant::from_nanos(self.now as u64), self.in_system);
            self.obey(plan);
        }
        let request = (self.now, WORK_NS * self.random.exponential());
        let active = usize::from(self.plan.active);
        match self.queueing {
            Queueing::Shared => {
                self.shared.push_back(request);
                self.wake_one();
            }
            Queueing::PerCore => {
                let core = (self.random.uniform() * active as f64) as usize;
                self.cores[core].queue.push_back(request);
                self.wake(core);
                self.shift(core);
            }
        }
    }

    /// The active core in the shallowest sleep.
    fn wake_one(&mut self) {
        let asleep = |core: &usize| match self.cores[*core].doing {
            Doing::Asleep { state } => Some(state),
            _ => None,
        };
        let active = 0..usize::from(self.plan.active);
        if let Some(core) = active.filter(|core| asleep(core).is_some()).min_by_key(asleep) {
            self.wake(core);
        }
    }

    fn wake(&mut self, core: usize) {
        if let Doing::Asleep { state } = self.cores[core].doing {
            let until = self.now + self.states[state].exit_latency.as_nanos() as f64;
            self.cores[core].doing = Doing::Waking { until, state };
        }
    }

    fn core_is_due(&mut self, core: usize) {
        if let Doing::Working { arrived, whole_ns, .. } = self.cores[core].doing {
            self.in_system -= 1;
            let response = self.now - arrived;
            self.responses.push(response);
            let nanos = |ns: f64| Duration::from_nanos(ns as u64);
            let (now, in_system) = (self.at(), self.in_system);
            if let Some(joint) = &mut self.joint {
                let done = completion(nanos(whole_ns), Duration::ZERO, nanos(response));
                let plan = joint.handle_completion(now, &done, in_system);
                self.cores[core].doing = Doing::Asleep { state: 0 };
                self.obey(plan);
            }
        }
        let active = core < usize::from(self.plan.active);
        let own = self.cores[core].queue.pop_front();
        let next = own.or_else(|| if active { self.shared.pop_front() } else { None });
        self.cores[core].doing = match next {
            Some((arrived, whole_ns)) => Doing::Working { left_ns: whole_ns, arrived, whole_ns },
            None => Doing::Asleep { state: self.idle_state(core) },
        };
        if self.queueing == Queueing::PerCore {
            self.shift(core);
        }
    }

    /// The core gets the operating point that is meant for it, some time later.
    fn shift(&mut self, core: usize) {
        let at = &self.cores[core];
        let own = at.queue.len() as u32 + u32::from(matches!(at.doing, Doing::Working { .. }));
        let point = match &self.joint {
            Some(joint) if self.queueing == Queueing::PerCore => joint.point(own),
            _ => self.plan.point,
        };
        let core = &mut self.cores[core];
        if core.point_changes.map_or(core.point, |(_, point)| point) != point {
            let at = core.point_changes.map_or(self.now + DVFS_NS, |(at, _)| at);
            core.point_changes = Some((at, point));
        }
    }

    fn idle_state(&self, core: usize) -> usize {
        if core < usize::from(self.plan.active) { self.plan.idle.index() } else { self.states.len() - 1 }
    }

    fn obey(&mut self, plan: Option<Plan>) {
        let Some(plan) = plan else { return };
        let before = std::mem::replace(&mut self.plan, plan);
        (0..self.cores.len()).for_each(|core| self.shift(core));
        // A core that sleeps goes on in the state that is now meant for it, if that is deeper.
        for core in 0..self.cores.len() {
            if let Doing::Asleep { state } = self.cores[core].doing {
                self.cores[core].doing = Doing::Asleep { state: state.max(self.idle_state(core)) };
            }
        }
        // Cores that join may find work waiting.
        for _ in 0..self.shared.len().min(usize::from(plan.active.saturating_sub(before.active))) {
            self.wake_one();
        }
    }
}
