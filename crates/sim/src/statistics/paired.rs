//! Differences between contestants that met the same chance.
//!
//! Contestants with one seed serve the same arrivals, services and noise (common random numbers;
//! Law, *Simulation Modeling and Analysis*, 11.2). A congested spell then lengthens the answers of
//! both, and the difference of their figures varies less than either figure does. Two intervals that
//! overlap say nothing of that; the interval of the difference does.
//!
//! A run is cut into *portions*, and a pair is the same portion of two runs:
//!
//! | run | portion | pair |
//! |---|---|---|
//! | one long one, response times | a batch: so many answers in a row | batches with the same place |
//! | one long one, power | a stretch of time | the same stretch |
//! | a story with replications | a replication | those with the same seed |
//!
//! Batches hold answers in the order in which they were given. Two policies give them in nearly the
//! same order, so all but a few requests at a batch's ends are the same ones.
//!
//! Each portion has a *value* for each figure, and the weighted mean of the values is the figure of
//! the run. Of a mean that is the portion's own mean. Of a quantile q it is Bahadur's
//! representation, q + (share above q in the portion - share above q) / density at q, with the
//! density read off the histogram between the ends of the quantile's own interval (Glynn, "Importance
//! sampling for Monte Carlo estimation of quantiles", 1996, for the variance of it).
//!
//! The *absolute* difference is the mean of the differences of paired values; the *relative* one is
//! the ratio of the two means, less one. Both are ratios of sums, so their intervals are those of
//! [`ratio`](super::ratio): Student's, adjusted for skewness and for correlation of neighbours.
//!
//! - *Different lengths.* Runs that end when they are precise end at different times. The batches of
//!   the longer one are merged to those of the other, and the pairs are those of the common
//!   beginning. The warm-up of both is left out. If one run is more than three times as long as the
//!   other, the pairs may be too few for an interval.
//! - *Resolution.* Quantiles come from buckets that are 0.1 % wide: of a distribution with an atom
//!   no difference below that is told.
//!
//! Invariants: a run against itself differs by exactly zero; exchanging the two turns the sign of the
//! absolute difference and nothing else of it.

use super::Interval;
use super::batches::MOST;
use super::ratio::{PARTS_MIN, Parts, spread};
use super::warm_up;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The kind of a portion, which is the same in all of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Portion {
    /// So many answers of one run.
    Batch,
    /// So many seconds of one run.
    Stretch,
    /// A whole run, with a seed of its own.
    Replication,
}

/// The figures of a run, portion by portion, from the beginning of the run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Portions {
    pub portion: Portion,
    /// How many at the beginning belong to the warm-up.
    pub left_out: usize,
    /// How much each counts: requests, seconds, or 1 for each.
    pub weights: Vec<f64>,
    /// The values of each figure, by its name.
    pub figures: BTreeMap<String, Vec<f64>>,
}

/// A figure less that of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Ours less theirs, in the figure's unit.
    pub absolute: Interval,
    /// As a share of the reference: 0.1 for a tenth more. `None` where the reference is nothing.
    pub relative: Option<Interval>,
    pub portion: Portion,
    /// Number of pairs that it rests on.
    pub pairs: usize,
}

impl Difference {
    /// Less than the reference, with 95 % confidence.
    pub fn is_below(&self) -> bool {
        self.absolute.high() < 0.0
    }

    /// More than the reference, with 95 % confidence.
    pub fn is_above(&self) -> bool {
        self.absolute.low() > 0.0
    }
}

impl Portions {
    /// Those of one run that is cut into stretches of time of equal length: the totals of each
    /// figure in each. `watched` is the figure that tells the warm-up. `None` of too few, or of a
    /// run that had not settled by its middle.
    pub fn of_stretches(
        seconds: Vec<f64>,
        totals: BTreeMap<String, Vec<f64>>,
        watched: &str,
    ) -> Option<Self> {
        let value = |(total, seconds): (&f64, &f64)| total / seconds;
        let figures =
            totals.into_iter().map(|(name, totals)| (name, totals.iter().zip(&seconds).map(value).collect()));
        let figures = figures.collect();
        let mut all = Self { portion: Portion::Stretch, left_out: 0, weights: seconds, figures };
        while all.weights.len() > MOST {
            all = all.merged();
        }
        if all.weights.len() < PARTS_MIN {
            return None;
        }
        all.left_out = warm_up::batches(all.figures.get(watched)?)?;
        Some(all)
    }

