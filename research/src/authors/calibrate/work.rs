//! The work of queries, by number of keywords.
//!
//! Of each baseline the simulator gets the arrivals and a first guess of the work. For each number of
//! keywords and each clock, quantiles of the simulated response times stand beside those of the log. The
//! work at each quantile is multiplied by a part of their ratio, and the time of it that no clock
//! shortens moves by the ratios' slopes over the clocks; and again, so many rounds. So queueing for the
//! twelve threads and waiting for the slowest shard are taken out of the times by the same rules that put
//! them in. The deviation of shards is the one whose simulated percentiles fit best.
//!
//! *The time that no clock shortens* is an amount with a bound, and not a share: of work x it is
//! M (1 - exp(-x / M)), nearly all of little work and hardly more than M of much. The logs of four keywords
//! tell the two apart. From 1.0 GHz to turbo their response times fall by a fifth at the tenth percentile,
//! to a half in the median and to a third at the 99th. One share for all lengths, as this fit had before,
//! is too little for the short ones and too much for the long ones, which set the tail.

use super::{Baseline, Constants, MS_MIN, Work, all, of, slowness};
use crate::authors::constants::{KEYWORDS_MAX, PROBABILITIES};
use crate::authors::predicted::quantile;
use anyhow::Result;
use std::collections::BTreeMap;

/// Part of a ratio that each round takes over: noise of a round is averaged out.
const PART: f64 = 0.6;
/// So many queries of a number of keywords at a clock have quantiles.
const QUERIES_MIN: usize = 100;
/// Waiting takes about the rest of the times: a start for the rounds.
const FIRST_GUESS: f64 = 0.7;
/// The bound of memory time before the first round, and its least and its greatest, in milliseconds.
const MEMORY_START_MS: f64 = 5.0;
const MEMORY_MS: (f64, f64) = (0.01, 200.0);
/// Numbers of keywords that share a memory time: few queries have many keywords.
const MEMORY_GROUPS: [std::ops::RangeInclusive<u32>; 5] = [1..=1, 2..=2, 3..=3, 4..=6, 7..=KEYWORDS_MAX];
/// The percentiles of a run by which deviations of shards are compared.
const COMPARED: [f64; 3] = [0.5, 0.9, 0.99];

/// Times of the logs, as if each were work at a clock of its own.
pub(super) fn first_guess(baselines: &[Baseline]) -> Vec<Work> {
    let work = |keywords| {
        let mut times: Vec<f64> = Vec::new();
        for baseline in baselines {
            let scale = FIRST_GUESS / slowness(baseline.khz);
            times.extend(of(&baseline.observed, keywords).map(|ms| ms * scale));
        }
        times.sort_by(f64::total_cmp);
        let at = |&probability: &f64| quantile(&times, probability).max(MS_MIN);
        Work { keywords, memory_ms: MEMORY_START_MS, ms: PROBABILITIES.iter().map(at).collect() }
    };
    (1..=KEYWORDS_MAX).map(work).collect()
}

/// These baselines have enough queries of so many keywords.
pub(super) fn has(baselines: &[Baseline], keywords: u32) -> bool {
    baselines.iter().map(|baseline| of(&baseline.observed, keywords).count()).sum::<usize>() >= QUERIES_MIN
}

/// Rounds of the fit; the misfit of the last: the mean square of the logarithms of simulated over
/// measured percentiles, over the runs.
pub(super) fn fit(
    baselines: &[Baseline],
    constants: &mut Constants,
    rounds: std::ops::Range<u64>,
) -> Result<f64> {
    let mut misfit = f64::NAN;
    for round in rounds {
        let times = all(baselines, constants, round + 1..round + 2, |run| {
            run.counted(0.0).collect::<Vec<(u32, f64)>>()
        })?;
        let squares = baselines.iter().zip(&times).map(|(baseline, times)| apart(&baseline.observed, times));
        misfit = squares.sum::<f64>() / baselines.len() as f64;
        adjust(baselines, &times, constants);
    }
    Ok(misfit)
}

