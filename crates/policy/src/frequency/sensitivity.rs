//! Sensitivity DVFS: as slow as costs no more than a given share of the core's own progress
//! (Tradeoffs, section IV-B).
//!
//! Utilisation says nothing about how much a program minds a slow clock; how much of its time it
//! waits for memory does. The *sensitivity* s = (dIPS / IPS) / (df / f) is measured: 1 for work
//! that only computes, 0 for work that only waits. Each core takes, every step of 1 ms, the lowest
//! gear whose predicted *loss* of instructions per second (IPS) is within the *slack*: 0 is the
//! paper's zero tolerance, 20 % its relaxed setting.
//!
//! **Slack does not compound.** Every prediction is against the fastest gear: loss = s (f_max - f)
//! / f_max. Against the gear in effect, 20 % would be given away again at every step, down to the
//! slowest gear. (The paper does not say; this is our reading.)
//!
//! **The model.** The line through two measured points (f, IPS) is the paper's, [`Model::Linear`].
//! IPS is concave in f: a line between the slowest and the fastest gear overstates every loss
//! between them, a line through two fast gears understates that of a slow one. For work that
//! computes for a part of its time and waits for the rest, 1 / IPS is exactly linear in 1 / f; so
//! have it Hsu and Feng, as the paper cites: [`Model::Stalls`], the default.
//!
//! **Freshness.** A sample is taken from every two busy steps in succession whose speeds lie at
//! least `min_change` of the table's range apart; the difference of neighbours does not see slow
//! changes of the work. The model is stale when `stale_after` busy steps brought no sample. Then,
//! and at the start, the core is *perturbed* (the paper's footnote 7): one step in the slowest
//! gear, one in the fastest. If the core is idle meanwhile, the next try is when the model is stale
//! again. So the price is bounded: one step of `stale_after` in the slowest gear.
//!
//! Invariants: without a sample the gear is the fastest; with one, its predicted loss is
//! within the slack and the next slower gear's is not, except while perturbing.
//!
//! Where it fails. A sample believes that two neighbouring steps did the same work. Work that
//! differs from step to step makes the sensitivity wander, to both sides of the truth; see the
//! journal for how far. In between it is insensitive: a change of the work is seen when the next
//! sample is taken, up to `stale_after` busy steps later. The price of a perturbation is highest
//! where the slowest gear is very slow: at 0.38 of the nominal clock 0.6 % of the throughput of
//! pure computing, and up to 1.6 ms for a request that meets it.
//!
//! Hyperthreads share a clock: the driver keeps one policy for a physical core, adds the
//! instructions of its threads, and counts as busy the time in which any of them executed.

use super::{GearIndex, GearTable};
use crate::check::Check;
use crate::kind::{CpuTotals, Decision, FrequencyPolicy, Make, Making, Policy, Readings, Seen};
use crate::registry::{
    Entry, Maturity, Parameter, Question, Runs, Word, count, number, one_of, settings, share, time,
};
use machine::{CpuId, Duration, Instant, Ratio};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The quantity that is taken to be linear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Instructions per second in the clock: the paper's.
    Linear,
    /// Seconds per instruction in the clock's reciprocal: computing takes longer, stalls do not.
    #[default]
    Stalls,
}

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
    make: Make::Frequency(|making| Box::new(PerCpu::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub step: Duration,
    pub slack: Ratio,
    pub model: Model,
    pub gain: f64,
    pub min_change: f64,
    pub stale_after: u32,
    #[serde(with = "machine::duration_text")]
    pub min_busy: Duration,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("step", "time between two readings")
            .above_zero()
            .source("Tradeoffs, section IV-B: less lost more than it gained"),
        share("slack", "progress that may be lost against the fastest frequency")
            .source("Tradeoffs: 0 is its zero tolerance, 0.2 its relaxed setting"),
        one_of("model", "what is taken to be linear", &["linear", "stalls"])
            .source("ours; the paper's is linear"),
        number("gain", "weight of a sample whose two speeds span all frequencies")
            .above_zero_to(1.0)
            .source("ours: a perturbation brings two or three samples"),
        share("min_change", "how far apart two speeds must be to make a sample, of the range").source("ours"),
        count("stale_after", "busy steps without a sample after which the model is stale")
            .above_zero()
            .source("ours"),
        time("min_busy", "a step with less busy time tells nothing")
            .source("ours: some ten thousand instructions"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            step: Duration::from_millis(1),
            slack: Ratio::ZERO,
            model: Model::default(),
            gain: 0.5,
            min_change: 0.25,
            stale_after: 100,
            min_busy: Duration::from_micros(50),
        }
    }
}

