//! `roost observe` on this machine: a real server that knows nothing of it, and services that are
//! not there.

use crate::fixture::{ROOST, Server, skipped};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

fn observe(folder: &Path, flags: &[&str]) -> Output {
    let out = folder.join("run");
    let mut command = Command::new(ROOST);
    command.args(["observe", "--out", out.to_str().expect("UTF-8")]).args(flags);
    command.current_dir(folder).output().expect("roost runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// True if the machine shows nothing of its sleeps to this user: no events, no cpuidle. Said then.
fn is_blind(test: &str, output: &Output) -> bool {
    let is_blind = output.status.code() == Some(3);
    if is_blind {
        skipped(test, &text(&output.stderr));
    }
    is_blind
}

#[test]
fn a_service_that_is_not_there_is_one_clear_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let free = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("its number").port().to_string()
    };
    for (flags, words) in [
        (vec!["--pid", "4000000"], "no process 4000000"),
        (vec!["--port", &free], "no process listens on TCP port"),
        (vec!["--cgroup", "/no/such/group"], "no cgroup /no/such/group"),
        (vec!["--unit", "no-such-unit"], "no-such-unit"),
        (vec!["--port", &free, "--sweep", "rate=1k..2k"], "no service listens at"),
        (vec!["--meter", "echo none", "--for", "1s"], "printed no number of watts"),
    ] {
        let output = observe(folder.path(), &flags);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(words) && said.lines().count() <= 3, "{flags:?}: {said}");
        assert!(!folder.path().join("run").exists(), "{flags:?} left a folder");
    }
    // Two services at once, or a view without a terminal.
    assert_eq!(observe(folder.path(), &["--pid", "1", "--port", &free]).status.code(), Some(2));
    let output = observe(folder.path(), &["--live", "--for", "1s"]);
    assert!(is_blind("--live", &output) || output.status.code() == Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_real_server_is_counted_request_by_request() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(&[]);
    let over = AtomicBool::new(false);
    let (output, asked) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut client = server.connect();
            let mut asked = 0u64;
            while !over.load(Ordering::Relaxed) {
                client.set("key", "value");
                asked += 1;
            }
            asked
        });
        let port = server.port.to_string();
        let power = folder.path().join("watts");
        std::fs::write(&power, "42.5\n").expect("a file");
        let meter = format!("cat {}", power.display());
        let flags = ["--port", &port, "--for", "2s", "--json", "--meter", &meter];
        let output = observe(folder.path(), &flags);
        over.store(true, Ordering::Relaxed);
        (output, client.join().expect("the client"))
    });
    if is_blind("observe --port", &output) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(seen["power"]["source"].as_str().map(|source| source.contains("watts")), Some(true), "{seen}");
    let Some(requests) = seen["answers"]["requests"].as_u64() else {
        return skipped("requests of a real server", &seen["notes"].to_string());
    };
    // The client waits for each reply, so none is merged; it asked before and after as well.
    assert!(requests > 0 && requests <= asked, "{requests} of {asked}");
    assert_eq!(seen["answers"]["merged"].as_u64(), Some(0), "{}", seen["answers"]);
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("the page");
    assert!(page.contains("Response time") && page.contains("42.5"), "the service is not on the page");
}

/// The store's own count, the kernel's and the client's are of the same requests.
#[test]
fn a_store_of_ours_says_of_itself_what_its_client_saw() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(&[]);
    let over = AtomicBool::new(false);
    let (output, asked) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut client = server.connect();
            let mut asked = 0u64;
            while !over.load(Ordering::Relaxed) {
                client.set("key", "value");
                asked += 1;
            }
            asked
        });
        let (port, source) = (server.port.to_string(), format!("roost:127.0.0.1:{}", server.port));
        let output = observe(folder.path(), &["--port", &port, "--scrape", &source, "--for", "3s", "--json"]);
        over.store(true, Ordering::Relaxed);
        (output, client.join().expect("the client"))
    });
    if is_blind("observe --scrape roost", &output) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let own = &seen["scraped"];
    // Its rate is over about three seconds, the client was there a little longer.
    let counted = own["per_s"].as_f64().unwrap_or_else(|| panic!("no rate in {own}")) * 3.0;
    assert!(counted > 0.0 && counted <= 1.2 * asked as f64, "{counted} of {asked}: {own}");
    assert_eq!(own["connections"], 1, "our own is not counted: {own}");
    assert!(own["p99_ns"].as_u64().is_some_and(|p99| p99 > 0), "{own}");
    let notes = own["notes"].as_array().expect("notes");
    assert!(
        !notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains("did not answer"))),
        "{own}"
    );
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("the page");
    for words in ["What the service says of itself", &format!("roost:127.0.0.1:{}", server.port)] {
        assert!(page.contains(words), "no {words} on the page");
    }
    let Some(kernel) = seen["answers"]["rate_per_s"].as_f64() else {
        return skipped("the kernel's count beside the store's", &seen["notes"].to_string());
    };
    let ratio = own["per_s"].as_f64().expect("a rate") / kernel;
    assert!((0.7..1.4).contains(&ratio), "the kernel says {kernel}: {own}");
}

#[test]
fn metrics_are_served_meanwhile_and_a_signal_ends_it_with_a_report() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("run");
    let mut child = Command::new(ROOST)
        .args(["observe", "--for", "0s", "--metrics", "127.0.0.1:0", "--out", out.to_str().expect("UTF-8")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .expect("roost runs");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("its first line");
    let Some(address) =
        line.trim().strip_prefix("metrics on http://").and_then(|rest| rest.strip_suffix("/metrics"))
    else {
        let code = child.wait().expect("an end").code();
        assert_eq!(code, Some(3), "{line}");
        return skipped("observe --metrics", &line);
    };
    // The first second has nothing to show yet.
    let mut page = String::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(address).expect("the page's port");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("a question");
        page.clear();
        stream.read_to_string(&mut page).expect("an answer");
        if page.contains("200 OK") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(page.contains("roost_observe_lost_events_total") && page.contains("# EOF"), "{page}");
    crate::fixture::signal(child.id(), "TERM");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert!(out.join("report.html").is_file(), "a signal ends it early, with what was seen");
}

#[test]
fn a_sweep_has_a_point_for_each_rate_and_depth() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(&[]);
    let port = server.port.to_string();
    let output =
        observe(folder.path(), &["--port", &port, "--sweep", "rate=200..400/2", "--for", "1s", "--json"]);
    // 6: this machine was too busy to send on time, which is said and no fault of the sweep.
    assert!(matches!(output.status.code(), Some(0 | 6)), "{}", text(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let points = seen["points"].as_array().expect("points");
    assert!(points.len() >= 2 && points.len().is_multiple_of(2), "{seen}");
    assert!(points.iter().all(|point| point["latency"]["count"].as_u64() > Some(50)), "{seen}");
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("the page");
    assert!(page.contains("Tail against load") && page.contains("Residency against load, stock"));
}
