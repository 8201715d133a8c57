//! The demo's claims, and the conditions for them.
//!
//! **The problem.** On a busy machine two equal phases differ by more than the effect to be shown:
//! the tail of one was twice that of the other, with nothing between them but time. One phase of
//! each kind decides nothing.
//!
//! **The approach.** The treatments take turns, round by round, so that the machine's other work
//! meets all of them alike. A claim compares the two of the same round, and its 99 % interval comes
//! from how much the rounds' ratios differ (Student's t). Ratios of times are taken by their
//! logarithms, since a stall multiplies. A count that may fall to nothing is not: the logarithm of
//! next to nothing would be all of its scatter. A claim is met only if all of the interval keeps
//! the bar, and missed only if none of it does. A claim in between is reported as within the noise.
//!
//! A round whose load was not answered as it was asked counts for nothing, and neither does a tail
//! that the generator made itself. A run in which fewer than three pairs of rounds are left is
//! invalid: it measured something else.
//!
//! Invariants: fewer than three pairs claim nothing; a wider scatter never turns an undecided claim
//! into a met one.

use report::run::{Compared, Verdict, times};

/// Pairs of rounds that an interval needs at the least.
pub const ROUNDS_LEAST: usize = 3;

/// However alike the rounds were: no run knows its figures better than by this share.
const FLOOR: f64 = 0.01;

/// How ratios scatter.
#[derive(Clone, Copy, Debug)]
pub enum Scatter {
    /// By factors, as a time does.
    Factors,
    /// By amounts, down to nothing, as a count does.
    Amounts,
}

/// The ratio of the second to the first of each pair, as the mean over the pairs and the ends of
/// its 99 % interval.
pub fn ratio(pairs: &[(f64, f64)], scatter: Scatter) -> Option<(f64, f64, f64)> {
    let ratios = pairs.iter().filter(|(first, second)| *first > 0.0 && *second >= 0.0);
    let ratios = ratios.map(|(first, second)| second / first);
    let values: Vec<f64> = match scatter {
        Scatter::Factors => ratios.map(f64::ln).filter(|log| log.is_finite()).collect(),
        Scatter::Amounts => ratios.filter(|ratio| ratio.is_finite()).collect(),
    };
    if values.len() < ROUNDS_LEAST {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = (students_t(values.len() - 1) * (variance / count).sqrt()).max(FLOOR);
    Some(match scatter {
        Scatter::Factors => (mean.exp(), (mean - half).exp(), (mean + half).exp()),
        Scatter::Amounts => (mean, (mean - half).max(0.0), mean + half),
    })
}

/// The 99.5 % quantile of Student's t. Between two entries the wider stands.
fn students_t(freedom: usize) -> f64 {
    const FROM_TWO: [f64; 10] = [9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106];
    freedom.checked_sub(2).map_or(63.66, |at| FROM_TWO.get(at).copied().unwrap_or(3.055))
}

/// The bar for the ratio to stock.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Not more.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
}

/// Judges a comparison; without one there were too few rounds for it.
pub fn claim(figure: &str, compared: Option<&Compared>, bar: Bar) -> Verdict {
    let words = match bar {
        Bar::AtMost(most) => format!("at most {most:.2}x of stock, with 99 % confidence"),
        Bar::AtLeast(least) => format!("at least {least:.2}x of stock, with 99 % confidence"),
    };
    let Some(Compared { ratio, low, high, .. }) = compared else {
        let found = format!("not measured: fewer than {ROUNDS_LEAST} rounds");
        return Verdict { figure: figure.to_owned(), found, bar: words, met: None, within_noise: false };
    };
    let (kept, broken) = match bar {
        Bar::AtMost(most) => (*high <= most, *low > most),
        Bar::AtLeast(least) => (*low >= least, *high < least),
    };
    Verdict {
        figure: figure.to_owned(),
        found: format!("{} ({} to {})", times(*ratio), times(*low), times(*high)),
        bar: words,
        met: (kept || broken).then_some(kept),
        within_noise: !(kept || broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(ratios: &[f64], bar: Bar) -> Verdict {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|ratio| (2.0, 2.0 * ratio)).collect();
        let compared = ratio(&pairs, Scatter::Factors).map(|(ratio, low, high)| Compared {
            phase: "scheduler".to_owned(),
            figure: "x".to_owned(),
            first: String::new(),
            value: String::new(),
            ratio,
            low,
            high,
        });
        claim("x", compared.as_ref(), bar)
    }

    fn met(ratios: &[f64], bar: Bar) -> Option<bool> {
        claimed(ratios, bar).met
    }

    #[test]
    fn a_claim_is_met_or_missed_only_with_the_whole_interval() {
        let bar = Bar::AtMost(0.75);
        assert_eq!(met(&[0.60, 0.61, 0.59, 0.60, 0.62, 0.60], bar), Some(true));
        assert_eq!(met(&[0.90, 0.91, 0.89, 0.90, 0.92, 0.90], bar), Some(false));
        let noisy = claimed(&[0.3, 1.2, 0.5, 0.9, 0.4, 1.1], bar);
        assert_eq!((noisy.met, noisy.within_noise), (None, true), "the mean is below, and says nothing");
    }

    #[test]
    fn a_bar_from_below_is_kept_from_above() {
        let bar = Bar::AtLeast(2.0);
        assert_eq!(met(&[60.0, 61.0, 59.0, 60.0], bar), Some(true));
        assert_eq!(met(&[1.0, 1.1, 0.9, 1.0], bar), Some(false));
        assert_eq!(met(&[1.0, 4.0, 9.0, 2.0], bar), None);
    }

    #[test]
    fn two_rounds_claim_nothing_however_alike() {
        let verdict = claimed(&[0.1, 0.1], Bar::AtMost(0.75));
        assert_eq!((verdict.met, verdict.within_noise), (None, false));
        assert!(verdict.found.contains("not measured"), "{}", verdict.found);
        assert_eq!(
            ratio(&[(0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (1.0, 1.0)], Scatter::Factors),
            None,
            "nothing is no figure"
        );
    }

    #[test]
    fn a_count_that_falls_to_nothing_in_some_rounds_has_fallen() {
        let pairs: Vec<_> =
            [0.0, 0.3, 0.0001, 0.2, 0.0, 0.25, 0.1, 0.0].map(|ratio| (2_000.0, 2_000.0 * ratio)).into();
        let (mean, low, high) = ratio(&pairs, Scatter::Amounts).unwrap();
        assert!(low == 0.0 && (0.1..0.12).contains(&mean) && high < 0.3, "{mean} {low} {high}");
    }

    #[test]
    fn equal_treatments_are_hardly_ever_told_apart() {
        // The machine's own effect on a tail: a factor of e^(0.5 z) each time. Nominally one in a
        // hundred.
        let mut state = 1_u64;
        let mut chance = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut wrong = 0;
        for _ in 0..2_000 {
            let mut noisy = || (0.5 * ((0..12).map(|_| chance()).sum::<f64>() - 6.0)).exp();
            let pairs: Vec<_> = (0..6).map(|_| (noisy(), noisy())).collect();
            let (_, low, high) = ratio(&pairs, Scatter::Factors).unwrap();
            wrong += u32::from(low > 1.0 || high < 1.0);
        }
        assert!(wrong <= 40, "{wrong} of 2000");
    }
}
