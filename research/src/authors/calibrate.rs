//! The constants, out of the baselines' runs alone.
//!
//! **Work.** Of each baseline the simulator gets the arrivals and a first guess of the work by
//! number of keywords. For each number of keywords and each clock, quantiles of the simulated
//! response times stand beside those of the log. The work at each quantile is multiplied by a part
//! of their ratio, and the share of work that a faster clock does not shorten moves by the ratios'
//! slope over the clocks; and again, [`ROUNDS`] times. So queueing for the twelve threads and
//! waiting for the slowest shard are taken out of the times by the same rules that put them in. The
//! deviation of shards is the one of [`DEVIATIONS`] whose simulated mean times fit best.
//!
//! **Power.** With that work each baseline is simulated once more, for the share of time in which
//! any core is awake, A, and the mean number of awake cores, B. Let P be the measured power beyond
//! sleep and D = P / (1 + w P) the same without leakage; then D = a A + b B, with one b for each
//! clock and the same a and w everywhere: weighted least squares, w by a search. Operating points
//! between the measured clocks lie on the power law through their neighbours; a turbo clock on the
//! law through 2.6 GHz and turbo, whose b is taken to be that of its third bin, in which five to
//! eight cores are awake.
//!
//! A sleeping socket's 15.3 W are the authors' `db/nothing`: 27.5 kJ in 1,800 s, at every clock.

use super::constants::{
    BASE_KHZ, Bin, Constants, KEYWORDS_MAX, OperatingPoint, PROBABILITIES, TURBO_KHZ, Work,
};
use super::predicted::{Simulated, quantile, simulated};
use super::treatment::{Treatment, clock};
use super::{Arrival, Role, runs};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
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
}

const ASLEEP_WATTS: f64 = 15.3;
const DEVIATIONS: [f64; 3] = [0.1, 0.2, 0.4];
const ROUNDS: u64 = 12;
/// So many rounds come before the deviations are compared.
const ROUNDS_FIRST: u64 = 5;
/// Part of a ratio that each round takes over: noise of a round is averaged out.
const PART: f64 = 0.6;
/// So many queries of a number of keywords at a clock have quantiles.
const QUERIES_MIN: usize = 100;
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
    let mut best: Option<(f64, Constants)> = None;
    for deviation in DEVIATIONS {
        let mut constants = first_guess(&baselines, deviation);
        let misfit = fit_work(&baselines, &mut constants, 0..ROUNDS_FIRST)?;
        if best.as_ref().is_none_or(|best| misfit < best.0) {
            best = Some((misfit, constants));
        }
    }
    let Some((_, mut constants)) = best else { unreachable!("there are deviations") };
    fit_work(&baselines, &mut constants, ROUNDS_FIRST..ROUNDS)?;
    fit_power(&baselines, &mut constants)?;
    Ok(rounded(constants))
}

/// The same as the file in this repository has them.
pub fn calibrated_text(folder: &Path) -> Result<String> {
    Ok(format!("{ABOUT}{}", toml::to_string(&calibrated(folder)?)?))
}

const ABOUT: &str = "\
# Constants of the Hurry-up authors' machine and queries, from their baselines alone (fixed clocks;
# raijenki/elastic-hurryup, 2022-09-30). `roost-papers calibrate DIR` writes this file; calibrate.rs has
# the procedure.
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
        });
    }
    Ok(found)
}

/// Times of the logs, as if each were work at a clock of its own.
fn first_guess(baselines: &[Baseline], shard_cv: f64) -> Constants {
    let work = (1..=KEYWORDS_MAX).map(|keywords| {
        let mut times: Vec<f64> = Vec::new();
        for baseline in baselines {
            let scale = hertz(baseline.khz) / hertz(BASE_KHZ);
            times.extend(of(&baseline.observed, keywords).map(|ms| ms * scale * FIRST_GUESS));
        }
        times.sort_by(f64::total_cmp);
        let at = |&probability: &f64| quantile(&times, probability).max(MS_MIN);
        Work { keywords, memory: 0.1, ms: PROBABILITIES.iter().map(at).collect() }
    });
    let mut beyond: Vec<f64> = baselines.iter().map(|baseline| baseline.beyond_log_s).collect();
    beyond.sort_by(f64::total_cmp);
    let points =
        MEGAHERTZ.map(|megahertz| OperatingPoint { khz: megahertz * 1000, watts: megahertz as f64 / 1e3 });
    Constants {
        asleep_watts: ASLEEP_WATTS,
        awake_watts: 2.0 * ASLEEP_WATTS,
        warming: 0.0,
        shard_cv,
        beyond_log_s: quantile(&beyond, 0.5),
        point: points.to_vec(),
        turbo: BINS.map(|(cores, megahertz)| Bin { cores, khz: megahertz * 1000, watts: 5.0 }).to_vec(),
        work: work.collect(),
    }
}

