//! Intervals of a mean: for a stated end, and for looks at any of which a run may end.

use super::{ERROR, PAIRS_LEAST, student};
use workload::Random;

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// After the planned number of pairs, which no figure could change.
    Planned,
    /// Earlier, or it could have been earlier: for whatever reason.
    AnyTime,
}

/// The looks of a run: after each pair from the fourth to the last that is planned.
///
/// The level of each look is the one at which, of simulated runs of independent normal values with
/// mean 0, five in a hundred have any look that misses it. Student's t does not depend on the scale
/// of the values, so one table serves all figures. The runs come from a fixed seed.
#[derive(Clone, Debug)]
pub struct Looks {
    last: usize,
    /// The error of a single look.
    level: f64,
}

impl Looks {
    /// For a run of at most so many pairs.
    pub fn of(pairs: usize) -> Self {
        let last = pairs.max(PAIRS_LEAST);
        Self { last, level: level(last) }
    }

    /// The error that a single look is allowed; 5 % where there is one look.
    pub fn level(&self) -> f64 {
        self.level
    }

    /// The ends of the interval of the mean of `values`; `None` of fewer than four.
    ///
    /// At any time it is the intersection of the intervals of all looks so far: they all hold
    /// together in 95 of 100 runs. Where they have nothing in common some look has missed, which is
    /// among the five, and the last one stands.
    pub fn ends(&self, values: &[f64], ending: Ending) -> Option<(f64, f64)> {
        if values.len() < PAIRS_LEAST {
            return None;
        }
        assert!(values.len() <= self.last, "{} looks were planned", self.last);
        let at = |values: &[f64], error: f64| {
            let (mean, deviation) = mean_and_error(values);
            let half = student::quantile(error, (values.len() - 1) as f64) * deviation;
            (mean - half, mean + half)
        };
        if ending == Ending::Planned {
            return Some(at(values, ERROR));
        }
        let looks = (PAIRS_LEAST..=values.len()).map(|pairs| at(&values[..pairs], self.level));
        let (low, high) = looks.fold((f64::NEG_INFINITY, f64::INFINITY), |(low, high), look| {
            (look.0.max(low), look.1.min(high))
        });
        Some(if low <= high { (low, high) } else { at(values, self.level) })
    }
}

/// The mean, and its standard error.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

fn level(last: usize) -> f64 {
    if last == PAIRS_LEAST {
        return ERROR;
    }
    let looks = last - PAIRS_LEAST + 1;
    // So many that the share of runs is known to a few per cent of itself, within bounded memory.
    let runs = (2_000_000 / looks).clamp(4_000, 40_000);
    let mut random = Random::new(SEED, 0);
    let mut found = vec![0f32; runs * looks];
    for run in found.chunks_mut(looks) {
        let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
        for at in 0..last {
            let value = random.normal();
            count += 1.0;
            let off = value - mean;
            mean += off / count;
            squares += off * (value - mean);
            if at + 1 >= PAIRS_LEAST {
                let error: f64 = (squares / (count - 1.0) / count).sqrt();
                run[at + 1 - PAIRS_LEAST] = (mean.abs() / error) as f32;
            }
        }
    }
    let misses = |level: f64| {
        let bounds: Vec<f32> =
            (PAIRS_LEAST..=last).map(|pairs| student::quantile(level, (pairs - 1) as f64) as f32).collect();
        let misses = |run: &&[f32]| run.iter().zip(&bounds).any(|(t, bound)| t > bound);
        found.chunks(looks).filter(misses).count() as f64 / runs as f64
    };
    let (mut low, mut high) = (ERROR / looks as f64, ERROR);
    for _ in 0..16 {
        let middle = (low * high).sqrt();
        if misses(middle) > ERROR { high = middle } else { low = middle }
    }
    low
}

const SEED: u64 = 0x70726f7665;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_look_is_students_and_more_looks_are_stricter() {
        assert_eq!(Looks::of(4).level(), 0.05);
        let levels = [6, 12, 20, 60].map(|pairs| Looks::of(pairs).level());
        assert!(levels.windows(2).all(|pair| pair[0] > pair[1]), "{levels:?}");
        assert!(levels[3] > 0.05 / 57.0, "never stricter than by Bonferroni");
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        let of = |ending| Looks::of(12).ends(&values, ending).unwrap();
        // 2.776 x sqrt(2.5 / 5).
        let (planned, any) = (of(Ending::Planned), of(Ending::AnyTime));
        assert!((planned.0 - 1.037).abs() < 1e-3 && (planned.1 - 4.963).abs() < 1e-3, "{planned:?}");
        assert!(any.0 < planned.0 && any.1 > planned.1, "{any:?}");
        assert!(Looks::of(12).ends(&values[..3], Ending::Planned).is_none());
    }

    /// Not those that made the table: another seed, and values with a mean and a scale.
    #[test]
    fn all_looks_of_a_run_contain_the_truth_in_95_of_100_runs() {
        let looks = Looks::of(12);
        let mut random = Random::new(99, 3);
        let runs = 4000;
        let missed = (0..runs)
            .filter(|_| {
                let values: Vec<f64> = (0..12).map(|_| 0.3 + 0.02 * random.normal()).collect();
                (PAIRS_LEAST..=12)
                    .filter_map(|pairs| looks.ends(&values[..pairs], Ending::AnyTime))
                    .any(|(low, high)| !(low..=high).contains(&0.3))
            })
            .count();
        // Three standard deviations of 5 %, and the table's own error.
        assert!((160..=240).contains(&missed), "{missed} of {runs}");
    }

    #[test]
    fn looks_that_have_nothing_in_common_leave_the_last() {
        let looks = Looks::of(12);
        let mut values = vec![1.0, 1.001, 0.999, 1.0];
        let early = looks.ends(&values, Ending::AnyTime).unwrap();
        values.extend([9.0, 9.001, 8.999, 9.0, 9.0, 9.0, 9.0, 9.0]);
        let late = looks.ends(&values, Ending::AnyTime).unwrap();
        assert!(early.1 < late.0 || late.0 < late.1 && late.1 > 5.0, "{early:?} {late:?}");
    }

    #[test]
    fn values_that_do_not_scatter_are_known_exactly() {
        assert_eq!(Looks::of(12).ends(&[0.0; 5], Ending::AnyTime), Some((0.0, 0.0)));
    }
}