    /// The same with a figure that is another's, and a constant more.
    pub fn with_constant(mut self, of: &str, more: f64, name: &str) -> Self {
        if let Some(values) = self.figures.get(of) {
            let values = values.iter().map(|value| value + more).collect();
            self.figures.insert(name.to_owned(), values);
        }
        self
    }

    /// This run's figure less the reference's; `None` if they cannot be paired, or the pairs are
    /// too few or hang together too much.
    pub fn difference(&self, reference: &Self, figure: &str) -> Option<Difference> {
        if self.portion != reference.portion {
            return None;
        }
        let (mut ours, mut theirs) = (self.only(figure)?, reference.only(figure)?);
        if self.portion != Portion::Replication {
            while ours.length()? < ONE_LENGTH * theirs.length()? {
                ours = ours.merged();
            }
            while theirs.length()? < ONE_LENGTH * ours.length()? {
                theirs = theirs.merged();
            }
        }
        let from = ours.left_out.max(theirs.left_out);
        let parts = if self.portion == Portion::Replication { Parts::Independent } else { Parts::Successive };
        let mut pairs = pairs(&ours, &theirs, figure, from);
        loop {
            match of_pairs(&pairs, parts, self.portion) {
                None if parts == Parts::Successive && pairs.len() >= 2 * MERGED_MIN => {
                    pairs = pairs.chunks_exact(2).map(|two| two[0].merged(two[1])).collect();
                }
                difference => return difference,
            }
        }
    }

    fn only(&self, figure: &str) -> Option<Self> {
        let figures = BTreeMap::from([(figure.to_owned(), self.figures.get(figure)?.clone())]);
        Some(Self { figures, weights: self.weights.clone(), ..*self })
    }

    fn length(&self) -> Option<f64> {
        self.weights.first().copied().filter(|length| *length > 0.0)
    }

    /// Neighbours together; the last of an odd number is left out.
    fn merged(&self) -> Self {
        let two = |values: &Vec<f64>| -> Vec<f64> {
            let weighted: Vec<f64> = values.iter().zip(&self.weights).map(|(v, w)| v * w).collect();
            let sums = weighted.chunks_exact(2).zip(self.weights.chunks_exact(2));
            sums.map(|(values, weights)| (values[0] + values[1]) / (weights[0] + weights[1])).collect()
        };
        Self {
            portion: self.portion,
            left_out: self.left_out.div_ceil(2),
            weights: self.weights.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect(),
            figures: self.figures.iter().map(|(name, values)| (name.clone(), two(values))).collect(),
        }
    }
}

/// The same portion of two runs.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ours: f64,
    theirs: f64,
    weight: f64,
}

impl Pair {
    fn merged(self, next: Self) -> Self {
        let weight = self.weight + next.weight;
        let mean = |a: f64, b: f64| (a * self.weight + b * next.weight) / weight;
        Self { ours: mean(self.ours, next.ours), theirs: mean(self.theirs, next.theirs), weight }
    }
}

fn pairs(ours: &Portions, theirs: &Portions, figure: &str, from: usize) -> Vec<Pair> {
    let of = |portions: &Portions| -> Vec<(f64, f64)> {
        let values = portions.figures.get(figure).into_iter().flatten();
        values.copied().zip(portions.weights.iter().copied()).collect()
    };
    let both = of(ours).into_iter().zip(of(theirs)).skip(from);
    both.map(|((ours, w), (theirs, v))| Pair { ours, theirs, weight: 0.5 * (w + v) }).collect()
}

fn of_pairs(pairs: &[Pair], parts: Parts, portion: Portion) -> Option<Difference> {
    let sums = |of: &dyn Fn(&Pair) -> (f64, f64)| -> Option<Interval> {
        let sums: Vec<(f64, f64)> =
            pairs.iter().map(|pair| (of(pair).0 * pair.weight, of(pair).1 * pair.weight)).collect();
        let spread = spread(&sums, parts)?;
        Some(Interval { estimate: spread.ratio, half_width: spread.above.max(spread.below) })
    };
    let absolute = sums(&|pair| (pair.ours - pair.theirs, 1.0))?;
    let relative = sums(&|pair| (pair.ours, pair.theirs))
        .map(|ratio| Interval { estimate: ratio.estimate - 1.0, half_width: ratio.half_width });
    Some(Difference { absolute, relative, portion, pairs: pairs.len() })
}

/// Portions whose lengths differ by less than this have one length: batches differ by powers of
/// two.
const ONE_LENGTH: f64 = 0.75;
/// Fewer merged pairs than this say too little of whether they hang together, as in
/// [`ratio_estimator`](super::ratio_estimator) \[D\].
const MERGED_MIN: usize = 15;

#[cfg(test)]
mod tests;
