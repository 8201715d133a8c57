//! `roost govern` on a real memcached that knows nothing of it: parked, held, and found as it was.

use crate::fixture::{Client, ConfigFile, IdleLimits, ROOST, is_installed, signal, skipped, trace_read_back};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An unmodified server with four threads.
pub struct Memcached {
    child: Child,
    pub port: u16,
}

impl Memcached {
    pub fn start(folder: &Path) -> Self {
        let chosen = folder.join("port");
        let mut command = Command::new("memcached");
        // Port -1 lets the system choose; memcached then writes its choice into the file named by
        // the environment.
        command.args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-t", "4", "-u", "root"]);
        let mut child = command
            .env("MEMCACHED_PORT_FILENAME", &chosen)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .ends_with_parent()
            .spawn()
            .expect("memcached starts");
        let port = loop {
            let text = fs::read_to_string(&chosen).unwrap_or_default();
            let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok());
            if let Some(port) = port {
                break port;
            }
            assert!(child.try_wait().expect("its state").is_none(), "memcached ended");
            std::thread::sleep(Duration::from_millis(5));
        };
        Self { child, port }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// By thread the CPUs that it may use, and the cpuset in which all of it lives.
    pub fn place(&self) -> (BTreeMap<String, String>, String) {
        let folder = format!("/proc/{}", self.child.id());
        let threads = fs::read_dir(format!("{folder}/task")).expect("it runs").map(|entry| {
            let path = entry.expect("an entry").path();
            let status = fs::read_to_string(path.join("status")).expect("a thread's status");
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("CPUs");
            (path.file_name().expect("its number").to_string_lossy().into_owned(), cpus.trim().to_owned())
        });
        let cpuset = fs::read_to_string(format!("{folder}/cpuset")).unwrap_or_default();
        (threads.collect(), cpuset)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Governor {
    pub child: Child,
    epochs: BufReader<ChildStdout>,
    socket: PathBuf,
    _limits: IdleLimits,
}

impl Governor {
    pub fn start(folder: &Path, flags: &[&str]) -> Self {
        Self::start_with(folder, flags, |_| {})
    }

    fn start_with(folder: &Path, flags: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        Self::start_in(IdleLimits::shared(), folder, flags, prepare)
    }

    fn start_in(
        limits: IdleLimits,
        folder: &Path,
        flags: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let socket = folder.join("govern.sock");
        let mut command = Command::new(ROOST);
        let daemon = if flags.first() == Some(&"--config") { "daemon" } else { "govern" };
        command.args([daemon, "--json", "--socket"]).arg(&socket).args(flags);
        prepare(&mut command);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .expect("roost starts");
        let epochs = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, epochs, socket, _limits: limits }
    }

    /// Waits for an epoch of which this holds; three hundred at the most.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..300 {
            let mut line = String::new();
            if self.epochs.read_line(&mut line).expect("a line") == 0 {
                let mut said = String::new();
                if let Some(mut stderr) = self.child.stderr.take() {
                    let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
                }
                panic!("it ended before {what}: {said}");
            }
            last = serde_json::from_str(&line).expect("JSON");
            assert_eq!(last["format"], 1, "{line}");
            if holds(&last) {
                return last;
            }
        }
        panic!("no {what} in 300 epochs; the last: {last}");
    }

    pub fn ask(&self, words: &[&str]) -> Output {
        let (first, rest) = words.split_first().expect("a word");
        let mut command = Command::new(ROOST);
        command.arg(first).args(rest).arg("--socket").arg(&self.socket);
        command.output().expect("roost runs")
    }

    /// SIGTERM; its last words.
    pub fn end(self) -> (Option<i32>, String) {
        self.end_by("TERM")
    }

    pub fn end_by(self, name: &str) -> (Option<i32>, String) {
        signal(self.child.id(), name);
        self.wait()
    }

    /// Its code and its last words.
    pub fn wait(mut self) -> (Option<i32>, String) {
        // Its pipe must not fill.
        let mut rest = String::new();
        let _ = std::io::Read::read_to_string(&mut self.epochs, &mut rest);
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        (self.child.wait().expect("it ends").code(), said)
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }
}

