//! Sensitivity DVFS: as slow as costs no more than a given share of the core's own progress
//! (Tradeoffs, section IV-B).
//!
//! Utilisation says nothing about how much a program minds a slow clock; how much of its time it
//! waits for memory does. The *sensitivity* s = (dIPS / IPS) / (df / f) is measured: 1 for work
//! that only computes, 0 for work that only waits. Each core takes, every step of 1 ms, the lowest
//! operating point whose predicted *loss* of instructions per second (IPS) is within the *slack*: 0
//! is the paper's zero tolerance, 20 % its relaxed setting.
//!
//! **Slack does not compound.** Every prediction is against the fastest operating point: loss = s
//! (f_max - f) / f_max. Against the operating point in effect, 20 % would be given away again at
//! every step, down to the slowest operating point. (The paper does not say; this is our reading.)
//!
//! **The model.** The line through two measured points (f, IPS) is the paper's, [`Model::Linear`].
//! IPS is concave in f: a line between the slowest and the fastest operating point overstates every
//! loss between them, a line through two fast operating points understates that of a slow one. For
//! work that computes for a part of its time and waits for the rest, 1 / IPS is exactly linear in 1
//! / f; so have it Hsu and Feng, as the paper cites: [`Model::Stalls`], the default.
//!
//! **Freshness.** A sample is taken from every two busy steps in succession whose speeds lie at
//! least `min_change` of the table's range apart; the difference of neighbours does not see slow
//! changes of the work. The model is stale when `stale_after` busy steps brought no sample. Then,
//! and at the start, the core is *perturbed* (the paper's footnote 7): one step in the slowest
//! operating point, one in the fastest. If the core is idle meanwhile, the next try is when the
//! model is stale again. So the price is bounded: one step of `stale_after` in the slowest
//! operating point.
//!
//! Invariants: without a sample the operating point is the fastest; with one, its predicted loss is
//! within the slack and the next slower operating point's is not, except while perturbing.
//!
//! Where it fails. A sample believes that two neighbouring steps did the same work. Work that
//! differs from step to step makes the sensitivity wander, to both sides of the truth; see the
//! journal for how far. In between it is insensitive: a change of the work is seen when the next
//! sample is taken, up to `stale_after` busy steps later. The price of a perturbation is highest
//! where the slowest operating point is very slow: at 0.38 of the nominal clock 0.6 % of the
//! throughput of pure computing, and up to 1.6 ms for a request that meets it.
//!
//! Hyperthreads share a clock: the driver keeps one policy for a physical core, adds the
//! instructions of its threads, and counts as busy the time in which any of them executed.

mod model;
mod params;
#[cfg(test)]
mod properties;
mod server;

pub use model::Model;
pub use params::Params;
pub use server::PerCore;

use super::{PointIndex, PointTable};
use crate::kind::Make;
use crate::registry::{Entry, Maturity, Question, Runs, Word, settings};
use machine::Duration;
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[
        Word::new("sensitivity", "as slow as each core's work hardly notices", |_| {
            settings(Params::default())
        }),
        Word::new("sensitivity-paper", "the same with the paper's linear model", |_| {
            settings(Params::paper())
        }),
    ],
    question: Question::Frequency,
    help: "Each core takes, step by step, the lowest frequency whose predicted loss of instructions per \
           second stays within the slack. How much a core's work minds a slow clock is measured while it \
           runs.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "Tradeoffs, section IV-B",
    make: Make::Frequency(|making| Box::new(PerCore::new(making))),
    ..Entry::of::<Params>()
};

/// The work of a core in one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Instructions executed, or work done in any other unit that stays the same.
    pub instructions: f64,
    /// The speed it executed at (a share of the nominal clock): that of the operating point in
    /// effect, averaged over busy time.
    pub speed: f64,
    pub busy: Duration,
}

/// A busy step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    speed: f64,
    ips: f64,
}

impl Point {
    fn is_sensible(self) -> bool {
        [self.speed, self.ips].into_iter().all(|value| value > 0.0 && value.is_finite())
    }
}

/// The policy of one physical core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    params: Params,
    sensitivity: Option<f64>,
    last: Option<Point>,
    /// Busy steps since the last sample or perturbation.
    without_sample: u32,
    /// The step that is under way is in the slowest operating point, to see its effect; the next
    /// will be in the fastest.
    at_slowest: bool,
}

impl Sensitivity {
    pub fn new(params: Params) -> Self {
        Self { params, sensitivity: None, last: None, without_sample: params.stale_after, at_slowest: false }
    }

    /// Time between two calls of [`handle_step`](Self::handle_step).
    pub fn period(&self) -> Duration {
        self.params.step
    }

    /// The sensitivity at the nominal clock, between 0 and 1; `None` as long as the speed has never
    /// changed.
    pub fn sensitivity(&self) -> Option<f64> {
        self.sensitivity.map(|measured| measured.clamp(0.0, 1.0))
    }

