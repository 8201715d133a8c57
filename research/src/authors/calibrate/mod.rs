//! The constants, out of the baselines' runs alone.
//!
//! `work` fits the work of queries, `power` the watts that the machine takes for it. The authors took their
//! baselines in two campaigns: `mixed`, `high` and `low` with eight clients in runs of 660 s, and
//! `governors` with four in runs of 1,260 s. Each has work of its own, fitted alone: a query of seven
//! keywords has half as much in the first as in the second (medians of 70 and 140 ms at 2.6 GHz), and
//! no mechanism that was tried makes one of the other. All runs that are held out have the second's four
//! clients, or three times as many, and its scripts, so the constants have its work, and for numbers of
//! keywords that it has not the first's. Powers are fitted over both, each run with the work of its own
//! campaign.

mod power;
mod work;

use super::constants::{BASE_KHZ, Bin, Constants, KEYWORDS_MAX, OperatingPoint, TURBO_KHZ, Work};
use super::predicted::{Simulated, simulated};
use super::treatment::{Treatment, clock};
use super::{Arrival, Role, runs};
use anyhow::{Result, ensure};
use power::Load;
use std::path::Path;

/// A baseline, as the fit needs it.
struct Baseline {
    treatment: Treatment,
    khz: u64,
    arrivals: Vec<Arrival>,
    /// Keywords and milliseconds of each query.
    observed: Vec<(u32, f64)>,
    watts: f64,
    beyond_log_s: f64,
    /// It is of the campaign with four clients.
    is_second: bool,
}

const ASLEEP_WATTS: f64 = 15.3;
/// The folder of the campaign with four clients.
const SECOND: &str = "governors/";
const DEVIATIONS: [f64; 4] = [0.05, 0.1, 0.2, 0.4];
const ROUNDS: u64 = 16;
/// So many rounds come before the deviations are compared.
const ROUNDS_FIRST: u64 = 6;
/// Times below this are below the log's resolution, in milliseconds.
const MS_MIN: f64 = 0.5;
/// The turbo clock that most of the baselines' work at turbo has: five to eight awake cores.
const TURBO_USUAL: usize = 2;
/// `cpufreq`'s clocks of this processor, as the table of runs names them, in MHz.
const MEGAHERTZ: [u64; 15] =
    [1000, 1100, 1200, 1300, 1500, 1600, 1700, 1800, 1900, 2000, 2100, 2300, 2400, 2500, 2600];
/// Intel, Xeon Processor Scalable Family Specification Update (336065): turbo without AVX.
const BINS: [(u16, u64); 4] = [(2, 3700), (4, 3500), (8, 3400), (12, 3300)];

/// The constants that follow from the baselines of a folder.
pub fn calibrated(folder: &Path) -> Result<Constants> {
    let baselines = baselines(folder)?;
    ensure!(!baselines.is_empty(), "{}: no baseline in it", folder.display());
    let (second, first): (Vec<Baseline>, Vec<Baseline>) =
        baselines.into_iter().partition(|baseline| baseline.is_second);
    let campaigns: Vec<Vec<Baseline>> =
        [first, second].into_iter().filter(|campaign| !campaign.is_empty()).collect();
    let mut best: Option<(f64, Vec<Constants>)> = None;
    for deviation in DEVIATIONS {
        let mut misfit = 0.0;
        let mut fitted = Vec::new();
        for campaign in &campaigns {
            let mut constants = start(campaign, deviation);
            misfit += work::fit(campaign, &mut constants, 0..ROUNDS_FIRST)? * campaign.len() as f64;
            fitted.push(constants);
        }
        if best.as_ref().is_none_or(|best| misfit < best.0) {
            best = Some((misfit, fitted));
        }
    }
    let Some((_, mut fitted)) = best else { unreachable!("there are deviations") };
    let mut loads: Vec<Load> = Vec::new();
    for (campaign, constants) in campaigns.iter().zip(&mut fitted) {
        work::fit(campaign, constants, ROUNDS_FIRST..ROUNDS)?;
        loads.extend(power::loads(campaign, constants)?);
    }
    let mut constants = merged(&campaigns, fitted);
    power::fit(&loads, &mut constants);
    Ok(rounded(constants))
}

/// The same as the file in this repository has them.
pub fn calibrated_text(folder: &Path) -> Result<String> {
    Ok(format!("{ABOUT}{}", toml::to_string(&calibrated(folder)?)?))
}

const ABOUT: &str = "\
# Constants of the Hurry-up authors' machine and queries, from their baselines alone (fixed clocks;
# raijenki/elastic-hurryup, 2022-09-30). `roost-papers calibrate DIR` writes this file; the folder
# calibrate has the procedure.
";

