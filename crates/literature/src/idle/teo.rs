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
        let idle = idle_on_average(woken.residency, exit_latency);
        // Without the tick it would have slept on.
        let sleeps_on = woken.by == WakeCause::Tick && self.next_timer > self.params.tick;
        if !sleeps_on && (woken.residency < exit_latency || idle < SHORT) {
            self.short += PULSE;
        }
        let idle = if sleeps_on { Duration::MAX } else { idle };
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
mod tests {
    use super::super::Governor;
    use super::super::tests::{decides_as, sandy_bridge, table};
    use super::*;
    use machine::Instant;
    use proptest::prelude::*;

    const US: fn(u64) -> Duration = Duration::from_micros;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn entry(next_timer: Duration) -> IdleEntry {
        IdleEntry { now: Instant::ZERO, next_timer, next_tick: MS(4), limit: Duration::MAX }
    }

    fn select(teo: &mut Teo, table: &IdleTable, entry: &IdleEntry) -> (usize, bool) {
        match teo.select(table, entry) {
            Sleep::State { index, keep_tick } => (index.index(), keep_tick),
            Sleep::Poll => panic!("polls"),
        }
    }

    /// Sleeps `idle` long, with half of the exit latency on top.
    fn sleep(teo: &mut Teo, table: &IdleTable, next_timer: Duration, idle: Duration) -> (usize, bool) {
        let (state, keep_tick) = select(teo, table, &entry(next_timer));
        let residency = idle + table.exit_latency(state) / 2;
        let by = if idle < next_timer { WakeCause::Interrupt } else { WakeCause::Timer };
        teo.reflect(table, &Woken { selected: CstateIndex(state as u8), residency, by });
        (state, keep_tick)
    }

    #[test]
    fn it_decides_as_the_kernel_does() {
        let teo = Governor::Teo(Teo::new(TeoParams::default()));
        decides_as(&teo, include_str!("../../testdata/teo-6.18.txt"));
    }

    #[test]
    fn a_new_governor_believes_the_timer() {
        let (mut teo, table) = (Teo::new(TeoParams::default()), sandy_bridge());
        for (timer, state) in [(US(105), 0), (US(106), 1), (US(344), 1), (US(345), 3), (Duration::MAX, 3)] {
            assert_eq!(select(&mut teo, &table, &entry(timer)).0, state, "{timer}");
        }
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
        // 5 us, in C1's bin: after three of them, C3 was reached in less than half of the short
        // sleeps, 2273 of 4977.
        let seen: Vec<_> = (0..6).map(|_| sleep(&mut teo, &table, MS(10), US(5)).0).collect();
        assert_eq!(seen, [1, 1, 1, 0, 0, 0]);
        let seen: Vec<_> = (0..8).map(|_| sleep(&mut teo, &table, MS(10), MS(10)).0).collect();
        assert_eq!(seen, [0, 0, 0, 0, 3, 3, 3, 3]);
    }

    #[test]
    fn limit_and_timer_cut_what_the_intercepts_allow() {
        let (mut teo, table) = (Teo::new(TeoParams::default()), sandy_bridge());
        let limited = |limit| IdleEntry { limit, ..entry(Duration::MAX) };
        assert_eq!(select(&mut teo, &table, &limited(US(108))).0, 2);
        assert_eq!(select(&mut teo, &table, &limited(US(103))).0, 1);
        assert_eq!(select(&mut teo, &table, &IdleEntry { limit: US(108), ..entry(US(344)) }).0, 1);
    }

    #[test]
    fn the_tick_is_kept_for_near_timers_and_where_most_intercepts_last_longer_than_one() {
        let (mut teo, table) = (Teo::new(TeoParams::default()), sandy_bridge());
        assert_eq!(select(&mut teo, &table, &entry(MS(4))), (3, false));
        let just_below = Duration::from_nanos(3_999_999);
        assert_eq!(select(&mut teo, &table, &entry(just_below)), (3, true));
        let tick_is_near = IdleEntry { next_tick: US(344), ..entry(just_below) };
        assert_eq!(select(&mut teo, &table, &tick_is_near), (1, true));
        let no_tick = IdleEntry { next_tick: Duration::MAX, ..entry(just_below) };
        assert_eq!(select(&mut teo, &table, &no_tick), (3, false));

        sleep(&mut teo, &table, MS(100), MS(100));
        // Intercepts within a tick do not count, as released.
        let kept: Vec<_> = (0..8).map(|_| sleep(&mut teo, &table, MS(100), US(200)).1).collect();
        assert_eq!(kept, [false; 8]);
        // Those beyond: 1024 of 1920, then 1920 of 2704, more than five eighths.
        let table = self::table(&[(1, 1), (80, 106), (90, 200_000)]);
        let mut teo = Teo::new(TeoParams::default());
        sleep(&mut teo, &table, MS(1000), MS(1000));
        let kept: Vec<_> = (0..3).map(|_| sleep(&mut teo, &table, MS(1000), MS(10)).1).collect();
        assert_eq!(kept, [false, false, true]);
    }

    #[test]
    fn a_state_of_many_ticks_stops_the_tick_however_many_interrupts_come() {
        let table = table(&[(1, 1), (80, 20_000), (90, 200_000)]);
        let mut teo = Teo::new(TeoParams::default());
        (teo.total, teo.tick_intercepts) = (4096, 4096);
        teo.intercepts[2] = 4096;
        assert_eq!(select(&mut teo, &table, &entry(MS(100))), (1, false));
        teo.intercepts = [0; BINS];
        teo.intercepts[1] = 4096;
        assert_eq!(select(&mut teo, &table, &entry(MS(100))), (0, true));
    }

    #[test]
    fn a_sleep_that_the_tick_ended_speaks_for_the_timer() {
        let (mut teo, table) = (Teo::new(TeoParams::default()), sandy_bridge());
        let woken = Woken { selected: CstateIndex(0), residency: US(20), by: WakeCause::Tick };
        select(&mut teo, &table, &entry(MS(100)));
        teo.reflect(&table, &woken);
        assert_eq!((teo.hits[4], teo.intercepts[1]), (1024, 0));
        select(&mut teo, &table, &entry(MS(3)));
        teo.reflect(&table, &woken);
        assert_eq!((teo.hits[4], teo.intercepts[1]), (896, 1024));
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
