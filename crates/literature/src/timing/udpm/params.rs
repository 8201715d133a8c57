//! Every constant of uDPM, with its bounds and its source.

use super::super::{Form, reschedule, tails};
use machine::Duration;
use policy::check::Check;
use policy::registry::{Parameter, Surroundings, one_of, table, time};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    #[serde(with = "machine::duration_text")]
    pub goal: Duration,
    pub form: Form,
    #[serde(with = "machine::duration_text")]
    pub least_sleep: Duration,
    #[serde(with = "machine::duration_text")]
    pub switch: Duration,
    pub reschedule: reschedule::Params,
    pub tails: tails::Params,
}

impl Check for Params {
    const PARAMETERS: &'static [Parameter] = &[
        time("goal", "L: the tail of the response time that shall hold")
            .above_zero()
            .given("the goal")
            .source("the strictest goal of Peafowl, section 4.3"),
        one_of("form", "which deadline counts", &["exact", "published"])
            .source("ours; published is the authors' code"),
        time("least_sleep", "a frequency takes part only if it leaves more than this")
            .source("the authors' code"),
        time("switch", "what a change of frequency takes from the slack")
            .given("the machine")
            .source("Peafowl, section 4.3"),
        table("reschedule", "which core an arrival goes to", reschedule::Params::PARAMETERS),
        table("tails", "how service times are learned", tails::Params::PARAMETERS),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self {
            goal: Duration::from_micros(300),
            form: Form::Exact,
            least_sleep: Duration::from_micros(100),
            switch: Duration::from_micros(10),
            reschedule: reschedule::Params::default(),
            tails: tails::Params::default(),
        }
    }
}

impl Params {
    pub(super) fn around(around: &Surroundings<'_>, form: Form) -> Self {
        let plain = Self::default();
        Self {
            goal: around.latency_or(plain.goal),
            form,
            switch: around.frequency_switch_or(plain.switch),
            tails: tails::Params::around(around),
            ..plain
        }
    }
}
