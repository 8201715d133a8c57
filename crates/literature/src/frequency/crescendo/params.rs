//! Every constant of Crescendo.

use crate::frequency::rubik;
use machine::Microwatts;
use policy::check::Check;
use policy::registry::{Parameter, power, table};
use serde::{Deserialize, Serialize};

/// The constants of one Crescendo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    pub rubik: rubik::Params,
    pub asleep: Microwatts,
    pub shared: Microwatts,
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
    ];
}

impl Params {
    /// The quantile of work up to which a request is planned for; beyond it, it runs in the fastest gear.
    pub(super) fn quantile(&self) -> f64 {
        self.rubik.quantile()
    }
}
