//! Which servers a request of the root asks, without a table.
//!
//! Every request has a *key*, and the key a permutation of the servers: a server's *place*. The servers at the first
//! `fanout` places are asked, so each request asks exactly so many, and each server has the same share of all requests.
//! A server finds out alone whether it is asked, in some nanoseconds; nothing is stored per request and server.
//!
//! The permutation works on the numbers below the next power of two: rounds of adding a part of the key, multiplying by
//! an odd constant and folding the upper half onto the lower, each of which can be undone (Kensler, "Correlated
//! multi-jittered sampling", Pixar 2013, shuffles in the same manner). A number that lands beyond the last server is
//! permuted again until it does not, which keeps it a permutation.

/// So many of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    servers: u32,
    mask: u32,
    fold: u32,
}

impl Choice {
    /// Among `servers` servers, at least one and at most 2^31.
    pub fn new(servers: u32) -> Self {
        let mask = servers.next_power_of_two() - 1;
        // Half of the bits, rounded up: folding twice is folding back.
        let fold = mask.count_ones().div_ceil(2);
        Self { servers, mask, fold }
    }

    /// The place of a server in the order of the request with this key, from 0.
    #[inline]
    pub fn place(&self, key: u64, server: u32) -> u32 {
        let mut x = server;
        loop {
            for (round, [factor, _]) in FACTORS.iter().enumerate() {
                x = x.wrapping_add(part(key, round)).wrapping_mul(*factor) & self.mask;
                x ^= x >> self.fold;
            }
            if x < self.servers {
                return x;
            }
        }
    }

    /// The server at a place: the inverse of [`place`](Self::place).
    pub fn server(&self, key: u64, place: u32) -> u32 {
        let mut x = place;
        loop {
            for (round, [_, inverse]) in FACTORS.iter().enumerate().rev() {
                x ^= x >> self.fold;
                x = x.wrapping_mul(*inverse).wrapping_sub(part(key, round)) & self.mask;
            }
            if x < self.servers {
                return x;
            }
        }
    }
}

/// What a round adds: bits of the key that overlap little with those of other rounds.
#[inline]
fn part(key: u64, round: usize) -> u32 {
    (key >> (16 * round)) as u32
}

/// Each round's odd factor [D: digits of the golden ratio, of pi and of e], and its inverse modulo 2^32.
const FACTORS: [[u32; 2]; 3] = [pair(0x9e37_79b9), pair(0x243f_6a89), pair(0xb7e1_5163)];

const fn pair(factor: u32) -> [u32; 2] {
    // Newton's iteration doubles the bits that are right: three to begin with.
    let mut inverse = factor;
    let mut right = 3;
    while right < 32 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(factor.wrapping_mul(inverse)));
        right *= 2;
    }
    [factor, inverse]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use workload::Random;

    #[test]
    fn every_pair_of_servers_is_asked_together_as_often_as_any_other() {
        for (servers, fanout) in [(2, 1), (3, 2), (4, 2), (5, 2), (7, 3), (10, 2), (16, 4), (100, 10)] {
            let choice = Choice::new(servers);
            let mut keys = Random::new(1, 1);
            let requests = 40_000u32;
            let mut pairs = vec![0u32; (servers * servers) as usize];
            for _ in 0..requests {
                let key = keys.bits();
                let asked: Vec<u32> = (0..servers).filter(|&n| choice.place(key, n) < fanout).collect();
                assert_eq!(asked.len() as u32, fanout);
                for &one in &asked {
                    for &other in &asked {
                        pairs[(one * servers + other) as usize] += 1;
                    }
                }
            }
            let of = |count: u32, chance: f64| {
                let expected = f64::from(requests) * chance;
                (f64::from(count) - expected) / (expected * (1.0 - chance)).sqrt()
            };
            let alone = f64::from(fanout) / f64::from(servers);
            let both = alone * f64::from(fanout - 1) / f64::from((servers - 1).max(1));
            for (at, &count) in pairs.iter().enumerate() {
                let (one, other) = (at as u32 / servers, at as u32 % servers);
                let off = if one == other { of(count, alone) } else { of(count, both) };
                // The largest of 10,000 normal errors is four.
                assert!(both == 0.0 && one != other || off.abs() < 5.0, "{servers}/{fanout}: {one}, {other}: {off}");
            }
        }
    }

    proptest! {
        #[test]
        fn places_are_a_permutation_that_can_be_undone(servers in 1u32..300, key: u64) {
            let choice = Choice::new(servers);
            let mut places: Vec<u32> = (0..servers).map(|server| choice.place(key, server)).collect();
            for (server, &place) in places.iter().enumerate() {
                prop_assert_eq!(choice.server(key, place), server as u32);
            }
            places.sort_unstable();
            prop_assert!(places.iter().copied().eq(0..servers));
        }
    }
}
