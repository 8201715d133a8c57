//! TEO as Linux 7.0 has it.
//!
//! **Problem.** As [`super::Teo`]'s: the next timer is known, the next interrupt is not.
//!
//! **Changes since 6.18.** Linux 7.0 counts a sleep as a *hit* only if it lasted until its timer, to half of
//! the exit latency, and not wherever both fall into one bin. The search after intercepts goes at
//! least as shallow as the bin with most of them. Sleeps that the tick ends speak for the deepest
//! state if they dominate (two thirds), and for the timer's bin while few intercepts come within a tick.
//! Intercepts keep the tick from two thirds on (five eighths before). Where most sleeps are shorter than
//! 15 us, or the limit is below 7.5 us, the timer is not asked and counts as infinite. With the tick
//! stopped and the timer more than two ticks away, the deepest state within both is taken. Small counts
//! decay to zero.
//!
//! Terms: as in [`super::Teo`]. *State 0* is polling, which all machines of x86 have before their
//! first state that halts; it has a bin, and no place in an [`IdleTable`]. Where the kernel polls, this
//! governor takes the first state and keeps the tick, as the kernel does: its polling ends after
//! microseconds.
//!
//! Source: Linux 7.2, `drivers/cpuidle/governors/teo.c` \[K\]. Its own decisions on 1,500 made-up sleeps
//! are in `testdata/teo-7.2.txt` (`scripts/teo-decisions`), and all are decided alike.
//!
//! Invariants: as [`super::Teo`]'s, but that with the tick stopped only the deepest state within the
//! timer is promised to pay.

use super::teo::{
    BINS, DECAY_SHIFT, PULSE, SHORT, answer, bin_of, deepest_within, idle_on_average, residency,
};
use super::{IdleEntry, IdleTable, Sleep, TeoParams, WakeCause, Woken};
use machine::Duration;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Teo7 {
    params: TeoParams,
    /// By bin: sleeps that lasted until their timer.
    hits: [u32; BINS],
    /// By bin: sleeps that were cut short, where they ended.
    intercepts: [u32; BINS],
    total: u32,
    /// Sleeps that the scheduler's tick ended.
    ticks: u32,
    /// Those of the intercepts that came within a tick.
    tick_intercepts: u32,
    short: u32,
    /// Until the next timer, at the last selection; infinite where it was not asked for.
    next_timer: Duration,
}

impl Teo7 {
    /// A governor that has seen nothing: it believes the timers.
    pub fn new(params: TeoParams) -> Self {
        Self {
            params,
            hits: [0; BINS],
            intercepts: [0; BINS],
            total: 0,
            ticks: 0,
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
        let mut state = self.deepest_reached(table).min(allowed);
        let is_short = 2 * self.short >= self.total || entry.limit < SHORT / 2;
        if has_tick && residency(table, state) < SHORT && is_short {
            return answer(state, true);
        }
        self.next_timer = entry.next_timer;
        if !has_tick && entry.next_timer > tick * 2 && residency(table, state) < tick {
            let pays = |&deeper: &usize| residency(table, deeper) <= entry.next_timer;
            return answer((state + 1..=allowed).rev().find(pays).unwrap_or(state), false);
        }
        if state == 0 {
            return answer(0, has_tick);
        }
        state = deepest_within(table, state, entry.next_timer);
        let is_cut_short = residency(table, state) < tick && 3 * self.tick_intercepts >= 2 * self.total;
        let stops = state > 0 && entry.next_timer >= tick && !is_cut_short;
        if stops || !has_tick {
            return answer(state, false);
        }
        answer(deepest_within(table, state, entry.next_timer.min(entry.next_tick)), true)
    }

    #[inline]
    pub(super) fn reflect(&mut self, table: &IdleTable, woken: &Woken) {
        let exit_latency = table.exit_latency(woken.selected.index());
        let idle = idle_on_average(woken.residency, exit_latency);
        decay(&mut self.short);
        if woken.residency < exit_latency || idle < SHORT {
            self.short += PULSE;
        }
        let before: u32 = [&mut self.hits, &mut self.intercepts]
            .into_iter()
            .flat_map(|counts| counts.iter_mut())
            .map(decay)
            .sum();
        self.total = before + PULSE;
        decay(&mut self.tick_intercepts);
        decay(&mut self.ticks);

        let timer_bin = bin_of(table, self.next_timer);
        if woken.by == WakeCause::Tick {
            self.ticks += PULSE;
            if 3 * self.ticks > 2 * self.total {
                self.hits[table.len()] += PULSE;
                return;
            }
            // An intercept that was expected did not come.
            if 3 * self.tick_intercepts < 2 * before {
                self.hits[timer_bin] += PULSE;
                return;
            }
        }
        let bin = timer_bin.min(bin_of(table, idle));
        let is_on_time = self.next_timer < idle + exit_latency / 2;
        if bin == timer_bin && is_on_time {
            self.hits[bin] += PULSE;
        } else {
            self.intercepts[bin] += PULSE;
            if idle <= self.params.tick {
                self.tick_intercepts += PULSE;
            }
        }
    }

    /// The deepest state, unless most sleeps were cut short before it paid; then the deepest that paid
    /// in more than half of those, and none deeper than the bin with most of them.
    fn deepest_reached(&self, table: &IdleTable) -> usize {
        let deepest = table.len();
        let shallower = &self.intercepts[..deepest];
        let cut_short: u32 = shallower.iter().sum();
        let early: u32 = self.hits[..deepest].iter().sum();
        if 2 * cut_short <= self.total - early {
            return deepest;
        }
        let most = shallower.iter().max().expect("a bin");
        let fullest = shallower.iter().rposition(|count| count == most).expect("the bin");
        let mut reached = 0;
        for (at, count) in shallower.iter().enumerate().rev() {
            reached += count;
            if 2 * reached > cut_short && at <= fullest {
                return at;
            }
        }
        0
    }
}

/// The loss of a sleep; the count that is left.
fn decay(count: &mut u32) -> u32 {
    let loss = *count >> DECAY_SHIFT;
    *count = if loss > 0 { *count - loss } else { 0 };
    *count
}

#[cfg(test)]
mod tests {
    use super::super::Governor;
    use super::super::tests::decides_as;
    use super::*;

    #[test]
    fn it_decides_as_the_kernel_does() {
        let teo = Governor::Teo7(Teo7::new(TeoParams::default()));
        decides_as(&teo, include_str!("../../testdata/teo-7.2.txt"));
    }
}
