//! Asking a service for its own figures.
//!
//! | named | asked | requests | tail |
//! |---|---|---|---|
//! | `memcached:HOST:PORT` | `stats` | the sum of its commands' counters | it has none |
//! | `roost:HOST:PORT` | `stats roost-json`, as `roost top` does | its count | the worst worker's p99 |
//! | `http://HOST:PORT/PATH` | GET | a named counter, all its labels | a named histogram, summary or gauge |
//!
//! memcached 1.6 raises exactly one of the counters summed here per key of a command, also for meta
//! commands (tried with each command on 1.6.18); `cas` counts as `cmd_set`. A request for many keys
//! counts once per key.
//!
//! Every question has a deadline for the whole exchange, not for each read: a peer that sends a
//! byte now and then would hold us for ever. Every answer has a longest length. Names are resolved
//! once, except a URL's, which the library resolves within its deadline.

use super::exchange::Exchange;
use super::exposition::{Sample, samples};
use super::tally::{Reading, Tail};
use machine::Duration;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs as _};

/// The source to ask. Copies of it ask by one connection, one after the other.
#[derive(Clone, Debug)]
pub struct Source {
    named: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Memcached(Exchange),
    Roost(Exchange),
    Page { agent: ureq::Agent, names: Names, quantile: f64 },
}

/// The names of figures on a page, which has many.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub rate: Option<String>,
    /// The tail: a histogram, a summary or a gauge.
    pub tail: Option<String>,
    /// The caller's names of these two, so that an error uses the user's words: `,rate=NAME`,
    /// `,p99=NAME`.
    pub called: [&'static str; 2],
}

/// Why there is no answer. `{}` is the event, `{:#}` adds the remedy.
#[derive(Debug)]
pub struct Failure {
    what: String,
    fix: String,
}

impl Source {
    /// As a user names it. Summaries are asked for their `quantile`, a share of one.
    pub fn named(named: &str, names: Names, quantile: f64) -> Result<Self, Failure> {
        let kind = if named.starts_with("http://") {
            if names.rate.is_none() {
                return Err(Failure::new(
                    "a page has many counters",
                    format!("name the counter of requests with {}", names.called[0]),
                ));
            }
            let agent = ureq::Agent::config_builder()
                .timeout_global(Some(PATIENCE.into()))
                // The page is at the service; a proxy for the world outside does not know it.
                .proxy(None)
                .accept("text/plain")
                .build()
                .into();
            Kind::Page { agent, names, quantile }
        } else if named.starts_with("https://") {
            return Err(Failure::new(
                "pages are read without encryption",
                "name an address that begins with http://",
            ));
        } else {
            for (called, name) in names.called.iter().zip([&names.rate, &names.tail]) {
                if name.is_some() {
                    return Err(Failure::new(
                        "its figures have no names to choose",
                        format!("leave out {called}"),
                    ));
                }
            }
            match named.split_once(':') {
                Some(("memcached", address)) => Kind::Memcached(Exchange::with(resolved(address)?)),
                Some(("roost", address)) => Kind::Roost(Exchange::with(resolved(address)?)),
                _ => {
                    return Err(Failure::new(
                        "no such source",
                        "write memcached:HOST:PORT, roost:HOST:PORT or http://HOST:PORT/metrics",
                    ));
                }
            }
        };
        Ok(Self { named: named.to_owned(), kind })
    }

    pub fn ask(&self) -> Result<Reading, Failure> {
        match &self.kind {
            Kind::Memcached(exchange) => of_memcached(&exchange.ask("stats", MEMCACHED)?),
            Kind::Roost(exchange) => of_roost(&exchange.ask("stats roost-json", ROOST)?),
            Kind::Page { agent, names, quantile } => of_page(&page(agent, &self.named)?, names, *quantile),
        }
    }

