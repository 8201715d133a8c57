//! One daemon: what it refuses beside itself, and commands that have it govern something while they
//! run, however they die.

use crate::fixture::{ConfigFile, IdleLimits, ROOST, Server, signal, skipped};
use crate::governing::{Memcached, cannot};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A process of Roost, and what it says from a thread of its own, so that no pipe fills.
struct Running {
    child: Child,
    said: std::sync::mpsc::Receiver<String>,
}

impl Running {
    fn start(socket: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(ROOST);
        command.args(words).arg("--socket").arg(socket);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .expect("roost starts");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let (sender, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, said }
    }

    /// Waits for a line with these words.
    fn until(&self, words: &str) {
        let mut before = String::new();
        loop {
            match self.said.recv_timeout(Duration::from_secs(120)) {
                Ok(line) if line.contains(words) => return,
                Ok(line) => before += &(line + "\n"),
                Err(error) => panic!("{error} before `{words}`: {before}"),
            }
        }
    }

    /// Its exit code, and what it said last.
    fn ended(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("it ends").code();
        (code, self.said.iter().collect::<Vec<_>>().join("\n"))
    }

    fn end_by(self, name: &str) -> (Option<i32>, String) {
        signal(self.child.id(), name);
        self.ended()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A daemon that governs nothing yet.
struct Daemon {
    folder: tempfile::TempDir,
    running: Running,
    _limits: IdleLimits,
}

impl Daemon {
    fn start(config: &str) -> Self {
        Self::with(IdleLimits::shared(), config)
    }

    fn with(limits: IdleLimits, config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        let running = Self::again(folder.path(), config);
        Self { folder, running, _limits: limits }
    }

    fn again(folder: &Path, config: &str) -> Running {
        let file = folder.join("roost.toml");
        fs::write(&file, format!("epoch = \"50ms\"\n{config}")).expect("written");
        let running =
            Running::start(&folder.join("roost.sock"), &["daemon", "--config", file.to_str().unwrap()]);
        until("it listens", || status(&folder.join("roost.sock")).is_some());
        running
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("roost.sock")
    }
}

fn status(socket: &Path) -> Option<Value> {
    let output = Command::new(ROOST).args(["status", "--json", "--socket"]).arg(socket).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

fn names(status: &Value, of: &str) -> Vec<String> {
    let all = status[of].as_array().into_iter().flatten();
    all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

fn output(socket: &Path, words: &[&str]) -> Output {
    Command::new(ROOST).args(words).arg("--socket").arg(socket).output().expect("roost runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_packed(server: &Memcached) -> bool {
    server.place().0.values().all(|cpus| cpus.parse::<u32>().is_ok())
}

#[test]
fn commands_join_the_daemon_and_leave_it_however_they_die() {
    if cannot("leases of a daemon") {
        return;
    }
    let daemon = Daemon::start("");
    let socket = daemon.socket();
    let place = |name: &str| {
        let place = daemon.folder.path().join(name);
        fs::create_dir(&place).expect("a folder");
        place
    };
    let servers = ["a", "b"].map(|name| Memcached::start(&place(name)));
    let before = servers.each_ref().map(Memcached::place);
    let govern = |at: usize| {
        let port = servers[at].port.to_string();
        Running::start(&socket, &["govern", "--json", "--port", &port, "--policy", "fixed", "--cores", "1"])
    };
    for name in ["KILL", "TERM", "HUP"] {
        let (first, second) = (govern(0), govern(1));
        until("both are packed", || servers.iter().all(is_packed));
        assert_eq!(names(&status(&socket).expect("a status"), "governed").len(), 2);
        let (code, told) = first.end_by(name);
        assert_eq!(code, (name != "KILL").then_some(0), "{told}");
        until("the first is as it was", || servers[0].place() == before[0]);
        assert!(is_packed(&servers[1]), "the second is governed on");
        assert_eq!(names(&status(&socket).expect("a status"), "governed").len(), 1);
        second.end_by(name);
        until("the second, too", || servers[1].place() == before[1]);
    }
    // The daemon dies first: its commands end, and `restore` puts back.
    let (first, second) = (govern(0), govern(1));
    until("both are packed", || servers.iter().all(is_packed));
    signal(daemon.running.child.id(), "KILL");
    for command in [first, second] {
        let (code, told) = command.ended();
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("has ended"), "{told}");
    }
    let restored = Command::new(ROOST).arg("restore").output().expect("roost runs");
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(servers.each_ref().map(Memcached::place), before);
}

#[test]
fn what_a_lease_may_not_is_refused_with_the_holders_name() {
    if cannot("refused leases") {
        return;
    }
    let daemon = Daemon::start("");
    let socket = daemon.socket();
    let config = daemon.folder.path().join("roost.toml");
    let config = config.to_str().unwrap();
    let process = format!("(process {})", daemon.running.child.id());
    let server = Memcached::start(daemon.folder.path());
    let port = server.port.to_string();
    let first = Running::start(&socket, &["govern", "--json", "--port", &port]);
    first.until("while this runs");
    let epoch = ConfigFile::new("epoch = \"1s\"");
    let whole = format!("epoch of {} is the daemon's to decide", &*epoch);
    for (words, code, told) in [
        (&["daemon", "--config", config][..], 4, "roost daemon (process"),
        (&["daemon", "--config", config], 4, &*process),
        (&["govern", "--port", &port], 4, "is governed already, by user 0, process"),
        (&["govern", "--port", "1"], 2, "listens on TCP port 1"),
        (&["govern", "--port", &port, "--config", &epoch], 2, &whole),
        (&["govern", "--port", &port, "--metrics", "127.0.0.1:0"], 2, "--metrics is the daemon's"),
        (&["quiesce", "--critical", "4000000", "--background", "1"], 2, "4000000"),
    ] {
        let refused = output(&socket, words);
        let text = said(&refused);
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(told), "{words:?}: {text}");
    }
    // Another user's process is not for a user that is not listed.
    let mut stranger = Command::new(ROOST);
    stranger.args(["govern", "--port", &port, "--socket"]).arg(&socket).current_dir("/");
    if let Ok(refused) = stranger.uid(65_534).gid(65_534).output() {
        let text = said(&refused);
        assert_eq!(refused.status.code(), Some(4), "{text}");
        assert!(text.contains("may have nothing governed"), "{text}");
    }
    assert_eq!(names(&status(&socket).expect("a status"), "governed"), [format!("port-{port}")]);
    assert_eq!(first.end_by("TERM").0, Some(0));
}

#[test]
fn a_listed_user_has_its_own_processes_governed_and_no_others() {
    if cannot("leases of a listed user") {
        return;
    }
    let daemon = Daemon::start("users = [65534]\n");
    let socket = daemon.socket();
    let server = Memcached::start(daemon.folder.path());
    // A store of that user.
    let mut own = Command::new(ROOST);
    own.args(["serve", "--port", "0", "--idle-actuator", "none", "--memory-limit", "64m"]);
    own.current_dir("/").uid(65_534).gid(65_534);
    let Ok(own) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Server::start_command(&mut own)))
    else {
        return skipped("leases of a listed user", "it cannot run roost");
    };
    let lease = |pid: u32| {
        let mut command = Command::new(ROOST);
        command.args(["govern", "--json", "--policy", "fixed", "--cores", "1", "--for", "100ms", "--pid"]);
        command.arg(pid.to_string()).arg("--socket").arg(&socket).current_dir("/").uid(65_534).gid(65_534);
        command.output()
    };
    let theirs = fs::read_dir("/proc").expect("processes").flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        (line.contains("memcached") && line.contains("-U")).then_some(pid)
    });
    let Ok(refused) = lease(theirs.expect("memcached runs")) else {
        return skipped("leases of a listed user", "it cannot run roost");
    };
    assert_eq!(refused.status.code(), Some(4), "{}", said(&refused));
    assert!(said(&refused).contains("is not user 65534's own"), "{}", said(&refused));
    let granted = lease(own.pid()).expect("it ran before");
    assert_eq!(granted.status.code(), Some(0), "{}", said(&granted));
    assert!(said(&granted).contains("while this runs"), "{}", said(&granted));
    drop(server);
}

