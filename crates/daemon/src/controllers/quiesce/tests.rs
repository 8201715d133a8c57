//! On this machine's own kernel: a critical process that waits for this test's messages, and a
//! background process that stands still meanwhile. It takes root; a missing feature is reported.

use super::*;
use linux::EndsWithParent as _;
use machine::Ratio;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const PORT: &str = "ROOST_TEST_QUIESCE_PORT";

/// Not a test of its own: the body of the critical process. It answers each byte; after `o` it
/// waits for its standard input, which is no wait for the network, until a line comes.
#[test]
fn body() {
    let Ok(port) = std::env::var(PORT) else { return };
    let mut connection = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    let mut byte = [0];
    while connection.read_exact(&mut byte).is_ok() {
        connection.write_all(&byte).unwrap();
        if byte == *b"o" {
            std::io::stdin().read_line(&mut String::new()).unwrap();
            connection.write_all(&byte).unwrap();
        }
    }
}

const BACKEND: &str = "ROOST_TEST_QUIESCE_BACKEND";

/// Not a test of its own: the body of a server. It tells its port, and answers each byte with a
/// back end's answer.
#[test]
fn serving_body() {
    let Ok(backend) = std::env::var(BACKEND) else { return };
    let mut backend = TcpStream::connect(("127.0.0.1", backend.parse().unwrap())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    backend.write_all(&port.to_be_bytes()).unwrap();
    let (mut client, _) = listener.accept().unwrap();
    let mut byte = [0];
    while client.read_exact(&mut byte).is_ok() {
        backend.write_all(&byte).unwrap();
        backend.read_exact(&mut byte).unwrap();
        client.write_all(&byte).unwrap();
    }
}

const INPUT: &str = "ROOST_TEST_QUIESCE_INPUT";

/// Not a test of its own: the body of a program on a terminal, which fetches something for each
/// line.
#[test]
fn input_body() {
    let Ok(port) = std::env::var(INPUT) else { return };
    let mut connection = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    let mut byte = [b'f'];
    while std::io::stdin().read_line(&mut String::new()).unwrap() > 0 {
        connection.write_all(&byte).unwrap();
        connection.read_exact(&mut byte).unwrap();
    }
}

/// The critical process and this test's end of its connection.
struct Critical {
    child: Child,
    connection: TcpStream,
}

impl Critical {
    fn start() -> Self {
        Self::of("body", PORT)
    }

    fn of(body: &str, port: &str) -> Self {
        Self::on(body, port, Stdio::piped())
    }

    fn on(body: &str, port: &str, stdin: Stdio) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                &format!("controllers::quiesce::tests::{body}"),
                "--nocapture",
                "--test-threads=1",
            ])
            .env(port, listener.local_addr().unwrap().port().to_string())
            .stdin(stdin)
            .stdout(Stdio::null())
            .ends_with_parent()
            .spawn()
            .unwrap();
        let (connection, _) = listener.accept().unwrap();
        connection.set_nodelay(true).unwrap();
        Self { child, connection }
    }

    /// Lets it go on, and waits until it has.
    fn poke(&mut self, byte: u8) {
        self.connection.write_all(&[byte]).unwrap();
        self.answer();
    }

    fn answer(&mut self) {
        self.connection.read_exact(&mut [0]).unwrap();
    }
}

impl Drop for Critical {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that sleeps, and is stopped by signals: this works on every machine.
struct Idler(Child);

impl Idler {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").ends_with_parent().spawn().unwrap())
    }