    pub fn meaning(&self) -> String {
        match &self.kind {
            Kind::Memcached(_) => {
                "it counts keys: a request for many keys counts as often; our own questions, one a second, \
                 it does not count, and the kernel does"
                    .to_owned()
            }
            Kind::Roost(_) => {
                "its p99 is from ready to replied inside the server, the worst worker's, the median of all \
                 answers"
                    .to_owned()
            }
            Kind::Page { names, .. } => {
                let rate = names.rate.as_deref().unwrap_or_default();
                match &names.tail {
                    None => format!("its rate is of {rate} over all labels"),
                    Some(tail) => format!(
                        "its rate is of {rate} over all labels; its p99 is of {tail}: of a histogram over \
                         the time watched, else the worst label's, the median of all answers"
                    ),
                }
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named)
    }
}

impl Failure {
    pub(super) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }

    pub(super) fn of(cause: &std::io::Error) -> Self {
        match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::silent(),
            ErrorKind::ConnectionRefused => Self::new("no service listens there", WHERE),
            _ => Self::new(cause.to_string(), WHERE),
        }
    }

    pub(super) fn silent() -> Self {
        Self::new(format!("no whole answer within {PATIENCE}"), WHERE)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if f.alternate() { write!(f, "; {}", self.fix) } else { Ok(()) }
    }
}

fn resolved(address: &str) -> Result<Vec<SocketAddr>, Failure> {
    const FIX: &str = "write HOST:PORT after the source's name, as in memcached:127.0.0.1:11211";
    match address.to_socket_addrs().map(Iterator::collect::<Vec<_>>) {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Failure::new(format!("{address} has no address"), FIX)),
        Err(cause) => Err(Failure::new(format!("{address} is no address ({cause})"), FIX)),
    }
}

pub fn of_memcached(answer: &str) -> Result<Reading, Failure> {
    let stat = |name: &str| {
        let mut lines = answer.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
        lines.find(|(found, _)| *found == name).and_then(|(_, value)| value.trim_end().parse::<u64>().ok())
    };
    if stat("cmd_get").is_none() {
        return Err(Failure::new("its stats have no number cmd_get", MEMCACHED));
    }
    Ok(Reading {
        requests: COMMANDS.iter().filter_map(|name| stat(name)).map(|count| count as f64).sum(),
        uptime: stat("uptime").map(Duration::from_secs),
        connections: stat("curr_connections").map(|open| open.saturating_sub(1)),
        tail: None,
    })
}

/// The fields of Roost's status (`store::status::Status`) that are used here; the rest is skipped.
#[derive(Deserialize)]
struct RoostStatus {
    uptime: Duration,
    requests: u64,
    connections: u32,
    workers: Vec<RoostWorker>,
}

#[derive(Deserialize)]
struct RoostWorker {
    tail: Option<Duration>,
}

/// A Roost's answer to `stats roost-json`.
pub fn of_roost(answer: &str) -> Result<Reading, Failure> {
    let json = answer.trim_end().strip_prefix("STAT status ");
    let json = json.ok_or_else(|| Failure::new("it has no status", ROOST))?;
    let status: RoostStatus = serde_json::from_str(json)
        .map_err(|cause| Failure::new(format!("it is another version of Roost ({cause})"), ROOST))?;
    Ok(Reading {
        requests: status.requests as f64,
        uptime: Some(status.uptime),
        connections: Some(u64::from(status.connections.saturating_sub(1))),
        tail: status.workers.iter().filter_map(|worker| worker.tail).max().map(Tail::Recent),
    })
}

fn page(agent: &ureq::Agent, url: &str) -> Result<String, Failure> {
    const FIX: &str = "name the whole address of its metrics, as in http://127.0.0.1:9100/metrics";
    let failed = |error: ureq::Error| match error {
        ureq::Error::Timeout(_) => Failure::silent(),
        ureq::Error::Io(cause) => Failure::of(&cause),
        ureq::Error::ConnectionFailed => Failure::new("no service listens there", WHERE),
        ureq::Error::StatusCode(code) => Failure::new(format!("it answers with status {code}"), FIX),
        ureq::Error::BodyExceedsLimit(_) => {
            Failure::new(format!("its page does not end within {PAGE_MAX} bytes"), FIX)
        }
        other => Failure::new(other.to_string(), FIX),
    };
    let mut answer = agent.get(url).call().map_err(failed)?;
    answer.body_mut().with_config().limit(PAGE_MAX).lossy_utf8(true).read_to_string().map_err(failed)
}

