//! Hit ratio on a Zipf(0.99) trace that does not fit, against memcached at equal peak RSS.
//!
//! The trace: 2 million keys drawn 6 million times, in batches of 50; each batch is one multi-get,
//! then every missing key is set (cache-aside). Hits count in the second half. memcached gets the
//! trace over a Unix socket, the store in a process of its own; both peaks of RSS are the kernel's
//! (`VmHWM`). memcached runs first, with `-m 64` and its own defaults; the store's limit is then
//! chosen so that its peak stays below memcached's.
//!
//! Second run: as before, but a scan goes on beside it, which sets two new keys for each key drawn
//! and never reads them. The hits are those of the Zipf trace alone.

use super::{VALUE, key, peers, status};
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
};
use store::store::{NewItem, Store};
use workload::{Popularity, Random, Ranks};

const KEYS: u64 = 2_000_000;
const DRAWS: u64 = 6_000_000;
const BATCH: usize = 50;
/// Keys that the scan sets for each key of the trace.
const SCANNED: u64 = 2;

pub fn main(memcached: &str) {
    let own = std::env::current_exe().expect("a running program has a file");
    for scans in [false, true] {
        let title = if scans { "Zipf(0.99) with a scan beside it" } else { "Zipf(0.99)" };
        let peer = Memcached::start(memcached);
        let (ratio, peak) = peer.play(scans);
        println!("{title}: memcached {:.4} hits, peak RSS {:.1} MiB", ratio, mib(peak));
        // The process beside the store (code, stack, heap) takes about 4 MiB, and an eighth of the
        // limit is for connections, of which there are none.
        let limit = (peak - (4 << 20)) / 7 * 8;
        let limit = limit.to_string();
        let arguments = ["hits", "ours", &limit, if scans { "scans" } else { "plain" }];
        let done = Command::new(&own).args(arguments).status().expect("this program runs");
        assert!(done.success());
    }
}

/// Plays the trace against the store in this process.
pub fn ours(memory_limit: usize, scans: bool) {
    let store = peers::store(memory_limit);
    let ratio = play(scans, &mut InProcess(&store));
    println!(
        "    store     {ratio:.4} hits, peak RSS {:.1} MiB, --memory-limit {:.1} MiB, {} items at the end",
        mib(status("self", "VmHWM")),
        mib(memory_limit as u64),
        store.stats().items,
    );
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}

/// Something that the trace is played against.
trait Cache {
    /// Tells which of the keys are there.
    fn get(&mut self, keys: &[[u8; 20]]) -> Vec<bool>;
    fn set(&mut self, keys: &[[u8; 20]]);
}

fn play(scans: bool, cache: &mut impl Cache) -> f64 {
    let ranks = Ranks::new(Popularity::Zipf(0.99), KEYS);
    let mut random = Random::new(42, 0);
    let (mut hits, mut counted, mut scanned) = (0, 0, KEYS);
    for batch in 0..DRAWS / BATCH as u64 {
        let keys: Vec<_> = (0..BATCH).map(|_| key(ranks.draw(&mut random))).collect();
        let found = cache.get(&keys);
        if batch * BATCH as u64 >= DRAWS / 2 {
            hits += found.iter().filter(|&&found| found).count();
            counted += BATCH;
        }
        let mut missing: Vec<_> =
            keys.iter().zip(found).filter(|(_, found)| !found).map(|(&key, _)| key).collect();
        if scans {
            let count = SCANNED * BATCH as u64;
            missing.extend((scanned..scanned + count).map(key));
            scanned += count;
        }
        cache.set(&missing);
    }
    hits as f64 / counted as f64
}

struct InProcess<'a>(&'a Store);

impl Cache for InProcess<'_> {
    fn get(&mut self, keys: &[[u8; 20]]) -> Vec<bool> {
        keys.iter().map(|key| peers::Peer::has(self.0, key)).collect()
    }

    fn set(&mut self, keys: &[[u8; 20]]) {
        for key in keys {
            self.0
                .entry(key, 2)
                .put(NewItem { flags: 0, exptime: 0, value: &[&VALUE], cas: None })
                .expect("room");
        }
    }
}

/// A memcached of our own on a Unix socket.
struct Memcached {
    child: Child,
    stream: BufReader<UnixStream>,
}

impl Memcached {
    fn start(program: &str) -> Self {
        let socket = std::env::temp_dir().join(format!("store-bench-{}", std::process::id()));
        let child = Command::new(program)
            .args(["-m", "64", "-t", "1", "-u", "root", "-s"])
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .expect("the memcached named on the command line starts");
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) => std::thread::yield_now(),
            }
        };
        std::fs::remove_file(&socket).expect("the socket was there");
        Self { child, stream: BufReader::with_capacity(1 << 16, stream) }
    }

    fn play(mut self, scans: bool) -> (f64, u64) {
        let ratio = play(scans, &mut self);
        (ratio, status(&self.child.id().to_string(), "VmHWM"))
    }
}

impl Cache for Memcached {
    fn get(&mut self, keys: &[[u8; 20]]) -> Vec<bool> {
        let mut request = b"get".to_vec();
        for key in keys {
            request.push(b' ');
            request.extend_from_slice(key);
        }
        request.extend_from_slice(b"\r\n");
        self.stream.get_mut().write_all(&request).expect("memcached reads");
        let mut found = vec![false; keys.len()];
        let (mut at, mut line, mut value) = (0, Vec::new(), [0; VALUE.len() + 2]);
        loop {
            line.clear();
            self.stream.read_until(b'\n', &mut line).expect("memcached answers");
            if line == b"END\r\n" {
                return found;
            }
            // Answers come in the order of the keys.
            let key = &line[b"VALUE ".len()..][..20];
            at += keys[at..].iter().position(|asked| asked == key).expect("an answer to what was asked");
            found[at] = true;
            at += 1;
            self.stream.read_exact(&mut value).expect("memcached answers");
        }
    }

    fn set(&mut self, keys: &[[u8; 20]]) {
        let mut request = Vec::with_capacity(keys.len() * 150);
        for key in keys {
            request.extend_from_slice(b"set ");
            request.extend_from_slice(key);
            request.extend_from_slice(b" 0 0 100 noreply\r\n");
            request.extend_from_slice(&VALUE);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).expect("memcached reads");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It is ours and holds nothing of worth.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
