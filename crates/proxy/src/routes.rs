//! The servers that a request may go to, and its class. Both go by the written form of host and
//! path: to make `/%61` the same as `/a`, write two rules.

use crate::config::{Class, Config, OTHERS, Period};
use http::request::Parts;
use http::{HeaderName, Uri};
use machine::Duration;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Servers that are asked for the same.
#[derive(Debug)]
pub(crate) struct Group {
    host: Option<String>,
    path: String,
    pub(crate) servers: Vec<usize>,
    next: AtomicUsize,
}

impl Group {
    /// The next in turn of those that `is_up` likes; if it likes none, the next in turn.
    pub(crate) fn pick(&self, is_up: impl Fn(usize) -> bool) -> usize {
        let count = self.servers.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let place = (0..count).map(|step| (first + step) % count).find(|&place| is_up(self.servers[place]));
        self.servers[place.unwrap_or(first % count)]
    }
}

/// All servers, by host and path.
#[derive(Debug)]
pub(crate) struct Routes(Vec<Group>);

impl Routes {
    pub(crate) fn of(config: &Config) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for (number, server) in config.servers.iter().enumerate() {
            let host = server.host.as_ref().map(|host| host.to_ascii_lowercase());
            let path = server.path.clone().unwrap_or_default();
            match groups.iter_mut().find(|group| group.host == host && group.path == path) {
                Some(group) => group.servers.push(number),
                None => groups.push(Group { host, path, servers: vec![number], next: AtomicUsize::new(0) }),
            }
        }
        // Exact names first: a host, then the longest path.
        groups.sort_by_key(|group| (group.host.is_none(), usize::MAX - group.path.len()));
        Self(groups)
    }

    /// Those that are asked for `path` on `host` (a name with or without a port).
    pub(crate) fn find(&self, host: &str, path: &str) -> Option<&Group> {
        let name = without_port(host);
        self.0.iter().find(|group| {
            group.host.as_ref().is_none_or(|host| host.eq_ignore_ascii_case(name))
                && path.starts_with(&group.path)
        })
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[derive(Debug)]
pub(crate) struct Classes {
    rules: Vec<Rule>,
    others: Treatment,
}

#[derive(Debug)]
struct Rule {
    path: Option<String>,
    header: Option<(HeaderName, Option<String>)>,
    treatment: Treatment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Treatment {
    pub(crate) class: usize,
    pub(crate) time: Duration,
    pub(crate) hold: bool,
}

impl Classes {
    pub(crate) fn of(config: &Config) -> Self {
        let treatment = |class, deadline: Option<Period>, never: bool| Treatment {
            class,
            time: deadline.map_or(config.goal.latency, |Period(time)| time),
            hold: config.hold && !never,
        };
        let rule = |(number, class): (usize, &Class)| Rule {
            path: class.path.clone(),
            header: class.header.as_deref().and_then(header_rule),
            treatment: treatment(number, class.deadline, class.never_stage),
        };
        Self {
            rules: config.classes.iter().enumerate().map(rule).collect(),
            others: treatment(config.classes.len(), None, false),
        }
    }

    /// Their names, in order of number.
    pub(crate) fn names(config: &Config) -> impl Iterator<Item = String> {
        config.classes.iter().map(|class| class.name.clone()).chain([OTHERS.to_owned()])
    }

    pub(crate) fn treatment(&self, parts: &Parts) -> Treatment {
        self.rules.iter().find(|rule| rule.fits(parts)).map_or(self.others, |rule| rule.treatment)
    }
}

impl Rule {
    fn fits(&self, parts: &Parts) -> bool {
        let header = self.header.as_ref().is_none_or(|(name, wanted)| {
            let mut values = parts.headers.get_all(name).iter();
            values.any(|value| wanted.as_ref().is_none_or(|wanted| value.as_bytes() == wanted.as_bytes()))
        });
        header && self.path.as_ref().is_none_or(|path| parts.uri.path().starts_with(path))
    }
}

fn header_rule(text: &str) -> Option<(HeaderName, Option<String>)> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name, Some(value.trim().to_owned())),
        None => (text, None),
    };
    Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
}

/// Path and query as they are sent on.
pub(crate) fn target(uri: &Uri) -> http::uri::PathAndQuery {
    uri.path_and_query().cloned().unwrap_or_else(|| http::uri::PathAndQuery::from_static("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Server;

    fn server(port: u16, host: Option<&str>, path: Option<&str>) -> Server {
        let text = |text: Option<&str>| text.map(str::to_owned);
        Server { host: text(host), path: text(path), ..Server::at(&format!("http://h:{port}")) }
    }

    #[test]
    fn the_most_exact_rule_counts_and_equal_ones_share() {
        let servers = vec![
            server(0, None, None),
            server(1, None, Some("/api/")),
            server(2, Some("A.example"), None),
            server(3, None, None),
            server(4, Some("a.example"), Some("/api/v2/")),
        ];
        let routes = Routes::of(&Config { servers, ..Config::default() });
        let found = |host, path| routes.find(host, path).unwrap().servers.clone();
        assert_eq!(found("b", "/"), [0, 3]);
        assert_eq!(found("b:80", "/api/x"), [1]);
        assert_eq!(found("a.EXAMPLE:8080", "/api/x"), [2]);
        assert_eq!(found("a.example", "/api/v2/x"), [4]);
        assert_eq!(found("[::1]:80", "/"), [0, 3]);
        let none = Routes::of(&Config { servers: vec![server(1, Some("a"), None)], ..Config::default() });
        assert!(none.find("b", "/").is_none());
    }

    #[test]
    fn those_that_are_up_take_turns() {
        let servers = (0..3).map(|port| server(port, None, None)).collect();
        let routes = Routes::of(&Config { servers, ..Config::default() });
        let group = routes.find("x", "/").unwrap();
        let picked = |up: fn(usize) -> bool| (0..6).map(|_| group.pick(up)).collect::<Vec<_>>();
        assert_eq!(picked(|_| true), [0, 1, 2, 0, 1, 2]);
        assert!(picked(|server| server == 1).iter().all(|&server| server == 1));
        assert_eq!(picked(|_| false), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn the_first_class_that_fits_counts() {
        let class = |name: &str, path: Option<&str>, header: Option<&str>| Class {
            name: name.to_owned(),
            path: path.map(str::to_owned),
            header: header.map(str::to_owned),
            ..Class::default()
        };
        let classes = vec![
            Class { never_stage: true, ..class("live", Some("/live"), Some("x-wait: no")) },
            Class { deadline: Some(Period(Duration::from_secs(2))), ..class("slow", None, Some("X-Batch")) },
            class("rest", Some("/live"), None),
        ];
        let config = Config { classes, ..Config::default() };
        let classes = Classes::of(&config);
        let of = |path: &str, headers: &[(&'static str, &str)]| {
            let mut request = http::Request::builder().uri(path);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            classes.treatment(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(of("/live/a", &[("X-Wait", "no")]).class, 0);
        assert!(!of("/live/a", &[("X-Wait", "no")]).hold);
        assert_eq!(of("/live/a", &[("X-Wait", "yes")]).class, 2);
        assert_eq!(
            of("/x", &[("x-batch", "7")]),
            Treatment { class: 1, time: Duration::from_secs(2), hold: true }
        );
        assert_eq!(of("/x", &[]), Treatment { class: 3, time: Duration::from_millis(500), hold: true });
        assert!(
            !Classes::of(&Config { hold: false, ..config })
                .treatment(&http::Request::new(()).into_parts().0)
                .hold
        );
    }
}
