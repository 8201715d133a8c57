//! A [`Rate`] in a configuration file: `"80k"` or a plain number of requests per second, above
//! zero.
//!
//! For `#[serde(with = "workload::rate_text")]`; [`optional`] is for `Option<Rate>`.

use crate::parse_rate;
use machine::Rate;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub fn serialize<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rate.as_per_second())
}

/// Reads text that [`serialize`] or a user wrote.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "write requests per second, such as 800 or \"50k\"")]
    enum Written {
        Text(String),
        Number(f64),
    }
    let text = match Written::deserialize(deserializer)? {
        Written::Text(text) => text,
        Written::Number(number) => number.to_string(),
    };
    parse_rate(&text).map_err(D::Error::custom)
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
