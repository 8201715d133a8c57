//! A distribution made ready to draw from.

use super::empirical::Empirical;
use super::law::{Keywords, log_parameters};
use super::{Distribution, two_branches};
use crate::{Random, SpecError};
use machine::Duration;
use std::sync::Arc;

/// Draws times; cheap to copy, since tables are shared.
#[derive(Clone, Debug)]
pub struct Sampler(pub(super) Law);

/// The laws with their constants, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) enum Law {
    Fixed(f64),
    Exponential(f64),
    Erlang(f64, u32),
    /// Chance of the first branch, and the mean of each.
    Hyperexponential(f64, [f64; 2]),
    /// Mean and deviation of the logarithm.
    Lognormal(f64, f64),
    Gpareto {
        minimum: f64,
        scale: f64,
        shape: f64,
    },
    Uniform {
        from: f64,
        width: f64,
    },
    Bimodal {
        short: f64,
        long: f64,
        long_share: f64,
    },
    Keywords(Arc<Keywords>),
    Empirical(Arc<Empirical>),
}

impl Sampler {
    pub(super) fn new(distribution: &Distribution) -> Result<Self, SpecError> {
        distribution.check()?;
        let ns = |time: &Duration| time.as_nanos() as f64;
        Ok(Self(match distribution {
            Distribution::Deterministic { mean } => Law::Fixed(ns(mean)),
            Distribution::Exponential { mean } => Law::Exponential(ns(mean)),
            Distribution::Erlang { mean, stages } => Law::Erlang(ns(mean) / f64::from(*stages), *stages),
            Distribution::Hyperexponential { mean, scv } => {
                let (first, means) = two_branches(*scv);
                Law::Hyperexponential(first, means.map(|branch| branch * ns(mean)))
            }
            Distribution::Lognormal { mean, cv } => {
                let (mu, sigma) = log_parameters(ns(mean), *cv);
                Law::Lognormal(mu, sigma)
            }
            Distribution::Gpareto { minimum, mean, shape } => {
                let scale = (ns(mean) - ns(minimum)) * (1.0 - shape);
                Law::Gpareto { minimum: ns(minimum), scale, shape: *shape }
            }
            Distribution::Uniform { from, to } => Law::Uniform { from: ns(from), width: ns(to) - ns(from) },
            Distribution::Bimodal { short, long, long_share } => {
                Law::Bimodal { short: ns(short), long: ns(long), long_share: *long_share }
            }
            Distribution::Keywords { base, each, fewest, most, cv } => {
                Law::Keywords(Arc::new(Keywords::new(ns(base), ns(each), *fewest..=*most, *cv)))
            }
            Distribution::Empirical { file, unit } => Law::Empirical(Arc::new(Empirical::read(file, *unit)?)),
        }))
    }

    #[inline(always)]
    pub fn draw(&self, random: &mut Random) -> Duration {
        nearest(self.draw_ns(random))
    }

    /// One time, of which the share `memory` is memory time: the rest of it, and that share.
    #[inline]
    pub(crate) fn draw_split(&self, memory: f64, random: &mut Random) -> (Duration, Duration) {
        let whole = self.draw_ns(random);
        let share = nearest(whole * memory);
        (nearest(whole) - share, share)
    }

    /// The law of most simulations on the spot, the others by a call.
    #[inline(always)]
    fn draw_ns(&self, random: &mut Random) -> f64 {
        if let Law::Exponential(mean) = &self.0 {
            mean * random.exponential()
        } else {
            self.draw_other_ns(random)
        }
    }

    fn draw_other_ns(&self, random: &mut Random) -> f64 {
        match &self.0 {
            Law::Fixed(time) => *time,
            Law::Exponential(mean) => mean * random.exponential(),
            Law::Erlang(stage, stages) => stage * (0..*stages).map(|_| random.exponential()).sum::<f64>(),
            Law::Hyperexponential(first, means) => {
                means[usize::from(random.unit() >= *first)] * random.exponential()
            }
            Law::Lognormal(mu, sigma) => (mu + sigma * random.normal()).exp(),
            Law::Gpareto { minimum, scale, shape } => minimum + scale * stretch(random.exponential(), *shape),
            Law::Uniform { from, width } => from + width * random.unit(),
            Law::Bimodal { short, long, long_share } => {
                if random.unit() < *long_share {
                    *long
                } else {
                    *short
                }
            }
            Law::Keywords(keywords) => keywords.draw(random),
            Law::Empirical(table) => table.draw(random),
        }
    }
}

/// To the nearest nanosecond, which keeps the mean. The signed conversion is one instruction.
#[inline]
fn nearest(ns: f64) -> Duration {
    Duration::from_nanos((ns + 0.5) as i64 as u64)
}

/// (e^(k x) - 1) / k, and x where k is 0: it makes an exponential number a generalized Pareto one.
pub(crate) fn stretch(x: f64, k: f64) -> f64 {
    let y = k * x;
    // Away from 0 the plain exponential loses nothing that matters, and is three times as fast.
    if y > 1e-4 {
        (y.exp() - 1.0) / k
    } else if k > 1e-9 {
        y.exp_m1() / k
    } else {
        x
    }
}
