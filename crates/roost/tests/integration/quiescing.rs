//! `roost quiesce` on this machine's own kernel, with the programs of `roost bench quiesce`: a client that fetches, and an updater that stands
//! still meanwhile, here by signals.

use crate::fixture::{ROOST, signal, skipped};
use host::Offspring as _;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// A server, a client that waits for it, and an updater.
pub struct Example {
    server: Child,
    client: Child,
    updater: Child,
    _client_says: BufReader<ChildStdout>,
}

fn part(words: &[&str]) -> (Child, String, BufReader<ChildStdout>) {
    let mut child = Command::new(ROOST)
        .args(["bench", "quiesce-part"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    (child, line.trim().to_owned(), says)
}

impl Example {
    pub fn start() -> Self {
        let (updater, ready, _) = part(&["updater", "--load", "0.3", "--seed", "1"]);
        assert_eq!(ready, "ready");
        // Far more than twenty times what signals take on a machine that is busy.
        let (server, port, _) = part(&["server", "--wait", "400ms"]);
        let (client, _, _client_says) = part(&["client", "--port", &port, "--compute", "1ms"]);
        Self { server, client, updater, _client_says }
    }

    fn quiesce(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(ROOST);
        command.args(["quiesce", "--json", "--critical", &self.client.id().to_string()]);
        command
            .args(["--background", &self.updater.id().to_string(), "--freezer", "signal", "--always"])
            .args(flags);
        command.stdin(Stdio::null());
        command
    }

    pub fn is_frozen(&self) -> bool {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.updater.id())).unwrap();
        text.rsplit_once(") ").unwrap().1.starts_with('T')
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server, &mut self.updater] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A `roost quiesce` that has frozen; `None` where it cannot see the scheduler's events.
#[expect(clippy::zombie_processes, reason = "whoever gets it waits for it")]
pub fn frozen(test: &str, example: &Example, flags: &[&str]) -> Option<(Child, BufReader<ChildStdout>)> {
    let mut child = example
        .quiesce(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .ends_with_parent()
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap() == 0 {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(3), "{said}");
            skipped(test, &said);
            return None;
        }
        let told: Value = serde_json::from_str(&line).unwrap();
        if told["background"][0]["freezes"].as_u64().unwrap() > 0 {
            return Some((child, lines));
        }
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < patience, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn it_freezes_and_leaves_nothing_and_a_second_one_is_refused() {
    const TEST: &str = "it_freezes_and_leaves_nothing_and_a_second_one_is_refused";
    let example = Example::start();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let flags = ["--out", out.to_str().unwrap(), "--metrics", "127.0.0.1:0"];
    let Some((mut first, mut lines)) = frozen(TEST, &example, &flags) else { return };
    let second = example.quiesce(&["--for", "1s"]).output().unwrap();
    assert_eq!(second.status.code(), Some(4), "{}", said(&second));
    assert!(said(&second).contains("roost quiesce (process"), "{}", said(&second));
    let mut stderr = BufReader::new(first.stderr.take().unwrap());
    let mut address = String::new();
    stderr.read_line(&mut address).unwrap();
    let address =
        address.trim().strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut page = TcpStream::connect(address).unwrap();
    write!(page, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    page.read_to_string(&mut metrics).unwrap();
    assert!(metrics.contains("roost_quiesce_all_idle_seconds_total{domain=\"all\"}"), "{metrics}");
    signal(first.id(), "TERM");
    let mut told = String::new();
    lines.read_to_string(&mut told).unwrap();
    assert!(first.wait().unwrap().success());
    until("the end lets it go on", || !example.is_frozen());
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert!(
        last["cost_is_measured"].as_bool().unwrap() && last["min_wait_us"].as_f64().unwrap() > 0.0,
        "{last}"
    );
    assert_eq!(last["lost"], 0);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("How long all were idle at once"), "a page");
    let numbers: Value =
        serde_json::from_str(&fs::read_to_string(out.join("quiesce.json")).unwrap()).unwrap();
    assert!(numbers["last"]["background"][0]["frozen_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_a_killed_one_froze_is_let_go_by_restore() {
    const TEST: &str = "what_a_killed_one_froze_is_let_go_by_restore";
    let example = Example::start();
    let Some((mut child, _lines)) = frozen(TEST, &example, &["--max-pause", "10s"]) else { return };
    // The client goes on every 400 ms; the moment is caught by stopping it.
    until("it stands still", || {
        let is_frozen = example.is_frozen();
        if is_frozen {
            child.kill().unwrap();
        }
        is_frozen
    });
    child.wait().unwrap();
    let restored = Command::new(ROOST).arg("restore").output().unwrap();
    assert!(restored.status.success(), "{}", said(&restored));
    until("it goes on", || !example.is_frozen());
}

#[test]
fn one_line_says_what_is_wrong_and_nothing_changes() {
    let example = Example::start();
    let client = example.client.id().to_string();
    let own = std::process::id().to_string();
    for (flags, code, word) in [
        (vec!["--background", "no-such-unit"], 2, "no-such-unit"),
        (vec!["--critical", "/no/such/cgroup"], 2, "/no/such/cgroup"),
        (vec!["--background", &client], 2, "critical"),
        (vec!["--background", "1"], 4, "process 1"),
        (vec!["--background", &own], 4, "this process is in it"),
        (vec!["--domain", "cluster:99"], 2, "cluster 0"),
        (vec!["--max-pause", "0s"], 2, "--max-pause"),
        (vec!["--max-share", "1.5"], 2, "--max-share"),
        (vec!["--trigger", "accept"], 2, "listens on a TCP port"),
    ] {
        let output = example.quiesce(&["--for", "1s"]).args(&flags).output().unwrap();
        let said = said(&output);
        if output.status.code() == Some(3) {
            skipped("one_line_says_what_is_wrong_and_nothing_changes", &said);
            return;
        }
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
        assert!(said.starts_with("roost: ") && said.contains(word), "{flags:?}: {said}");
        assert!(output.stdout.is_empty() && !example.is_frozen(), "{flags:?}");
    }
    let dry = example.quiesce(&["--for", "1ms", "--dry-run"]).output().unwrap();
    assert!(matches!(dry.status.code(), Some(0 | 3)), "{}", said(&dry));
    assert!(!example.is_frozen());
}
