//! The figures of a run portion by portion, from which contestants are compared in pairs.

use super::Outcome;
use super::responses::asked;
use crate::engine::{End, Ended, Sample};
use crate::statistics::{Difference, Horizon, Portion, Portions, Quantity, Replications};
use std::collections::BTreeMap;

/// Names of the powers, as the figures of runs have them: of the cores alone.
pub(super) const CORES: &str = "core_watts";
/// Of the cores and the sockets beside them.
pub(super) const CPU: &str = "cpu_watts";
/// Of the whole server, with everything beside its sockets.
pub(super) const SERVER: &str = "server_watts";

/// The figures of response times that every run has, and those that this one was asked for.
fn quantities(ended: &Ended) -> Vec<Quantity> {
    let mut all = Quantity::SHOWN.to_vec();
    for quantity in asked(ended.setup()) {
        if !all.contains(&quantity) {
            all.push(quantity);
        }
    }
    all
}

/// Response times by batches of one steady run.
pub(super) fn responses(ended: &Ended) -> Option<Portions> {
    is_steady(ended).then_some(())?;
    ended.metrics().responses.portions(&quantities(ended))
}

/// Response times by replications of a story.
pub(super) fn responses_of_all(runs: &[Ended], all: &Replications) -> Option<Portions> {
    Some(all.portions(&quantities(runs.first()?)))
}

/// Stretches of a story differ for other reasons than chance.
fn is_steady(ended: &Ended) -> bool {
    ended.setup().horizon == Horizon::Steady && ended.end != End::Unstable
}

/// Power by stretches of one steady run, as its samples have them.
pub(super) fn power(ended: &Ended) -> Option<Portions> {
    is_steady(ended).then_some(())?;
    // The last one ends with the run.
    let length = ended.samples().next()?.length_ns;
    let whole: Vec<&Sample> = ended.samples().take_while(|sample| sample.length_ns == length).collect();
    let seconds = whole.iter().map(|sample| sample.length_ns as f64 * 1e-9).collect();
    let cores = whole.iter().map(|sample| sample.core_joules).collect();
    let cpu = whole.iter().map(|sample| sample.core_joules + ended.uncore_joules_of(sample)).collect();
    let totals = BTreeMap::from([(CORES.to_owned(), cores), (CPU.to_owned(), cpu)]);
    Portions::of_stretches(seconds, totals, CPU)
}

/// Replications of a story: watts of cores, uncore and rest in each.
pub(super) fn power_of_all(watts: &[[f64; 3]]) -> Portions {
    let figures = [
        (CORES, watts.iter().map(|watts| watts[0]).collect()),
        (CPU, watts.iter().map(|watts| watts[0] + watts[1]).collect()),
    ];
    Portions {
        portion: Portion::Replication,
        left_out: 0,
        weights: vec![1.0; watts.len()],
        figures: figures.into_iter().map(|(name, values)| (name.to_owned(), values)).collect(),
    }
}

impl Outcome {
    /// This run's mean or quantile less another contestant's, pair by pair, in nanoseconds. `None`
    /// where either is not known, or the two have not met the same chance: other seeds, a story and
    /// a steady run.
    pub fn response_difference(&self, reference: &Self, quantity: Quantity) -> Option<Difference> {
        let (ours, theirs) = (self.response_portions.as_ref()?, reference.response_portions.as_ref()?);
        self.has_met(reference).then(|| ours.difference(theirs, &quantity.to_string()))?
    }

    /// The same of a power: `core_watts`, `cpu_watts` (cores and uncore) or `server_watts`.
    pub fn power_difference(&self, reference: &Self, name: &str) -> Option<Difference> {
        let of = |run: &Self| {
            let portions = run.power_portions.clone()?;
            Some(portions.with_constant(CPU, run.power.rest_watts, SERVER))
        };
        self.has_met(reference).then(|| of(self)?.difference(&of(reference)?, name))?
    }

    fn has_met(&self, other: &Self) -> bool {
        self.seed == other.seed
    }
}
