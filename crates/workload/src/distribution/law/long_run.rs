//! Variance, shares and quantiles of each law in closed form, which its draws and the published
//! tails of presets are tested against.

use super::super::sampler::{Law, Sampler, stretch};
use super::super::{Distribution, TimeUnit, normal};
use super::Keywords;
use crate::Random;
use machine::Duration;

impl Sampler {
    /// The squared coefficient of variation: variance over the square of the mean. May be infinite.
    pub fn scv(&self) -> f64 {
        let mean = self.mean_ns();
        match &self.0 {
            Law::Fixed(_) => 0.0,
            Law::Exponential(_) => 1.0,
            Law::Erlang(_, stages) => 1.0 / f64::from(*stages),
            Law::Hyperexponential(first, [one, other]) => {
                2.0 * (first * one * one + (1.0 - first) * other * other) / (mean * mean) - 1.0
            }
            Law::Lognormal(_, sigma) => (sigma * sigma).exp_m1(),
            Law::Gpareto { shape, .. } if *shape >= 0.5 => f64::INFINITY,
            Law::Gpareto { scale, shape, .. } => {
                (scale / ((1.0 - shape) * mean)).powi(2) / (1.0 - 2.0 * shape)
            }
            Law::Uniform { width, .. } => (width / mean).powi(2) / 12.0,
            Law::Bimodal { short, long, long_share } => {
                long_share * (1.0 - long_share) * ((long - short) / mean).powi(2)
            }
            Law::Keywords(keywords) => keywords.second_moment() / (mean * mean) - 1.0,
            Law::Empirical(table) => table.second_moment() / (mean * mean) - 1.0,
        }
    }

    /// The share of draws that are at most `time`.
    pub fn cdf(&self, time: Duration) -> f64 {
        self.cdf_ns(time.as_nanos() as f64)
    }

    /// The time that the share `q` of draws does not exceed. Of a law without a longest time,
    /// quantile 1 is held at 1 - 1e-12.
    pub fn quantile(&self, q: f64) -> Duration {
        let q = q.clamp(0.0, 1.0 - 1e-12);
        let ns = match &self.0 {
            Law::Fixed(time) => *time,
            Law::Exponential(mean) => -mean * (-q).ln_1p(),
            Law::Lognormal(mu, sigma) => (mu + sigma * normal::quantile(q)).exp(),
            Law::Gpareto { minimum, scale, shape } => minimum + scale * stretch(-(-q).ln_1p(), *shape),
            Law::Uniform { from, width } => from + width * q,
            Law::Bimodal { short, long, long_share } => {
                if q <= 1.0 - long_share {
                    *short
                } else {
                    *long
                }
            }
            Law::Empirical(table) => table.quantile(q),
            Law::Erlang(..) | Law::Hyperexponential(..) | Law::Keywords(_) => self.search(q),
        };
        Duration::from_nanos(ns.round() as u64)
    }

    /// The quantile by halving, where the share has no inverse in closed form.
    fn search(&self, q: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.mean_ns());
        while self.cdf_ns(high) < q {
            (low, high) = (high, 2.0 * high);
        }
        while high - low > 1e-12 * high {
            let middle = (low + high) / 2.0;
            if self.cdf_ns(middle) < q { low = middle } else { high = middle }
        }
        high
    }

    fn cdf_ns(&self, x: f64) -> f64 {
        let exponential = |mean: f64| -(-x / mean).exp_m1();
        match &self.0 {
            Law::Fixed(time) => f64::from(u8::from(x >= *time)),
            Law::Exponential(mean) => exponential(*mean),
            Law::Erlang(stage, stages) => {
                let y = x / stage;
                let (mut term, mut sum) = (1.0, 1.0);
                for n in 1..*stages {
                    term *= y / f64::from(n);
                    sum += term;
                }
                1.0 - sum * (-y).exp()
            }
            Law::Hyperexponential(first, [one, other]) => {
                first * exponential(*one) + (1.0 - first) * exponential(*other)
            }
            Law::Lognormal(mu, sigma) => log_cdf(x, *mu, *sigma),
            Law::Gpareto { minimum, scale, shape } => {
                let y = (x - minimum).max(0.0) / scale;
                // The inverse of `stretch`.
                let exponent = if *shape > 1e-9 { (shape * y).ln_1p() / shape } else { y };
                -(-exponent).exp_m1()
            }
            Law::Uniform { from, width } => ((x - from) / width).clamp(0.0, 1.0),
            Law::Bimodal { short, long, long_share } => match x {
                x if x < *short => 0.0,
                x if x < *long => 1.0 - long_share,
                _ => 1.0,
            },
            Law::Keywords(keywords) => keywords.cdf(x),
            Law::Empirical(table) => table.cdf(x),
        }
    }
}

impl Keywords {
    fn second_moment(&self) -> f64 {
        let square = |mu: f64| (2.0 * mu + 2.0 * self.sigma * self.sigma).exp();
        self.parts.iter().map(|(chance, mu)| chance * square(*mu)).sum()
    }

    fn cdf(&self, x: f64) -> f64 {
        self.parts.iter().map(|(chance, mu)| chance * log_cdf(x, *mu, self.sigma)).sum()
    }
}

