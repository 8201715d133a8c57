//! Which idle state a CPU goes to when it has nothing to do: cpuidle's governors, as plain calls.
//!
//! **Problem.** A deep state saves power only in a sleep of at least its *target residency*, and
//! the request that wakes the CPU pays the *exit latency*. How long the sleep will last is not
//! known when the state is chosen.
//!
//! **Approach.** At every idle entry [`Governor::select`] gets the CPU's knowledge, an
//! [`IdleEntry`], and answers with a [`Sleep`]; when the CPU is back at work [`Governor::reflect`]
//! is told how it went, [`Woken`]. Both are plain calls that allocate nothing: a simulator makes
//! millions of them a second. The tables are small arrays, arithmetic is on integers.
//!
//! - [`Governor::Poll`], [`Governor::Shallow`], [`Governor::Deep`]: the bounds. The Tradeoffs paper
//!   (section III-C) measures the room for all others between the latter two.
//! - [`Menu`], [`Teo`], [`Teo7`]: Linux's, which predict.
//! - [`Feedback`]: either, curbed when it proves too bold; the Tradeoffs paper's extension.
//!
//! The governor that knows the future is the simulator's.
//!
//! Terms. A sleep is *premature* if the CPU idled for less than the state's target residency, and
//! a *missed deep* one if it idled for the residency of a deeper state that was allowed; cpuidle's
//! own counters call them `above` and `below`. The *tick* is the scheduler's periodic timer, which
//! a CPU may stop while it sleeps.
//!
//! Invariants: no state is chosen whose exit latency is above the limit; under a limit that
//! no state meets, or of zero, every governor polls; the answer is a place in the table; the same
//! calls in the same order give the same answers, also if the governor was written out and read
//! back in between.

mod feedback;
mod menu;
mod params;
mod teo;
mod teo_7;

pub use feedback::{Feedback, FeedbackParams};
pub use menu::{Menu, MenuParams};
pub use params::{MENU, MENU_FEEDBACK, MenuFeedbackParams, TEO, TEO_FEEDBACK, TeoFeedbackParams, UNCHANGING};
pub use teo::{Teo, TeoParams};
pub use teo_7::Teo7;

use machine::CstateIndex;
use policy::kind::IdlePolicy;
pub use policy::kind::idle::{IdleEntry, IdleTable, MAX_STATES, Sleep, SleepStats, WakeCause, Woken};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Governor {
    /// Always spins: no exit latency, full power.
    Poll,
    Shallow,
    /// Always the deepest state within the limit.
    Deep,
    /// Linux's menu.
    Menu(Menu),
    /// Linux's TEO, as of 6.18.
    Teo(Teo),
    /// The same as of 7.0.
    Teo7(Teo7),
    /// Menu or TEO, curbed by premature wake-ups.
    Feedback(Feedback),
}

