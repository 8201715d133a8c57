//! NMAP: the fastest clock for a core that finds more packets by polling than it should (Kang et al.,
//! MICRO 2021).
//!
//! NAPI handles the packets of a queue by interrupt while there are few, and polls while there are many.
//! NMAP counts both for each core. A core that finds more packets by polling within the processing of one
//! interrupt than a threshold is *network-intensive*: it goes to the fastest operating point at once. A
//! timer looks at the packets of a period; with fewer polled ones for each by interrupt than a second
//! threshold the core goes back to ondemand. Sleep states stay with the kernel's governor.
//!
//! The authors' code is not at hand, so the word is `nmap-like`. The gaps, each an ESTIMATE of ours:
//! - No packets and no NAPI are simulated. A request that comes to a CPU without work is one packet by
//!   interrupt, one that comes to a CPU at work a polled one. An interrupt lasts until the CPU is idle.
//! - A request that waits in a queue of all CPUs counts to one of them in turn.
//! - Both thresholds come from a profile of each service in the paper, at the load at which the goal is just
//!   kept. Here they are constants of one such profile.
//! - ondemand goes on measuring while a core is network-intensive, and its answer waits.
//! - Thresholds and timer are recalled, the rest is from the abstract.
//!
//! Properties: a CPU is never slower than ondemand would have it; one polled request too many gives the
//! fastest operating point until the end of a period with few.

use super::ondemand::{self, PerCore};
use super::{PointIndex, PointTable};
use machine::{Duration, Instant};
use policy::check::Check;
use policy::kind::{
    Decision, FrequencyPolicy, Head, Make, Making, Policy, Readings, Request, Seen, Waiting, Watch,
};
use policy::registry::{Entry, Parameter, Question, Word, count, number, settings, time};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

