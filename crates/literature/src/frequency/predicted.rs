//! ReTail and Gemini: the frequency of a request by a prediction of its length.
//!
//! Both predict from a request's features how long it takes. ReTail (Chen et al., HPCA 2022) runs it at the
//! slowest frequency with which it ends in time by the prediction, and the measured tail moves the target.
//! Gemini (Zhou et al., MICRO 2020) predicts its own error too: a request begins as with ReTail, and goes on
//! at the fastest frequency once it would be late if it was longer by the error (two-step DVFS).
//!
//! The authors' code is not at hand, so the words are `retail-like` and `gemini-like`. The gaps, each an
//! ESTIMATE of ours:
//! - No features are simulated. A prediction is the true time of computing with a lognormal error.
//! - Both papers look at the requests that wait. Here waiting only shortens a request's own time.
//! - The error that Gemini predicts is the same for all requests.
//! - ReTail's correction of its target is an [`ErrorBudget`].
//!
//! Properties: with a prediction that is right a request ends in time wherever the fastest frequency can
//! do that, and a slower frequency would not; with Gemini's second step so does the longest request.

use super::{PointIndex, PointTable};
use machine::{CpuId, Duration, Instant};
use policy::check::Check;
use policy::error_budget::{ErrorBudget, Terms};
use policy::kind::{Decision, FrequencyPolicy, Make, Making, Policy, Request, Seen, Watch};
use policy::registry::{Entry, Parameter, Question, Surroundings, Word, number, quantile, settings, time};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[
        Word::new("retail-like", "by the predicted length of the request", |around| {
            settings(Params { second_step: 0.0, ..Params::around(around) })
        }),
        Word::new("gemini-like", "as `retail-like`, and fastest where that may come too late", |around| {
            settings(Params { budget_gain: 0.0, ..Params::around(around) })
        }),
    ],
    question: Question::Frequency,
    help: "A request runs at the slowest frequency with which it ends within the goal by a prediction of its \
           length, which errs; `gemini-like` changes to the fastest before it may be too late.",
    origin: "ReTail (Chen et al., HPCA 2022) and Gemini (Zhou et al., MICRO 2020), by their abstracts",
    needs_goal: true,
    make: Make::Frequency(|making| Box::new(Server::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub target: Duration,
    pub quantile: f64,
    #[serde(with = "machine::duration_text")]
    pub dvfs_delay: Duration,
    pub error: f64,
    pub second_step: f64,
    pub budget_gain: f64,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("target", "the goal for response times").above_zero().given("the goal"),
        quantile("quantile", "the share of requests that shall").given("the goal"),
        time("dvfs_delay", "from asking for a frequency until it works").given("the machine"),
        number("error", "standard deviation of the logarithm of a prediction's error")
            .within(0.0, 2.0)
            .source("ours: ESTIMATE"),
        number("second_step", "errors by which a request may be longer and still end in time; 0: none")
            .within(0.0, 10.0)
            .source("ours: ESTIMATE"),
        number("budget_gain", "how much of the error budget that is left moves the target; 0: nothing")
            .within(0.0, 1.0)
            .source("as Crescendo's"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: Duration::from_micros(300),
            quantile: 0.99,
            dvfs_delay: Duration::from_micros(10),
            error: 0.1,
            second_step: 2.0,
            budget_gain: 0.5,
        }
    }
}

impl Params {
    fn around(around: &Surroundings<'_>) -> Self {
        let plain = Self::default();
        Self {
            target: around.latency_or(plain.target),
            quantile: around.quantile_or(plain.quantile),
            dvfs_delay: around.frequency_switch_or(plain.dvfs_delay),
            ..plain
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            target: self.target,
            missable: 1.0 - self.quantile,
            gain: self.budget_gain,
            aims: [0.5, 1.5],
            window: Duration::from_secs(60),
        }
    }

    /// The operating point for a request whose computing is predicted to take so long at the nominal
    /// frequency and may take `time_ns`, and the time until it changes to the fastest.
    pub(super) fn choose(
        &self,
        predicted_ns: f64,
        time_ns: f64,
        points: &PointTable,
    ) -> (PointIndex, Option<f64>) {
        let fastest = (points.fastest(), None);
        let top = points.speed(points.fastest());
        let time_ns = time_ns - self.dvfs_delay.as_nanos() as f64;
        if time_ns <= 0.0 || predicted_ns >= top * time_ns {
            return fastest;
        }
        let point = points.at_least_speed(predicted_ns / time_ns);
        let speed = points.speed(point);
        let longest_ns = predicted_ns * (self.second_step * self.error).exp();
        if self.second_step == 0.0 || speed == top || longest_ns <= speed * time_ns {
            return (point, None);
        }
        let after_ns = (top * (time_ns - self.dvfs_delay.as_nanos() as f64) - longest_ns) / (top - speed);
        if after_ns > 0.0 { (point, Some(after_ns)) } else { fastest }
    }

