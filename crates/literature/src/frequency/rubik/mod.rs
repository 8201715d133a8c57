//! Rubik: at every arrival and completion the slowest operating point at which every request in the
//! queue still makes it (Kasture et al., MICRO 2015; here the comparison of the Peafowl paper's
//! Figures 9 and 10).
//!
//! A core has a queue. The request that waits as the i-th is done when the rest of the head, the
//! requests before it and itself are done: C cycles of computing, which a slower clock stretches,
//! and M of waiting for memory, which it does not. Rubik measures both, forms the distribution of
//! their sums, and keeps of each the quantile that the goal speaks of, as tables: T_C and T_M. A
//! request that has been here for `age` then needs
//!
//! ```text
//!   f / f_nominal  >=  T_C[row][i] / (L' - age - T_M[row][i] - T_dvfs)
//! ```
//!
//! and the core the greatest of these, rounded up to an operating point. Work is convolved and not
//! time, so a table holds for every operating point; only the head, which has begun, is conditioned
//! on its work so far (the *row*). L' is the target, corrected once per second by the measured
//! tail.
//!
//! Units. Cycles are counted in nanoseconds at the nominal frequency: a compute time of 10 us is 10
//! us in the fastest operating point, 20 us at half its speed. Of a head's memory time nothing is
//! known but its share: its rest of M is taken from the same row as its rest of C, which is exact
//! when both are fixed shares of a request. T_C + T_M is exact then too, and errs to the safe side
//! when they are independent.
//!
//! One [`Rubik`] serves any number of cores: all cores share its knowledge, and [`Rubik::choose`]
//! reads only.
//!
//! Invariants: without tables, that is for the first `samples_min` requests, the fastest operating
//! point; the fastest for a request that cannot make it any more (so a decision looks at no more
//! requests than make up L' of work); an older request or a longer queue never lowers the operating
//! point; the order of completions at one instant leaves no trace.

mod convolver;
mod distribution;
mod feedback;
mod params;
mod server;
mod tables;

pub use params::{ENTRY, Params};
pub use policy::kind::Head;
pub use server::Server;

use super::{PointIndex, PointTable};
use convolver::Convolver;
use distribution::Distribution;
use feedback::Feedback;
use machine::{Duration, Instant};
use policy::frequency::log_histogram::LogHistogram;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use tables::Table;

/// The model, and the decisions made with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rubik {
    params: Params,
    points: PointTable,
    /// Of this window.
    compute: LogHistogram,
    memory: LogHistogram,
    rebuild_at: Option<Instant>,
    /// Of the feedback's window.
    responses: LogHistogram,
    feedback_at: Option<Instant>,
    feedback: Feedback,
    /// L' - T_dvfs.
    budget_ns: f64,
    tables: Option<Tables>,
    #[serde(skip)]
    convolver: Convolver,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tables {
    compute: Table,
    memory: Table,
}

impl Rubik {
    pub fn new(params: Params, points: &PointTable) -> Self {
        let mut rubik = Self {
            params,
            points: *points,
            compute: LogHistogram::new(),
            memory: LogHistogram::new(),
            rebuild_at: None,
            responses: LogHistogram::new(),
            feedback_at: None,
            feedback: Feedback::NEUTRAL,
            budget_ns: 0.0,
            tables: None,
            convolver: Convolver::default(),
        };
        rubik.set_budget();
        rubik
    }

    /// A piece of a request is done.
    pub fn handle_work(&mut self, now: Instant, compute: Duration, memory: Duration) {
        self.compute.record(compute);
        self.memory.record(memory);
        if self.rebuild_at.is_none() {
            self.rebuild_at = Some(now + self.params.rebuild_every);
        }
    }

    /// A request is answered, so long after its arrival.
    pub fn handle_answer(&mut self, now: Instant, response: Duration) {
        self.responses.record(response);
        if self.feedback_at.is_none() {
            self.feedback_at = Some(now + self.params.feedback_every);
        }
    }

    /// When to call [`Self::handle_timeout`]; never while no request completes.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.rebuild_at, self.feedback_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Ends the windows that are over: rebuilds the tables, corrects the target. A call that is too
    /// early does nothing; one that is late makes a longer window.
    pub fn handle_timeout(&mut self, now: Instant) {
        let enough = u64::from(self.params.samples_min.max(1));
        if self.rebuild_at.is_some_and(|due| due <= now) {
            // The next completion begins the next window, or goes on with this one.
            self.rebuild_at = None;
            if self.compute.total() >= enough {
                self.rebuild();
            }
        }
        if self.feedback_at.is_some_and(|due| due <= now) {
            self.feedback_at = None;
            if self.responses.total() >= enough {
                self.correct();
            }
        }
    }

