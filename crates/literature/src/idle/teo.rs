//! TEO: the idle governor that trusts timers until they are proved wrong.
//!
//! **Problem.** As menu's: the next timer is known, the next interrupt is not.
//!
//! **Approach.** No prediction of a length, only of a state. The residencies of the states cut time
//! into *bins*, one a state and one for polling: the lengths for which it is the deepest that pays. A
//! sleep whose length fell into the bin of its timer is a *hit* of that bin: the timer could have been
//! trusted. A sleep cut short into a shallower bin is an *intercept* of that shallower bin. Both counts
//! decay by an eighth with every sleep.
//!
//! Choice starts with the deepest state. When sleeps that were cut short before it outweigh those
//! that reached it, it goes down to the deepest state that more than half of them reached. Then the
//! latency limit is applied, and then the timer: no state that does not pay until it is due. Where most
//! sleeps are shorter than 15 us and the state is as shallow, the timer is not asked for, for asking
//! takes time.
//!
//! The tick is kept when the timer is due within a tick, or when intercepts *beyond* a tick dominate and
//! the state is not one that needs more than a tick. The kernel's comment means those within one; 7.0
//! counts these.
//!
//! **Tables.** As [`super::Teo7`]'s: polling is not in them and has a bin.
//!
//! Source: Linux 6.18.3 and later 6.18, `drivers/cpuidle/governors/teo.c` \[K\]. Its own decisions on 1,500
//! made-up sleeps are in `testdata/teo-6.18.txt` (`scripts/teo-decisions`), and all are decided alike.
//!
//! Invariants: the state pays until the next timer, unless it is the shallowest; its exit
//! latency is within the limit if that of any state is.

use super::{IdleEntry, IdleTable, MAX_STATES, Sleep, WakeCause, Woken};
use machine::{CstateIndex, Duration};
use policy::check::Check;
use policy::registry::{Parameter, time};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TeoParams {
    #[serde(with = "machine::duration_text")]
    pub tick: Duration,
}

impl Check for TeoParams {
    const PARAMETERS: &'static [Parameter] = &[time("tick", "the period of the scheduler's tick")
        .above_zero()
        .given("the machine")
        .source("Linux, CONFIG_HZ=250")];
}

