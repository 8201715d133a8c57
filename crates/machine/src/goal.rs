//! The goal of a service: a quantile of its response time, and a limit.

use crate::Duration;
use crate::duration_text::exact;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A latency goal: a quantile of the response time below a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub latency: Duration,
    /// Which quantile, as a share of one.
    pub quantile: f64,
}

impl Goal {
    /// How many requests must have been seen before their quantile says something about the goal:
    /// ten beyond it.
    pub fn samples(&self) -> u64 {
        // The share is a decimal fraction: without the rounding, p99 would need 1001.
        (10.0 / (1.0 - self.quantile) - 1e-6).ceil() as u64
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no latency goal: write a time and a percentile, such as 300us@p99");
        let (latency, percentile) = text.split_once("@p").ok_or_else(wrong)?;
        let latency: Duration = latency.trim().parse().map_err(|_| wrong())?;
        // p99 is 99 %, p999 is 99.9 %, p99.9 as well. By that rule p100 is 10 %, and p5.5 is 55 %: refused.
        let percentile = percentile.trim();
        let is_misread = match percentile.split_once('.') {
            Some((whole, _)) => whole.len() != 2,
            None => percentile.len() > 2 && percentile.trim_end_matches('0') == "1",
        };
        let digits = percentile.replace('.', "");
        let number: f64 = format!("0.{digits}").parse().map_err(|_| wrong())?;
        if digits.is_empty()
            || digits.bytes().any(|byte| !byte.is_ascii_digit())
            || is_misread
            || latency.is_zero()
            || number <= 0.0
        {
            return Err(wrong());
        }
        // p99.99999999 is the maximum of any run.
        if number > 1.0 - 1e-8 {
            return Err(wrong());
        }
        Ok(Self { latency, quantile: number })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@p{}", self.latency, percentile(self.quantile))
    }
}

/// The quantile as it is read again: 0.5 is 50, 0.999 is 99.9, 0.01 is 01.
fn percentile(quantile: f64) -> String {
    let digits = quantile.to_string();
    let digits = format!("{:0<2}", digits.strip_prefix("0.").unwrap_or(&digits));
    let (percent, rest) = digits.split_at(2);
    if rest.is_empty() { percent.to_owned() } else { format!("{percent}.{rest}") }
}

impl<'de> Deserialize<'de> for Goal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Goal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let percentile = percentile(self.quantile);
        serializer.collect_str(&format_args!("{}@p{percentile}", exact(self.latency)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_read_as_it_is_written() {
        for (text, quantile, written) in [
            ("1ms@p5", 0.5, "1.00ms@p50"),
            ("1ms@p01", 0.01, "1.00ms@p01"),
            ("1ms@p999", 0.999, "1.00ms@p99.9"),
            ("1ms@p99.99999", 0.999_999_9, "1.00ms@p99.99999"),
            ("1ms@p0012", 0.0012, "1.00ms@p00.12"),
        ] {
            let goal: Goal = text.parse().unwrap();
            assert_eq!((goal.quantile, goal.to_string().as_str()), (quantile, written));
            assert_eq!(goal.to_string().parse(), Ok(goal));
            let kept = serde_json::to_string(&goal).unwrap();
            assert_eq!(serde_json::from_str::<Goal>(&kept).unwrap(), goal, "{kept}");
        }
    }

    #[test]
    fn goals_name_any_percentile_that_a_run_can_have() {
        for (text, share) in [("1ms@p97", 0.97), ("1ms@p99.95", 0.9995), ("2us@p999", 0.999), ("1s@p50", 0.5)]
        {
            assert_eq!(text.parse::<Goal>().unwrap().quantile, share, "{text}");
        }
        for text in [
            "1ms@p99.99999999",
            "1ms@p",
            "1ms@p0",
            "1ms@p-5",
            "0s@p99",
            "1ms",
            "fast@p99",
            "1ms@p100",
            "1ms@p1000",
            "1ms@p100.0",
            "1ms@p5.5",
        ] {
            assert!(text.parse::<Goal>().unwrap_err().contains("such as 300us@p99"), "{text}");
        }
    }

    #[test]
    fn a_goal_is_written_exactly() {
        let goal: Goal = "1234567ns@p99.9".parse().unwrap();
        assert_eq!(serde_json::to_string(&goal).unwrap(), r#""1234567ns@p99.9""#);
        assert_eq!(serde_json::from_str::<Goal>(r#""1234567ns@p99.9""#).unwrap(), goal);
    }

    #[test]
    fn ten_requests_beyond_a_quantile_make_it_believable() {
        for (text, samples) in [("1ms@p99", 1000), ("1ms@p95", 200), ("1ms@p99.9", 10_000), ("1ms@p50", 20)] {
            assert_eq!(text.parse::<Goal>().unwrap().samples(), samples, "{text}");
        }
    }
}
