//! Sums of requests, by way of their spectra: a product for each request more, and one transform
//! back.
//!
//! Transforms are as long as the sums, or shorter where next to nothing of a sum lies beyond: the
//! mass that wraps around is then not seen in any quantile. They are scalar: the same sums come out
//! on every machine.

use super::distribution::{Distribution, POINTS};
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::fmt;
use std::sync::Arc;

/// Plans and memory, no state: it is made at the first use, and made anew in a copy.
#[derive(Default)]
pub(super) struct Convolver(Option<Box<Workspace>>);

pub(super) struct Workspace {
    forward: [Arc<dyn RealToComplex<f64>>; LENGTHS.len()],
    back: [Arc<dyn ComplexToReal<f64>>; LENGTHS.len()],
    /// A distribution, or a sum's.
    masses: Vec<f64>,
    /// Of one whole request.
    whole: Vec<Complex<f64>>,
    /// Of some requests.
    sum: Vec<Complex<f64>>,
    /// The place in [`LENGTHS`] of these two spectra's transform.
    longest: usize,
    /// The buffer that a transform back may overwrite.
    spent: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
}

impl Convolver {
    /// Ready to form sums of up to [`MOST_REQUESTS`], of which less than `wrapped` wraps around.
    pub(super) fn prepare(&mut self, whole: &Distribution, wrapped: f64) -> &mut Workspace {
        let workspace = self.0.get_or_insert_with(|| Box::new(Workspace::new()));
        workspace.prepare(whole, wrapped);
        workspace
    }
}

impl Workspace {
    /// Shows `each` the sums of `rest` and 1, 2, ... whole requests after it.
    pub(super) fn sums(&mut self, rest: &Distribution, mut each: impl FnMut(usize, &[f64])) {
        self.transform(rest);
        for requests in 1..MOST_REQUESTS {
            self.add_one();
            each(requests, self.back(length_for(requests + 1).min(self.longest)));
        }
    }

    fn new() -> Self {
        let mut planner = RealFftPlanner::new();
        let forward = LENGTHS.map(|length| planner.plan_fft_forward(length));
        let back = LENGTHS.map(|length| planner.plan_fft_inverse(length));
        let scratch = forward.iter().map(|plan| plan.get_scratch_len());
        let scratch = scratch.chain(back.iter().map(|plan| plan.get_scratch_len())).max().unwrap_or(0);
        let none = Complex::new(0.0, 0.0);
        let spectrum = || vec![none; LONGEST / 2 + 1];
        Self {
            forward,
            back,
            masses: vec![0.0; LONGEST],
            whole: spectrum(),
            sum: spectrum(),
            longest: LENGTHS.len() - 1,
            spent: spectrum(),
            scratch: vec![none; scratch],
        }
    }

    /// Finds the shortest transform that will do, and the spectrum of one request in it.
    fn prepare(&mut self, whole: &Distribution, wrapped: f64) {
        self.longest = LENGTHS.len() - 1;
        self.transform(whole);
        self.whole.copy_from_slice(&self.sum);
        // The beginning of the longest sum is no longer than the range of one request; this is the
        // others.
        for _ in 2..MOST_REQUESTS {
            self.add_one();
        }
        let mut outside = 0.0;
        let used = self.back(self.longest).iter().rposition(|mass| {
            outside += mass.max(0.0);
            outside > wrapped
        });
        let needed = used.unwrap_or(0) + 1 + POINTS;
        self.longest = LENGTHS.partition_point(|length| *length < needed).min(LENGTHS.len() - 1);
        self.transform(whole);
        self.whole.copy_from_slice(&self.sum);
    }

    /// The spectrum of `distribution`, into `sum`.
    fn transform(&mut self, distribution: &Distribution) {
        let length = LENGTHS[self.longest];
        let masses = &mut self.masses[..length];
        masses[..POINTS].copy_from_slice(&distribution.mass);
        masses[POINTS..].fill(0.0);
        self.forward[self.longest]
            .process_with_scratch(masses, &mut self.sum[..length / 2 + 1], &mut self.scratch)
            .expect("buffers are as long as the plan says");
    }

