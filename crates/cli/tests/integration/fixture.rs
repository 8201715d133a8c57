//! A running `roost serve`, and plain sockets to it.

use linux::EndsWithParent as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a client waits for an answer before the test fails: long enough for a machine under
/// load.
const PATIENCE: Duration = Duration::from_secs(30);

pub const ROOST: &str = env!("CARGO_BIN_EXE_roost");

/// `roost-bench`, beside `roost`: it has the programs of an example.
pub fn roost_bench() -> PathBuf {
    let file = Path::new(ROOST).with_file_name("roost-bench");
    assert!(file.is_file(), "{} is not there: cargo build -p roost-bench", file.display());
    file
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// A say in this machine's own idle limits, held by every test that changes or reads them.
///
/// Processes of Roost that see the same `/run/roost` share the limits among themselves. A test
/// whose processes see another one, that kills who holds the limits for others, or that expects
/// what the files read, needs them alone.
pub struct IdleLimits {
    is_alone: bool,
}

/// How many share them, and whether one test has them alone.
static LIMITS: (Mutex<(usize, bool)>, Condvar) = (Mutex::new((0, false)), Condvar::new());

impl IdleLimits {
    /// Waits until no other test has a say in them.
    pub fn alone() -> Self {
        Self::wait_while(|&mut (sharing, alone)| sharing > 0 || alone).1 = true;
        Self { is_alone: true }
    }

    /// Waits until no other test has them alone. Who shares them may share them once more: who
    /// waits for all of them to end is passed by.
    pub fn shared() -> Self {
        Self::wait_while(|&mut (_, alone)| alone).0 += 1;
        Self { is_alone: false }
    }

    fn wait_while(busy: impl FnMut(&mut (usize, bool)) -> bool) -> MutexGuard<'static, (usize, bool)> {
        // Nothing panics while it has the mutex.
        LIMITS.1.wait_while(LIMITS.0.lock().expect("counts"), busy).expect("counts")
    }
}

impl Drop for IdleLimits {
    fn drop(&mut self) {
        let mut counts = LIMITS.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_alone {
            counts.1 = false;
        } else {
            counts.0 -= 1;
        }
        LIMITS.1.notify_all();
    }
}

/// A server that is told to end, and waited for, when the fixture goes.
pub struct Server {
    child: Child,
    /// Kept open so that the server never writes into a closed pipe.
    stdout: BufReader<ChildStdout>,
    pub port: u16,
}

impl Server {
    /// Starts `roost serve` on a port that the system chooses, without touching this machine's idle
    /// limits.
    pub fn start(flags: &[&str]) -> Self {
        Self::start_command(
            Command::new(ROOST).args(["serve", "--port", "0", "--idle-actuator", "none"]).args(flags),
        )
    }

    pub fn start_command(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the server's first line");
        let port = line
            .trim()
            .strip_prefix("listening on ")
            .and_then(|place| place.rsplit(':').next())
            .and_then(|port| port.parse().ok())
            .unwrap_or_else(|| panic!("{command:?} printed {line:?} instead of where it listens"));
        Self { child, stdout, port }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn rss(&self) -> usize {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).expect("the server runs");
        let pages: usize = statm.split(' ').nth(1).expect("second field").parse().expect("a number");
        pages * 4096
    }

    /// Sends SIGTERM, waits, and returns the exit code and what was printed after the first line.
    pub fn terminate(self) -> (Option<i32>, String) {
        self.end_by("TERM")
    }

