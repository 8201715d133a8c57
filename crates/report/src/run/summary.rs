//! `summary.json`: the results, phase by phase, and whether the bars were met.

use super::StateShare;
use machine::{Duration, EnergyReading, Rate, Ratio};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// One entry per phase, in order; the first is the baseline of the others.
    pub phases: Vec<Phase>,
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    /// Figures of the other phases as shares of the first one's, with intervals. Where there are
    /// any, no ratio without an interval is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Compared>,
    /// The message of the figures, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Why the measurement is invalid (the generator could not keep up), if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// A short name, such as `stock`, `limited`, `scheduler`.
    pub name: String,
    /// Its difference, in a few words, such as `all workers, stock idle`.
    #[serde(default)]
    pub what: String,
    #[serde(rename = "length_ns", skip_serializing_if = "Option::is_none")]
    pub length: Option<Duration>,
    /// Mean rate of the load's schedule.
    #[serde(rename = "offered_per_s", alias = "asked_per_s", skip_serializing_if = "Option::is_none")]
    pub offered: Option<Rate>,
    #[serde(rename = "achieved_per_s", alias = "reached_per_s", skip_serializing_if = "Option::is_none")]
    pub achieved: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Requests that failed, or whose answer was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Median latency from the intended send time.
    #[serde(rename = "p50_ns", skip_serializing_if = "Option::is_none")]
    pub p50: Option<Duration>,
    #[serde(rename = "p99_ns", skip_serializing_if = "Option::is_none")]
    pub p99: Option<Duration>,
    #[serde(rename = "p999_ns", skip_serializing_if = "Option::is_none")]
    pub p999: Option<Duration>,
    #[serde(rename = "max_ns", skip_serializing_if = "Option::is_none")]
    pub max: Option<Duration>,
    /// Points of the latency distribution, by rising share; [`CurvePoint::SHARES`] are good ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
    /// Time that workers were active, summed over the workers.
    #[serde(rename = "awake_ns", skip_serializing_if = "Option::is_none")]
    pub awake: Option<Duration>,
    /// Mean over the workers' CPUs of the share of the phase in each idle state, shallow to deep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residency: Option<Vec<StateShare>>,
    /// Energy of the workers' CPUs (the generator's left out), with its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyReading>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<u64>,
    /// Share of sends that left too late for the reported tail to be trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<Ratio>,
}

/// One point of a latency distribution: `share` of the requests took at most `latency`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    pub share: Ratio,
    /// How long they took at most.
    #[serde(rename = "latency_ns")]
    pub latency: Duration,
}

impl CurvePoint {
    /// The shares at which a curve is worth a point: five for each factor of ten nearer to 1, up to
    /// 99.99 %.
    pub const SHARES: [f64; 19] = [
        0.0, 0.25, 0.5, 0.6, 0.75, 0.84, 0.9, 0.937, 0.96, 0.975, 0.984, 0.99, 0.9937, 0.996, 0.9984, 0.999,
        0.9996, 0.9998, 0.9999,
    ];
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The judged quantity, such as `worker-seconds awake`.
    pub figure: String,
    /// The finding, such as `0.61x`.
    pub found: String,
    /// The bar, such as `at most 0.75x of stock`.
    pub bar: String,
    /// Whether it was; `None` where it could not be measured or lies within the noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// It was measured, and the machine's own scatter is too large to tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub within_noise: bool,
}

/// A figure of a phase beside the first phase's, and their ratio with its 99 % interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    pub phase: String,
    /// The compared quantity, such as `worker-seconds awake`.
    pub figure: String,
    /// The first phase's, with its unit.
    pub first: String,
    pub value: String,
    /// This one's as a share of the first one's.
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

impl Compared {
    /// The interval holds 1: the two are not told apart.
    pub fn is_within_noise(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }

    /// The ratio and its interval, as they are read.
    pub fn interval(&self) -> String {
        format!("{} ({} to {})", times(self.ratio), times(self.low), times(self.high))
    }
}

/// A ratio as it is read: `0.005x`, `0.61x`, `73.2x`.
pub fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 99.5 => format!("{r:.0}x"),
        r if r >= 9.95 => format!("{r:.1}x"),
        r if r < 0.095 => format!("{r:.3}x"),
        r => format!("{r:.2}x"),
    }
}

impl Verdict {
    /// Its remark, in a word or two.
    pub fn mark(&self) -> &'static str {
        match (self.met, self.within_noise) {
            (Some(true), _) => "met",
            (Some(false), _) => "missed",
            (None, true) => "within noise",
            (None, false) => "not measured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_interval_beside_one_tells_two_phases_apart() {
        let compared = |low, high| Compared {
            phase: "b".to_owned(),
            figure: "p99".to_owned(),
            first: "1ms".to_owned(),
            value: "2ms".to_owned(),
            ratio: 1.0,
            low,
            high,
        };
        assert!(compared(0.9, 1.1).is_within_noise() && compared(1.0, 1.2).is_within_noise());
        assert!(!compared(0.8, 0.9).is_within_noise() && !compared(1.1, 1.2).is_within_noise());
        assert_eq!(compared(0.9, 73.4).interval(), "1.00x (0.90x to 73.4x)");
    }

    #[test]
    fn a_verdict_without_an_answer_says_why() {
        let mark = |met, within_noise| {
            Verdict { figure: String::new(), found: String::new(), bar: String::new(), met, within_noise }
                .mark()
        };
        assert_eq!(mark(Some(true), false), "met");
        assert_eq!(mark(Some(false), false), "missed");
        assert_eq!(mark(None, true), "within noise");
        assert_eq!(mark(None, false), "not measured");
    }

    #[test]
    fn the_shares_of_a_curve_rise() {
        assert!(CurvePoint::SHARES.is_sorted());
    }
}