    /// One whole request more in `sum`.
    fn add_one(&mut self) {
        for (sum, whole) in self.sum[..LENGTHS[self.longest] / 2 + 1].iter_mut().zip(&self.whole) {
            *sum *= whole;
        }
    }

    /// The masses of `sum`, by a transform of its length or a shorter one, whose spectrum is every
    /// second, fourth, ... value of it.
    fn back(&mut self, place: usize) -> &[f64] {
        let length = LENGTHS[place];
        let spent = &mut self.spent[..length / 2 + 1];
        for (spent, sum) in spent.iter_mut().zip(self.sum.iter().step_by(LENGTHS[self.longest] / length)) {
            *spent = *sum;
        }
        let masses = &mut self.masses[..length];
        self.back[place]
            .process_with_scratch(spent, masses, &mut self.scratch)
            .expect("buffers are as long as the plan says; first and last value of such a spectrum are real");
        let per_length = 1.0 / length as f64;
        for mass in masses.iter_mut() {
            *mass *= per_length;
        }
        masses
    }
}

/// The place in [`LENGTHS`] for a sum of so many requests.
fn length_for(requests: usize) -> usize {
    LENGTHS.partition_point(|length| *length < requests * POINTS)
}

/// Number of requests in the longest sum.
pub(super) const MOST_REQUESTS: usize = 16;

/// Of transforms: the longest holds the longest sum without wrapping.
const LENGTHS: [usize; 4] = [256, 512, 1024, LONGEST];
const LONGEST: usize = MOST_REQUESTS * POINTS;

impl Clone for Convolver {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Convolver {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Convolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Convolver").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn distribution(weights: &[f64]) -> Distribution {
        let all: f64 = weights.iter().sum();
        let mut mass = [0.0; POINTS];
        for (mass, weight) in mass.iter_mut().zip(weights) {
            *mass = weight / all;
        }
        Distribution { step_ns: 1.0, mass }
    }

    fn by_hand(sum: &[f64], one: &[f64]) -> Vec<f64> {
        let mut longer = vec![0.0; sum.len() + one.len() - 1];
        for (i, a) in sum.iter().enumerate() {
            for (j, b) in one.iter().enumerate() {
                longer[i + j] += a * b;
            }
        }
        longer
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn spectra_give_what_convolving_by_hand_gives(
            weights in prop::collection::vec(prop_oneof![0.0..1.0_f64, Just(0.0)], POINTS),
            decay in prop_oneof![Just(1.0), 0.8..1.0_f64],
            rest in prop::collection::vec(0.01..1.0_f64, 1..=POINTS),
        ) {
            let weights: Vec<f64> =
                weights.iter().enumerate().map(|(point, weight)| (weight + 0.01) * decay.powi(point as i32)).collect();
            let (whole, rest) = (distribution(&weights), distribution(&rest));
            let mut convolver = Convolver::default();
            let mut exact = rest.mass.to_vec();
            let mut worst = 0.0_f64;
            convolver.prepare(&whole, 1e-10).sums(&rest, |_, sum| {
                exact = by_hand(&exact, &whole.mass);
                let beyond: f64 = exact.iter().skip(sum.len()).sum();
                worst = worst.max(beyond);
                for (found, exact) in sum.iter().zip(&exact) {
                    worst = worst.max((found - exact).abs());
                }
            });
            prop_assert!(worst < 2e-10, "{worst}");
        }
    }

    #[test]
    fn short_requests_take_short_transforms() {
        let short: Vec<f64> = (0..POINTS).map(|point| 0.8_f64.powi(point as i32)).collect();
        let mut convolver = Convolver::default();
        assert_eq!(LENGTHS[convolver.prepare(&distribution(&short), 1e-10).longest], 512);
        assert_eq!(LENGTHS[convolver.prepare(&distribution(&[1.0; POINTS]), 1e-10).longest], LONGEST);
    }
}
