//! Which core an arriving request goes to, if not the one that it would go to by itself, its *home*
//! [C, the rules that uDPM's authors tried].
//!
//! A request that comes to a core which has slept long, and will sleep on, makes no trouble. One
//! that follows closely on another is *critical*: it may have the wake-up moved, or the clock
//! raised, where another core would take it along for nothing. Candidates are cores that are awake
//! or have a wake-up planned anyway, and of which it may be expected that they serve one request
//! more within the goal; among them decides the [`Rule`], and of equals the first. Without a
//! candidate the request stays at home.
//!
//! Two of the published rules carry names that do not fit their effect, because the authors count
//! P-states from the fastest: their `max_f` takes the slowest core, `min_f` the fastest. Ours are
//! named for their effect. Their cost of a core that sleeps with nothing to do counts from zero;
//! here it is no candidate, as in their other rules.

use machine::Duration;
use policy::check::Check;
use policy::frequency::PointIndex;
use policy::registry::{Parameter, flag, one_of};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// None: every request stays at home.
    #[default]
    Stay,
    Random,
    /// The one that will be done first.
    LeastLatency,
    /// The one that will be done last, but in time: packs.
    MostLatency,
    /// The one with the lowest clock, of those that are awake if there are any.
    Slowest,
    /// The one with the highest clock, of those that are awake if there are any.
    Fastest,
    /// Of those that sleep the one that will be done first; if none does, of all.
    Sleeping,
    /// The one whose energy rises by the least.
    LeastCost,
}

/// Which requests are sent elsewhere, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub rule: Rule,
    pub critical_only: bool,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        one_of(
            "rule",
            "which candidate is taken",
            &[
                "stay",
                "random",
                "least_latency",
                "most_latency",
                "slowest",
                "fastest",
                "sleeping",
                "least_cost",
            ],
        )
        .source("uDPM's paper; the rest the authors' code"),
        flag("critical_only", "only critical requests are sent elsewhere").source("the authors' code"),
    ];
}

/// The state that one more request would find at a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CoreLoad {
    pub awake: bool,
    pub point: PointIndex,
    /// Until it is done, at worst; `None` for a core that sleeps with nothing to do.
    pub latency: Option<Duration>,
    /// The energy that it adds, in a unit of the caller's.
    pub cost: f64,
}

impl Params {
    /// The core that takes the request.
    pub(super) fn choose(
        self,
        home: usize,
        critical: bool,
        goal: Duration,
        draw: u64,
        loads: impl Iterator<Item = CoreLoad> + Clone,
    ) -> usize {
        if self.rule == Rule::Stay || (self.critical_only && !critical) {
            return home;
        }
        let candidates = || {
            let in_time = |(core, load): (usize, CoreLoad)| {
                load.latency.filter(|&latency| latency < goal).map(|latency| (core, load, latency))
            };
            loads.clone().enumerate().filter_map(in_time)
        };
        let awake_first = |load: CoreLoad| u8::from(!load.awake);
        let chosen = match self.rule {
            Rule::Stay => None,
            Rule::Random => match candidates().count() as u64 {
                0 => None,
                count => candidates().nth((draw % count) as usize),
            },
            Rule::LeastLatency => candidates().min_by_key(|&(.., latency)| latency),
            Rule::MostLatency => candidates().min_by_key(|&(.., latency)| std::cmp::Reverse(latency)),
            Rule::Slowest => candidates().min_by_key(|&(_, load, _)| (awake_first(load), load.point)),
            Rule::Fastest => {
                candidates().min_by_key(|&(_, load, _)| (awake_first(load), std::cmp::Reverse(load.point)))
            }
            Rule::Sleeping => candidates().min_by_key(|&(_, load, latency)| (load.awake, latency)),
            Rule::LeastCost => candidates().min_by(|(_, a, _), (_, b, _)| a.cost.total_cmp(&b.cost)),
        };
        chosen.map_or(home, |(core, ..)| core)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(awake: bool, point: u8, latency_us: Option<u64>, cost: f64) -> CoreLoad {
        CoreLoad { awake, point: PointIndex(point), latency: latency_us.map(Duration::from_micros), cost }
    }

    /// Home is core 0, which sleeps with nothing to do; core 5 would be late.
    fn loads() -> [CoreLoad; 6] {
        [
            load(false, 1, None, 0.0),
            load(false, 0, Some(250), 5.0),
            load(true, 3, Some(40), 4.0),
            load(true, 2, Some(90), 3.0),
            load(false, 4, Some(200), 1.0),
            load(true, 0, Some(300), 0.5),
        ]
    }

    fn chosen(rule: Rule, draw: u64) -> usize {
        let params = Params { rule, critical_only: false };
        params.choose(0, false, Duration::from_micros(300), draw, loads().into_iter())
    }

    #[test]
    fn each_rule_takes_the_core_it_names() {
        for (rule, core) in [
            (Rule::Stay, 0),
            (Rule::LeastLatency, 2),
            (Rule::MostLatency, 1),
            (Rule::Slowest, 3),
            (Rule::Fastest, 2),
            (Rule::Sleeping, 4),
            (Rule::LeastCost, 4),
        ] {
            assert_eq!(chosen(rule, 7), core, "{rule:?}");
        }
        assert_eq!([0, 1, 2, 3, 4].map(|draw| chosen(Rule::Random, draw)), [1, 2, 3, 4, 1]);
    }

    #[test]
    fn without_a_candidate_a_request_stays_at_home() {
        for rule in [Rule::Random, Rule::LeastLatency, Rule::MostLatency, Rule::Sleeping, Rule::LeastCost] {
            let params = Params { rule, critical_only: false };
            assert_eq!(params.choose(3, true, Duration::from_micros(40), 9, loads().into_iter()), 3);
        }
    }

    #[test]
    fn only_critical_requests_leave_if_so_wished() {
        let params = Params { rule: Rule::LeastLatency, critical_only: true };
        let goal = Duration::from_micros(300);
        assert_eq!(params.choose(0, false, goal, 0, loads().into_iter()), 0);
        assert_eq!(params.choose(0, true, goal, 0, loads().into_iter()), 2);
    }
}
