//! A proxy's configuration: read from TOML, checked once (`check.rs`); after [`Config::check`] a
//! value cannot be wrong.

mod check;

use http::Uri;
use machine::{Duration, Goal, Ratio};
use policy::staging::{Mode, Params};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients come: loopback unless asked otherwise. Port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// The time that requests may take at the most, waiting here included, and the share of them
    /// that must keep it.
    pub goal: Goal,
    /// Let requests go together every so often, and earlier where the goal is in danger. Without it
    /// they wait for as long as the goal allows.
    pub period: Option<Period>,
    /// False: nothing is held, and this is a plain proxy.
    pub hold: bool,
    /// Believe `X-Forwarded-For` and its kin as clients send them, and add to them; otherwise they
    /// are replaced.
    pub trust_forwarded: bool,
    /// The protocols that a connection may change to (`Upgrade`), each name alone. HTTP/2 is none
    /// of them.
    pub upgrades: Vec<String>,
    /// The policy's inputs and answers are recorded below this folder, for `roost replay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// The rest of the stage's constants. Its mode, period, phase and quantile follow from the keys
    /// above.
    pub stage: Params,
    pub limits: Limits,
    pub health: Health,
    pub tls: Option<Tls>,
    /// Kinds of requests; the first match counts. A request without a match has `goal`.
    #[serde(rename = "class", skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Class>,
    #[serde(rename = "server", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
}

/// A length of time in TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Period(#[serde(with = "machine::duration_text")] pub Duration);

/// Bounds: of memory, of patience, of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of one request's body; a longer one is refused with 413. 1 MiB, as in nginx.
    pub body: u64,
    /// Bytes of all bodies in memory together, requests' and answers'; a body beyond that is
    /// refused with 503.
    pub memory: u64,
    /// An answer is passed on when it is whole if it is no longer than this, bytes: if it breaks
    /// off before, there is still an error to be told. 64 KiB (ours). Longer ones pass through as
    /// they come.
    pub whole_answer: u64,
    /// Connections of clients; more wait in the listener's backlog.
    pub connections: u32,
    /// Requests at a time on one HTTP/2 connection. 128: as Apache and nginx.
    pub streams: u32,
    /// A client's request has come whole within this, head and body each; a connection without a
    /// request is closed after it, and one whose client takes nothing of its answer.
    #[serde(with = "machine::duration_text")]
    pub client: Duration,
    /// A server takes our connection within this.
    #[serde(with = "machine::duration_text")]
    pub connect: Duration,
    /// A server begins its answer within this, or 504 is told.
    #[serde(with = "machine::duration_text")]
    pub answer: Duration,
    /// A connection to a server is kept for this long without a request.
    #[serde(with = "machine::duration_text")]
    pub idle: Duration,
    /// A connection that became a tunnel (WebSocket) ends when nothing passed for this long.
    #[serde(with = "machine::duration_text")]
    pub tunnel: Duration,
    /// On the way out, accepted clients have this long.
    #[serde(with = "machine::duration_text")]
    pub drain: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// How often a server that failed is knocked at.
    #[serde(with = "machine::duration_text")]
    pub every: Duration,
    /// It is back when this path is answered with a status below 500; without one, when it takes a
    /// connection.
    pub path: Option<String>,
    /// How often a request is sent again where that is safe.
    pub retries: u32,
    /// Before the second try; doubled before each further one.
    #[serde(with = "machine::duration_text")]
    pub pause: Duration,
}

/// Certificate and key, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The chain, ours first.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Class {
    pub name: String,
    pub path: Option<String>,
    /// A header: `NAME`, or `NAME: VALUE`.
    pub header: Option<String>,
    /// Requests of this kind have this long, instead of the proxy's goal.
    pub deadline: Option<Period>,
    /// They are not held at all.
    pub never_stage: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Its name in tables; `HOST:PORT` if empty.
    pub name: String,
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub to: String,
    /// It serves the requests that name this host.
    pub host: Option<String>,
    /// It is asked for paths that begin so.
    pub path: Option<String>,
    /// Speak HTTP/2 with it; over plain TCP it must expect that.
    pub http2: bool,
    /// PEM file of the authorities that its certificate may come from; the system's without one.
    pub authorities: Option<PathBuf>,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(fix: impl Into<String>) -> Self {
        Self(fix.into())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            // The paper's.
            goal: Goal { latency: Duration::from_millis(500), quantile: 0.999 },
            period: None,
            hold: true,
            trust_forwarded: false,
            upgrades: vec!["websocket".to_owned()],
            record: None,
            stage: Params::default(),
            limits: Limits::default(),
            health: Health::default(),
            tls: None,
            classes: Vec::new(),
            servers: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            memory: 256 << 20,
            whole_answer: 64 << 10,
            connections: 10_000,
            streams: 128,
            client: Duration::from_secs(30),
            connect: Duration::from_secs(2),
            answer: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            tunnel: Duration::from_secs(600),
            drain: Duration::from_secs(10),
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self { every: Duration::from_secs(1), path: None, retries: 2, pause: Duration::from_millis(20) }
    }
}

