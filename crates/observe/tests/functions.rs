//! Functions of a real server in C++, watched in the kernel of this machine: every way out, and
//! that the server lives.
//!
//! Where the kernel or the user allows no programs each test says so and passes; `lab/run` has
//! kernels that do.

use machine::Duration;
use observe::functions::{FunctionError, FunctionName, FunctionWatch};
use slots::{Activity, Enable, Reader, Woken};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

struct Server {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("server");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native/server.cc");
        let done = Command::new("c++")
            .args(["-std=c++11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .output()
            .expect("c++; `scripts/setup test` installs it");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut process = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], ["ready", process.id().to_string().as_str()]);
        Self { port: words[2].parse().unwrap(), process, _folder: folder }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        stream
    }

    /// The named functions watched; `None` where this machine cannot.
    fn watched(&self, symbols: &[&str], tallies: bool) -> Option<FunctionWatch> {
        let names: Vec<FunctionName> = symbols
            .iter()
            .map(|symbol| FunctionName { binary: "server".into(), symbol: (*symbol).into() })
            .collect();
        match FunctionWatch::attach(&linux::Root::system(), self.process.id(), &names, tallies) {
            Ok(watch) => Some(watch),
            Err(FunctionError::Bpf(why)) => {
                println!("SKIPPED: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ask(stream: &mut TcpStream, how: u8) -> u8 {
    stream.write_all(&[how]).unwrap();
    let mut reply = [0];
    stream.read_exact(&mut reply).unwrap();
    reply[0]
}

/// Sequence, and whether inside, of the only thread.
fn only(reader: &mut Reader) -> (u32, bool) {
    let slots = reader.look().unwrap();
    assert_eq!(slots.len(), 1, "{slots:?}");
    (slots[0].sequence, matches!(slots[0].activity, Activity::Inside { .. }))
}

#[test]
fn every_way_out_is_seen_or_made_good_and_the_server_lives() {
    let server = Server::start();
    let Some(watch) = server.watched(&["search"], false) else { return };
    assert!(watch.names()[0].ends_with("/server:search"), "{:?}", watch.names());
    let mut reader = watch.reader().unwrap();
    assert_eq!(reader.identity().pid, server.process.id());
    assert!(reader.identity().is_alive() && reader.can_be_rung());
    let mut client = server.connect();
    for _ in 0..100 {
        assert_eq!(ask(&mut client, b's'), b'o');
    }
    assert_eq!(only(&mut reader), (200, false));
    // Out by a tail call: seen.
    assert_eq!(ask(&mut client, b'c'), b'o');
    assert_eq!(only(&mut reader), (202, false));
    // Recursion is one call.
    assert_eq!(ask(&mut client, b'r'), b'o');
    assert_eq!(only(&mut reader), (204, false));
    assert_eq!(reader.look().unwrap()[0].nested, 5);
    // An exception and a jump are not seen, but the next call makes them good.
    for how in *b"tj" {
        let before = only(&mut reader).0;
        assert_eq!(ask(&mut client, how), if how == b't' { b'x' } else { b'o' });
        assert_eq!(ask(&mut client, b's'), b'o');
        assert_eq!(only(&mut reader), (before + 4, false), "{}", how as char);
    }
    // And where no next call comes: the thread sleeps further out, and is not told as inside for
    // long.
    let before = only(&mut reader).0;
    assert_eq!(ask(&mut client, b't'), b'x');
    let mut looks = 0;
    while only(&mut reader).1 {
        looks += 1;
        assert!(looks < 1000, "inside for ever");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(only(&mut reader), (before + 2, false));
    assert_eq!(ask(&mut client, b's'), b'o');
    assert_eq!(only(&mut reader), (before + 4, false));
    assert_eq!(reader.failures().unwrap(), slots::Failures::default());
}

#[test]
fn one_that_holds_inside_is_inside_and_its_enter_rings() {
    let mut server = Server::start();
    let Some(watch) = server.watched(&["search"], false) else { return };
    let mut reader = watch.reader().unwrap();
    assert_eq!(reader.sleep(Some(Duration::from_millis(20))).unwrap(), Woken::TimedOut);
    let mut client = server.connect();
    let asked = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(ask(&mut client, b'h'), b'i');
        client
    });
    assert_eq!(reader.sleep(Some(Duration::from_secs(20))).unwrap(), Woken::Entered);
    let mut client = asked.join().unwrap();
    // It sleeps inside, deeper than where it entered: that is no reason to call it outside.
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert!(only(&mut reader).1);
    assert_eq!(ask(&mut client, b'g'), b'o');
    assert!(!only(&mut reader).1);
    // A bell ends a sleep.
    let bell = reader.bell();
    let ringer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        bell.ring().unwrap();
    });
    assert_eq!(reader.sleep(Some(Duration::from_secs(20))).unwrap(), Woken::Called);
    ringer.join().unwrap();
    // Off is off, and exit times come when asked for.
    reader.enable(Enable::Off).unwrap();
    let before = only(&mut reader).0;
    assert_eq!(ask(&mut client, b's'), b'o');
    assert_eq!(only(&mut reader).0, before);
    reader.enable(Enable::OnWithExitTimes).unwrap();
    assert_eq!(ask(&mut client, b's'), b'o');
    let last = match reader.look().unwrap()[0].activity {
        Activity::Outside { last } => last.expect("exit times are on"),
        other => panic!("{other:?}"),
    };
    assert!(last > Duration::from_micros(10) && last < Duration::from_secs(5), "{last}");
    // Killed in the middle of a call: its thread is gone at once.
    assert_eq!(ask(&mut client, b'h'), b'i');
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert_eq!(reader.look().unwrap(), []);
    assert!(!reader.identity().is_alive());
}

