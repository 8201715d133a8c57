//! Drawing from a list of weights in constant time.
//!
//! The alias method (Walker 1977; tables by Vose, "A linear algorithm for generating random numbers
//! with a given distribution", IEEE TSE 17(9), 1991). Every place gets a column of equal width that
//! it shares with at most one other. So a draw is one column and one comparison, for any weights
//! and any number of them.

use crate::Random;

/// Places drawn in proportion to their weights.
#[derive(Clone, Debug)]
pub(crate) struct Alias {
    /// How much of a column is its own place's, in 2^-64, and whose the rest is.
    columns: Vec<(u64, u32)>,
}

impl Alias {
    /// Up to [`PLACES_MAX`] finite weights, none negative and at least one above zero.
    pub fn new(weights: &[f64]) -> Self {
        assert!(!weights.is_empty() && weights.len() <= PLACES_MAX, "{} weights", weights.len());
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        assert!(
            mean > 0.0 && mean.is_finite() && weights.iter().all(|weight| *weight >= 0.0),
            "wrong weights"
        );
        let mut heights: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut columns: Vec<(u64, u32)> = (0..weights.len() as u32).map(|place| (u64::MAX, place)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|place| heights[*place] < 1.0);
        while let (Some(low), Some(high)) = (small.pop(), large.pop()) {
            columns[low] = ((heights[low] * TWO_TO_64) as u64, high as u32);
            heights[high] -= 1.0 - heights[low];
            if heights[high] < 1.0 { small.push(high) } else { large.push(high) }
        }
        // Whatever is left over is full but for rounding, and keeps its own place.
        Self { columns }
    }

    #[inline]
    pub fn draw(&self, random: &mut Random) -> usize {
        self.place(random.bits())
    }

    /// The place that these random bits fall on.
    #[inline]
    pub fn place(&self, bits: u64) -> usize {
        // The product's upper half is the column, its lower half where in the column.
        let product = u128::from(bits) * self.columns.len() as u128;
        let column = (product >> 64) as usize;
        let (own, other) = self.columns[column];
        if product as u64 <= own { column } else { other as usize }
    }
}

/// Leaves 40 random bits for the comparison within a column.
pub(crate) const PLACES_MAX: usize = 1 << 24;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn places_are_drawn_by_their_weights(
            weights in prop::collection::vec(prop_oneof![Just(0.0), 0.0..10.0f64], 1..40),
            seed: u64,
        ) {
            let whole: f64 = weights.iter().sum();
            prop_assume!(whole > 0.0);
            let alias = Alias::new(&weights);
            let mut random = Random::new(seed, 0);
            let draws = 40_000;
            let mut seen = vec![0u32; weights.len()];
            for _ in 0..draws {
                seen[alias.draw(&mut random)] += 1;
            }
            for (count, weight) in seen.iter().zip(&weights) {
                let expected = weight / whole * f64::from(draws);
                // Six standard deviations of the counting noise.
                let off = (f64::from(*count) - expected).abs();
                prop_assert!(off <= 6.0 * expected.sqrt() + 1.0, "{count} for {expected}");
                prop_assert!(*weight > 0.0 || *count == 0);
            }
        }
    }
}