/// Three connections that ask as fast as they are answered, until this is dropped.
pub struct Load {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn on(port: u16) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut client = Client::connect(port);
                while !over.load(Ordering::Relaxed) {
                    client.set("key", "value");
                }
            })
        };
        Self { clients: (0..3).map(client).collect(), over }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            // A client that failed has said so.
            let _ = client.join();
        }
    }
}

/// True where a service cannot be governed: no second CPU, no permission, no BPF. Said then.
pub fn cannot(test: &str) -> bool {
    let reason = if linux::allowed_cpus().expect("CPUs").0.len() < 2 {
        "one CPU leaves nothing to park"
    } else if !is_installed("memcached") {
        "memcached is not installed"
    } else {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = Memcached::start(folder.path());
        let port = server.port.to_string();
        let socket = folder.path().join("s");
        let _limits = IdleLimits::shared();
        let mut trial = Command::new(ROOST);
        trial.args(["govern", "--json", "--port", &port, "--for", "1ms", "--socket"]).arg(&socket);
        let output = trial.output().expect("roost runs");
        if output.status.success() {
            return false;
        }
        skipped(test, &String::from_utf8_lossy(&output.stderr));
        return true;
    };
    skipped(test, reason);
    true
}

pub fn cpus(epoch: &Value) -> usize {
    epoch["cpus"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_memcached_is_parked_asked_about_changed_and_found_as_it_was() {
    if cannot("governing a memcached") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let before = server.place();
    let all = linux::allowed_cpus().expect("CPUs").0.len();
    let record = folder.path().join("record");
    let port = server.port.to_string();
    let file = ConfigFile::new(&format!("epoch = \"100ms\"\nrecord = {record:?}"));
    let flags = ["--port", &port, "--goal", "10s@p99", "--config", &file];
    let mut governor = Governor::start(folder.path(), &flags);
    // No request comes, so one core is enough, whatever else runs on this machine.
    let epoch = governor.until("one core", |epoch| cpus(epoch) == 1);
    let held = epoch["cpus"][0].to_string();
    assert!(server.place().0.values().all(|cpus| *cpus == held), "{:?}", server.place());

    let name = format!("port-{port}");
    let status = String::from_utf8(governor.ask(&["status"]).stdout).expect("text");
    assert!(status.contains(&name) && status.contains(&format!("1/{all}")), "{status}");
    let paused = governor.ask(&["pause", &name]);
    assert_eq!(paused.status.code(), Some(0));
    let said = String::from_utf8_lossy(&paused.stdout).into_owned();
    assert!(said.contains("-> paused"), "{said}");
    governor.until("the pause", |epoch| epoch["mode"] == "paused" && cpus(epoch) == all);
    assert_eq!(server.place().0, before.0, "paused means as it was before us");
    assert_eq!(governor.ask(&["resume", &name]).status.code(), Some(0));
    governor.until("one core again", |epoch| cpus(epoch) == 1);
    assert_eq!(governor.ask(&["pause", "nobody"]).status.code(), Some(2));

    // From nothing to much is a jump, and this goal is kept by nothing.
    let set = governor.ask(&["set", &name, "goal=1us@p99"]);
    assert_eq!(set.status.code(), Some(0));
    let said = String::from_utf8_lossy(&set.stdout).into_owned();
    assert!(said.contains(": goal ") && said.contains(" -> 1.00us@p99"), "{said}");
    let load = Load::on(server.port);
    governor.until("all cores", |epoch| {
        cpus(epoch) == all && epoch["service"]["rate"].as_f64().is_some_and(|rate| rate > 0.0)
    });
    governor.until("a tail", |epoch| epoch["missed"].as_u64().is_some_and(|missed| missed > 0));
    drop(load);
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no requests") && said.contains("asked for"), "{said}");
    // The kernel rings before the epoch's end shows the jump, unless the burst began just before
    // that.
    assert!(said.contains("alarm: all cores at once") || said.contains("jumped"), "{said}");
    assert_eq!(server.place(), before);
    let replay = Command::new(ROOST).arg("replay").arg(&record).output().expect("roost runs");
    let said = String::from_utf8_lossy(&replay.stdout).into_owned();
    assert!(replay.status.success() && said.contains("the same commands again"), "{said} {replay:?}");
}

#[test]
fn a_burst_between_two_epochs_wakes_all_cores_long_before_the_epoch_ends() {
    if cannot("an alarm") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let record = folder.path().join("record");
    let port = server.port.to_string();
    let file = ConfigFile::new(&format!("epoch = \"5s\"\nrecord = {record:?}"));
    let flags = ["--port", &port, "--goal", "10s@p99", "--config", &file];
    let mut governor = Governor::start(folder.path(), &flags);
    let all = linux::allowed_cpus().expect("CPUs").0.len();
    governor.until("one core", |epoch| cpus(epoch) == 1);
    std::thread::sleep(Duration::from_millis(200));
    let parked = server.place().0;
    let began = Instant::now();
    let load = Load::on(server.port);
    let is_awake = || server.place().0.iter().all(|(thread, cpus)| parked.get(thread) != Some(cpus));
    while !is_awake() {
        // The epoch's end would do it as well; that is no alarm.
        assert!(began.elapsed() < Duration::from_secs(3), "no alarm: {:?}", server.place());
        std::thread::sleep(Duration::from_millis(1));
    }
    eprintln!("all cores {:?} after the first connection was begun", began.elapsed());
    // Its own word on how long it took comes with the epoch's end, and nothing rings a second time
    // before that.
    governor.until("all cores", |epoch| cpus(epoch) == all);
    drop(load);
    let (code, said) = governor.end();
    eprintln!("{said}");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("alarm: all cores at once").count(), 1, "{said}");
    let replay = Command::new(ROOST).arg("replay").arg(&record).output().expect("roost runs");
    let told = String::from_utf8_lossy(&replay.stdout).into_owned();
    assert!(replay.status.success() && told.contains("the same commands again"), "{told} {replay:?}");
    let recorded: String = fs::read_dir(&record)
        .expect("a recording")
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("text"))
        .collect();
    assert_eq!(recorded.matches("\"alarm\"").count(), 2, "the input, and why: {recorded}");
}