impl Server {
    /// The server at `to`, asked for everything.
    pub fn at(to: &str) -> Self {
        Self { to: to.to_owned(), ..Self::default() }
    }

    /// Scheme and authority of [`Self::to`].
    pub(crate) fn origin(&self) -> Result<Uri, ConfigError> {
        let wrong = || {
            ConfigError::new(format!(
                "`{}` is no server: write http://HOST:PORT or https://HOST:PORT, without a path",
                self.to
            ))
        };
        let uri: Uri = self.to.parse().map_err(|_| wrong())?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let named = uri.authority().is_some_and(|authority| {
            !authority.as_str().contains('@')
                && !authority.host().is_empty()
                && authority.port_u16() != Some(0)
        });
        if known && bare && named { Ok(uri) } else { Err(wrong()) }
    }

    pub fn shown(&self) -> &str {
        if self.name.is_empty() {
            self.to.split_once("//").map_or(self.to.as_str(), |(_, rest)| rest.trim_end_matches('/'))
        } else {
            &self.name
        }
    }
}

impl Config {
    /// Reads a file's text. Unknown keys are refused by name.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::new(error.to_string().trim_end().to_owned()))
    }

    /// The constants of the stage before server `number`.
    pub(crate) fn stage_of(&self, number: usize) -> Params {
        let params = Params { quantile: Ratio::new(self.goal.quantile), ..self.stage };
        let Some(Period(period)) = self.period else { return Params { mode: Mode::Deadline, ..params } };
        let count = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        let phase = policy::staging::phases(period, count).nth(number).unwrap_or_default();
        Params { mode: Mode::Guarded, period, phase, ..params }
    }
}

/// The tables' name for requests of no class.
pub(crate) const OTHERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_reads_back_as_written() {
        let config = Config {
            period: Some(Period(Duration::from_millis(250))),
            tls: Some(Tls { certificate: "a.pem".into(), key: "b.pem".into() }),
            classes: vec![Class { name: "a".to_owned(), path: Some("/".to_owned()), ..Class::default() }],
            servers: vec![Server::at("http://h:1"), Server { http2: true, ..Server::at("https://h:2") }],
            ..Config::default()
        };
        assert_eq!(Config::read(&toml::to_string(&config).unwrap()).unwrap(), config);
    }

    #[test]
    fn a_certificate_without_its_key_is_an_error_that_names_the_key() {
        let read = |tls: &str| Config::read(&format!("{tls}\n[[server]]\nto = \"http://h:1\"\n"));
        for (tls, missing) in
            [("[tls]\ncertificate = \"a.pem\"", "key"), ("[tls]\nkey = \"b.pem\"", "certificate")]
        {
            let error = read(tls).unwrap_err().to_string();
            assert!(error.contains(&format!("missing field `{missing}`")), "{error}");
        }
        read("[tls]\ncertificate = \"a.pem\"\nkey = \"b.pem\"").unwrap();
    }

    #[test]
    fn bursts_of_several_servers_are_kept_apart() {
        let servers = (1..=4).map(|port| Server::at(&format!("http://h:{port}"))).collect();
        let period = Some(Period(Duration::from_millis(200)));
        let config = Config { period, servers, ..Config::default() };
        let phases: Vec<_> = (0..4).map(|number| config.stage_of(number).phase.as_millis()).collect();
        assert_eq!(phases, [0, 50, 100, 150]);
        assert_eq!(config.stage_of(0).mode, Mode::Guarded);
        assert_eq!(Config { period: None, ..config }.stage_of(1).mode, Mode::Deadline);
    }
}
