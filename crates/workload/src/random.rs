//! A small seeded generator: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014).
//!
//! Two things decide for it. It can be *jumped into*: the numbers of request n are started from
//! (seed, n) in a few nanoseconds, with no state to share between threads. And its output is fixed
//! by its paper: recorded seeds must give the same requests with every later version of every
//! library.

use crate::ziggurat;

#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream numbered `stream` of `seed`. Neighbouring numbers give unrelated streams.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { state: mix(seed).wrapping_add(mix(stream ^ STREAM_SALT)) }
    }

    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    #[inline(always)]
    pub fn exponential(&mut self) -> f64 {
        ziggurat::exponential(self)
    }

    /// Normal, of mean zero and deviation one.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        ziggurat::normal(self)
    }

    /// Uniform in 0..bound, by multiplication (Lemire); its bias is below bound / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
}

/// SplitMix64's output function: a bijection of 64 bits in which every input bit moves about half
/// of the output.
#[inline]
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// 2^64 divided by the golden ratio, made odd: the step of SplitMix64.
pub(crate) const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
/// Keeps stream 0 of seed 0 away from the fixed point mix(0) = 0.
const STREAM_SALT: u64 = 0x5851_f42d_4c95_7f2d;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_streams_are_unrelated() {
        let draws: Vec<f64> = (0..10_000).map(|stream| Random::new(1, stream).unit()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
        let covariance =
            draws.windows(2).map(|w| (w[0] - 0.5) * (w[1] - 0.5)).sum::<f64>() / (draws.len() - 1) as f64;
        assert!(covariance.abs() < 0.004, "{covariance}");
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // First outputs of SplitMix64 from state 0, as its reference implementation prints them.
        let mut reference = Random { state: 0 };
        assert_eq!(reference.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(reference.bits(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn draws_below_a_bound_stay_below_and_reach_the_ends() {
        let mut random = Random::new(3, 3);
        let draws: Vec<u64> = (0..1000).map(|_| random.below(7)).collect();
        assert!(draws.iter().all(|d| *d < 7));
        assert!(draws.contains(&0) && draws.contains(&6));
        assert_eq!(random.below(1), 0);
    }
}
