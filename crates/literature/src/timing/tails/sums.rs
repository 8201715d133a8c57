//! Quantiles of sums of service times at one speed: short sums by convolution, long ones as
//! Gaussians.

use super::Demand;
use serde::{Deserialize, Serialize};

/// Sums of up to so many service times are convolved. 16 [C Rubik's tables].
pub const EXACT: usize = 16;

/// Distances between the points that service times are put on: 128 points [C Rubik's histograms].
const STEPS: usize = 127;

/// Mass that a convolution may forget at its far end, as a share of 1 - q; forgotten mass counts as
/// beyond the quantile. One part in a thousand \[D\] moves no tail that a few thousand completions
/// could tell apart.
const FORGOTTEN: f64 = 1e-3;

/// The q-quantiles of sums at one speed, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sums {
    exact: [f64; EXACT + 1],
    mean: f64,
    /// z times the standard deviation of one service time.
    spread: f64,
    skew: f64,
}

impl Sums {
    pub fn tail(&self, count: u32) -> f64 {
        let terms = f64::from(count);
        let gaussian = || terms * self.mean + self.spread * terms.sqrt() + self.skew;
        self.exact.get(count as usize).copied().unwrap_or_else(gaussian)
    }

    pub fn of(log: &[Demand], slowdown: f64, quantile: f64) -> Self {
        let count = log.len().max(1) as f64;
        let times = || log.iter().map(|demand| demand.at(slowdown));
        let mean = times().sum::<f64>() / count;
        let variance = times().map(|time| (time - mean) * (time - mean)).sum::<f64>() / count;
        let step = times().fold(0.0, f64::max) / STEPS as f64;
        let mut exact = [0.0; EXACT + 1];
        if step > 0.0 {
            let mut one = [0.0; STEPS + 1];
            for time in times() {
                let place = (time / step).min(STEPS as f64);
                let below = place as usize;
                let part = place - below as f64;
                one[below] += 1.0 - part;
                if part > 0.0 {
                    one[below + 1] += part;
                }
            }
            one.iter_mut().for_each(|mass| *mass /= count);
            exact = quantiles(&one, quantile).map(|steps| steps as f64 * step);
        }
        let spread = normal_quantile(quantile) * variance.sqrt();
        let root = (EXACT as f64).sqrt();
        let skew = (exact[EXACT] - EXACT as f64 * mean - root * spread).max(0.0);
        Self { exact, mean, spread, skew }
    }
}

/// For each number of summands the least point that the sum does not exceed with probability
/// `quantile`.
fn quantiles(one: &[f64; STEPS + 1], quantile: f64) -> [usize; EXACT + 1] {
    let forgotten = (1.0 - quantile) * FORGOTTEN / EXACT as f64;
    let mut found = [0; EXACT + 1];
    let mut sum = [0.0; STEPS * EXACT + 1];
    let mut next = [0.0; STEPS * EXACT + 1];
    sum[0] = 1.0;
    let mut len = 1;
    for found in found.iter_mut().skip(1) {
        let reach = len + STEPS;
        next[..reach].fill(0.0);
        for (shift, &mass) in one.iter().enumerate().filter(|&(_, &mass)| mass > 0.0) {
            for (to, from) in next[shift..shift + len].iter_mut().zip(&sum[..len]) {
                *to += mass * from;
            }
        }
        len = reach;
        let mut beyond = 0.0;
        while len > 1 && beyond + next[len - 1] <= forgotten {
            beyond += next[len - 1];
            len -= 1;
        }
        (sum, next) = (next, sum);
        // The tolerance is for masses that are sums of many roundings.
        let mut below = 0.0;
        let reached = |mass: &f64| {
            below += mass;
            below >= quantile - 1e-9
        };
        *found = sum[..len].iter().position(reached).unwrap_or(len - 1);
    }
    found
}

/// z with P(Z <= z) = `quantile` of at least a half; off by less than 4.5e-4 (Abramowitz and
/// Stegun, 26.2.23).
pub(crate) fn normal_quantile(quantile: f64) -> f64 {
    let t = (-2.0 * (1.0 - quantile).max(1e-12).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    (t - above / below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_quantile_is_that_of_the_tables() {
        for (quantile, z) in [(0.5, 0.0), (0.95, 1.644_854), (0.99, 2.326_348), (0.999, 3.090_232)] {
            assert!((normal_quantile(quantile) - z).abs() < 4.5e-4, "{quantile}");
        }
    }
}
