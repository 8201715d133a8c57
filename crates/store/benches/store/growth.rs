//! The worst single put while the store grows to 4 million items.
//!
//! On a shared machine another process may run during any put. So the same puts are made in
//! [`ROUNDS`] rounds, with a seed that puts every item into the same place each time. For each put
//! only its fastest round counts: the store's own part of that put is the same in all of them,
//! disturbances are not. The last line does the same with nothing between the clock readings.

use super::{VALUE, key, thread_cpu_ns};
use store::store::{NewItem, Store, StoreConfig};

const ROUNDS: usize = 5;
const ITEMS: u64 = 4_000_000;

pub fn main() {
    println!("one put of {ITEMS}, microseconds of CPU time");
    println!("{:<22} {:>8} {:>8} {:>8} {:>8} {:>10}", "", "mean", "p99", "p99.9", "p99.99", "max");
    let config = StoreConfig { memory_limit: 2 << 30, max_item_size: 1 << 20, shards: None };
    let stores = || Store::with_seed(config, 1).expect("a usual limit");
    rounds(stores, |store, number| {
        let new = NewItem { flags: 0, exptime: 0, value: &[&VALUE], cas: None };
        store.entry(&key(number), 2).put(new).expect("room");
    });
    rounds(|| (), |(), number| _ = std::hint::black_box(key(number)));
}

fn rounds<S>(subject: impl Fn() -> S, act: impl Fn(&S, u64)) {
    let mut least = vec![u32::MAX; ITEMS as usize];
    for round in 0..ROUNDS {
        let subject = subject();
        let mut round_ns = Vec::with_capacity(ITEMS as usize);
        for number in 0..ITEMS {
            let start = thread_cpu_ns();
            act(&subject, number);
            round_ns.push((thread_cpu_ns() - start) as u32);
        }
        least.iter_mut().zip(&round_ns).for_each(|(least, &ns)| *least = ns.min(*least));
        line(&format!("round {round}"), round_ns);
    }
    line("fastest of each put", least);
}

fn line(name: &str, mut ns: Vec<u32>) {
    let mean = ns.iter().map(|&ns| u64::from(ns)).sum::<u64>() as f64 / ns.len() as f64 / 1e3;
    ns.sort_unstable();
    let at = |part: f64| f64::from(ns[((ns.len() - 1) as f64 * part) as usize]) / 1e3;
    let (p99, p999, p9999, max) = (at(0.99), at(0.999), at(0.9999), at(1.0));
    println!("{name:<22} {mean:>8.3} {p99:>8.2} {p999:>8.2} {p9999:>8.2} {max:>10.1}");
}
