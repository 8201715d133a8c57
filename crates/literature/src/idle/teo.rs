//! TEO: the idle governor that trusts timers until they are proved wrong.
//!
//! **Problem.** As menu's: the next timer is known, the next interrupt is not.
//!
//! **Approach.** No prediction of a length, only of a state. The residencies of the states cut time
//! into *bins*, one a state: the lengths for which it is the deepest that pays. A sleep whose
//! length fell into the bin of its timer is a *hit* of that bin: the timer could have been trusted.
//! A sleep cut short into a shallower bin is an *intercept* of that shallower bin. Both counts
//! decay by an eighth with every sleep.
//!
//! Choice starts with the deepest state. When sleeps that were cut short before it outweigh those
//! that reached it, it goes down to the deepest state that more than half of them reached. Then the
//! latency limit is applied, and then the timer: no state that does not pay until it is due.
//!
//! The tick is kept when the timer is due within a tick, or when intercepts within a tick dominate
//! and the state is not one that needs more than a tick: then an interrupt will come, and stopping
//! the tick is trouble for nothing.
//!
//! From Linux 6.18, `drivers/cpuidle/governors/teo.c` \[K\]; differences are in
//! `docs/journal/2026-11-20-idle-governors.md`.
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
    hits: [u32; MAX_STATES],
    /// By bin: sleeps that were cut short, where they ended.
    intercepts: [u32; MAX_STATES],
    /// All sleeps, decaying as the bins do.
    total: u32,
    /// Those of the intercepts that came within a tick.
    tick_intercepts: u32,
    /// The last selection's inputs.
    next_timer: Duration,
}

impl Teo {
    /// A governor that has seen nothing: it believes the timers.
    pub fn new(params: TeoParams) -> Self {
        Self {
            params,
            hits: [0; MAX_STATES],
            intercepts: [0; MAX_STATES],
            total: 0,
            tick_intercepts: 0,
            next_timer: Duration::ZERO,
        }
    }

    #[inline]
    pub(super) fn select(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep {
        self.next_timer = entry.next_timer;
        // Whatever the intercepts say: within the limit, and no deeper than pays until the timer.
        let useful = table.deepest_for(entry.next_timer, entry.limit);
        let mut state = self.deepest_reached(table).min(useful);

        let is_short = entry.next_timer < self.params.tick;
        let is_cut_short =
            table.target_residency(state) < self.params.tick && self.is_mostly_cut_within_a_tick();
        let keep_tick = entry.next_tick != Duration::MAX && (is_short || is_cut_short);
        if keep_tick {
            state = state.min(table.deepest_for(entry.next_tick, entry.limit));
        }
        Sleep::State { index: CstateIndex(state as u8), keep_tick }
    }

    #[inline]
    pub(super) fn reflect(&mut self, table: &IdleTable, woken: &Woken) {
        for counts in [&mut self.hits, &mut self.intercepts] {
            counts.iter_mut().for_each(|count| *count -= *count >> DECAY_SHIFT);
        }
        self.tick_intercepts -= self.tick_intercepts >> DECAY_SHIFT;
        self.total -= self.total >> DECAY_SHIFT;
        self.total += PULSE;

        let idle = match woken.by {
            // Without the tick it would have slept on.
            WakeCause::Tick if self.next_timer > self.params.tick => Duration::MAX,
            _ => idle_on_average(woken.residency, table.exit_latency(woken.selected.index())),
        };
        let timer_bin = table.deepest_for(self.next_timer, Duration::MAX);
        let bin = timer_bin.min(table.deepest_for(idle, Duration::MAX));
        if bin == timer_bin {
            self.hits[bin] += PULSE;
        } else {
            self.intercepts[bin] += PULSE;
            if idle <= self.params.tick {
                self.tick_intercepts += PULSE;
            }
        }
    }

    /// The deepest state, unless most sleeps were cut short before it paid; then the deepest that
    /// paid in more than half of those.
    fn deepest_reached(&self, table: &IdleTable) -> usize {
        let deepest = table.deepest();
        let cut_short: u32 = self.intercepts[..deepest].iter().sum();
        if cut_short <= self.hits[deepest] + self.intercepts[deepest] {
            return deepest;
        }
        let (mut state, mut ended_before) = (0, 0);
        for (at, &ended) in self.intercepts[..deepest].iter().enumerate() {
            state = if 2 * ended_before < cut_short { at } else { state };
            ended_before += ended;
        }
        state
    }

    /// More than five eighths of all sleeps, the recent ones weighing most \[K\].
    fn is_mostly_cut_within_a_tick(&self) -> bool {
        self.tick_intercepts > self.total / 2 + self.total / 8
    }
}

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
    use super::super::tests::{sandy_bridge, table};
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
        assert_eq!(teo.hits[3], 1024 + 896 + 784 + 686);
        // Cut short after 200 us, in C3's bin: it takes three, 2704, to outweigh the rest of the
        // hits, 2273.
        let seen: Vec<_> = (0..4).map(|_| sleep(&mut teo, &table, MS(10), US(200)).0).collect();
        assert_eq!(seen, [3, 3, 3, 1]);
        assert_eq!((teo.hits[3], teo.intercepts[1]), (1989, 3390));
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
    fn the_tick_is_kept_for_near_timers_and_for_frequent_interrupts() {
        let (mut teo, table) = (Teo::new(TeoParams::default()), sandy_bridge());
        assert_eq!(select(&mut teo, &table, &entry(MS(4))), (3, false));
        let just_below = Duration::from_nanos(3_999_999);
        assert_eq!(select(&mut teo, &table, &entry(just_below)), (3, true));
        let tick_is_near = IdleEntry { next_tick: US(344), ..entry(just_below) };
        assert_eq!(select(&mut teo, &table, &tick_is_near), (1, true));
        let no_tick = IdleEntry { next_tick: Duration::MAX, ..entry(just_below) };
        assert_eq!(select(&mut teo, &table, &no_tick), (3, false));

        sleep(&mut teo, &table, MS(100), MS(100));
        // 1024 of 1920, then 1920 of 2704: more than five eighths.
        let kept: Vec<_> = (0..3).map(|_| sleep(&mut teo, &table, MS(100), US(200)).1).collect();
        assert_eq!(kept, [false, false, true]);
    }

    #[test]
    fn a_state_of_many_ticks_stops_the_tick_however_many_interrupts_come() {
        let table = table(&[(1, 1), (80, 20_000), (90, 200_000)]);
        let mut teo = Teo::new(TeoParams::default());
        (teo.total, teo.tick_intercepts) = (4096, 4096);
        teo.intercepts[1] = 4096;
        assert_eq!(select(&mut teo, &table, &entry(MS(100))), (1, false));
        teo.intercepts = [0; MAX_STATES];
        teo.intercepts[0] = 4096;
        assert_eq!(select(&mut teo, &table, &entry(MS(100))), (0, true));
    }

    #[test]
    fn a_sleep_that_the_tick_ended_speaks_for_the_timer() {
        let (mut teo, table) = (Teo::new(TeoParams::default()), sandy_bridge());
        let woken = Woken { selected: CstateIndex(0), residency: US(20), by: WakeCause::Tick };
        select(&mut teo, &table, &entry(MS(100)));
        teo.reflect(&table, &woken);
        assert_eq!((teo.hits[3], teo.intercepts[0]), (1024, 0));
        select(&mut teo, &table, &entry(MS(3)));
        teo.reflect(&table, &woken);
        assert_eq!((teo.hits[3], teo.intercepts[0]), (896, 1024));
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
