//! EcoFaaS: pools of cores, each at a clock that stays for a while (Stojkovic et al., ISCA 2024).
//!
//! The cores of a server for functions are split into *pools*, each with one frequency. A call has a
//! deadline, its part of the time that the whole application has. By its predicted length it goes to the
//! slowest pool that ends it in time; one whose deadline is in danger runs at the fastest. The pools'
//! sizes and frequencies follow the demand, once a period.
//!
//! *Need* is the slowest operating point at which a request ends in time by its prediction; *demand* is
//! the core time that requests of one need take at it. Once a period the cores are dealt out in proportion
//! to the demands. Where these would fill more than a share of the cores, the slowest pools are
//! joined with the next faster one until they do not.
//!
//! The authors' code is not at hand, so the word is `ecofaas-like`. The gaps, each an ESTIMATE of ours:
//! - A policy of frequencies cannot send a request to a pool. It begins on any core; one that needs more
//!   than the pool of its core raises the core to the fastest, and one that needs less runs faster.
//! - There are no functions and no chains of them. The goal is the deadline of each request.
//! - No features are simulated. A prediction is the true time of computing with a lognormal error.
//! - The paper looks at the time that requests wait for each pool. Here waiting only shortens a request's
//!   own time, and a bound on the demand keeps the pools from filling up.
//! - Each operating point may be a pool. Period and bound are constants.
//! - The rule is from the abstract and recalled.
//!
//! Properties: every core is in one pool, and a pool has its share of the cores, give or take one;
//! a request runs to its end in the pool that its core was in as it began, or at the fastest if that were
//! late.

use super::predicted;
use super::{PointIndex, PointTable};
use machine::{CpuId, Duration, Instant};
use policy::check::Check;
use policy::kind::{Decision, FrequencyPolicy, Make, Making, Policy, Request, Seen, Watch};
use policy::registry::{Entry, Parameter, Question, Surroundings, Word, number, settings, share, time};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

pub static ENTRY: Entry = Entry {
    words: &[Word::new("ecofaas-like", "pools of cores, each at one frequency for a while", |around| {
        settings(Params::around(around))
    })],
    question: Question::Frequency,
    help: "Cores are split into pools of one frequency each, whose sizes follow once a period the \
           frequencies that requests need by a prediction of their length. A request that would be late at \
           its core's frequency runs at the fastest.",
    origin: "EcoFaaS (Stojkovic et al., ISCA 2024), by its abstract and recalled",
    needs_goal: true,
    make: Make::Frequency(|making| Box::new(Server::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub target: Duration,
    #[serde(with = "machine::duration_text")]
    pub period: Duration,
    pub error: f64,
    pub busy: f64,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("target", "the deadline of a request, from its arrival").above_zero().given("the goal"),
        time("period", "from one change of the pools to the next").above_zero().source("ours: ESTIMATE"),
        number("error", "standard deviation of the logarithm of a prediction's error")
            .within(0.0, 2.0)
            .source("ours: ESTIMATE"),
        share("busy", "how busy the demand may keep the cores").above_zero_to(1.0).source("ours: ESTIMATE"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self { target: Duration::from_micros(300), period: Duration::from_millis(100), error: 0.1, busy: 0.9 }
    }
}

impl Params {
    fn around(around: &Surroundings<'_>) -> Self {
        let plain = Self::default();
        Self { target: around.latency_or(plain.target), ..plain }
    }
}

/// Work of one need in a period.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    compute_ns: f64,
    memory_ns: f64,
}

impl Demand {
    fn time_ns(&self, speed: f64) -> f64 {
        self.compute_ns / speed + self.memory_ns
    }
}

/// The time that each operating point is in demand, where all of it should fit into `room_ns`.
fn shares(mut demands: Vec<Demand>, points: &PointTable, room_ns: f64) -> Vec<f64> {
    let time_ns = |demands: &[Demand]| -> Vec<f64> {
        demands.iter().zip(points.iter()).map(|(demand, point)| demand.time_ns(points.speed(point))).collect()
    };
    for slow in 0..demands.len() - 1 {
        if time_ns(&demands).iter().sum::<f64>() <= room_ns {
            break;
        }
        let joined = std::mem::take(&mut demands[slow]);
        demands[slow + 1].compute_ns += joined.compute_ns;
        demands[slow + 1].memory_ns += joined.memory_ns;
    }
    time_ns(&demands)
}

/// The pool of each core, the fastest first.
fn deal(shares: &[f64], cores: usize) -> Vec<PointIndex> {
    let total: f64 = shares.iter().sum();
    let pool_of = |core: usize| {
        let place = (core as f64 + 0.5) / cores as f64 * total;
        let mut upto = 0.0;
        let found = (0..shares.len()).rev().find(|&point| {
            upto += shares[point];
            upto > place
        });
        PointIndex(found.unwrap_or(0) as u8)
    };
    (0..cores).map(pool_of).collect()
}

/// The policy of a server: the pools of its cores, and the demand of the period so far.
pub struct Server {
    params: Params,
    prediction: predicted::Params,
    points: PointTable,
    /// Physical cores; CPU c is a thread of core c modulo this.
    cores: usize,
    /// The pool of each core that serves requests.
    pools: Vec<PointIndex>,
    /// Whether each CPU is at work on a request.
    is_busy: Vec<bool>,
    demands: Vec<Demand>,
    began: Instant,
    decisions: VecDeque<Decision>,
}

impl Server {
    fn new(making: &Making<'_>) -> Self {
        let sizes = [making.cores(), making.cpus(), usize::from(making.workers)];
        Self::of(making.params(), making.points(), sizes)
    }

    fn of(params: Params, points: PointTable, [cores, cpus, workers]: [usize; 3]) -> Self {
        // A pool's clock is there already, so no time passes until it changes.
        let prediction = predicted::Params {
            dvfs_delay: Duration::ZERO,
            error: params.error,
            second_step: 0.0,
            ..predicted::Params::default()
        };
        Self {
            params,
            prediction,
            cores,
            pools: vec![points.fastest(); cores.min(workers)],
            is_busy: vec![false; cpus],
            demands: vec![Demand::default(); points.count()],
            began: Instant::ZERO,
            decisions: VecDeque::from([Decision::Points(points.fastest())]),
            points,
        }
    }

    /// A CPU that serves no requests is in none.
    fn pool(&self, cpu: usize) -> Option<PointIndex> {
        self.pools.get(cpu % self.cores).copied()
    }
}

impl Policy for Server {
    fn handle_timeout(&mut self, now: Instant, _: &Seen<'_>) {
        let length = now.since(self.began);
        if length < self.params.period {
            return;
        }
        self.began = now;
        let demands = self.demands.iter_mut().map(std::mem::take).collect();
        let room_ns = self.params.busy * self.pools.len() as f64 * length.as_nanos() as f64;
        let shares = shares(demands, &self.points, room_ns);
        // Without a request there is no demand to follow.
        if shares.iter().sum::<f64>() == 0.0 {
            return;
        }
        let before = std::mem::take(&mut self.pools);
        self.pools = deal(&shares, before.len());
        for cpu in (0..self.is_busy.len()).filter(|cpu| !self.is_busy[*cpu]) {
            if let Some(point) = self.pool(cpu).filter(|point| before[cpu % self.cores] != *point) {
                self.decisions.push_back(Decision::OperatingPoint { cpu: CpuId(cpu as u16), point });
            }
        }
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.began + self.params.period)
    }
}

