//! From where a service's rate and times are known, as the configuration says it.
//!
//! | `telemetry =` | rate | times | silent is |
//! |---|---|---|---|
//! | `"requests"` | the kernel's programs | the kernel's programs | a program without a heartbeat |
//! | `"memcached"` | its `stats` | none | a server that does not answer |
//! | `"memcached+requests"` | its `stats` | the kernel's programs | either |
//! | `{ prometheus = ... }` | a counter | a histogram or summary | a page that does not answer |
//!
//! A server that hangs looks to the kernel like an idle one, and would be parked. Its own telemetry
//! tells them apart.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TelemetrySource {
    /// The kernel's programs, which no server need know of.
    #[default]
    Requests,
    /// memcached's `stats`, at `HOST:PORT`; where that is `None`, at the service's own port on the
    /// loopback.
    Memcached {
        address: Option<String>,
        /// Times are the kernel programs'.
        with_requests: bool,
    },
    Prometheus {
        url: String,
        rate: String,
        /// The times: a histogram, or a summary with the goal's quantile.
        tail: Option<String>,
    },
}

/// A page as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    prometheus: String,
    rate: String,
    tail: Option<String>,
}

impl TelemetrySource {
    /// True if response times come of it, which every policy but a fixed number of cores steers by.
    pub fn tells_times(&self) -> bool {
        match self {
            Self::Requests => true,
            Self::Memcached { with_requests, .. } => *with_requests,
            Self::Prometheus { tail, .. } => tail.is_some(),
        }
    }

    /// True if the kernel's programs are part of it.
    pub fn needs_requests(&self) -> bool {
        matches!(self, Self::Requests | Self::Memcached { with_requests: true, .. })
    }

    /// The text to write instead, where times are missing.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Requests | Self::Memcached { .. } => {
                "write telemetry = \"memcached+requests\" for the kernel's times beside it, or \
                 policy = \"fixed\""
            }
            Self::Prometheus { .. } => {
                "add tail = \"...\", a histogram of response times, or write policy = \"fixed\""
            }
        }
    }

    fn of_word(word: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "telemetry = {word:?}: write \"requests\", \"memcached\", \"memcached:HOST:PORT\", \
                 \"memcached+requests\" or {{ prometheus = \"http://HOST:PORT/metrics\", \
                 rate = \"COUNTER\", tail = \"HISTOGRAM\" }}"
            )
        };
        if word == "requests" {
            return Ok(Self::Requests);
        }
        let (server, with_requests) = match word.strip_suffix("+requests") {
            Some(server) => (server, true),
            None => (word, false),
        };
        let address = match server.split_once(':') {
            None if server == "memcached" => None,
            Some(("memcached", address)) if address.rsplit_once(':').is_some_and(is_address) => {
                Some(address.to_owned())
            }
            _ => return Err(wrong()),
        };
        Ok(Self::Memcached { address, with_requests })
    }
}

fn is_address((host, port): (&str, &str)) -> bool {
    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl fmt::Display for TelemetrySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests => f.write_str("requests"),
            Self::Memcached { address, with_requests } => {
                f.write_str("memcached")?;
                if let Some(address) = address {
                    write!(f, ":{address}")?;
                }
                f.write_str(if *with_requests { "+requests" } else { "" })
            }
            Self::Prometheus { url, .. } => f.write_str(url),
        }
    }
}

impl<'de> Deserialize<'de> for TelemetrySource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let page = match toml::Value::deserialize(deserializer)? {
            toml::Value::String(word) => return Self::of_word(&word).map_err(D::Error::custom),
            // An untagged enum would only say that nothing fits.
            value @ toml::Value::Table(_) => value.try_into::<Page>(),
            other => return Err(D::Error::custom(Self::of_word(&other.to_string()).unwrap_err())),
        };
        let Page { prometheus, rate, tail } =
            page.map_err(|error| D::Error::custom(format!("telemetry: {}", error.message())))?;
        if !prometheus.starts_with("http://") {
            return Err(D::Error::custom(format!(
                "telemetry: prometheus = {prometheus:?}: write the page's address, such as \
                 \"http://127.0.0.1:9100/metrics\"; it is read without encryption"
            )));
        }
        Ok(Self::Prometheus { url: prometheus, rate, tail })
    }
}

impl Serialize for TelemetrySource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Prometheus { url, rate, tail } => {
                Page { prometheus: url.clone(), rate: rate.clone(), tail: tail.clone() }.serialize(serializer)
            }
            Self::Requests | Self::Memcached { .. } => serializer.collect_str(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Written {
        telemetry: TelemetrySource,
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "telemetry = \"requests\"\n",
            "telemetry = \"memcached\"\n",
            "telemetry = \"memcached+requests\"\n",
            "telemetry = \"memcached:10.0.0.7:11211\"\n",
            "telemetry = \"memcached:[::1]:11211+requests\"\n",
            "[telemetry]\nprometheus = \"http://127.0.0.1:9100/metrics\"\nrate = \"requests_total\"\n",
            "[telemetry]\nprometheus = \"http://h/\"\nrate = \"requests_total\"\ntail = \"seconds\"\n",
        ] {
            let read: Written = toml::from_str(text).unwrap();
            assert_eq!(toml::to_string(&read).unwrap(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_fix() {
        for (value, told) in [
            ("\"redis\"", "write \"requests\", \"memcached\""),
            ("\"memcached:11211\"", "\"memcached:HOST:PORT\""),
            ("\"memcached:h:port\"", "\"memcached:HOST:PORT\""),
            ("\"requests+requests\"", "\"memcached+requests\""),
            ("7", "write \"requests\""),
            ("{ prometheus = \"http://h/\" }", "missing field `rate`"),
            ("{ prometheus = \"https://h/\", rate = \"x\" }", "without encryption"),
            ("{ prometheus = \"http://h/\", rate = \"x\", tial = \"y\" }", "unknown field `tial`"),
        ] {
            let error = toml::from_str::<Written>(&format!("telemetry = {value}")).unwrap_err();
            assert!(error.message().contains(told), "{value}: {error}");
        }
    }
}
