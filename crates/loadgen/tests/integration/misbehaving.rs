//! Servers that refuse, stall, close, or speak something else: clear errors, and an end to every
//! run.

use crate::{open, short, unobserved};
use loadgen::{Error, Items, Pace, Plan, Target, run};
use machine::{CpuId, CpuList, Duration, Ratio};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::thread;
use workload::Workload;

/// A server whose every connection is handled by `serve` on a thread of its own. The threads end
/// with their clients.
pub fn server(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address.to_string().parse().unwrap()
}

/// Calls `answer` for each line that a client sends, until the client leaves or it says to close.
pub fn lines(stream: TcpStream, mut answer: impl FnMut(&str, &mut TcpStream) -> bool) {
    let mut writer = stream.try_clone().unwrap();
    for line in BufReader::new(stream).split(b'\n') {
        let Ok(line) = line else { return };
        if !answer(&String::from_utf8_lossy(&line), &mut writer) {
            return;
        }
    }
}

pub fn gets_only(plan: Plan) -> Plan {
    Plan { asks: Items::of(Workload { gets: Ratio::ONE, ..plan.asks.workload.clone() }), ..plan }
}

#[test]
fn nobody_listening_is_a_clear_error() {
    let target: Target = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string().parse().unwrap()
    };
    let error = run(&short(target.clone(), open(100.0)), &mut unobserved).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&target.to_string()) && text.contains("is the server running"), "{text}");
    let missing = Target::Unix("/nonexistent/socket".into());
    let error = run(&short(missing, open(100.0)), &mut unobserved).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    let nowhere: Target = "no-such-host.invalid:11211".parse().unwrap();
    let error = run(&short(nowhere, open(100.0)), &mut unobserved).unwrap_err();
    assert!(matches!(error, Error::Resolve { .. }) && error.is_usage(), "{error}");
}

#[test]
fn a_unix_server_that_accepts_nobody_does_not_hang_the_generator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    // More connections than the queue holds (128 by std's listen), so that some are never taken.
    let plan = Plan {
        connections: 5000,
        patience: Duration::from_millis(50),
        ..short(Target::Unix(path), open(100.0))
    };
    let error = run(&plan, &mut unobserved).unwrap_err();
    assert!(matches!(error, Error::Connect { .. } | Error::Stalled { .. }), "{error}");
}

#[test]
fn silence_ends_the_run_with_an_error() {
    let target = server(|stream| lines(stream, |_, _| true));
    let plan = Plan { patience: Duration::from_millis(100), ..short(target, open(100.0)) };
    let plan = Plan { length: Duration::from_secs(3600), ..plan };
    match run(&plan, &mut unobserved).unwrap_err() {
        Error::Stalled { waiting, .. } => assert!(waiting > 0),
        other => panic!("{other}"),
    }
    let preload = Plan { asks: Items { preload: true, ..plan.asks.clone() }, ..plan };
    assert!(matches!(run(&preload, &mut unobserved), Err(Error::Stalled { .. })));
}

#[test]
fn answers_that_never_come_count_with_their_age() {
    // Answers the first request of each connection and no other.
    let target = server(|stream| {
        let mut first = true;
        lines(stream, move |_, writer| !std::mem::take(&mut first) || writer.write_all(b"END\r\n").is_ok());
    });
    let plan = Plan { drain: Duration::from_millis(50), connections: 2, ..short(target, open(500.0)) };
    let outcome = run(&gets_only(plan), &mut unobserved).unwrap();
    assert_eq!(outcome.counts.answered, 2, "{outcome}");
    assert!(outcome.counts.unanswered > 50, "{outcome}");
    assert_eq!(outcome.latency.count, 2 + outcome.counts.unanswered);
    // Half of them were due before the middle of the run, and waited at least until its end.
    assert!(outcome.latency.p50 >= Duration::from_millis(100), "{outcome}");
}