impl FrequencyPolicy for Server {
    fn watches(&self) -> Watch {
        Watch::Work
    }

    fn handle_start(
        &mut self,
        now: Instant,
        cpu: usize,
        request: &Request,
        _: PointIndex,
    ) -> Option<PointIndex> {
        let pool = self.pool(cpu)?;
        let predicted_ns = request.compute.as_nanos() as f64 * self.prediction.factor(request);
        let gone_ns = (now.since(request.arrived) + request.memory).as_nanos() as f64;
        let time_ns = self.params.target.as_nanos() as f64 - gone_ns;
        let (need, _) = self.prediction.choose(predicted_ns, time_ns, &self.points);
        let demand = &mut self.demands[need.index()];
        demand.compute_ns += predicted_ns;
        demand.memory_ns += request.memory.as_nanos() as f64;
        self.is_busy[cpu] = true;
        Some(if need > pool { self.points.fastest() } else { pool })
    }

    fn handle_idle(&mut self, _: Instant, cpu: usize, _: PointIndex) -> Option<PointIndex> {
        self.is_busy[cpu] = false;
        self.pool(cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::{nine_points, whole};
    use proptest::prelude::*;

    const TARGET: Duration = Duration::from_micros(300);

    /// Four cores of two threads, with exact predictions.
    fn server() -> Server {
        let params = Params { period: Duration::from_secs(1), error: 0.0, ..Params::default() };
        Server::of(params, nine_points(), [4, 8, 8])
    }

    fn start(
        server: &mut Server,
        now: Instant,
        cpu: usize,
        waited: Duration,
        compute: Duration,
    ) -> PointIndex {
        let arrived = Instant::from_nanos(now.as_nanos() - waited.as_nanos());
        let request = whole(arrived, compute);
        server.handle_start(now, cpu, &request, PointIndex(0)).expect("a frequency")
    }

    fn second(n: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(n)
    }

    fn decided(server: &mut Server) -> Vec<Decision> {
        std::iter::from_fn(|| server.poll_decision()).collect()
    }

    proptest! {
        #[test]
        fn every_core_is_in_a_pool_that_has_its_share_of_them(
            shares in prop::collection::vec(prop_oneof![Just(0.0), 0.0..5.0_f64], 1..9),
            cores in 1_usize..40,
        ) {
            let total: f64 = shares.iter().sum();
            prop_assume!(total > 0.0);
            let pools = deal(&shares, cores);
            prop_assert_eq!(pools.len(), cores);
            prop_assert!(pools.windows(2).all(|pair| pair[0] >= pair[1]), "the fastest first");
            for (point, share) in shares.iter().enumerate() {
                let size = pools.iter().filter(|pool| pool.index() == point).count() as f64;
                prop_assert!((size - share / total * cores as f64).abs() <= 1.0 + 1e-9, "{point}: {size}");
                prop_assert!(*share > 0.0 || size == 0.0, "nothing wants {point}");
            }
        }

        #[test]
        fn pools_have_room_for_the_demand_or_are_at_the_fastest(
            demands in prop::collection::vec((0.0..9.0_f64, 0.0..3.0_f64), 9),
            room_ns in 1.0..90.0_f64,
        ) {
            let points = nine_points();
            let demand = |&(compute_ns, memory_ns): &(f64, f64)| Demand { compute_ns, memory_ns };
            let shares = shares(demands.iter().map(demand).collect(), &points, room_ns);
            let has_room = shares.iter().sum::<f64>() <= room_ns;
            prop_assert!(has_room || shares.iter().rev().skip(1).all(|share| *share == 0.0));
            // Work is neither lost nor made: at most as long as where it was needed, at least as at the
            // fastest.
            let at = |speed: fn(&PointTable, usize) -> f64| -> f64 {
                demands.iter().enumerate().map(|(at, of)| demand(of).time_ns(speed(&points, at))).sum()
            };
            let (most, least) = (at(|points, at| points.speed(PointIndex(at as u8))), at(|_, _| 1.0));
            let total: f64 = shares.iter().sum();
            prop_assert!(total <= most + 1e-9 && total >= least - 1e-9, "{least} {total} {most}");
        }

        #[test]
        fn a_request_runs_in_its_pool_or_at_the_fastest_if_that_were_late(
            periods in prop::collection::vec(
                prop::collection::vec((0_usize..8, 0_u64..400, 1_u64..300), 0..30), 1..6),
        ) {
            let (mut server, points) = (server(), nine_points());
            let mut wishes = [points.fastest(); 8];
            for (n, requests) in periods.iter().enumerate() {
                let now = second(n as u64 + 1);
                let mut is_busy = [false; 8];
                for &(cpu, waited_us, compute_us) in requests {
                    // Odd, so that no request is late by a rounding.
                    let waited = Duration::from_nanos(waited_us * 1_000 + 37);
                    let compute = Duration::from_micros(compute_us);
                    let pool = server.pools[cpu % 4];
                    wishes[cpu] = start(&mut server, now, cpu, waited, compute);
                    let left_ns = TARGET.as_nanos() as f64 - waited.as_nanos() as f64;
                    let is_late = compute.as_nanos() as f64 > points.speed(pool) * left_ns;
                    prop_assert_eq!(wishes[cpu], if is_late { points.fastest() } else { pool });
                    is_busy[cpu] = true;
                }
                decided(&mut server);
                server.handle_timeout(now, &Seen::default());
                for decision in decided(&mut server) {
                    let Decision::OperatingPoint { cpu, point } = decision else { panic!("{decision:?}") };
                    prop_assert!(!is_busy[cpu.index()], "the period's end changes no request");
                    wishes[cpu.index()] = point;
                }
                for cpu in 0..8 {
                    if is_busy[cpu] {
                        wishes[cpu] = server.handle_idle(now, cpu, PointIndex(0)).expect("its pool's");
                    }
                    prop_assert_eq!(wishes[cpu], server.pools[cpu % 4]);
                }
            }
        }
    }

    #[test]
    fn pools_change_with_the_demand_and_only_at_the_end_of_a_period() {
        let (mut server, us) = (server(), Duration::from_micros);
        assert_eq!(decided(&mut server), [Decision::Points(PointIndex(8))]);
        // Alike in core time: 100 us / (1.0 / 2.6), and 260 us of 300 at 2.4 / 2.6.
        for _ in 0..10 {
            start(&mut server, second(0) + us(400), 0, Duration::ZERO, us(100));
            start(&mut server, second(0) + us(400), 1, us(9), us(260));
        }
        (0..2).for_each(|cpu| {
            assert_eq!(server.handle_idle(second(1), cpu, PointIndex(0)), Some(PointIndex(8)))
        });
        server.handle_timeout(second(1), &Seen::default());
        let point = |cpu, point| Decision::OperatingPoint { cpu: CpuId(cpu), point: PointIndex(point) };
        let changed = [point(0, 7), point(1, 7), point(2, 0), point(3, 0)];
        let siblings = [point(4, 7), point(5, 7), point(6, 0), point(7, 0)];
        assert_eq!(decided(&mut server), [changed, siblings].concat());
        server.handle_timeout(second(1), &Seen::default());
        assert_eq!(decided(&mut server), [], "twice does no harm");
        start(&mut server, second(1) + us(400), 0, us(9), us(260));
        server.handle_timeout(second(2) - us(1), &Seen::default());
        assert_eq!(decided(&mut server), [], "early neither");
        server.handle_timeout(second(2), &Seen::default());
        assert_eq!(decided(&mut server), [point(2, 7), point(3, 7), point(6, 7), point(7, 7)]);
        server.handle_timeout(second(3), &Seen::default());
        assert_eq!(decided(&mut server), [], "without requests the pools stay");
    }
}