/// Waiting takes about the rest of the times: a start for the rounds.
const FIRST_GUESS: f64 = 0.7;

fn of(times: &[(u32, f64)], keywords: u32) -> impl Iterator<Item = f64> + '_ {
    times.iter().filter(move |time| time.0 == keywords).map(|time| time.1)
}

/// The clock in GHz; of turbo the usual one.
fn hertz(khz: u64) -> f64 {
    if khz == TURBO_KHZ { BINS[TURBO_USUAL].1 as f64 / 1e3 } else { khz as f64 / 1e6 }
}

/// Rounds of the work's fit; the misfit of the last: the mean square of the logarithms of simulated
/// over measured mean times, over the runs.
fn fit_work(baselines: &[Baseline], constants: &mut Constants, rounds: std::ops::Range<u64>) -> Result<f64> {
    let mut misfit = f64::NAN;
    for round in rounds {
        let times = all(baselines, constants, round + 1..round + 2, |run| {
            run.counted(0.0).collect::<Vec<(u32, f64)>>()
        })?;
        let mean = |times: &[(u32, f64)]| times.iter().map(|time| time.1).sum::<f64>() / times.len() as f64;
        let square = |(baseline, times): (&Baseline, &Vec<(u32, f64)>)| {
            (mean(times) / mean(&baseline.observed)).ln().powi(2)
        };
        misfit = baselines.iter().zip(&times).map(square).sum::<f64>() / baselines.len() as f64;
        adjust(baselines, &times, constants);
    }
    Ok(misfit)
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

/// Ratios of logged to simulated times at the quantiles, by keywords and clock, in logarithms.
struct Ratios {
    keywords: u32,
    khz: u64,
    queries: f64,
    at: Vec<f64>,
}

fn adjust(baselines: &[Baseline], times: &[Vec<(u32, f64)>], constants: &mut Constants) {
    let mut groups: BTreeMap<(u32, u64), (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (baseline, times) in baselines.iter().zip(times) {
        for keywords in 1..=KEYWORDS_MAX {
            let group = groups.entry((keywords, baseline.khz)).or_default();
            group.0.extend(of(&baseline.observed, keywords));
            group.1.extend(of(times, keywords).map(|ms| ms.max(MS_MIN)));
        }
    }
    let mut ratios = Vec::new();
    for ((keywords, khz), (mut observed, mut found)) in groups {
        if observed.len() < QUERIES_MIN {
            continue;
        }
        observed.sort_by(f64::total_cmp);
        found.sort_by(f64::total_cmp);
        let at = |&probability: &f64| (quantile(&observed, probability) / quantile(&found, probability)).ln();
        let queries = observed.len() as f64;
        ratios.push(Ratios { keywords, khz, queries, at: PROBABILITIES.iter().map(at).collect() });
    }
    for group in MEMORY_GROUPS {
        let slope = slope(ratios.iter().filter(|ratios| group.contains(&ratios.keywords)), constants);
        for work in constants.work.iter_mut().filter(|work| group.contains(&work.keywords)) {
            work.memory = (work.memory + PART * slope).clamp(0.0, 0.9);
        }
    }
    for work in &mut constants.work {
        let here: Vec<&Ratios> = ratios.iter().filter(|ratios| ratios.keywords == work.keywords).collect();
        let queries: f64 = here.iter().map(|ratios| ratios.queries).sum();
        if queries == 0.0 {
            continue;
        }
        for (place, ms) in work.ms.iter_mut().enumerate() {
            let mean = here.iter().map(|ratios| ratios.queries * ratios.at[place]).sum::<f64>() / queries;
            *ms = (*ms * (PART * mean).exp()).max(MS_MIN / 2.0);
        }
        // A quantile does not fall.
        for place in 1..work.ms.len() {
            work.ms[place] = work.ms[place].max(work.ms[place - 1]);
        }
    }
}

/// Numbers of keywords that share a share of memory time: few queries have many keywords.
const MEMORY_GROUPS: [std::ops::RangeInclusive<u32>; 5] = [1..=1, 2..=2, 3..=3, 4..=6, 7..=KEYWORDS_MAX];

/// By how much the memory share has to rise for the ratios to be alike at all clocks: their
/// regression on the derivative of ln(m + (1 - m) f0 / f) by m.
fn slope<'a>(ratios: impl Iterator<Item = &'a Ratios>, constants: &Constants) -> f64 {
    let points: Vec<(f64, f64, f64)> = ratios
        .map(|ratios| {
            let (memory, slowness) =
                (constants.work(ratios.keywords).memory, hertz(BASE_KHZ) / hertz(ratios.khz));
            let derivative = (1.0 - slowness) / (memory + (1.0 - memory) * slowness);
            // The extremes are noise.
            let inner = &ratios.at[3..12];
            (ratios.queries, derivative, inner.iter().sum::<f64>() / inner.len() as f64)
        })
        .collect();
    let weight: f64 = points.iter().map(|point| point.0).sum();
    let mean = |of: fn(&(f64, f64, f64)) -> f64| {
        points.iter().map(|point| point.0 * of(point)).sum::<f64>() / weight
    };
    let (x, y) = (mean(|point| point.1), mean(|point| point.2));
    let across = points.iter().map(|point| point.0 * (point.1 - x) * (point.2 - y)).sum::<f64>();
    let square = points.iter().map(|point| point.0 * (point.1 - x).powi(2)).sum::<f64>();
    if square / weight > 1e-3 { across / square } else { 0.0 }
}

/// A baseline's share of time with an awake core and number of awake cores, beside its power.
struct Load {
    khz: u64,
    awake: f64,
    cores: f64,
    watts: f64,
}

fn fit_power(baselines: &[Baseline], constants: &mut Constants) -> Result<()> {
    let found = all(baselines, constants, 1..4, |run| {
        let covered = run.covered();
        vec![((1.0 - run.outcome.package_asleep) * covered, run.outcome.awake * covered)]
    })?;
    let load = |(baseline, found): (&Baseline, &Vec<(f64, f64)>)| {
        let mean = |of: fn(&(f64, f64)) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
        Load { khz: baseline.khz, awake: mean(|f| f.0), cores: mean(|f| f.1), watts: baseline.watts }
    };
    let loads: Vec<Load> = baselines.iter().zip(&found).map(load).collect();
    let mut clocks: Vec<u64> = loads.iter().map(|load| load.khz).collect();
    clocks.sort_unstable();
    clocks.dedup();
    // The misfit has one valley in w.
    let (mut low, mut high) = (0.0, 0.01);
    while high - low > 1e-5 {
        let thirds = [low + (high - low) / 3.0, high - (high - low) / 3.0];
        let misfits = thirds.map(|warming| powers(&loads, &clocks, warming).1);
        if misfits[0] < misfits[1] { high = thirds[1] } else { low = thirds[0] }
    }
    let warming = (low + high) / 2.0;
    let (watts, _) = powers(&loads, &clocks, warming);
    constants.warming = warming;
    constants.awake_watts = ASLEEP_WATTS + watts[0];
    let known: Vec<(f64, f64)> =
        clocks.iter().zip(&watts[1..]).map(|(khz, watts)| (hertz(*khz), watts.max(0.05))).collect();
    for point in &mut constants.point {
        point.watts = on_power_law(&known, hertz(point.khz));
    }
    for place in 1..constants.point.len() {
        constants.point[place].watts = constants.point[place].watts.max(constants.point[place - 1].watts);
    }
    for bin in &mut constants.turbo {
        bin.watts = on_power_law(&known, hertz(bin.khz));
    }
    Ok(())
}

/// Watts by which an awake socket is above its sleep, and of a core at each clock; and the mean
/// square of the relative errors.
fn powers(loads: &[Load], clocks: &[u64], warming: f64) -> (Vec<f64>, f64) {
    let count = clocks.len() + 1;
    let row = |load: &Load| {
        let beyond = load.watts - ASLEEP_WATTS;
        let cold = beyond / (1.0 + warming * beyond);
        // An error of D is one of P by (1 + w P) squared.
        let weight = (1.0 + warming * beyond).powi(2) / load.watts;
        let mut row = vec![0.0; count];
        row[0] = load.awake * weight;
        row[1 + clocks.iter().position(|khz| *khz == load.khz).unwrap_or(0)] = load.cores * weight;
        (row, cold * weight)
    };
    let rows: Vec<(Vec<f64>, f64)> = loads.iter().map(row).collect();
    let watts = least_squares(&rows, count);
    let error = |(row, wanted): &(Vec<f64>, f64)| {
        (row.iter().zip(&watts).map(|(x, watts)| x * watts).sum::<f64>() - wanted).powi(2)
    };
    let misfit = rows.iter().map(error).sum::<f64>() / rows.len() as f64;
    (watts, misfit)
}

/// The least squares of `rows`, by their normal equations and Gauss's elimination with pivots.
fn least_squares(rows: &[(Vec<f64>, f64)], count: usize) -> Vec<f64> {
    let mut system = vec![vec![0.0; count + 1]; count];
    for (row, wanted) in rows {
        for i in 0..count {
            for j in 0..count {
                system[i][j] += row[i] * row[j];
            }
            system[i][count] += row[i] * wanted;
        }
    }
    for column in 0..count {
        let pivot =
            (column..count).max_by(|a, b| system[*a][column].abs().total_cmp(&system[*b][column].abs()));
        system.swap(column, pivot.unwrap_or(column));
        let pivot = system[column].clone();
        for (_, row) in system.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = if pivot[column] == 0.0 { 0.0 } else { row[column] / pivot[column] };
            row.iter_mut().zip(&pivot).for_each(|(value, of_pivot)| *value -= factor * of_pivot);
        }
    }
    (0..count).map(|place| system[place][count] / system[place][place]).collect()
}

