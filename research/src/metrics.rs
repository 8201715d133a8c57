//! The figures of a run as the papers' claims and axes name them, each with its interval.
//!
//! One list of names serves all of `roost sim` ([`Figure`]). Some things are added here. A server's
//! power is known as well as that of its processors, because the rest of it is a constant; so it
//! has their interval. And `mean_p95` is CARB's overall latency: the mean of the 95th percentiles
//! of its epochs; and Tradeoffs 7 asks how much of the time lies in periods below a millisecond.

use sim::Outcome;
use sim::outcome::{Estimate, Lengths, Point, Verdict};
use std::fmt;
use std::str::FromStr;
use study::figures::{Figure, Unit};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Mean over the time series of the 95th percentiles in it.
    MeanOfP95,
    /// Share of the time in idle periods that were shorter than a millisecond.
    ShortIdle,
    /// Share of the time in periods of activity that were.
    ShortActivity,
    Figure(Figure),
}

impl Metric {
    /// Its value in a run, in its unit.
    pub fn of(&self, run: &Outcome) -> Option<Estimate> {
        if run.verdict == Verdict::Unstable {
            return None;
        }
        match self {
            Self::MeanOfP95 => mean_of_p95(&run.points),
            Self::ShortIdle => short(&run.idle_lengths),
            Self::ShortActivity => short(&run.active_lengths),
            Self::Figure(figure) => {
                let found = figure.of(run)?;
                Some(Estimate {
                    half_width: found.half_width.or_else(|| power_interval(figure, run)),
                    ..found
                })
            }
        }
    }

    /// Its value in a stretch of a run.
    pub fn of_point(&self, point: &Point) -> Option<Estimate> {
        let Self::Figure(Figure::Plain(name)) = self else { return None };
        let spread = point.spread.unwrap_or_default();
        let (value, half_width) = match *name {
            "throughput" => (point.rate, None),
            "mean" => (point.mean_ns?, spread.mean_ns),
            "p95" => (point.p95_ns?, spread.p95_ns),
            "p99" => (point.p99_ns?, spread.p99_ns),
            "cpu_watts" => (point.cpu_watts, spread.cpu_watts),
            "core_watts" => (point.core_watts, spread.cpu_watts),
            "awake_cores" => (point.awake, None),
            "active_cores" => (point.active, None),
            _ => return None,
        };
        Some(Estimate { value, half_width })
    }

    pub fn unit(&self) -> Unit {
        match self {
            Self::MeanOfP95 => Unit::Nanoseconds,
            Self::ShortIdle | Self::ShortActivity => Unit::Share,
            Self::Figure(figure) => figure.unit(),
        }
    }

    /// A percentile or mean of response times.
    pub fn is_time(&self) -> bool {
        self.unit() == Unit::Nanoseconds
    }
}

/// Everything but the processors is a constant, so the whole is as uncertain, in watts, as they
/// are. Cores alone are no more so: the uncore moves with them.
fn power_interval(figure: &Figure, run: &Outcome) -> Option<f64> {
    let half_width = run.power.cpu_half_width_watts?;
    match figure {
        Figure::Plain("server_watts" | "core_watts") => Some(half_width),
        Figure::Plain("joules_per_request") => {
            Some(run.power.joules_per_request * half_width / run.power.server_watts)
        }
        _ => None,
    }
}

/// The stretches of a run are nearly independent of each other, so their errors add as squares.
fn mean_of_p95(points: &[Point]) -> Option<Estimate> {
    let known = || {
        points.iter().filter_map(|point| Some((point.p95_ns?, point.spread.and_then(|spread| spread.p95_ns))))
    };
    let n = known().count() as f64;
    let value = known().map(|(value, _)| value).sum::<f64>() / n;
    let squares: Option<f64> = known().map(|(_, half_width)| half_width.map(|half| half * half)).sum();
    value.is_finite().then_some(Estimate { value, half_width: squares.map(|sum| sum.sqrt() / n) })
}

/// The share of a histogram's time below a millisecond: its buckets double, and 2^20 ns is the
/// bound that is nearest.
fn short(lengths: &Lengths) -> Option<Estimate> {
    const MILLISECOND: u64 = 1 << 20;
    let all: f64 = lengths.time_share.iter().sum();
    let buckets = lengths.from_ns.iter().zip(&lengths.time_share);
    let short: f64 = buckets.filter(|(from_ns, _)| **from_ns < MILLISECOND).map(|(_, share)| share).sum();
    (all > 0.0).then_some(Estimate { value: short / all, half_width: None })
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MeanOfP95 => f.write_str("mean_p95"),
            Self::ShortIdle => f.write_str("idle_below_1ms"),
            Self::ShortActivity => f.write_str("active_below_1ms"),
            Self::Figure(figure) => write!(f, "{figure}"),
        }
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "mean_p95" => Ok(Self::MeanOfP95),
            "idle_below_1ms" => Ok(Self::ShortIdle),
            "active_below_1ms" => Ok(Self::ShortActivity),
            // The offered rate is the answered rate, as long as the queue is stable.
            "rate" => "throughput".parse().map(Self::Figure),
            text => text.parse().map(Self::Figure),
        }
    }
}
