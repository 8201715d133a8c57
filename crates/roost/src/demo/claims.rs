//! What the demo claims, and when it may.
//!
//! **The problem.** On a machine that others use, two equal phases differ by more than what is to be shown: the tail of
//! one was twice that of the other, with nothing between them but time. One phase of each kind decides nothing.
//!
//! **The approach.** The treatments take turns, round by round, so that what the machine does meets all of them alike. A
//! claim compares the two of the same round, and its 99 % interval comes from how much the rounds differ (Student's t on
//! the logarithms of the ratios). It is met only if all of the interval keeps the bar, and missed only if none of it
//! does. What lies between is within the noise, and is said to be.
//!
//! What always holds: fewer than three rounds claim nothing; a wider scatter never turns an undecided claim into a met
//! one.

use report::run::Verdict;

/// Rounds that an interval needs at the least.
pub const ROUNDS_LEAST: usize = 3;

/// However alike the rounds were: no run knows its figures better than by this share.
const FLOOR: f64 = 0.01;

/// The ratio of the second to the first of each pair, as the mean over the pairs and the ends of its 99 % interval.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<(f64, f64, f64)> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(first, second)| *first > 0.0 && *second > 0.0)
        .map(|(first, second)| (second / first).ln())
        .filter(|log| log.is_finite())
        .collect();
    if logs.len() < ROUNDS_LEAST {
        return None;
    }
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = (students_t(logs.len() - 1) * (variance / count).sqrt()).max(FLOOR);
    Some((mean.exp(), (mean - half).exp(), (mean + half).exp()))
}

/// The 99.5 % quantile of Student's t. Between two entries the wider stands.
fn students_t(freedom: usize) -> f64 {
    const FROM_TWO: [f64; 10] = [9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106];
    freedom.checked_sub(2).map_or(63.66, |at| FROM_TWO.get(at).copied().unwrap_or(3.055))
}

/// Judges the pairs (stock, scheduler): at most so many times stock.
pub fn claim(figure: &str, pairs: &[(f64, f64)], at_most: f64) -> Verdict {
    let bar = format!("at most {at_most:.2}x of stock, with 99 % confidence");
    let Some((mean, low, high)) = ratio(pairs) else {
        let found = format!("not measured: {} of at least {ROUNDS_LEAST} rounds", pairs.len());
        return Verdict { figure: figure.to_owned(), found, bar, met: None };
    };
    let met = match () {
        () if high <= at_most => Some(true),
        () if low > at_most => Some(false),
        () => None,
    };
    let noise = if met.is_some() { "" } else { ", within noise of the bar" };
    let found = format!("{mean:.2}x ({low:.2} to {high:.2}{noise})");
    Verdict { figure: figure.to_owned(), found, bar, met }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<(f64, f64)> {
        ratios.iter().map(|ratio| (2.0, 2.0 * ratio)).collect()
    }

    fn met(ratios: &[f64], bar: f64) -> Option<bool> {
        claim("x", &pairs(ratios), bar).met
    }

    #[test]
    fn a_claim_is_met_or_missed_only_with_the_whole_interval() {
        let bar = 0.75;
        assert_eq!(met(&[0.60, 0.61, 0.59, 0.60, 0.62, 0.60], bar), Some(true));
        assert_eq!(met(&[0.90, 0.91, 0.89, 0.90, 0.92, 0.90], bar), Some(false));
        assert_eq!(met(&[0.3, 1.2, 0.5, 0.9, 0.4, 1.1], bar), None, "the mean is below, and says nothing");
        assert!(claim("x", &pairs(&[0.3, 1.2, 0.5, 0.9]), bar).found.contains("within noise"));
    }

    #[test]
    fn two_rounds_claim_nothing_however_alike() {
        assert_eq!(met(&[0.1, 0.1], 0.75), None);
        assert_eq!(ratio(&[(0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (1.0, 1.0)]), None, "nothing is no figure");
    }

    #[test]
    fn equal_treatments_are_hardly_ever_told_apart() {
        // What the machine does to a tail: a factor of e^(0.5 z) each time. Nominally one in a hundred.
        let mut state = 1_u64;
        let mut chance = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut wrong = 0;
        for _ in 0..2_000 {
            let mut noisy = || (0.5 * ((0..12).map(|_| chance()).sum::<f64>() - 6.0)).exp();
            let pairs: Vec<_> = (0..6).map(|_| (noisy(), noisy())).collect();
            let (_, low, high) = ratio(&pairs).unwrap();
            wrong += u32::from(low > 1.0 || high < 1.0);
        }
        assert!(wrong <= 40, "{wrong} of 2000");
    }
}