#[test]
fn a_listed_user_asks_for_nothing_that_affects_others() {
    let daemon = Daemon::start("users = [65534]\n");
    let socket = daemon.socket();
    let as_listed = |words: &[&str]| {
        let mut command = Command::new(ROOST);
        command.args(words).arg("--socket").arg(&socket).current_dir("/").uid(65_534).gid(65_534);
        command.output()
    };
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let cpuset = ConfigFile::new("[[service]]\nactuator = \"cpuset-v2\"");
    let hotplug = ConfigFile::new("[[service]]\nactuator = \"hotplug\"");
    let telemetry = ConfigFile::new("[[service]]\ntelemetry = \"memcached:127.0.0.1:1\"");
    for words in [
        &["govern", "--cgroup", "/x", "--policy", "fixed"][..],
        &["govern", "--unit", "init.scope", "--policy", "fixed"],
        &["govern", "--port", &port, "--policy", "fixed", "--idle", "70us"],
        &["govern", "--port", &port, "--policy", "fixed", "--frequency", "1700MHz"],
        &["govern", "--port", &port, "--policy", "fixed", "--config", &cpuset],
        &["govern", "--port", &port, "--policy", "fixed", "--config", &hotplug],
        &["govern", "--port", &port, "--policy", "fixed", "--config", &telemetry],
        &["quiesce", "--critical", "/a", "--background", "/b"],
    ] {
        let Ok(refused) = as_listed(words) else {
            return skipped("a listed user", "it cannot run roost");
        };
        let text = said(&refused);
        assert_eq!(refused.status.code(), Some(4), "{words:?}: {text}");
        assert!(text.contains("affects other users"), "{words:?}: {text}");
    }
    let not_own = as_listed(&["govern", "--port", &port, "--policy", "fixed"]).expect("it ran before");
    assert_eq!(not_own.status.code(), Some(4), "{}", said(&not_own));
    assert!(said(&not_own).contains("is not user 65534's own"), "{}", said(&not_own));
    assert!(names(&status(&socket).expect("a status"), "governed").is_empty());
}