    /// The prediction over the truth: lognormal, always the same for the same request.
    pub(super) fn factor(&self, request: &Request) -> f64 {
        // SplitMix64's output function over the request's time and length (Steele et al., OOPSLA 2014).
        let mixed = |seed: u64| {
            let step = |z: u64, shift: u32, by: u64| (z ^ (z >> shift)).wrapping_mul(by);
            let z = step(step(seed, 30, 0xbf58_476d_1ce4_e5b9), 27, 0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let seed = request.arrived.as_nanos().wrapping_mul(31).wrapping_add(request.compute.as_nanos());
        let (radius, angle) = (mixed(seed), mixed(seed ^ 0x9e37_79b9_7f4a_7c15));
        // Box and Muller 1958.
        let normal = (-2.0 * f64::ln(1.0 - radius)).sqrt() * (std::f64::consts::TAU * angle).cos();
        (self.error * normal).exp()
    }
}

#[derive(Clone, Copy, Default)]
struct Core {
    fastest_at: Option<Instant>,
    /// The review that is under way is for the second step.
    is_due: bool,
}

/// The policy of a server: predictions for requests as they begin, one target for all.
pub struct Server {
    params: Params,
    points: PointTable,
    budget: ErrorBudget,
    cores: Vec<Core>,
    decision: Option<Decision>,
    due: Option<Instant>,
}

/// Time between two corrections of the target.
const EPOCH: Duration = Duration::from_secs(1);

impl Server {
    fn new(making: &Making<'_>) -> Self {
        Self {
            params: making.params(),
            points: making.points(),
            budget: ErrorBudget::new(1.0),
            cores: vec![Core::default(); making.cpus()],
            decision: None,
            due: None,
        }
    }
}

impl Policy for Server {
    fn handle_timeout(&mut self, now: Instant, _: &Seen<'_>) {
        if self.due.take_if(|due| *due <= now).is_some() {
            self.budget.end_epoch(now, &self.params.terms());
        }
    }

    fn poll_decision(&mut self) -> Option<Decision> {
        self.decision.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

impl FrequencyPolicy for Server {
    fn watches(&self) -> Watch {
        Watch::Work
    }

    fn handle_start(
        &mut self,
        now: Instant,
        cpu: usize,
        request: &Request,
        _: PointIndex,
    ) -> Option<PointIndex> {
        let core = &mut self.cores[cpu];
        if std::mem::take(&mut core.is_due) {
            return Some(self.points.fastest());
        }
        let predicted_ns = request.compute.as_nanos() as f64 * self.params.factor(request);
        let target_ns = self.params.target.as_nanos() as f64 * self.budget.aim();
        let gone_ns = (now.since(request.arrived) + request.memory).as_nanos() as f64;
        let (point, after_ns) = self.params.choose(predicted_ns, target_ns - gone_ns, &self.points);
        core.fastest_at = after_ns.map(|after| now + Duration::from_nanos(after.max(1.0) as u64));
        self.decision = core.fastest_at.map(|at| Decision::Review { cpu: CpuId(cpu as u16), at });
        Some(point)
    }

    fn handle_completion(&mut self, now: Instant, cpu: usize, request: &Request) {
        self.cores[cpu] = Core::default();
        if self.params.budget_gain > 0.0 {
            self.budget.record(now.since(request.arrived), self.params.target);
            self.due.get_or_insert(now + EPOCH);
        }
    }

    fn handle_review(&mut self, now: Instant, cpu: usize) -> bool {
        let core = &mut self.cores[cpu];
        core.is_due = core.fastest_at.take_if(|at| *at == now).is_some();
        core.is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::points::tests::{nine_points, whole};
    use proptest::prelude::*;

    fn params(second_step: f64, error: f64) -> Params {
        Params { second_step, error, dvfs_delay: Duration::from_micros(5), ..Params::default() }
    }

    proptest! {
        #[test]
        fn a_request_ends_in_time_and_no_slower_frequency_would_do(
            predicted_us in 1.0_f64..1_000.0,
            time_us in -100.0_f64..1_000.0,
        ) {
            let points = nine_points();
            let (predicted_ns, time_ns) = (predicted_us * 1e3, time_us * 1e3);
            let (point, after) = params(0.0, 0.1).choose(predicted_ns, time_ns, &points);
            prop_assert_eq!(after, None);
            let in_time = |point| predicted_ns / points.speed(point) <= (time_ns - 5e3) * (1.0 + 1e-9);
            prop_assert!(in_time(point) || point == points.fastest());
            prop_assert!(points.iter().filter(|slower| *slower < point).all(|slower| !in_time(slower)));
        }

        #[test]
        fn with_the_second_step_so_does_the_longest_request(
            predicted_us in 1.0_f64..1_000.0,
            time_us in 10.0_f64..1_000.0,
            error in 0.01_f64..1.0,
        ) {
            let points = nine_points();
            let (predicted_ns, time_ns) = (predicted_us * 1e3, time_us * 1e3);
            let (point, after) = params(2.0, error).choose(predicted_ns, time_ns, &points);
            let longest_ns = predicted_ns * (2.0 * error).exp();
            let top = points.speed(points.fastest());
            // The second change takes effect after its delay.
            let slow_ns = after.map_or(0.0, |after| after + 5e3).min(time_ns - 5e3);
            let rest_ns = time_ns - 5e3 - slow_ns;
            let done_ns = match after {
                Some(_) => slow_ns * points.speed(point) + rest_ns * top,
                None => rest_ns * points.speed(point),
            };
            prop_assert!(done_ns >= longest_ns * (1.0 - 1e-9) || point == points.fastest());
        }
    }

    #[test]
    fn predictions_err_as_much_as_they_are_said_to() {
        let params = params(2.0, 0.2);
        let logs: Vec<f64> = (0..20_000)
            .map(|n| {
                let arrived = Instant::from_nanos(n * 7_919);
                let compute = Duration::from_nanos(10_000 + n % 97);
                let request = whole(arrived, compute);
                params.factor(&request).ln()
            })
            .collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let deviation = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / logs.len() as f64).sqrt();
        assert!(mean.abs() < 0.006 && (deviation - 0.2).abs() < 0.006, "{mean} {deviation}");
    }
}
