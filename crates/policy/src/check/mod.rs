//! Parameters that can be: what a file says is held against it before a policy is made of it.
//!
//! A period of zero is a timer that is always due, a bound below the other one can never be kept, and what is no number
//! makes every comparison false. Policies hold some of these within bounds, each in its way; here they are refused, with
//! the key and what to write. `limits` has every policy's.
//!
//! What always holds: the defaults and the papers' settings pass, and no number that is not finite does.

mod limits;
#[cfg(test)]
mod tests;

use machine::{Duration, Kilohertz, Ratio};
use std::fmt;
use std::ops::RangeInclusive;

/// Parameters that know what they can be.
pub trait Check {
    /// The first that cannot be, if there is one.
    fn check(&self) -> Result<(), Wrong>;
}

/// A parameter that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}; {fix}")]
pub struct Wrong {
    /// Which; dotted below tables.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to write.
    pub fix: String,
}

impl Wrong {
    /// The same of parameters that lie in a table of this name.
    #[must_use]
    pub fn below(self, table: &str) -> Self {
        Self { key: format!("{table}.{}", self.key), ..self }
    }
}

fn holds(key: &str, ok: bool, found: impl fmt::Display, fix: impl Into<String>) -> Result<(), Wrong> {
    if ok { Ok(()) } else { Err(Wrong { key: key.to_owned(), problem: found.to_string(), fix: fix.into() }) }
}

/// A time in which something happens again, or a goal.
fn time(key: &str, length: Duration) -> Result<(), Wrong> {
    holds(key, !length.is_zero(), length, "write a time above zero, such as 100ms")
}

fn count(key: &str, number: impl Into<u64>) -> Result<(), Wrong> {
    let number = number.into();
    holds(key, number > 0, number, "write a whole number from 1 on")
}

fn clock(key: &str, clock: Kilohertz) -> Result<(), Wrong> {
    holds(key, clock.0 > 0, clock.0, "write a clock in kHz, such as 2000000")
}

fn within(key: &str, number: f64, bounds: RangeInclusive<f64>) -> Result<(), Wrong> {
    let fix = format!("write a number from {} to {}", bounds.start(), bounds.end());
    holds(key, bounds.contains(&number), number, fix)
}

/// A share of one; may be none of it, or all.
fn share(key: &str, share: Ratio) -> Result<(), Wrong> {
    within(key, share.as_f64(), 0.0..=1.0)
}

fn above_zero(key: &str, number: f64) -> Result<(), Wrong> {
    holds(key, number > 0.0 && number.is_finite(), number, "write a number above zero")
}

fn zero_or_more(key: &str, number: f64) -> Result<(), Wrong> {
    holds(key, number >= 0.0 && number.is_finite(), number, "write zero or a number above it")
}

/// Least and most of a factor that is one when all is as it should be.
fn around_one(key: &str, [least, most]: [f64; 2]) -> Result<(), Wrong> {
    let ok = 0.0 < least && least <= 1.0 && 1.0 <= most && most.is_finite();
    holds(
        key,
        ok,
        format!("[{least}, {most}]"),
        "write the least, up to 1, and the most, from 1 on: [0.5, 1.5]",
    )
}

/// A bound that is not beyond another one.
fn not_above<T: PartialOrd + fmt::Display>(key: &str, low: T, other: &str, high: T) -> Result<(), Wrong> {
    let (ok, found) = (low <= high, format!("{low} is above `{other}`, {high}"));
    holds(key, ok, found, format!("write no more than `{other}`"))
}

/// A quantile that tables can be made for.
fn quantile(key: &str, quantile: f64) -> Result<(), Wrong> {
    within(key, quantile, 0.5..=0.9999)
}
