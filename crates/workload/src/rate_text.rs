//! A [`Rate`] in a configuration file: `"80k"` or a plain number of requests per second, above
//! zero.
//!
//! For `#[serde(with = "workload::rate_text")]`; [`optional`] is for `Option<Rate>`.

use crate::parse_rate;
use machine::Rate;
use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};
use std::fmt;

pub fn serialize<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rate.as_per_second())
}

/// Reads text that [`serialize`] or a user wrote.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
    struct Either;
    impl Visitor<'_> for Either {
        type Value = Rate;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("requests per second, such as 800 or \"50k\"")
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<Rate, E> {
            parse_rate(text).map_err(E::custom)
        }
        fn visit_f64<E: Error>(self, number: f64) -> Result<Rate, E> {
            self.visit_str(&number.to_string())
        }
        fn visit_i64<E: Error>(self, number: i64) -> Result<Rate, E> {
            self.visit_str(&number.to_string())
        }
        fn visit_u64<E: Error>(self, number: u64) -> Result<Rate, E> {
            self.visit_str(&number.to_string())
        }
    }
    deserializer.deserialize_any(Either)
}

/// The same for a key that may be left out.
pub mod optional {
    use machine::Rate;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(rate: &Option<Rate>, serializer: S) -> Result<S::Ok, S::Error> {
        match rate {
            Some(rate) => super::serialize(rate, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rate>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}
