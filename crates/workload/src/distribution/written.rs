//! Distributions as people write them in a scenario.
//!
//! Three forms: a table that names the law,
//! `{ distribution = "lognormal", mean = "10us", cv = 0.5 }`; for the two laws with nothing but a
//! mean, `{ exponential = "10us" }`; the name of a preset, `"memcached"`. A time alone is refused:
//! it does not say how times are spread, and the two readings that suggest themselves (always the
//! same, or exponential) differ twofold in the tail.

use super::{Distribution, ServicePreset, TimeUnit};
use crate::either::{Either, either};
use machine::Duration;
use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "write a text or a number")]
enum Value {
    /// Only written: read, it is a text, and the law says which texts are times.
    #[serde(skip_deserializing, serialize_with = "machine::duration_text::serialize")]
    Time(Duration),
    Count(u64),
    Number(f64),
    Text(String),
}

/// The keys of one table; taking one out parses it as the law's parameter of that name.
struct Fields {
    /// The owner of the keys, for messages.
    owner: String,
    values: BTreeMap<String, Value>,
}

impl Fields {
    fn take(&mut self, key: &str, example: &str) -> Result<Value, String> {
        let missing = || format!("`{}` needs {key}: write {key} = {example}", self.owner);
        self.values.remove(key).ok_or_else(missing)
    }

    fn time(&mut self, key: &str) -> Result<Duration, String> {
        match self.take(key, "\"10us\"")? {
            Value::Text(text) => text.parse().map_err(|cause| format!("{key}: {cause}")),
            _ => Err(format!("{key} is a time with its unit: write {key} = \"10us\"")),
        }
    }

    fn number(&mut self, key: &str) -> Result<f64, String> {
        match self.take(key, "0.5")? {
            Value::Number(number) => Ok(number),
            Value::Count(count) => Ok(count as f64),
            _ => Err(format!("{key} is a number: write {key} = 0.5")),
        }
    }

    fn count(&mut self, key: &str) -> Result<u32, String> {
        match self.take(key, "2")? {
            Value::Count(count) if count <= u64::from(u32::MAX) => Ok(count as u32),
            _ => Err(format!("{key} is a whole number: write {key} = 2")),
        }
    }

    fn text(&mut self, key: &str, example: &str) -> Result<String, String> {
        match self.take(key, example)? {
            Value::Text(text) => Ok(text),
            _ => Err(format!("{key} is a text: write {key} = {example}")),
        }
    }

    fn finish(self) -> Result<(), String> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!("`{}` has no {key}: leave it out", self.owner)),
        }
    }
}

fn read(values: BTreeMap<String, Value>) -> Result<Distribution, String> {
    let mut fields = Fields { owner: "the distribution".into(), values };
    let short = ["exponential", "deterministic"].into_iter().find(|name| fields.values.contains_key(*name));
    let name = match short {
        Some(name) => name.to_owned(),
        None => fields.text("distribution", "\"exponential\"")?,
    };
    fields.owner.clone_from(&name);
    let mean = if short.is_some() { &name } else { "mean" };
    let read = match name.as_str() {
        "deterministic" => Distribution::Deterministic { mean: fields.time(mean)? },
        "exponential" => Distribution::Exponential { mean: fields.time(mean)? },
        "erlang" => Distribution::Erlang { mean: fields.time("mean")?, stages: fields.count("stages")? },
        "hyperexponential" => {
            Distribution::Hyperexponential { mean: fields.time("mean")?, scv: fields.number("scv")? }
        }
        "lognormal" => Distribution::Lognormal { mean: fields.time("mean")?, cv: fields.number("cv")? },
        "gpareto" => {
            let has_minimum = fields.values.contains_key("minimum");
            let minimum = if has_minimum { fields.time("minimum")? } else { Duration::ZERO };
            Distribution::Gpareto { minimum, mean: fields.time("mean")?, shape: fields.number("shape")? }
        }
        "uniform" => Distribution::Uniform { from: fields.time("from")?, to: fields.time("to")? },
        "bimodal" => Distribution::Bimodal {
            short: fields.time("short")?,
            long: fields.time("long")?,
            long_share: fields.number("long_share")?,
        },
        "keywords" => Distribution::Keywords {
            base: fields.time("base")?,
            each: fields.time("each")?,
            fewest: u8::try_from(fields.count("fewest")?).unwrap_or(u8::MAX),
            most: u8::try_from(fields.count("most")?).unwrap_or(u8::MAX),
            cv: fields.number("cv")?,
        },
        "empirical" => Distribution::Empirical {
            file: fields.text("file", "\"search.cdf\"")?.into(),
            unit: match fields.text("unit", "\"ms\"")?.as_str() {
                "s" => TimeUnit::Seconds,
                "ms" => TimeUnit::Milliseconds,
                "us" => TimeUnit::Microseconds,
                "ns" => TimeUnit::Nanoseconds,
                other => return Err(format!("`{other}` is no unit: write s, ms, us or ns")),
            },
        },
        other => {
            return Err(format!(
                "`{other}` is no distribution: write deterministic, exponential, erlang, hyperexponential, \
                 lognormal, gpareto, uniform, bimodal, keywords or empirical"
            ));
        }
    };
    fields.finish()?;
    read.check().map_err(|error| error.to_string())?;
    Ok(read)
}

