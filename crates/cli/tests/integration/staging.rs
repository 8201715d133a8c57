//! `roost stage` as a person starts it: the proxy, its folder, its metrics, its replay.

use crate::fixture::{ConfigFile, ROOST, Server, signal};
use linux::EndsWithParent as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

/// A server that answers every request with `hello`.
pub fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while matches!(reader.read_line(&mut line), Ok(1..)) {
                    if line == "\r\n" {
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
                    }
                    line.clear();
                }
            });
        }
    });
    format!("http://{address}")
}

pub struct Stage {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Where it says where it listens, if standard output is for a program that reads JSON.
    stderr: Option<BufReader<ChildStderr>>,
    address: String,
}

impl Stage {
    pub fn start(arguments: &[&str]) -> Self {
        let is_json = arguments.contains(&"--json");
        let mut child = Command::new(ROOST)
            .args(["stage", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(if is_json { Stdio::piped() } else { Stdio::inherit() })
            .ends_with_parent()
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().map(BufReader::new);
        let mut stage = Self { child, stdout, stderr, address: String::new() };
        stage.address = stage.line().strip_prefix("listening on ").expect("where it listens").to_owned();
        stage
    }

    /// Its process and what it says, for a test that looks at both.
    fn apart(mut self) -> (Child, BufReader<ChildStdout>, Option<BufReader<ChildStderr>>) {
        let child = std::mem::replace(&mut self.child, Command::new("true").spawn().unwrap());
        let nothing = || {
            BufReader::new(
                Command::new("true").stdout(Stdio::piped()).spawn().unwrap().stdout.take().unwrap(),
            )
        };
        (child, std::mem::replace(&mut self.stdout, nothing()), self.stderr.take())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        match &mut self.stderr {
            Some(stderr) => stderr.read_line(&mut line).unwrap(),
            None => self.stdout.read_line(&mut line).unwrap(),
        };
        line.trim_end().to_owned()
    }

    /// SIGTERM; the exit code and what it printed.
    fn terminate(self) -> (Option<i32>, String) {
        self.end_by("TERM")
    }

    pub fn end_by(mut self, name: &str) -> (Option<i32>, String) {
        signal(self.child.id(), name);
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_run_leaves_a_folder_that_tells_and_replays() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let out = out.to_str().unwrap();
    let record = ConfigFile::new(&format!("record = {out:?}"));
    let arguments = [
        "--to",
        &server(),
        "--period",
        "20ms",
        "--goal",
        "30s@p99",
        "--out",
        out,
        "--config",
        &record,
        "--metrics",
        "127.0.0.1:0",
        "--json",
    ];
    let mut stage = Stage::start(&arguments);
    let metrics = stage.line();
    let metrics =
        metrics.strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let address = stage.address.clone();
            std::thread::spawn(move || ask(&address, "/x"))
        })
        .collect();
    for client in clients {
        let answer = client.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    }
    let page = ask(&metrics, "/metrics");
    assert!(page.contains("roost_stage_ended_total{class=\"others\",end=\"answered\"} 20"), "{page}");
    assert!(
        page.contains("roost_stage_bursts_total") && page.contains("roost_stage_latency_seconds"),
        "{page}"
    );
    let told = Command::new(ROOST).args(["status", &metrics]).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("others: 20 came, 20 answered") && told.contains(": up, 0 held"), "{told}");
    let (code, text) = stage.terminate();
    assert_eq!(code, Some(0), "{text}");
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(summary["classes"][0]["counts"]["answered"], 20);
    let read = |name: &str| std::fs::read_to_string(std::path::Path::new(out).join(name)).unwrap();
    let bursts = read("commands.jsonl");
    let released =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["released"].as_u64().unwrap();
    assert_eq!(bursts.lines().map(released).sum::<u64>(), 20);
    assert!(!read("readings.jsonl").is_empty() && read("report.html").contains("20 requests came"));
    assert!(
        read("run.toml").contains("period = \"20ms\"") && read("summary.json").contains("\"answered\": 20")
    );
    let page = read("report.html");
    std::fs::remove_file(std::path::Path::new(out).join("report.html")).unwrap();
    let made = Command::new(ROOST).args(["report", out]).output().unwrap();
    let told = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success() && told.contains("report.html") && told.contains("held, mean"), "{told}");
    assert!(read("report.html") == page, "the page from the files is the page of the run");
    let again = Command::new(ROOST).args(["replay", out]).output().unwrap();
    let again = String::from_utf8(again.stdout).unwrap();
    assert!(again.contains("the same releases again"), "{again}");
}