fn log_cdf(x: f64, mu: f64, sigma: f64) -> f64 {
    if x > 0.0 { normal::cdf((x.ln() - mu) / sigma) } else { 0.0 }
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// One of each, with means of 10 us to 1 ms, mean (ns) and scv from closed forms worked out by
/// hand.
fn laws() -> Vec<(Distribution, Sampler, f64, f64)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0 0\n10 0.5\n30 0.75\n30 0.8\n50 1\n").unwrap();
    let laws = [
        (Distribution::Deterministic { mean: us(10) }, 1e4, 0.0),
        (Distribution::Exponential { mean: us(10) }, 1e4, 1.0),
        (Distribution::Erlang { mean: us(10), stages: 4 }, 1e4, 0.25),
        (Distribution::Hyperexponential { mean: us(10), scv: 4.0 }, 1e4, 4.0),
        (Distribution::Lognormal { mean: us(10), cv: 0.5 }, 1e4, 0.25),
        // (7 us)^2 / (1 - 0.4) over (10 us)^2.
        (Distribution::Gpareto { minimum: us(3), mean: us(10), shape: 0.2 }, 1e4, 0.49 / 0.6),
        // width^2 / 12 over mean^2.
        (Distribution::Uniform { from: us(5), to: us(15) }, 1e4, 1.0 / 12.0),
        // 10 us in 9 of 10, 110 us in 1 of 10: mean 20, variance 900.
        (Distribution::Bimodal { short: us(10), long: us(110), long_share: 0.1 }, 2e4, 900.0 / 400.0),
        // k = 1, 2 by 2 : 1, so 20 us or 30 us, mean 70/3, second moment (2 x 400 + 900) / 3, x
        // 1.09.
        (
            Distribution::Keywords { base: us(10), each: us(10), fewest: 1, most: 2, cv: 0.3 },
            70e3 / 3.0,
            1700.0 / 3.0 * 1.09 / (4900.0 / 9.0) - 1.0,
        ),
        // Halves: 0-10; quarter 10-30; 1/20 at 30; 1/5 30-50 us.
        (
            Distribution::Empirical { file: file.path().to_path_buf(), unit: TimeUnit::Microseconds },
            (0.5 * 5.0 + 0.25 * 20.0 + 0.05 * 30.0 + 0.2 * 40.0) * 1e3,
            (0.5 * 100.0 / 3.0 + 0.25 * 1300.0 / 3.0 + 0.05 * 900.0 + 0.2 * 4900.0 / 3.0) / (17.0 * 17.0)
                - 1.0,
        ),
    ];
    laws.into_iter().map(|(law, mean, scv)| (law.clone(), law.sampler().unwrap(), mean, scv)).collect()
}

#[test]
fn moments_are_those_of_the_closed_forms() {
    for (law, sampler, mean, scv) in laws() {
        assert!((sampler.mean_ns() / mean - 1.0).abs() < 1e-9, "{law:?}: mean {}", sampler.mean_ns());
        assert!((sampler.scv() - scv).abs() < 1e-9, "{law:?}: scv {}", sampler.scv());
    }
}

#[test]
fn draws_have_the_stated_moments_and_quantiles() {
    for (law, sampler, mean, scv) in laws() {
        let mut random = Random::new(3, 1);
        let n = 400_000;
        let mut draws: Vec<f64> = (0..n).map(|_| sampler.draw(&mut random).as_nanos() as f64).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let sum: f64 = draws.iter().sum();
        let mean_seen = sum / f64::from(n);
        let variance = draws.iter().map(|x| (x - mean_seen).powi(2)).sum::<f64>() / f64::from(n);
        let error = (scv / f64::from(n)).sqrt();
        assert!((mean_seen / mean - 1.0).abs() < 4.0 * error + 1e-4, "{law:?}: mean {mean_seen}");
        assert!((variance / (mean * mean) - scv).abs() < 0.06 * scv + 1e-6, "{law:?}: variance {variance}");
        for q in [0.1, 0.5, 0.9, 0.99] {
            let place = sampler.quantile(q);
            let at_most = draws.partition_point(|x| *x <= place.as_nanos() as f64) as f64 / f64::from(n);
            let below = draws.partition_point(|x| *x < place.as_nanos() as f64) as f64 / f64::from(n);
            // Five standard deviations; a law of few values has a step there.
            let noise = 5.0 * (q * (1.0 - q) / f64::from(n)).sqrt() + 1e-4;
            assert!(
                below - noise <= q && q <= at_most + noise,
                "{law:?}: {q} at {place}: {below}..{at_most}"
            );
        }
    }
}

#[test]
fn quantile_and_share_are_inverse() {
    for (law, sampler, ..) in laws() {
        for q in [0.01, 0.3, 0.5, 0.95, 0.999] {
            let time = sampler.quantile(q);
            let earlier = time - Duration::from_nanos(1);
            assert!(sampler.cdf(time + Duration::from_nanos(1)) >= q - 1e-6, "{law:?} {q}");
            assert!(sampler.cdf(earlier) <= q + 1e-3 || earlier.is_zero(), "{law:?} {q}");
        }
    }
}

#[test]
fn quantiles_are_those_of_the_tables() {
    let at = |law: Distribution, q: f64| law.sampler().unwrap().quantile(q).as_nanos() as f64 / 1e3;
    let ten = us(10);
    // ln 100 means; the 99th percentile of Erlang-2 is 6.638352 stages; exp(mu + 2.326348
    // sigma) with the sigma of cv 1.
    assert!((at(Distribution::Exponential { mean: ten }, 0.99) - 46.0517).abs() < 1e-3);
    assert!((at(Distribution::Erlang { mean: ten, stages: 2 }, 0.99) - 33.1918).abs() < 1e-3);
    let lognormal = at(Distribution::Lognormal { mean: ten, cv: 1.0 }, 0.99);
    assert!((lognormal - 10.0 * (2.326_348 * 0.832_554_6f64 - 0.346_573_6).exp()).abs() < 1e-3);
}

#[test]
fn a_tail_too_heavy_for_a_variance_says_so() {
    let law = Distribution::Gpareto { minimum: Duration::ZERO, mean: us(10), shape: 0.6 };
    assert_eq!(law.sampler().unwrap().scv(), f64::INFINITY);
}
