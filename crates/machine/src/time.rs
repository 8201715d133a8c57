//! Time in nanoseconds, rates in events per second, and shares of one.
//!
//! Ours instead of `std::time`'s: a simulator must start at zero, a replay must carry the instants
//! it recorded, and eight bytes that add in one instruction matter in the simulator's inner loop.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::str::FromStr;

/// A point in time: nanoseconds since the driver's epoch (boot on Linux's `CLOCK_MONOTONIC`, zero
/// in simulation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instant(u64);

/// A length of time in nanoseconds. Subtraction saturates at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Duration(u64);

impl Instant {
    pub const ZERO: Self = Self(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it is not earlier (clocks of two CPUs may disagree by a
    /// little).
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// From microseconds, the unit in which the kernel states exit latencies.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }
    /// From a number of seconds; a negative or undefined one is zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9) as u64)
    }
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// In whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// In whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// This length scaled by `factor`; a negative or undefined factor gives zero.
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }
    /// True for no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<std::time::Duration> for Duration {
    fn from(length: std::time::Duration) -> Self {
        Self(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for std::time::Duration {
    fn from(length: Duration) -> Self {
        Self::from_nanos(length.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, length: Duration) {
        *self = *self + length;
    }
}
impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(length.0))
    }
}
impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
impl SubAssign for Duration {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}
impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}
impl Div<u64> for Duration {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}
impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Duration {
    /// Three significant figures in the largest unit that leaves a number of at least one:
    /// `1.50ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{}ns", self.0)),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "us"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        f.pad(&format!("{value:.decimals$}{unit}"))
    }
}

/// A text that is no length of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDurationError(String);

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no length of time: write a number and a unit, such as 500us, 10ms, 1.5s, 2m or 1h",
            self.0
        )
    }
}
impl std::error::Error for ParseDurationError {}

impl FromStr for Duration {
    type Err = ParseDurationError;

    /// A decimal number and one of `ns us ms s m h`, without a space.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseDurationError(text.to_owned());
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(refused)?;
        let (number, unit) = text.split_at(unit_at);
        let nanos_per_unit = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return Err(refused()),
        };
        let number: f64 = number.parse().map_err(|_| refused())?;
        if !number.is_finite() || number < 0.0 {
            return Err(refused());
        }
        Ok(Self((number * nanos_per_unit).round() as u64))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Rate(f64);

impl Rate {
    pub const ZERO: Self = Self(0.0);

    /// `per_second` events each second; a negative or undefined number is zero.
    pub fn per_second(per_second: f64) -> Self {
        Self(if per_second.is_finite() { per_second.max(0.0) } else { 0.0 })
    }
    /// `count` events in `span`; zero for no events, and for no span the rate over one nanosecond.
    pub fn of(count: u64, span: Duration) -> Self {
        Self(count as f64 * 1e9 / span.as_nanos().max(1) as f64)
    }
    pub const fn as_per_second(self) -> f64 {
        self.0
    }
    pub fn scale(self, factor: f64) -> Self {
        Self::per_second(self.0 * factor)
    }
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

impl Add for Rate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for Rate {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for Rate {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, other: Self) -> Self {
        Self((self.0 - other.0).max(0.0))
    }
}
impl Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        Self(rates.map(|rate| rate.0).sum())
    }
}
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            rate if rate >= 1e6 => format!("{:.2}M/s", rate / 1e6),
            rate if rate >= 1e4 => format!("{:.1}k/s", rate / 1e3),
            rate => format!("{rate:.0}/s"),
        };
        f.pad(&text)
    }
}

/// A share between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(f64);

impl Ratio {
    pub const ZERO: Self = Self(0.0);
    pub const ONE: Self = Self(1.0);

    /// `share`, held within 0 and 1; an undefined number is 0.
    pub fn new(share: f64) -> Self {
        Self(if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) })
    }
    /// The share that `part` is of `whole`; 0 of no whole.
    pub fn of(part: Duration, whole: Duration) -> Self {
        if whole.is_zero() { Self::ZERO } else { Self::new(part.as_nanos() as f64 / whole.as_nanos() as f64) }
    }
    /// As a number between 0 and 1.
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1}%", self.0 * 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_instant_is_zero_ago_when_it_is_later() {
        let (a, b) = (Instant::from_nanos(5), Instant::from_nanos(9));
        assert_eq!(b.since(a), Duration::from_nanos(4));
        assert_eq!(a.since(b), Duration::ZERO);
    }

    #[test]
    fn durations_read_back_what_people_write() {
        for (text, nanos) in [
            ("500us", 500_000),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            ("2m", 120_000_000_000),
            ("7ns", 7),
        ] {
            assert_eq!(text.parse::<Duration>().unwrap().as_nanos(), nanos, "{text}");
        }
        for text in ["", "5", "us", "-3ms", "5 ms", "5fortnights", "nans", "infs"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_print_three_figures() {
        assert_eq!(Duration::from_nanos(999).to_string(), "999ns");
        assert_eq!(Duration::from_nanos(1_500).to_string(), "1.50us");
        assert_eq!(Duration::from_millis(48).to_string(), "48.0ms");
        assert_eq!(Duration::from_secs(250).to_string(), "250s");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Duration::from_nanos(3) - Duration::from_nanos(5), Duration::ZERO);
        assert_eq!(Duration::MAX + Duration::from_nanos(1), Duration::MAX);
        assert_eq!(Rate::per_second(f64::NAN), Rate::ZERO);
        assert_eq!(Ratio::new(f64::NAN), Ratio::ZERO);
        assert_eq!(Ratio::of(Duration::from_nanos(9), Duration::ZERO), Ratio::ZERO);
    }
}
