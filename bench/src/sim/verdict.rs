//! From rounds to verdicts.
//!
//! Each round measures every contestant once, so a contestant is compared with the references of
//! its own round. The effect of a busy machine on all of them mostly cancels in the quotient. A bar
//! is met or missed when the quartiles of the quotients lie on one side of it; else the machine was
//! too restless to tell.

use super::sanity::Check;
use crate::exit::Exit;
use serde::Serialize;
use std::fmt;
use std::process::ExitCode;

#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    pub round: u32,
    pub who: String,
    pub requests: u64,
    pub cpu_s: f64,
    /// The same by the clock on the wall.
    pub wall_s: f64,
    pub mean_ns: f64,
    /// Mean power of all cores; SimPy's program knows none.
    pub watts: Option<f64>,
}

impl Measurement {
    fn speed(&self) -> f64 {
        self.requests as f64 / self.cpu_s
    }
}

/// The middle of some figures, and the middle half.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half are below.
    pub median: f64,
    /// A quarter is below.
    pub low: f64,
    /// A quarter is above.
    pub high: f64,
}

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        // Between two values, in proportion.
        let at = |share: f64| {
            let place = share * last as f64;
            let (below, within) = (place.floor() as usize, place.fract());
            values[below] + within * (values[last.min(below + 1)] - values[below])
        };
        Some(Self { median: at(0.5), low: at(0.25), high: at(0.75) })
    }

    /// Met or missed; `None` if it cannot be told.
    fn reaches(&self, bar: f64) -> Option<bool> {
        if self.low >= bar {
            Some(true)
        } else if self.high < bar {
            Some(false)
        } else {
            None
        }
    }
}

/// How a contestant compares with a reference.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ratio {
    pub spread: Spread,
    pub bar: Option<f64>,
    /// Met or missed; none if there is no bar or it cannot be told.
    pub met: Option<bool>,
}

impl Ratio {
    fn is_open(&self) -> bool {
        self.bar.is_some() && self.met.is_none()
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub who: String,
    /// Requests per second of CPU time.
    pub speed: Spread,
    /// Against SimPy, if that could be measured.
    pub to_simpy: Option<Ratio>,
    pub to_by_hand: Option<Ratio>,
    /// Mean response time over all rounds, in us.
    pub mean_us: f64,
    /// Mean power of all cores over all rounds.
    pub watts: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub conditions: Vec<String>,
    pub rows: Vec<Row>,
    pub checks: Vec<Check>,
}

/// Names of the references in measurements and tables.
pub const SIMPY: &str = "SimPy";
pub const BY_HAND: &str = "by hand";

impl Summary {
    /// Of all measurements; `bars` of a contestant by name: against SimPy, and by hand.
    pub fn of(
        measurements: &[Measurement],
        bars: impl Fn(&str) -> (Option<f64>, Option<f64>),
        checks: Vec<Check>,
    ) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for measurement in measurements {
            if !names.contains(&measurement.who.as_str()) {
                names.push(&measurement.who);
            }
        }
        let of = |who: &str| measurements.iter().filter(|m| m.who == who).collect::<Vec<_>>();
        let against = |who: &str, reference: &str, bar: Option<f64>| {
            let ratio = |m: &Measurement| {
                let other = measurements.iter().find(|r| r.who == reference && r.round == m.round)?;
                Some(m.speed() / other.speed())
            };
            let spread = Spread::of(of(who).into_iter().filter_map(ratio).collect())?;
            Some(Ratio { spread, bar, met: bar.and_then(|bar| spread.reaches(bar)) })
        };
        let rows = names.iter().filter_map(|&who| {
            let all = of(who);
            let (simpy, by_hand) = bars(who);
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            let watts: Vec<f64> = all.iter().filter_map(|m| m.watts).collect();
            Some(Row {
                who: who.to_owned(),
                speed: Spread::of(all.iter().map(|m| m.speed()).collect())?,
                to_simpy: against(who, SIMPY, simpy).filter(|_| who != SIMPY),
                to_by_hand: against(who, BY_HAND, by_hand).filter(|_| who != BY_HAND && who != SIMPY),
                mean_us: mean(&all.iter().map(|m| m.mean_ns / 1e3).collect::<Vec<_>>()),
                watts: (!watts.is_empty()).then(|| mean(&watts)),
            })
        });
        Self { conditions: Vec::new(), rows: rows.collect(), checks }
    }