    /// A step is over: the operating point for the next.
    pub fn handle_step(&mut self, points: &PointTable, progress: &Progress) -> PointIndex {
        let busy_secs = progress.busy.as_secs_f64();
        let point = Point { speed: progress.speed, ips: progress.instructions / busy_secs };
        if progress.busy >= self.params.min_busy && point.is_sensible() {
            self.without_sample = self.without_sample.saturating_add(1);
            if let Some(last) = self.last.replace(point) {
                self.sample(points, last, point);
            }
        }
        if std::mem::take(&mut self.at_slowest) {
            return points.fastest();
        }
        if self.without_sample > self.params.stale_after {
            self.without_sample = 0;
            self.at_slowest = true;
            return points.slowest();
        }
        self.lowest_within_slack(points)
    }

    fn lowest_within_slack(&self, points: &PointTable) -> PointIndex {
        // The values that arithmetic makes of nothing at all.
        const ROUNDING: f64 = 1e-9;
        let Some(sensitivity) = self.sensitivity() else { return points.fastest() };
        let slack = self.params.slack.as_f64() + ROUNDING;
        let is_within =
            |&point: &PointIndex| self.params.model.loss(sensitivity, points.speed(point)) <= slack;
        points.iter().find(is_within).unwrap_or(points.fastest())
    }