impl IdlePolicy for Governor {
    #[inline]
    fn select(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep {
        if !table.halts_within(entry.limit) {
            return Sleep::Poll;
        }
        // The bounds predict nothing, so the tick could only disturb them.
        let always = |state: usize| Sleep::State { index: CstateIndex(state as u8), keep_tick: false };
        match self {
            Self::Poll => Sleep::Poll,
            Self::Shallow => always(0),
            Self::Deep => always(table.deepest_within(entry.limit)),
            Self::Menu(menu) => menu.select(table, entry),
            Self::Teo(teo) => teo.select(table, entry),
            Self::Teo7(teo) => teo.select(table, entry),
            Self::Feedback(feedback) => feedback.select(table, entry),
        }
    }

    #[inline]
    fn reflect(&mut self, table: &IdleTable, woken: &Woken) {
        match self {
            Self::Poll | Self::Shallow | Self::Deep => {}
            Self::Menu(menu) => menu.reflect(table, woken),
            Self::Teo(teo) => teo.reflect(table, woken),
            Self::Teo7(teo) => teo.reflect(table, woken),
            Self::Feedback(feedback) => feedback.reflect(table, woken),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use machine::{Cstate, CstateKind, CstateTable, Duration, Instant};
    use proptest::prelude::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    /// States of so many microseconds of exit latency and target residency.
    pub(super) fn table(states: &[(u64, u64)]) -> IdleTable {
        let state = |&(exit_us, residency_us): &(u64, u64)| Cstate {
            name: String::new(),
            kind: CstateKind::Halting,
            exit_latency: US(exit_us),
            true_exit_latency: None,
            entry_latency: None,
            target_residency: US(residency_us),
            power: None,
        };
        IdleTable::new(&CstateTable(states.iter().map(state).collect()))
    }

    /// SandyBridge's C1, C3, C6 and C7, as the Tradeoffs paper prints them (section II).
    pub(super) fn sandy_bridge() -> IdleTable {
        table(&[(1, 1), (80, 106), (104, 345), (109, 345)])
    }

    /// The governor, new on each machine, decides all that a kernel's own source decided
    /// (`scripts/teo-decisions`).
    pub(super) fn decides_as(new: &Governor, recorded: &str) {
        // -1 is none.
        let ns = |word: &str| word.parse().map_or(Duration::MAX, Duration::from_nanos);
        let us = |state: &&str| {
            let (residency, exit) = state.split_once(':').unwrap();
            (exit.parse::<u64>().unwrap() / 1000, residency.parse::<u64>().unwrap() / 1000)
        };
        let mut machine = None;
        let mut decided = 0;
        let mut selected = CstateIndex(0);
        for (line, text) in recorded.lines().enumerate() {
            let words: Vec<&str> = text.split(' ').collect();
            match (words[..].as_ref(), &mut machine) {
                (["table", states @ ..], _) => {
                    machine = Some((table(&states.iter().map(us).collect::<Vec<_>>()), new.clone()));
                }
                (["sleep", timer, tick, limit, state, keep], Some((table, governor))) => {
                    let (next_timer, next_tick, limit) = (ns(timer), ns(tick), ns(limit));
                    let entry = IdleEntry { now: Instant::ZERO, next_timer, next_tick, limit };
                    let Sleep::State { index, keep_tick } = governor.select(table, &entry) else {
                        panic!("{text}")
                    };
                    let kernel: usize = state.parse().unwrap();
                    let as_kernel = (kernel.saturating_sub(1), *keep == "1");
                    assert_eq!((index.index(), keep_tick), as_kernel, "line {}: {text}", line + 1);
                    (decided, selected) = (decided + 1, index);
                }
                (["woke", residency, tick], Some((table, governor))) => {
                    let by = if *tick == "1" { WakeCause::Tick } else { WakeCause::Interrupt };
                    governor.reflect(table, &Woken { selected, residency: ns(residency), by });
                }
                _ => panic!("line {}: {text}", line + 1),
            }
        }
        assert_eq!(decided, 1500);
    }

    fn entry(limit: Duration) -> IdleEntry {
        IdleEntry {
            now: Instant::ZERO,
            next_timer: Duration::from_secs(1),
            next_tick: Duration::from_millis(4),
            limit,
        }
    }

    fn governors(table: &IdleTable) -> [Governor; 8] {
        let curbed = FeedbackParams::default();
        [
            Governor::Poll,
            Governor::Shallow,
            Governor::Deep,
            Governor::Menu(Menu::new(MenuParams::default())),
            Governor::Teo(Teo::new(TeoParams::default())),
            Governor::Teo7(Teo7::new(TeoParams::default())),
            Governor::Feedback(Feedback::around_menu(MenuParams::default(), curbed, table)),
            Governor::Feedback(Feedback::around_teo(TeoParams::default(), curbed, table)),
        ]
    }

    #[test]
    fn the_bounds_do_what_they_are_called() {
        let table = sandy_bridge();
        let select = |mut governor: Governor, limit| governor.select(&table, &entry(limit));
        let always = |state| Sleep::State { index: CstateIndex(state), keep_tick: false };
        assert_eq!(select(Governor::Poll, Duration::MAX), Sleep::Poll);
        assert_eq!(select(Governor::Shallow, Duration::MAX), always(0));
        assert_eq!(select(Governor::Deep, Duration::MAX), always(3));
        assert_eq!(select(Governor::Deep, US(104)), always(2));
    }

    #[test]
    fn a_limit_that_no_state_meets_means_polling_for_all() {
        for (table, limit) in [
            (sandy_bridge(), Duration::ZERO),
            (sandy_bridge(), Duration::from_nanos(999)),
            (table(&[(0, 0), (80, 106)]), Duration::ZERO),
        ] {
            for mut governor in governors(&table) {
                assert_eq!(governor.select(&table, &entry(limit)), Sleep::Poll, "{governor:?}");
            }
        }
    }

    #[test]
    fn idle_is_the_residency_without_the_exit_or_half_of_it() {
        let table = sandy_bridge();
        let idle = |residency_us| {
            let selected = CstateIndex(1);
            Woken { selected, residency: US(residency_us), by: WakeCause::Timer }.idle(&table)
        };
        assert_eq!([idle(300), idle(162), idle(160), idle(20)].map(Duration::as_micros), [220, 82, 80, 10]);
    }

    /// One to twelve states, exit latency and residency rising, the latter never below the former.
    pub(super) fn any_table() -> impl Strategy<Value = IdleTable> {
        prop::collection::vec((0_u64..100, 0_u64..300), 1..=MAX_STATES).prop_map(|steps| {
            let mut at = (0, 0);
            let states: Vec<_> = steps
                .into_iter()
                .map(|(exit, residency)| {
                    at.0 += exit;
                    at.1 = (at.1 + residency).max(at.0);
                    at
                })
                .collect();
            table(&states)
        })
    }

    fn any_length() -> impl Strategy<Value = Duration> {
        prop_oneof![
            4 => (0_u64..2_000_000).prop_map(Duration::from_nanos),
            1 => (0_u64..10_000_000_000).prop_map(Duration::from_nanos),
            1 => Just(Duration::MAX),
        ]
    }

    fn any_sleep() -> impl Strategy<Value = (IdleEntry, Duration, WakeCause)> {
        let by = prop_oneof![Just(WakeCause::Interrupt), Just(WakeCause::Timer), Just(WakeCause::Tick)];
        let tick = prop_oneof![(0_u64..4_000_000).prop_map(Duration::from_nanos), Just(Duration::MAX)];
        let limit = prop_oneof![(0_u64..1_500_000).prop_map(Duration::from_nanos), Just(Duration::MAX)];
        (any_length(), tick, limit, any_length(), by).prop_map(|(next_timer, next_tick, limit, idle, by)| {
            (IdleEntry { now: Instant::ZERO, next_timer, next_tick, limit }, idle, by)
        })
    }

    /// Selects, and if it slept, reflects.
    fn play(
        governor: &mut Governor,
        table: &IdleTable,
        (entry, residency, by): (IdleEntry, Duration, WakeCause),
    ) -> Sleep {
        let sleep = governor.select(table, &entry);
        if let Sleep::State { index: selected, .. } = sleep {
            governor.reflect(table, &Woken { selected, residency, by });
        }
        sleep
    }

    proptest! {
        #[test]
        fn no_state_is_beyond_the_limit_or_outside_the_table(
            table in any_table(),
            sleeps in prop::collection::vec(any_sleep(), 1..80),
        ) {
            for mut governor in governors(&table) {
                for &sleep in &sleeps {
                    let (entry, ..) = sleep;
                    match play(&mut governor, &table, sleep) {
                        Sleep::Poll => prop_assert!(
                            governor == Governor::Poll || !table.halts_within(entry.limit)
                        ),
                        Sleep::State { index, keep_tick } => {
                            prop_assert!(index.index() < table.len());
                            prop_assert!(table.exit_latency(index.index()) <= entry.limit);
                            prop_assert!(!keep_tick || entry.next_tick != Duration::MAX);
                        }
                    }
                }
            }
        }

        #[test]
        fn a_governor_read_back_goes_on_as_before(
            table in any_table(),
            sleeps in prop::collection::vec(any_sleep(), 1..80),
            at in 0_usize..80,
        ) {
            for mut governor in governors(&table) {
                let mut again = governor.clone();
                for (step, &sleep) in sleeps.iter().enumerate() {
                    if step == at {
                        let text = serde_json::to_string(&again).unwrap();
                        again = serde_json::from_str(&text).unwrap();
                    }
                    prop_assert_eq!(play(&mut governor, &table, sleep), play(&mut again, &table, sleep));
                }
                prop_assert_eq!(governor, again);
            }
        }
    }
}
