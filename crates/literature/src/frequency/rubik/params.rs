use super::Server;
use machine::Duration;
use policy::check::Check;
use policy::kind::Make;
use policy::registry::{
    Entry, Parameter, Question, Surroundings, Word, count, list, number, quantile, settings, time,
};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("rubik", "by what the queue still needs, at every request", |around| {
        settings(Params::around(around))
    })],
    question: Question::Frequency,
    help: "At every arrival and completion a core takes the slowest frequency at which each request that \
           waits would still be in time, from learned distributions of what requests compute; feedback \
           from the measured tail corrects the target.",
    origin: "Rubik (Kasture et al., MICRO 2015), recalled; Peafowl, Figures 9 and 10",
    needs_goal: true,
    make: Make::Frequency(|making| Box::new(Server::new(making))),
    ..Entry::of::<Params>()
};

impl Params {
    /// The defaults, changed by a scenario's goal and machine.
    pub fn around(around: &Surroundings<'_>) -> Self {
        let plain = Self::default();
        Self {
            target: around.latency_or(plain.target),
            quantile: around.quantile_or(plain.quantile),
            dvfs_delay: around.frequency_switch_or(plain.dvfs_delay),
            ..plain
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub target: Duration,
    pub quantile: f64,
    #[serde(with = "machine::duration_text")]
    pub rebuild_every: Duration,
    #[serde(with = "machine::duration_text")]
    pub dvfs_delay: Duration,
    pub samples_min: u32,
    #[serde(with = "machine::duration_text")]
    pub feedback_every: Duration,
    pub proportional_gain: f64,
    pub integral_gain: f64,
    pub factor_bounds: [f64; 2],
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("target", "L: what response times shall stay within")
            .above_zero()
            .given("the goal")
            .source("the strictest of Peafowl's Figures 9 and 10"),
        quantile("quantile", "the share of requests that shall")
            .given("the goal")
            .source("as Peafowl's Figure 10 measures"),
        time("rebuild_every", "time between two rebuilds of the tables")
            .above_zero()
            .source("Rubik, recalled"),
        time("dvfs_delay", "T_dvfs: from asking for a frequency until it works")
            .given("the machine")
            .source("Peafowl, section 4.3"),
        count("samples_min", "requests that tables and the measured tail are made from")
            .above_zero()
            .source("ours: ten beyond a 99th percentile"),
        time("feedback_every", "the window of the feedback").above_zero().source("Rubik, recalled"),
        number("proportional_gain", "how much of the relative error L' moves at once")
            .within(0.0, 1.0)
            .source("ours; zero, with the other gain, switches feedback off"),
        number("integral_gain", "how much of it L' moves for good with each window")
            .within(0.0, 1.0)
            .source("ours: most of a bias is gone after ten"),
        list("factor_bounds", "least and most that L' may be, in L")
            .around_one()
            .source("ours: beyond, it is not the model that errs"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: Duration::from_micros(300),
            quantile: 0.99,
            rebuild_every: Duration::from_millis(100),
            dvfs_delay: Duration::from_micros(10),
            samples_min: 1_000,
            feedback_every: Duration::from_secs(1),
            proportional_gain: 0.1,
            integral_gain: 0.2,
            factor_bounds: [0.5, 1.5],
        }
    }
}

impl Params {
    /// The quantile, where tables can be made for it.
    pub(in crate::frequency) fn quantile(&self) -> f64 {
        // A value that is no number asks for the most.
        if self.quantile.is_nan() { MOST_QUANTILE } else { self.quantile.clamp(0.5, MOST_QUANTILE) }
    }
}

/// Beyond it a window of a second has too few misses to speak of, on any machine.
const MOST_QUANTILE: f64 = 0.9999;
