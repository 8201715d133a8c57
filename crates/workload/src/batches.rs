//! Requests that arrive together.
//!
//! Batches come as single requests would, at a rate divided by their mean size, so the rate of
//! requests follows its profile whatever the sizes.

use crate::either::{Either, either};
use crate::{Random, SpecError};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How many requests arrive at a time. In a scenario a plain number is the size of all batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Batch {
    Fixed(u32),
    /// Geometric from one on, with this mean.
    Geometric(f64),
}

impl Default for Batch {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl Batch {
    pub fn check(&self) -> Result<(), SpecError> {
        let is_fine = match self {
            Self::Fixed(size) => (1..=SIZE_MAX).contains(size),
            Self::Geometric(mean) => (1.0..=f64::from(SIZE_MAX)).contains(mean),
        };
        let fix = "write a whole number from 1 to 10000, or { geometric = 4 } with a mean from 1 to 10000";
        let refused = || SpecError::Key { key: "batch".into(), problem: "is out of range".into(), fix };
        if is_fine { Ok(()) } else { Err(refused()) }
    }

    pub fn mean(&self) -> f64 {
        match *self {
            Self::Fixed(size) => f64::from(size),
            Self::Geometric(mean) => mean,
        }
    }

    /// The size of the next batch.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        match *self {
            Self::Fixed(size) => u64::from(size),
            Self::Geometric(mean) if mean > 1.0 => {
                // Geometric with chance 1 / mean: an exponential cut down to whole numbers.
                1 + (random.exponential() / -(-1.0 / mean).ln_1p()) as u64
            }
            Self::Geometric(_) => 1,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    geometric: f64,
}

impl Serialize for Batch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Fixed(size) => serializer.serialize_u32(size),
            Self::Geometric(geometric) => Table { geometric }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let batch = match either(deserializer, "a number of requests, or { geometric = 4 }")? {
            Either::Plain(size) => Self::Fixed(i64::clamp(size, 0, u32::MAX.into()) as u32),
            Either::Table(Table { geometric }) => Self::Geometric(geometric),
        };
        batch.check().map(|()| batch).map_err(D::Error::custom)
    }
}

/// Larger batches than this are bursts: a shape says when those are.
const SIZE_MAX: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_mean_and_the_second_moment_of_their_kind() {
        for (batch, squared) in [
            (Batch::Fixed(4), 16.0),
            (Batch::Geometric(4.0), 28.0),
            (Batch::Geometric(1.5), 3.0),
            (Batch::Geometric(1.0), 1.0),
        ] {
            let mut random = Random::new(3, 0);
            let sizes: Vec<f64> = (0..400_000).map(|_| batch.draw(&mut random) as f64).collect();
            let of = |power: i32| sizes.iter().map(|size| size.powi(power)).sum::<f64>() / 4e5;
            assert!((of(1) / batch.mean() - 1.0).abs() < 0.01, "{batch:?}: mean {}", of(1));
            assert!((of(2) / squared - 1.0).abs() < 0.03, "{batch:?}: second moment {}", of(2));
            assert!(sizes.iter().all(|&size| size >= 1.0));
        }
    }

    #[test]
    fn batches_are_read_as_they_are_written() {
        #[derive(Debug, Deserialize, Serialize)]
        struct Line {
            batch: Batch,
        }
        let read = |text: &str| toml::from_str::<Line>(text).map(|line| line.batch);
        for (text, batch) in
            [("batch = 4", Batch::Fixed(4)), ("batch = { geometric = 2.5 }", Batch::Geometric(2.5))]
        {
            assert_eq!(read(text).unwrap(), batch);
            assert_eq!(read(&toml::to_string(&Line { batch }).unwrap()).unwrap(), batch);
        }
        for (text, fix) in [
            ("batch = 0", "from 1 to 10000"),
            ("batch = -1", "from 1 to 10000"),
            ("batch = 100000", "from 1 to 10000"),
            ("batch = { geometric = 0.5 }", "from 1 to 10000"),
            ("batch = { geometric = nan }", "from 1 to 10000"),
            ("batch = { poisson = 4 }", "unknown field `poisson`"),
            ("batch = \"many\"", "a number of requests"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(fix), "{text}: {message}");
        }
    }
}