fn named(text: &str) -> Result<Distribution, String> {
    if text.parse::<Duration>().is_ok() {
        return Err(format!(
            "`{text}` does not say how times are spread: write {{ exponential = \"{text}\" }} or \
             {{ deterministic = \"{text}\" }}"
        ));
    }
    Distribution::by_name(text).ok_or_else(|| {
        let names: Vec<&str> =
            Distribution::presets().iter().map(|preset: &ServicePreset| preset.name).collect();
        format!(
            "`{text}` is no distribution: write a table such as {{ exponential = \"10us\" }}, or one of {}",
            names.join(", ")
        )
    })
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a distribution such as { exponential = \"10us\" }, or the name of a preset";
        let read = match either::<D, String, _>(deserializer, expected)? {
            Either::Plain(text) => named(&text),
            Either::Table(values) => read(values),
        };
        read.map_err(D::Error::custom)
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = |key, time: &Duration| (key, Value::Time(*time));
        let number = |key, number: &f64| (key, Value::Number(*number));
        let count = |key, count: u32| (key, Value::Count(count.into()));
        let fields = match self {
            Self::Deterministic { mean } | Self::Exponential { mean } => vec![time("mean", mean)],
            Self::Erlang { mean, stages } => vec![time("mean", mean), count("stages", *stages)],
            Self::Hyperexponential { mean, scv } => vec![time("mean", mean), number("scv", scv)],
            Self::Lognormal { mean, cv } => vec![time("mean", mean), number("cv", cv)],
            Self::Gpareto { minimum, mean, shape } => {
                vec![time("minimum", minimum), time("mean", mean), number("shape", shape)]
            }
            Self::Uniform { from, to } => vec![time("from", from), time("to", to)],
            Self::Bimodal { short, long, long_share } => {
                vec![time("short", short), time("long", long), number("long_share", long_share)]
            }
            Self::Keywords { base, each, fewest, most, cv } => vec![
                time("base", base),
                time("each", each),
                count("fewest", (*fewest).into()),
                count("most", (*most).into()),
                number("cv", cv),
            ],
            Self::Empirical { file, unit } => {
                let unit = match unit {
                    TimeUnit::Seconds => "s",
                    TimeUnit::Milliseconds => "ms",
                    TimeUnit::Microseconds => "us",
                    TimeUnit::Nanoseconds => "ns",
                };
                let file = file.display().to_string();
                vec![("file", Value::Text(file)), ("unit", Value::Text(unit.into()))]
            }
        };
        let mut map = serializer.serialize_map(Some(fields.len() + 1))?;
        map.serialize_entry("distribution", self.name())?;
        for (key, value) in fields {
            map.serialize_entry(key, &value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Line {
        service: Distribution,
    }

    fn parse(text: &str) -> Result<Distribution, toml::de::Error> {
        toml::from_str::<Line>(text).map(|line| line.service)
    }

    #[test]
    fn every_form_is_read_and_survives_being_written() {
        let ten = Duration::from_micros(10);
        for (text, expected) in [
            (r#"{ exponential = "10us" }"#, Distribution::Exponential { mean: ten }),
            (r#"{ deterministic = "10us" }"#, Distribution::Deterministic { mean: ten }),
            (r#"{ distribution = "exponential", mean = "10us" }"#, Distribution::Exponential { mean: ten }),
            (
                r#"{ distribution = "erlang", mean = "10us", stages = 2 }"#,
                Distribution::Erlang { mean: ten, stages: 2 },
            ),
            (
                r#"{ distribution = "hyperexponential", mean = "10us", scv = 4 }"#,
                Distribution::Hyperexponential { mean: ten, scv: 4.0 },
            ),
            (
                r#"{ distribution = "lognormal", mean = "10us", cv = 0.5 }"#,
                Distribution::Lognormal { mean: ten, cv: 0.5 },
            ),
            (
                r#"{ distribution = "gpareto", mean = "10us", shape = 0.35 }"#,
                Distribution::Gpareto { minimum: Duration::ZERO, mean: ten, shape: 0.35 },
            ),
            (
                r#"{ distribution = "uniform", from = "0ns", to = "10us" }"#,
                Distribution::Uniform { from: Duration::ZERO, to: ten },
            ),
            (
                r#"{ distribution = "bimodal", short = "10us", long = "1ms", long_share = 0.05 }"#,
                Distribution::Bimodal { short: ten, long: Duration::from_millis(1), long_share: 0.05 },
            ),
            (
                r#"{ distribution = "keywords", base = "0s", each = "10us", fewest = 3, most = 4, cv = 0.3 }"#,
                Distribution::Keywords { base: Duration::ZERO, each: ten, fewest: 3, most: 4, cv: 0.3 },
            ),
            (
                r#"{ distribution = "empirical", file = "a.cdf", unit = "ms" }"#,
                Distribution::Empirical { file: "a.cdf".into(), unit: TimeUnit::Milliseconds },
            ),
        ] {
            let line = Line { service: parse(&format!("service = {text}")).unwrap() };
            assert_eq!(line.service, expected);
            assert_eq!(toml::from_str::<Line>(&toml::to_string(&line).unwrap()).unwrap(), line);
        }
        for preset in Distribution::presets() {
            assert_eq!(parse(&format!("service = \"{}\"", preset.name)).unwrap(), preset.distribution);
        }
    }

    #[test]
    fn what_is_no_distribution_is_refused_with_the_fix() {
        for (text, fix) in [
            (r#""10us""#, r#"write { exponential = "10us" } or { deterministic = "10us" }"#),
            (r#""memcache""#, "one of memcached,"),
            ("10", "such as { exponential"),
            ("{}", "needs distribution: write distribution = "),
            (r#"{ exponential = 10 }"#, "a time with its unit"),
            (r#"{ exponential = "fast" }"#, "such as 500us"),
            (r#"{ exponential = "0us" }"#, "mean is out of range: write a time above zero"),
            (r#"{ exponential = "10us", cv = 2 }"#, "`exponential` has no cv"),
            (r#"{ exponential = "10us", deterministic = "10us" }"#, "has no deterministic"),
            (r#"{ distribution = "normal", mean = "1ms" }"#, "write deterministic, exponential, erlang"),
            (r#"{ distribution = "lognormal", mean = "1ms" }"#, "needs cv: write cv = 0.5"),
            (r#"{ distribution = "lognormal", mean = "1ms", cv = nan }"#, "cv is out of range"),
            (r#"{ distribution = "lognormal", mean = "1ms", cv = -1 }"#, "cv is out of range"),
            (r#"{ distribution = "erlang", mean = "1ms", stages = 0 }"#, "whole number from 1"),
            (r#"{ distribution = "erlang", mean = "1ms", stages = 1.5 }"#, "is a whole number"),
            (r#"{ distribution = "hyperexponential", mean = "1ms", scv = 0.5 }"#, "from 1 (exponential)"),
            (r#"{ distribution = "gpareto", mean = "1ms", shape = 1.0 }"#, "below 0.99"),
            (r#"{ distribution = "gpareto", mean = "1ms", shape = 0.1, minimum = "2ms" }"#, "below the mean"),
            (r#"{ distribution = "uniform", from = "2ms", to = "1ms" }"#, "below `to`"),
            (r#"{ distribution = "bimodal", short = "1ms", long = "2ms", long_share = 1 }"#, "below 1"),
            (r#"{ distribution = "empirical", file = "a", unit = "h" }"#, "write s, ms, us or ns"),
            (
                r#"{ distribution = "keywords", base = "0s", each = "1ms", fewest = 5, most = 300, cv = 0.3 }"#,
                "fewest <= most <= 18",
            ),
        ] {
            let message = parse(&format!("service = {text}")).unwrap_err().to_string();
            assert!(message.contains(fix), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn no_table_panics(
            name in "(exponential|erlang|lognormal|gpareto|uniform|keywords)",
            keys in prop::collection::btree_map(
                "(mean|cv|stages|shape|from|to|base|each|fewest|most)",
                "(-?[0-9]{1,3}(\\.[0-9])?|\"[0-9a-z.]{0,6}\"|nan|inf)",
                0..6,
            ),
        ) {
            let keys: String = keys.iter().map(|(key, value)| format!(", {key} = {value}")).collect();
            if let Ok(law) = parse(&format!("service = {{ distribution = \"{name}\"{keys} }}")) {
                prop_assert!(law.sampler().is_ok());
            }
        }
    }
}
