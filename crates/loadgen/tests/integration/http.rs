//! Against HTTP servers: a library's, and hand-written ones that answer as a library would not.

use crate::{open, unobserved};
use loadgen::{Error, Http, Outcome, Pace, Plan, run};
use machine::Duration;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use workload::{Keywords, Popularity, Words};

fn asks(address: &str) -> Http {
    Http {
        seed: 1,
        url: format!("http://{address}/index/_search").parse().unwrap(),
        body: Some(r#"{"q":"{words}"}"#.into()),
        keywords: Keywords::Paper,
        words: Words::new((0..500).map(|n| format!("word{n}"))),
        popularity: Popularity::Zipf(1.0),
    }
}

fn short(address: &str, pace: Pace) -> Plan<Http> {
    Plan {
        connections: 4,
        length: Duration::from_millis(300),
        warmup: Duration::ZERO,
        interval: Duration::from_millis(50),
        drain: Duration::from_secs(5),
        patience: Duration::from_secs(5),
        ..Plan::http(asks(address), pace)
    }
}

/// A server of axum's that answers as Elasticsearch does, ended when dropped.
struct Library {
    address: String,
    /// Number of keywords of every query that was asked.
    asked: mpsc::Receiver<usize>,
    end: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Library {
    fn start() -> Self {
        use axum::{Router, extract::State, routing::post};
        let (tell, asked) = mpsc::channel();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (ready, started) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                ready.send(listener.local_addr().unwrap().to_string()).unwrap();
                let search = async |State(tell): State<mpsc::Sender<usize>>, body: String| {
                    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
                    let words = body["q"].as_str().unwrap();
                    let _ = tell.send(words.split(' ').count());
                    r#"{"took":7,"timed_out":false,"hits":{}}"#
                };
                let app = Router::new().route("/index/_search", post(search)).with_state(tell);
                let serve = axum::serve(listener, app);
                tokio::select! { _ = serve => {} _ = ended => {} }
            });
        });
        Self { address: started.recv().unwrap(), asked, end: Some(end) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = self.end.take().map(|end| end.send(()));
    }
}

fn add_up(outcome: &Outcome) {
    let c = &outcome.counts;
    assert_eq!(c.errors(), 0, "{outcome}");
    assert_eq!((c.sent, c.answered), (c.good, c.good), "{outcome}");
    assert_eq!(outcome.latency.count, c.answered, "{outcome}");
    assert!(!outcome.is_broken() && outcome.connections_lost == 0, "{outcome}");
}

#[test]
fn queries_reach_a_real_server_and_what_it_took_is_recorded() {
    let server = Library::start();
    for pace in [open(1000.0), Pace::Closed { depth: 1 }] {
        let outcome = run(&Plan { threads: 2, ..short(&server.address, pace) }, &mut unobserved).unwrap();
        add_up(&outcome);
        assert!(outcome.counts.good > 100, "{outcome}");
        assert_eq!(outcome.took.count, outcome.counts.good, "{outcome}");
        assert_eq!(outcome.took.p50.as_millis(), 7, "{outcome}");
        let asked: Vec<usize> = server.asked.try_iter().collect();
        assert_eq!(asked.len() as u64, outcome.counts.good);
        assert!(asked.iter().all(|count| (1..=18).contains(count)), "{asked:?}");
        assert!(asked.contains(&1) && asked.iter().any(|count| *count > 4), "{asked:?}");
        assert!(outcome.to_string().contains("took"), "{outcome}");
    }
}

#[test]
fn the_same_seed_asks_the_same_whatever_the_threads() {
    let server = Library::start();
    let asked = |seed, threads| {
        let asks = Http { seed, ..asks(&server.address) };
        let plan = Plan { asks, threads, ..short(&server.address, open(1000.0)) };
        add_up(&run(&plan, &mut unobserved).unwrap());
        let mut asked: Vec<usize> = server.asked.try_iter().collect();
        asked.sort_unstable();
        asked
    };
    assert_eq!(asked(7, 1), asked(7, 3));
    assert_ne!(asked(7, 1), asked(8, 1));
}

