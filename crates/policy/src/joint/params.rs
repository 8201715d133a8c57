//! Every constant of the policy, and the registry entries.

use super::model::Siblings;
use super::{Scheduler, Server};
use crate::Scheduling;
use crate::check::Check;
use crate::error_budget::Terms;
use crate::kind::{Make, Placed, Placement};
use crate::peafowl;
use crate::registry::{
    Entry, Maturity, Parameter, Question, Queues, Runs, Surroundings, Word, count, flag, list, number,
    one_of, quantile, settings, share, time,
};
use machine::Duration;
use serde::{Deserialize, Serialize};

pub static ENTRY: Entry = Entry {
    words: &[
        Word::new(
            "joint",
            "all three together; frequencies request by request as `crescendo` where no connections are packed",
            |around| {
                let paced_elsewhere = !around.queues.are_of_connections();
                settings(Params { paced_elsewhere, ..Params::around(around) })
            },
        ),
        Word::new("joint-plan", "the same, with the frequencies of its plan alone", |around| {
            settings(Params::around(around))
        }),
    ],
    also: &[Question::Idle],
    unless_named: &[Question::Frequency],
    help: "As few awake cores, as slow a clock and as deep a sleep as the latency goal allows, chosen \
           together. A queueing model predicts tail and power of every plan from what was measured; the \
           plan of least power within the goal is taken, and more cores wake within microseconds when the \
           queue says that the goal is in danger.",
    origin: "ours; Peafowl, section 6, names the combination as future work",
    needs_goal: true,
    make: Make::Placement(Placement {
        place: |_, workers| Placed {
            scheduling: Scheduling::counted(workers),
            params: peafowl::Params::default(),
        },
        cores: Some(|making| Box::new(Server::new(making))),
        is_counted: true,
    }),
    ..Entry::of::<Params>()
};

/// The same for drivers whose workers count their requests, as the registry lists it.
pub static STORE_ENTRY: Entry = Entry {
    words: &[Word::new(
        "joint-store",
        "from the counts of a store's workers, as `roost serve --policy joint`",
        |around| settings(Params { graded: false, ..Params::around(around) }),
    )],
    help: "The plan of `joint` for a store: on how few workers the connections are, and how deep these may \
           sleep. The workers count how long requests kept them and how long each took; once an epoch the \
           counts make the next plan. A jump of the load is seen by the queue that it makes at a worker. \
           Needs dispatch = \"connections\". The clock is another policy's: `queueing`, `graded`, \
           `paced_elsewhere`, `dvfs_delay` and the epochs have no effect.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "ours",
    needs_goal: true,
    make: Make::Placement(Placement {
        place: |making, workers| {
            let point = *making.platform.frequencies.points.last().expect("a checked platform has some");
            let scheduler = Scheduler::new(making.params(), workers, point, &making.states());
            Placed { scheduling: Scheduling::Joint(Box::new(scheduler)), params: peafowl::Params::default() }
        },
        cores: None,
        is_counted: false,
    }),
    ..Entry::of::<Params>()
};