#[test]
fn a_memcached_that_hangs_is_lost_and_not_parked() {
    if cannot("a memcached that hangs") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let port = server.port.to_string();
    let all = linux::allowed_cpus().expect("CPUs").0.len();
    let file = ConfigFile::new("epoch = \"100ms\"\n[[service]]\ntelemetry = \"memcached+requests\"");
    let flags = ["--port", &port, "--goal", "10s@p99", "--config", &file];
    let mut governor = Governor::start(folder.path(), &flags);
    let epoch = governor.until("one core", |epoch| cpus(epoch) == 1);
    let seen_by = epoch["seen_by"].as_str().expect("text");
    assert!(seen_by.starts_with(&format!("memcached:127.0.0.1:{port} and ")), "{seen_by}");
    assert_eq!(epoch["service"]["rate"], 0.0, "our own questions are none of its requests");
    signal(server.child.id(), "STOP");
    governor.until("failing open", |epoch| {
        epoch["mode"]["open"]["failure"]["lost"].is_object() && cpus(epoch) == all
    });
    signal(server.child.id(), "CONT");
    governor.until("one core again", |epoch| epoch["mode"] == "searching" && cpus(epoch) == 1);
    let refused = governor.ask(&["pause", &format!("port-{port}")]);
    assert_eq!(refused.status.code(), Some(0), "{refused:?}");
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing was seen of the service"), "{said}");
}

