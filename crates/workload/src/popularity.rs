//! How often each key is asked for.
//!
//! Zipf's law: the key of rank r (from 1) is drawn with weight r^-s. Key spaces here reach
//! billions, so a table of cumulative weights is out of the question. The sampler is
//! rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996): invert the integral of the continuous
//! hull x^-s, round to the nearest rank, accept nearly always. Constant time and memory for every n
//! and s, s = 1 included.

use crate::{Random, SpecError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The law by which keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Popularity {
    Uniform,
    /// Zipf's law with this exponent; 0.99 is the customary one for caches (YCSB).
    Zipf(f64),
}

impl FromStr for Popularity {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || SpecError::Popularity(text.to_owned());
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            Some(("zipf", exponent)) => match exponent.parse::<f64>() {
                Ok(exponent) if (0.0..=EXPONENT_MAX).contains(&exponent) => Ok(Self::Zipf(exponent)),
                _ => Err(refused()),
            },
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf:{exponent}"),
        }
    }
}

/// Draws ranks, 0 the most popular, of a population of a given size.
#[derive(Clone, Debug)]
pub struct Ranks {
    population: u64,
    zipf: Option<Hull>,
}

impl Ranks {
    /// Ranks `0..population` (at least one) under `popularity`.
    pub fn new(popularity: Popularity, population: u64) -> Self {
        let population = population.max(1);
        let zipf = match popularity {
            Popularity::Uniform => None,
            Popularity::Zipf(exponent) => Some(Hull::new(exponent, population)),
        };
        Self { population, zipf }
    }

    pub fn draw(&self, random: &mut Random) -> u64 {
        match &self.zipf {
            None => random.below(self.population),
            Some(hull) => hull.draw(random) - 1,
        }
    }
}

/// The continuous hull of Zipf's weights, prepared for one exponent and population.
#[derive(Clone, Debug)]
struct Hull {
    exponent: f64,
    population: f64,
    /// Integral up to the left edge of rank 1, less its whole weight: the part that always accepts
    /// rank 1.
    area_first: f64,
    /// Integral up to the right edge of the last rank.
    area_last: f64,
    /// A rounding by less than this is accepted without evaluating the hull.
    squeeze: f64,
}

impl Hull {
    fn new(exponent: f64, population: u64) -> Self {
        let mut hull =
            Self { exponent, population: population as f64, area_first: 0.0, area_last: 0.0, squeeze: 0.0 };
        hull.area_first = hull.integral(1.5) - 1.0;
        hull.area_last = hull.integral(hull.population + 0.5);
        hull.squeeze = 2.0 - hull.inverse(hull.integral(2.5) - hull.weight(2.0));
        hull
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let exact = self.inverse(area);
            let rank = exact.round().clamp(1.0, self.population);
            if rank - exact <= self.squeeze || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Integral of the weight from 1 to x: (x^(1-s) - 1) / (1 - s), written so that s = 1 (ln x) is
    /// no special case.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        log * expm1_over(log * (1.0 - self.exponent))
    }

    fn inverse(&self, area: f64) -> f64 {
        // Rounding may carry the argument past the pole at -1.
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (area * ln1p_over(t)).exp()
    }
}

/// (e^x - 1) / x, continuous through 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, continuous through 0.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

/// Beyond this all requests ask for the first key anyway.
const EXPONENT_MAX: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zipf_frequencies_follow_the_law() {
        for exponent in [0.5, 0.99, 1.0, 1.2, 2.0] {
            let population = 50u64;
            let ranks = Ranks::new(Popularity::Zipf(exponent), population);
            let mut random = Random::new(7, 0);
            let draws = 400_000;
            let mut seen = vec![0u32; population as usize];
            for _ in 0..draws {
                seen[ranks.draw(&mut random) as usize] += 1;
            }
            let whole: f64 = (1..=population).map(|r| (r as f64).powf(-exponent)).sum();
            for (rank, count) in seen.iter().enumerate() {
                let expected = ((rank + 1) as f64).powf(-exponent) / whole * f64::from(draws);
                // Five standard deviations of the counting noise.
                assert!(
                    (f64::from(*count) - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "s={exponent} rank={rank}: {count} for {expected}"
                );
            }
        }
    }

    #[test]
    fn a_billion_keys_cost_no_table() {
        let ranks = Ranks::new(Popularity::Zipf(0.99), 4_000_000_000);
        let mut random = Random::new(1, 1);
        let hottest = (0..100_000).filter(|_| ranks.draw(&mut random) == 0).count();
        // 1 / (generalised harmonic number of 4e9 at 0.99), about 1 in 25.
        assert!((3_000..5_000).contains(&hottest), "{hottest}");
    }

    #[test]
    fn what_is_no_popularity_is_refused_with_the_fix() {
        for text in ["", "zipf", "zipf:", "zipf:-1", "zipf:nan", "zipf:11", "uniform:1", "pareto"] {
            let error = text.parse::<Popularity>().unwrap_err().to_string();
            assert!(error.contains("zipf:0.99"), "{error}");
        }
        assert_eq!("zipf:0.99".parse::<Popularity>().unwrap(), Popularity::Zipf(0.99));
    }

    proptest! {
        #[test]
        fn ranks_stay_in_the_population(s in 0.0..10.0f64, n in 1u64..1 << 40, seed: u64) {
            let ranks = Ranks::new(Popularity::Zipf(s), n);
            let mut random = Random::new(seed, 0);
            for _ in 0..50 {
                prop_assert!(ranks.draw(&mut random) < n);
            }
        }
    }
}
