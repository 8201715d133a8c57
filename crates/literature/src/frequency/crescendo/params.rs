use super::Server;
use crate::frequency::rubik;
use machine::{Duration, Microwatts};
use policy::check::Check;
use policy::error_budget::Terms;
use policy::kind::Make;
use policy::registry::{Entry, Parameter, Question, Queues, Word, power, settings, share, table, time};
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[Word::new("crescendo", "as `rubik`, and each request faster the longer it stays", |around| {
        let mut params = Params { rubik: rubik::Params::around(around), ..Params::default() };
        if let Some(platform) = around.platform {
            // Where connections are packed, active cores wait in their shallowest state; others in
            // their deepest.
            let states = &platform.cstates.0;
            let packed = around.queues == Queues::Connections;
            let waits = if packed { states.first() } else { states.last() };
            params.asleep = waits.and_then(|state| state.power).unwrap_or_default();
            // Nothing is saved where the package never sleeps.
            params.shared = platform.package.map_or(Microwatts(0), |package| {
                Microwatts(platform.uncore.0.saturating_sub(package.power.0))
            });
            params.package_after = platform
                .package
                .map_or(Duration::ZERO, |package| states[usize::from(package.from_state)].target_residency);
        }
        settings(params)
    })],
    question: Question::Frequency,
    help: "A request begins slowly and gains speed the longer it stays, along the schedule of least energy \
           with which the longest request that the goal speaks of would still be in time. A core is faster \
           where others wait for it, and where few others share the power of the package.",
    origin: "ours, after PACE and Rubik",
    needs_goal: true,
    make: Make::Frequency(|making| Box::new(Server::new(making))),
    ..Entry::of::<Params>()
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub rubik: rubik::Params,
    pub asleep: Microwatts,
    pub shared: Microwatts,
    #[serde(with = "machine::duration_text")]
    pub package_after: Duration,
    pub budget_gain: f64,
    #[serde(with = "machine::duration_text")]
    pub budget_window: Duration,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        table(
            "rubik",
            "goal, windows, feedback, and what is done for requests that wait",
            rubik::Params::PARAMETERS,
        ),
        power("asleep", "what a core draws that has nothing to do").given("the machine"),
        power("shared", "what the rest of the machine draws only because a core is awake")
            .given("the machine"),
        time("package_after", "the package sleeps in gaps between requests of so much")
            .given("the machine"),
        share(
            "budget_gain",
            "how much of the error budget that is left, or overspent, moves the target at once; 0 has Rubik's \
             feedback instead",
        )
        .source("ours"),
        time("budget_window", "the time over which the misses are to be those that the goal allows")
            .above_zero()
            .source("ours"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            rubik: rubik::Params::default(),
            asleep: Microwatts(0),
            shared: Microwatts(0),
            package_after: Duration::ZERO,
            budget_gain: 0.5,
            budget_window: Duration::from_secs(60),
        }
    }
}

impl Params {
    /// Rubik's, without its feedback where the budget takes its place.
    pub(super) fn rubik(&self) -> rubik::Params {
        match self.budget_gain > 0.0 {
            true => rubik::Params { proportional_gain: 0.0, integral_gain: 0.0, ..self.rubik },
            false => self.rubik,
        }
    }

    pub(super) fn terms(&self) -> Terms {
        Terms {
            target: self.rubik.target,
            missable: 1.0 - self.quantile(),
            gain: self.budget_gain,
            aims: self.rubik.factor_bounds,
            window: self.budget_window,
        }
    }

    /// The quantile of work up to which a request is planned for; beyond it, it runs in the fastest
    /// operating point.
    pub(super) fn quantile(&self) -> f64 {
        self.rubik.quantile()
    }
}
