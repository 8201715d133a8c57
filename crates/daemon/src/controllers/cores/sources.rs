//! From where a service's rate and times are known, as the configuration says it.
//!
//! | `telemetry =` | rate | times | silent is |
//! |---|---|---|---|
//! | `"requests"` | the kernel's programs | the kernel's programs | a program without a heartbeat |
//! | `"memcached"`, `"redis"`, `"nginx:..."` | its own count | none | a server that does not answer |
//! | `"envoy:..."` | its own count | its histogram | a server that does not answer |
//! | the same with `+requests` | its own count | the kernel's programs | either |
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
    /// A server of a known kind, asked for its own figures.
    Own {
        server: Server,
        /// `HOST:PORT`, of nginx with the path of its page; where it is `None`, the service's own port
        /// on the loopback.
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

/// Servers whose own figures are known by name ([`observe::scrape::Source`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Memcached,
    Redis,
    Nginx,
    Envoy,
}

impl Server {
    const ALL: [Self; 4] = [Self::Memcached, Self::Redis, Self::Nginx, Self::Envoy];

    fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
        }
    }

    /// It answers at the port of its clients.
    fn answers_at_its_port(self) -> bool {
        matches!(self, Self::Memcached | Self::Redis)
    }

    fn is_address(self, address: &str) -> bool {
        let host = match self {
            Self::Nginx => address.split_once('/').map(|(host, _)| host),
            _ => Some(address),
        };
        host.and_then(|host| host.rsplit_once(':'))
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
    }
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
            Self::Own { server, with_requests, .. } => *with_requests || *server == Server::Envoy,
            Self::Prometheus { tail, .. } => tail.is_some(),
        }
    }

    /// True if the kernel's programs are part of it.
    pub fn needs_requests(&self) -> bool {
        matches!(self, Self::Requests | Self::Own { with_requests: true, .. })
    }

    /// The text to write instead, where times are missing.
    pub fn fix(&self) -> String {
        match self {
            Self::Requests | Self::Own { .. } => format!(
                "write telemetry = \"{}+requests\" for the kernel's times beside it, or policy = \"fixed\"",
                self.to_string().trim_end_matches("+requests")
            ),
            Self::Prometheus { .. } => {
                "add tail = \"...\", a histogram of response times, or write policy = \"fixed\"".to_owned()
            }
        }
    }

    fn of_word(word: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "telemetry = {word:?}: write \"requests\", \"memcached\", \"memcached:HOST:PORT\", \"redis\", \
                 \"redis:HOST:PORT\", \"nginx:HOST:PORT/PATH\" (of stub_status), \"envoy:HOST:PORT\" (of its \
                 admin interface), one of these with \"+requests\" behind it, or \
                 {{ prometheus = \"http://HOST:PORT/metrics\", rate = \"COUNTER\", tail = \"HISTOGRAM\" }}"
            )
        };
        if word == "requests" {
            return Ok(Self::Requests);
        }
        let (text, with_requests) = match word.strip_suffix("+requests") {
            Some(text) => (text, true),
            None => (word, false),
        };
        let (name, address) = match text.split_once(':') {
            Some((name, address)) => (name, Some(address)),
            None => (text, None),
        };
        let server = Server::ALL.into_iter().find(|server| server.name() == name).ok_or_else(wrong)?;
        if !address.map_or(server.answers_at_its_port(), |address| server.is_address(address)) {
            return Err(wrong());
        }
        Ok(Self::Own { server, address: address.map(str::to_owned), with_requests })
    }

    /// The source as [`observe::scrape::Source`] names it, of a service at `port`; a page is its URL.
    pub fn named(&self, port: Option<u16>) -> String {
        match self {
            Self::Own { server, address: Some(address), .. } => format!("{}:{address}", server.name()),
            Self::Own { server, address: None, .. } => {
                format!("{}:127.0.0.1:{}", server.name(), port.unwrap_or_default())
            }
            Self::Requests | Self::Prometheus { .. } => self.to_string(),
        }
    }
}

impl fmt::Display for TelemetrySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests => f.write_str("requests"),
            Self::Own { server, address, with_requests } => {
                f.write_str(server.name())?;
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
            Self::Requests | Self::Own { .. } => serializer.collect_str(self),
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
            "telemetry = \"redis\"\n",
            "telemetry = \"redis:10.0.0.7:6379+requests\"\n",
            "telemetry = \"nginx:127.0.0.1:80/nginx_status+requests\"\n",
            "telemetry = \"envoy:127.0.0.1:9901\"\n",
            "[telemetry]\nprometheus = \"http://127.0.0.1:9100/metrics\"\nrate = \"requests_total\"\n",
            "[telemetry]\nprometheus = \"http://h/\"\nrate = \"requests_total\"\ntail = \"seconds\"\n",
        ] {
            let read: Written = toml::from_str(text).unwrap();
            assert_eq!(toml::to_string(&read).unwrap(), text);
        }
    }

    #[test]
    fn a_goal_needs_times_from_somewhere() {
        for (word, told) in [
            ("requests", None),
            ("envoy:h:1", None),
            ("redis+requests", None),
            ("redis", Some("\"redis+requests\"")),
            ("nginx:h:1/p", Some("\"nginx:h:1/p+requests\"")),
        ] {
            let source = TelemetrySource::of_word(word).unwrap();
            assert_eq!(source.tells_times(), told.is_none(), "{word}");
            assert!(source.fix().contains(told.unwrap_or_default()), "{}", source.fix());
        }
    }

    #[test]
    fn a_server_is_asked_at_the_port_of_its_clients_or_where_it_is_said() {
        let named = |word: &str| TelemetrySource::of_word(word).unwrap().named(Some(7));
        assert_eq!(named("redis"), "redis:127.0.0.1:7");
        assert_eq!(named("memcached:[::1]:9+requests"), "memcached:[::1]:9");
        assert_eq!(named("nginx:h:80/s"), "nginx:h:80/s");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_fix() {
        for (value, told) in [
            ("\"valkey\"", "write \"requests\", \"memcached\""),
            ("\"nginx\"", "\"nginx:HOST:PORT/PATH\""),
            ("\"nginx:127.0.0.1:80\"", "\"nginx:HOST:PORT/PATH\""),
            ("\"envoy\"", "\"envoy:HOST:PORT\""),
            ("\"memcached:11211\"", "\"memcached:HOST:PORT\""),
            ("\"memcached:h:port\"", "\"memcached:HOST:PORT\""),
            ("\"requests+requests\"", "with \"+requests\" behind it"),
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
