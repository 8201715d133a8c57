//! The store with TLS: foreign clients (openssl's), our own generator, certificates that change, strangers.

use crate::fixture::{ConfigFile, Server, is_installed, repository, signal, skipped};
use loadgen::{Items, Pace, Plan, Target};
use machine::{Duration, Rate};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use workload::{ArrivalKind, Shape, Workload};

fn of_tests(name: &str) -> PathBuf {
    repository().join("testdata/stage").join(name)
}

/// A store with TLS at a port and without at a Unix socket, by files of its own.
struct Sealed {
    folder: tempfile::TempDir,
    server: Server,
}

impl Sealed {
    fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for (from, to) in [("localhost.pem", "cert.pem"), ("localhost.key.pem", "key.pem")] {
            fs::copy(of_tests(from), at(to)).unwrap();
        }
        let (plain, cert, key) = (format!("unix:{}", at("plain")), at("cert.pem"), at("key.pem"));
        let mut all = vec!["--listen", "127.0.0.1", "--listen", &plain, "--memory-limit", "256m"];
        all.extend(["--tls-cert", &cert, "--tls-key", &key]);
        all.extend(flags);
        let server = Server::start(&all);
        Self { folder, server }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn stat(&self, name: &str) -> u64 {
        let mut socket = UnixStream::connect(self.at("plain")).unwrap();
        socket.write_all(b"stats\r\nquit\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// The store's answers to openssl's client, which believes `authority`; empty if it is refused.
    fn asked_by_openssl(&self, authority: &Path, more: &[&str], requests: &str) -> String {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", "-verify_hostname", "localhost"])
            .args(["-connect", &format!("127.0.0.1:{}", self.server.port), "-CAfile"])
            .arg(authority)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It may have been refused already. The pipe stays open: at its end the client leaves at once.
        let mut stdin = client.stdin.take().unwrap();
        let _ = stdin.write_all(requests.as_bytes());
        let mut text = String::new();
        client.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        client.wait().unwrap();
        text
    }
}

const WORDS: &str = "set a 0 0 3\r\nabc\r\nget a\r\nquit\r\n";
const ANSWERS: &str = "STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n";

#[test]
fn clients_of_openssl_are_served_in_both_versions() {
    if !is_installed("openssl") {
        return skipped("clients of openssl", "openssl is not installed");
    }
    let sealed = Sealed::start(&[]);
    for version in ["-tls1_2", "-tls1_3"] {
        assert_eq!(
            sealed.asked_by_openssl(&of_tests("localhost.pem"), &[version], WORDS),
            ANSWERS,
            "{version}"
        );
    }
    assert_eq!(
        sealed.asked_by_openssl(&of_tests("localhost.pem"), &["-tls1_1"], WORDS),
        "",
        "an old version"
    );
    assert_eq!(sealed.stat("ssl_handshake_errors"), 1);
    // Without TLS it is the same store.
    let mut plain = UnixStream::connect(sealed.at("plain")).unwrap();
    plain.write_all(b"get a\r\nquit\r\n").unwrap();
    let mut text = String::new();
    plain.read_to_string(&mut text).unwrap();
    assert_eq!(text, "VALUE a 0 3\r\nabc\r\nEND\r\n");
    assert_eq!(sealed.server.terminate().0, Some(0));
}

#[test]
fn values_of_all_sizes_come_back_byte_for_byte() {
    let sealed = Sealed::start(&["--workers", "2"]);
    for (size, rate, keys) in [("100", 2_000.0, 2_000), ("40000", 300.0, 200), ("900000", 20.0, 20)] {
        let profile = Shape::constant()
            .profile(Some(Rate::per_second(rate)), Duration::from_secs(2), 1.0)
            .expect("a constant profile");
        let workload = Workload { keys, value_size: size.parse().unwrap(), ..Workload::default() };
        let plan = Plan {
            tls: Some(tls::Client::new(&of_tests("localhost.pem"), "localhost").unwrap()),
            connections: 8,
            length: Duration::from_secs(2),
            asks: Items { preload: true, verify: true, ..Items::of(workload) },
            ..Plan::new(
                Target::Tcp(format!("127.0.0.1:{}", sealed.server.port)),
                Pace::Open { arrivals: ArrivalKind::Poisson, profile },
            )
        };
        let outcome = loadgen::run(&plan, &mut |_| ControlFlow::Continue(())).unwrap();
        let counts = &outcome.counts;
        assert!(counts.answered > 20 && counts.hits > 10, "{size}: {counts:?}");
        assert_eq!(
            (counts.corrupt, counts.lost, counts.misses, counts.refused),
            (0, 0, 0, 0),
            "{size}: {counts:?}"
        );
        assert_eq!(outcome.connections_lost, 0, "{:?}", outcome.remarks);
    }
    assert_eq!(sealed.stat("ssl_handshake_errors"), 0);
}

#[test]
fn certificates_are_read_again_and_wrong_ones_change_nothing() {
    if !is_installed("openssl") {
        return skipped("certificates that change", "openssl is not installed");
    }
    let sealed = Sealed::start(&[]);
    let (old, new) = (of_tests("localhost.pem"), sealed.at("new.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-out"])
        .arg(&new)
        .arg("-keyout")
        .arg(sealed.at("new.key.pem"))
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    // A connection that stands keeps its own.
    let mut standing = TlsStanding::begin(&sealed);
    fs::copy(&new, sealed.at("cert.pem")).unwrap();
    signal(sealed.server.pid(), "HUP");
    // Certificate and key do not belong together: nothing changes, and a second signal after the first was
    // heard brings both.
    assert_eq!(sealed.asked_by_openssl(&old, &[], WORDS), ANSWERS);
    fs::copy(sealed.at("new.key.pem"), sealed.at("key.pem")).unwrap();
    signal(sealed.server.pid(), "HUP");
    let renewed = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        sealed.asked_by_openssl(&new, &[], WORDS) == ANSWERS
    });
    assert!(renewed, "the new certificate is not shown");
    assert_eq!(sealed.asked_by_openssl(&old, &[], WORDS), "", "the old authority is no longer believed");
    assert_eq!(standing.ask("get a"), "VALUE a 0 3");
}

