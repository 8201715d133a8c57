//! Predicted beside measured: each run's errors, the spread of its replicates, and the bars.
//!
//! The prediction of all runs is made first, from arrivals alone; then the meters are read. An error
//! within the spread of the treatment's own replicates counts as none: half of the range from the least to
//! the greatest of them, by their mean. A treatment with one run has no spread.

use super::constants::Constants;
use super::predicted::{Predicted, predicted, quantile};
use super::treatment::Treatment;
use super::{Exclusion, Role, Run, in_parallel, runs};
use anyhow::Result;
use report::exit::usage;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub measured: f64,
    pub predicted: f64,
    /// The ratio of predicted to measured, less one.
    pub error: f64,
    /// Of the treatment's replicates, to either side.
    pub spread: f64,
}

impl Pair {
    /// The error that counts: none within the spread.
    pub fn counted(&self) -> f64 {
        if self.error.abs() <= self.spread { 0.0 } else { self.error.abs() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub run: String,
    /// The runs of one treatment and load.
    pub treatment: String,
    pub role: Role,
    pub power: Pair,
    pub p99: Pair,
    /// Share of time at another clock than measured: half of the sum of differences.
    pub clocks_off: f64,
    /// Predicted shares of time, by kHz.
    pub clocks: Vec<(u64, f64)>,
    pub measured_clocks: Vec<(u64, f64)>,
}

/// The errors of one figure over all runs that are judged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub median: f64,
    pub ninetieth: f64,
    pub median_bar: f64,
    pub ninetieth_bar: f64,
    /// The same of all errors, those within the spread too.
    pub raw_median: f64,
    pub raw_ninetieth: f64,
}

impl Judged {
    pub fn is_met(&self) -> bool {
        self.median <= self.median_bar && self.ninetieth <= self.ninetieth_bar
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    pub format: u32,
    /// The runs whose errors these are.
    pub judged: Role,
    pub power: Judged,
    pub p99: Judged,
    pub runs: Vec<Compared>,
    pub left_out: Vec<(String, Exclusion)>,
}

const POWER_BARS: (f64, f64) = (0.05, 0.12);
const P99_BARS: (f64, f64) = (0.10, 0.25);

impl Validation {
    pub fn is_met(&self) -> bool {
        self.power.is_met() && self.p99.is_met()
    }

