use super::open::unused_instance;
use super::*;
use crate::config::Config;
use policy::governing::Mode;

/// This process as the service, which gets no requests; `None`, with a message, where requests
/// cannot be seen.
fn idle_service(
    telemetry: crate::TelemetrySource,
    port: u16,
    report: &mut EpochReport,
) -> Option<Result<Governed, OpenError>> {
    let text = format!("name = \"test\"\nport = {port}\npolicy = \"fixed\"");
    let config = ServiceConfig { telemetry, ..toml::from_str(&text).unwrap() };
    opened(&config, report)
}

fn opened(config: &ServiceConfig, report: &mut EpochReport) -> Option<Result<Governed, OpenError>> {
    let daemon = Config { epoch: Duration::from_millis(50), ..Config::default() };
    let root = Root::system();
    let open = Open { root: &root, daemon: &daemon, only_user: None, dry_run: true };
    match Governed::open(&open, config, linux::now(), report) {
        Err(OpenError::Blind { reason, .. }) => {
            eprintln!("skipped: {reason}");
            None
        }
        other => Some(other),
    }
}

/// Epochs until this holds, forty at the most.
fn until(governed: &mut Governed, report: &mut EpochReport, holds: impl Fn(&Governed) -> bool) -> bool {
    (0..40).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        governed.epoch(linux::now(), None, report);
        holds(governed)
    })
}

#[test]
fn programs_that_are_detached_are_no_silence_and_are_loaded_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut report = EpochReport::default();
    let Some(governed) = idle_service(crate::TelemetrySource::Requests, port, &mut report) else { return };
    let mut governed = governed.unwrap();
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        governed.epoch(linux::now(), None, &mut report);
        assert_eq!(governed.last.rate, Some(machine::Rate::ZERO), "no request came, and that is seen");
    }
    governed.telemetry.sever();
    let is_open = |governed: &Governed| matches!(governed.policy.mode(), Mode::Open { .. });
    assert!(until(&mut governed, &mut report, is_open), "{:?}", governed.last);
    let Mode::Open { failure, .. } = governed.policy.mode() else { unreachable!() };
    assert_eq!(failure.to_string(), "nothing was seen of the service for 3 epochs");
    // Loaded again meanwhile: it comes back by itself.
    let is_back = |governed: &Governed| *governed.policy.mode() == Mode::Searching;
    assert!(until(&mut governed, &mut report, is_back), "{:?}", report.notices);
    assert_eq!(governed.last.rate, Some(machine::Rate::ZERO));
    assert!(report.notices.iter().any(|notice| notice.contains("were loaded again")), "{:?}", report.notices);
}

#[test]
fn a_server_that_no_longer_answers_is_lost_and_comes_back() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let hangs = Arc::new(AtomicBool::new(false));
    let hang = Arc::clone(&hangs);
    std::thread::spawn(move || {
        let count = AtomicU64::new(0);
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = BufReader::new(&client).read_line(&mut String::new());
            if !hang.load(Ordering::Relaxed) {
                let count = count.fetch_add(100, Ordering::Relaxed);
                let _ = client.write_all(format!("STAT cmd_get {count}\r\nEND\r\n").as_bytes());
            }
        }
    });
    let memcached = crate::TelemetrySource::Own {
        server: crate::controllers::cores::sources::Server::Memcached,
        address: None,
        with_requests: false,
    };
    let mut report = EpochReport::default();
    let mut governed = idle_service(memcached, port, &mut report).unwrap().unwrap();
    assert_eq!(governed.status().seen_by, format!("memcached:127.0.0.1:{port}"));
    let has_rate = |governed: &Governed| governed.last.rate.is_some_and(|rate| rate > machine::Rate::ZERO);
    assert!(until(&mut governed, &mut report, has_rate), "{:?}", report.notices);
    hangs.store(true, Ordering::Relaxed);
    let is_open = |governed: &Governed| matches!(governed.policy.mode(), Mode::Open { .. });
    assert!(until(&mut governed, &mut report, is_open), "{:?}", governed.last);
    hangs.store(false, Ordering::Relaxed);
    let is_back = |governed: &Governed| *governed.policy.mode() == Mode::Searching;
    assert!(until(&mut governed, &mut report, is_back) && has_rate(&governed), "{:?}", report.notices);
}

#[test]
fn a_source_that_is_not_there_is_one_error_with_its_fix() {
    // A listener that is no memcached.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let page = crate::TelemetrySource::Prometheus {
        url: format!("http://{free}/metrics"),
        rate: "requests_total".into(),
        tail: None,
    };
    let error = idle_service(page, port, &mut EpochReport::default()).unwrap().err().unwrap().to_string();
    assert!(error.contains("no service listens there; start the service"), "{error}");
}

