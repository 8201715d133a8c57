//! Every constant of Crescendo.

use crate::check::{Check, Wrong};
use crate::frequency::rubik;
use machine::Microwatts;
use serde::{Deserialize, Serialize};

/// The constants of one Crescendo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Goal, windows and feedback, and what is done for requests that wait.
    pub rubik: rubik::Params,
    /// What a core draws that has nothing to do, in microwatts: that of the state in which it waits. A stay is priced
    /// by what it draws beyond.
    pub asleep: Microwatts,
    /// What the rest of the machine draws, in microwatts, only because a core is awake: uncore, less what the package
    /// draws asleep.
    pub shared: Microwatts,
}

impl Params {
    /// The quantile of work up to which a request is planned for; beyond it, it runs in the fastest gear.
    pub(super) fn quantile(&self) -> f64 {
        self.rubik.quantile()
    }
}

impl Check for Params {
    fn check(&self) -> Result<(), Wrong> {
        self.rubik.check().map_err(|wrong| wrong.below("rubik"))
    }
}