#[test]
fn the_configuration_of_a_run_can_be_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |name: &str, arguments: &[&str]| {
        let out = folder.path().join(name);
        let mut command = Command::new(ROOST);
        let output = command.arg("stage").args(arguments).args(["--for", "1ms", "--out"]).arg(&out).output();
        assert!(output.unwrap().status.success());
        let run: toml::Table = std::fs::read_to_string(out.join("run.toml")).unwrap().parse().unwrap();
        let (config, file) = (run["config"].to_string(), out.join("stage.toml"));
        std::fs::write(&file, toml::to_string(&run["config"]).unwrap()).unwrap();
        (config, file.to_str().unwrap().to_owned())
    };
    let class = ["--class", "live;path=/live;never", "--period", "100ms"];
    let to = ["--to", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"];
    let (first, file) = kept("first", &[to, class].concat());
    assert!(first.contains("/live"), "{first}");
    assert_eq!(kept("second", &["--config", &file]).0, first);
}

#[test]
fn it_ends_by_itself_when_told_how_long() {
    let mut stage = Stage::start(&["--to", "http://127.0.0.1:9", "--for", "50ms"]);
    assert_eq!(stage.child.wait().unwrap().code(), Some(0));
    let mut text = String::new();
    stage.stdout.read_to_string(&mut text).unwrap();
    assert!(text.contains("goal 500ms@p99.9"), "{text}");
}

#[test]
fn a_store_with_a_stage_answers_everybody_and_leaves_nobody_behind() {
    let file = ConfigFile::new("[stage]\nperiod = \"20ms\"");
    let server = Server::start(&["--stage", "2s@p99", "--config", &file, "--memory-limit", "64m"]);
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let mut client = server.connect();
            std::thread::spawn(move || {
                for round in 0..20 {
                    let (key, value) = (format!("k{number}"), format!("v{round}"));
                    assert_eq!(client.set(&key, &value), "STORED");
                    assert_eq!(client.value(&key).as_deref(), Some(value.as_str()));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_store_that_is_to_stop_holds_nobody_back() {
    // Half an hour would be waited for the goal.
    let server = Server::start(&["--stage", "1h@p99", "--workers", "1", "--memory-limit", "64m"]);
    let mut client = server.connect();
    client.send("set k 0 0 1\r\nv\r\n");
    let waits = std::thread::spawn(move || client.line());
    // Whether it is held already or not yet read: nothing keeps the store, and what is held is
    // answered.
    let ended = server.terminate();
    assert_eq!(ended.0, Some(0));
    let line = waits.join().unwrap();
    assert!(line == "STORED" || line.is_empty(), "{line}");
}

/// A server that answers after so many milliseconds misses a goal that is shorter, whatever is
/// held.
#[test]
fn a_missed_goal_is_exit_code_5_and_says_how_many_were_late() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while matches!(reader.read_line(&mut line), Ok(1..)) {
                    if line == "\r\n" {
                        std::thread::sleep(std::time::Duration::from_millis(60));
                        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                            return;
                        }
                    }
                    line.clear();
                }
            });
        }
    });
    let stage = Stage::start(&["--to", &slow, "--goal", "20ms@p99", "--json"]);
    for _ in 0..5 {
        assert!(ask(&stage.address, "/").ends_with("ok"));
    }
    let (mut child, mut stdout, stderr) = stage.apart();
    signal(child.id(), "TERM");
    let mut json = String::new();
    stdout.read_to_string(&mut json).unwrap();
    let mut said = String::new();
    stderr.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5), "{said}");
    assert!(said.contains("the goal of 20.0ms@p99 was missed: 5 of 5 answers were later"), "{said}");
    let status: serde_json::Value = serde_json::from_str(&json).expect("nothing but JSON on standard output");
    assert_eq!(status["classes"][0]["counts"]["late"], 5);
}
