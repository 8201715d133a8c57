//! schedutil: the kernel's governor that follows the scheduler's own measure of how much a core has
//! to do.
//!
//! The measure is *utilisation* (PELT, `kernel/sched/pelt.c`): the share of time that the core
//! executed, averaged with weights that halve every 32 ms into the past. It is made
//! *frequency-invariant*: time at a share s of full speed counts as s times as much, followed, as
//! soon as the core falls idle, by the idle time that full speed would have left. So the same work
//! gives the same utilisation in any operating point, and a core that is never idle comes to 1 in
//! every operating point, only later in a slow one.
//!
//! The clock asked for is 1.25 * utilisation * f_max, rounded up to an operating point
//! (`get_next_freq`): a core is meant to be 80 % busy. Two more rules of the kernel: no change
//! sooner than a limit after the last, and nothing slower unless the core was idle since it was
//! last looked at (`sugov_hold_freq`). And as the average fades while a task sleeps, the scheduler
//! remembers its value from before for the time when the task runs again (`util_est`); here all
//! that runs on the core is one task, which is exact for a worker pinned to its core.
//!
//! Invariants: utilisation is within 0 and 1, and does not depend on how often a driver
//! asked.
//!
//! How it behaves. From idle to the fastest operating point (utilisation 0.8) takes 2.3 half-lives,
//! 76 ms at full speed and 1 / s times that in operating point s: for requests of a millisecond it
//! is a slow average of load, blind to each of them. With short periods of work it is stable by
//! construction, since utilisation does not depend on the operating point chosen.
//!
//! Not here: real-time and deadline tasks (which ask for the fastest operating point), the boost
//! after waiting for I/O, clamps (`uclamp`), and the rounding of time to units of 1024 ns and 1024
//! us.

mod pelt;
mod server;

pub use server::PerCpu;