    pub fn judged_runs(&self) -> impl Iterator<Item = &Compared> {
        self.runs.iter().filter(|run| run.role == self.judged)
    }
}

/// Each run of the folder that the rule does not leave out, simulated and compared; the errors are those
/// of the runs that are held out.
pub fn validated(folder: &Path, constants: &Constants) -> Result<Validation> {
    compared_of(folder, constants, Role::HeldOut)
}

/// The baselines alone: no other run is read. A change of the model may be judged by them.
pub fn validated_baselines(folder: &Path, constants: &Constants) -> Result<Validation> {
    compared_of(folder, constants, Role::Baseline)
}

/// The errors are those of the runs with this role. Without the ones that are held out nothing of them is
/// read.
fn compared_of(folder: &Path, constants: &Constants, judged_role: Role) -> Result<Validation> {
    let mut used: Vec<Run> = Vec::new();
    let mut left_out = Vec::new();
    for run in runs(folder)? {
        if judged_role == Role::Baseline && run.role() != judged_role {
            continue;
        }
        match run.exclusion()? {
            Some(why) => left_out.push((run.name, why)),
            None => used.push(run),
        }
    }
    if !used.iter().any(|run| run.role() == judged_role) {
        let role = super::list::role(judged_role);
        let problem = format!("{}: no run in it is a whole one that is {role}", folder.display());
        return Err(usage(problem + "\n\nhint: `roost-papers authors DIR` tells why each is left out"));
    }
    let predictions = in_parallel(&used, |run| predicted(constants, &Treatment::of(run)?, &run.arrivals()?))?;
    let compared = compared(&used, predictions);
    let of_role: Vec<&Compared> = compared.iter().filter(|run| run.role == judged_role).collect();
    let judged = |pair: fn(&Compared) -> Pair, bars: (f64, f64)| {
        let sorted = |of: &dyn Fn(Pair) -> f64| {
            let mut values: Vec<f64> = of_role.iter().map(|run| of(pair(run))).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (counted, raw) = (sorted(&|pair| pair.counted()), sorted(&|pair| pair.error.abs()));
        Judged {
            median: quantile(&counted, 0.5),
            ninetieth: quantile(&counted, 0.9),
            median_bar: bars.0,
            ninetieth_bar: bars.1,
            raw_median: quantile(&raw, 0.5),
            raw_ninetieth: quantile(&raw, 0.9),
        }
    };
    Ok(Validation {
        format: 1,
        judged: judged_role,
        power: judged(|run| run.power, POWER_BARS),
        p99: judged(|run| run.p99, P99_BARS),
        runs: compared,
        left_out,
    })
}

fn compared(runs: &[Run], predictions: Vec<Predicted>) -> Vec<Compared> {
    let mut groups: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for run in runs {
        let group = groups.entry(treatment(&run.name)).or_default();
        group.0.extend(run.measured.watts());
        group.1.extend(run.measured.p99_s);
    }
    let of = |(run, predicted): (&Run, Predicted)| {
        let (watts, tails) = &groups[treatment(&run.name)];
        let pair = |measured: f64, predicted: f64, replicates: &[f64]| Pair {
            measured,
            predicted,
            error: predicted / measured - 1.0,
            spread: spread(replicates),
        };
        let all = run.measured.seconds();
        let measured = |khz: u64| {
            let seconds = run.measured.seconds_at_khz.iter().find(|clock| u64::from(*clock.0) == khz);
            seconds.map_or(0.0, |clock| clock.1 / all)
        };
        let measured_clocks: Vec<(u64, f64)> =
            predicted.clocks.iter().map(|&(khz, _)| (khz, measured(khz))).collect();
        let apart =
            predicted.clocks.iter().zip(&measured_clocks).map(|(ours, theirs)| (ours.1 - theirs.1).abs());
        Compared {
            treatment: treatment(&run.name).to_owned(),
            role: run.role(),
            power: pair(run.measured.watts().unwrap_or(f64::NAN), predicted.watts, watts),
            p99: pair(run.measured.p99_s.unwrap_or(f64::NAN), predicted.p99_s, tails),
            clocks_off: apart.sum::<f64>() / 2.0,
            clocks: predicted.clocks,
            measured_clocks,
            run: run.name.clone(),
        }
    };
    runs.iter().zip(predictions).map(of).collect()
}

/// A run's name without the number of its replicate.
fn treatment(name: &str) -> &str {
    match name.rsplit_once(['/', '-']) {
        Some((rest, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => name,
    }
}

/// Half of the range by the mean.
fn spread(replicates: &[f64]) -> f64 {
    let least = replicates.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = replicates.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mean = replicates.iter().sum::<f64>() / replicates.len() as f64;
    if replicates.len() > 1 { (greatest - least) / 2.0 / mean } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicates_of_a_treatment_share_a_name() {
        for (name, wanted) in [
            ("governors/ondemand/high/1", "governors/ondemand/high"),
            ("final/hup-mod-calibrated-high-2", "final/hup-mod-calibrated-high"),
            ("final/hup-mod-calibrated-high", "final/hup-mod-calibrated-high"),
            ("c-states/ondemand-allstates/high/439", "c-states/ondemand-allstates/high"),
            ("c-states/ondemand-allstates/high-2", "c-states/ondemand-allstates/high"),
            ("sleep-sensitivity/low/5ms", "sleep-sensitivity/low/5ms"),
        ] {
            assert_eq!(treatment(name), wanted);
        }
    }

    #[test]
    fn an_error_within_the_spread_counts_for_none() {
        assert_eq!(spread(&[9.0, 10.0, 11.0]), 0.1);
        assert_eq!(spread(&[9.0]), 0.0);
        let pair = |error: f64| Pair { measured: 1.0, predicted: 1.0 + error, error, spread: 0.1 };
        assert_eq!((pair(0.1).counted(), pair(-0.1).counted()), (0.0, 0.0));
        assert_eq!((pair(0.11).counted(), pair(-0.2).counted()), (0.11, 0.2));
    }
}