impl Params {
    fn around(around: &Surroundings<'_>) -> Self {
        let plain = Self::default();
        Self {
            target: around.latency_or(plain.target),
            quantile: around.quantile_or(plain.quantile),
            dvfs_delay: around.frequency_switch_or(plain.dvfs_delay),
            queueing: match around.queues {
                Queues::Shared | Queues::Stolen => Queueing::Shared,
                Queues::PerCore | Queues::Connections => Queueing::PerCore,
            },
            whole_cores: around.platform.map_or(plain.whole_cores, |of| of.sockets * of.cores_per_socket),
            shared_speed: around.platform.map_or(plain.shared_speed, |of| of.shared_thread_speed),
            ..plain
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queueing {
    /// One queue for all active cores.
    #[default]
    Shared,
    /// Each active core has its own, and a request goes to one of them whatever is queued there.
    PerCore,
}

/// The aims of the policy, and how it learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub target: Duration,
    pub quantile: f64,
    pub queueing: Queueing,
    pub graded: bool,
    pub aim: f64,
    pub budget_gain: f64,
    #[serde(with = "machine::duration_text")]
    pub budget_window: Duration,
    pub aims: [f64; 2],
    #[serde(with = "machine::duration_text")]
    pub epoch: Duration,
    #[serde(with = "machine::duration_text")]
    pub epoch_after_jump: Duration,
    pub paced_elsewhere: bool,
    pub samples_min: u32,
    #[serde(with = "machine::duration_text")]
    pub dvfs_delay: Duration,
    pub rate_z: f64,
    pub correction_gains: [f64; 2],
    pub correction_bounds: [f64; 2],
    #[serde(with = "machine::duration_text")]
    pub peak_half_life: Duration,
    pub worth_changing: f64,
    pub whole_cores: u16,
    pub shared_speed: f64,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("target", "the time that responses shall stay within")
            .above_zero()
            .given("the goal")
            .source("the strictest goal of Peafowl, section 4.3"),
        quantile("quantile", "the share of requests that shall")
            .given("the goal")
            .source("Peafowl, section 4.3"),
        one_of("queueing", "how requests get to cores", &["shared", "per_core"]).given("the dispatch"),
        flag("graded", "frequencies may follow the number of requests at each event")
            .source("ours; of no effect where each core has its queue and no other policy sets the pace"),
        number("aim", "plans are made for this share of the target")
            .above_zero_to(1.0)
            .source("ours: the rest is for the errors of a model before it has been corrected"),
        share(
            "budget_gain",
            "how much of the error budget that is left, or overspent, moves the aim at once",
        )
        .source("ours; 0 keeps the aim"),
        time("budget_window", "the time over which the misses are to be those that the goal allows")
            .above_zero()
            .source("ours"),
        list("aims", "least and most that the aim may be, in targets").around_one().source("ours"),
        time("epoch", "time between two plans")
            .at_least(Duration::from_micros(100))
            .source("as Rubik's tables: some thousand requests at the papers' rates"),
        time("epoch_after_jump", "time to the next plan after a jump of the load")
            .above_zero()
            .source("ours: four hundred requests at 80 kRPS"),
        flag("paced_elsewhere", "another policy chooses frequencies and spends the rest of the goal")
            .given("the dispatch")
            .source("ours: a measured tail beyond the plan's then says nothing of its model"),
        count("samples_min", "requests that the first plan is made from")
            .above_zero()
            .source("ours: five beyond a 99th percentile"),
        time("dvfs_delay", "from asking for a frequency until it works")
            .given("the machine")
            .source("Peafowl, section 4.3"),
        number("rate_z", "plans are made for the rate and so many standard deviations of its estimate")
            .source("ours"),
        list("correction_gains", "how much of a longer, and of a shorter, tail is believed at once")
            .within(0.0, 1.0)
            .source("ours: quick to give up savings, slow to take them; zeros switch it off"),
        list("correction_bounds", "least and most that a measured tail may be, in predicted ones")
            .around_one()
            .source("ours: beyond, it is not the model that errs"),
        time("peak_half_life", "for how long a peak of the load counts by half").above_zero().source("ours"),
        share("worth_changing", "another plan must save this share of the power").source("ours"),
        count("whole_cores", "CPUs that have a core to themselves; the others are their siblings")
            .above_zero()
            .given("the machine"),
        share("shared_speed", "a CPU's speed while its sibling works too")
            .above_zero_to(1.0)
            .given("the machine"),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: Duration::from_micros(300),
            quantile: 0.99,
            queueing: Queueing::Shared,
            graded: true,
            aim: 0.95,
            budget_gain: 0.1,
            budget_window: Duration::from_secs(60),
            aims: [0.5, 1.2],
            epoch: Duration::from_millis(100),
            epoch_after_jump: Duration::from_millis(5),
            paced_elsewhere: false,
            samples_min: 500,
            dvfs_delay: Duration::from_micros(10),
            rate_z: 2.0,
            correction_gains: [0.3, 0.1],
            correction_bounds: [0.7, 2.5],
            peak_half_life: Duration::from_secs(10),
            worth_changing: 0.01,
            whole_cores: u16::MAX,
            shared_speed: 1.0,
        }
    }
}

impl Params {
    pub(super) fn siblings(&self) -> Siblings {
        Siblings { whole_cores: self.whole_cores, shared_speed: self.shared_speed }
    }

    pub(super) fn terms(&self) -> Terms {
        Terms {
            target: self.target,
            missable: 1.0 - self.quantile(),
            gain: self.budget_gain,
            aims: self.aims,
            window: self.budget_window,
        }
    }

    /// The quantile, where a tail can be measured.
    pub(super) fn quantile(&self) -> f64 {
        // A value that is no number asks for the most.
        if self.quantile.is_nan() { MOST_QUANTILE } else { self.quantile.clamp(0.5, MOST_QUANTILE) }
    }

    pub(super) fn epoch(&self) -> Duration {
        self.epoch.max(LEAST_EPOCH)
    }

    pub(super) fn epoch_after_jump(&self) -> Duration {
        self.epoch_after_jump.min(self.epoch).max(LEAST_EPOCH)
    }

    /// The tail to be expected where the model says this one: another policy that chooses operating
    /// points spends the rest of the goal.
    pub(super) fn expected_ns(&self, modelled_ns: f64) -> f64 {
        if self.paced_elsewhere { modelled_ns.max(self.target_ns()) } else { modelled_ns }
    }

    pub(super) fn target_ns(&self) -> f64 {
        self.target.as_nanos() as f64
    }
}

/// Beyond it, no window of reasonable length has misses to speak of.
const MOST_QUANTILE: f64 = 0.9999;

/// A timer that is due at once would leave no time for anything else.
const LEAST_EPOCH: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_paces_elsewhere_is_expected_to_spend_the_goal_and_no_more() {
        let params = Params { target: Duration::from_micros(300), ..Params::default() };
        assert_eq!([100e3, 400e3].map(|modelled_ns| params.expected_ns(modelled_ns)), [100e3, 400e3]);
        let paced = Params { paced_elsewhere: true, ..params };
        assert_eq!([100e3, 400e3].map(|modelled_ns| paced.expected_ns(modelled_ns)), [300e3, 400e3]);
    }
}
