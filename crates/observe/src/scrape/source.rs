//! Asking a service for its own figures.
//!
//! | named | asked | requests | tail |
//! |---|---|---|---|
//! | `memcached:HOST:PORT` | `stats` | the sum of its commands' counters | it has none |
//! | `redis:HOST:PORT`, Valkey too | `INFO` | the commands that it has processed | it has none |
//! | `nginx:HOST:PORT/PATH` | GET, of `stub_status` | its third number | it has none |
//! | `envoy:HOST:PORT` | GET, of its admin page | `downstream_rq_total` | `downstream_rq_time` |
//! | `roost:HOST:PORT` | `stats roost-json`, as `roost top` does | its count | the worst worker's p99 |
//! | `http://HOST:PORT/PATH` | GET | a named counter, all its labels | a named histogram, summary or gauge |
//!
//! memcached 1.6 raises exactly one of the counters summed here per key of a command, also for meta
//! commands (tried with each command on 1.6.18); `cas` counts as `cmd_set`. A request for many keys
//! counts once per key. Redis and nginx count our own
//! questions too: these are taken off, so that an idle service is silent. Envoy's times are milliseconds,
//! and its admin page's own requests are left out (tried on Redis 7.0, nginx 1.22, Envoy 1.40).
//!
//! Every question has a deadline for the whole exchange, not for each read: a peer that sends a
//! byte now and then would hold us for ever. Every answer has a longest length. Names are resolved
//! once, except a URL's, which the library resolves within its deadline.

use super::answers::{MEMCACHED, NGINX, REDIS, ROOST, of_envoy, of_memcached, of_nginx, of_page};
use super::answers::{of_redis, of_roost};
use super::exchange::{Exchange, Framing};
use super::tally::Reading;
use machine::Duration;
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};

/// The source to ask. Copies of it ask by one connection, one after the other.
#[derive(Clone, Debug)]
pub struct Source {
    named: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Memcached(Exchange),
    Redis(Exchange, Own),
    Roost(Exchange),
    Nginx { agent: ureq::Agent, url: String, own: Own },
    Envoy { agent: ureq::Agent, url: String },
    Page { agent: ureq::Agent, names: Names, quantile: f64 },
}

/// The questions that a service has counted among its requests.
#[derive(Clone, Debug, Default)]
struct Own(Arc<Mutex<Counted>>);

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Its requests at the last answer, with our questions.
    requests: f64,
    questions: f64,
}

