//! How long requests wait at a server of a given load, for any distribution of service times.
//!
//! In M/G/1 the waiting time is a geometric sum: with probability rho a request finds the server
//! busy; then it waits for the rest of the service that it found, and with probability rho for one
//! more such *residual*, and so on (Pollaczek and Khinchine; e.g. Asmussen, Applied Probability and
//! Queues, VIII.5). A residual is distributed with density P(S > x) / E S. On a lattice such a sum
//! obeys a recursion (Panjer, ASTIN Bulletin 12, 1981):
//!
//! ```text
//!   w_n = rho / (1 - rho f_0) * sum over j = 1..n of f_j w_(n-j)        w_0 = (1 - rho) / (1 - rho f_0)
//! ```
//!
//! The residual is put onto the lattice so that its mean stays the same. Beyond the lattice the
//! tail goes on falling as it did at its end, which is right for a tail that is exponential at last
//! (all services that have a bound).
//!
//! The lattice depends on the shape of the service alone, not on its length: a slower clock
//! stretches both.
//!
//! Error: none but the lattice's, below 1 % of a 99th percentile for M/M/1 and M/D/1 (tests).

use super::service::Part;

/// Points of the lattice: as many mean residuals, times [`FINENESS`], are followed exactly.
pub(super) const POINTS: usize = 96;
/// Points to a mean residual \[D\]: finer costs time, and at 4 the error is below 1 %.
const FINENESS: f64 = 4.0;

/// The residual of a service of mean 1 on a lattice.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Residual {
    /// From one point to the next, in mean services.
    step: f64,
    /// From last to first: the recursion then runs forward through both lists.
    reversed: [f64; POINTS],
}

impl Residual {
    /// Of services that are uniform within each part, shares adding up to 1; `second` is their
    /// second moment. Times in mean services.
    pub fn of(parts: &[Part], mean_ns: f64, second: f64) -> Self {
        let step = second / 2.0 / FINENESS;
        // Half the square of the positive part: the triangle's weight between two points,
        // integrated twice.
        let ramp = |y: f64| y.max(0.0).powi(2) / 2.0;
        let mut mass = [0.0; POINTS];
        for part in parts {
            // A service of s has a residual that is uniform on 0..s, and is met in proportion to s:
            // each length below s has the density share / 1.
            let end = part.mean_ns / mean_ns / step;
            let whole = (end as usize).saturating_sub(1).min(POINTS);
            mass[..whole].iter_mut().for_each(|point| *point += part.share * step);
            for (point, mass) in mass.iter_mut().enumerate().skip(whole).take(4) {
                let y = end - point as f64;
                *mass += part.share * step * (ramp(y + 1.0) - 2.0 * ramp(y) + ramp(y - 1.0));
            }
            // Half of the first triangle lies below zero.
            mass[0] -= part.share * step / 2.0;
        }
        mass[0] = mass[0].max(0.0);
        mass.reverse();
        Self { step, reversed: mass }
    }
}

/// The waiting time of those that wait, in the residual's steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiting {
    /// P(longer than n steps), from 1.
    tail: [f64; POINTS],
    /// How it goes on, per step.
    ratio: f64,
    /// Length of a step, in mean services.
    step: f64,
}

impl Waiting {
    /// At a server that is busy for the share `load`, below 1.
    pub fn at(load: f64, residual: &Residual) -> Self {
        let first = residual.reversed[POINTS - 1];
        let mut mass = [0.0; POINTS];
        mass[0] = (1.0 - load) / (1.0 - load * first);
        let factor = load / (1.0 - load * first);
        for n in 1..POINTS {
            mass[n] = factor * dot(&residual.reversed[POINTS - 1 - n..POINTS - 1], &mass[..n]);
        }
        // A point stands for the half steps before and behind it.
        let mut left = 1.0 - mass[0];
        let mut tail = [1.0; POINTS];
        for n in 1..POINTS {
            left -= mass[n];
            tail[n] = ((left + mass[n] / 2.0) / load).clamp(0.0, tail[n - 1]);
        }
        const BACK: usize = 8;
        let (before, last) = (tail[POINTS - 1 - BACK], tail[POINTS - 1]);
        let ratio = if last > 1e-9 { (last / before).powf(1.0 / BACK as f64) } else { 0.0 };
        Self { tail, ratio, step: residual.step }
    }

    /// P(longer than `time`), given in mean services.
    pub fn beyond(&self, time: f64) -> f64 {
        let at = time / self.step;
        let point = at as usize;
        if at <= 0.0 {
            1.0
        } else if point + 1 < POINTS {
            let part = at - point as f64;
            self.tail[point] * (1.0 - part) + self.tail[point + 1] * part
        } else {
            self.tail[POINTS - 1] * self.ratio.powf(at - (POINTS - 1) as f64)
        }
    }
}

/// The sum of products, in four sums that do not wait for one another.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (chunks_a, chunks_b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = chunks_a.remainder().iter().zip(chunks_b.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0; 4];
    for (a, b) in chunks_a.zip(chunks_b) {
        for lane in 0..4 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}
