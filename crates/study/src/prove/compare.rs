//! Each figure: governed against ungoverned, by the pairs of like load.

use super::{Ending, Figure, Looks, Pairs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A figure's change by governing, with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// As it is called in a block.
    pub figure: String,
    /// Geometric means over the pairs, in the figure's unit.
    pub ungoverned: f64,
    pub governed: f64,
    /// Governed over ungoverned, less 1: -0.12 is 12 % less.
    pub change: f64,
    /// The ends of the 95 % interval of the change; nothing of fewer than four pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    pub pairs: usize,
}

impl Change {
    /// True if the interval excludes no change.
    pub fn is_found(&self) -> bool {
        self.low.is_some_and(|low| low > 0.0) || self.high.is_some_and(|high| high < 0.0)
    }

    /// Half of the interval's width, as a share of the ungoverned figure.
    pub fn half_width(&self) -> Option<f64> {
        Some((self.high? - self.low?) / 2.0)
    }
}

/// All figures that both blocks of some pair have, in the order of their names.
pub fn compare(pairs: &Pairs<'_>, looks: &Looks, ending: Ending) -> Vec<Change> {
    let names: BTreeSet<&String> =
        pairs.like.iter().flat_map(|(governed, _)| governed.figures.keys()).collect();
    names.into_iter().filter_map(|name| change(name, pairs, looks, ending)).collect()
}

/// The change of one figure; `None` where no pair has it.
pub fn change_of(figure: &Figure, pairs: &Pairs<'_>, looks: &Looks, ending: Ending) -> Option<Change> {
    change(&figure.to_string(), pairs, looks, ending)
}

fn change(name: &str, pairs: &Pairs<'_>, looks: &Looks, ending: Ending) -> Option<Change> {
    let both = pairs.like.iter().filter_map(|(governed, ungoverned)| {
        let of = |figures: &std::collections::BTreeMap<String, f64>| {
            figures.get(name).filter(|value| value.is_finite() && **value > 0.0).map(|value| value.ln())
        };
        Some((of(&governed.figures)?, of(&ungoverned.figures)?))
    });
    let both: Vec<(f64, f64)> = both.collect();
    if both.is_empty() {
        return None;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| both.iter().map(of).sum::<f64>() / both.len() as f64;
    let (governed, ungoverned) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let logs: Vec<f64> = both.iter().map(|(governed, ungoverned)| governed - ungoverned).collect();
    let ends = looks.ends(&logs, ending);
    Some(Change {
        figure: name.to_owned(),
        ungoverned: ungoverned.exp(),
        governed: governed.exp(),
        change: (governed - ungoverned).exp_m1(),
        low: ends.map(|(low, _)| low.exp_m1()),
        high: ends.map(|(_, high)| high.exp_m1()),
        pairs: both.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::block;
    use super::super::{Block, LikeLoad, Treatment};
    use super::*;

    #[test]
    fn the_change_is_that_of_the_pairs_whatever_the_drift() {
        // Power doubles over the run; governed takes a tenth less, give or take a thousandth.
        let blocks: Vec<Block> = (1..=10)
            .flat_map(|pair| {
                let base = 50.0 + 5.0 * f64::from(pair);
                let off = if pair % 2 == 0 { 0.001 } else { -0.001 };
                [
                    block(pair, Treatment::Governed, 100.0, base * (0.9 + off)),
                    block(pair, Treatment::Ungoverned, 101.0, base),
                ]
            })
            .collect();
        let pairs = Pairs::of(&blocks, LikeLoad(0.1));
        let looks = Looks::of(10);
        let all = compare(&pairs, &looks, Ending::Planned);
        assert_eq!(all.len(), 1);
        let change = &all[0];
        assert!((change.change + 0.1).abs() < 1e-4 && change.is_found(), "{change:?}");
        assert!(change.low.unwrap() < -0.1 && change.high.unwrap() > -0.1);
        assert!(change.half_width().unwrap() < 0.001);
        let early = compare(&pairs, &looks, Ending::AnyTime);
        assert!(early[0].half_width() > change.half_width());
    }

    #[test]
    fn a_figure_that_no_pair_has_is_missing_and_few_pairs_have_no_interval() {
        let blocks =
            [block(1, Treatment::Governed, 9.0, 1.0), block(1, Treatment::Ungoverned, 9.0, f64::NAN)];
        let pairs = Pairs::of(&blocks, LikeLoad(0.1));
        assert!(compare(&pairs, &Looks::of(4), Ending::Planned).is_empty());
        let blocks = [block(1, Treatment::Governed, 9.0, 1.0), block(1, Treatment::Ungoverned, 9.0, 2.0)];
        let pairs = Pairs::of(&blocks, LikeLoad(0.1));
        let one = change_of(&Figure::Watts("m".to_owned()), &pairs, &Looks::of(4), Ending::Planned).unwrap();
        assert!(one.low.is_none() && !one.is_found() && (one.change + 0.5).abs() < 1e-12);
    }
}