#[test]
fn a_prometheus_page_is_telemetry_enough() {
    if cannot("a Prometheus page") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let (port, all) = (server.port.to_string(), linux::allowed_cpus().expect("CPUs").0.len());
    // A page whose counter stands still at first, and then rises by two thousand with each look,
    // all of them slow.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/metrics", listener.local_addr().expect("its address"));
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = Arc::clone(&is_slow);
    std::thread::spawn(move || {
        let (fast, mut all) = (5_000, 5_000);
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let mut lines = BufReader::new(client.try_clone().expect("a socket"));
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            all += if slow.load(Ordering::Relaxed) { 2_000 } else { 0 };
            let page = format!(
                "requests_total {all}\nseconds_bucket{{le=\"0.001\"}} {fast}\nseconds_bucket{{le=\"1\"}} \
                 {all}\nseconds_bucket{{le=\"+Inf\"}} {all}\n"
            );
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", page.len());
            let _ = client.write_all((head + &page).as_bytes());
        }
    });
    let source =
        format!("telemetry = {{ prometheus = \"{url}\", rate = \"requests_total\", tail = \"seconds\" }}");
    let file = ConfigFile::new(&format!("epoch = \"100ms\"\n[[service]]\n{source}"));
    let flags = ["--port", &port, "--goal", "5ms@p99", "--config", &file];
    let mut governor = Governor::start(folder.path(), &flags);
    let epoch = governor.until("one core", |epoch| cpus(epoch) == 1);
    assert_eq!(epoch["seen_by"], url.as_str());
    assert_eq!((&epoch["service"]["rate"], &epoch["service"]["tail"]), (&0.0.into(), &Value::Null));
    is_slow.store(true, Ordering::Relaxed);
    governor.until("all cores", |epoch| cpus(epoch) == all);
    let epoch = governor.until("a missed goal", |epoch| epoch["missed"].as_u64() > Some(0));
    // Its p99 lies between 1 ms and 1 s: of those requests alone that came between, not of the five
    // thousand before.
    assert!(epoch["service"]["tail"].as_u64().is_some_and(|tail| tail > 900_000_000), "{epoch}");
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_user_who_may_not_is_told_so_with_code_3() {
    if cannot("an unprivileged user") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let mut command = Command::new(ROOST);
    command.args(["govern", "--port", &server.port.to_string(), "--for", "1s"]).current_dir("/");
    // The user `nobody`.
    let output = match command.uid(65534).gid(65534).output() {
        Ok(output) => output,
        Err(error) => return skipped("an unprivileged user", &format!("it cannot run {ROOST}: {error}")),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("run as root"), "{said}");
}

#[test]
fn a_governor_that_was_killed_leaves_what_restore_puts_back() {
    if cannot("killing a governor") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let before = server.place();
    let port = server.port.to_string();
    // No load: silence is parked at once.
    let file = ConfigFile::new("epoch = \"50ms\"");
    // Any other run that begins puts back all that a dead one left.
    let flags = ["--port", &port, "--config", &file];
    let mut governor = Governor::start_in(IdleLimits::alone(), folder.path(), &flags, |_| {});
    governor.until("one core", |epoch| cpus(epoch) == 1);
    governor.child.kill().expect("SIGKILL");
    governor.child.wait().expect("its end");
    assert_ne!(server.place().0, before.0);
    let restored = Command::new(ROOST).arg("restore").output().expect("roost runs");
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(server.place(), before, "{}", String::from_utf8_lossy(&restored.stdout));
}

#[test]
fn a_trace_reads_back_by_the_classes_that_perfetto_publishes() {
    if cannot("a trace") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let (port, path) = (server.port.to_string(), folder.path().join("govern.pftrace"));
    let (file, place) = (ConfigFile::new("epoch = \"50ms\""), path.to_str().expect("UTF-8"));
    let flags = ["--port", &port, "--goal", "10s@p99", "--config", &file, "--perfetto", place];
    let mut governor = Governor::start(folder.path(), &flags);
    governor.until("one core", |epoch| cpus(epoch) == 1);
    governor.until("a later epoch", |epoch| epoch["epochs"].as_u64() > Some(3));
    let (code, said) = governor.end();
    assert!(code == Some(0) && said.contains("open it in ui.perfetto.dev"), "{said}");
    let Some(found) = trace_read_back(&path) else { return };
    assert_eq!(found["counters"]["rate"], "requests/s", "{found}");
    assert!(found["tracks"].as_object().unwrap().values().any(|name| name == "CPU 0 busy"), "{found}");
    let events = found["events"].as_array().expect("events");
    let decision = events.iter().find(|event| event["type"] == "TYPE_INSTANT").expect("a decision");
    assert!(!decision["notes"]["why"].as_str().expect("its reason").is_empty(), "{decision}");
    let comes_from = events.iter().find(|event| event["flows"] == decision["flows"]).expect("the epoch");
    assert_eq!((&comes_from["type"], &comes_from["name"]), (&"TYPE_SLICE_BEGIN".into(), &"epoch".into()));
    if let Some(processor) = found["processor"].as_object() {
        assert!(processor["flows"].as_u64() > Some(0), "{found}");
    }
    // A full disk costs the trace, and nothing else.
    let full = ["--port", &port, "--config", &file, "--perfetto", "/dev/full"];
    let mut governor = Governor::start(folder.path(), &full);
    governor.until("an epoch", |epoch| epoch["epochs"].as_u64() > Some(1));
    let (code, said) = governor.end();
    assert!(code == Some(0) && said.contains("/dev/full is cut off: No space left"), "{code:?}: {said}");
}

