//! A queue whose operating point follows its length: how long it is, how long requests take, and
//! its power.
//!
//! With exponential service and Poisson arrivals the number in the system is a birth-death chain:
//! from n - 1 to n with lambda, back with min(n, servers) / E S in the operating point for n. Its
//! distribution is a product of ratios. Four things are added:
//! - *Other services and arrivals*: while all servers work, the ratio of neighbouring probabilities
//!   sigma is taken with ln sigma = ln rho (1 + rho) / (c_a^2 + rho c_s^2). For M/M that is rho,
//!   near rho = 1 the diffusion limit, and for M/D/1 it is within 4 % at rho = 0.9.
//! - *Time*: requests behind one that waits are those that came while it did. Where the number
//!   falls off as sigma^n, the wait falls off with lambda (1 / sigma - 1) (Little's law for
//!   distributions: Keilson and Servi 1988); so one request of queue stands for ln(1 / sigma) /
//!   (lambda (1 / sigma - 1)) of waiting, which is exact in one operating point. Below the length
//!   at which a queue holds itself, where sigma > 1, it stands for a gap between two arrivals: a
//!   request that waits there waits while the queue keeps its length.
//! - *Balance*: as much work is done as comes. The probability of a queue is scaled so that this
//!   holds.
//! - *Service*: a request that has waited is served in the operating point for as many as came
//!   behind it.
//!
//! Many levels are taken together where the queue may be long.
//!
//! Error: see `accuracy`.

use super::model::{Model, Queue, Running, STABLE, solve};
use super::pace::Pace;
use crate::frequency::{PointIndex, PointTable};

/// Steps of the queue's length that are told apart.
const STEPS: usize = 96;
/// So many of them lie below the length at which the operating point is the fastest.
const GRADED_STEPS: f64 = 48.0;
/// States less likely than this are left out.
const NEGLIGIBLE: f64 = 1e-6;

/// A range of lengths of the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    probability: f64,
    waited_ns: f64,
    /// Of a service then.
    stretch: f64,
}

/// The stationary distribution of the queue.
#[derive(Clone, Debug)]
pub(super) struct Chain<'a> {
    model: Model<'a>,
    /// The first step is: no wait.
    steps: [Step; STEPS + 1],
    count: usize,
    /// Of all queues together: cores that work, their power, requests and the variance of those.
    busy: f64,
    work_power: f64,
    number: f64,
    variance: f64,
}

/// The consequences of an operating point for a queue in which all servers work.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    sigma: f64,
    /// Time of waiting, for each request.
    time_ns: f64,
    stretch: f64,
    power: f64,
}

/// The links of a chain, whatever its pace.
#[derive(Clone, Debug)]
pub(super) struct Links {
    active: u16,
    queue: Queue,
    by_point: [Link; PointTable::MAX_POINTS],
}

impl Links {
    /// For so many cores; `None` if the fastest operating point is not stable.
    pub fn new(model: &Model<'_>, active: u16) -> Option<Self> {
        let queue = model.queue(active);
        let mut by_point = [Link::default(); PointTable::MAX_POINTS];
        for (link, point) in by_point.iter_mut().zip(model.points.iter()) {
            let stretch = model.shape.stretch(model.points.speed(point));
            // An idle system is one that is almost idle.
            let load = (queue.rate * model.shape.mean_ns * stretch / queue.servers).max(1e-9);
            if point == model.points.fastest() && (load.is_nan() || load > STABLE) {
                return None;
            }
            let log = load.ln() * (1.0 + load) / (queue.scv + load * model.shape.scv).max(0.05);
            let gap = (-log).exp_m1();
            let per_arrival = if gap < 1e-6 { 1.0 } else { -log / gap };
            let power = model.points.power(point).0 as f64;
            *link = Link { sigma: log.exp(), time_ns: per_arrival / queue.rate.max(1e-18), stretch, power };
        }
        Some(Self { active, queue, by_point })
    }
}

/// Sums over lengths of the queue, each with its weight.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    all: f64,
    busy: f64,
    power: f64,
    /// Work at the nominal clock, per time.
    done: f64,
    number: f64,
    square: f64,
}

impl Sums {
    fn add(&mut self, weight: f64, requests: f64, busy: f64, link: &Link) {
        self.all += weight;
        self.busy += weight * busy;
        self.power += weight * busy * link.power;
        self.done += weight * busy / link.stretch;
        self.number += weight * requests;
        self.square += weight * requests * requests;
    }

    fn scale(&mut self, by: f64) {
        let Self { all, busy, power, done, number, square } = self;
        [all, busy, power, done, number, square].into_iter().for_each(|sum| *sum *= by);
    }
}

