//! Which servers a request of the root asks, without a table.
//!
//! Every request has a *key*, and the key a permutation of the servers: a server's *place*. The
//! servers at the first `fanout` places are asked, so each request asks exactly so many, and each
//! server has the same share of all requests. A server finds out alone whether it is asked, in some
//! nanoseconds; nothing is stored per request and server.
//!
//! The permutation works on the numbers below the next power of two: rounds of multiplying by an
//! odd number, adding another, both from the key, and folding the upper half of the bits onto the
//! lower; each can be undone (Kensler, "Correlated multi-jittered sampling", Pixar 2013, shuffles
//! in the same manner). A number that lands beyond the last server is permuted again until it does
//! not, which keeps it a permutation.

/// An order of the servers for every key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    servers: u32,
    mask: u32,
    fold: u32,
    /// Bits of the key from one round to the next; together the rounds use all of it.
    stride: u32,
}

impl Choice {
    /// Among `servers` servers, at least one and at most 2^31.
    pub fn new(servers: u32) -> Self {
        let mask = servers.next_power_of_two() - 1;
        let bits = mask.count_ones();
        // Half of them, rounded up: folding twice is folding back. Few bits mix slowly.
        Self { servers, mask, fold: bits.div_ceil(2), stride: if bits <= FEW_BITS { 8 } else { 16 } }
    }

    /// The place of a server in the order of the request with this key, from 0.
    #[inline]
    pub fn place(&self, key: u64, server: u32) -> u32 {
        let mut x = server;
        loop {
            for at in (0..u64::BITS).step_by(self.stride as usize) {
                let (factor, summand) = parts(key, at);
                x = x.wrapping_mul(factor).wrapping_add(summand) & self.mask;
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
            for at in (0..u64::BITS).step_by(self.stride as usize).rev() {
                let (factor, summand) = parts(key, at);
                x ^= x >> self.fold;
                x = x.wrapping_sub(summand).wrapping_mul(inverse(factor)) & self.mask;
            }
            if x < self.servers {
                return x;
            }
        }
    }
}

/// The factor and the addend of a round: the bits of the key from `at` on. If few are needed, no
/// other round has them.
#[inline]
fn parts(key: u64, at: u32) -> (u32, u32) {
    let key = key.rotate_right(at);
    ((key >> FEW_BITS) as u32 | 1, key as u32)
}

/// Of an odd number, modulo 2^32.
fn inverse(factor: u32) -> u32 {
    // Newton's iteration doubles the bits that are right: three to begin with.
    let step = |inverse: u32| inverse.wrapping_mul(2u32.wrapping_sub(factor.wrapping_mul(inverse)));
    step(step(step(step(factor))))
}

/// So few bits need twice the rounds [D: with four, some pairs of four servers meet 5 % more often
/// than others].
const FEW_BITS: u32 = 4;

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
                assert!(
                    both == 0.0 && one != other || off.abs() < 5.0,
                    "{servers}/{fanout}: {one}, {other}: {off}"
                );
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