#[test]
fn a_thread_that_ends_inside_frees_its_slot() {
    let server = Server::start();
    let Some(watch) = server.watched(&["search"], false) else { return };
    let mut reader = watch.reader().unwrap();
    for _ in 0..20 {
        let mut client = server.connect();
        // A server that has answered is there, and can be waited for.
        assert_eq!(ask(&mut client, b's'), b'o');
        client.write_all(b"d").unwrap();
        // Its connection stays open, so wait for the thread itself.
        let task = format!("/proc/{}/task", server.process.id());
        while std::fs::read_dir(&task).unwrap().count() > 1 {
            std::thread::yield_now();
        }
        assert_eq!(reader.look().unwrap(), []);
    }
    let mut client = server.connect();
    assert_eq!(ask(&mut client, b's'), b'o');
    let slot = reader.look().unwrap()[0];
    assert!(slot.index < 21 && slot.sequence == 2, "{slot:?}");
}

#[test]
fn calls_are_tallied_by_function_also_where_one_calls_the_other() {
    let server = Server::start();
    let Some(watch) = server.watched(&["answer", "search", "score"], true) else { return };
    let mut client = server.connect();
    for _ in 0..50 {
        assert_eq!(ask(&mut client, b's'), b'o');
    }
    assert_eq!(ask(&mut client, b't'), b'x');
    assert_eq!(ask(&mut client, b'r'), b'o');
    let tallies = watch.tallies();
    let seen: Vec<(u64, u64)> = tallies.iter().map(|tally| (tally.calls, tally.unseen)).collect();
    assert_eq!(seen, [(52, 0), (52, 1), (52 * 40 + 200, 0)]);
    let timed = |at: usize| tallies[at].times.counts.iter().map(|&count| u64::from(count)).sum::<u64>();
    assert_eq!((timed(0), timed(1), timed(2)), (52, 51, 2280));
    assert!(
        tallies[0].times.total > tallies[1].times.total && tallies[1].times.total > tallies[2].times.total
    );
    let [enters, exits, unfit] = watch.probed();
    assert_eq!((enters, exits, unfit), (52 + 57 + 2280, 52 + 56 + 2280, 0));
}

#[test]
fn what_cannot_be_watched_says_why() {
    let server = Server::start();
    let attach =
        |pid, name: &str| FunctionWatch::attach(&linux::Root::system(), pid, &[name.parse().unwrap()], false);
    let said = |name: &str| attach(server.process.id(), name).unwrap_err().to_string();
    assert!(said("nothing:search").contains("runs no file nothing"), "{}", said("nothing:search"));
    let nearest = said("server:serch");
    assert!(nearest.contains("no function serch; the nearest: search"), "{nearest}");
    assert!(attach(u32::MAX, "server:search").is_err());
}
