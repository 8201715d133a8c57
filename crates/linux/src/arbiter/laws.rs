//! How requests combine.
//!
//! - *The idle limit of a CPU* is the least latency, and the deepest sleep only where no request
//!   bounds the latency: a bound pays for each wake-up, and a deep sleep is a wish for power.
//! - *The clock of a CPU* is the fastest, and free where one request wants all: a request for less
//!   can live with more, and not the other way round.
//! - *Active CPUs* are the union: a CPU that one service has left may still be another's.
//!
//! Property tests show two facts. The order of requests changes nothing. After a withdrawal the
//! combination is the one of the other requests, as if the withdrawn one had never been made.

use super::request::list;
use crate::cpuset::isolation::Scope;
use machine::{CpuId, CpuList, Duration, FrequencyLimit, IdleLimit};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The least latency that any request asks for. Without one, the deepest sleep that any request
/// asks for.
pub(super) fn strictest(asked: impl Iterator<Item = IdleLimit>) -> Option<IdleLimit> {
    asked.min_by_key(|limit| match limit {
        IdleLimit::ExitLatency(latency) => (0, *latency),
        IdleLimit::Deepest => (1, Duration::ZERO),
        IdleLimit::None => (2, Duration::ZERO),
    })
}

/// The fastest limit; no limit if any request asks for the full clock. Of a cap and a speed that
/// are equal, the speed.
pub(super) fn fastest(asked: impl Iterator<Item = FrequencyLimit>) -> Option<FrequencyLimit> {
    asked.max_by_key(|limit| match *limit {
        FrequencyLimit::None => (u64::MAX, false),
        FrequencyLimit::AtMost(clock) => (clock.0, false),
        FrequencyLimit::Exactly(clock) => (clock.0, true),
    })
}

/// The CPUs that an asker needs, and the CPUs that it has left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Claim {
    /// CPUs that must be awake and open to all tasks: the asker runs there now, or is about to.
    #[serde(with = "list")]
    pub active: CpuList,
    /// CPUs that the asker could run on. Those that no claim has active are parked for the groups
    /// in `scope`. An empty scope parks nothing.
    #[serde(with = "list")]
    pub could: CpuList,
    /// The groups that leave the parked CPUs.
    pub scope: Scope,
    /// CPUs that the asker could run on and that go offline when no claim has them active.
    #[serde(with = "list")]
    pub offline: CpuList,
    /// Cpusets and units that the asker sets itself, so that they are not moved as surroundings
    /// (`Confiner::place`).
    pub places: BTreeSet<String>,
}

/// The union of the active CPUs.
pub(super) fn needed<'a>(claims: impl Iterator<Item = &'a Claim>) -> CpuList {
    CpuList(claims.flat_map(|claim| claim.active.0.iter().copied()).collect())
}

/// The CPUs on which a group of tasks may run, from the claims whose scope has that group (`of`):
/// all but the CPUs that such a claim could use and no claim has active. Never empty while a CPU is
/// online.
pub(super) fn open_to<'a>(
    online: &CpuList,
    claims: impl Iterator<Item = &'a Claim> + Clone,
    of: fn(&Scope) -> bool,
) -> CpuList {
    let could: BTreeSet<CpuId> = claims
        .clone()
        .filter(|claim| of(&claim.scope))
        .flat_map(|claim| claim.could.0.iter().copied())
        .collect();
    let parked = &could - &needed(claims).0;
    let left = &online.0 - &parked;
    if left.is_empty() { online.clone() } else { CpuList(left) }
}

/// The CPUs of `there` that go offline: a claim names them, and no claim has them active. Never
/// all.
pub(super) fn going<'a>(there: &CpuList, claims: impl Iterator<Item = &'a Claim> + Clone) -> CpuList {
    let left: BTreeSet<CpuId> = claims.clone().flat_map(|claim| claim.offline.0.iter().copied()).collect();
    let going = &(&left - &needed(claims).0) & &there.0;
    if going == there.0 { CpuList::default() } else { CpuList(going) }
}

/// The requests for each CPU, with their asker and their time in seconds of the Unix clock.
#[derive(Debug)]
pub(super) struct Wishes<W, L> {
    by_cpu: BTreeMap<CpuId, BTreeMap<W, (L, u64)>>,
}