pub static ENTRY: Entry = Entry {
    words: &[Word::new("nmap-like", "fastest for a core at which requests queue up, else ondemand", |_| {
        settings(Params::default())
    })],
    question: Question::Frequency,
    help: "A core to which many requests come before it is idle again goes to the fastest frequency at \
           once. After a period in which few came so, `ondemand` decides again.",
    origin: "NMAP (Kang et al., MICRO 2021), by its abstract and recalled",
    make: Make::Frequency(|making| Box::new(Server::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub period: Duration,
    pub polled_most: u32,
    pub polled_ratio: f64,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("period", "from one look of the timer to the next, ondemand's too")
            .above_zero()
            .source("the paper, recalled; ondemand's"),
        count("polled_most", "polled requests within an interrupt; one more gives the fastest frequency")
            .source(PROFILE),
        number("polled_ratio", "with fewer polled requests for each by interrupt ondemand decides again")
            .source(PROFILE),
    ];
}

const PROFILE: &str =
    "ours: ESTIMATE, of `scenarios/all.toml` with a queue for each core, where `menu` just keeps the goal";

impl Default for Params {
    fn default() -> Self {
        Self { period: Duration::from_millis(10), polled_most: 16, polled_ratio: 2.0 }
    }
}

#[derive(Clone, Copy)]
struct Cpu {
    is_idle: bool,
    is_serving: bool,
    is_intensive: bool,
    /// Polled since the CPU was idle.
    run: u32,
    /// Polled in this period, and by interrupt.
    polled: u32,
    interrupts: u32,
}

impl Cpu {
    const NEW: Self =
        Self { is_idle: true, is_serving: false, is_intensive: false, run: 0, polled: 0, interrupts: 0 };

    /// A request begins here. Only one that found the CPU idle is new: the others counted as they came.
    fn start(&mut self) {
        self.is_serving = true;
        self.interrupts += u32::from(std::mem::take(&mut self.is_idle));
    }

    /// A request has come while there is work. Whether the CPU becomes network-intensive by it.
    fn poll(&mut self, params: &Params) -> bool {
        self.polled += 1;
        self.run += 1;
        self.run > params.polled_most && !std::mem::replace(&mut self.is_intensive, true)
    }

    fn end_period(&mut self, params: &Params) {
        let (polled, interrupts) = (std::mem::take(&mut self.polled), std::mem::take(&mut self.interrupts));
        // Polled requests alone are more than any ratio.
        let is_below = polled == 0 || f64::from(polled) < params.polled_ratio * f64::from(interrupts);
        self.is_intensive &= !is_below;
    }
}

/// The policy of a machine: ondemand for all cores, and each CPU's mode.
pub struct Server {
    params: Params,
    fastest: PointIndex,
    ondemand: PerCore,
    cpus: Vec<Cpu>,
    decisions: VecDeque<Decision>,
}

impl Server {
    fn new(making: &Making<'_>) -> Self {
        Self::of(making.params(), making.points(), making.cores(), making.cpus())
    }

    fn of(params: Params, points: PointTable, cores: usize, cpus: usize) -> Self {
        let governor = ondemand::Params { period: params.period, ..ondemand::Params::default() };
        Self {
            params,
            fastest: points.fastest(),
            ondemand: PerCore::of(governor, points, cores, cpus),
            cpus: vec![Cpu::NEW; cpus],
            decisions: VecDeque::new(),
        }
    }
}

impl Policy for Server {
    fn readings(&self) -> Readings {
        self.ondemand.readings()
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        self.ondemand.handle_timeout(now, seen);
        while let Some(decision) = self.ondemand.poll_decision() {
            self.decisions.push_back(match decision {
                Decision::OperatingPoint { cpu, point } => {
                    let state = &mut self.cpus[cpu.index()];
                    state.end_period(&self.params);
                    let point = if state.is_intensive { self.fastest } else { point };
                    Decision::OperatingPoint { cpu, point }
                }
                other => other,
            });
        }
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ondemand.poll_timeout()
    }
}

impl FrequencyPolicy for Server {
    fn watches(&self) -> Watch {
        Watch::Queues
    }

    fn handle_queue(
        &mut self,
        _: Instant,
        cpu: usize,
        head: Option<Head>,
        _: &dyn Fn(usize) -> Option<Waiting>,
    ) -> Option<PointIndex> {
        let cpu = &mut self.cpus[cpu];
        if head.is_some() && !cpu.is_serving {
            cpu.start();
            return None;
        }
        cpu.poll(&self.params).then_some(self.fastest)
    }

    fn handle_completion(&mut self, _: Instant, cpu: usize, _: &Request) {
        self.cpus[cpu].is_serving = false;
    }

    fn handle_idle(&mut self, _: Instant, cpu: usize, _: PointIndex) -> Option<PointIndex> {
        let cpu = &mut self.cpus[cpu];
        (cpu.is_idle, cpu.run) = (true, 0);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::{nine_points, whole};
    use policy::kind::CpuTotals;
    use proptest::prelude::*;

    const PERIOD: Duration = Duration::from_millis(10);
    const PARAMS: Params = Params { period: PERIOD, polled_most: 4, polled_ratio: 1.0 };

    fn server() -> Server {
        Server::of(PARAMS, nine_points(), 1, 1)
    }

    /// An interrupt's first request, and so many that come while it runs. The answers to those.
    fn burst(server: &mut Server, now: Instant, polled: u32) -> Vec<Option<PointIndex>> {
        let head = Some(Head { arrived: now, done_compute: Duration::ZERO, phase: 0 });
        let request = whole(now, PERIOD);
        let waiting = Waiting { arrived: now, phase: 0 };
        assert_eq!(server.handle_queue(now, 0, head, &|_| None), None, "by interrupt");
        // One comes between two requests: no head.
        let heads = |place| if place == 1 { None } else { head };
        let answers = (0..polled).map(|place| server.handle_queue(now, 0, heads(place), &|_| Some(waiting)));
        let answers = answers.collect();
        for _ in 0..polled {
            server.handle_completion(now, 0, &request);
            assert_eq!(server.handle_queue(now, 0, head, &|_| None), None, "it counted as it came");
        }
        server.handle_completion(now, 0, &request);
        server.handle_idle(now, 0, PointIndex(0));
        answers
    }

    /// The decision of a period's end, and ondemand's own.
    fn end_period(server: &mut Server, governor: &mut PerCore, at: u64, busy: Duration) -> [PointIndex; 2] {
        let (now, cpus) = (Instant::ZERO + PERIOD * at, [CpuTotals { busy, ..CpuTotals::default() }]);
        let seen = Seen { cpus: &cpus, ..Seen::default() };
        server.handle_timeout(now, &seen);
        governor.handle_timeout(now, &seen);
        let decided = [server.poll_decision(), governor.poll_decision()].map(|decision| match decision {
            Some(Decision::OperatingPoint { point, .. }) => point,
            other => panic!("{other:?}"),
        });
        server.handle_timeout(now, &seen);
        assert_eq!(server.poll_decision(), None, "twice does no harm");
        decided
    }

    #[test]
    fn one_polled_request_too_many_gives_the_fastest_at_once() {
        let (mut server, fastest) = (server(), nine_points().fastest());
        assert_eq!(burst(&mut server, Instant::ZERO, 4), [None; 4]);
        assert_eq!(burst(&mut server, Instant::ZERO, 4), [None; 4], "another interrupt");
        let answers = burst(&mut server, Instant::ZERO, 6);
        assert_eq!(answers, [None, None, None, None, Some(fastest), None]);
    }

    proptest! {
        #[test]
        fn the_fastest_stays_until_a_period_with_few_and_ondemand_decides_else(
            periods in prop::collection::vec((prop::collection::vec(0_u32..9, 0..5), 0_u64..=100), 1..12),
        ) {
            let (mut server, fastest) = (server(), nine_points().fastest());
            let governor = ondemand::Params { period: PERIOD, ..ondemand::Params::default() };
            let mut governor = PerCore::of(governor, nine_points(), 1, 1);
            let (mut is_intensive, mut busy) = (false, Duration::ZERO);
            for (at, (bursts, percent)) in periods.iter().enumerate() {
                for &polled in bursts {
                    let answers = burst(&mut server, Instant::ZERO + PERIOD * at as u64, polled);
                    let raised = !is_intensive && polled > PARAMS.polled_most;
                    prop_assert_eq!(answers.contains(&Some(fastest)), raised);
                    is_intensive |= raised;
                }
                busy += PERIOD * *percent / 100;
                let [ours, ondemand] = end_period(&mut server, &mut governor, at as u64 + 1, busy);
                // A ratio of 1.
                is_intensive &= bursts.iter().sum::<u32>() >= (bursts.len() as u32).max(1);
                prop_assert_eq!(ours, if is_intensive { fastest } else { ondemand });
                prop_assert!(ours >= ondemand);
            }
        }
    }
}