    /// Done, a bar missed, or no verdict. Figures of a contestant that computes something else are
    /// worth nothing.
    pub fn exit_code(&self) -> ExitCode {
        let ratios = || self.rows.iter().flat_map(|row| [row.to_simpy, row.to_by_hand]).flatten();
        if self.checks.iter().any(|check| !check.holds()) {
            Exit::Failed.into()
        } else if ratios().any(|ratio| ratio.met == Some(false)) {
            Exit::GoalMissed.into()
        } else if ratios().any(|ratio| ratio.is_open()) {
            Exit::Invalid.into()
        } else {
            ExitCode::SUCCESS
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for condition in &self.conditions {
            writeln!(f, "{condition}")?;
        }
        writeln!(
            f,
            "\n{:<40} {:>24}  {:<32} {:<32} {:>9} {:>7}",
            "medians (middle half)",
            "M requests per CPU s",
            "against SimPy",
            "against the loop by hand",
            "mean us",
            "watts"
        )?;
        for row in &self.rows {
            let speed = Spread {
                median: row.speed.median / 1e6,
                low: row.speed.low / 1e6,
                high: row.speed.high / 1e6,
            };
            let line = format!(
                "{:<40} {:>24}  {:<32} {:<32} {:>9.3} {:>7}",
                row.who,
                speed.to_string(),
                text(row.to_simpy),
                text(row.to_by_hand),
                row.mean_us,
                row.watts.map_or(String::new(), |watts| format!("{watts:.1}")),
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f, "\nwithout exit latencies, against what is known of the queue:")?;
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        Ok(())
    }
}

fn text(ratio: Option<Ratio>) -> String {
    let Some(ratio) = ratio else { return String::new() };
    let verdict = match (ratio.bar, ratio.met) {
        (None, _) => String::new(),
        (Some(bar), Some(true)) => format!(" >= {bar} met"),
        (Some(bar), Some(false)) => format!(" >= {bar} MISSED"),
        (Some(bar), None) => format!(" >= {bar} too restless"),
    };
    format!("{}{verdict}", ratio.spread)
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = if self.median >= 20.0 { 0 } else { 2 };
        let places = if self.median < 0.2 { 3 } else { places };
        let Self { median, low, high } = self;
        f.pad(&format!("{median:.places$} ({low:.places$}..{high:.places$})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(who: &str, speeds: &[f64]) -> Vec<Measurement> {
        let one = |(round, speed): (usize, &f64)| Measurement {
            round: round as u32,
            who: who.to_owned(),
            requests: 1000,
            cpu_s: 1000.0 / speed,
            wall_s: 1.0,
            mean_ns: 12_000.0,
            watts: None,
        };
        speeds.iter().enumerate().map(one).collect()
    }

    fn summary(ours: &[f64]) -> Summary {
        let all = [
            measured(SIMPY, &[1.0, 2.0, 1.0, 1.0]),
            measured(BY_HAND, &[100.0, 200.0, 100.0, 100.0]),
            measured("teo", ours),
        ];
        let bars = |who: &str| if who == "teo" { (Some(60.0), Some(0.8)) } else { (None, None) };
        Summary::of(&all.concat(), bars, Vec::new())
    }

    #[test]
    fn a_contestant_is_compared_within_its_round() {
        // The second round was twice as fast for every contestant.
        let summary = summary(&[90.0, 180.0, 90.0, 90.0]);
        let ratio = summary.rows[2].to_by_hand.unwrap();
        assert_eq!(ratio.spread, Spread { median: 0.9, low: 0.9, high: 0.9 });
        assert_eq!((ratio.met, summary.exit_code()), (Some(true), ExitCode::SUCCESS));
    }

    #[test]
    fn a_missed_bar_outweighs_one_that_cannot_be_told() {
        let missed = summary(&[50.0, 100.0, 50.0, 50.0]);
        assert_eq!(missed.exit_code(), Exit::GoalMissed.into());
        assert!(missed.to_string().contains("MISSED"), "{missed}");
        let restless = summary(&[60.0, 200.0, 100.0, 70.0]);
        assert_eq!(restless.exit_code(), Exit::Invalid.into());
        assert!(restless.to_string().contains("too restless"), "{restless}");
    }

    #[test]
    fn without_simpy_its_bars_are_not_judged() {
        let all = [measured(BY_HAND, &[100.0]), measured("rubik", &[40.0])];
        let summary = Summary::of(&all.concat(), |_| (Some(30.0), None), Vec::new());
        assert!(summary.rows[1].to_simpy.is_none());
        assert_eq!(summary.exit_code(), ExitCode::SUCCESS);
    }

    #[test]
    fn quartiles_lie_between_the_values() {
        let spread = Spread::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, low: 1.75, high: 3.25 });
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