#[test]
fn a_dry_run_decides_and_touches_nothing() {
    if cannot("a dry run") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let before = server.place();
    let port = server.port.to_string();
    let file = ConfigFile::new("epoch = \"50ms\"");
    let flags = ["--port", &port, "--config", &file, "--dry-run", "--for", "10m"];
    let mut governor = Governor::start(folder.path(), &flags);
    governor.until("one core", |epoch| cpus(epoch) == 1 && epoch["actuator"].is_null());
    assert_eq!(server.place(), before);
    let status = String::from_utf8(governor.ask(&["status"]).stdout).expect("text");
    assert!(status.contains("a dry run"), "{status}");
    drop(governor);
    assert_eq!(server.place(), before);
}

/// The next message of a daemon to systemd.
fn told(systemd: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    let length = systemd.recv(&mut bytes).expect("systemd is told");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn a_daemon_with_nothing_to_govern_is_not_taken_for_one_that_hangs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("roost.toml");
    // A service that is not there is looked for ever more rarely: more rarely than the watchdog
    // would wait.
    let absent = "[[service]]\nname = \"cache\"\nunit = \"no-such.service\"\ngoal = \"1s@p99\"\n";
    for text in ["", absent] {
        fs::write(&config, text).expect("a file");
        let notified = folder.path().join(format!("notify-{}", text.len()));
        let systemd = UnixDatagram::bind(&notified).expect("a socket");
        systemd.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out");
        let flags = ["--config", config.to_str().expect("UTF-8")];
        let governor = Governor::start_with(folder.path(), &flags, |command| {
            command.env("NOTIFY_SOCKET", &notified).env("WATCHDOG_USEC", "150000").env_remove("WATCHDOG_PID");
        });
        assert!(told(&systemd).contains("READY=1"));
        for beat in 0..5 {
            assert!(told(&systemd).contains("WATCHDOG=1"), "beat {beat}");
        }
        assert_eq!(governor.end().0, Some(0));
    }
}

#[test]
fn a_service_that_is_configured_later_is_refused_beside_a_rival_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("root");
    for (file, text) in [("proc/10/comm", "tuned\n"), ("sys/devices/system/cpu/online", "0-1\n")] {
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let config = folder.path().join("roost.toml");
    fs::write(&config, "").expect("a file");
    let notified = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&notified).expect("a socket");
    systemd.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out");
    let paths = [&config, &root].map(|path| path.to_str().expect("UTF-8"));
    let flags = ["--config", paths[0], "--root", paths[1]];
    let mut governor = Governor::start_with(folder.path(), &flags, |command| {
        command.env("NOTIFY_SOCKET", &notified);
    });
    assert!(told(&systemd).contains("READY=1"));
    let text = "[[service]]\nname = \"cache\"\nunit = \"memcached.service\"\ngoal = \"1s@p99\"\nidle = \"shallow\"\n";
    fs::write(&config, text).expect("a file");
    signal(governor.child.id(), "HUP");
    let mut stderr =
        BufReader::new(governor.child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let said = stderr.find(|line| line.contains("earlier one stays")).expect("a line");
    assert!(said.contains("tuned (process 10)"), "{said}");
    let status = String::from_utf8(governor.ask(&["status"]).stdout).expect("text");
    assert!(!status.contains("cache"), "{status}");
    assert_eq!(governor.end().0, Some(0));
    // From the start it does not even start.
    let refused = Command::new(ROOST).arg("daemon").args(flags).output().expect("roost runs");
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
}