/// A service of this process, governed by a module of this text.
fn governed_by(text: &str, keys: &str, report: &mut EpochReport) -> Option<Result<Governed, OpenError>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.wasm");
    let version = r#"(func (export "roost_policy") (result i32) (i32.const 1))"#;
    std::fs::write(&file, wat::parse_str(format!("(module {text} {version})")).unwrap()).unwrap();
    // It goes with its last connection.
    let listener = Box::leak(Box::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap()));
    let port = listener.local_addr().unwrap().port();
    let text = format!("name = \"test\"\nport = {port}\n{keys}\npolicy = \"{}\"", file.display());
    let mut config: ServiceConfig = toml::from_str(&text).unwrap();
    config.policy.read("".as_ref()).unwrap();
    opened(&config, report)
}

#[test]
fn a_policy_of_ones_own_decides_until_its_fault() {
    // One core; from its fourth call on it divides by zero.
    let text = r#"(import "roost" "set_cores" (func $set (param i32)))
        (global $left (mut i32) (i32.const 4))
        (func (export "on_epoch")
            (global.set $left (i32.sub (global.get $left) (i32.const 1)))
            (drop (i32.div_u (i32.const 1) (global.get $left)))
            (call $set (i32.const 1)))"#;
    let mut report = EpochReport::default();
    let Some(governed) = governed_by(text, "", &mut report) else { return };
    let mut governed = governed.unwrap();
    let (all, is_one) = (governed.policy.cores().1, |governed: &Governed| governed.policy.cores().0 == 1);
    assert!(until(&mut governed, &mut report, is_one), "{:?}", report.notices);
    assert!(governed.status().policy.ends_with("mine.wasm"));
    let is_open = |governed: &Governed| matches!(governed.policy.mode(), Mode::Open { .. });
    assert!(until(&mut governed, &mut report, is_open), "{:?}", report.notices);
    assert_eq!(governed.policy.cores().0, all);
    let Mode::Open { failure, .. } = governed.policy.mode() else { unreachable!() };
    assert!(failure.to_string().contains("its policy is at fault: ") && failure.to_string().contains("zero"));
    let faults = report.notices.iter().filter(|notice| notice.contains("mine.wasm at "));
    assert_eq!(faults.count(), 1, "{:?}", report.notices);
    // A person's pause and its end call it no more.
    governed.tell(linux::now(), Input::Pause(true), None, &mut report);
    governed.tell(linux::now(), Input::Pause(false), None, &mut report);
    assert!(until(&mut governed, &mut report, is_open), "{:?}", report.notices);
}

#[test]
fn a_policy_that_cannot_decide_here_is_told_with_its_fix() {
    let on_epoch = r#"(func (export "on_epoch"))"#;
    let on_idle = r#"(func (export "on_idle") (param i64 i64 i64 i64) (result i32) (i32.const 0))"#;
    let on_arrival = format!(r#"{on_epoch} (func (export "on_arrival") (param i64 i32))"#);
    let clocks = format!(r#"(import "roost" "set_clock_khz" (func (param i64))) {on_epoch}"#);
    let median = format!(r#"(func (export "tail_quantile") (result f64) (f64.const 0.5)) {on_epoch}"#);
    let trap = format!(r#"(func (export "on_start") unreachable) {on_epoch}"#);
    for (text, told) in [
        (on_idle, "order set_idle_limit_ns in on_epoch"),
        (&on_arrival, "decide in on_epoch"),
        (&clocks, "such as frequency = \"2600MHz\""),
        (&median, "0.95, 0.99 or the goal's"),
        (&trap, "unreachable"),
    ] {
        let governed = governed_by(text, "", &mut EpochReport::default());
        let error = governed.unwrap().err().expect(text).to_string();
        assert!(error.starts_with("test: ") && error.contains("mine.wasm"), "{error}");
        assert!(error.contains(told), "{error}");
    }
    let of_goal = governed_by(&median, "goal = \"1ms@p50\"", &mut EpochReport::default());
    assert!(of_goal.is_none_or(|governed| governed.is_ok()), "the goal's quantile is measured");
}

#[test]
fn a_recording_is_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let next = || unused_instance(folder.path(), "shop");
    assert_eq!(next(), "service-shop");
    std::fs::write(folder.path().join("service-shop.000007.jsonl"), "").unwrap();
    std::fs::write(folder.path().join("service-shop-2.000000.jsonl"), "").unwrap();
    assert_eq!(next(), "service-shop~2");
    std::fs::write(folder.path().join("service-shop~2.000000.jsonl"), "").unwrap();
    assert_eq!(next(), "service-shop~3");
    assert_eq!(unused_instance(&folder.path().join("none"), "shop"), "service-shop");
}