    fn is_frozen(&self) -> bool {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        text.rsplit_once(") ").unwrap().1.starts_with('T')
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The governor, on a thread of its own, and its last status.
struct Running {
    stop: Stop,
    status: Arc<Mutex<Option<QuiesceStatus>>>,
    ended: mpsc::Receiver<(Result<Ending, String>, Vec<String>)>,
    folder: TempDir,
}

impl Running {
    fn start(
        critical: &Critical,
        background: &[&Idler],
        change: impl FnOnce(&mut QuiesceOptions),
    ) -> Option<Self> {
        let (folder, root) = machine();
        let mut options = options(root, critical.child.id().to_string(), background);
        change(&mut options);
        let mut quiesce = match Quiesce::open(options) {
            Err(QuiesceError::Blind(error)) => {
                println!("SKIPPED: {error}");
                return None;
            }
            opened => opened.unwrap(),
        };
        let (ends, ended) = mpsc::channel();
        let status = Arc::new(Mutex::new(None));
        let (stop, shown) = (quiesce.stop(), status.clone());
        std::thread::spawn(move || {
            let ending = quiesce.run(None, |quiesce| {
                *shown.lock().unwrap() = Some(quiesce.status(linux::now()));
            });
            let lines = quiesce.release();
            ends.send((ending.map_err(|error| error.to_string()), lines)).unwrap();
        });
        Some(Self { stop, status, ended, folder })
    }

    fn freezes(&self) -> u64 {
        self.seen().map_or(0, |status| status.background[0].freezes)
    }

    fn seen(&self) -> Option<QuiesceStatus> {
        self.status.lock().unwrap().clone()
    }

    /// After the first look.
    fn status(&self) -> QuiesceStatus {
        until("it looks", || self.seen().is_some());
        self.seen().unwrap()
    }

    fn end(self) -> Ending {
        self.stop.now();
        self.ended.recv().unwrap().0.unwrap()
    }
}

/// The real machine, with locks and journals in a folder of the test's own.
fn machine() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    for part in ["sys", "proc", "dev"] {
        symlink(format!("/{part}"), folder.path().join(part)).unwrap();
    }
    let root = Root::at(folder.path());
    (folder, root)
}

fn options(root: Root, critical: String, background: &[&Idler]) -> QuiesceOptions {
    QuiesceOptions {
        root,
        critical: vec![critical],
        background: background.iter().map(|idler| idler.0.id().to_string()).collect(),
        domain: "all".to_owned(),
        max_pause: Duration::from_secs(600),
        max_share: Ratio::new(0.99),
        trigger: None,
        // Other work on this machine does not matter to these tests.
        always: true,
        dry_run: false,
        record: None,
        without: vec![FreezerWay::V2, FreezerWay::V1],
        checkpoint: None,
    }
}

/// The awaited state comes soon, or the test fails.
fn until(what: &str, holds: impl Fn() -> bool) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < patience, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Lets it wait until its wait is believed to be for the network: no background process ended it
/// for long enough.
fn believed(critical: &mut Critical, running: &Running) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !running.seen().is_some_and(|status| status.sites.iter().any(|site| site.is_believed)) {
        assert!(std::time::Instant::now() < patience, "its wait is believed");
        critical.poke(b'x');
        // So that it does wait for the next one.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn background_stands_still_while_the_critical_waits_and_goes_on_when_it_does() {
    let (mut critical, idler) = (Critical::start(), Idler::start());
    let Some(running) = Running::start(&critical, &[&idler], |_| {}) else { return };
    believed(&mut critical, &running);
    until("it stands still", || idler.is_frozen());
    // With a pause of ten minutes at most, only the critical thread's going on can end it.
    for _ in 0..5 {
        let before = running.freezes();
        critical.poke(b'x');
        until("it went on, and stands still again", || running.freezes() > before && idler.is_frozen());
    }
    // Another kind of wait.
    critical.poke(b'o');
    until("it goes on", || !idler.is_frozen());
    let before = running.freezes();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(!idler.is_frozen() && running.freezes() == before, "a pipe may be the background's own");
    critical.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    critical.answer();
    until("it stands still again", || idler.is_frozen());
    let status = running.status();
    assert!(status.cost_is_measured && status.min_wait_us >= 20.0 * status.cost_us - 1.0, "{status:?}");
    assert!(status.thaw_us.is_some() && status.lost == 0, "{status:?}");
    assert_eq!(running.end(), Ending::Stopped);
    until("the end lets it go on", || !idler.is_frozen());
}

#[test]
fn nobody_stands_still_for_longer_than_the_pause() {
    let (mut critical, idler) = (Critical::start(), Idler::start());
    let pause = Duration::from_millis(20);
    let running = Running::start(&critical, &[&idler], |options| {
        (options.max_pause, options.max_share) = (pause, Ratio::new(0.5));
    });
    let Some(running) = running else { return };
    believed(&mut critical, &running);
    until("it was frozen again and again, by the bound alone", || {
        running.status().record.ended_by_bound >= 5
    });
    until("it goes on in between", || !idler.is_frozen());
    assert_eq!(running.end(), Ending::Stopped);
}

#[test]
fn a_critical_process_that_dies_lets_everybody_go_on() {
    let (mut critical, idler) = (Critical::start(), Idler::start());
    let Some(running) = Running::start(&critical, &[&idler], |_| {}) else { return };
    believed(&mut critical, &running);
    until("it stands still", || idler.is_frozen());
    critical.child.kill().unwrap();
    until("it goes on", || !idler.is_frozen());
    critical.child.wait().unwrap();
    let (ending, _) = running.ended.recv().unwrap();
    assert_eq!(ending, Ok(Ending::CriticalEnded));
    assert!(!idler.is_frozen());
}

#[test]
fn a_dry_run_touches_nothing() {
    let (mut critical, idler) = (Critical::start(), Idler::start());
    let Some(running) = Running::start(&critical, &[&idler], |options| options.dry_run = true) else {
        return;
    };
    believed(&mut critical, &running);
    // Now and then it would go on: a page of the critical program's that was not there is a reason,
    // too.
    until("it would be frozen", || running.seen().is_some_and(|status| status.background[0].is_frozen));
    assert!(!idler.is_frozen() && running.freezes() > 0);
    assert!(!running.folder.path().join("run").exists(), "neither a lock nor a journal");
    assert_eq!(running.end(), Ending::Stopped);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_changes() {
    let (critical, idler) = (Critical::start(), Idler::start());
    let unit = || critical.child.id().to_string();
    let refused = |change: &dyn Fn(&mut QuiesceOptions)| {
        let (folder, root) = machine();
        let mut options = options(root, unit(), &[&idler]);
        change(&mut options);
        let error = Quiesce::open(options).unwrap_err();
        assert!(!folder.path().join("run").exists(), "{error}");
        error.to_string()
    };
    for (domain, word) in [
        ("cluster:9", "this machine has cluster 0"),
        ("socket:x", "this machine has socket 0"),
        ("rack:0", "socket and cluster"),
        ("1000", "is not online"),
        ("some", "write all"),
    ] {
        let error = refused(&|options| options.domain = domain.to_owned());
        assert!(error.contains(word) && error.contains(domain), "{error}");
    }
    let error = refused(&|options| options.background.push(unit()));
    assert!(error.contains("critical"), "{error}");
    let error = refused(&|options| options.background = vec!["1".to_owned()]);
    assert!(error.contains("process 1"), "{error}");
    let error = refused(&|options| options.critical = vec!["no-such.service".to_owned()]);
    assert!(error.contains("no-such.service"), "{error}");
    assert!(!idler.is_frozen());
}

#[test]
fn background_that_may_not_run_in_the_domain_is_refused() {
    let cpus = linux::online_cpus(&Root::system()).unwrap();
    let (Some(&first), Some(&last)) = (cpus.0.first(), cpus.0.last()) else { return };
    if first == last {
        println!("SKIPPED: one CPU is one domain");
        return;
    }
    let (critical, idler) = (Critical::start(), Idler::start());
    let pinned =
        Command::new("taskset").args(["-cp", &first.0.to_string(), &idler.0.id().to_string()]).output();
    assert!(pinned.unwrap().status.success());
    let (_folder, root) = machine();
    let mut options = options(root, critical.child.id().to_string(), &[&idler]);
    options.domain = last.0.to_string();
    let error = Quiesce::open(options).unwrap_err();
    assert!(matches!(error, QuiesceError::Domain { .. }), "{error}");
}

#[test]
fn with_a_trigger_nothing_stands_still_but_while_a_request_waits() {
    let (mut server, idler) = (Critical::of("serving_body", BACKEND), Idler::start());
    let mut port = [0; 2];
    server.connection.read_exact(&mut port).unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", u16::from_be_bytes(port))).unwrap();
    client.set_nodelay(true).unwrap();
    let (_folder, root) = machine();
    let mut asked = options(root, server.child.id().to_string(), &[&idler]);
    asked.trigger = Some(Trigger::Accept);
    if let Err(error @ QuiesceError::Trigger { .. }) = Quiesce::open(asked) {
        println!("SKIPPED: {error}");
        return;
    }
    let running = Running::start(&server, &[&idler], |options| options.trigger = Some(Trigger::Accept));
    let Some(running) = running else { return };
    let mut request = |server: &mut Critical, delayed: &dyn Fn()| {
        client.write_all(b"r").unwrap();
        server.connection.read_exact(&mut [0]).unwrap();
        delayed();
        server.connection.write_all(b"a").unwrap();
        client.read_exact(&mut [0]).unwrap();
    };
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !running.seen().is_some_and(|status| status.sites.iter().any(|site| site.is_believed)) {
        assert!(std::time::Instant::now() < patience, "its wait for the back end is believed");
        request(&mut server, &|| std::thread::sleep(std::time::Duration::from_millis(1)));
    }
    for _ in 0..3 {
        request(&mut server, &|| until("a request waits, so it stands still", || idler.is_frozen()));
        until("it is answered", || !idler.is_frozen());
        let before = running.freezes();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!idler.is_frozen() && running.freezes() == before, "the server waits for no request's sake");
    }
    assert!(running.status().requests >= 3);
    assert_eq!(running.end(), Ending::Stopped);
}

/// A terminal of this test's own: the end at which it is typed, and the other one.
fn terminal() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let typed = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&typed)?;
    unlockpt(&typed)?;
    let name = ptsname(&typed, Vec::new())?;
    let read = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((typed, read))
}

