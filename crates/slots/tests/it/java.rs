//! The agent in a real Java server, read by [`slots::Reader`]: `java/` writes what this crate reads, and rings.

use crate::{memory_folder, root};
use machine::Duration;
use slots::{Activity, MethodState, Reader, Woken};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// The jar and the tests' classes, made if they are not there; the reason if they cannot be.
fn jar() -> Result<(PathBuf, PathBuf), String> {
    for tool in ["java", "mvn", "cc"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return Err(format!("no {tool} here; `scripts/setup test` installs it"));
        }
    }
    let made = root().join("target/java");
    let (jar, classes) = (made.join("roost-agent.jar"), made.join("test-classes"));
    if !jar.exists() || !classes.join("tiny/Server.class").exists() {
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-DskipTests", "package", "-f"]).arg(root().join("java/pom.xml"));
        let done = maven.output().map_err(|error| format!("mvn: {error}"))?;
        let said = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() && said.contains("Could not transfer") {
            return Err(format!("Maven Central cannot be reached: {said}"));
        }
        assert!(done.status.success(), "{said}");
    }
    Ok((jar, classes))
}

struct Server {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn ask(&mut self, line: &str) -> String {
        self.input.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

#[test]
fn a_java_server_with_the_agent_is_read_and_rings() {
    let (jar, classes) = match jar() {
        Ok(made) => made,
        Err(why) => {
            println!("SKIPPED: {why}");
            return;
        }
    };
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let methods = "method=tiny.Server::search,method=tiny.Server::hold,method=tiny.Nothing::here";
    let mut process = Command::new("java")
        .arg(format!("-javaagent:{}={methods},file={},events=1024", jar.display(), path.display()))
        .arg("-Xmx64m")
        .arg("-cp")
        .arg(classes)
        .arg("tiny.Server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = process.stdin.take().unwrap();
    let mut server = Server { input, output: BufReader::new(process.stdout.take().unwrap()) };
    let mut ready = String::new();
    server.output.read_line(&mut ready).unwrap();
    assert_eq!(ready, format!("ready {}\n", process.id()));

    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.identity().pid, process.id());
    assert!(reader.identity().is_alive() && reader.can_be_rung());
    assert!(reader.writer().starts_with("roost-agent "), "{}", reader.writer());
    let states: Vec<_> =
        reader.methods().unwrap().into_iter().map(|method| (method.name, method.state)).collect();
    assert_eq!(states[0], ("tiny.Server::search(I)J".into(), MethodState::Watched));
    assert_eq!(states[2], ("tiny.Nothing::here".into(), MethodState::Waiting));

    assert_eq!(server.ask("throw 100"), "ok");
    let events = reader.events().unwrap();
    assert_eq!((events.events.len(), events.lost), (200, 0));
    assert_eq!(server.ask("calls 2 50000"), "ok");
    let sequences: Vec<_> = reader.look().unwrap().iter().map(|slot| slot.sequence).collect();
    assert_eq!(sequences, [200, 100_000, 100_000]);
    for slot in reader.look().unwrap() {
        assert_eq!(slot.activity, Activity::Outside { last: None });
        let tid = slot.tid.expect("the kernel's number of the thread");
        assert!(PathBuf::from(format!("/proc/{}/task/{tid}", process.id())).exists());
    }

    // The enter rings a reader that sleeps in another process.
    assert_eq!(reader.sleep(Some(Duration::from_millis(20))).unwrap(), Woken::TimedOut);
    let asked = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(server.ask("hold"), "inside");
        server
    });
    assert_eq!(reader.sleep(Some(Duration::from_secs(20))).unwrap(), Woken::Entered);
    let mut server = asked.join().unwrap();
    let inside = reader.look().unwrap()[0];
    assert!(matches!(inside.activity, Activity::Inside { method: 1, depth: 1, .. }), "{inside:?}");
    assert_eq!(server.ask("go"), "ok");
    // Two threads at full speed lap each other in so short a ring; nothing else may have gone wrong.
    let failures = slots::Failures { events_lost: 0, ..reader.failures().unwrap() };
    assert_eq!(failures, slots::Failures::default());

    // It dies in the middle of a call: the slot says inside for ever, the identity says dead.
    assert_eq!(server.ask("hold"), "inside");
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(matches!(reader.look().unwrap()[0].activity, Activity::Inside { .. }));
    assert!(!reader.identity().is_alive());
}