impl Default for TeoParams {
    fn default() -> Self {
        Self { tick: Duration::from_millis(4) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Teo {
    params: TeoParams,
    /// By bin: sleeps that lasted until their timer, or nearly.
    hits: [u32; BINS],
    /// By bin: sleeps that were cut short, where they ended.
    intercepts: [u32; BINS],
    /// All sleeps, decaying as the bins do.
    total: u32,
    /// Those of the intercepts that lasted a tick or more.
    tick_intercepts: u32,
    short: u32,
    /// Until the next timer, at the last selection; infinite where it was not asked for.
    next_timer: Duration,
}

impl Teo {
    /// A governor that has seen nothing: it believes the timers.
    pub fn new(params: TeoParams) -> Self {
        Self {
            params,
            hits: [0; BINS],
            intercepts: [0; BINS],
            total: 0,
            tick_intercepts: 0,
            short: 0,
            next_timer: Duration::ZERO,
        }
    }

    #[inline]
    pub(super) fn select(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep {
        let tick = self.params.tick;
        let has_tick = entry.next_tick != Duration::MAX;
        self.next_timer = Duration::MAX;
        let allowed = 1 + table.deepest_within(entry.limit);
        let mut state = self.deepest_reached(table, has_tick).min(allowed);
        let is_short = 2 * self.short >= self.total || entry.limit < SHORT / 2;
        if residency(table, state) < SHORT && is_short {
            return answer(state, has_tick);
        }
        self.next_timer = entry.next_timer;
        if state == 0 {
            return answer(0, has_tick);
        }
        state = deepest_within(table, state, entry.next_timer);
        let is_cut_late =
            residency(table, state) < tick && self.tick_intercepts > self.total / 2 + self.total / 8;
        let stops = state > 0 && entry.next_timer >= tick && !is_cut_late;
        if stops || !has_tick {
            return answer(state, false);
        }
        answer(deepest_within(table, state, entry.next_timer.min(entry.next_tick)), true)
    }

    #[inline]
    pub(super) fn reflect(&mut self, table: &IdleTable, woken: &Woken) {
        for counts in [&mut self.hits, &mut self.intercepts] {
            counts.iter_mut().for_each(|count| *count -= *count >> DECAY_SHIFT);
        }
        for count in [&mut self.short, &mut self.tick_intercepts, &mut self.total] {
            *count -= *count >> DECAY_SHIFT;
        }
        self.total += PULSE;
        let exit_latency = table.exit_latency(woken.selected.index());
        // Without the tick it would have slept on.
        let idle = if woken.by == WakeCause::Tick && self.next_timer > self.params.tick {
            Duration::MAX
        } else {
            idle_on_average(woken.residency, exit_latency)
        };
        if woken.residency < exit_latency && idle != Duration::MAX || idle < SHORT {
            self.short += PULSE;
        }
        let timer_bin = bin_of(table, self.next_timer);
        let bin = timer_bin.min(bin_of(table, idle));
        if bin == timer_bin {
            self.hits[bin] += PULSE;
        } else {
            self.intercepts[bin] += PULSE;
            if idle >= self.params.tick {
                self.tick_intercepts += PULSE;
            }
        }
    }

    /// The deepest state, unless most sleeps were cut short before it paid; then the deepest that
    /// paid in more than half of those. With the tick stopped, none that pays within a tick.
    fn deepest_reached(&self, table: &IdleTable, has_tick: bool) -> usize {
        let deepest = table.len();
        let cut_short: u32 = self.intercepts[..deepest].iter().sum();
        let early: u32 = self.hits[..deepest].iter().sum();
        // The counts of bins lose less to rounding than their total does.
        if 2 * cut_short <= self.total.wrapping_sub(early) {
            return deepest;
        }
        let (mut reached, mut suitable) = (0, deepest);
        for at in (0..deepest).rev() {
            let is_deep_enough = has_tick || residency(table, at) >= self.params.tick;
            reached += self.intercepts[at];
            if 2 * reached > cut_short {
                return if is_deep_enough { at } else { suitable };
            }
            if is_deep_enough {
                suitable = at;
            } else if suitable == deepest {
                break;
            }
        }
        deepest
    }
}

/// One bin for each state of a table, and polling before them.
pub(super) const BINS: usize = MAX_STATES + 1;

/// By the number of a bin; where that is polling the shallowest state.
pub(super) fn answer(state: usize, keep_tick: bool) -> Sleep {
    Sleep::State { index: CstateIndex(state.saturating_sub(1) as u8), keep_tick }
}

pub(super) fn residency(table: &IdleTable, state: usize) -> Duration {
    state.checked_sub(1).map_or(Duration::ZERO, |at| table.target_residency(at))
}

/// The bin of a length: its deepest state that pays.
pub(super) fn bin_of(table: &IdleTable, length: Duration) -> usize {
    deepest_within(table, table.len(), length)
}

/// `state`, or the deepest shallower one that pays in this length.
pub(super) fn deepest_within(table: &IdleTable, state: usize, length: Duration) -> usize {
    (0..=state).rev().find(|&at| residency(table, at) <= length).unwrap_or(0)
}

/// A sleep below this asks for no timer: the kernel's threshold of residencies \[K\].
pub(super) const SHORT: Duration = Duration::from_micros(15);

/// How long the CPU idled, if waking takes half of the worst case on average \[K\].
#[inline]
pub(super) fn idle_on_average(residency: Duration, exit_latency: Duration) -> Duration {
    let (residency, exit_latency) = (residency.as_nanos(), exit_latency.as_nanos());
    Duration::from_nanos(if residency >= exit_latency { residency - exit_latency / 2 } else { residency / 2 })
}

/// One sleep's addition to its count \[K\].
pub(super) const PULSE: u32 = 1024;
/// And the loss of each count at every sleep: an eighth \[K\].
pub(super) const DECAY_SHIFT: u32 = 3;

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::sandy_bridge;
    use super::*;
    use machine::{Cstate, CstateKind, CstateTable, Instant};
    use proptest::prelude::*;

    const US: fn(u64) -> Duration = Duration::from_micros;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// A governor, as the recorded decisions ask it.
    pub trait Governor {
        fn begin() -> Self;
        fn choose(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep;
        fn learn(&mut self, table: &IdleTable, woken: &Woken);
    }

    impl Governor for Teo {
        fn begin() -> Self {
            Self::new(TeoParams::default())
        }

        fn choose(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep {
            self.select(table, entry)
        }

        fn learn(&mut self, table: &IdleTable, woken: &Woken) {
            self.reflect(table, woken);
        }
    }

    /// A number of a line; -1 is none.
    fn ns(word: &str) -> Duration {
        word.parse().map_or(Duration::MAX, Duration::from_nanos)
    }

    fn table(words: &[&str]) -> IdleTable {
        let state = |word: &&str| {
            let (residency, exit) = word.split_once(':').unwrap();
            Cstate {
                name: String::new(),
                kind: CstateKind::Halting,
                exit_latency: ns(exit),
                true_exit_latency: None,
                entry_latency: None,
                target_residency: ns(residency),
                power: None,
            }
        };
        IdleTable::new(&CstateTable(words.iter().map(state).collect()))
    }

    /// It decides all that a kernel's own source decided (`scripts/teo-decisions`).
    pub fn decides_as<G: Governor>(recorded: &str) {
        let mut machine = None;
        let mut decided = 0;
        let mut selected = CstateIndex(0);
        for (line, text) in recorded.lines().enumerate() {
            let words: Vec<&str> = text.split(' ').collect();
            match (words[..].as_ref(), &mut machine) {
                (["table", states @ ..], _) => machine = Some((table(states), G::begin())),
                (["sleep", timer, tick, limit, state, keep], Some((table, governor))) => {
                    let (next_timer, next_tick, limit) = (ns(timer), ns(tick), ns(limit));
                    let entry = IdleEntry { now: Instant::ZERO, next_timer, next_tick, limit };
                    let Sleep::State { index, keep_tick } = governor.choose(table, &entry) else {
                        panic!("{text}")
                    };
                    let kernel: usize = state.parse().unwrap();
                    let as_kernel = (kernel.saturating_sub(1), *keep == "1");
                    assert_eq!((index.index(), keep_tick), as_kernel, "line {}: {text}", line + 1);
                    (decided, selected) = (decided + 1, index);
                }
                (["woke", residency, tick], Some((table, governor))) => {
                    let by = if *tick == "1" { WakeCause::Tick } else { WakeCause::Interrupt };
                    governor.learn(table, &Woken { selected, residency: ns(residency), by });
                }
                _ => panic!("line {}: {text}", line + 1),
            }
        }
        assert_eq!(decided, 1500);
    }

    #[test]
    fn it_decides_as_the_kernel_does() {
        decides_as::<Teo>(include_str!("../../testdata/teo-6.18.txt"));
    }

    /// Sleeps `idle` long, with half of the exit latency on top.
    fn sleep(teo: &mut Teo, table: &IdleTable, next_timer: Duration, idle: Duration) -> (usize, bool) {
        let entry = IdleEntry { now: Instant::ZERO, next_timer, next_tick: MS(4), limit: Duration::MAX };
        let Sleep::State { index, keep_tick } = teo.select(table, &entry) else { panic!("polls") };
        let residency = idle + table.exit_latency(index.index()) / 2;
        let by = if idle < next_timer { WakeCause::Interrupt } else { WakeCause::Timer };
        teo.reflect(table, &Woken { selected: index, residency, by });
        (index.index(), keep_tick)
    }

    #[test]
    fn intercepts_shift_shallower_and_timers_bring_it_back() {
        let (mut teo, table) = (Teo::new(TeoParams::default()), sandy_bridge());
        // The bin of a timer 10 ms away is C7's, as C6 pays no earlier.
        let seen: Vec<_> = (0..4).map(|_| sleep(&mut teo, &table, MS(10), MS(10)).0).collect();
        assert_eq!(seen, [3; 4]);
        assert_eq!(teo.hits[4], 1024 + 896 + 784 + 686);
        // Cut short after 200 us, in C3's bin: it takes three, 2704, to outweigh the rest of the
        // hits, 2273.
        let seen: Vec<_> = (0..4).map(|_| sleep(&mut teo, &table, MS(10), US(200)).0).collect();
        assert_eq!(seen, [3, 3, 3, 1]);
        assert_eq!((teo.hits[4], teo.intercepts[2]), (1989, 3390));
        let seen: Vec<_> = (0..8).map(|_| sleep(&mut teo, &table, MS(10), MS(10)).0).collect();
        assert_eq!(seen.last(), Some(&3), "{seen:?}");
    }

    proptest! {
        #[test]
        fn the_state_pays_until_the_timer(
            sleeps in prop::collection::vec((0_u64..2_000_000, 0_u64..2_000_000), 1..60),
        ) {
            let (mut teo, table) = (Teo::new(TeoParams::default()), sandy_bridge());
            for (timer, idle) in sleeps {
                let (timer, idle) = (Duration::from_nanos(timer), Duration::from_nanos(idle));
                let (state, _) = sleep(&mut teo, &table, timer, idle);
                prop_assert!(state == 0 || table.target_residency(state) <= timer);
            }
        }
    }
}
