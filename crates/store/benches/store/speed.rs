//! Nanoseconds of CPU time per operation on one thread: the median of [`ROUNDS`] rounds, and the
//! fastest.
//!
//! The last lines are for batches of [`DEPTH`] gets whose places are asked for ahead, as a session
//! may that finds many requests in its input: the bucket, the item, or one after the other.

use super::{
    key,
    peers::{self, Peer},
    thread_cpu_ns,
};
use store::store::Store;
use workload::{Popularity, Random, Ranks};

const ROUNDS: usize = 7;
const OPERATIONS: u64 = 1_000_000;

pub fn main() {
    println!("{:<12} {:>10} {:<19} {:>10} {:>10}", "store", "items", "operation", "median ns", "least ns");
    for kind in peers::KINDS {
        for items in [10_000, 4_000_000] {
            let peer = peers::open(kind, 2 << 30);
            for number in 0..items {
                peer.put(&key(number));
            }
            let mut random = Random::new(1, 0);
            let ranks = Ranks::new(Popularity::Zipf(0.99), items);
            let uniform: Vec<u64> = (0..OPERATIONS).map(|_| random.below(items)).collect();
            let zipf: Vec<u64> = (0..OPERATIONS).map(|_| ranks.draw(&mut random)).collect();
            let absent: Vec<u64> = uniform.iter().map(|number| number + (1 << 40)).collect();
            time(kind, items, "get/uniform", &uniform, |key| assert!(peer.has(key)));
            time(kind, items, "get/zipf", &zipf, |key| assert!(peer.has(key)));
            time(kind, items, "get/absent", &absent, |key| assert!(!peer.has(key)));
            time(kind, items, "set/overwrite", &uniform, |key| peer.put(key));
        }
    }
    for items in [10_000, 4_000_000] {
        let store = peers::store(2 << 30);
        (0..items).for_each(|number| store.put(&key(number)));
        pipeline(&store, items);
    }
}

fn time(kind: &str, items: u64, operation: &str, numbers: &[u64], mut act: impl FnMut(&[u8])) {
    let keys: Vec<_> = numbers.iter().map(|&number| key(number)).collect();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = thread_cpu_ns();
            keys.iter().for_each(|key| act(key));
            (thread_cpu_ns() - start) as f64 / keys.len() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{kind:<12} {items:>10} {operation:<19} {:>10.1} {:>10.1}", rounds[ROUNDS / 2], rounds[0]);
}

const DEPTH: usize = 16;

fn pipeline(store: &Store, items: u64) {
    let mut random = Random::new(2, 0);
    let keys: Vec<_> = (0..OPERATIONS).map(|_| key(random.below(items))).collect();
    for (name, bucket, item) in
        [("none", false, false), ("bucket", true, false), ("item", false, true), ("both", true, true)]
    {
        let mut rounds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = thread_cpu_ns();
                for batch in keys.chunks(DEPTH) {
                    if bucket {
                        batch.iter().for_each(|key| store.prefetch(key));
                    }
                    if item {
                        batch.iter().for_each(|key| store.prefetch_item(key));
                    }
                    batch.iter().for_each(|key| assert!(store.has(key)));
                }
                (thread_cpu_ns() - start) as f64 / keys.len() as f64
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        println!(
            "store {items:>10} get/prefetch-{name:<10} {:>10.1} {:>10.1}",
            rounds[ROUNDS / 2],
            rounds[0]
        );
    }
}
