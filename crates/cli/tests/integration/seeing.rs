//! The figures of a running store: `stats roost`, the metrics page, a state file.

use crate::fixture::Server;
use linux::EndsWithParent as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

fn http(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the page is served");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    text
}

#[test]
fn stats_roost_tells_of_every_worker_and_cpu() {
    let server = Server::start(&["--memory-limit", "64m", "--workers", "3", "--policy", "all-awake"]);
    let mut client = server.connect();
    assert_eq!(client.set("k", "v"), "STORED");
    assert_eq!(client.stat("roost", "policy").as_deref(), Some("all-awake"));
    assert_eq!(client.stat("roost", "workers_active").as_deref(), Some("3"));
    for worker in 0..3 {
        assert!(client.stat("roost", &format!("worker-{worker}:awake_us")).is_some());
        assert!(client.stat("roost", &format!("worker-{worker}:io_uring")).is_some());
    }
    let source = client.stat("roost", "energy_source").expect("an energy figure says where it comes from");
    assert!(source.starts_with("measured") || source.starts_with("modelled"), "{source}");
    let basis = client.stat("roost", "energy_basis:0").expect("what the figure rests on is told as well");
    assert!(!basis.is_empty());
    let json = client.stat("roost-json", "status").expect("one line of JSON");
    let status: store::status::Status = serde_json::from_str(&json).expect("a status");
    assert_eq!(status.workers.len(), 3);
    assert_eq!(status.items, 1);
    assert!(client.stat("conns", "0:addr").is_some_and(|address| address.starts_with("tcp:127.0.0.1:")));
}

#[test]
fn the_metrics_page_is_in_the_openmetrics_format() {
    let mut command = std::process::Command::new(crate::fixture::ROOST);
    command.args(["serve", "--port", "0", "--idle-actuator", "none", "--metrics", "127.0.0.1:0"]);
    command.stdout(std::process::Stdio::piped());
    let mut child = command.ends_with_parent().spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _listening = lines.next().unwrap().unwrap();
    let metrics = lines.next().unwrap().unwrap();
    let address =
        metrics.strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
    let page = http(&address, "/metrics");
    crate::fixture::signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    for needed in [
        "# TYPE roost_requests counter",
        "# HELP roost_worker_active 1 while the worker serves",
        "roost_worker_active{worker=\"0\"} 1",
        "# TYPE roost_transfer_time_seconds histogram",
        "roost_transfer_time_seconds_bucket{le=\"+Inf\"} 0",
        "# UNIT roost_energy_joules joules",
        "roost_energy_joules_total{source=\"",
        "# EOF",
    ] {
        assert!(page.contains(needed), "{needed}\n{page}");
    }
}

#[test]
fn learned_limits_survive_a_restart_and_can_be_reset() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("limits.json");
    let path = state.to_str().unwrap();
    let flags = ["--workers", "1", "--state", path, "--memory-limit", "64m"];
    let server = Server::start(&flags);
    let mut client = server.connect();
    let limit_of =
        |client: &mut crate::fixture::Client| client.stat("roost", "worker-0:limit_per_s").unwrap();
    let mut learned = "unknown".to_owned();
    for _ in 0..3000 {
        assert_eq!(client.ask("mn"), "MN");
        learned = limit_of(&mut client);
        if learned != "unknown" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_ne!(learned, "unknown");
    drop(client);
    assert_eq!(server.terminate().0, Some(0));
    assert!(std::fs::read_to_string(&state).unwrap().contains("\"limit\""));

    let server = Server::start(&flags);
    let mut client = server.connect();
    assert_eq!(client.ask("mn"), "MN");
    assert_ne!(limit_of(&mut client), "unknown", "remembered from the first report on");
    assert_eq!(client.stat("roost-reset-limits", "limits").as_deref(), Some("reset"));
}

#[test]
fn a_unix_socket_serves_and_goes_with_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("roost.sock");
    let place = format!("unix:{}", path.display());
    let server = Server::start(&["--memory-limit", "64m", "--listen", "127.0.0.1", "--listen", &place]);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"mn\r\n").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"MN\r\n");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.terminate().0, Some(0));
    assert!(!path.exists());
}