    fn sample(&mut self, points: &PointTable, one: Point, other: Point) {
        let range = 1.0 - points.speed(points.slowest());
        let change = (one.speed - other.speed).abs();
        if range <= 0.0 || change < self.params.min_change * range {
            return;
        }
        let measured = self.params.model.sensitivity(one, other);
        if measured.is_nan() {
            return;
        }
        self.without_sample = 0;
        // Noise may take it beyond 0 or 1. Cut there, the mean would be biased; without bounds, one
        // sample could ruin it.
        let measured = measured.clamp(-1.0, 2.0);
        let weight = self.sensitivity.map_or(1.0, |_| (self.params.gain * change / range).clamp(0.0, 1.0));
        let before = self.sensitivity.unwrap_or(0.0);
        self.sensitivity = Some(before + weight * (measured - before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::{nine_points, points_at};
    use machine::Ratio;

    const STEP: Duration = Duration::from_millis(1);

    /// Work of which the share `computing` takes longer at a slower clock and the rest does not.
    #[derive(Clone, Copy)]
    pub(super) struct Work {
        pub computing: f64,
    }

    impl Work {
        fn ips(self, speed: f64) -> f64 {
            1e9 / (self.computing / speed + 1.0 - self.computing)
        }

        pub fn loss(self, speed: f64) -> f64 {
            1.0 - self.ips(speed) / self.ips(1.0)
        }

        fn step(self, speed: f64, busy: Duration) -> Progress {
            Progress { instructions: self.ips(speed) * busy.as_secs_f64(), speed, busy }
        }
    }

    /// Steps of a core that is always busy; the operating points of the last `stale_after` of them.
    pub(super) fn closed_loop(
        params: Params,
        points: &PointTable,
        work: Work,
        steps: u32,
    ) -> Vec<PointIndex> {
        let mut policy = Sensitivity::new(params);
        let mut point = points.fastest();
        let mut history = Vec::new();
        for _ in 0..steps {
            point = policy.handle_step(points, &work.step(points.speed(point), STEP));
            history.push(point);
        }
        history.split_off(history.len() - params.stale_after as usize)
    }

    #[test]
    fn sensitivity_by_hand() {
        // Half of the time computing: at half the clock 1.5 times as long.
        let half = Work { computing: 0.5 };
        let (slow, fast) =
            (Point { speed: 0.5, ips: half.ips(0.5) }, Point { speed: 1.0, ips: half.ips(1.0) });
        // dIPS / IPS = 1/3, df / f = 1/2.
        assert!((Model::Linear.sensitivity(slow, fast) - 2.0 / 3.0).abs() < 1e-12);
        assert!((Model::Stalls.sensitivity(slow, fast) - 0.5).abs() < 1e-12);
        for model in [Model::Linear, Model::Stalls] {
            let sensitivity = model.sensitivity(fast, slow);
            assert!((model.loss(sensitivity, 0.5) - 1.0 / 3.0).abs() < 1e-12);
        }
        assert!((Model::Linear.loss(2.0 / 3.0, 0.75) - 1.0 / 6.0).abs() < 1e-12, "1/7 in truth");
        assert!((Model::Stalls.loss(0.5, 0.75) - half.loss(0.75)).abs() < 1e-12);
    }

    #[test]
    fn it_begins_with_a_look_at_both_ends() {
        let points = nine_points();
        let work = Work { computing: 1.0 };
        let mut policy = Sensitivity::new(Params { slack: Ratio::new(0.2), ..Params::default() });
        let asked = [1.0, points.speed(PointIndex(0)), 1.0, points.speed(PointIndex(7))]
            .map(|speed| policy.handle_step(&points, &work.step(speed, STEP)).0);
        // 2.2 of 2.6 GHz loses 15 %, 2.0 loses 23 %.
        assert_eq!(asked, [0, 8, 6, 6]);
        assert_eq!(policy.sensitivity(), Some(1.0));
    }

    #[test]
    fn slack_is_given_away_once() {
        // Against the operating point in effect, 20 % of pure computing would go on to the slowest
        // operating point.
        let points = points_at(&(0..=30).map(|step| 1_000 + step * 50).collect::<Vec<_>>());
        let params = Params { slack: Ratio::new(0.2), ..Params::default() };
        for model in [Model::Linear, Model::Stalls] {
            let point = closed_loop(Params { model, ..params }, &points, Work { computing: 1.0 }, 5_000)[50];
            assert_eq!(points.khz(point).0, 2_000_000, "{model:?}: 0.8 of 2.5 GHz");
        }
    }

    #[test]
    fn zero_tolerance_slows_only_work_that_waits() {
        let points = nine_points();
        for params in [Params::default(), Params::paper()] {
            let point = |computing| closed_loop(params, &points, Work { computing }, 1_000)[50];
            assert_eq!(point(0.0), points.slowest());
            assert_eq!(point(0.01), points.fastest());
            assert_eq!(point(1.0), points.fastest());
        }
    }

    #[test]
    fn a_steady_core_is_perturbed_once_in_a_while_and_no_more() {
        let points = nine_points();
        let work = Work { computing: 1.0 };
        let mut policy = Sensitivity::new(Params::default());
        let mut point = points.fastest();
        let mut at_slowest = 0;
        for _ in 0..10_000 {
            point = policy.handle_step(&points, &work.step(points.speed(point), STEP));
            at_slowest += u32::from(point == points.slowest());
        }
        // Once in stale_after steps, and the steps that it takes.
        assert!((95..=100).contains(&at_slowest), "{at_slowest}");
    }

    #[test]
    fn a_core_that_falls_idle_is_not_left_in_the_slowest_point() {
        let points = nine_points();
        let work = Work { computing: 1.0 };
        let short = Duration::from_micros(10);
        let mut policy = Sensitivity::new(Params::default());
        assert_eq!(policy.handle_step(&points, &work.step(1.0, STEP)), points.slowest());
        let slowest = points.speed(points.slowest());
        assert_eq!(policy.handle_step(&points, &work.step(slowest, short)), points.fastest());
        for _ in 0..1_000 {
            assert_eq!(policy.handle_step(&points, &work.step(1.0, short)), points.fastest());
        }
        assert_eq!(policy.sensitivity(), None);
        let busy =
            (1..1_000).find(|_| policy.handle_step(&points, &work.step(1.0, STEP)) != points.fastest());
        assert_eq!(busy, Some(101), "it tries again when the model is stale again");
    }

    #[test]
    fn a_sample_weighs_by_how_far_apart_its_speeds_are() {
        let points = points_at(&[500, 1_000]);
        for (slow, expected) in [(0.5, 0.5), (0.75, 0.25), (0.9, 0.0)] {
            let mut policy = Sensitivity { sensitivity: Some(0.0), ..Sensitivity::new(Params::default()) };
            policy.sample(&points, Point { speed: 1.0, ips: 1e9 }, Point { speed: slow, ips: slow * 1e9 });
            assert!(policy.sensitivity.is_some_and(|s| (s - expected).abs() < 1e-12), "{slow}: {policy:?}");
        }
    }

    #[test]
    fn one_absurd_reading_is_outgrown() {
        let mut policy = Sensitivity { sensitivity: Some(0.0), ..Sensitivity::new(Params::default()) };
        policy.sample(&nine_points(), Point { speed: 1.0, ips: 1e9 }, Point { speed: 0.4, ips: 1.0 });
        assert!(policy.sensitivity.is_some_and(|s| s <= 2.0 * policy.params.gain), "{policy:?}");
    }

    #[test]
    fn work_that_changes_is_seen_at_the_next_perturbation() {
        let points = nine_points();
        let params = Params { slack: Ratio::new(0.05), ..Params::default() };
        let mut policy = Sensitivity::new(params);
        let mut point = points.fastest();
        let mut fast_since = None;
        for step in 0..1_000 {
            let work = Work { computing: if step < 500 { 0.0 } else { 1.0 } };
            point = policy.handle_step(&points, &work.step(points.speed(point), STEP));
            if step == 499 {
                assert_eq!(point, points.slowest());
            }
            match fast_since {
                None if step > 500 && point == points.fastest() => fast_since = Some(step),
                _ => {}
            }
        }
        assert!(fast_since.is_some_and(|step| step <= 500 + params.stale_after + 2), "{fast_since:?}");
        assert_eq!(point, points.fastest());
    }

    #[test]
    fn one_point_is_no_choice() {
        let points = points_at(&[2_000]);
        let mut policy = Sensitivity::new(Params::default());
        for _ in 0..500 {
            let progress = Work { computing: 0.0 }.step(1.0, STEP);
            assert_eq!(policy.handle_step(&points, &progress), points.fastest());
        }
    }
}