    /// The operating point for a core that executes `head` and then, in this order, the requests
    /// that came at `waiting`. A core with nothing to do gets the slowest.
    #[inline]
    pub fn choose(
        &self,
        now: Instant,
        head: Option<Head>,
        waiting: impl IntoIterator<Item = Instant>,
    ) -> PointIndex {
        let Some(Tables { compute, memory }) = &self.tables else { return self.points.fastest() };
        let row = head.map_or(0, |head| compute.row(head.done_compute.as_nanos() as f64));
        let (compute, memory) = (compute.tails(row), memory.tails(row));
        let (mut ahead, mut speed) = (0, 0.0_f64);
        let mut hurry = |arrived: Instant| {
            // The signed conversion is one instruction.
            let age_ns = now.since(arrived).as_nanos() as i64 as f64;
            let time_ns = self.budget_ns - age_ns - memory.of(ahead);
            let work_ns = compute.of(ahead);
            ahead += 1;
            if time_ns <= work_ns {
                return ControlFlow::Break(());
            }
            let needed = work_ns / time_ns;
            speed = if needed > speed { needed } else { speed };
            ControlFlow::Continue(())
        };
        let head = head.map_or(ControlFlow::Continue(()), |head| hurry(head.arrived));
        if head.is_break() || waiting.into_iter().try_for_each(hurry).is_break() {
            return self.points.fastest();
        }
        self.points.at_least_speed(speed)
    }

    /// L', which decisions work with in place of the target.
    pub fn corrected_target(&self) -> Duration {
        self.params.target.scale(self.feedback.factor())
    }

    /// Decisions work towards another target from now on.
    pub fn set_target(&mut self, target: Duration) {
        self.params.target = target;
        self.set_budget();
    }

    fn rebuild(&mut self) {
        let quantile = self.params.quantile();
        let mut table = |measured: &LogHistogram| {
            // Requests without any such work: zero, however many of them.
            Distribution::of(measured, quantile)
                .map_or(Table::NOTHING, |whole| Table::of(&whole, quantile, &mut self.convolver))
        };
        self.tables = Some(Tables { compute: table(&self.compute), memory: table(&self.memory) });
        self.compute.clear();
        self.memory.clear();
    }

    fn correct(&mut self) {
        if let Some(tail) = self.responses.quantile(self.params.quantile()) {
            self.feedback.step(tail, &self.params);
            self.set_budget();
        }
        self.responses.clear();
    }

    fn set_budget(&mut self) {
        let target_ns = self.params.target.as_nanos() as f64 * self.feedback.factor();
        self.budget_ns = target_ns - self.params.dvfs_delay.as_nanos() as f64;
    }
}

