//! The estimated quantity, and the precision asked for: `1%@p99`.

use machine::Goal;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A share of requests that stay within a response time: p99 is 0.99. Always between 0 and 1, both
/// excluded.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Quantile(f64);

impl Quantile {
    pub const P50: Self = Self(0.5);
    pub const P95: Self = Self(0.95);
    /// All but one of a hundred.
    pub const P99: Self = Self(0.99);
    /// All but one of a thousand.
    pub const P999: Self = Self(0.999);

    /// From its name's number: 99.9 for p99.9.
    pub fn from_percent(percent: f64) -> Option<Self> {
        // Halves and tenths of a percent are to be the very numbers that a person would write.
        let share = (percent * 1e6).round() / 1e8;
        (share > 0.0 && share < 1.0).then_some(Self(share))
    }

    pub fn share(self) -> f64 {
        self.0
    }

    /// The share of the requests that take longer.
    pub fn tail(self) -> f64 {
        1.0 - self.0
    }
}

/// A figure of the response time.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Quantity {
    Mean,
    Quantile(Quantile),
}

impl Quantity {
    /// The content of a table of results.
    pub const SHOWN: [Self; 5] = [
        Self::Mean,
        Self::Quantile(Quantile::P50),
        Self::Quantile(Quantile::P95),
        Self::Quantile(Quantile::P99),
        Self::Quantile(Quantile::P999),
    ];

    /// The finest precision that it can be known to [D]: a quantile comes from buckets that are up
    /// to 0.1 % wide, and lies between two of them; the mean is exact, but 0.01 % of it may take
    /// 10^11 requests.
    fn finest(self) -> f64 {
        match self {
            Self::Mean => 1e-4,
            Self::Quantile(_) => 2e-3,
        }
    }
}

/// A run goes on until the half-width of an interval is no more than this share of its estimate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Precision {
    relative: f64,
    quantity: Quantity,
}

impl Precision {
    /// `relative` is a share: 0.01 for 1 %. `None` if it is 1 or more, or finer than can be told of
    /// the quantity.
    pub fn new(relative: f64, quantity: Quantity) -> Option<Self> {
        (quantity.finest()..1.0).contains(&relative).then_some(Self { relative, quantity })
    }

    /// The half-width as a share of the estimate.
    pub fn relative(self) -> f64 {
        self.relative
    }

    pub fn quantity(self) -> Quantity {
        self.quantity
    }
}

/// A text that is no [`Quantity`] or [`Precision`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePrecisionError {
    /// No `@`.
    #[error("precision '{0}' does not say of what: write it as 1%@p99 or 2%@mean")]
    NoQuantity(String),
    /// Not a percentage.
    #[error(
        "'{0}' is no precision: write a percentage below 100%, as in 1%@p99; at least 0.01% of the mean, \
         0.2% of a quantile"
    )]
    Percentage(String),
    #[error("'{0}' is nothing that can be estimated: write mean, or a quantile such as p50, p95, p99, p99.9")]
    Quantity(String),
}

impl Quantity {
    /// The subject of a latency goal.
    pub fn of(goal: Goal) -> Option<Self> {
        Quantile::from_percent(goal.quantile * 100.0).map(Self::Quantile)
    }
}

impl FromStr for Quantity {
    type Err = ParsePrecisionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let quantile = |digits: &str| {
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            plain.then(|| digits.parse().ok().and_then(Quantile::from_percent)).flatten().map(Self::Quantile)
        };
        match text.trim() {
            "mean" => Ok(Self::Mean),
            name => name
                .strip_prefix('p')
                .and_then(quantile)
                .ok_or_else(|| ParsePrecisionError::Quantity(name.into())),
        }
    }
}

impl FromStr for Precision {
    type Err = ParsePrecisionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (share, quantity) =
            text.split_once('@').ok_or_else(|| ParsePrecisionError::NoQuantity(text.trim().into()))?;
        let percent = share.trim().strip_suffix('%').and_then(|digits| digits.trim_end().parse::<f64>().ok());
        let quantity = quantity.parse()?;
        percent
            .and_then(|percent| Self::new(percent / 100.0, quantity))
            .ok_or_else(|| ParsePrecisionError::Percentage(share.trim().into()))
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", (self.0 * 1e8).round() / 1e6)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::Quantile(quantile) => quantile.fmt(f),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%@{}", (self.relative * 1e8).round() / 1e6, self.quantity)
    }
}

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl TryFrom<String> for $name {
            type Error = ParsePrecisionError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}

as_text!(Quantity, Precision);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood() {
        for (text, relative, quantity) in [
            ("1%@p99", 0.01, Quantity::Quantile(Quantile::P99)),
            ("2%@mean", 0.02, Quantity::Mean),
            ("5%@p99.9", 0.05, Quantity::Quantile(Quantile::P999)),
            (" 0.5 % @ p50 ", 0.005, Quantity::Quantile(Quantile::P50)),
        ] {
            let precision: Precision = text.parse().unwrap();
            assert!((precision.relative() - relative).abs() < 1e-12, "{text}");
            assert_eq!(precision.quantity(), quantity, "{text}");
        }
    }

    #[test]
    fn what_it_prints_it_reads() {
        for text in ["1%@p99", "2%@mean", "5%@p99.9", "0.25%@p99.99", "12.5%@p50"] {
            assert_eq!(text.parse::<Precision>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_error_says_what_to_write() {
        let error = |text: &str| text.parse::<Precision>().unwrap_err().to_string();
        assert_eq!(error("1%"), "precision '1%' does not say of what: write it as 1%@p99 or 2%@mean");
        for text in
            ["1@p99", "0.1%@p99", "100%@p99", "-1%@p99", "nan%@p99", "inf%@p99", "@p99", "0.001%@mean"]
        {
            assert!(error(text).contains("is no precision: write a percentage"), "{text}: {}", error(text));
        }
        for text in
            ["1%@p100", "1%@p0", "1%@99", "1%@median", "1%@", "1%@p-5", "1%@pinf", "1%@p1e1", "1%@P99"]
        {
            assert!(error(text).contains("nothing that can be estimated"), "{text}: {}", error(text));
        }
    }
}