    pub fn end_by(mut self, name: &str) -> (Option<i32>, String) {
        signal(self.pid(), name);
        let status = self.child.wait().expect("the server ends");
        let mut rest = String::new();
        let _ = self.stdout.read_to_string(&mut rest);
        (status.code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal to one process of ours.
pub fn signal(pid: u32, name: &str) {
    let sent =
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().expect("kill runs");
    assert!(sent.success(), "process {pid} takes SIG{name}");
}

pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a valid time-out");
        stream.set_write_timeout(Some(PATIENCE)).expect("a valid time-out");
        let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        Self { stream, reader }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// One line without its end; empty at the end of the stream.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    /// A line, unless the connection has ended.
    pub fn try_line(&mut self) -> std::io::Result<Option<String>> {
        let mut line = String::new();
        let length = self.reader.read_line(&mut line)?;
        Ok((length > 0).then(|| line.trim_end().to_owned()))
    }

    /// Sends a line and returns the first line of the answer.
    pub fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n"));
        self.line()
    }

    pub fn set(&mut self, key: &str, value: &str) -> String {
        self.send(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()));
        self.line()
    }

    /// The value, or nothing on a miss.
    pub fn value(&mut self, key: &str) -> Option<String> {
        let head = self.ask(&format!("get {key}"));
        if head == "END" {
            return None;
        }
        let length: usize =
            head.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("VALUE key flags length");
        let mut value = vec![0; length + 2];
        self.reader.read_exact(&mut value).expect("the value");
        assert_eq!(self.line(), "END");
        value.truncate(length);
        Some(String::from_utf8(value).expect("text"))
    }

    /// All bytes until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is a way of closing as well.
        let _ = self.reader.read_to_end(&mut bytes);
        bytes
    }

    pub fn stat(&mut self, group: &str, name: &str) -> Option<String> {
        self.send(format!("stats {group}\r\n").replace(" \r", "\r"));
        let mut found = None;
        loop {
            let line = self.line();
            if line == "END" || line.is_empty() {
                return found;
            }
            if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
                found = Some(value.to_owned());
            }
        }
    }
}

/// A file for `--config`, which stands for its path; it goes with this.
pub struct ConfigFile(tempfile::TempPath);

impl ConfigFile {
    pub fn new(text: &str) -> Self {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        // Commands of other users read it too.
        file.as_file().set_permissions(Permissions::from_mode(0o644)).expect("its mode");
        Self(file.into_temp_path())
    }
}

impl Deref for ConfigFile {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

/// Says that a test could not run here, and why.
pub fn skipped(test: &str, reason: &str) {
    println!("SKIPPED {test}: {reason}");
}

/// A trace of `--perfetto` as the classes read it that Perfetto publishes; `None`, and said, where they
/// are not installed. Each slice ends, and no row goes back in time.
pub fn trace_read_back(path: &Path) -> Option<Value> {
    let python = repository().join(".venv/bin/python");
    let has_classes = Command::new(&python).args(["-c", "import perfetto.protos"]).output();
    if !has_classes.is_ok_and(|output| output.status.success()) {
        skipped("a trace", "Perfetto's classes are not there (scripts/setup test fetches them)");
        return None;
    }
    let output =
        Command::new(python).arg(repository().join("tests/read_trace.py")).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = found["events"].as_array().expect("events");
    let mut rows: BTreeMap<u64, (u64, i64)> = BTreeMap::new();
    for event in events {
        let (last, open) = rows.entry(event["row"].as_u64().expect("a row")).or_default();
        let at = event["at"].as_u64().expect("a time");
        assert!(at >= *last, "times of {} go back: {event}", event["track"]);
        *last = at;
        match event["type"].as_str() {
            Some("TYPE_SLICE_BEGIN") => *open += 1,
            Some("TYPE_SLICE_END") => *open -= 1,
            _ => {}
        }
        assert!((0..=1).contains(open), "slices of {} overlap: {event}", event["track"]);
    }
    assert!(rows.values().all(|(_, open)| *open == 0), "each slice ends");
    if let Some(processor) = found["processor"].as_object() {
        assert!(processor["slices"].as_u64() > Some(0), "{found}");
    }
    Some(found)
}

/// Events of a trace of one type, such as `TYPE_INSTANT`.
pub fn trace_events<'a>(found: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    found["events"].as_array().expect("events").iter().filter(move |event| event["type"] == kind)
}

/// Whether a program can be started.
pub fn is_installed(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}