#[test]
fn a_signal_ends_a_command_whose_lease_is_not_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("roost.sock");
    // A daemon that takes its time.
    let daemon = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let command = Running::start(&socket, &["govern", "--json", "--port", "1"]);
    // To see which daemon runs it connects once more.
    let asked = loop {
        let (stream, _) = daemon.accept().expect("it asks");
        let mut line = String::new();
        let read = BufReader::new(stream.try_clone().expect("a handle")).read_line(&mut line);
        if read.is_ok_and(|read| read > 0) {
            break stream;
        }
    };
    let (code, told) = command.end_by("TERM");
    assert_eq!(code, Some(0), "{told}");
    drop(asked);
}

#[test]
fn a_real_time_thread_that_does_not_pause_ends_no_daemon() {
    let daemon = Daemon::start("");
    signal(daemon.running.child.id(), "XCPU");
    daemon.running.until("computed for 100 ms without a pause");
    assert!(status(&daemon.socket()).is_some(), "it goes on");
    assert_eq!(daemon.running_ended("TERM").0, Some(0));
}

#[test]
fn every_user_finds_roots_daemon() {
    if !crate::holding::is_apart("leasing::every_user_finds_roots_daemon") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("roost.toml");
    fs::write(&file, "").expect("written");
    let mut command = Command::new(ROOST);
    command.args(["daemon", "--config", file.to_str().expect("text")]);
    let daemon = Running::spawn(command);
    until("it listens", || Path::new("/run/roost/roost.sock").exists());
    let mut asking = Command::new(ROOST);
    asking.args(["status", "--json"]).current_dir("/").uid(65_534).gid(65_534);
    asking.env("XDG_RUNTIME_DIR", "/nonexistent");
    match asking.output() {
        Ok(output) => assert_eq!(output.status.code(), Some(0), "{}", said(&output)),
        Err(error) => skipped("another user", &error.to_string()),
    }
    assert_eq!(daemon.end_by("TERM").0, Some(0));
}