/// Watts at a clock on the power law through the two known ones around it, or the two nearest.
fn on_power_law(known: &[(f64, f64)], hertz: f64) -> f64 {
    if known.len() < 2 {
        return known.first().map_or(f64::NAN, |point| point.1);
    }
    let above = known.iter().position(|point| point.0 >= hertz).unwrap_or(known.len() - 1).max(1);
    let ((low, low_watts), (high, high_watts)) = (known[above - 1], known[above]);
    low_watts * (high_watts / low_watts).powf((hertz / low).ln() / (high / low).ln())
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
        round(&mut work.memory);
        work.ms.iter_mut().for_each(round);
    }
    constants
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_come_back_from_exact_loads() {
        // a = 20 W, b = 1 W and 6 W, w = 0.004 a watt.
        let load = |khz: u64, awake: f64, cores: f64| {
            let cold = 20.0 * awake + cores * if khz == 1_000_000 { 1.0 } else { 6.0 };
            Load { khz, awake, cores, watts: ASLEEP_WATTS + cold / (1.0 - 0.004 * cold) }
        };
        let loads = [
            load(1_000_000, 0.3, 1.5),
            load(1_000_000, 0.9, 10.0),
            load(BASE_KHZ, 0.2, 1.0),
            load(BASE_KHZ, 0.9, 8.0),
        ];
        let (watts, misfit) = powers(&loads, &[1_000_000, BASE_KHZ], 0.004);
        assert!(misfit < 1e-20, "{misfit}");
        for (found, wanted) in watts.iter().zip([20.0, 1.0, 6.0]) {
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
        assert!(powers(&loads, &[1_000_000, BASE_KHZ], 0.0).1 > 1e-6, "leakage is seen");
    }

    #[test]
    fn a_power_law_is_met_between_its_points_and_beyond() {
        let known = [(1.0, 1.0), (2.0, 4.0)];
        for (hertz, watts) in [(1.0, 1.0), (1.5, 2.25), (2.0, 4.0), (3.0, 9.0)] {
            assert!((on_power_law(&known, hertz) - watts).abs() < 1e-12);
        }
    }

    #[test]
    fn the_memory_share_moves_to_where_all_clocks_agree() {
        // Times that a share of 0.3 makes, looked at with 0.1: the slope is most of the way.
        let mut constants = first_guess(&[], 0.2);
        constants.work.iter_mut().for_each(|work| work.memory = 0.1);
        let ratio = |khz: u64| {
            let time = |memory: f64| memory + (1.0 - memory) * hertz(BASE_KHZ) / hertz(khz);
            Ratios {
                keywords: 4,
                khz,
                queries: 1e3,
                at: vec![(time(0.3) / time(0.1)).ln(); PROBABILITIES.len()],
            }
        };
        let ratios = [1_000_000, 1_700_000, BASE_KHZ, TURBO_KHZ].map(ratio);
        let slope = slope(ratios.iter(), &constants);
        assert!((slope - 0.2).abs() < 0.05, "{slope}");
    }
}