impl<W, L> Default for Wishes<W, L> {
    fn default() -> Self {
        Self { by_cpu: BTreeMap::new() }
    }
}

impl<W: Ord + Clone, L: Copy + PartialEq> Wishes<W, L> {
    /// Replaces the request of `asker` for `cpu`; `None` withdraws it.
    pub(super) fn set(&mut self, asker: &W, cpu: CpuId, limit: Option<L>, since: u64) {
        let asked = self.by_cpu.entry(cpu).or_default();
        match limit {
            None => {
                asked.remove(asker);
            }
            Some(limit) if asked.get(asker).is_some_and(|(before, _)| *before == limit) => {}
            Some(limit) => {
                asked.insert(asker.clone(), (limit, since));
            }
        }
        if asked.is_empty() {
            self.by_cpu.remove(&cpu);
        }
    }

    /// The request of `asker` for this CPU.
    pub(super) fn by(&self, asker: &W, cpu: CpuId) -> Option<L> {
        self.by_cpu.get(&cpu)?.get(asker).map(|(limit, _)| *limit)
    }

    /// All requests for this CPU.
    pub(super) fn of(&self, cpu: CpuId) -> impl Iterator<Item = L> + '_ {
        self.by_cpu.get(&cpu).into_iter().flat_map(|asked| asked.values().map(|(limit, _)| *limit))
    }

    /// The CPUs for which such an asker has a request.
    pub(super) fn cpus_of(&self, is: impl Fn(&W) -> bool) -> Vec<(CpuId, W)> {
        let named =
            self.by_cpu.iter().flat_map(|(&cpu, asked)| asked.keys().map(move |asker| (cpu, asker.clone())));
        named.filter(|(_, asker)| is(asker)).collect()
    }

    /// The CPUs with any request.
    pub(super) fn cpus(&self) -> Vec<CpuId> {
        self.by_cpu.keys().copied().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (CpuId, &W, L, u64)> {
        self.by_cpu.iter().flat_map(|(&cpu, asked)| {
            asked.iter().map(move |(asker, (limit, since))| (cpu, asker, *limit, *since))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Kilohertz;
    use proptest::prelude::*;

    fn idle() -> impl Strategy<Value = IdleLimit> {
        prop_oneof![
            Just(IdleLimit::None),
            Just(IdleLimit::Deepest),
            (0..5u64).prop_map(|us| IdleLimit::ExitLatency(Duration::from_micros(us))),
        ]
    }

    fn clock() -> impl Strategy<Value = FrequencyLimit> {
        prop_oneof![
            Just(FrequencyLimit::None),
            (1..5u64).prop_map(|ghz| FrequencyLimit::AtMost(Kilohertz(ghz * 1_000_000))),
            (1..5u64).prop_map(|ghz| FrequencyLimit::Exactly(Kilohertz(ghz * 1_000_000))),
        ]
    }

    fn cpus() -> impl Strategy<Value = CpuList> {
        proptest::collection::btree_set((0..8u16).prop_map(CpuId), 0..8).prop_map(CpuList)
    }

    fn claim() -> impl Strategy<Value = Claim> {
        (cpus(), cpus(), cpus(), any::<[bool; 3]>()).prop_map(
            |(active, could, offline, [all_tasks, interrupts, isolated])| {
                let scope = Scope { all_tasks, interrupts, isolated };
                Claim { active, could, scope, offline, ..Claim::default() }
            },
        )
    }

    /// One list in two orders.
    fn shuffled<T: Clone + std::fmt::Debug + 'static>(
        of: impl Strategy<Value = T>,
    ) -> impl Strategy<Value = (Vec<T>, Vec<T>)> {
        proptest::collection::vec(of, 0..6)
            .prop_flat_map(|asked| (Just(asked.clone()), Just(asked).prop_shuffle()))
    }

    proptest! {
        #[test]
        fn the_order_of_requests_changes_nothing(
            (some, same) in shuffled(idle()),
            (clocks, the_same) in shuffled(clock()),
            (claims, again) in shuffled(claim()),
        ) {
            prop_assert_eq!(strictest(some.into_iter()), strictest(same.into_iter()));
            prop_assert_eq!(fastest(clocks.into_iter()), fastest(the_same.into_iter()));
            prop_assert_eq!(needed(claims.iter()), needed(again.iter()));
            let online = "0-7".parse().unwrap();
            for of in [|scope: &Scope| scope.all_tasks, |scope: &Scope| scope.isolated] {
                let open = open_to(&online, claims.iter(), of);
                prop_assert_eq!(&open, &open_to(&online, again.iter(), of));
                // A partition, of the rest, has no CPU that a service needs, and leaves one to the others.
                prop_assert!(needed(claims.iter()).0.is_subset(&open.0) && !open.0.is_empty());
            }
            prop_assert_eq!(going(&online, claims.iter()), going(&online, again.iter()));
        }

        /// After any requests, changes and withdrawals, the rest stands as if it alone had been
        /// asked.
        #[test]
        fn what_is_withdrawn_leaves_the_rest_as_if_it_had_never_been(
            steps in proptest::collection::vec((0..4u8, 0..2u16, proptest::option::of(clock())), 0..40),
            gone in 0..4u8,
        ) {
            let (mut all, mut rest) = (Wishes::default(), Wishes::default());
            for (at, (asker, cpu, limit)) in (0..).zip(steps) {
                all.set(&asker, CpuId(cpu), limit, at);
                if asker != gone {
                    rest.set(&asker, CpuId(cpu), limit, at);
                }
            }
            for (cpu, asker) in all.cpus_of(|asker| *asker == gone) {
                all.set(&asker, cpu, None, 0);
            }
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), rest.iter().collect::<Vec<_>>());
            for cpu in [CpuId(0), CpuId(1)] {
                prop_assert_eq!(fastest(all.of(cpu)), fastest(rest.of(cpu)));
            }
        }

        /// The open CPUs are empty only if no CPU is online, and every online CPU that a claim has
        /// active is open.
        #[test]
        fn what_is_needed_is_open(claims in proptest::collection::vec(claim(), 0..6), online in cpus()) {
            let open = open_to(&online, claims.iter(), |scope| scope.interrupts);
            prop_assert_eq!(open.0.is_empty(), online.0.is_empty());
            prop_assert!(open.0.is_subset(&online.0));
            let needed = needed(claims.iter());
            prop_assert!(needed.0.intersection(&online.0).all(|cpu| open.0.contains(cpu)));
        }

        /// Some CPU stays. CPUs that go offline are online now, no claim has them active, and a
        /// claim names them.
        #[test]
        fn what_is_needed_stays_online(claims in proptest::collection::vec(claim(), 0..6), there in cpus()) {
            let going = going(&there, claims.iter());
            prop_assert!(going.0.is_disjoint(&needed(claims.iter()).0));
            prop_assert!(going.0.is_subset(&there.0) && (going != there || there.0.is_empty()));
            prop_assert!(going.0.iter().all(|cpu| claims.iter().any(|claim| claim.offline.0.contains(cpu))));
        }
    }

    #[test]
    fn only_what_a_service_gives_up_and_no_other_has_goes_offline() {
        let cpus = |text: &str| text.parse::<CpuList>().unwrap();
        let claim = |could: &str, active: &str, goes: bool| Claim {
            active: cpus(active),
            could: cpus(could),
            offline: if goes { cpus(could) } else { CpuList::default() },
            ..Claim::default()
        };
        let there = cpus("0-7");
        for (claims, goes) in [
            (vec![claim("2-7", "2", true)], Some("3-7")),
            (vec![claim("2-7", "2", false)], None),
            (vec![claim("2-7", "2", true), claim("0-7", "5-6", false)], Some("3-4,7")),
            (vec![claim("0-3", "0", true), claim("4-7", "4", false)], Some("1-3")),
            (vec![claim("0-9", "0", true)], Some("1-7")),
            (vec![claim("0-7", "0-7", true)], None),
        ] {
            assert_eq!(going(&there, claims.iter()), goes.map(cpus).unwrap_or_default(), "{claims:?}");
        }
    }

    #[test]
    fn since_when_is_when_it_was_first_asked_for() {
        let mut wishes = Wishes::default();
        wishes.set(&"a", CpuId(0), Some(IdleLimit::Deepest), 5);
        wishes.set(&"a", CpuId(0), Some(IdleLimit::Deepest), 9);
        assert_eq!(wishes.iter().next().unwrap().3, 5);
        wishes.set(&"a", CpuId(0), Some(IdleLimit::None), 9);
        assert_eq!(wishes.iter().next().unwrap().3, 9);
    }
}
