//! menu: the idle governor of most Linux machines.
//!
//! **Problem.** When a CPU goes idle it knows when its next timer is due, but not when the next
//! interrupt comes.
//!
//! **Approach.** Two estimates, of which the shorter counts.
//!
//! - *The timer, corrected.* How much of the time to the next timer did sleeps really last? A
//!   running average of that share, the *correction factor*, is kept for each order of magnitude of
//!   the time to the timer.
//! - *The typical interval.* If the last eight sleeps, or all but one or two outliers, were of
//!   about the same length, the next will be too. Sleeps that scatter, as those of Poisson arrivals
//!   do, have no typical interval; then only the timer is left, and a network interrupt is nothing
//!   that a timer foretells.
//!
//! The state is the deepest that pays in the predicted time, within the latency limit. A sleep
//! predicted shorter than the scheduler's tick keeps the tick: should the prediction be wrong, the
//! tick wakes the CPU, and it may think again. Woken so, it notes a long sleep and not one that
//! ended with the tick.
//!
//! From Linux 6.18, `drivers/cpuidle/governors/menu.c` \[K\]; differences are in
//! `docs/journal/2026-11-20-idle-governors.md`. The Tradeoffs paper (section III-C) finds that menu
//! realises much of the possible gain; the Peafowl paper (4.3) calls it inaccurate for key-value
//! stores.
//!
//! Invariants: the prediction is never longer than the time to the next timer; a factor is
//! never above one; the state's exit latency is within the limit if that of any state is.

mod intervals;

use super::{IdleEntry, IdleTable, Sleep, WakeCause, Woken};
use intervals::{Intervals, MAX_INTERVAL_US};
use machine::{CstateIndex, Duration};
use policy::check::Check;
use policy::registry::{Parameter, time};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MenuParams {
    #[serde(with = "machine::duration_text")]
    pub tick: Duration,
}

impl Check for MenuParams {
    const PARAMETERS: &'static [Parameter] =
        &[time("tick", "a sleep predicted to be shorter keeps the tick")
            .above_zero()
            .given("the machine")
            .source("Linux, CONFIG_HZ=250")];
}