impl Own {
    /// A reading without our questions. `with_this`: how many times it holds the present one.
    fn taken_off(
        &self,
        ask: impl FnOnce() -> Result<Reading, Failure>,
        with_this: f64,
    ) -> Result<Reading, Failure> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = ask()?;
        // A service that was started anew has counted none of them.
        let before = if reading.requests < counted.requests { 0.0 } else { counted.questions };
        *counted = Counted { requests: reading.requests, questions: before + 1.0 };
        Ok(Reading { requests: (reading.requests - before - with_this).max(0.0), ..reading })
    }
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
            Kind::Page { agent: agent(), names, quantile }
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
                Some(("memcached", address)) => Kind::Memcached(exchange(address, Framing::Stats)?),
                Some(("redis", address)) => Kind::Redis(exchange(address, Framing::Bulk)?, Own::default()),
                Some(("roost", address)) => Kind::Roost(exchange(address, Framing::Stats)?),
                Some(("nginx", address)) => {
                    let at = address.split_once('/').filter(|(host, _)| resolved(host).is_ok());
                    at.ok_or_else(|| {
                        Failure::new(
                            format!("{address} is no address with a path"),
                            "write HOST:PORT/PATH after nginx:, the location with stub_status",
                        )
                    })?;
                    Kind::Nginx { agent: agent(), url: format!("http://{address}"), own: Own::default() }
                }
                Some(("envoy", address)) => {
                    resolved(address)?;
                    // Of hundreds of figures, those that are needed and a few more.
                    let url = format!("http://{address}/stats/prometheus?filter=downstream_rq_t");
                    Kind::Envoy { agent: agent(), url }
                }
                _ => {
                    return Err(Failure::new(
                        "no such source",
                        "write memcached:HOST:PORT, redis:HOST:PORT, roost:HOST:PORT, \
                         nginx:HOST:PORT/PATH, envoy:HOST:PORT or http://HOST:PORT/metrics",
                    ));
                }
            }
        };
        Ok(Self { named: named.to_owned(), kind })
    }

    pub fn ask(&self) -> Result<Reading, Failure> {
        match &self.kind {
            Kind::Memcached(exchange) => of_memcached(&exchange.ask("stats", MEMCACHED)?),
            Kind::Redis(exchange, own) => own.taken_off(|| of_redis(&exchange.ask("INFO", REDIS)?), 0.0),
            Kind::Nginx { agent, url, own } => own.taken_off(|| of_nginx(&page(agent, url, NGINX)?), 1.0),
            Kind::Envoy { agent, url } => of_envoy(&page(agent, url, ENVOY)?),
            Kind::Roost(exchange) => of_roost(&exchange.ask("stats roost-json", ROOST)?),
            Kind::Page { agent, names, quantile } => {
                of_page(&page(agent, &self.named, PAGE)?, names, *quantile)
            }
        }
    }

    pub fn meaning(&self) -> String {
        match &self.kind {
            Kind::Memcached(_) => {
                "it counts keys: a request for many keys counts as often; our own questions, one a second, \
                 it does not count, and the kernel does"
                    .to_owned()
            }
            Kind::Redis(..) => {
                "it counts commands: a command for many keys once, each of a pipeline or a transaction; our \
                 own questions are taken off, and the kernel sees them"
                    .to_owned()
            }
            Kind::Nginx { .. } => {
                "it counts the requests of all its servers; our own questions are taken off, and the kernel \
                 sees them"
                    .to_owned()
            }
            Kind::Envoy { .. } => {
                "it counts the requests of all its HTTP listeners but its admin page's; its p99 is until the \
                 last byte went downstream, from a histogram in steps of 0.5, 1, 5, 10 ms"
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

fn exchange(address: &str, framing: Framing) -> Result<Exchange, Failure> {
    Ok(Exchange::with(resolved(address)?, framing))
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE.into()))
        // The page is at the service; a proxy for the world outside does not know it.
        .proxy(None)
        .accept("text/plain")
        .build()
        .into()
}

/// `fix`: the remedy if something else than its figures is there.
fn page(agent: &ureq::Agent, url: &str, fix: &str) -> Result<String, Failure> {
    let failed = |error: ureq::Error| match error {
        ureq::Error::Timeout(_) => Failure::silent(),
        ureq::Error::Io(cause) => Failure::of(&cause),
        ureq::Error::ConnectionFailed => Failure::new("no service listens there", WHERE),
        ureq::Error::StatusCode(code) => Failure::new(format!("it answers with status {code}"), fix),
        ureq::Error::BodyExceedsLimit(_) => {
            Failure::new(format!("its page does not end within {PAGE_MAX} bytes"), fix)
        }
        other => Failure::new(other.to_string(), fix),
    };
    let mut answer = agent.get(url).call().map_err(failed)?;
    answer.body_mut().with_config().limit(PAGE_MAX).lossy_utf8(true).read_to_string().map_err(failed)
}

/// For a whole exchange. A service that is slower than this has other troubles than its sleeps.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Pages of large services have some MiB.
const PAGE_MAX: u64 = 16 << 20;
const PAGE: &str = "name the whole address of its metrics, as in http://127.0.0.1:9100/metrics";
const ENVOY: &str = "name the address of Envoy's admin interface, as in envoy:127.0.0.1:9901";
/// Of a line that is not understood.
pub(super) const LINE_SHOWN: usize = 60;
pub(super) const WHERE: &str = "start the service, or name the address where it listens";

#[cfg(test)]
pub(super) mod tests {
    use super::super::exchange::ANSWER_MAX;
    use super::super::tally::Tail;
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
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
    fn the_info_of_a_redis_is_its_commands_and_connections() {
        let info = "# Server\r\nuptime_in_seconds:90\r\n# Clients\r\nconnected_clients:11\r\n\r\n\
                    total_commands_processed:123\r\n";
        let expected = Reading {
            requests: 123.0,
            uptime: Some(Duration::from_secs(90)),
            connections: Some(10),
            tail: None,
        };
        assert_eq!(ask("redis", format!("${}\r\n{info}\r\n", info.len())).unwrap(), expected);
    }

    #[test]
    fn our_own_questions_are_no_requests_also_after_a_restart() {
        // Two of others', an idle second, ten of theirs, a start anew, one of theirs.
        let answers = [2, 3, 14, 0, 2].map(|commands| {
            let info = format!("total_commands_processed:{commands}\r\n");
            format!("${}\r\n{info}\r\n", info.len())
        });
        let address = answering(answers.to_vec());
        let source = source(&format!("redis:{address}"), None, None).unwrap();
        let counts: Vec<f64> = (0..5).map(|_| source.ask().unwrap().requests).collect();
        assert_eq!(counts, [2.0, 2.0, 12.0, 0.0, 1.0]);
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
            (
                "redis",
                "-NOAUTH Authentication required.\r\n",
                "it answers `-NOAUTH Authentication required.`; name a Redis that answers INFO without",
            ),
            ("redis", "$-1\r\n", "it answers `$-1`"),
            ("redis", "$3\r\nabc\r\n", "its INFO has no number total_commands_processed"),
            ("redis", "$3\r\nab\r\n", "it closed the connection before its answer's end"),
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

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(answer in "\\PC*", odd in "(STAT [a-z_ \
            0-9.]{0,9}\r\n|[a-z_]{1,3}(\\{le=\"[0-9+Inf]*\"\\})? [0-9NaInf.e-]{0,6}\n)*") {
            for text in [&answer, &odd] {
                let _ = of_memcached(text);
                let _ = of_roost(text);
                let _ = of_redis(text);
                let _ = of_nginx(text);
                let _ = of_envoy(text);
                for name in ["a", "le", ""] {
                    let _ = of_page(text, &names(Some(name), Some(name)), 0.99);
                }
            }
        }
    }
}
