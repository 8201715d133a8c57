//! Figures of a run: medians or means over rounds, their intervals, and targets.
//!
//! Properties: only rounds in which all blocks of a figure are valid count. A figure of fewer than
//! half of its rounds is judged by no target. The same blocks always give the same interval.

use super::Block;
use crate::table::Table;
use serde::Serialize;
use std::fmt;

/// A figure that a bench states.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Of this case, or of each.
    pub case: Option<String>,
    pub metric: &'static str,
    pub unit: &'static str,
    pub of: Of,
    pub by: By,
    pub target: Option<Target>,
}

/// The blocks of a round that make one value.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    One(&'static str),
    /// The first over the second.
    Ratio(&'static str, &'static str),
    /// The first less the second.
    Added(&'static str, &'static str),
}

/// The value that is held against the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Median,
    /// The mean is shown (of ratios, the geometric), and the worse end of its interval is judged.
    IntervalEnd,
    /// The median is shown. Its target is met or missed where both quartiles are on one side of it;
    /// else the machine was too restless to tell.
    Quartiles,
}

#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub case: String,
    pub metric: &'static str,
    pub unit: &'static str,
    pub of: String,
    pub value: Option<f64>,
    /// The ends of the 95 % interval.
    pub interval: Option<(f64, f64)>,
    pub rounds: usize,
    pub valid: usize,
    pub target: Option<String>,
    /// `None` where there is no target, or too few valid rounds to tell.
    pub met: Option<bool>,
}

impl Figure {
    /// Of each case, by the median, without a target.
    pub fn new(metric: &'static str, unit: &'static str, of: Of) -> Self {
        Self { case: None, metric, unit, of, by: By::Median, target: None }
    }

    pub fn at_most(self, most: f64) -> Self {
        Self { target: Some(Target::AtMost(most)), ..self }
    }

    pub fn at_least(self, least: f64) -> Self {
        Self { target: Some(Target::AtLeast(least)), ..self }
    }

    pub fn in_case(self, case: impl Into<String>) -> Self {
        Self { case: Some(case.into()), ..self }
    }

    /// Of the cases that were measured, in their order.
    pub(super) fn rows(&self, blocks: &[Block]) -> Vec<Row> {
        let mut cases: Vec<&str> = Vec::new();
        for block in blocks {
            let is_wanted = self.case.as_deref().is_none_or(|case| case == block.case);
            if is_wanted && !cases.contains(&block.case.as_str()) {
                cases.push(&block.case);
            }
        }
        cases.into_iter().filter_map(|case| self.row(case, blocks)).collect()
    }

    /// `None` if no block of the case has the metric.
    fn row(&self, case: &str, blocks: &[Block]) -> Option<Row> {
        let of = |treatment: &str| -> Vec<&Block> {
            let in_case = blocks.iter().filter(|block| block.case == case);
            let own = in_case.filter(|block| block.treatment == treatment);
            own.filter(|block| block.metrics.contains_key(self.metric)).collect()
        };
        let (first, second) = match self.of {
            Of::One(one) => (of(one), None),
            Of::Ratio(one, other) | Of::Added(one, other) => (of(one), Some(of(other))),
        };
        if first.is_empty() {
            return None;
        }
        let value = |block: &Block| block.valid.then(|| block.metrics[self.metric]);
        let values: Vec<f64> = first
            .iter()
            .filter_map(|block| {
                let own = value(block)?;
                let Some(second) = &second else { return Some(own) };
                let other = value(second.iter().find(|other| other.round == block.round)?)?;
                Some(match self.of {
                    Of::One(_) => own,
                    Of::Ratio(..) => own / other,
                    Of::Added(..) => own - other,
                })
            })
            .filter(|value| value.is_finite())
            .collect();
        let statistic: fn(&mut [f64]) -> f64 = match (self.by, self.of) {
            (By::Median | By::Quartiles, _) => median,
            (By::IntervalEnd, Of::Ratio(..)) => geometric_mean,
            (By::IntervalEnd, _) => mean,
        };
        let interval = (values.len() > 1).then(|| bootstrap(&values, statistic));
        let judged = (!values.is_empty() && 2 * values.len() >= first.len()).then_some(());
        let found = judged.map(|()| statistic(&mut values.clone()));
        let met = self.target.zip(found).and_then(|(target, found)| {
            let (low, high) = match self.by {
                By::Median => (found, found),
                By::IntervalEnd => interval.unwrap_or((f64::NEG_INFINITY, f64::INFINITY)),
                By::Quartiles => quartiles(&mut values.clone()),
            };
            let (is_met, is_missed) = match target {
                Target::AtMost(most) => (high <= most, low > most),
                Target::AtLeast(least) => (low >= least, high < least),
            };
            (is_met || is_missed || self.by != By::Quartiles).then_some(is_met)
        });
        Some(Row {
            case: case.to_owned(),
            metric: self.metric,
            unit: if matches!(self.of, Of::Ratio(..)) { "x" } else { self.unit },
            of: self.of.to_string(),
            value: (!values.is_empty()).then(|| statistic(&mut values.clone())),
            interval,
            rounds: first.len(),
            valid: values.len(),
            target: self.target.map(|target| target.to_string()),
            met,
        })
    }
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(one) => f.write_str(one),
            Self::Ratio(one, other) => write!(f, "{one} / {other}"),
            Self::Added(one, other) => write!(f, "{one} - {other}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::AtLeast(least) => write!(f, ">= {least}"),
        }
    }
}

