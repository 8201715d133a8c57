//! The mean of a sampler's draws, and the laws that are more than a formula.

#[cfg(test)]
mod long_run;

use super::sampler::{Law, Sampler};
use crate::Random;
use crate::alias::Alias;
use machine::Duration;
use std::ops::RangeInclusive;

impl Sampler {
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_ns().round() as u64)
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        match &self.0 {
            Law::Fixed(mean) | Law::Exponential(mean) => *mean,
            Law::Erlang(stage, stages) => stage * f64::from(*stages),
            Law::Hyperexponential(first, [one, other]) => first * one + (1.0 - first) * other,
            Law::Lognormal(mu, sigma) => (mu + sigma * sigma / 2.0).exp(),
            Law::Gpareto { minimum, scale, shape } => minimum + scale / (1.0 - shape),
            Law::Uniform { from, width } => from + width / 2.0,
            Law::Bimodal { short, long, long_share } => short + (long - short) * long_share,
            Law::Keywords(keywords) => keywords.mean(),
            Law::Empirical(table) => table.mean(),
        }
    }
}

/// Mean and deviation of the logarithm of a lognormal number with this mean and coefficient of
/// variation.
pub(super) fn log_parameters(mean: f64, cv: f64) -> (f64, f64) {
    let variance = (cv * cv).ln_1p();
    (mean.ln() - variance / 2.0, variance.sqrt())
}

/// Queries by number of keywords: a mixture of lognormal laws.
#[derive(Clone, Debug)]
pub(super) struct Keywords {
    /// Chance of each number of keywords, and the logarithm's mean then.
    parts: Vec<(f64, f64)>,
    choice: Alias,
    sigma: f64,
}

impl Keywords {
    pub fn new(base: f64, each: f64, numbers: RangeInclusive<u8>, cv: f64) -> Self {
        let whole: f64 = numbers.clone().map(keyword_weight).sum();
        let part = |k: u8| (keyword_weight(k) / whole, log_parameters(base + each * f64::from(k), cv).0);
        let parts: Vec<(f64, f64)> = numbers.map(part).collect();
        let chances: Vec<f64> = parts.iter().map(|part| part.0).collect();
        Self { parts, choice: Alias::new(&chances), sigma: log_parameters(1.0, cv).1 }
    }

    #[inline]
    pub fn draw(&self, random: &mut Random) -> f64 {
        let mu = self.parts[self.choice.draw(random)].1;
        (mu + self.sigma * random.normal()).exp()
    }

    fn mean(&self) -> f64 {
        self.parts.iter().map(|(chance, mu)| chance * (mu + self.sigma * self.sigma / 2.0).exp()).sum()
    }
}

/// Share of all queries that have `k` keywords: 95 % on 1 to 8, 5 % on 9 to 18 ([P] Hurry-up II-C),
/// within each by 1/k (the paper says "Zipfian"; the exponent 1 is ours [D]).
pub(crate) fn keyword_weight(k: u8) -> f64 {
    let (group, share) = if k <= 8 { (1..=8, 0.95) } else { (9..=KEYWORDS_MAX, 0.05) };
    let whole: f64 = group.map(|k: u8| 1.0 / f64::from(k)).sum();
    share / whole / f64::from(k)
}

/// The longest query of Hurry-up's generator [P, II-C].
pub(crate) const KEYWORDS_MAX: u8 = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_distributed_as_hurry_up_draws_them() {
        let short: f64 = (1..=8).map(keyword_weight).sum();
        let long: f64 = (9..=18).map(keyword_weight).sum();
        assert!((short - 0.95).abs() < 1e-12 && (long - 0.05).abs() < 1e-12);
        assert!((keyword_weight(1) / keyword_weight(4) - 4.0).abs() < 1e-12);
    }
}