#[test]
fn a_service_that_ends_is_waited_for_and_a_wrong_reload_changes_nothing() {
    if cannot("a service that ends") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = Memcached::start(folder.path());
    let config = folder.path().join("roost.toml");
    let text = |goal: &str| {
        format!(
            "epoch = \"50ms\"\n[[service]]\nname = \"cache\"\nport = {}\ngoal = \"{goal}\"\n",
            server.port
        )
    };
    fs::write(&config, text("10s@p99")).expect("a file");
    let notified = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&notified).expect("a socket");
    systemd.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out");
    let flags = ["--config", config.to_str().expect("UTF-8")];
    let mut governor = Governor::start_with(folder.path(), &flags, |command| {
        command.env("NOTIFY_SOCKET", &notified).env("WATCHDOG_USEC", "30000000").env_remove("WATCHDOG_PID");
    });
    let told = || told(&systemd);
    assert!(told().contains("READY=1"));
    governor.until("one core", |epoch| cpus(epoch) == 1);
    assert!(told().contains("WATCHDOG=1"));

    fs::write(&config, text("2s@p99")).expect("a file");
    signal(governor.child.id(), "HUP");
    governor.until("the other goal", |epoch| epoch["goal"] == "2s@p99");
    fs::write(&config, "[[service]]\nport = 1\ngaol = \"1s@p99\"\n").expect("a file");
    signal(governor.child.id(), "HUP");
    server.child.kill().expect("it runs");
    server.child.wait().expect("its end");
    // It says no more of a service that is gone; a question is answered with the reason.
    let status = loop {
        let status = String::from_utf8(governor.ask(&["status"]).stdout).expect("text");
        if status.contains("not governed now") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.contains("cache: not governed now"), "{status}");
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the earlier one stays") && said.contains("gaol"), "{said}");
}

#[test]
fn another_actuator_is_taken_on_reload_and_what_the_old_one_did_is_put_back() {
    if cannot("another actuator") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let before = server.place();
    let config = folder.path().join("roost.toml");
    let text = |actuator: &str, keys: &str| {
        format!(
            "epoch = \"50ms\"\n{keys}\n[[service]]\nname = \"cache\"\nport = {}\ngoal = \
             \"10s@p99\"\nactuator = \"{actuator}\"\n",
            server.port
        )
    };
    fs::write(&config, text("affinity", "")).expect("a file");
    let mut governor = Governor::start(folder.path(), &["--config", config.to_str().expect("UTF-8")]);
    let first = governor.until("one core", |epoch| cpus(epoch) == 1);
    assert_eq!((first["actuator"].as_str(), &server.place().1), (Some("affinity"), &before.1));
    // What this machine has beside it; where that is nothing, the reload is still one.
    let has_cpusets = Path::new("/sys/fs/cgroup/cpuset/cpuset.cpus").exists();
    let (other, shown) = if has_cpusets { ("cpuset-v1", "cpuset v1") } else { ("affinity", "affinity") };
    fs::write(&config, text(other, "move_interrupts = true")).expect("a file");
    signal(governor.child.id(), "HUP");
    governor.until("the other one", |epoch| epoch["actuator"] == shown && cpus(epoch) == 1);
    fs::write(&config, text("affinity", "")).expect("a file");
    signal(governor.child.id(), "HUP");
    governor.until("the first one again", |epoch| epoch["actuator"] == "affinity" && cpus(epoch) == 1);
    assert_eq!(server.place().1, before.1, "its cpuset is gone");
    let (code, said) = governor.end();
    assert_eq!((code, server.place()), (Some(0), before), "{said}");
    assert!(said.contains("read again") && !said.contains("not governed"), "{said}");
}