/// A client of openssl that stays.
struct TlsStanding {
    client: std::process::Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl TlsStanding {
    fn begin(sealed: &Sealed) -> Self {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{}", sealed.server.port)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(client.stdout.take().unwrap());
        let mut standing = Self { client, answers };
        assert_eq!(standing.ask("get b"), "END");
        standing
    }

    fn ask(&mut self, request: &str) -> String {
        let stdin = self.client.stdin.as_mut().unwrap();
        stdin.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for TlsStanding {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_asked_for() {
    if !is_installed("openssl") {
        return skipped("clients with certificates", "openssl is not installed");
    }
    let authority = of_tests("localhost.pem");
    let sealed = Sealed::start(&["--tls-client-ca", authority.to_str().unwrap()]);
    let key = of_tests("localhost.key.pem");
    let own = ["-cert", authority.to_str().unwrap(), "-key", key.to_str().unwrap()];
    for version in ["-tls1_2", "-tls1_3"] {
        assert_eq!(sealed.asked_by_openssl(&authority, &[version], WORDS), "", "{version}");
        let with = [&own[..], &[version]].concat();
        assert_eq!(sealed.asked_by_openssl(&authority, &with, WORDS), ANSWERS, "{version}");
    }
    assert_eq!(sealed.stat("ssl_handshake_errors"), 2);
}

#[test]
fn strangers_to_tls_learn_nothing_and_are_not_waited_for() {
    let config = ConfigFile::new("[limits]\nstall = \"1s\"\n");
    let sealed = Sealed::start(&["--config", &config]);
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", sealed.server.port)).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
        stream
    };
    let mut plain = connect();
    plain.write_all(b"get a\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    // At the most an alert: its kind is 21.
    assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    // Nothing at all, and the beginning of a greeting, are ended after the stall limit.
    for said in [&b""[..], &[22, 3, 1, 1, 0, 1]] {
        let mut slow = connect();
        slow.write_all(said).unwrap();
        let _ = slow.read_to_end(&mut Vec::new());
    }
    assert_eq!(sealed.stat("ssl_handshake_errors"), 3);
}