/// A thread of it is blocked in `read` of its standard input: 0 on x86-64, 63 on arm64.
fn waits_for_input(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let calls = threads.filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok());
    calls.into_iter().any(|call| call.starts_with("0 0x0 ") || call.starts_with("63 0x0 "))
}

#[test]
fn with_input_as_the_trigger_nothing_stands_still_but_while_a_line_is_answered() {
    let (typed, read) = match terminal() {
        Ok(ends) => ends,
        Err(error) => {
            println!("SKIPPED: this machine gives no terminal (/dev/ptmx): {error}");
            return;
        }
    };
    let (mut program, idler) = (Critical::on("input_body", INPUT, read.into()), Idler::start());
    let running = Running::start(&program, &[&idler], |options| options.trigger = Some(Trigger::Input));
    let Some(running) = running else { return };
    let process = program.child.id();
    let line = |program: &mut Critical, delayed: &dyn Fn()| {
        until("it waits for a line", || waits_for_input(process));
        rustix::io::write(&typed, b"x\n").unwrap();
        program.answer();
        delayed();
        program.connection.write_all(b"a").unwrap();
    };
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !running.seen().is_some_and(|status| status.sites.iter().any(|site| site.is_believed)) {
        assert!(std::time::Instant::now() < patience, "its wait for what it fetches is believed");
        line(&mut program, &|| std::thread::sleep(std::time::Duration::from_millis(1)));
    }
    for _ in 0..3 {
        line(&mut program, &|| {
            until("what was typed waits for the network, so it stands still", || idler.is_frozen())
        });
        until("it is answered", || !idler.is_frozen() && waits_for_input(process));
        let before = running.freezes();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!idler.is_frozen() && running.freezes() == before, "nothing was typed");
    }
    assert!(running.status().requests >= 3);
    assert_eq!(running.end(), Ending::Stopped);
}