#[test]
fn a_path_that_the_server_does_not_have_is_counted_by_its_status() {
    let server = Library::start();
    let asks =
        Http { url: format!("http://{}/nothing", server.address).parse().unwrap(), ..asks(&server.address) };
    let outcome = run(&Plan { asks, ..short(&server.address, open(500.0)) }, &mut unobserved).unwrap();
    let c = &outcome.counts;
    assert!(c.client_errors > 50 && c.client_errors == c.refused && c.refused == c.answered, "{outcome}");
    assert!(outcome.is_broken() && outcome.to_string().contains("HTTP status 4xx"), "{outcome}");
    assert!(outcome.remarks[0].contains("404"), "{:?}", outcome.remarks);
}

/// A server that reads whole requests and lets `answer` write bytes, on a thread for each
/// connection; `answer` gets the number of the request on its connection and returns whether to go
/// on.
fn by_hand(answer: impl Fn(usize, &mut TcpStream) -> bool + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                for number in 0.. {
                    if !read_request(&mut reader) || !answer(number, &mut stream) {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// False if the client has left.
fn read_request(reader: &mut BufReader<TcpStream>) -> bool {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if !matches!(reader.read_line(&mut line), Ok(1..)) {
            return false;
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            return reader.read_exact(&mut vec![0; length]).is_ok();
        }
    }
}

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"took\":1}";

#[test]
fn chunked_answers_that_trickle_in_are_whole_when_their_last_byte_is() {
    let address = by_hand(|_, stream| {
        let text =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"too\r\n6\r\nk\" :3}\r\n0\r\n\r\n";
        text.chunks(7).all(|piece| {
            thread::sleep(std::time::Duration::from_millis(1));
            stream.write_all(piece).is_ok()
        })
    });
    let outcome = run(&short(&address, open(200.0)), &mut unobserved).unwrap();
    add_up(&outcome);
    assert_eq!(outcome.took.count, outcome.counts.good, "{outcome}");
    assert!(
        outcome.latency.p50 >= Duration::from_millis(8),
        "a dozen pieces, a millisecond apart: {outcome}"
    );
}

#[test]
fn answers_of_pipelined_requests_come_in_one_piece() {
    // Answers two at a time, so that nothing is answered unless two are asked at once.
    let address =
        by_hand(|number, stream| number % 2 == 0 || stream.write_all(&[GOOD, GOOD].concat()).is_ok());
    let plan = Plan { connections: 1, outstanding_max: 8, ..short(&address, Pace::Closed { depth: 2 }) };
    let outcome = run(&plan, &mut unobserved).unwrap();
    add_up(&outcome);
    assert!(outcome.counts.good > 20, "{outcome}");
}

#[test]
fn a_server_that_closes_after_each_answer_costs_connections_and_no_request() {
    for (text, name) in [
        (&b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"[..], "announced"),
        (b"HTTP/1.0 200 OK\r\n\r\n{\"took\":1}", "the body's end is the connection's"),
        (GOOD, "unannounced"),
    ] {
        let address = by_hand(move |_, stream| {
            let _ = stream.write_all(text);
            false
        });
        let plan =
            Plan { connections: 8, length: Duration::from_millis(500), ..short(&address, open(100.0)) };
        let outcome = run(&plan, &mut unobserved).unwrap();
        if name == "unannounced" {
            // A request may be on its way when the connection ends; then it is lost, and nothing
            // else is.
            let c = &outcome.counts;
            assert_eq!((c.good + c.lost, c.errors()), (c.sent, c.lost), "{outcome}");
            assert!(c.good > c.lost, "{outcome}");
        } else {
            add_up(&outcome);
        }
        assert!(outcome.connections_renewed > 0, "{name}: {outcome}");
        let closed = run(&short(&address, Pace::Closed { depth: 1 }), &mut unobserved).unwrap();
        assert!(closed.counts.good > 20 && closed.counts.corrupt == 0, "{name}: {closed}");
    }
}

#[test]
fn a_connection_that_ends_in_mid_answer_loses_its_request() {
    let address = by_hand(|number, stream| {
        if number < 3 {
            return stream.write_all(GOOD).is_ok();
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        false
    });
    let outcome = run(&short(&address, open(500.0)), &mut unobserved).unwrap();
    let c = &outcome.counts;
    assert!(c.lost > 5 && c.good > 2 * c.lost, "{outcome}");
    assert_eq!(u64::from(outcome.connections_lost), c.lost, "{outcome}");
    assert!(outcome.is_broken() && outcome.connections_renewed > 0, "{outcome}");
}

#[test]
fn a_content_length_that_is_too_small_is_found_and_one_too_large_times_out() {
    let small = by_hand(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{\"took\":1}").is_ok()
    });
    let outcome = run(&short(&small, Pace::Closed { depth: 1 }), &mut unobserved).unwrap();
    // Bytes left over belong to the next answer, if one is awaited; otherwise they are a fault.
    assert!(outcome.connections_renewed > 0 && outcome.counts.good < 10_000, "{outcome}");

    let large =
        by_hand(|_, stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}").is_ok());
    let plan = Plan { timeout: Some(Duration::from_millis(100)), ..short(&large, open(100.0)) };
    let outcome = run(&plan, &mut unobserved).unwrap();
    let c = &outcome.counts;
    assert!(c.timed_out > 0 && c.good == 0 && outcome.is_broken(), "{outcome}");
    assert_eq!(outcome.latency.count, c.timed_out + c.unanswered, "their age is in the latencies: {outcome}");
    assert!(outcome.latency.p50 >= Duration::from_millis(100), "{outcome}");
}

#[test]
fn a_slow_server_does_not_slow_the_requests_down() {
    // One connection, some 300 answers a second, 1000 asked for: the waiting shows in the
    // latencies.
    let address = by_hand(|_, stream| {
        thread::sleep(std::time::Duration::from_millis(3));
        stream.write_all(GOOD).is_ok()
    });
    let plan = Plan { connections: 1, ..short(&address, open(1000.0)) };
    let outcome = run(&plan, &mut unobserved).unwrap();
    add_up(&outcome);
    assert!(outcome.counts.backlogged > 0 && outcome.latency.p99 >= Duration::from_millis(300), "{outcome}");
}

#[test]
fn a_request_takes_a_free_connection_and_waits_for_none() {
    // The first request of the first connection hangs until the others have been served.
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let address = by_hand(move |_, stream| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            while counted.load(Ordering::SeqCst) < 100 {
                thread::yield_now();
            }
        }
        stream.write_all(GOOD).is_ok()
    });
    let plan = Plan { connections: 2, ..short(&address, open(500.0)) };
    let outcome = run(&plan, &mut unobserved).unwrap();
    add_up(&outcome);
    assert!(seen.load(Ordering::SeqCst) > 100, "the other connection carried them: {outcome}");
    assert!(outcome.latency.p90 < Duration::from_millis(100), "only one waited: {outcome}");
}

#[test]
fn a_server_that_goes_away_is_a_clear_error() {
    // Accepts one connection after the other until it has been asked once, then listens no more.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut streams: Vec<TcpStream> = Vec::new();
        for _ in 0..4 {
            streams.push(listener.accept().unwrap().0);
        }
        let mut byte = [0];
        let _ = streams[0].read(&mut byte);
    });
    let plan = Plan { length: Duration::from_secs(60), ..short(&address, open(500.0)) };
    let error = run(&plan, &mut unobserved).unwrap_err();
    assert!(matches!(error, Error::Closed { .. }) && error.to_string().contains("anew"), "{error}");
}

#[test]
fn what_is_no_http_is_recognised() {
    for words in
        [&b"ERROR\r\n"[..], b"\x00\x01garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
    {
        let address = by_hand(move |_, stream| stream.write_all(words).is_ok());
        let outcome = run(&short(&address, open(200.0)), &mut unobserved).unwrap();
        let c = &outcome.counts;
        assert!(c.lost > 0 && c.answered == 0 && !outcome.valid && outcome.is_broken(), "{outcome}");
        assert!(outcome.remarks[0].contains("no HTTP/1.1 answer"), "{:?}", outcome.remarks);
    }
}