/// A page of metrics. Of a summary its `quantile` is taken, a share of one.
pub fn of_page(page: &str, names: &Names, quantile: f64) -> Result<Reading, Failure> {
    let of = |name: &str| -> Vec<f64> {
        samples(page).filter(|sample| sample.name == name).map(|sample| sample.value).collect()
    };
    let rate = names.rate.as_deref().unwrap_or_default();
    let mut counts = of(rate);
    if counts.is_empty() {
        // OpenMetrics speaks of a counter without its ending.
        counts = of(&format!("{rate}_total"));
    }
    if counts.is_empty() {
        return Err(absent(page, rate, names.called[0]));
    }
    let requests: f64 = counts.into_iter().sum();
    if !requests.is_finite() {
        return Err(Failure::new(
            format!("{rate} is {requests}"),
            format!("name a counter with {}", names.called[0]),
        ));
    }
    let tail = names.tail.as_ref().map(|name| tail(page, name, quantile, names.called[1]));
    Ok(Reading { requests, tail: tail.transpose()?.flatten(), ..Reading::default() })
}

/// A histogram, a summary's quantile, or a gauge; `None` while it has no value.
fn tail(page: &str, name: &str, quantile: f64, called: &str) -> Result<Option<Tail>, Failure> {
    let bucket = format!("{}_bucket", name.strip_suffix("_bucket").unwrap_or(name));
    let bounds = samples(page).filter(|sample| sample.name == bucket);
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    for (bound, count) in bounds.filter_map(|sample| Some((sample.label("le")?.parse().ok()?, sample.value)))
    {
        if f64::is_nan(bound) || !count.is_finite() {
            continue;
        }
        match buckets.binary_search_by(|(other, _)| other.total_cmp(&bound)) {
            Ok(at) => buckets[at].1 += count,
            Err(at) => buckets.insert(at, (bound, count)),
        }
    }
    if !buckets.is_empty() {
        return Ok(Some(Tail::Buckets(buckets)));
    }
    let mut is_there = false;
    let mut others: BTreeSet<String> = BTreeSet::new();
    let mut worst: Option<f64> = None;
    for sample in samples(page).filter(|sample| sample.name == name) {
        match sample.label("quantile") {
            Some(other) if other.parse().is_ok_and(|other: f64| (other - quantile).abs() < 1e-9) => {}
            Some(other) => {
                if others.len() < QUANTILES_SHOWN {
                    others.insert(other.chars().take(LINE_SHOWN).collect());
                }
                continue;
            }
            // A gauge is the quantile that its name says.
            None => {}
        }
        is_there = true;
        // Before its first value a summary tells NaN.
        if sample.value.is_finite() && sample.value >= 0.0 {
            worst = Some(worst.map_or(sample.value, |worst| worst.max(sample.value)));
        }
    }
    if is_there {
        return Ok(worst.map(|time| Tail::Recent(Duration::from_secs_f64(time.min(LONGEST_S)))));
    }
    if others.is_empty() {
        return Err(absent(page, name, called));
    }
    let others: Vec<String> = others.iter().map(|quantile| quantile.escape_debug().to_string()).collect();
    Err(Failure::new(
        format!("its {name} tells the quantile {}, and not {quantile}", others.join(", ")),
        format!("name a histogram or another summary with {called}"),
    ))
}

/// No such name: the most like it is shown.
fn absent(page: &str, name: &str, flag: &str) -> Failure {
    let like = |sample: &Sample<'_>| (strsim::jaro_winkler(sample.name, name) * 1e6) as u64;
    match samples(page).max_by_key(like) {
        Some(nearest) => Failure::new(
            format!("its page has no {name}"),
            format!("name one that it has with {flag}; the most alike is {}", nearest.name),
        ),
        None => Failure::new(
            "its page has no metrics",
            "name the address of its metrics, as in http://127.0.0.1:9100/metrics",
        ),
    }
}

