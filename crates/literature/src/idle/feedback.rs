//! Feedback from premature wake-ups, around menu or TEO.
//!
//! **Problem.** A sleep shorter than its state's target residency costs latency and saves nothing,
//! yet nothing in menu counts how often that happens. Sleeps that scatter widely are the bad case:
//! the prediction is that of the timer, again and again.
//!
//! **Approach** (Tradeoffs paper, section III-C: "a feedback loop that curbs too aggressive sleep
//! (measured by the frequency of pre-mature wakeups)"; it prints no more of it, so the rule is ours
//! \[D\]). The governor's choice is limited by a *cap*. The share of premature sleeps is averaged
//! with a weight of 1/8. Above a quarter the cap goes to one state shallower than the one that was
//! just left too early; below 5 % for 32 sleeps it goes one deeper, to try again. Either way the
//! average then starts from zero, so that the new cap is judged by its own sleeps: the rest of the
//! old average would push it further at once.
//!
//! A capped sleep keeps the tick. The cap knows nothing of the sleep at hand; should that be a long
//! one, the tick ends it, and 32 ticks later the cap is one deeper. With the tick stopped, an idle
//! CPU would stay shallow for good.
//!
//! Invariants: the state is never deeper than the governor's own choice, nor than the cap;
//! the cap is in the table.

use super::{IdleEntry, IdleTable, Menu, MenuParams, Sleep, SleepStats, Teo, TeoParams, Woken};
use machine::{CstateIndex, Duration, Ratio};
use policy::check::Check;
use policy::registry::{Parameter, count, share};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedbackParams {
    pub curb_above: Ratio,
    pub relax_below: Ratio,
    pub relax_after: u32,
}

impl Check for FeedbackParams {
    const PARAMETERS: &'static [Parameter] = &[
        share("curb_above", "a larger share of premature sleeps lowers the cap").source("ours"),
        share("relax_below", "a smaller share is good").not_above("curb_above").source("ours"),
        count("relax_after", "sleeps in a row with a good share that raise the cap")
            .above_zero()
            .source("ours"),
    ];
}

impl Default for FeedbackParams {
    fn default() -> Self {
        Self { curb_above: Ratio::new(0.25), relax_below: Ratio::new(0.05), relax_after: 32 }
    }
}

/// The governor whose choice is capped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Inner {
    Menu(Menu),
    Teo(Teo),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Feedback {
    inner: Inner,
    curb_above: u32,
    relax_below: u32,
    relax_after: u32,
    /// Index of the deepest state that is allowed.
    cap: usize,
    /// The recent share of premature sleeps, in units of 1 / ALL.
    premature_share: u32,
    /// Sleeps since that share was last not good.
    good_sleeps: u32,
    /// The limit of the sleep at hand.
    limit: Duration,
    stats: SleepStats,
}

impl Feedback {
    /// Menu, capped; the cap starts at the deepest state of `table`.
    pub fn around_menu(menu: MenuParams, params: FeedbackParams, table: &IdleTable) -> Self {
        Self::new(Inner::Menu(Menu::new(menu)), params, table)
    }

    /// TEO, capped; the cap starts at the deepest state of `table`.
    pub fn around_teo(teo: TeoParams, params: FeedbackParams, table: &IdleTable) -> Self {
        Self::new(Inner::Teo(Teo::new(teo)), params, table)
    }

    fn new(inner: Inner, params: FeedbackParams, table: &IdleTable) -> Self {
        let share = |ratio: Ratio| (ratio.as_f64() * f64::from(ALL)) as u32;
        Self {
            inner,
            curb_above: share(params.curb_above),
            relax_below: share(params.relax_below),
            relax_after: params.relax_after,
            cap: table.deepest(),
            premature_share: 0,
            good_sleeps: 0,
            limit: Duration::MAX,
            stats: SleepStats::default(),
        }
    }

    /// The deepest state that is used at present.
    pub fn cap(&self) -> CstateIndex {
        CstateIndex(self.cap as u8)
    }

    /// How the sleeps went so far.
    pub fn stats(&self) -> SleepStats {
        self.stats
    }

    #[inline]
    pub(super) fn select(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep {
        self.limit = entry.limit;
        let choice = match &mut self.inner {
            Inner::Menu(menu) => menu.select(table, entry),
            Inner::Teo(teo) => teo.select(table, entry),
        };
        match choice {
            Sleep::State { index, .. } if index.index() > self.cap => {
                Sleep::State { index: self.cap(), keep_tick: entry.next_tick != Duration::MAX }
            }
            choice => choice,
        }
    }

    #[inline]
    pub(super) fn reflect(&mut self, table: &IdleTable, woken: &Woken) {
        match &mut self.inner {
            Inner::Menu(menu) => menu.reflect(table, woken),
            Inner::Teo(teo) => teo.reflect(table, woken),
        }
        self.stats.record(table, woken, self.limit);

        self.premature_share -= self.premature_share >> WEIGHT_SHIFT;
        if woken.is_premature(table) {
            self.premature_share += ALL >> WEIGHT_SHIFT;
        }
        self.good_sleeps = if self.premature_share < self.relax_below { self.good_sleeps + 1 } else { 0 };

        let selected = woken.selected.index();
        if self.premature_share > self.curb_above && selected > 0 {
            self.move_cap(selected - 1);
        } else if self.good_sleeps >= self.relax_after {
            self.move_cap(table.deepest().min(self.cap + 1));
        }
    }

    fn move_cap(&mut self, cap: usize) {
        self.cap = cap;
        self.premature_share = 0;
        self.good_sleeps = 0;
    }
}

/// A share of one, in fixed point.
const ALL: u32 = 1 << 16;
/// One sleep enters the share with a weight of 1/8 \[D\], the weight that menu and TEO give it.
const WEIGHT_SHIFT: u32 = 3;

#[cfg(test)]
mod tests {
    use super::super::tests::sandy_bridge;
    use super::super::{WakeCause, tests::any_table};
    use super::*;
    use machine::Instant;
    use proptest::prelude::*;

