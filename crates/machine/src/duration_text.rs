//! A [`Duration`] in a configuration file: `"30s"` or `"3333333ns"`, exactly, instead of a bare
//! number of nanoseconds.
//!
//! For `#[serde(with = "machine::duration_text")]`; [`optional`] is for `Option<Duration>`, where
//! `"never"` stands for none, since TOML has no null.

use crate::Duration;
use serde::{Deserialize, Deserializer, Serializer};
use std::borrow::Cow;

/// Writes the length in the largest unit of which it is a whole number.
pub fn serialize<S: Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&exact(*length))
}

/// Reads text that [`serialize`] or a user wrote.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

pub(crate) fn exact(length: Duration) -> String {
    let nanos = length.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let fits = units.iter().find(|(unit, _)| nanos != 0 && nanos.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{nanos}ns"), |(unit, name)| format!("{}{name}", nanos / unit))
}

pub mod optional {
    use super::{Cow, Deserialize, Deserializer, Duration, Serializer, exact};

    /// The word for no length at all.
    const NEVER: &str = "never";

    /// Writes the length, or `never`.
    pub fn serialize<S: Serializer>(length: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&length.map_or_else(|| NEVER.to_owned(), exact))
    }

    /// Reads text that [`serialize`] or a user wrote.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        if text == NEVER { Ok(None) } else { text.parse().map(Some).map_err(serde::de::Error::custom) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_survive_exactly() {
        for nanos in [0, 1, 999, 1_000, 1_500, 3_333_333, 30_000_000_000, 86_400_000_000_000] {
            let length = Duration::from_nanos(nanos);
            assert_eq!(exact(length).parse(), Ok(length), "{}", exact(length));
        }
        assert_eq!(exact(Duration::from_secs(30)), "30s");
        assert_eq!(exact(Duration::from_millis(100)), "100ms");
    }
}
