//! The order of the blocks: pair by pair, each pair in an order of its own.

use super::Treatment;
use workload::Random;

/// Two blocks for each pair, of either treatment one. The same seed gives the same order.
pub fn schedule(pairs: u32, seed: u64) -> Vec<Treatment> {
    let mut random = Random::new(seed, 0);
    let pair = |_| match random.below(2) {
        0 => [Treatment::Governed, Treatment::Ungoverned],
        _ => [Treatment::Ungoverned, Treatment::Governed],
    };
    (0..pairs).flat_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_both_treatments_and_either_comes_first_as_often() {
        let blocks = schedule(1000, 7);
        assert!(blocks.chunks(2).all(|pair| pair[0] != pair[1]));
        let first = blocks.chunks(2).filter(|pair| pair[0] == Treatment::Governed).count();
        // Four standard deviations of a fair coin.
        assert!(first.abs_diff(500) < 64, "{first}");
        assert_eq!(blocks, schedule(1000, 7));
        assert_ne!(blocks, schedule(1000, 8));
    }
}