#[cfg(test)]
mod closed_loop;
#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::nine_points;

    impl Rubik {
        /// A request of one piece is done.
        pub fn handle_completion(
            &mut self,
            now: Instant,
            compute: Duration,
            memory: Duration,
            response: Duration,
        ) {
            self.handle_work(now, compute, memory);
            self.handle_answer(now, response);
        }
    }

    pub(super) const NOW: Instant = Instant::from_nanos(10_000_000_000);

    pub(super) fn us(micros: f64) -> Duration {
        Duration::from_secs_f64(micros * 1e-6)
    }

    /// A Rubik that saw requests with these (compute, memory) times, in us.
    pub(super) fn taught(requests: impl IntoIterator<Item = (f64, f64)>) -> Rubik {
        let mut rubik = Rubik::new(Params::default(), &nine_points());
        for (compute, memory) in requests {
            rubik.handle_completion(Instant::ZERO, us(compute), us(memory), us(compute + memory));
        }
        rubik.handle_timeout(Instant::ZERO + Duration::from_millis(100));
        rubik
    }

    /// Exponential compute times of 10 us.
    fn exponential() -> Rubik {
        taught((0..50_000).map(|k| (-10.0 * (1.0 - (f64::from(k) + 0.5) / 50_000.0).ln(), 0.0)))
    }

    /// A head of this age that has computed so much; both in us.
    pub(super) fn head(age: f64, done: f64) -> Option<Head> {
        Some(Head { arrived: NOW - us(age), done_compute: us(done), phase: 0 })
    }

    /// Arrivals so many us ago.
    pub(super) fn waiting(ages: &[f64]) -> impl Iterator<Item = Instant> {
        ages.iter().map(|&age| NOW - us(age))
    }

    #[test]
    fn until_it_knows_the_requests_it_runs_at_full_speed() {
        let mut rubik = taught([(10.0, 0.0); 999]);
        let fastest = nine_points().fastest();
        assert_eq!(rubik.choose(NOW, head(0.0, 0.0), []), fastest);
        // One more, and the window that was extended ends.
        rubik.handle_completion(NOW, us(10.0), us(0.0), us(10.0));
        rubik.handle_timeout(NOW + Duration::from_millis(100));
        assert_eq!(rubik.choose(NOW, head(0.0, 0.0), []), nine_points().slowest());
    }

    #[test]
    fn the_point_is_what_the_formula_asks_for() {
        let rubik = exponential();
        // 99 % of one request are below 46.05 us, of two 66.4, four 100.5, eight 160.0. L - T_dvfs
        // is 290 us. Operating points are thirteenths: 5/13 = 0.385 is the slowest, then 6/13 =
        // 0.462.
        let table = [
            (0.0, vec![], 0),                  // 46.05 / 290 = 0.159
            (190.0, vec![], 1),                // 46.05 / 100 = 0.461
            (200.0, vec![], 2),                // 46.05 / 90 = 0.512
            (0.0, vec![100.0], 0),             // 66.4 / 190 = 0.349
            (0.0, vec![180.0], 3),             // 66.4 / 110 = 0.604
            (0.0, vec![0.0, 0.0, 100.0], 2),   // 100.5 / 190 = 0.529
            (0.0, vec![0.0, 180.0, 100.0], 5), // three: 84.1 / 110 = 0.764
            (50.0, vec![50.0; 7], 4),          // 160.0 / 240 = 0.667
            (245.0, vec![], 8),                // 46.05 / 45 > 1
        ];
        for (age, others, point) in table {
            let chosen = rubik.choose(NOW, head(age, 0.0), waiting(&others));
            assert_eq!(chosen, PointIndex(point), "{age} {others:?}");
            // The exponential distribution does not remember the work so far; nor does it matter
            // which request has begun.
            assert_eq!(rubik.choose(NOW, head(age, 40.0), waiting(&others)), chosen);
            let all: Vec<f64> = [age].into_iter().chain(others).collect();
            assert_eq!(rubik.choose(NOW, None, waiting(&all)), chosen);
        }
    }

    #[test]
    fn memory_time_is_paid_at_every_clock() {
        let rubik = taught([(10.0, 20.0); 1_000]);
        // 10 / (290 - 250 - 20) = 0.5; stretched as a whole it would be 30 / 40 = 0.75.
        assert_eq!(rubik.choose(NOW, head(250.0, 0.0), []), PointIndex(2));
        let compute_only = taught([(30.0, 0.0); 1_000]);
        assert_eq!(compute_only.choose(NOW, head(250.0, 0.0), []), PointIndex(5));
    }

    #[test]
    fn what_the_head_has_done_counts_for_all_behind_it() {
        let rubik = taught([(50.0, 0.0); 1_000]);
        // (50 + 50) / (290 - 150) = 0.714; with the head as good as done 50 / 140 = 0.357.
        assert_eq!(rubik.choose(NOW, head(150.0, 0.0), waiting(&[150.0])), PointIndex(5));
        assert_eq!(rubik.choose(NOW, head(150.0, 50.001), waiting(&[150.0])), PointIndex(0));
    }

    #[test]
    fn it_looks_no_further_than_it_must() {
        let forever = std::iter::repeat(NOW);
        assert_eq!(exponential().choose(NOW, None, forever), nine_points().fastest());
    }

    #[test]
    fn an_idle_core_needs_no_speed() {
        assert_eq!(exponential().choose(NOW, None, []), nine_points().slowest());
    }

    #[test]
    fn timeouts_may_come_early_late_or_twice() {
        let mut rubik = Rubik::new(Params::default(), &nine_points());
        assert_eq!(rubik.poll_timeout(), None);
        rubik.handle_timeout(NOW);
        for _ in 0..1_000 {
            rubik.handle_completion(NOW, us(10.0), us(0.0), us(300.0));
        }
        let due = NOW + Duration::from_millis(100);
        assert_eq!(rubik.poll_timeout(), Some(due));
        let before = rubik.clone();
        rubik.handle_timeout(due - Duration::from_nanos(1));
        assert_eq!(rubik, before);
        rubik.handle_timeout(due + Duration::from_millis(50));
        assert!(rubik.tables.is_some());
        assert_eq!(rubik.poll_timeout(), Some(NOW + Duration::from_secs(1)));
        let after = rubik.clone();
        rubik.handle_timeout(due + Duration::from_millis(50));
        assert_eq!(rubik, after);
        rubik.handle_timeout(NOW + Duration::from_secs(1));
        assert_eq!(rubik.poll_timeout(), None, "a silent core needs no timer");
    }

    #[test]
    fn a_missed_goal_tightens_the_target_and_slack_loosens_it() {
        for (response, tighter) in [(400.0, true), (200.0, false)] {
            let mut rubik = Rubik::new(Params::default(), &nine_points());
            for _ in 0..1_000 {
                rubik.handle_completion(NOW, us(10.0), us(0.0), us(response));
            }
            rubik.handle_timeout(NOW + Duration::from_secs(1));
            assert_eq!(rubik.corrected_target() < Params::default().target, tighter, "{response}");
        }
    }

    #[test]
    fn parameters_are_written_as_people_write_them() {
        let json = serde_json::to_string(&Params::default()).unwrap();
        assert!(json.contains(r#""target":"300us""#), "{json}");
        assert_eq!(serde_json::from_str::<Params>(&json).unwrap(), Params::default());
        assert!(serde_json::from_str::<Params>(r#"{"taget":"1ms"}"#).is_err());
    }
}