#[test]
fn a_planner_is_a_part_of_the_daemon_and_its_windows_end_with_its_command() {
    // One process has the arbiter: beside another the planner is refused.
    let daemon = Daemon::with(IdleLimits::alone(), "");
    let socket = daemon.socket();
    let mut command = Command::new(ROOST);
    let file = ConfigFile::new("[wake]\nexit_latency = \"200us\"\nmax_stay = \"60s\"");
    command.args(["wake", "--json", "--config", &file, "--socket"]).arg(&socket);
    let early = slots::wake::WakeClient::connect(&socket, "early").expect_err("no planner runs");
    assert!(early.to_string().contains("start one with `roost wake`"), "{early}");
    let mut planner = Running::spawn(command);
    let connected = || slots::wake::WakeClient::connect(&socket, "leased");
    until("the planner has callers, or has ended", || {
        connected().is_ok() || planner.child.try_wait().is_ok_and(|status| status.is_some())
    });
    let Ok(client) = connected() else {
        return skipped("a planner in a daemon", &planner.ended().1);
    };
    let before = crate::waking::limit(crate::waking::cpu());
    let ready = client.now() + machine::Duration::from_millis(20);
    client.wake(&[crate::waking::cpu()], ready, machine::Duration::from_secs(60)).id().expect("sent");
    until("a window is open", || crate::waking::limit(crate::waking::cpu()) == "n/a");
    let told = status(&socket).expect("a status");
    assert_eq!(names(&told, "controllers"), ["wake"], "{told}");
    assert_eq!(told["controllers"][0]["state"], "running", "{told}");
    planner.end_by("KILL");
    until("the window is closed", || crate::waking::limit(crate::waking::cpu()) == before);
    assert!(names(&status(&socket).expect("a status"), "controllers").is_empty());
    connected().expect_err("its callers are refused");
}

#[test]
fn a_controller_that_cannot_take_hold_waits_alone() {
    if cannot("a controller that waits") {
        return;
    }
    let server_folder = tempfile::tempdir().expect("a folder");
    let server = Memcached::start(server_folder.path());
    let config = format!(
        "[[service]]\nport = {}\npolicy = \"fixed\"\ncores = 1\n[[quiesce]]\nname = \"none\"\n\
         critical = [\"no-such-unit\"]\nbackground = [\"/no/such/cgroup\"]\n",
        server.port
    );
    let daemon = Daemon::start(&config);
    until("the service is governed", || is_packed(&server));
    until("the controller waits", || {
        let told = status(&daemon.socket()).unwrap_or_default();
        told["controllers"][0]["state"] == "waiting"
            && told["controllers"][0]["why"].as_str().is_some_and(|why| why.contains("no-such-unit"))
    });
    let paused = output(&daemon.socket(), &["pause", "quiesce:none"]);
    assert!(paused.status.success(), "{}", said(&paused));
    let told = status(&daemon.socket()).expect("a status");
    assert_eq!(told["controllers"][0]["state"], "paused", "{told}");
    let resumed = output(&daemon.socket(), &["resume", "quiesce:none"]);
    assert!(resumed.status.success(), "{}", said(&resumed));
    let (code, told) = daemon.running_ended("TERM");
    assert_eq!(code, Some(0), "{told}");
}

impl Daemon {
    fn running_ended(self, name: &str) -> (Option<i32>, String) {
        self.running.end_by(name)
    }
}
