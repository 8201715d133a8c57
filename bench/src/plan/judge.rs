//! Predictions against repeated runs.
//!
//! The truth of a cell is the median of its runs, with a 95 % bootstrap interval. An error is the
//! distance from the prediction to that interval, as a share of the median: a prediction inside it
//! has none. A cell whose p99 interval is wider than 15 % to either side decides nothing.

use serde::Serialize;
use workload::Random;

/// A median of the runs, and its bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Truth {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Truth {
    pub fn of(values: &[f64], random: &mut Random) -> Option<Self> {
        const DRAWS: usize = 2_000;
        let median = middle(values.to_vec())?;
        let mut medians: Vec<f64> = (0..DRAWS)
            .filter_map(|_| {
                let draw = |_| values[random.below(values.len() as u64) as usize];
                middle((0..values.len()).map(draw).collect())
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let at = |share: f64| medians[(share * (DRAWS - 1) as f64).round() as usize];
        Some(Self { median, low: at(0.025), high: at(0.975) })
    }

    /// How wide the interval is to its wider side, as a share of the median.
    pub fn half_width(&self) -> f64 {
        (self.high - self.median).max(self.median - self.low) / self.median
    }

    /// Distance of `predicted` from the interval, as a share of the median; `None` of a median of
    /// zero, of which there are no shares.
    pub fn error(&self, predicted: f64) -> Option<f64> {
        let distance = (self.low - predicted).max(predicted - self.high).max(0.0);
        (self.median > 0.0).then(|| distance / self.median)
    }
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

pub const METRICS: [&str; 4] = ["p50_us", "p99_us", "busy_cpus", "wakes_per_s"];

/// A setting of a service at a load, with its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub name: String,
    /// In the order of [`METRICS`]; `None` where the plan does not say.
    pub predicted: [Option<f64>; 4],
    pub truth: [Option<Truth>; 4],
}

impl Cell {
    /// False where the runs differ too much from each other.
    pub fn is_decided(&self) -> bool {
        const WIDEST: f64 = 0.15;
        self.truth[1].is_some_and(|p99| p99.half_width() <= WIDEST)
    }

    fn error(&self, metric: usize) -> Option<f64> {
        self.truth[metric]?.error(self.predicted[metric]?)
    }
}

/// One bar, and how it came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    pub what: String,
    pub found: Option<f64>,
    pub most: f64,
}

impl Bar {
    pub fn is_met(&self) -> Option<bool> {
        self.found.map(|found| found <= self.most)
    }
}

/// The bars over all decided cells, and the share of undecided ones.
pub fn bars(cells: &[Cell]) -> Vec<Bar> {
    let errors = |metric: usize| -> Vec<f64> {
        let decided = cells.iter().filter(|cell| cell.is_decided());
        let mut errors: Vec<f64> = decided.filter_map(|cell| cell.error(metric)).collect();
        errors.sort_by(f64::total_cmp);
        errors
    };
    // Of a few cells the ninetieth percentile is the largest.
    let p90 = |errors: &[f64]| {
        (!errors.is_empty()).then(|| errors[((errors.len() as f64 * 0.9).ceil() as usize).max(1) - 1])
    };
    let bar = |what: &str, found: Option<f64>, most: f64| Bar { what: what.to_owned(), found, most };
    let mut bars = Vec::new();
    for (metric, name) in METRICS.iter().enumerate() {
        let errors = errors(metric);
        let median = middle(errors.clone());
        match *name {
            "p50_us" | "p99_us" => {
                bars.push(bar(&format!("{name}, median error"), median, 0.15));
                bars.push(bar(&format!("{name}, 90th percentile"), p90(&errors), 0.35));
            }
            "busy_cpus" => bars.push(bar(&format!("{name}, median error"), median, 0.05)),
            _ => bars.push(bar(&format!("{name}, median error"), median, 0.10)),
        }
    }
    let undecided = cells.iter().filter(|cell| !cell.is_decided()).count();
    let share = (!cells.is_empty()).then(|| undecided as f64 / cells.len() as f64);
    bars.push(bar("undecided cells", share, 0.25));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(values: &[f64]) -> Truth {
        Truth::of(values, &mut Random::new(1, 0)).unwrap()
    }

    #[test]
    fn a_prediction_within_the_interval_has_no_error() {
        let nine = truth(&[96.0, 97.0, 98.0, 99.0, 100.0, 101.0, 102.0, 103.0, 104.0]);
        assert_eq!(nine.median, 100.0);
        assert!(nine.low >= 96.0 && nine.high <= 104.0 && nine.low < 100.0 && nine.high > 100.0);
        assert_eq!(nine.error(100.0), Some(0.0));
        assert_eq!(truth(&[0.0; 9]).error(100.0), None);
        assert!((nine.error(nine.high + 20.0).unwrap() - 0.2).abs() < 1e-9);
        assert!((nine.error(nine.low - 10.0).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(Truth::of(&[], &mut Random::new(1, 0)), None);
    }

    fn cell(values: [f64; 9], predicted: f64) -> Cell {
        let found = truth(&values);
        Cell { name: "x".to_owned(), predicted: [Some(predicted); 4], truth: [Some(found); 4] }
    }

    #[test]
    fn a_wide_cell_decides_nothing_and_counts_as_undecided() {
        let narrow = cell([100.0; 9], 110.0);
        let wide = cell([10.0, 10.0, 10.0, 10.0, 100.0, 900.0, 900.0, 900.0, 900.0], 1.0);
        assert!(narrow.is_decided() && !wide.is_decided());
        let bars = bars(&[narrow, wide]);
        let found = |what: &str| bars.iter().find(|bar| bar.what.starts_with(what)).unwrap();
        assert!((found("p99_us, median").found.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(found("p99_us, median").is_met(), Some(true));
        assert_eq!(found("busy_cpus").is_met(), Some(false));
        assert_eq!(found("undecided").found, Some(0.5));
        assert_eq!(super::bars(&[])[0].is_met(), None);
    }
}
