//! The faults of a configuration, each with its remedy.

use super::{Class, Config, ConfigError, Limits, OTHERS, Period, Server};
use policy::check::Check as _;
use std::collections::BTreeSet;

impl Config {
    /// The first fault, if there is one.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.servers.is_empty() {
            return Err(refused("name at least one server: --to http://HOST:PORT, or a [[server]] section"));
        }
        if self.listen.is_empty() {
            return Err(refused("name at least one address to listen at"));
        }
        self.servers.iter().try_for_each(|server| server.origin().map(drop))?;
        unique("server", self.servers.iter().map(Server::shown))?;
        unique("class", self.classes.iter().map(|class| class.name.as_str()).chain([OTHERS]))?;
        self.classes.iter().try_for_each(Class::check)?;
        let prefixes = self.servers.iter().filter_map(|server| server.path.as_ref());
        if let Some(path) = prefixes.chain(self.health.path.as_ref()).find(|path| !path.starts_with('/')) {
            return Err(refused(format!("path = \"{path}\": a path begins with a slash")));
        }
        if let Some(name) = self.upgrades.iter().find(|name| !is_upgrade(name)) {
            return Err(refused(format!(
                "upgrades: `{name}`: name protocols such as websocket, and none of HTTP"
            )));
        }
        self.stage_of(0).check().map_err(|wrong| refused(format!("[stage] {wrong}")))?;
        let Limits {
            body, memory, whole_answer, connections, streams, client, connect, answer, tunnel, ..
        } = self.limits;
        if body > memory || whole_answer > memory {
            return Err(refused(
                "[limits] one body must fit into memory: body and whole_answer at most memory",
            ));
        }
        if memory > u64::from(u32::MAX) * 16 {
            return Err(refused("[limits] memory: at most 64 GiB"));
        }
        let patience = [client, connect, answer, tunnel, self.health.every, self.goal.latency];
        if connections == 0 || streams == 0 || patience.iter().any(|time| time.is_zero()) {
            return Err(refused(
                "[limits] connections, streams, client, connect, answer, tunnel, and health.every: above \
                 zero",
            ));
        }
        if self.health.retries > RETRIES_MAX {
            return Err(refused(format!("[health] retries: at most {RETRIES_MAX}")));
        }
        Ok(())
    }
}

impl Class {
    fn check(&self) -> Result<(), ConfigError> {
        let name = &self.name;
        if name.is_empty() {
            return Err(refused("[[class]] needs a name"));
        }
        if self.path.is_none() && self.header.is_none() {
            return Err(refused(format!(
                "class {name}: say what belongs to it: path = \"/...\" or header = \"NAME: VALUE\""
            )));
        }
        if self.path.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return Err(refused(format!("class {name}: a path begins with a slash")));
        }
        if let Some(header) = &self.header
            && http::HeaderName::from_bytes(header.split(':').next().unwrap_or_default().trim().as_bytes())
                .is_err()
        {
            return Err(refused(format!("class {name}: `{header}` is no header: write NAME or NAME: VALUE")));
        }
        match (self.never_stage, self.deadline) {
            (true, Some(_)) => {
                Err(refused(format!("class {name}: never_stage and deadline exclude each other")))
            }
            (false, Some(Period(time))) if time.is_zero() => {
                Err(refused(format!("class {name}: a deadline of zero is never_stage = true")))
            }
            _ => Ok(()),
        }
    }
}

/// A token (RFC 9110, 5.6.2) that makes no second HTTP of a connection.
fn is_upgrade(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte))
        && !lower.starts_with("h2")
        && !lower.starts_with("http")
}

fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(refused(format!("two of [[{kind}]] are called {name}: give each a name of its own")));
        }
    }
    Ok(())
}

fn refused(fix: impl Into<String>) -> ConfigError {
    ConfigError::new(fix)
}

/// More than these are a storm on a server that is in trouble already.
const RETRIES_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<(), ConfigError> {
        Config::read(&format!("{text}\n[[server]]\nto = \"http://127.0.0.1:1\"\n"))?.check()
    }

    #[test]
    fn the_defaults_need_a_server_and_nothing_else() {
        assert!(Config::default().check().unwrap_err().to_string().contains("--to http://HOST:PORT"));
        with("").unwrap();
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_fix() {
        for (text, fix) in [
            ("gaol = \"1s@p99\"", "gaol"),
            ("goal = \"1s\"", "such as 300us@p99"),
            ("listen = []", "at least one address"),
            ("[limits]\nbody = 9\nmemory = 8", "fit into memory"),
            ("[limits]\nclient = \"0s\"", "above zero"),
            ("[limits]\nbodies = 3", "bodies"),
            ("[limits]\ntunnel = \"0s\"", "above zero"),
            ("upgrades = [\"h2c\"]", "none of HTTP"),
            ("upgrades = [\"a, b\"]", "none of HTTP"),
            ("[health]\npath = \"x\"", "begins with a slash"),
            ("[health]\nretries = 11", "at most 10"),
            ("[stage]\nmax_staged = 0", "max_staged"),
            ("[[class]]\nname = \"a\"", "say what belongs to it"),
            ("[[class]]\npath = \"/\"", "needs a name"),
            ("[[class]]\nname = \"others\"\npath = \"/\"", "two of [[class]]"),
            ("[[class]]\nname = \"a\"\npath = \"x\"", "begins with a slash"),
            ("[[class]]\nname = \"a\"\nheader = \"b c: d\"", "no header"),
            (
                "[[class]]\nname = \"a\"\npath = \"/\"\nnever_stage = true\ndeadline = \"1s\"",
                "exclude each other",
            ),
            ("[[class]]\nname = \"a\"\npath = \"/\"\ndeadline = \"0s\"", "never_stage = true"),
            ("[[server]]\nto = \"http://127.0.0.1:1/\"", "two of [[server]]"),
            ("[[server]]\nto = \"127.0.0.1:2\"", "http://HOST:PORT"),
            ("[[server]]\nto = \"http://h:2/path\"", "without a path"),
            ("[[server]]\nto = \"http://u@h:2\"", "http://HOST:PORT"),
            ("[[server]]\nto = \"http://h:0\"", "http://HOST:PORT"),
            ("[[server]]\nto = \"http://h:2\"\npath = \"x\"", "begins with a slash"),
        ] {
            let error = with(text).expect_err(text).to_string();
            assert!(error.contains(fix), "{text}: {error}");
        }
    }
}