/// The middle value, or the mean of the two in the middle.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

/// The same of an iterator; `None` if there is no value.
pub fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| median(&mut values))
}

/// A quarter of the values is below the first, and above the second: between two values, in
/// proportion.
fn quartiles(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    let at = |share: f64| {
        let place = share * last as f64;
        let (below, within) = (place.floor() as usize, place.fract());
        values[below] + within * (values[last.min(below + 1)] - values[below])
    };
    (at(0.25), at(0.75))
}

fn mean(values: &mut [f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn geometric_mean(values: &mut [f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The ends of the 95 % interval of a statistic, by drawing as many of the values anew.
fn bootstrap(values: &[f64], statistic: fn(&mut [f64]) -> f64) -> (f64, f64) {
    const DRAWS: usize = 10_000;
    // A fixed seed: the same values always give the same interval.
    let mut stream = workload::Random::new(1, 0);
    let mut drawn = vec![0.0; values.len()];
    let mut found: Vec<f64> = (0..DRAWS)
        .map(|_| {
            drawn.fill_with(|| values[stream.below(values.len() as u64) as usize]);
            statistic(&mut drawn)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    let at = |share: f64| found[((DRAWS - 1) as f64 * share) as usize];
    (at(0.025), at(0.975))
}

/// The smallest value that at least this share does not exceed; 0 of none.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

pub(super) fn table(rows: &[Row]) -> String {
    let head = ["case", "metric", "of", "", "95 % interval", "rounds", "target", ""];
    let mut table = Table::new(3, head.map(str::to_owned).to_vec());
    for row in rows {
        let valid = if row.valid < row.rounds { format!("{} of ", row.valid) } else { String::new() };
        let verdict = match (&row.target, row.met) {
            (None, _) => "",
            (_, Some(true)) => "met",
            (_, Some(false)) => "MISSED",
            (_, None) if row.valid > 0 && 2 * row.valid >= row.rounds => "too restless to tell",
            (_, None) => "too few valid rounds",
        };
        let value = row.value.map_or("-".to_owned(), number);
        let interval = row.interval.map(|(low, high)| format!("{} to {}", number(low), number(high)));
        table.row(vec![
            row.case.clone(),
            row.metric.replace('_', " "),
            row.of.clone(),
            format!("{value}{}{}", if row.unit == "x" { "" } else { " " }, row.unit),
            interval.unwrap_or_default(),
            format!("{valid}{}", row.rounds),
            row.target.clone().unwrap_or_default(),
            verdict.to_owned(),
        ]);
    }
    table.text()
}

/// Four digits.
pub fn number(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(treatment: &str, values: &[(f64, bool)]) -> Vec<Block> {
        let one = |(round, &(value, valid)): (u32, &(f64, bool))| Block {
            case: "light".to_owned(),
            round,
            treatment: treatment.to_owned(),
            valid,
            metrics: [("time", value)].into(),
            detail: serde_json::Value::Null,
        };
        (0..).zip(values).map(one).collect()
    }

    fn row(figure: Figure, with: &[(f64, bool)], without: &[f64]) -> Row {
        let without: Vec<_> = without.iter().map(|&value| (value, true)).collect();
        let mut all = blocks("with", with);
        // As if it had been last in some rounds: the order of blocks is chance.
        all.splice(0..0, blocks("without", &without).into_iter().rev());
        figure.rows(&all).remove(0)
    }

    const RATIO: Of = Of::Ratio("with", "without");

    #[test]
    fn rounds_are_compared_pair_by_pair_whatever_their_order() {
        let figure = Figure::new("time", "us", RATIO).at_most(1.2);
        let valid = |values: &[f64]| -> Vec<_> { values.iter().map(|&value| (value, true)).collect() };
        let met = row(figure.clone(), &valid(&[110.0, 90.0, 1150.0]), &[100.0, 10.0, 1000.0]);
        assert!((met.value.unwrap() - 1.15).abs() < 1e-9 && met.met == Some(true), "{met:?}");
        let missed = row(figure.clone(), &valid(&[130.0, 90.0, 121.0]), &[100.0; 3]);
        assert_eq!((missed.value, missed.met), (Some(1.21), Some(false)));
        let added = Figure::new("time", "us", Of::Added("with", "without"));
        let added = row(added, &valid(&[12.0, 21.0, 100.0]), &[10.0, 20.0, 10.0]);
        assert_eq!((added.value, added.met), (Some(2.0), None));
    }

    #[test]
    fn invalid_blocks_do_not_count_and_too_many_of_them_leave_no_verdict() {
        let figure = Figure::new("time", "us", RATIO).at_most(1.0);
        let two = row(figure.clone(), &[(90.0, true), (500.0, false), (95.0, true)], &[100.0; 3]);
        assert_eq!((two.value, two.valid, two.rounds, two.met), (Some(0.925), 2, 3, Some(true)));
        let one = row(figure, &[(90.0, true), (1.0, false), (1.0, false)], &[100.0; 3]);
        assert_eq!(one.met, None, "{one:?}");
    }

    #[test]
    fn a_block_may_have_one_metric_that_does_not_count() {
        let figure = Figure::new("time", "us", Of::One("with")).at_most(3.0);
        let good = row(figure.clone(), &[(2.5, true), (f64::NAN, true), (2.9, true)], &[]);
        assert_eq!((good.valid, good.rounds, good.met), (2, 3, Some(true)));
        let late = row(figure.clone(), &[(2.5, true), (f64::NAN, true), (f64::NAN, true)], &[]);
        assert_eq!((late.valid, late.met), (1, None));
        assert_eq!(row(figure, &[(3.5, true)], &[]).met, Some(false));
    }

    #[test]
    fn an_interval_that_crosses_the_target_misses_it() {
        let figure = Figure { by: By::IntervalEnd, ..Figure::new("time", "us", RATIO).at_most(1.02) };
        let noisy: Vec<_> = (0..40).map(|at| (if at % 2 == 0 { 0.9 } else { 1.12 }, true)).collect();
        let calm: Vec<_> = (0..40).map(|at| (if at % 2 == 0 { 1.01 } else { 1.012 }, true)).collect();
        let (noisy, calm) = (row(figure.clone(), &noisy, &[1.0; 40]), row(figure, &calm, &[1.0; 40]));
        let ((low, high), (calm_low, calm_high)) = (noisy.interval.unwrap(), calm.interval.unwrap());
        let mean = noisy.value.unwrap();
        assert!(low < mean && mean < high && mean < 1.02, "{low} {mean} {high}");
        assert!(calm_high - calm_low < (high - low) / 10.0);
        assert_eq!((noisy.met, calm.met), (Some(false), Some(true)));
    }

    #[test]
    fn quartiles_on_both_sides_of_the_target_leave_no_verdict() {
        let figure = Figure { by: By::Quartiles, ..Figure::new("time", "us", Of::One("with")).at_least(2.0) };
        let of = |values: [f64; 4]| row(figure.clone(), &values.map(|value| (value, true)), &[]);
        assert_eq!(of([1.0, 2.5, 2.0, 3.0]).met, None);
        assert!(table(&[of([1.0, 2.5, 2.0, 3.0])]).contains("too restless"));
        assert_eq!(of([1.9, 2.5, 2.5, 3.0]).met, Some(true));
        assert_eq!(of([1.0, 1.5, 1.5, 3.0]).met, Some(false));
        assert_eq!(quartiles(&mut [4.0, 1.0, 2.0, 3.0]), (1.75, 3.25));
    }

    #[test]
    fn a_quantile_is_a_value_that_was_seen() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| quantile(&sorted, share)), [50.0, 99.0, 100.0]);
        assert_eq!((quantile(&[7.0], 0.99), quantile(&[], 0.5)), (7.0, 0.0));
        assert_eq!(median(&mut [3.0, 1.0, 2.0, 10.0]), 2.5);
    }
}
