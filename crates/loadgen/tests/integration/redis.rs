//! Against the Redis or Valkey on this machine's PATH, if there is one.

use crate::{open, short, unobserved};
use loadgen::{Dialect, Items, Pace, Plan, Target, run};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;
use workload::{Requests, ValueSize, Workload};

struct Redis {
    process: Child,
    folder: TempDir,
}

impl Redis {
    /// None, and a line that says so, where there is none.
    fn start(test: &str, password: Option<&str>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let start = |program: &str| {
            let mut command = Command::new(program);
            command.args(["--port", "0", "--save", "", "--unixsocket", "s"]).current_dir(folder.path());
            command.args(password.iter().flat_map(|word| ["--requirepass", word]));
            command.stdout(Stdio::null()).spawn()
        };
        let Ok(process) = start("redis-server").or_else(|_| start("valkey-server")) else {
            eprintln!("SKIPPED {test}: no redis-server on PATH (Debian: apt-get install redis-server)");
            return None;
        };
        let mut server = Self { process, folder };
        let asked = Instant::now();
        while UnixStream::connect(server.socket()).is_err() {
            assert!(server.process.try_wait().unwrap().is_none(), "Redis ended at once");
            assert!(asked.elapsed().as_secs() < 60, "Redis does not listen");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Some(server)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn plan(&self, pace: Pace) -> Plan {
        let workload = Workload { keys: 500, value_size: ValueSize::Etc, ..Workload::default() };
        let asks = Items { dialect: Dialect::Redis, preload: true, verify: true, ..Items::of(workload) };
        Plan { asks, ..short(Target::Unix(self.socket()), pace) }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn every_key_is_stored_read_and_right() {
    let Some(server) = Redis::start("every_key_is_stored_read_and_right", None) else { return };
    for pace in [open(5000.0), Pace::Closed { depth: 16 }] {
        let outcome = run(&server.plan(pace), &mut unobserved).unwrap();
        let counts = &outcome.counts;
        assert_eq!((counts.errors(), counts.misses, counts.refused), (0, 0, 0), "{outcome}");
        assert_eq!(counts.sent, counts.answered, "{outcome}");
        assert!(counts.hits > 0 && counts.stored > 0, "{outcome}");
        let preload = outcome.preload.unwrap();
        assert_eq!((preload.stored, preload.checked, preload.hits), (500, 500, 500));
    }
}

#[test]
fn what_is_missing_or_wrong_is_counted() {
    let Some(server) = Redis::start("what_is_missing_or_wrong_is_counted", None) else { return };
    let plan = server.plan(Pace::Closed { depth: 4 });
    let absent = Plan { asks: Items { preload: false, ..plan.asks.clone() }, ..plan.clone() };
    let outcome = run(&absent, &mut unobserved).unwrap();
    assert!(outcome.counts.misses > 0 && outcome.counts.errors() == 0, "{outcome}");

    let mut client = UnixStream::connect(server.socket()).unwrap();
    let requests = Requests::new(&plan.asks.workload).unwrap();
    for index in 0..plan.asks.workload.keys {
        let mut key = Vec::new();
        requests.write_key(index, &mut key);
        let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n", key.len());
        client.write_all(&[set.as_bytes(), &key, b"\r\n$5\r\nwrong\r\n"].concat()).unwrap();
        let mut stored = [0; 5];
        client.read_exact(&mut stored).unwrap();
        assert_eq!(&stored, b"+OK\r\n");
    }
    let outcome = run(&absent, &mut unobserved).unwrap();
    assert!(outcome.counts.corrupt > 0, "{outcome}");
    assert!(outcome.is_broken());
}

#[test]
fn a_server_that_wants_a_password_is_quoted() {
    let Some(server) = Redis::start("a_server_that_wants_a_password_is_quoted", Some("word")) else {
        return;
    };
    let error = run(&server.plan(open(100.0)), &mut unobserved).unwrap_err().to_string();
    assert!(error.contains("NOAUTH Authentication required"), "{error}");
}
