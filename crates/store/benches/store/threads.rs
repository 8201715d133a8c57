//! Gets of several threads at a time: nanoseconds of wall time for each, the median of [`ROUNDS`] rounds.
//!
//! - *apart*: each thread has keys of its own, so its shards' locks and lines stay with its CPU.
//! - *spread*: all threads draw from the same million keys.
//! - *one key*: all ask for the same one, which is the most that a popular key can cost.
//! - *batches*: of one key as well, in batches of 16 whose places are asked for ahead, as of a client that
//!   sends requests without waiting.

use super::{
    key,
    peers::{self, Peer as _},
};
use std::sync::Barrier;
use std::time::Instant;
use workload::Random;

const ROUNDS: usize = 9;
const OPERATIONS: usize = 2_000_000;
const ITEMS: u64 = 1_000_000;
/// Keys of a thread that are its own: few, so that they are in its cache.
const OWN: u64 = 16;

pub fn main() {
    let store = peers::store(1 << 30);
    (0..ITEMS).for_each(|number| store.put(&key(number)));
    println!("{:<10} {:>8} {:>12} {:>12} {:>12}", "keys", "threads", "median ns", "least ns", "gets/s");
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    for name in ["apart", "spread", "one key", "batches"] {
        for threads in (0..).map(|doubled| 1 << doubled).take_while(|&threads| threads <= most) {
            let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&store, name, threads)).collect();
            rounds.sort_by(f64::total_cmp);
            let median = rounds[ROUNDS / 2];
            println!(
                "{name:<10} {threads:>8} {median:>12.1} {:>12.1} {:>12.0}",
                rounds[0],
                threads as f64 * 1e9 / median
            );
        }
    }
}

/// Nanoseconds from the first get of a thread to its last, by gets.
fn round(store: &store::store::Store, name: &str, threads: usize) -> f64 {
    let began = Barrier::new(threads);
    let time = &|thread: u64| {
        let mut random = Random::new(3, thread);
        let number = |random: &mut Random| match name {
            "apart" => thread * OWN + random.below(OWN),
            "spread" => random.below(ITEMS),
            _ => 0,
        };
        let keys: Vec<_> = (0..OPERATIONS).map(|_| key(number(&mut random))).collect();
        began.wait();
        let began = Instant::now();
        for batch in keys.chunks(16) {
            if name == "batches" {
                batch.iter().for_each(|key| store.prefetch(key));
                batch.iter().for_each(|key| store.prefetch_item(key));
            }
            batch.iter().for_each(|key| assert!(store.has(key)));
        }
        began.elapsed().as_nanos() as f64 / OPERATIONS as f64
    };
    let times: Vec<f64> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads as u64).map(|thread| scope.spawn(move || time(thread))).collect();
        all.into_iter().map(|thread| thread.join().expect("no get fails")).collect()
    });
    times.iter().sum::<f64>() / threads as f64
}