    const US: fn(u64) -> Duration = Duration::from_micros;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn feedback() -> Feedback {
        // Timers that are always far: TEO would choose the deepest state but for the intercepts.
        Feedback::around_teo(TeoParams::default(), FeedbackParams::default(), &sandy_bridge())
    }

    fn woken(selected: u8, idle: Duration) -> Woken {
        let residency = idle + sandy_bridge().exit_latency(usize::from(selected));
        Woken { selected: CstateIndex(selected), residency, by: WakeCause::Interrupt }
    }

    #[test]
    fn the_cap_goes_down_when_more_than_a_quarter_of_the_sleeps_are_premature() {
        let (mut feedback, table) = (feedback(), sandy_bridge());
        // Shares of 1/8, 15/64 and 169/512: the third is the first above a quarter.
        let caps: Vec<_> = (0..4)
            .map(|_| {
                feedback.reflect(&table, &woken(3, US(340)));
                feedback.cap().0
            })
            .collect();
        assert_eq!(caps, [3, 3, 2, 2]);
        // Below the state that was left too early, not below the cap.
        for _ in 0..2 {
            feedback.reflect(&table, &woken(1, US(100)));
        }
        assert_eq!(feedback.cap().0, 0);
        // And never out of the table.
        for _ in 0..20 {
            feedback.reflect(&table, &woken(0, Duration::from_nanos(900)));
        }
        assert_eq!(feedback.cap().0, 0);
    }

    #[test]
    fn the_cap_goes_up_after_32_good_sleeps() {
        let (mut feedback, table) = (feedback(), sandy_bridge());
        feedback.cap = 1;
        let caps: Vec<_> = (0..97)
            .map(|_| {
                feedback.reflect(&table, &woken(1, US(400)));
                feedback.cap().0
            })
            .collect();
        assert_eq!((caps[30], caps[31], caps[62], caps[63], caps[96]), (1, 2, 2, 3, 3));
        // One premature sleep weighs 1/8; its share is below 5 % after seven more, the seventh
        // being the first good one.
        feedback.cap = 1;
        feedback.reflect(&table, &woken(1, US(40)));
        let good = (1..).find(|_| {
            feedback.reflect(&table, &woken(1, US(400)));
            feedback.cap().0 == 2
        });
        assert_eq!(good, Some(6 + 32));
    }

    #[test]
    fn a_capped_sleep_keeps_the_tick() {
        let (mut feedback, table) = (feedback(), sandy_bridge());
        let entry = IdleEntry {
            now: Instant::ZERO,
            next_timer: Duration::MAX,
            next_tick: MS(3),
            limit: Duration::MAX,
        };
        assert_eq!(feedback.select(&table, &entry), Sleep::State { index: CstateIndex(3), keep_tick: false });
        feedback.cap = 1;
        assert_eq!(feedback.select(&table, &entry), Sleep::State { index: CstateIndex(1), keep_tick: true });
        let no_tick = IdleEntry { next_tick: Duration::MAX, ..entry };
        assert_eq!(
            feedback.select(&table, &no_tick),
            Sleep::State { index: CstateIndex(1), keep_tick: false }
        );
    }

    #[test]
    fn sleeps_are_counted_as_premature_or_too_shallow() {
        let (mut feedback, table) = (feedback(), sandy_bridge());
        let entry =
            IdleEntry { now: Instant::ZERO, next_timer: Duration::MAX, next_tick: MS(3), limit: US(104) };
        for (selected, idle_us) in [(2, 344), (2, 9000), (1, 344), (1, 345), (0, 105), (0, 106)] {
            feedback.select(&table, &entry);
            feedback.reflect(&table, &woken(selected, US(idle_us)));
        }
        assert_eq!(feedback.stats(), SleepStats { sleeps: 6, premature: 1, missed_deep: 2 });
    }

    proptest! {
        #[test]
        fn never_deeper_than_the_cap_or_the_governors_own_choice(
            table in any_table(),
            idles in prop::collection::vec(0_u64..1_000_000, 1..200),
        ) {
            let params = TeoParams::default();
            let mut feedback = Feedback::around_teo(params, FeedbackParams::default(), &table);
            let entry = IdleEntry {
                now: Instant::ZERO,
                next_timer: Duration::from_millis(50),
                next_tick: MS(4),
                limit: Duration::MAX,
            };
            for idle in idles {
                let Inner::Teo(mut own) = feedback.inner.clone() else { panic!("TEO it is") };
                let Sleep::State { index: own, .. } = own.select(&table, &entry) else { panic!("polls") };
                let cap = feedback.cap();
                let Sleep::State { index, .. } = feedback.select(&table, &entry) else { panic!("polls") };
                prop_assert!(index == own.min(cap) && cap.index() < table.len());
                let residency = Duration::from_nanos(idle);
                feedback.reflect(&table, &Woken { selected: index, residency, by: WakeCause::Interrupt });
            }
        }
    }
}