impl Params {
    /// The paper's model, at zero tolerance.
    pub fn paper() -> Self {
        Self { model: Model::Linear, ..Self::default() }
    }
}

/// The work of a core in one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Instructions executed, or work done in any other unit that stays the same.
    pub instructions: f64,
    /// The speed it executed at (a share of the nominal clock): that of the gear in effect,
    /// averaged over busy time.
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
    /// The step that is under way is in the slowest gear, to see its effect; the next will be in
    /// the fastest.
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

    /// A step is over: the gear for the next.
    pub fn handle_step(&mut self, gears: &GearTable, progress: &Progress) -> GearIndex {
        let busy_secs = progress.busy.as_secs_f64();
        let point = Point { speed: progress.speed, ips: progress.instructions / busy_secs };
        if progress.busy >= self.params.min_busy && point.is_sensible() {
            self.without_sample = self.without_sample.saturating_add(1);
            if let Some(last) = self.last.replace(point) {
                self.sample(gears, last, point);
            }
        }
        if std::mem::take(&mut self.at_slowest) {
            return gears.fastest();
        }
        if self.without_sample > self.params.stale_after {
            self.without_sample = 0;
            self.at_slowest = true;
            return gears.slowest();
        }
        self.lowest_within_slack(gears)
    }

    fn lowest_within_slack(&self, gears: &GearTable) -> GearIndex {
        // The values that arithmetic makes of nothing at all.
        const ROUNDING: f64 = 1e-9;
        let Some(sensitivity) = self.sensitivity() else { return gears.fastest() };
        let slack = self.params.slack.as_f64() + ROUNDING;
        let is_within = |&gear: &GearIndex| self.params.model.loss(sensitivity, gears.speed(gear)) <= slack;
        gears.iter().find(is_within).unwrap_or(gears.fastest())
    }

    fn sample(&mut self, gears: &GearTable, one: Point, other: Point) {
        let range = 1.0 - gears.speed(gears.slowest());
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

impl Model {
    /// The slope of the line through two points, relative to its value at the nominal clock.
    fn sensitivity(self, one: Point, other: Point) -> f64 {
        let axes = |point: Point| match self {
            Self::Linear => (point.speed, point.ips),
            Self::Stalls => (1.0 / point.speed, 1.0 / point.ips),
        };
        let ((x0, y0), (x1, y1)) = (axes(one), axes(other));
        let slope = (y1 - y0) / (x1 - x0);
        let at_nominal = y0 + slope * (1.0 - x0);
        // Two points so noisy that the line is below zero at the nominal clock: all of the time is
        // computing.
        if at_nominal > 0.0 { slope / at_nominal } else { 1.0 }
    }

    /// The share of IPS lost at `speed` against the nominal clock.
    fn loss(self, sensitivity: f64, speed: f64) -> f64 {
        match self {
            Self::Linear => sensitivity * (1.0 - speed),
            Self::Stalls => 1.0 - 1.0 / (1.0 + sensitivity * (1.0 / speed - 1.0)),
        }
    }
}

/// The policies of all CPUs of a driver that counts their work.
pub struct PerCpu {
    gears: GearTable,
    cpus: Vec<(Sensitivity, CpuTotals)>,
    due: Option<Instant>,
    decisions: VecDeque<Decision>,
}

impl PerCpu {
    fn new(making: &Making<'_>) -> Self {
        let cpus = vec![(Sensitivity::new(making.params()), CpuTotals::default()); making.cpus()];
        let due = cpus.first().map(|(policy, _)| Instant::ZERO + policy.period());
        Self { gears: making.gears(), cpus, due, decisions: VecDeque::new() }
    }
}

impl Policy for PerCpu {
    fn readings(&self) -> Readings {
        Readings { cpus: true, quantile: None }
    }

    fn handle_timeout(&mut self, now: Instant, seen: &Seen<'_>) {
        for ((cpu, (policy, last)), totals) in (0..).zip(&mut self.cpus).zip(seen.cpus) {
            let progress = Progress {
                instructions: totals.work_done - last.work_done,
                speed: self.gears.speed(totals.gear),
                busy: totals.working - last.working,
            };
            let gear = policy.handle_step(&self.gears, &progress);
            self.decisions.push_back(Decision::Gear { cpu: CpuId(cpu), gear });
            *last = *totals;
        }
        self.due = self.cpus.first().map(|(policy, _)| now + policy.period());
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

impl FrequencyPolicy for PerCpu {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::gears::tests::{gears_at, nine_gears};
    use proptest::prelude::*;

    const STEP: Duration = Duration::from_millis(1);

    /// Work of which the share `computing` takes longer at a slower clock and the rest does not.
    #[derive(Clone, Copy)]
    struct Work {
        computing: f64,
    }

    impl Work {
        fn ips(self, speed: f64) -> f64 {
            1e9 / (self.computing / speed + 1.0 - self.computing)
        }

        fn loss(self, speed: f64) -> f64 {
            1.0 - self.ips(speed) / self.ips(1.0)
        }

        fn step(self, speed: f64, busy: Duration) -> Progress {
            Progress { instructions: self.ips(speed) * busy.as_secs_f64(), speed, busy }
        }
    }

    /// Steps of a core that is always busy; the gears of the last `stale_after` of them.
    fn closed_loop(params: Params, gears: &GearTable, work: Work, steps: u32) -> Vec<GearIndex> {
        let mut policy = Sensitivity::new(params);
        let mut gear = gears.fastest();
        let mut history = Vec::new();
        for _ in 0..steps {
            gear = policy.handle_step(gears, &work.step(gears.speed(gear), STEP));
            history.push(gear);
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
        let gears = nine_gears();
        let work = Work { computing: 1.0 };
        let mut policy = Sensitivity::new(Params { slack: Ratio::new(0.2), ..Params::default() });
        let asked = [1.0, gears.speed(GearIndex(0)), 1.0, gears.speed(GearIndex(7))]
            .map(|speed| policy.handle_step(&gears, &work.step(speed, STEP)).0);
        // 2.2 of 2.6 GHz loses 15 %, 2.0 loses 23 %.
        assert_eq!(asked, [0, 8, 6, 6]);
        assert_eq!(policy.sensitivity(), Some(1.0));
    }

    #[test]
    fn slack_is_given_away_once() {
        // Against the gear in effect, 20 % of pure computing would go on to the slowest gear.
        let gears = gears_at(&(0..=30).map(|step| 1_000 + step * 50).collect::<Vec<_>>());
        let params = Params { slack: Ratio::new(0.2), ..Params::default() };
        for model in [Model::Linear, Model::Stalls] {
            let gear = closed_loop(Params { model, ..params }, &gears, Work { computing: 1.0 }, 5_000)[50];
            assert_eq!(gears.khz(gear).0, 2_000_000, "{model:?}: 0.8 of 2.5 GHz");
        }
    }

    #[test]
    fn zero_tolerance_slows_only_work_that_waits() {
        let gears = nine_gears();
        for params in [Params::default(), Params::paper()] {
            let gear = |computing| closed_loop(params, &gears, Work { computing }, 1_000)[50];
            assert_eq!(gear(0.0), gears.slowest());
            assert_eq!(gear(0.01), gears.fastest());
            assert_eq!(gear(1.0), gears.fastest());
        }
    }

    #[test]
    fn a_steady_core_is_perturbed_once_in_a_while_and_no_more() {
        let gears = nine_gears();
        let work = Work { computing: 1.0 };
        let mut policy = Sensitivity::new(Params::default());
        let mut gear = gears.fastest();
        let mut at_slowest = 0;
        for _ in 0..10_000 {
            gear = policy.handle_step(&gears, &work.step(gears.speed(gear), STEP));
            at_slowest += u32::from(gear == gears.slowest());
        }
        // Once in stale_after steps, and the steps that it takes.
        assert!((95..=100).contains(&at_slowest), "{at_slowest}");
    }

    #[test]
    fn a_core_that_falls_idle_is_not_left_in_the_slowest_gear() {
        let gears = nine_gears();
        let work = Work { computing: 1.0 };
        let short = Duration::from_micros(10);
        let mut policy = Sensitivity::new(Params::default());
        assert_eq!(policy.handle_step(&gears, &work.step(1.0, STEP)), gears.slowest());
        let slowest = gears.speed(gears.slowest());
        assert_eq!(policy.handle_step(&gears, &work.step(slowest, short)), gears.fastest());
        for _ in 0..1_000 {
            assert_eq!(policy.handle_step(&gears, &work.step(1.0, short)), gears.fastest());
        }
        assert_eq!(policy.sensitivity(), None);
        let busy = (1..1_000).find(|_| policy.handle_step(&gears, &work.step(1.0, STEP)) != gears.fastest());
        assert_eq!(busy, Some(101), "it tries again when the model is stale again");
    }

    #[test]
    fn a_sample_weighs_by_how_far_apart_its_speeds_are() {
        let gears = gears_at(&[500, 1_000]);
        for (slow, expected) in [(0.5, 0.5), (0.75, 0.25), (0.9, 0.0)] {
            let mut policy = Sensitivity { sensitivity: Some(0.0), ..Sensitivity::new(Params::default()) };
            policy.sample(&gears, Point { speed: 1.0, ips: 1e9 }, Point { speed: slow, ips: slow * 1e9 });
            assert!(policy.sensitivity.is_some_and(|s| (s - expected).abs() < 1e-12), "{slow}: {policy:?}");
        }
    }

    #[test]
    fn one_absurd_reading_is_outgrown() {
        let mut policy = Sensitivity { sensitivity: Some(0.0), ..Sensitivity::new(Params::default()) };
        policy.sample(&nine_gears(), Point { speed: 1.0, ips: 1e9 }, Point { speed: 0.4, ips: 1.0 });
        assert!(policy.sensitivity.is_some_and(|s| s <= 2.0 * policy.params.gain), "{policy:?}");
    }

    #[test]
    fn work_that_changes_is_seen_at_the_next_perturbation() {
        let gears = nine_gears();
        let params = Params { slack: Ratio::new(0.05), ..Params::default() };
        let mut policy = Sensitivity::new(params);
        let mut gear = gears.fastest();
        let mut fast_since = None;
        for step in 0..1_000 {
            let work = Work { computing: if step < 500 { 0.0 } else { 1.0 } };
            gear = policy.handle_step(&gears, &work.step(gears.speed(gear), STEP));
            if step == 499 {
                assert_eq!(gear, gears.slowest());
            }
            match fast_since {
                None if step > 500 && gear == gears.fastest() => fast_since = Some(step),
                _ => {}
            }
        }
        assert!(fast_since.is_some_and(|step| step <= 500 + params.stale_after + 2), "{fast_since:?}");
        assert_eq!(gear, gears.fastest());
    }

    #[test]
    fn one_gear_is_no_choice() {
        let gears = gears_at(&[2_000]);
        let mut policy = Sensitivity::new(Params::default());
        for _ in 0..500 {
            let progress = Work { computing: 0.0 }.step(1.0, STEP);
            assert_eq!(policy.handle_step(&gears, &progress), gears.fastest());
        }
    }

    proptest! {
        #[test]
        fn the_loss_stays_within_the_slack(
            computing in 0.0..=1.0_f64,
            slack in 0.0..0.6_f64,
            steps in prop::collection::vec(50_u64..400, 1..31),
        ) {
            let mut mhz = 800;
            let mut clocks = vec![mhz];
            clocks.extend(steps.iter().map(|step| { mhz += step; mhz }));
            let gears = gears_at(&clocks);
            let params = Params { slack: Ratio::new(slack), ..Params::default() };
            let work = Work { computing };
            let history = closed_loop(params, &gears, work, 1_000);
            // Two steps of the last `stale_after` may be a perturbation.
            let loss = |gear| work.loss(gears.speed(gear));
            prop_assume!(gears.iter().all(|gear| gear == gears.fastest() || (loss(gear) - slack).abs() > 1e-8));
            let lowest = gears.iter().find(|&gear| loss(gear) <= slack + 1e-8);
            let settled = history.iter().filter(|&&gear| Some(gear) == lowest).count();
            prop_assert!(settled >= history.len() - 3, "{lowest:?} in {history:?}");
        }

        #[test]
        fn pure_computing_keeps_to_the_slack_in_the_papers_model_too(slack in 0.0..0.6_f64) {
            let gears = nine_gears();
            let work = Work { computing: 1.0 };
            let history = closed_loop(Params { slack: Ratio::new(slack), ..Params::paper() }, &gears, work, 1_000);
            let over = history.iter().filter(|&&gear| work.loss(gears.speed(gear)) > slack + 1e-6).count();
            prop_assert!(over <= 2, "{over}");
        }

        #[test]
        fn nonsense_gives_a_gear_of_the_table(
            readings in prop::collection::vec(
                (prop::num::f64::ANY, prop::num::f64::ANY, 0_u64..2_000_000), 0..200),
        ) {
            let gears = nine_gears();
            let mut policy = Sensitivity::new(Params { slack: Ratio::new(0.1), ..Params::default() });
            for (instructions, speed, busy) in readings {
                let progress = Progress { instructions, speed, busy: Duration::from_nanos(busy) };
                prop_assert!(policy.handle_step(&gears, &progress).index() < gears.count());
                prop_assert!(policy.sensitivity().is_none_or(|s| (0.0..=1.0).contains(&s)));
            }
        }
    }
}