#[test]
fn a_group_into_which_comes_what_others_wait_for_is_left_alone_until_that_has_left() {
    let programs = tempfile::tempdir().unwrap();
    let needed = programs.path().join("sshd");
    // A name for a program that is there: one that was just written may be busy.
    std::os::unix::fs::symlink("/usr/bin/head", &needed).unwrap();
    // It begins at the first line, and ends at the second.
    let script =
        format!("exec 3<&0; read word; {} -n 1 <&3 >/dev/null & wait; exec sleep 600", needed.display());
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &script]).stdin(Stdio::piped()).ends_with_parent().spawn().unwrap();
    let (mut critical, mut idler) = (Critical::start(), Idler(shell));
    let Some(running) = Running::start(&critical, &[&idler], |_| {}) else { return };
    let spared = || running.seen().and_then(|status| status.background[0].spared.clone());
    let line = |idler: &mut Idler| idler.0.stdin.as_mut().unwrap().write_all(b"x\n").unwrap();
    line(&mut idler);
    until("it is left alone", || spared().is_some_and(|why| why.contains("it holds sshd (")));
    believed(&mut critical, &running);
    critical.poke(b'x');
    until("all wait", || {
        running.seen().is_some_and(|status| status.outlook == policy::quiescence::Outlook::Frozen)
    });
    assert!(!idler.is_frozen() && running.freezes() == 0, "{:?}", running.seen());
    line(&mut idler);
    until("that has left", || spared().is_none());
    critical.poke(b'x');
    until("it stands still", || idler.is_frozen());
    assert_eq!(running.end(), Ending::Stopped);
}

#[test]
fn what_was_recorded_commands_the_same_again() {
    let (mut critical, idler) = (Critical::start(), Idler::start());
    let recorded = tempfile::tempdir().unwrap();
    let folder = recorded.path().to_owned();
    let running = Running::start(&critical, &[&idler], |options| options.record = Some(folder));
    let Some(running) = running else { return };
    believed(&mut critical, &running);
    until("it stands still", || idler.is_frozen());
    for _ in 0..3 {
        let before = running.freezes();
        critical.poke(b'x');
        until("it went on, and stands still again", || running.freezes() > before && idler.is_frozen());
    }
    let freezes = running.freezes();
    assert_eq!(running.end(), Ending::Stopped);
    let text = fs::read_to_string(recorded.path().join("quiesce.000000.jsonl")).unwrap();
    let again = policy::log::replay::<policy::quiescence::Quiescence>(&text).unwrap();
    assert!(again.state.record().freezes >= freezes && again.steps > 50, "{} steps", again.steps);
    // Who records once more into the same folder would mix the two.
    let (_machine, root) = machine();
    let mut asked = options(root, critical.child.id().to_string(), &[&idler]);
    asked.record = Some(recorded.path().to_owned());
    let error = Quiesce::open(asked).unwrap_err();
    assert!(matches!(error, QuiesceError::Record { .. }), "{error}");
    assert!(!idler.is_frozen());
}
