//! The slope of RSS between 1 and 4 million items, each kind in a process of its own so that none
//! inherits another's heap.

use super::{key, peers, status};

pub fn main() {
    let own = std::env::current_exe().expect("a running program has a file");
    for kind in peers::KINDS {
        let done =
            std::process::Command::new(&own).args(["bytes", kind]).status().expect("this program runs");
        assert!(done.success());
    }
}

pub fn one(kind: &str) {
    let peer = peers::open(kind, 2 << 30);
    let fill = |from: u64, to: u64| {
        for number in from..to {
            peer.put(&key(number));
        }
        status("self", "VmRSS") as f64
    };
    let empty = status("self", "VmRSS") as f64;
    let marks: Vec<f64> =
        (0..4).map(|million| fill(million * 1_000_000, (million + 1) * 1_000_000)).collect();
    println!(
        "{kind:<12} {:>6.1} bytes per item from 1 to 4 million (20 B key, 100 B value); RSS {:.1} MiB \
         empty, {:.1} MiB at 1 million",
        (marks[3] - marks[0]) / 3e6,
        empty / 1048576.0,
        marks[0] / 1048576.0,
    );
    std::hint::black_box(&peer);
}