/// Per key of each command, exactly one of these rises.
const COMMANDS: [&str; 9] = [
    "cmd_get",
    "cmd_set",
    "cmd_touch",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
];
/// For a whole exchange. A service that is slower than this has other troubles than its sleeps.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Pages of large services have some MiB.
const PAGE_MAX: u64 = 16 << 20;
/// Of a summary that has others than the one asked for.
const QUANTILES_SHOWN: usize = 9;
/// No service answers later than after a day; a page may hold any number.
const LONGEST_S: f64 = 86_400.0;
/// Of a line that is not understood.
pub(super) const LINE_SHOWN: usize = 60;
pub(super) const WHERE: &str = "start the service, or name the address where it listens";
const MEMCACHED: &str = "name a memcached that speaks its text protocol";
const ROOST: &str = "name a Roost of this version";

#[cfg(test)]
pub(super) mod tests {
    use super::super::exchange::ANSWER_MAX;
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    pub fn source(named: &str, rate: Option<&str>, p99: Option<&str>) -> Result<Source, Failure> {
        Source::named(named, names(rate, p99), 0.99)
    }

    fn names(rate: Option<&str>, p99: Option<&str>) -> Names {
        let called = [",rate=NAME", ",p99=NAME"];
        Names { rate: rate.map(str::to_owned), tail: p99.map(str::to_owned), called }
    }

