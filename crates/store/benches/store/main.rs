//! The store's cost and its hits. One subject at a time:
//!
//! ```text
//! cargo bench -p store --bench store -- speed              get and set, hot and 4 million items
//! cargo bench -p store --bench store -- threads            gets of several threads at a time
//! cargo bench -p store --bench store -- bytes              RSS per item, 1 to 4 million items
//! cargo bench -p store --bench store -- growth             the worst single put up to 4 million items
//! cargo bench -p store --bench store -- hits MEMCACHED     hit ratio at equal peak RSS, and under scans
//! ```
//!
//! Items are 20-byte keys with 100-byte values throughout. `speed` and `bytes` show two
//! alternatives beside the store: a sharded standard hash map of boxed items, which neither evicts
//! nor expires, and `quick_cache`.

mod bytes;
mod growth;
mod hits;
mod peers;
mod speed;
mod threads;

const VALUE: [u8; 100] = [b'v'; 100];

/// The key of item `number`: 20 bytes, and neighbours in number share most of them.
fn key(number: u64) -> [u8; 20] {
    let mut key = *b"key:0000000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    key
}

/// A line of `/proc/PID/status`, in bytes.
fn status(pid: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc is mounted");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a kernel that counts memory");
    line.trim_matches([':', '\t', ' '])
        .split(' ')
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        << 10
}

/// CPU time of this thread so far. On a machine that others use too it says more than the wall
/// clock.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

fn main() {
    // Cargo passes `--bench`; unknown arguments are ours.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["speed"] => speed::main(),
        ["threads"] => threads::main(),
        ["bytes"] => bytes::main(),
        ["bytes", kind] => bytes::one(kind),
        ["growth"] => growth::main(),
        ["hits", memcached] => hits::main(memcached),
        ["hits", "ours", limit, scans] => hits::ours(limit.parse().expect("bytes"), scans == "scans"),
        _ => {
            eprintln!(
                "which subject? one of: speed, threads, bytes, growth, hits MEMCACHED (see benches/store/main.rs)"
            );
            std::process::exit(2);
        }
    }
}
