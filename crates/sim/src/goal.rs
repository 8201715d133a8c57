//! What a service shall keep: a quantile of its response time, and a limit.

use crate::statistics::{Quantile, Quantity};
use machine::Duration;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A latency goal: a quantile of the response time below a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The limit.
    pub latency: Duration,
    /// Which quantile, as a share of one.
    pub quantile: f64,
}

impl Goal {
    /// What it is about, as figures call it.
    pub fn quantity(&self) -> Option<Quantity> {
        Quantile::from_percent(self.quantile * 100.0).map(Quantity::Quantile)
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no latency goal: write a time and a percentile, such as 300us@p99");
        let (latency, percentile) = text.split_once("@p").ok_or_else(wrong)?;
        let latency: Duration = latency.trim().parse().map_err(|_| wrong())?;
        // p99 is 99 %, p999 is 99.9 %, p99.9 as well.
        let digits = percentile.trim().replace('.', "");
        let number: f64 = format!("0.{digits}").parse().map_err(|_| wrong())?;
        if digits.is_empty()
            || digits.bytes().any(|byte| !byte.is_ascii_digit())
            || latency.is_zero()
            || number <= 0.0
        {
            return Err(wrong());
        }
        let goal = Self { latency, quantile: number };
        // p99.99999999 is the maximum of any run.
        goal.quantity().map(|_| goal).ok_or_else(wrong)
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@p{}", self.latency, (self.quantile * 1e6).round() / 1e4)
    }
}

impl<'de> Deserialize<'de> for Goal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Goal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_name_any_percentile_that_a_run_can_have() {
        for (text, share) in [("1ms@p97", 0.97), ("1ms@p99.95", 0.9995), ("2us@p999", 0.999), ("1s@p50", 0.5)]
        {
            let goal: Goal = text.parse().unwrap();
            let Some(Quantity::Quantile(quantile)) = goal.quantity() else { panic!("{text}") };
            assert_eq!(quantile.share(), share, "{text}");
        }
        for text in ["1ms@p99.99999999", "1ms@p", "1ms@p0", "1ms@p-5", "0s@p99", "1ms", "fast@p99"] {
            assert!(text.parse::<Goal>().unwrap_err().contains("such as 300us@p99"), "{text}");
        }
    }
}
