//! The content of each request.
//!
//! Request number n is a pure function of the workload and n. Threads that share a run therefore
//! need no common generator, and a simulator sees the requests that the sockets saw.

use crate::connections;
use crate::text::digits_for;
use crate::{KeySize, Popularity, Random, Ranks, SpecError, ValueSize, write_key};
use machine::Ratio;
use serde::{Deserialize, Serialize};

/// A key space and how it is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Everything random follows from this number.
    pub seed: u64,
    pub keys: u64,
    /// How often each key is asked for.
    pub popularity: Popularity,
    pub key_size: KeySize,
    pub value_size: ValueSize,
    /// Share of requests that read; the others write.
    pub gets: Ratio,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            seed: 1,
            keys: 100_000,
            popularity: Popularity::Uniform,
            key_size: KeySize::Fixed(20),
            value_size: ValueSize::Fixed(100),
            gets: Ratio::new(0.9),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Get,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub op: Op,
    /// To which key, by its number in the key space.
    pub key: u64,
}

/// A [`Workload`] prepared for lookups of its requests.
#[derive(Clone, Debug)]
pub struct Requests {
    workload: Workload,
    ranks: Ranks,
    digits: usize,
    /// Multiplied with a rank, modulo the number of keys, it gives the key: a permutation, since
    /// the two have no common divisor. Without it the hottest keys would also be the ones stored
    /// first, side by side.
    scatter: u64,
}

impl Requests {
    /// Checks the workload and prepares its samplers.
    pub fn new(workload: &Workload) -> Result<Self, SpecError> {
        if workload.keys == 0 {
            return Err(SpecError::NoKeys);
        }
        let digits = digits_for(workload.keys);
        if let KeySize::Fixed(size) = workload.key_size
            && usize::from(size) < digits
        {
            return Err(SpecError::KeysTooMany {
                keys: workload.keys,
                size: usize::from(size),
                least: digits,
            });
        }
        let mut scatter = ((workload.keys as f64 * GOLDEN_SHARE) as u64).max(1);
        while gcd(scatter, workload.keys) != 1 {
            scatter += 1;
        }
        let ranks = Ranks::new(workload.popularity, workload.keys);
        Ok(Self { workload: workload.clone(), ranks, digits, scatter })
    }

    pub fn request(&self, index: u64) -> Request {
        let mut random = request_stream(self.workload.seed, index);
        let op = if random.unit() < self.workload.gets.as_f64() { Op::Get } else { Op::Set };
        Request { op, key: self.key_of_rank(self.ranks.draw(&mut random)) }
    }

    /// The key that has this place in the order of popularity.
    pub fn key_of_rank(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(self.scatter) % u128::from(self.workload.keys)) as u64
    }

    /// Appends the text of a key. A drawn size too short to tell all keys apart is raised to one
    /// that does.
    pub fn write_key(&self, key: u64, out: &mut Vec<u8>) {
        let size = match self.workload.key_size {
            KeySize::Fixed(size) => usize::from(size),
            drawn => drawn.draw(&mut Random::new(self.workload.seed ^ KEY_SIZE_SALT, key)).max(self.digits),
        };
        write_key(out, key, size, self.digits);
    }

    /// Length of the value that belongs to a key, in bytes.
    pub fn value_len(&self, key: u64) -> usize {
        match self.workload.value_size {
            ValueSize::Fixed(size) => size as usize,
            drawn => drawn.draw(&mut Random::new(self.workload.seed ^ VALUE_SIZE_SALT, key)),
        }
    }

    /// Which of `count` connections carries request number `index`: each as likely as any other, so
    /// that Poisson arrivals are Poisson on every connection.
    pub fn connection(&self, index: u64, count: u32) -> u32 {
        connections::evenly(index, self.workload.seed, count)
    }
}

/// The random numbers of request number `index`; the first one chooses between read and write.
#[inline]
pub(crate) fn request_stream(seed: u64, index: u64) -> Random {
    Random::new(seed ^ REQUEST_SALT, index)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// 1 / the golden ratio: multiples of it fall far from each other.
const GOLDEN_SHARE: f64 = 0.618_033_988_749_895;
// One salt for each thing drawn, so that no two of them are correlated.
const REQUEST_SALT: u64 = 0x52ee_1b7a_9c3d_0f41;
const KEY_SIZE_SALT: u64 = 0x1d8e_4a60_b7f5_93c2;
const VALUE_SIZE_SALT: u64 = 0xc9a1_07f3_65de_2b84;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_mix_is_what_was_asked() {
        for gets in [0.0, 0.5, 0.9, 1.0] {
            let workload = Workload { gets: Ratio::new(gets), ..Workload::default() };
            let requests = Requests::new(&workload).unwrap();
            let reads = (0..100_000).filter(|n| requests.request(*n).op == Op::Get).count();
            assert!((reads as f64 / 1e5 - gets).abs() < 0.006, "{reads} for {gets}");
        }
    }

    #[test]
    fn connections_are_used_alike() {
        let requests = Requests::new(&Workload::default()).unwrap();
        let mut seen = [0u32; 7];
        for n in 0..70_000 {
            seen[requests.connection(n, 7) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (9_500..10_500).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_key_space_too_large_for_its_keys_is_refused_with_the_fix() {
        let workload = Workload { keys: 5000, key_size: KeySize::Fixed(2), ..Workload::default() };
        let error = Requests::new(&workload).unwrap_err().to_string();
        assert!(error.contains("at least 3"), "{error}");
        assert!(Requests::new(&Workload { keys: 0, ..Workload::default() }).is_err());
    }

    proptest! {
        #[test]
        fn the_same_seed_gives_the_same_requests_in_any_order(
            seed: u64,
            indices in prop::collection::vec(any::<u64>(), 1..20),
        ) {
            let workload = Workload { seed, popularity: Popularity::Zipf(0.99), ..Workload::default() };
            let (one, other) = (Requests::new(&workload).unwrap(), Requests::new(&workload).unwrap());
            let forward: Vec<Request> = indices.iter().map(|n| one.request(*n)).collect();
            let mut backward: Vec<Request> = indices.iter().rev().map(|n| other.request(*n)).collect();
            backward.reverse();
            prop_assert_eq!(forward, backward);
        }

        #[test]
        fn ranks_are_scattered_without_collision(keys in 1u64..3000) {
            let requests = Requests::new(&Workload { keys, ..Workload::default() }).unwrap();
            let scattered: BTreeSet<u64> = (0..keys).map(|rank| requests.key_of_rank(rank)).collect();
            prop_assert_eq!(scattered.len() as u64, keys);
            prop_assert!(scattered.iter().all(|key| *key < keys));
        }

        #[test]
        fn texts_are_unique_and_legal(seed: u64, keys in 1u64..2000, etc: bool) {
            let key_size = if etc { KeySize::Etc } else { KeySize::Usr };
            let requests = Requests::new(&Workload { seed, keys, key_size, ..Workload::default() }).unwrap();
            let mut texts = BTreeSet::new();
            for key in 0..keys {
                let mut text = Vec::new();
                requests.write_key(key, &mut text);
                prop_assert!((1..=250).contains(&text.len()));
                texts.insert(text);
            }
            prop_assert_eq!(texts.len() as u64, keys);
        }
    }
}