impl<'a> Chain<'a> {
    pub fn new(model: Model<'a>, links: &Links, pace: &Pace) -> Self {
        let Links { active, queue, by_point } = links;
        let fastest = model.points.fastest();
        let of = |requests: f64| &by_point[pace.point(requests as u32).index()];
        let mut steps = [Step::default(); STEPS + 1];
        // Weights relative to an empty system.
        let mut weight = 1.0;
        let mut idle = Sums { all: 1.0, ..Sums::default() };
        for requests in 1..=queue.servers as u32 {
            let n = f64::from(requests);
            weight *= queue.rate * model.shape.mean_ns * of(n).stretch / n;
            if n < queue.servers {
                idle.add(weight, n, n, of(n));
            }
        }
        steps[0] = Step { probability: 1.0, waited_ns: 0.0, stretch: of(queue.servers).stretch };
        let mut queued = Sums::default();
        // From here on `weight` is that of the step's first length, with all servers at work.
        let longest = f64::from(pace.limit(PointIndex(fastest.0.saturating_sub(1))).min(1 << 24));
        let width = ((longest - queue.servers) / GRADED_STEPS).max(1.0).floor();
        let (mut waited_ns, mut first, mut count) = (0.0, queue.servers, 1);
        let (mut point, mut next) = (None, 1.0);
        while count <= STEPS {
            let now = pace.point((first + width / 2.0) as u32);
            let link = &by_point[now.index()];
            if point.replace(now) != Some(now) {
                next = link.sigma.powf(width);
            }
            let &Link { sigma, time_ns, stretch, .. } = link;
            let last = count == STEPS
                || (now == fastest && weight / (1.0 - sigma) < NEGLIGIBLE * queued.all.max(idle.all));
            let (probability, mean) = match last {
                true => (weight / (1.0 - sigma).max(1e-9), sigma / (1.0 - sigma).max(1e-9)),
                false => (weight * geometric(sigma, next, width), (width - 1.0) / 2.0),
            };
            steps[count] = Step { probability, waited_ns: waited_ns + (mean + 0.5) * time_ns, stretch };
            count += 1;
            queued.add(probability, first + mean, queue.servers, link);
            if last {
                break;
            }
            weight *= next;
            waited_ns += width * time_ns;
            first += width;
            if queued.all > 1e200 {
                weight *= 1e-200;
                [&mut idle, &mut queued].into_iter().for_each(|sums| sums.scale(1e-200));
                steps[1..count].iter_mut().for_each(|step| step.probability *= 1e-200);
            }
        }
        // As much work as comes.
        let coming = queue.rate * model.shape.mean_ns;
        let balance = (coming * idle.all - idle.done) / (queued.done - coming * queued.all);
        let balance = if balance.is_finite() { balance.clamp(0.1, 10.0) } else { 1.0 };
        let all = idle.all + balance * queued.all;
        steps[0].probability = idle.all / all;
        steps[1..count].iter_mut().for_each(|step| step.probability *= balance / all);
        queued.scale(balance);
        let mean = |part: fn(&Sums) -> f64| (part(&idle) + part(&queued)) / all;
        let number = mean(|sums| sums.number);
        let queues = f64::from(*active) / queue.servers;
        Self {
            model,
            steps,
            count,
            busy: mean(|sums| sums.busy) * queues,
            work_power: mean(|sums| sums.power) * queues,
            number: number * queues,
            variance: (mean(|sums| sums.square) - number * number).max(0.0) * queues,
        }
    }

    /// P(response longer than `time_ns`).
    pub fn beyond(&self, time_ns: f64) -> f64 {
        let behind = |step: &Step| {
            step.probability * self.model.shape.beyond((time_ns - step.waited_ns) / step.stretch)
        };
        self.steps[..self.count].iter().map(behind).sum()
    }

    /// The quantile of the response time.
    pub fn tail_ns(&self) -> f64 {
        let misses = 1.0 - self.model.quantile;
        let from_ns = self.model.shape.quantile_ns(self.model.quantile) * self.steps[self.count - 1].stretch;
        solve(|time_ns| self.beyond(time_ns), from_ns, misses)
    }

    pub fn running(&self) -> Running {
        Running {
            busy: self.busy,
            work_power: self.work_power,
            waits: 1.0 - self.steps[0].probability,
            number: self.number,
            deviation: self.variance.sqrt(),
        }
    }
}

/// 1 + sigma + ... + sigma^(width - 1), where sigma^width is `power`.
fn geometric(sigma: f64, power: f64, width: f64) -> f64 {
    if (sigma - 1.0).abs() < 1e-9 { width } else { (1.0 - power) / (1.0 - sigma) }
}