fn baselines(folder: &Path) -> Result<Vec<Baseline>> {
    let mut found = Vec::new();
    for run in runs(folder)? {
        if run.role() != Role::Baseline || run.exclusion()?.is_some() {
            continue;
        }
        let Some(watts) = run.measured.watts() else { continue };
        let work = run.work()?;
        let last_s = work.iter().map(|query| query.start_ms).max().unwrap_or(0) as f64 / 1e3;
        found.push(Baseline {
            treatment: Treatment::of(&run)?,
            khz: clock(&run.measured)?,
            arrivals: run.arrivals()?,
            observed: work
                .iter()
                .map(|query| (query.keywords.clamp(1, KEYWORDS_MAX), (query.service_ms as f64).max(MS_MIN)))
                .collect(),
            watts,
            beyond_log_s: run.measured.seconds() - last_s,
            is_second: run.name.starts_with(SECOND),
        });
    }
    Ok(found)
}

/// The constants before the first round.
fn start(campaign: &[Baseline], shard_cv: f64) -> Constants {
    let mut beyond: Vec<f64> = campaign.iter().map(|baseline| baseline.beyond_log_s).collect();
    beyond.sort_by(f64::total_cmp);
    let points =
        MEGAHERTZ.map(|megahertz| OperatingPoint { khz: megahertz * 1000, watts: megahertz as f64 / 1e3 });
    Constants {
        asleep_watts: ASLEEP_WATTS,
        awake_watts: 2.0 * ASLEEP_WATTS,
        warming: 0.0,
        shard_cv,
        beyond_log_s: super::predicted::quantile(&beyond, 0.5),
        point: points.to_vec(),
        turbo: BINS.map(|(cores, megahertz)| Bin { cores, khz: megahertz * 1000, watts: 5.0 }).to_vec(),
        work: work::first_guess(campaign),
    }
}

/// The constants of the last campaign, with the work of the one before it where the last has none.
fn merged(campaigns: &[Vec<Baseline>], fitted: Vec<Constants>) -> Constants {
    let mut all = fitted.into_iter().zip(campaigns);
    let Some((mut constants, _)) = all.next() else { unreachable!("there is a campaign") };
    for (later, campaign) in all {
        let work: Vec<Work> = constants
            .work
            .iter()
            .zip(&later.work)
            .map(|(old, new)| if work::has(campaign, new.keywords) { new.clone() } else { old.clone() })
            .collect();
        constants = Constants { work, ..later };
    }
    constants
}

fn of(times: &[(u32, f64)], keywords: u32) -> impl Iterator<Item = f64> + '_ {
    times.iter().filter(move |time| time.0 == keywords).map(|time| time.1)
}

/// The clock in GHz; of turbo the usual one.
fn hertz(khz: u64) -> f64 {
    if khz == TURBO_KHZ { BINS[TURBO_USUAL].1 as f64 / 1e3 } else { khz as f64 / 1e6 }
}

/// The time that work of one unit at 2.6 GHz takes at a clock, by the clock alone.
fn slowness(khz: u64) -> f64 {
    hertz(BASE_KHZ) / hertz(khz)
}

/// The results of a function for each baseline's simulations, those of all seeds together.
fn all<T: Send + Extend<I> + IntoIterator<Item = I> + Default, I>(
    baselines: &[Baseline],
    constants: &Constants,
    seeds: std::ops::Range<u64>,
    made: impl Fn(&Simulated) -> T + Sync,
) -> Result<Vec<T>> {
    super::in_parallel(baselines, |baseline| {
        let mut result = T::default();
        for seed in seeds.clone() {
            result.extend(made(&simulated(constants, &baseline.treatment, &baseline.arrivals, seed)?));
        }
        Ok(result)
    })
}

/// Four digits are more than the runs can tell.
fn rounded(mut constants: Constants) -> Constants {
    let round = |value: &mut f64| {
        if *value > 0.0 {
            let scale = 10f64.powf(3.0 - value.log10().floor());
            *value = (*value * scale).round() / scale;
        }
    };
    let Constants { awake_watts, warming, beyond_log_s, point, turbo, work, .. } = &mut constants;
    [awake_watts, warming, beyond_log_s].into_iter().for_each(round);
    point.iter_mut().for_each(|point| round(&mut point.watts));
    turbo.iter_mut().for_each(|bin| round(&mut bin.watts));
    for work in work {
        round(&mut work.memory_ms);
        work.ms.iter_mut().for_each(round);
    }
    constants
}