impl Default for MenuParams {
    fn default() -> Self {
        Self { tick: Duration::from_millis(4) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Menu {
    params: MenuParams,
    /// By decade of the time to the next timer, in units of 1 / UNITY.
    factors: [u32; DECADES],
    intervals: Intervals,
    /// The last selection's inputs, for learning from how the sleep went.
    next_timer: Duration,
    decade: usize,
}

impl Menu {
    /// A governor that has seen nothing: it believes the timers.
    pub fn new(params: MenuParams) -> Self {
        Self {
            params,
            factors: [UNITY; DECADES],
            intervals: Intervals::default(),
            next_timer: Duration::ZERO,
            decade: 0,
        }
    }

    #[inline]
    pub(super) fn select(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep {
        self.next_timer = entry.next_timer;
        self.decade = decade(entry.next_timer);
        let predicted = self.predicted();
        let mut state = table.deepest_for(predicted, entry.limit);

        let deeper = state + 1;
        let deeper_is_allowed = deeper < table.len() && table.exit_latency(deeper) <= entry.limit;
        // Long enough to stop the tick, but not for the next deeper state: then the question is
        // whether this state is a shallow one, in which the tick does no harm.
        let stays_shallow = deeper_is_allowed && predicted >= self.params.tick;
        let expected = if stays_shallow { table.target_residency(state) } else { predicted };
        let keep_tick = entry.next_tick != Duration::MAX && expected < self.params.tick;
        // A tick no earlier than the prediction changes nothing.
        if keep_tick && entry.next_tick < predicted {
            state = state.min(table.deepest_for(entry.next_tick, entry.limit));
        }
        Sleep::State { index: CstateIndex(state as u8), keep_tick }
    }

    #[inline]
    pub(super) fn reflect(&mut self, table: &IdleTable, woken: &Woken) {
        let idle = match woken.by {
            WakeCause::Tick if self.next_timer > self.params.tick => LONG_SLEEP,
            _ => woken.idle(table),
        };
        let idle = idle.min(self.next_timer).as_nanos();
        let factor = &mut self.factors[self.decade];
        *factor -= *factor >> DECAY_SHIFT;
        let next_timer = self.next_timer.as_nanos();
        let was_cut_short = idle < next_timer && idle < MAX_INTERESTING.as_nanos();
        let share =
            if was_cut_short { (idle << RESOLUTION_SHIFT) / next_timer } else { 1 << RESOLUTION_SHIFT };
        *factor += share as u32;
        self.intervals.note((idle / 1000).min(u64::from(MAX_INTERVAL_US)) as u32);
    }

    fn predicted(&self) -> Duration {
        let factor = u128::from(self.factors[self.decade]);
        let corrected = (u128::from(self.next_timer.as_nanos()) * factor) >> UNITY_SHIFT;
        let corrected = Duration::from_nanos(corrected as u64);
        self.intervals.typical().map_or(corrected, |typical| typical.min(corrected))
    }
}

/// Below 10 us, below 100 us, and so on; the last for 100 ms and more.
#[inline]
fn decade(length: Duration) -> usize {
    let bounds = [10, 100, 1_000, 10_000, 100_000].map(Duration::from_micros);
    bounds.iter().map(|&bound| usize::from(length >= bound)).sum()
}

/// Factors by decade \[K\].
const DECADES: usize = 6;
/// One sleep enters its factor with a weight of 1/8 \[K\].
const DECAY_SHIFT: u32 = 3;
/// The share that one sleep was of the time to its timer is counted in 1024ths \[K\].
const RESOLUTION_SHIFT: u32 = 10;
const UNITY_SHIFT: u32 = RESOLUTION_SHIFT + DECAY_SHIFT;
const UNITY: u32 = 1 << UNITY_SHIFT;
/// A sleep this long was predicted well, whatever was predicted \[K\].
const MAX_INTERESTING: Duration = Duration::from_millis(50);
/// The length that a sleep ended by the tick counts as \[K\]: nine tenths of the former.
const LONG_SLEEP: Duration = Duration::from_millis(45);
#[cfg(test)]
mod tests {
    use super::super::tests::{sandy_bridge, table};
    use super::*;
    use machine::Instant;
    use proptest::prelude::*;

    const US: fn(u64) -> Duration = Duration::from_micros;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn entry(next_timer: Duration) -> IdleEntry {
        IdleEntry { now: Instant::ZERO, next_timer, next_tick: MS(4), limit: Duration::MAX }
    }

    /// Sleeps `idle` long, with the exit latency on top, and is woken by an interrupt.
    fn sleep(menu: &mut Menu, table: &IdleTable, next_timer: Duration, idle: Duration) -> (usize, bool) {
        let Sleep::State { index, keep_tick } = menu.select(table, &entry(next_timer)) else {
            panic!("polls");
        };
        let residency = idle + table.exit_latency(index.index());
        menu.reflect(table, &Woken { selected: index, residency, by: WakeCause::Interrupt });
        (index.index(), keep_tick)
    }

    fn noted(lengths_us: &[u32]) -> Intervals {
        let mut intervals = Intervals::default();
        lengths_us.iter().for_each(|&us| intervals.note(us));
        intervals
    }

    #[test]
    fn timers_that_are_met_leave_the_factor_at_unity() {
        let (mut menu, table) = (Menu::new(MenuParams::default()), sandy_bridge());
        for next_timer in [US(400), MS(2), MS(30), MS(70), MS(300), US(400)] {
            sleep(&mut menu, &table, next_timer, next_timer);
        }
        assert_eq!(menu.factors, [UNITY; DECADES]);
        // Nor does an exit that takes longer than advertised lift it above.
        sleep(&mut menu, &table, MS(2), MS(3));
        assert_eq!(menu.factors, [UNITY; DECADES]);
    }

    #[test]
    fn half_of_the_time_to_the_timer_moves_its_factor_by_a_sixteenth() {
        let (mut menu, table) = (Menu::new(MenuParams::default()), sandy_bridge());
        sleep(&mut menu, &table, MS(2), MS(1));
        assert_eq!(menu.factors[3], 8192 - 1024 + 512);
        menu.select(&table, &entry(MS(2)));
        // 2 ms * 7680 / 8192; one interval and seven zeros are not typical.
        assert_eq!(menu.predicted(), US(1875));
        sleep(&mut menu, &table, MS(2), MS(1));
        assert_eq!(menu.factors, [8192, 8192, 8192, 7680 - 960 + 512, 8192, 8192]);
    }

    #[test]
    fn repeated_short_sleeps_pick_the_state_that_fits() {
        let (mut menu, table) = (Menu::new(MenuParams::default()), sandy_bridge());
        for _ in 0..16 {
            sleep(&mut menu, &table, Duration::MAX, US(50));
        }
        assert_eq!(sleep(&mut menu, &table, Duration::MAX, US(50)), (0, true));
        assert_eq!(menu.predicted(), US(50));
        for _ in 0..8 {
            sleep(&mut menu, &table, Duration::MAX, US(200));
        }
        assert_eq!(sleep(&mut menu, &table, Duration::MAX, US(200)), (1, true));
    }

    #[test]
    fn the_tick_is_kept_exactly_while_less_than_a_tick_is_predicted() {
        let table = sandy_bridge();
        let select = |next_timer, next_tick| {
            Menu::new(MenuParams::default()).select(&table, &IdleEntry { next_tick, ..entry(next_timer) })
        };
        let (c3, c7) = (CstateIndex(1), CstateIndex(3));
        let just_below = Duration::from_nanos(3_999_999);
        assert_eq!(select(just_below, MS(4)), Sleep::State { index: c7, keep_tick: true });
        assert_eq!(select(MS(4), MS(4)), Sleep::State { index: c7, keep_tick: false });
        // The tick that is kept comes soon: then no deeper than the state that pays until then.
        assert_eq!(select(just_below, US(344)), Sleep::State { index: c3, keep_tick: true });
        assert_eq!(select(MS(4), US(344)), Sleep::State { index: c7, keep_tick: false });
        assert_eq!(select(US(400), Duration::MAX), Sleep::State { index: c7, keep_tick: false });
    }

    #[test]
    fn a_shallow_state_keeps_the_tick_where_only_a_state_of_many_ticks_lies_below() {
        let table = table(&[(1, 1), (80, 20_000)]);
        let mut menu = Menu::new(MenuParams::default());
        let kept = Sleep::State { index: CstateIndex(0), keep_tick: true };
        assert_eq!(menu.select(&table, &entry(MS(10))), kept);
        let stopped = Sleep::State { index: CstateIndex(0), keep_tick: false };
        assert_eq!(menu.select(&table, &IdleEntry { limit: US(10), ..entry(MS(10)) }), stopped);
    }

    #[test]
    fn a_sleep_that_the_tick_ended_counts_as_long() {
        let (mut menu, table) = (Menu::new(MenuParams::default()), sandy_bridge());
        let woken = |by| Woken { selected: CstateIndex(0), residency: MS(1), by };
        menu.select(&table, &entry(MS(90)));
        menu.reflect(&table, &woken(WakeCause::Tick));
        assert_eq!(menu.intervals, noted(&[45_000]));
        assert_eq!(menu.factors[4], 8192 - 1024 + 512);
        // Unless a timer was due within a tick anyway.
        menu.select(&table, &entry(MS(2)));
        menu.reflect(&table, &woken(WakeCause::Tick));
        assert_eq!(menu.intervals, noted(&[45_000, 999]));
    }

    fn any_length() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (0_u64..1 << 36).prop_map(Duration::from_nanos),
            (0_u64..500_000).prop_map(Duration::from_nanos),
            Just(Duration::MAX),
        ]
    }

    proptest! {
        #[test]
        fn it_never_predicts_beyond_the_next_timer(
            sleeps in prop::collection::vec((any_length(), any_length(), any::<bool>()), 1..60),
        ) {
            let (mut menu, table) = (Menu::new(MenuParams::default()), sandy_bridge());
            for (next_timer, residency, tick) in sleeps {
                let Sleep::State { index, .. } = menu.select(&table, &entry(next_timer)) else {
                    panic!("polls");
                };
                prop_assert!(menu.predicted() <= next_timer);
                let by = if tick { WakeCause::Tick } else { WakeCause::Timer };
                menu.reflect(&table, &Woken { selected: index, residency, by });
                prop_assert!(menu.factors.iter().all(|&factor| factor <= UNITY));
            }
        }
    }
}
