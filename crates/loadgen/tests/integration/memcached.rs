//! Against the memcached on this machine's PATH, if there is one.

use crate::{open, short, unobserved};
use loadgen::{Counts, Error, HdrLog, Interval, Items, Outcome, Pace, Part, Plan, Target, run};
use machine::{Duration, Ratio};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::process::{Child, Command};
use std::time::Instant;
use workload::{KeySize, Popularity, Requests, ValueSize, Workload};

/// A memcached on a port that the system chose, ended when dropped.
struct Memcached {
    process: Child,
    address: String,
}

impl Memcached {
    /// None, and a line that says so, where memcached is not installed.
    fn start(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let port_file = folder.path().join("port");
        let mut command = Command::new("memcached");
        command.args([
            "-p",
            "-1",
            "-U",
            "0",
            "-l",
            "127.0.0.1",
            "-t",
            "1",
            "-m",
            "64",
            "-c",
            "12000",
            "-u",
            "root",
        ]);
        command.env("MEMCACHED_PORT_FILENAME", &port_file);
        let Ok(mut process) = command.spawn() else {
            eprintln!("SKIPPED {test}: no memcached on PATH (Debian: apt-get install memcached)");
            return None;
        };
        // memcached renames the file into place when it listens.
        let asked = Instant::now();
        let port = loop {
            if let Ok(text) = std::fs::read_to_string(&port_file) {
                break text.trim().rsplit(' ').next().unwrap().to_owned();
            }
            assert!(process.try_wait().unwrap().is_none(), "memcached ended at once");
            assert!(asked.elapsed().as_secs() < 30, "memcached says nowhere that it listens");
            std::thread::yield_now();
        };
        Some(Self { process, address: format!("127.0.0.1:{port}") })
    }