#[test]
fn what_is_wrong_is_one_clear_error_with_its_code() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let roost = |words: &[&str]| {
        let output = Command::new(ROOST).args(words).current_dir(folder.path()).output().expect("roost runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    let free = free.port().to_string();
    let telemetry = ConfigFile::new("[[service]]\ntelemetry = \"memcached\"");
    for (words, code, told) in [
        (&["govern", "--port", &free][..], 2, "no process listens on TCP port"),
        (&["govern", "--pid", "4000000"], 2, "no process 4000000"),
        (&["govern", "--port", &free, "--config", &telemetry], 2, "memcached+requests"),
        (&["govern", "--port", &free, "--goal", "fast"], 2, "such as 300us@p99"),
        (&["daemon", "--config", "none.toml"], 2, "--config"),
        (&["status", "--socket", "none.sock"], 1, "roost daemon"),
        (&["govern"], 2, "--port 11211"),
        (&["set", "x", "faster", "--socket", "none.sock"], 2, "roost pause"),
        (&["replay", "none"], 2, "cannot read none"),
    ] {
        let (found, said) = roost(words);
        assert_eq!(found, Some(code), "{words:?}: {said}");
        assert!(said.contains(told), "{words:?}: {said}");
    }
    // Without cpufreq or counters, both of which most virtual machines lack: what is missing, and
    // what to do.
    let has_clocks = !linux::speeds(&linux::Root::system(), &linux::allowed_cpus().expect("CPUs")).is_empty();
    let has_counters = linux::perf::WorkCounters::open(&linux::allowed_cpus().expect("CPUs")).is_ok();
    if has_clocks {
        skipped("the refusal of clocks", "this machine has some");
    } else {
        for mode in ["sensitivity", "1700MHz"] {
            let (code, said) = roost(&["govern", "--port", &free, "--frequency", mode]);
            assert_eq!(code, Some(3), "{said}");
            assert!(
                said.contains("cpufreq") && said.contains("acpi-cpufreq") && said.contains("hint:"),
                "{said}"
            );
            assert_eq!(said.contains("counters:"), mode == "sensitivity" && !has_counters, "{said}");
        }
    }
    fs::write(folder.path().join("a.toml"), "[[service]]\nname = \"cache\"\nport = 11211\n").expect("a file");
    let output = Command::new(ROOST)
        .args(["daemon", "--print-config", "--config", "a.toml"])
        .current_dir(folder.path())
        .output()
        .expect("roost runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("epoch = \"1s\"") && printed.contains("name = \"cache\""), "{printed}");
}

/// Connections of the user `nobody` that are there and say nothing, or half a question.
pub fn held_by_nobody(socket: &Path, count: usize) -> Vec<UnixStream> {
    let socket = socket.to_owned();
    let connecting = std::thread::spawn(move || {
        let user = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(user, user, user).expect("root");
        let connect = |number: usize| {
            let mut stream = UnixStream::connect(&socket).ok()?;
            if number.is_multiple_of(2) {
                let _ = stream.write_all(b"\"sta");
            }
            Some(stream)
        };
        (0..count).filter_map(connect).collect()
    });
    connecting.join().expect("it connects")
}

/// A folder that other users may pass through, where this process may be another user.
pub fn place_for_strangers(test: &str) -> Option<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        skipped(test, "only root can be another user");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).expect("its mode");
    Some(folder)
}

#[test]
fn strangers_at_the_control_socket_delay_no_order_of_roots() {
    let Some(folder) = place_for_strangers("strangers at the control socket") else { return };
    if cannot("strangers at the control socket") {
        return;
    }
    let server = Memcached::start(folder.path());
    let name = format!("port-{}", server.port);
    let mut governor = Governor::start(folder.path(), &["--port", &server.port.to_string()]);
    governor.until("it governs", |_| true);
    // They come again as soon as they are sent away.
    let done = Arc::new(AtomicBool::new(false));
    let coming = {
        let (socket, done) = (governor.socket.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                drop(held_by_nobody(&socket, 20));
            }
        })
    };
    let held = held_by_nobody(&governor.socket, 200);
    assert!(held.len() >= 40, "{} connections", held.len());
    for _ in 0..5 {
        for words in [&["pause", &name][..], &["resume", &name], &["status"]] {
            let asked = Instant::now();
            let output = governor.ask(words);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
            println!("{words:?} beside {} strangers: {:?}", held.len(), asked.elapsed());
        }
    }
    done.store(true, Ordering::Relaxed);
    coming.join().expect("they end");
    let (code, said) = governor.end();
    assert_eq!(code, Some(0), "{said}");
}
