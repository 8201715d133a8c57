//! How many batches at the beginning of a run belong to its warm-up.
//!
//! A run starts with an empty queue and with policies that have learned nothing. Two rules
//! together:
//!
//! - *The first batch always goes.* Batches are so long that neighbours hardly hang together (see
//!   [`ratio`](super::ratio)), so the effect of the empty queue is forgotten by the second.
//! - *A longer warm-up, of a policy that learns, is found by MSER* (White, "An effective truncation
//!   heuristic for bias reduction in simulation output", Simulation 69, 1997; MSER-5 is the same
//!   over batches of five): leave out as many as make the standard error of the rest smallest, at
//!   most half. Our batches grow with the run instead of holding five requests, so that memory does
//!   not.
//!
//! MSER alone also leaves out a congested spell that happens to lie at the beginning, and the
//! estimate is then too low: with it, the interval for the mean of M/M/10 covered the truth in 74
//! of 100 runs (journal). So its advice is followed only if the part that it leaves out differs
//! from the second half of the run, which it never chooses, by more than [`STRIKING`] standard
//! errors.

/// How many of the batches to leave out; `None` if the run had not settled by its middle.
pub(super) fn batches(means: &[f64]) -> Option<usize> {
    let middle = means.len() / 2;
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    for start in (0..means.len()).rev() {
        sum += means[start];
        squares += means[start] * means[start];
        let rest = (means.len() - start) as f64;
        let error = (squares - sum * sum / rest).max(0.0) / (rest * rest);
        if start <= middle && error <= best.0 {
            best = (error, start);
        }
    }
    let (_, start) = best;
    if start <= 1 {
        return Some(1);
    }
    let (left_out, _) = mean_and_variance(&means[..start]);
    let (mean, variance) = mean_and_variance(&means[middle..]);
    let chance = (variance * (1.0 / start as f64 + 1.0 / (means.len() - middle) as f64)).sqrt();
    match (left_out - mean).abs() > STRIKING * chance {
        true if start == middle => None,
        true => Some(start),
        false => Some(1),
    }
}

fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0))
}

/// Standard errors [D]: among 48 batches with a skewness of one, chance passes it in one run of a
/// hundred.
const STRIKING: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Random;

    /// Around ten, with a skewness of one: means of four exponentials.
    fn noise(count: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed, 0);
        let mut exponential = || -(1.0 - random.unit()).ln();
        (0..count).map(|_| 9.0 + 0.25 * (0..4).map(|_| exponential()).sum::<f64>()).collect()
    }

    #[test]
    fn a_settled_run_loses_one_batch() {
        let lost: Vec<_> = (0..200).map(|seed| batches(&noise(48, seed))).collect();
        assert!(lost.iter().filter(|lost| **lost == Some(1)).count() >= 195, "{lost:?}");
    }

    #[test]
    fn a_policy_that_learns_for_a_fifth_of_the_run_is_left_to_learn() {
        for seed in 0..50 {
            let mut means = noise(50, seed);
            for (place, mean) in means.iter_mut().take(10).enumerate() {
                *mean += 2.0 * (10 - place) as f64;
            }
            let cut = batches(&means).unwrap();
            assert!(cut >= 7, "{cut}");
        }
    }

    #[test]
    fn a_run_that_never_settles_has_no_answer() {
        let means: Vec<f64> = (0..40).map(f64::from).collect();
        assert_eq!(batches(&means), None);
    }

    #[test]
    fn a_congested_spell_at_the_beginning_is_part_of_the_truth() {
        let kept = |seed: &u64| {
            let mut means = noise(48, *seed);
            means[1] += 1.5;
            batches(&means) == Some(1)
        };
        let kept = (0..100).filter(kept).count();
        assert!(kept >= 90, "{kept} of 100");
    }

    #[test]
    fn constant_and_empty_runs_are_no_trouble() {
        assert_eq!(batches(&[5.0; 40]), Some(1));
        assert_eq!(batches(&[]), Some(1));
        assert_eq!(batches(&[1.0]), Some(1));
    }
}