    /// A server that gives these answers, one to a connection, once it has read a line, and then
    /// closes it.
    pub fn answering(answers: Vec<String>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut client, _) = listener.accept().unwrap();
                let mut request = String::new();
                let mut lines = BufReader::new(client.try_clone().unwrap());
                lines.read_line(&mut request).unwrap();
                // Of a GET, all: unread bytes at the close would reset the connection.
                while request.starts_with("GET") && !request.ends_with("\r\n\r\n") {
                    lines.read_line(&mut request).unwrap();
                }
                // A client that has read enough hangs up.
                let _ = client.write_all(answer.as_bytes());
            }
        });
        address
    }

    fn ask(kind: &str, answer: impl Into<String>) -> Result<Reading, String> {
        let address = answering(vec![answer.into()]);
        let source = source(&format!("{kind}:{address}"), None, None).unwrap();
        source.ask().map_err(|failure| format!("{failure:#}"))
    }

    fn get(page: &str, rate: &str, p99: Option<&str>) -> Result<Reading, String> {
        let answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}", page.len());
        let address = answering(vec![answer]);
        let source = source(&format!("http://{address}/metrics"), Some(rate), p99).unwrap();
        source.ask().map_err(|failure| format!("{failure:#}"))
    }

    #[test]
    fn the_stats_of_a_memcached_are_its_requests_and_connections() {
        let stats = "STAT pid 7\r\nSTAT uptime 90\r\nSTAT curr_connections 11\r\nSTAT cmd_get \
            100\r\nSTAT cmd_set 20\r\n\
                     STAT cmd_flush 5\r\nSTAT get_hits 100\r\nSTAT delete_misses 3\r\nEND\r\n";
        let reading = ask("memcached", stats).unwrap();
        let expected = Reading {
            requests: 123.0,
            uptime: Some(Duration::from_secs(90)),
            connections: Some(10),
            tail: None,
        };
        assert_eq!(reading, expected);
    }

    #[test]
    fn nonsense_is_shown_with_what_to_do() {
        for (kind, answer, told) in [
            (
                "memcached",
                "HTTP/1.1 400 Bad Request\r\n\r\n",
                "it answers `HTTP/1.1 400 Bad Request`; name a memcached",
            ),
            ("memcached", "ERROR\r\n", "it answers `ERROR`; name a memcached"),
            ("memcached", "\u{1b}[2J\n", "it answers `\\u{1b}[2J`"),
            ("memcached", "END\r\n", "no number cmd_get"),
            ("memcached", "STAT cmd_get many\r\nEND\r\n", "no number cmd_get"),
            ("memcached", "STAT cmd_get 1\r\n", "it closed the connection before its answer's end"),
            ("memcached", "", "it closed the connection before its answer's end"),
            ("roost", "END\r\n", "it has no status; name a Roost"),
            ("roost", "STAT status {}\r\nEND\r\n", "it is another version of Roost"),
        ] {
            let said = ask(kind, answer).unwrap_err();
            assert!(said.contains(told) && said.lines().count() == 1, "{answer:?}: {said}");
        }
    }

    #[test]
    fn an_answer_without_an_end_is_not_read_for_ever() {
        let said = ask("memcached", format!("STAT a {}", "x".repeat(2 * ANSWER_MAX))).unwrap_err();
        assert!(said.contains("does not end within 1048576 bytes"), "{said}");
        let said = ask("memcached", "x".repeat(2 * ANSWER_MAX)).unwrap_err();
        assert!(said.starts_with(&format!("it answers `{}`", "x".repeat(LINE_SHOWN))), "{said}");
    }

    #[test]
    fn a_silent_or_dripping_peer_costs_a_second() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let dripping = TcpListener::bind("127.0.0.1:0").unwrap();
        let drips = dripping.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in dripping.incoming() {
                let mut client = client.unwrap();
                client.write_all(b"STAT a ").unwrap();
                while client.write_all(b"x").is_ok() {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
            }
        });
        for named in [
            format!("memcached:{}", silent.local_addr().unwrap()),
            format!("http://{}/metrics", silent.local_addr().unwrap()),
            format!("roost:{drips}"),
        ] {
            let rate = named.starts_with("http").then_some("x");
            let began = Instant::now();
            let said = format!("{:#}", source(&named, rate, None).unwrap().ask().unwrap_err());
            let took = began.elapsed().as_secs_f64();
            assert!(said.starts_with("no whole answer within 1"), "{named}: {said}");
            assert!((0.9..3.0).contains(&took), "{named}: {took} s");
        }
    }

    #[test]
    fn a_counter_is_the_sum_over_its_labels() {
        let page = "# HELP req_total Requests.\n# TYPE req_total counter\nreq_total{code=\"200\"} \
            40\nreq_total{code=\"500\"} 2 \
                    1395066363000\nreq_total_other 900\n";
        for name in ["req_total", "req"] {
            assert_eq!(get(page, name, None).unwrap().requests, 42.0);
        }
        let said = get(page, "reg_total", None).unwrap_err();
        assert_eq!(
            said,
            "its page has no reg_total; name one that it has with ,rate=NAME; the most alike is req_total"
        );
        assert!(
            get("<html>hello</html>", "x", None).unwrap_err().starts_with("its page has no metrics; name")
        );
        assert!(get("x NaN\n", "x", None).unwrap_err().starts_with("x is NaN; name a counter"));
    }

    #[test]
    fn a_tail_is_a_histogram_a_quantile_or_a_gauge() {
        let histogram = "n 9\nt_bucket{le=\"0.1\",by=\"a\"} 1\nt_bucket{le=\"+Inf\",by=\"a\"} \
            2\nt_bucket{le=\"+Inf\",by=\"b\"} 7\n\
                         t_bucket{le=\"0.1\",by=\"b\"} 5\n";
        let buckets = Some(Tail::Buckets(vec![(0.1, 6.0), (f64::INFINITY, 9.0)]));
        for name in ["t", "t_bucket"] {
            assert_eq!(get(histogram, "n", Some(name)).unwrap().tail, buckets);
        }
        let recent = |micros| Some(Tail::Recent(Duration::from_micros(micros)));
        let summary = "n 9\nt{quantile=\"0.5\"} 0.5\nt{quantile=\"0.99\"} 0.002\nt_sum 3\nt_count 2\n";
        assert_eq!(get(summary, "n", Some("t")).unwrap().tail, recent(2_000));
        let gauges = "n 9\nt{w=\"0\"} 0.001\nt{w=\"1\"} 0.003\nt{w=\"2\"} NaN\n";
        assert_eq!(get(gauges, "n", Some("t")).unwrap().tail, recent(3_000));
        assert_eq!(get("n 9\nt NaN\n", "n", Some("t")).unwrap().tail, None);
        assert!(
            get("n 9\n", "n", Some("t")).unwrap_err().contains("no t; name one that it has with ,p99=NAME")
        );
    }

    #[test]
    fn a_page_that_is_not_there_or_never_ends_is_told() {
        let answers = ["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "no HTTP at all\r\n\r\n"];
        let address = answering(answers.map(Into::into).to_vec());
        let source = source(&format!("http://{address}/"), Some("x"), None).unwrap();
        assert!(
            format!("{:#}", source.ask().unwrap_err())
                .starts_with("it answers with status 404; name the whole")
        );
        let said = format!("{:#}", source.ask().unwrap_err());
        assert!(said.contains("name the whole address") && said.lines().count() == 1, "{said}");
        let long = "x".repeat(PAGE_MAX as usize + 1);
        assert!(get(&long, "x", None).unwrap_err().contains("does not end within"));
    }

    struct Memcached(Child);
    impl Drop for Memcached {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_real_memcached_counts_what_it_was_asked() {
        // It chooses its port itself: one that we found free another test may have by now.
        let folder = tempfile::tempdir().unwrap();
        let chosen = folder.path().join("port");
        let spawned = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-u", "root"])
            .env("MEMCACHED_PORT_FILENAME", &chosen)
            .stderr(Stdio::null())
            .spawn();
        let _memcached = match spawned {
            Ok(child) => Memcached(child),
            Err(error) => {
                eprintln!("skipped: no memcached here: {error}");
                return;
            }
        };
        let port = (0..100).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            std::fs::read_to_string(&chosen).ok()?.trim_end().strip_prefix("TCP INET: ")?.parse::<u16>().ok()
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("memcached says its port")));
        let source = source(&format!("memcached:{address}"), None, None).unwrap();
        let before = source.ask().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let mut lines = BufReader::new(client.try_clone().unwrap());
        let mut say = |request: &str| {
            (&client).write_all(request.as_bytes()).unwrap();
            let mut line = String::new();
            while !matches!(line.trim_end(), "STORED" | "END" | "NOT_FOUND" | "TOUCHED" | "HD" | "NF" | "EN")
            {
                line.clear();
                lines.read_line(&mut line).unwrap();
                assert!(!line.is_empty() && !line.contains("ERROR"), "{request}: {line}");
            }
        };
        say("set a 0 0 1\r\nx\r\n");
        for request in [
            "get a\r\n",
            "get b\r\n",
            "gat 100 a\r\n",
            "touch a 100\r\n",
            "incr b 1\r\n",
            "decr b 1\r\n",
            "delete b\r\n",
            "mg b\r\n",
            "md b\r\n",
            "ma b\r\n",
        ] {
            say(request);
        }
        let after = source.ask().unwrap();
        assert_eq!(after.requests - before.requests, 11.0, "one for each command");
        // The client's connection; ours is not counted, and there is one, for all callers.
        assert_eq!(after.connections, Some(1));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let source = source.clone();
                scope.spawn(move || {
                    (0..50).for_each(|_| assert_eq!(source.ask().unwrap().connections, Some(1)))
                });
            }
        });
        assert!(after.uptime >= before.uptime);
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(answer in "\\PC*", odd in "(STAT [a-z_ \
            0-9.]{0,9}\r\n|[a-z_]{1,3}(\\{le=\"[0-9+Inf]*\"\\})? [0-9NaInf.e-]{0,6}\n)*") {
            for text in [&answer, &odd] {
                let _ = of_memcached(text);
                let _ = of_roost(text);
                for name in ["a", "le", ""] {
                    let _ = of_page(text, &names(Some(name), Some(name)), 0.99);
                }
            }
        }
    }
}