/// The mean square of the logarithms of the ratios of two runs' percentiles.
fn apart(observed: &[(u32, f64)], found: &[(u32, f64)]) -> f64 {
    let sorted = |times: &[(u32, f64)]| {
        let mut times: Vec<f64> = times.iter().map(|time| time.1).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (observed, found) = (sorted(observed), sorted(found));
    let square = |&at: &f64| (quantile(&found, at) / quantile(&observed, at)).ln().powi(2);
    COMPARED.iter().map(square).sum::<f64>() / COMPARED.len() as f64
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
        let here: Vec<&Ratios> = ratios.iter().filter(|ratios| group.contains(&ratios.keywords)).collect();
        let step = memory_step(&here, constants);
        for work in constants.work.iter_mut().filter(|work| group.contains(&work.keywords)) {
            let step = (PART * step).clamp(-0.5 * work.memory_ms, work.memory_ms);
            work.memory_ms = (work.memory_ms + step).clamp(MEMORY_MS.0, MEMORY_MS.1);
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

/// By how many milliseconds the bound of memory time has to rise for the ratios to be alike at all
/// clocks: the regression, within each number of keywords and quantile, of ratios on the derivative of
/// ln(m + (1 - m) f0 / f) by the bound, m the share of memory time.
fn memory_step(ratios: &[&Ratios], constants: &Constants) -> f64 {
    let (mut across, mut square) = (0.0, 0.0);
    for work in &constants.work {
        for (place, ms) in work.ms.iter().enumerate() {
            let points: Vec<(f64, f64, f64)> = ratios
                .iter()
                .filter(|ratios| ratios.keywords == work.keywords)
                .map(|ratios| {
                    let (memory, slowness) = (work.memory(*ms), slowness(ratios.khz));
                    let by_bound = bound_derivative(work.memory_ms, *ms);
                    let derivative = by_bound * (1.0 - slowness) / (memory + (1.0 - memory) * slowness);
                    (ratios.queries, derivative, ratios.at[place])
                })
                .collect();
            let weight: f64 = points.iter().map(|point| point.0).sum();
            let mean = |of: fn(&(f64, f64, f64)) -> f64| {
                points.iter().map(|point| point.0 * of(point)).sum::<f64>() / weight
            };
            let (x, y) = (mean(|point| point.1), mean(|point| point.2));
            across += points.iter().map(|point| point.0 * (point.1 - x) * (point.2 - y)).sum::<f64>();
            square += points.iter().map(|point| point.0 * (point.1 - x).powi(2)).sum::<f64>();
        }
    }
    if square > 0.0 { across / square } else { 0.0 }
}

/// The derivative of the memory share of `ms` by its bound.
fn bound_derivative(bound_ms: f64, ms: f64) -> f64 {
    let bounds = ms / bound_ms;
    (1.0 - (-bounds).exp() * (1.0 + bounds)) / ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authors::constants::{BASE_KHZ, TURBO_KHZ};

    fn work(bound_ms: f64) -> Work {
        Work { keywords: 4, memory_ms: bound_ms, ms: PROBABILITIES.iter().map(|p| 300.0 * p).collect() }
    }

    #[test]
    fn the_memory_time_moves_to_where_all_clocks_agree() {
        // Times that a bound of 30 ms makes, looked at with 25: the step is most of the way.
        let constants = Constants { work: vec![work(25.0)], ..super::super::start(&[], 0.2) };
        let ratio = |khz: u64| {
            let time = |bound: f64, ms: f64| {
                let memory = work(bound).memory(ms);
                memory + (1.0 - memory) * slowness(khz)
            };
            let at = work(30.0).ms.iter().map(|ms| (time(30.0, *ms) / time(25.0, *ms)).ln()).collect();
            Ratios { keywords: 4, khz, queries: 1e3, at }
        };
        let ratios = [1_000_000, 1_700_000, BASE_KHZ, TURBO_KHZ].map(ratio);
        let step = memory_step(&ratios.iter().collect::<Vec<_>>(), &constants);
        assert!((step - 5.0).abs() < 1.0, "{step}");
    }

    #[test]
    fn a_derivative_is_the_slope_of_the_share() {
        for (bound, ms) in [(5.0, 0.5), (30.0, 40.0), (30.0, 400.0)] {
            let slope = (work(bound + 1e-4).memory(ms) - work(bound - 1e-4).memory(ms)) / 2e-4;
            assert!((bound_derivative(bound, ms) / slope - 1.0).abs() < 1e-4, "{bound} {ms}");
        }
    }

    #[test]
    fn equal_runs_are_not_apart() {
        let times = [(1, 3.0), (2, 8.0), (1, 20.0)];
        assert_eq!(apart(&times, &times), 0.0);
        let twice = times.map(|(keywords, ms)| (keywords, 2.0 * ms));
        assert!((apart(&times, &twice) - 2f64.ln().powi(2)).abs() < 1e-12);
    }
}