#[test]
fn a_closing_server_is_an_error_and_one_lost_connection_is_counted() {
    let all = server(|stream| lines(stream, |_, _| false));
    let error = run(&gets_only(short(all, open(1000.0))), &mut unobserved).unwrap_err();
    assert!(matches!(error, Error::Closed { .. }) && error.to_string().contains("closed"), "{error}");

    // The first client to ask is thrown out; the others are served.
    let thrown = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let target = server(move |stream| {
        let thrown = thrown.clone();
        lines(stream, move |_, writer| {
            thrown.swap(true, std::sync::atomic::Ordering::SeqCst) && writer.write_all(b"END\r\n").is_ok()
        });
    });
    let outcome = run(&gets_only(short(target, open(1000.0))), &mut unobserved).unwrap();
    assert_eq!(outcome.connections_lost, 1, "{outcome}");
    assert!(outcome.counts.lost > 0 && outcome.counts.misses > 0 && outcome.is_broken(), "{outcome}");
}

#[test]
fn another_protocol_is_recognised() {
    for words in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"\x00\x01garbage\r\n",
        b"STORED\r\n",
        b"END\r\nEND\r\nEND\r\n",
    ] {
        let target = server(move |stream| lines(stream, move |_, writer| writer.write_all(words).is_ok()));
        let plan = Plan { connections: 1, ..gets_only(short(target, Pace::Closed { depth: 1 })) };
        let error = run(&plan, &mut unobserved).unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{words:?}: {error}");
    }
}

#[test]
fn a_server_that_reads_nothing_leaves_requests_unanswered_and_says_so() {
    // Large values fill the sockets' buffers; the server never reads.
    let target = server(|stream| {
        let _ = stream.set_read_timeout(None);
        thread::park();
        drop(stream);
    });
    let workload = Workload {
        keys: 10,
        value_size: workload::ValueSize::Fixed(100_000),
        gets: Ratio::ZERO,
        ..Workload::default()
    };
    let plan = Plan {
        asks: Items::of(workload),
        connections: 1,
        drain: Duration::from_millis(50),
        ..short(target, open(2000.0))
    };
    let outcome = run(&plan, &mut unobserved).unwrap();
    assert!(outcome.counts.backlogged > 0 && outcome.counts.unanswered > 0, "{outcome}");
    assert_eq!(outcome.counts.answered, 0, "{outcome}");
}

#[test]
fn a_slow_server_does_not_slow_the_requests_down() {
    // One answer at a time, each after a moment, so that most requests find earlier ones
    // unanswered.
    let target = server(|stream| {
        lines(stream, |_, writer| {
            thread::sleep(std::time::Duration::from_millis(3));
            writer.write_all(b"END\r\n").is_ok()
        });
    });
    // Served at some 300 per second and asked at 1000: the waiting shows in the latencies, whether
    // the requests wait at the server or, with one under way at most, at the generator; and nothing
    // is left out.
    for outstanding_max in [1000, 1] {
        let plan = Plan { connections: 1, outstanding_max, ..short(target.clone(), open(1000.0)) };
        let outcome = run(&gets_only(plan), &mut unobserved).unwrap();
        assert_eq!(outcome.counts.sent, outcome.counts.answered, "{outcome}");
        assert_eq!(outcome.counts.backlogged > 0, outstanding_max == 1, "{outcome}");
        assert!(outcome.latency.p99 >= Duration::from_millis(300), "{outcome}");
    }
}

#[test]
fn impossible_cpus_and_too_many_connections_are_refused_as_usage() {
    let nobody: Target = "127.0.0.1:1".parse().unwrap();
    let plan = Plan { cpus: Some(CpuList([CpuId(4000)].into())), ..short(nobody.clone(), open(1.0)) };
    let error = run(&plan, &mut unobserved).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("4000"), "{error}");
    let plan = Plan { connections: 1_000_000, ..short(nobody, open(1.0)) };
    assert!(run(&plan, &mut unobserved).unwrap_err().is_usage());
}