    fn target(&self) -> Target {
        self.address.parse().unwrap()
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn add_up(outcome: &Outcome) {
    let Counts { sent, answered, hits, misses, stored, refused, .. } = outcome.counts;
    assert_eq!(outcome.counts.errors(), 0, "{outcome}");
    assert_eq!(sent, answered, "{outcome}");
    assert_eq!(answered, hits + misses + stored + refused, "{outcome}");
    assert_eq!(outcome.latency.count, answered, "{outcome}");
    assert_eq!(outcome.connections_lost, 0);
    let l = &outcome.latency;
    assert!(l.p50 <= l.p90 && l.p90 <= l.p99 && l.p99 <= l.p999 && l.p999 <= l.p9999, "{outcome}");
}

#[test]
fn counts_add_up_in_an_open_loop() {
    let Some(server) = Memcached::start("counts_add_up_in_an_open_loop") else { return };
    let plan = Plan {
        threads: 2,
        warmup: Duration::from_millis(100),
        asks: Items {
            workload: Workload {
                keys: 500,
                value_size: ValueSize::Etc,
                key_size: KeySize::Etc,
                ..Workload::default()
            },
            preload: true,
            verify: true,
            ..Items::default()
        },
        ..short(server.target(), open(5000.0))
    };
    let mut seen = Vec::new();
    let outcome = run(&plan, &mut |interval: &Interval<'_>| {
        assert_eq!(interval.latencies.len(), interval.progress.latency.count);
        seen.push(interval.progress.clone());
        ControlFlow::Continue(())
    })
    .unwrap();
    add_up(&outcome);
    assert_eq!(outcome.counts.misses, 0, "everything was stored before");
    let preload = outcome.preload.unwrap();
    assert_eq!((preload.stored, preload.checked, preload.hits), (500, 500, 500));
    // 1500 expected, so this is thirteen standard deviations.
    assert!((1000..2000).contains(&outcome.counts.sent), "{outcome}");
    assert_eq!(outcome.lateness.count, outcome.counts.sent);
    assert_eq!(outcome.offered.unwrap().as_per_second().round(), 5000.0);
    assert_eq!(seen, outcome.intervals);
    assert_eq!(seen.iter().filter(|progress| progress.part == Part::Warmup).count(), 2);
    assert_eq!(seen.iter().filter(|progress| progress.part == Part::Measured).count(), 6);
    let all: u64 = seen.iter().map(|progress| progress.counts.answered).sum();
    assert!(all > outcome.counts.answered, "the warm-up is seen and not counted");
}

#[test]
fn counts_add_up_in_a_closed_loop() {
    let Some(server) = Memcached::start("counts_add_up_in_a_closed_loop") else { return };
    for depth in [1, 16] {
        let base = short(server.target(), Pace::Closed { depth });
        let plan = Plan { threads: 2, asks: Items { verify: true, ..base.asks.clone() }, ..base };
        let outcome = run(&plan, &mut unobserved).unwrap();
        add_up(&outcome);
        assert!(outcome.valid && outcome.offered.is_none() && outcome.lateness.count == 0, "{outcome}");
        assert!(outcome.counts.answered > 100, "{outcome}");
    }
}

#[test]
fn ten_thousand_connections_are_all_used() {
    let Some(server) = Memcached::start("ten_thousand_connections_are_all_used") else { return };
    let plan = Plan { connections: 10_000, threads: 2, ..short(server.target(), Pace::Closed { depth: 1 }) };
    match run(&plan, &mut unobserved) {
        Ok(outcome) => {
            add_up(&outcome);
            assert!(outcome.counts.answered >= 10_000, "every connection sends at once: {outcome}");
        }
        Err(error @ Error::Descriptors { .. }) => {
            eprintln!("SKIPPED ten_thousand_connections_are_all_used: {error}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_same_seed_sends_the_same_requests_whatever_the_threads() {
    let Some(server) = Memcached::start("the_same_seed_sends_the_same_requests") else { return };
    let sent = |seed, threads| {
        let plan = Plan {
            threads,
            asks: Items {
                preload: true,
                ..Items::of(Workload {
                    seed,
                    keys: 500,
                    popularity: Popularity::Zipf(0.99),
                    ..Workload::default()
                })
            },
            ..short(server.target(), open(5000.0))
        };
        let outcome = run(&plan, &mut unobserved).unwrap();
        (outcome.counts.hits, outcome.counts.stored)
    };
    assert_eq!(sent(7, 1), sent(7, 2));
    assert_ne!(sent(7, 1), sent(8, 1));
}

#[test]
fn a_value_that_another_client_changed_is_found() {
    let Some(server) = Memcached::start("a_value_that_another_client_changed_is_found") else { return };
    let workload = Workload { keys: 20, gets: Ratio::ONE, ..Workload::default() };
    let plan = Plan {
        asks: Items { preload: true, verify: true, ..Items::of(workload.clone()) },
        ..short(server.target(), open(2000.0))
    };
    let clean = run(&plan, &mut unobserved).unwrap();
    assert!(clean.counts.corrupt == 0 && clean.counts.hits > 0, "{clean}");

    let mut key = Vec::new();
    Requests::new(&workload).unwrap().write_key(3, &mut key);
    let mut value = vec![0; 100];
    workload::fill_value(&key, &mut value);
    value[99] ^= 1;
    let mut other = TcpStream::connect(&server.address).unwrap();
    let words = format!("set {} 0 0 100\r\n", str::from_utf8(&key).unwrap());
    other.write_all(&[words.as_bytes(), &value, b"\r\n"].concat()).unwrap();
    let mut answer = [0; 8];
    other.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"STORED\r\n");

    let spoilt =
        run(&Plan { asks: Items { preload: false, ..plan.asks.clone() }, ..plan }, &mut unobserved).unwrap();
    assert!(spoilt.counts.corrupt > 0 && spoilt.is_broken(), "{spoilt}");
    assert!(spoilt.counts.corrupt < spoilt.counts.hits, "only one key was changed: {spoilt}");
    let named = str::from_utf8(&key).unwrap();
    assert!(spoilt.remarks[0].contains(named), "{:?}", spoilt.remarks);
}

#[test]
fn a_rate_beyond_the_generator_makes_the_run_invalid() {
    let Some(server) = Memcached::start("a_rate_beyond_the_generator_makes_the_run_invalid") else { return };
    // No generator of one thread composes 20 M requests per second.
    let plan = Plan { drain: Duration::from_millis(100), ..short(server.target(), open(20e6)) };
    let outcome = run(&plan, &mut unobserved).unwrap();
    assert!(!outcome.valid && !outcome.invalid_because.is_empty(), "{outcome}");
    assert!(outcome.to_string().contains("INVALID"), "{outcome}");
    assert!(outcome.achieved.as_per_second() < 20e6);
}

#[test]
fn an_observer_can_end_the_run() {
    let Some(server) = Memcached::start("an_observer_can_end_the_run") else { return };
    let plan = Plan { length: Duration::from_secs(3600), ..short(server.target(), open(1000.0)) };
    let mut intervals = 0;
    let outcome = run(&plan, &mut |_: &Interval<'_>| {
        intervals += 1;
        if intervals == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert!(outcome.counts.answered > 0 && outcome.measured < Duration::from_secs(600), "{outcome}");
}

#[test]
fn a_server_too_small_for_its_keys_is_noticed() {
    let Some(server) = Memcached::start("a_server_too_small_for_its_keys_is_noticed") else { return };
    // 200 MB of values in 64 MB: memcached evicts, and the check after filling misses keys.
    let workload = Workload {
        keys: 2000,
        value_size: ValueSize::Fixed(100_000),
        gets: Ratio::ONE,
        ..Workload::default()
    };
    let asks = Items { preload: true, verify: true, ..Items::of(workload) };
    let plan = Plan { asks, ..short(server.target(), open(500.0)) };
    let outcome = run(&plan, &mut unobserved).unwrap();
    let preload = outcome.preload.unwrap();
    assert!(preload.stored == 2000 && preload.hits < preload.checked, "{outcome}");
    assert!(outcome.counts.misses > 0 && outcome.counts.corrupt == 0, "{outcome}");
}

#[test]
fn a_value_that_the_server_refuses_ends_the_preload() {
    let Some(server) = Memcached::start("a_value_that_the_server_refuses_ends_the_preload") else { return };
    let workload = Workload { keys: 3, value_size: ValueSize::Fixed(2 << 20), ..Workload::default() };
    let asks = Items { preload: true, ..Items::of(workload) };
    let plan = Plan { asks, ..short(server.target(), open(10.0)) };
    match run(&plan, &mut unobserved) {
        Err(error @ Error::PreloadRefused { .. }) => {
            assert!(
                error.to_string().contains("too large") && error.to_string().contains("smaller"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_hdr_log_holds_every_latency() {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    let Some(server) = Memcached::start("the_hdr_log_holds_every_latency") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latency.hdr");
    let mut log = HdrLog::create(&path).unwrap();
    let plan = Plan { warmup: Duration::from_millis(100), ..short(server.target(), open(2000.0)) };
    let outcome = run(&plan, &mut |interval: &Interval<'_>| {
        log.record(interval).unwrap();
        ControlFlow::Continue(())
    })
    .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (mut warm, mut counted) = (0, 0);
    for entry in IntervalLogIterator::new(&bytes) {
        if let LogEntry::Interval(line) = entry.unwrap() {
            let text = line.encoded_histogram();
            let histogram: hdrhistogram::Histogram<u64> = {
                let raw = base64(text);
                Deserializer::new().deserialize(&mut raw.as_slice()).unwrap()
            };
            if line.tag().is_some() { warm += histogram.len() } else { counted += histogram.len() }
        }
    }
    let seen: u64 = outcome.intervals.iter().map(|progress| progress.counts.answered).sum();
    assert!(warm > 0);
    assert_eq!(warm + counted, seen);
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text.bytes().filter(|c| *c != b'=').map(digit).collect();
    digits
        .chunks(4)
        .flat_map(|chunk| {
            let bits = chunk.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - chunk.len()));
            bits.to_be_bytes()[1..chunk.len()].to_vec()
        })
        .collect()
}
