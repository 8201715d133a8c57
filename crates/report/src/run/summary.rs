//! `summary.json`: what came out, phase by phase, and whether the bars were met.

use super::StateShare;
use machine::{Duration, EnergyReading, Rate, Ratio};
use serde::{Deserialize, Serialize};

/// What came out of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// One entry per phase, in the order in which they ran; the first is what the others are compared with.
    pub phases: Vec<Phase>,
    /// The bars and what was found.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    /// Why the measurement is invalid (the generator could not keep up), if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

/// One treatment of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// A short name, such as `stock`, `limited`, `scheduler`.
    pub name: String,
    /// What is different about it, in a few words, such as `all workers, stock idle`.
    #[serde(default)]
    pub what: String,
    /// How long it ran.
    #[serde(rename = "length_ns", default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Duration>,
    /// Mean rate that the load's schedule asked for.
    #[serde(rename = "asked_per_s", default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Rate>,
    /// Mean rate that was answered.
    #[serde(rename = "reached_per_s", default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Rate>,
    /// Requests answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Requests that failed, or whose answer was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Median latency from the intended send time.
    #[serde(rename = "p50_ns", default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<Duration>,
    /// The same, 99th percentile.
    #[serde(rename = "p99_ns", default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<Duration>,
    /// The same, 99.9th percentile.
    #[serde(rename = "p999_ns", default, skip_serializing_if = "Option::is_none")]
    pub p999: Option<Duration>,
    /// The longest.
    #[serde(rename = "max_ns", default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Duration>,
    /// Points of the latency distribution, by rising share; [`CurvePoint::SHARES`] are good ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
    /// Time that workers were active, summed over the workers.
    #[serde(rename = "awake_ns", default, skip_serializing_if = "Option::is_none")]
    pub awake: Option<Duration>,
    /// Mean over the workers' CPUs of the share of the phase in each idle state, shallow to deep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residency: Option<Vec<StateShare>>,
    /// Energy of the workers' CPUs (the generator's left out), with its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyReading>,
    /// Connections moved between workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfers: Option<u64>,
    /// Share of sends that left too late for the reported tail to be trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Ratio>,
}

/// One point of a latency distribution: `share` of the requests took at most `latency`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// Share of the requests.
    pub share: Ratio,
    /// How long they took at most.
    #[serde(rename = "latency_ns")]
    pub latency: Duration,
}

impl CurvePoint {
    /// The shares at which a curve is worth a point: five for each factor of ten nearer to 1, up to 99.99 %.
    pub const SHARES: [f64; 19] = [
        0.0, 0.25, 0.5, 0.6, 0.75, 0.84, 0.9, 0.937, 0.96, 0.975, 0.984, 0.99, 0.9937, 0.996, 0.9984, 0.999,
        0.9996, 0.9998, 0.9999,
    ];
}

/// One bar and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// What is judged, such as `worker-seconds awake`.
    pub figure: String,
    /// What was found, such as `0.61x`.
    pub found: String,
    /// What it had to be, such as `at most 0.75x of stock`.
    pub bar: String,
    /// Whether it was; `None` where it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

impl Verdict {
    /// Judges `found / baseline` against a bar of `at_most` times the baseline, which is called `baseline_name`. A
    /// figure that is missing, or a baseline of zero, is not met and not missed.
    pub fn at_most(
        figure: &str,
        found: Option<f64>,
        baseline: Option<f64>,
        at_most: f64,
        baseline_name: &str,
    ) -> Self {
        let ratio = found.zip(baseline).map(|(found, baseline)| found / baseline).filter(|r| r.is_finite());
        Self {
            figure: figure.to_owned(),
            found: ratio.map_or_else(|| "not measured".to_owned(), |ratio| format!("{ratio:.2}x")),
            bar: format!("at most {at_most:.2}x of {baseline_name}"),
            met: ratio.map(|ratio| ratio <= at_most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_both_figures() {
        let met = |found, baseline| Verdict::at_most("p99", found, baseline, 1.25, "stock").met;
        assert_eq!(met(Some(1.0), Some(1.0)), Some(true));
        assert_eq!(met(Some(1.25), Some(1.0)), Some(true));
        assert_eq!(met(Some(1.3), Some(1.0)), Some(false));
        assert_eq!(met(None, Some(1.0)), None);
        assert_eq!(met(Some(1.0), Some(0.0)), None);
        assert_eq!(met(Some(0.0), Some(0.0)), None);
    }

    #[test]
    fn the_shares_of_a_curve_rise() {
        assert!(CurvePoint::SHARES.is_sorted());
    }
}