use super::{PointIndex, PointTable};
use machine::{Duration, Instant};
use pelt::Utilisation;
use policy::check::Check;
use policy::kind::Make;
use policy::registry::{Entry, Parameter, Question, Word, flag, number, settings, time};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("schedutil", "Linux's: by the scheduler's average", |_| settings(Params::default()))],
    question: Question::Frequency,
    help: "Follows the scheduler's own average of how much a core has to do, with a headroom that keeps the \
           core 80 % busy.",
    origin: "Linux 6.9",
    make: Make::Frequency(|making| Box::new(PerCpu::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub half_life: Duration,
    pub headroom: f64,
    #[serde(with = "machine::duration_text")]
    pub rate_limit: Duration,
    #[serde(with = "machine::duration_text")]
    pub tick: Duration,
    pub util_est: bool,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("half_life", "after so long the past counts by half")
            .above_zero()
            .source("Linux: 32 periods of 1024 us"),
        number("headroom", "speed asked for per utilisation").above_zero().source("Linux"),
        time("rate_limit", "no change sooner than this after the last")
            .source("Linux 6.9; 10 ms before, 0.5 ms under passive intel_pstate"),
        time("tick", "time between two looks at a core that executes")
            .above_zero()
            .source("Linux, CONFIG_HZ=250"),
        flag("util_est", "a task that wakes counts as much as before it slept").source("Linux"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            half_life: Duration::from_micros(32_768),
            headroom: 1.25,
            rate_limit: Duration::from_millis(2),
            tick: Duration::from_millis(4),
            util_est: true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedutil {
    params: Params,
    core: Utilisation,
    /// `util_est`: the value of the core when it last fell idle, smoothed downwards.
    estimate: f64,
    asked: Option<(PointIndex, Instant)>,
    /// Since the last look that was not too soon.
    idled: bool,
}

impl Schedutil {
    /// An idle core without a past.
    pub fn new(params: Params) -> Self {
        let core = Utilisation::new(params.half_life);
        Self { params, core, estimate: 0.0, asked: None, idled: true }
    }

    /// How often to call [`handle_change`](Self::handle_change) with nothing changed, while the
    /// core executes. A call within the rate limit is lost, and this makes up for it.
    pub fn period(&self) -> Duration {
        self.params.tick
    }

    /// Utilisation at the last call.
    pub fn utilisation(&self) -> f64 {
        self.core.value
    }

    /// From `now` on the core executes or not, at `speed` (a share of the nominal clock); nothing
    /// may have changed, as at a tick. The operating point to change to, if any.
    pub fn handle_change(
        &mut self,
        now: Instant,
        points: &PointTable,
        running: bool,
        speed: f64,
    ) -> Option<PointIndex> {
        self.core.advance(now);
        if self.core.running && !running {
            self.remember();
        }
        let point = self.look(now, points, running);
        self.core.set(running, speed);
        self.idled |= !running;
        point
    }

    fn look(&mut self, now: Instant, points: &PointTable, running: bool) -> Option<PointIndex> {
        if self.asked.is_some_and(|(_, at)| now.since(at) < self.params.rate_limit) {
            return None;
        }
        let expected = if running && self.params.util_est { self.estimate } else { 0.0 };
        let wanted = points.at_least_speed(self.params.headroom * self.core.value.max(expected));
        let idled = std::mem::take(&mut self.idled);
        if self.asked.is_some_and(|(asked, _)| wanted == asked || (wanted < asked && !idled)) {
            return None;
        }
        self.asked = Some((wanted, now));
        Some(wanted)
    }

    /// The task sleeps: its estimate rises at once and falls by quarters, but not for a difference
    /// of 1 % (`util_est_update`).
    fn remember(&mut self) {
        const WEIGHT: f64 = 0.25;
        const MARGIN: f64 = 0.01;
        let excess = self.estimate - self.core.value;
        if excess <= 0.0 {
            self.estimate = self.core.value;
        } else if excess >= MARGIN {
            self.estimate -= WEIGHT * excess;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::{nine_points, points_at};
    use proptest::prelude::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    const HALF_LIFE_US: u64 = 32_768;

    #[test]
    fn utilisation_halves_its_distance_every_half_life() {
        let points = nine_points();
        let mut governor = Schedutil::new(Params::default());
        governor.handle_change(at(0), &points, true, 1.0);
        for (half_lives, expected) in [(1, 0.5), (2, 0.75), (3, 0.875)] {
            governor.handle_change(at(HALF_LIFE_US * half_lives), &points, half_lives < 3, 1.0);
            assert!((governor.utilisation() - expected).abs() < 1e-12, "{half_lives}");
        }
        governor.handle_change(at(HALF_LIFE_US * 5), &points, false, 1.0);
        assert!((governor.utilisation() - 0.875 / 4.0).abs() < 1e-12);
    }

    #[test]
    fn the_point_has_a_quarter_more_speed_than_is_used() {
        let points = nine_points();
        let mut governor = Schedutil::new(Params::default());
        assert_eq!(governor.handle_change(at(0), &points, true, 1.0), Some(PointIndex(0)));
        // After one half-life 0.5 * 1.25 * 2.6 GHz = 1.625 GHz; after two 0.75 gives 2.44, after
        // three the fastest.
        for (half_lives, point) in [(1, 4), (2, 8)] {
            let asked = governor.handle_change(at(HALF_LIFE_US * half_lives), &points, true, 1.0);
            assert_eq!(asked, Some(PointIndex(point)), "{half_lives}");
        }
        assert_eq!(governor.handle_change(at(HALF_LIFE_US * 3), &points, true, 1.0), None);
    }

    #[test]
    fn no_change_comes_within_the_rate_limit() {
        let points = points_at(&[100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000]);
        let mut governor =
            Schedutil::new(Params { half_life: Duration::from_millis(1), ..Params::default() });
        assert!(governor.handle_change(at(0), &points, true, 1.0).is_some());
        assert_eq!(governor.handle_change(at(1_999), &points, true, 1.0), None);
        assert_eq!(governor.handle_change(at(2_000), &points, true, 1.0), Some(PointIndex(9)));
    }

    #[test]
    fn nothing_slower_before_the_core_was_idle() {
        let points = nine_points();
        let mut governor = Schedutil::new(Params::default());
        governor.handle_change(at(0), &points, true, 1.0);
        assert_eq!(governor.handle_change(at(90_000), &points, true, 1.0), Some(PointIndex(8)));
        governor.handle_change(at(100_000), &points, false, 1.0);
        assert_eq!(governor.handle_change(at(200_000), &points, true, 1.0), None);
        // Falling idle, when the estimate no longer counts: it has executed ever since the last
        // look.
        assert_eq!(governor.handle_change(at(201_000), &points, false, 1.0), None);
        assert!(governor.utilisation() < 0.2);
        assert_eq!(governor.handle_change(at(210_000), &points, false, 1.0), Some(PointIndex(0)));
    }

    #[test]
    fn a_task_that_wakes_counts_as_much_as_before() {
        let points = nine_points();
        let mut governor = Schedutil::new(Params::default());
        governor.handle_change(at(0), &points, true, 1.0);
        governor.handle_change(at(90_000), &points, false, 1.0);
        let ran = governor.utilisation();
        assert_eq!(governor.handle_change(at(200_000), &points, true, 1.0), None, "0.85 as before");
        assert!(governor.utilisation() < 0.1 * ran);
        // A second, short run is remembered by a quarter of the difference.
        governor.handle_change(at(201_000), &points, false, 1.0);
        let short = governor.utilisation();
        assert!((governor.estimate - (0.75 * ran + 0.25 * short)).abs() < 1e-12);
    }

    #[test]
    fn a_core_that_is_never_idle_is_full_in_every_point() {
        let points = nine_points();
        for speed in [0.2, 0.5, 1.0] {
            let mut governor = Schedutil::new(Params::default());
            governor.handle_change(at(0), &points, true, speed);
            governor.handle_change(at(2_000_000), &points, true, speed);
            assert!(governor.utilisation() > Utilisation::FULL, "{speed}");
            // And falling idle takes nothing from it at once.
            governor.handle_change(at(2_000_000), &points, false, speed);
            assert!(governor.utilisation() > Utilisation::FULL, "{speed}");
        }
    }

    #[test]
    fn time_that_runs_backwards_changes_nothing() {
        let points = nine_points();
        let mut governor = Schedutil::new(Params::default());
        governor.handle_change(at(0), &points, true, 1.0);
        governor.handle_change(at(50_000), &points, true, 1.0);
        let before = governor.clone();
        assert_eq!(governor.handle_change(at(40_000), &points, true, 1.0), None);
        assert_eq!(governor, before);
    }

    /// Utilisation at the end of each of `cycles` periods that begin with work of `work_us` at full
    /// speed, in an operating point of `speed`.
    fn cycles(governor: &mut Schedutil, cycles: u64, period_us: u64, work_us: u64, speed: f64) -> f64 {
        let points = nine_points();
        let busy_us = (work_us as f64 / speed) as u64;
        for cycle in 0..cycles {
            governor.handle_change(at(cycle * period_us), &points, true, speed);
            governor.handle_change(at(cycle * period_us + busy_us), &points, false, speed);
        }
        governor.handle_change(at(cycles * period_us), &points, false, speed);
        governor.utilisation()
    }

    proptest! {
        #[test]
        fn utilisation_converges_to_the_running_share(work_us in 100_u64..1_900, speed in 0.5..1.0_f64) {
            // Periods of 4 ms, in which it swings by less than 4 %; at half speed too, since that
            // is the time at full speed.
            let mut governor = Schedutil::new(Params::default());
            let share = work_us as f64 / 4_000.0;
            let utilisation = cycles(&mut governor, 200, 4_000, work_us, speed);
            prop_assert!((utilisation - share).abs() < 0.04, "{utilisation} for {share}");
        }

        #[test]
        fn utilisation_is_the_same_in_every_point(work_us in 100_u64..1_900, eighths in 4_u64..8) {
            // Work of whole multiples, so that the busy time at this speed is a whole number of
            // microseconds.
            let speed = eighths as f64 / 8.0;
            let work_us = work_us / eighths * eighths;
            let slow = cycles(&mut Schedutil::new(Params::default()), 50, 4_000, work_us, speed);
            let fast = cycles(&mut Schedutil::new(Params::default()), 50, 4_000, work_us, 1.0);
            prop_assert!((slow - fast).abs() < 1e-9, "{slow} {fast}");
        }

        #[test]
        fn utilisation_is_a_share_and_asking_does_not_change_it(
            changes in prop::collection::vec((0_u64..100_000, any::<bool>(), 0.0..1.5_f64), 1..40),
            ticks in 1_u64..5,
        ) {
            let points = nine_points();
            let (mut seldom, mut often) = (Schedutil::new(Params::default()), Schedutil::new(Params::default()));
            let (mut now, mut state) = (0, (false, 1.0));
            for (after, running, speed) in changes {
                for tick in 1..ticks {
                    often.handle_change(at(now + after * tick / ticks), &points, state.0, state.1);
                }
                now += after;
                state = (running, speed);
                for governor in [&mut seldom, &mut often] {
                    if let Some(point) = governor.handle_change(at(now), &points, running, speed) {
                        prop_assert!(point.index() < points.count());
                    }
                }
                prop_assert!((0.0..=1.0).contains(&seldom.utilisation()));
                prop_assert!((seldom.utilisation() - often.utilisation()).abs() < 1e-9);
            }
        }
    }
}
