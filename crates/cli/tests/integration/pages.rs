//! Pages that answer when it is needed most: without a descriptor, among strangers, and not to a
//! stranger's name.

use crate::fixture::{Client, ConfigFile, ROOST, signal};
use linux::EndsWithParent as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A command of Roost that serves a page, with at most so many descriptors.
struct Paged {
    child: Child,
    /// Kept open, so that it never writes into a closed pipe.
    _out: BufReader<ChildStdout>,
    _err: BufReader<ChildStderr>,
    page: String,
    port: u16,
}

impl Paged {
    fn start(descriptors: u32, args: &[&str]) -> Self {
        Self::named(descriptors, args, "")
    }

    /// One that has `names` as well, each behind a comma.
    fn named(descriptors: u32, args: &[&str], names: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""), ROOST]).args(args);
        command.args(["--metrics", &format!("127.0.0.1:0{names}")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.ends_with_parent().spawn().expect("a shell");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut err = BufReader::new(child.stderr.take().expect("piped"));
        // The store and the proxy say it on their standard output, the others beside.
        let told_in_out = matches!(args[0], "serve" | "stage");
        let (mut page, mut port) = (None, 0);
        let mut said = String::new();
        while page.is_none() {
            let mut line = String::new();
            let length = if told_in_out { out.read_line(&mut line) } else { err.read_line(&mut line) };
            said.push_str(&line);
            assert!(length.expect("text") > 0, "{args:?} serves no page: {said}");
            if let Some(address) = line.trim().strip_prefix("metrics on http://") {
                page = address.strip_suffix("/metrics").map(str::to_owned);
            } else if let Some(address) = line.trim().strip_prefix("listening on ") {
                port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
            }
        }
        Self { child, _out: out, _err: err, page: page.expect("an address"), port }
    }

    fn store(descriptors: u32) -> Self {
        let args =
            ["serve", "--port", "0", "--idle-actuator", "none", "--workers", "2", "--memory-limit", "64m"];
        Self::start(descriptors, &args)
    }

    fn ask(&self, host: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.page)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    fn scrape(&self) {
        let text = self.ask(&self.page).expect("the page is served");
        assert!(text.starts_with("HTTP/1.1 200") && text.trim_end().ends_with("# EOF"), "{text}");
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }
}

#[test]
fn a_scrape_is_answered_while_clients_have_every_descriptor_and_afterwards() {
    let store = Paged::store(80);
    store.scrape();
    let clients: Vec<_> =
        (0..120).map(|_| TcpStream::connect(("127.0.0.1", store.port)).expect("a backlog")).collect();
    // Those that were accepted are answered: then the store has no descriptor left for the rest.
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", store.child.id())).expect("it lives").count();
    let until = std::time::Instant::now() + PATIENCE;
    while descriptors() < 79 && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(descriptors() >= 78, "all are used up");
    for _ in 0..5 {
        store.scrape();
    }
    drop(clients);
    store.scrape();
    assert_eq!(Client::connect(store.port).ask("mn"), "MN");
}

#[test]
fn strangers_at_the_page_itself_keep_neither_scrapes_nor_clients_out() {
    let store = Paged::store(200);
    let mut strangers: Vec<_> = (0..400).filter_map(|_| TcpStream::connect(&store.page).ok()).collect();
    for stranger in &mut strangers {
        let _ = stranger.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0");
    }
    for _ in 0..5 {
        store.scrape();
    }
    assert_eq!(Client::connect(store.port).ask("mn"), "MN", "the store has descriptors left");
    drop(strangers);
    store.scrape();
}

#[test]
fn no_page_is_for_a_strangers_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("none.toml");
    std::fs::write(&config, "").expect("a file");
    let socket = folder.path().join("govern.sock");
    let govern =
        ["daemon", "--dry-run", "--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    for args in [&["serve", "--port", "0", "--idle-actuator", "none"][..], &govern] {
        let paged = Paged::named(1000, args, ",Page.example");
        paged.scrape();
        for host in ["localhost:9150", "page.example:9150", "[::1]"] {
            let text = paged.ask(host).expect("an answer");
            assert!(text.starts_with("HTTP/1.1 200"), "{args:?} {host}: {text}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:9150"] {
            let text = paged.ask(host).expect("an answer");
            assert!(text.starts_with("HTTP/1.1 421") && !text.contains("roost_"), "{args:?} {host}: {text}");
        }
    }
}

/// A pipe whose reader is gone.
pub fn gone() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[test]
fn a_reader_of_its_lines_that_is_gone_ends_no_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store.sock");
    let govern = folder.path().join("govern.sock");
    let config = folder.path().join("one.toml");
    // Of a service that is not there a line is written at once.
    std::fs::write(&config, "[[service]]\nname = \"absent\"\nport = 1\n").expect("a file");
    let [store_path, govern_path, config] =
        [&store, &govern, &config].map(|path| path.to_str().expect("text"));
    let metrics = ["--metrics", "127.0.0.1:0"];
    let at = format!("unix:{store_path}");
    let serve = ["serve", "--port", "0", "--idle-actuator", "none", "--listen", &at];
    let daemon = ["daemon", "--dry-run", "--config", config, "--socket", govern_path];
    for (args, socket) in [(&serve[..], &store), (&daemon, &govern)] {
        let mut command = Command::new(ROOST);
        command.args(args).args(metrics).stdin(Stdio::null()).stdout(gone()).stderr(gone());
        let mut child = command.ends_with_parent().spawn().expect("it starts");
        let until = std::time::Instant::now() + PATIENCE;
        let question: &[u8] = if args[0] == "serve" { b"mn\r\n" } else { b"\"status\"\n" };
        let answered = loop {
            let asked = std::os::unix::net::UnixStream::connect(socket).and_then(|mut stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.write_all(question)?;
                stream.read(&mut [0; 64])
            });
            match asked {
                Ok(length) if length > 0 => break true,
                _ if child.try_wait().is_ok_and(|ended| ended.is_some()) => break false,
                _ if std::time::Instant::now() > until => break false,
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        if child.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal(child.id(), "TERM");
        }
        let code = child.wait().expect("it ends").code();
        assert_eq!((answered, code), (true, Some(0)), "{args:?}");
    }
}

/// Resident memory of a process, MiB.
fn resident(process: u32) -> usize {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).expect("it lives");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    (pages * 4096) >> 20
}

/// An eighth of the limit for the store's connections, the page's own bound, and as much again for
/// what the kernel and the allocator round up: not a megabyte for each answer that waits unread,
/// which is 2 GB.
const MORE_MIB: usize = 32;

#[test]
fn two_thousand_readers_that_read_nothing_cost_a_bounded_amount_and_nobody_else_an_answer() {
    let args = ["serve", "--port", "0", "--idle-actuator", "none", "--workers", "2", "--memory-limit", "64m"];
    let limits = ConfigFile::new("[limits]\nconnections = 3000\nstall = \"10m\"");
    let store = Paged::start(5000, &[&args[..], &["--config", &limits]].concat());
    let mut client = Client::connect(store.port);
    assert_eq!(client.set("big", &"x".repeat(1_000_000)), "STORED");
    assert_eq!(client.set("small", "y"), "STORED");
    store.scrape();
    let before = resident(store.child.id());
    let mut slow = Vec::new();
    // What the store does not read stays in the socket.
    let ask = |stream: &mut TcpStream, question: &[u8]| {
        stream.set_nonblocking(true).expect("a socket");
        let _ = stream.write(&question.repeat(100));
    };
    for _ in 0..2000 {
        let mut stream = TcpStream::connect(("127.0.0.1", store.port)).expect("the store accepts");
        ask(&mut stream, b"get big\r\n");
        slow.push(stream);
        // The page has its own bound; those beyond it are sent away.
        if let Ok(mut stream) = TcpStream::connect(&store.page) {
            ask(&mut stream, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
            slow.push(stream);
        }
    }
    let mut peak = 0;
    for _ in 0..20 {
        let mut fresh = Client::connect(store.port);
        assert_eq!(fresh.ask("mn"), "MN");
        assert_eq!(fresh.value("small").as_deref(), Some("y"));
        store.scrape();
        peak = peak.max(resident(store.child.id()));
    }
    println!("{before} MiB before, {peak} MiB with {} readers that read nothing", slow.len());
    assert!(peak <= before + MORE_MIB, "{before} MiB before, {peak} MiB now");
    assert!(slow.len() > 2000);
}
