//! Whether the queue grows without end.
//!
//! If more work comes than can be done, the number in the system grows in proportion to the time,
//! and every figure of the response time depends on when one stopped looking. In the short run a
//! stable queue near its limit grows too; the difference is that its growth is chance.
//!
//! The number in the system is noted 32 to 64 times in a run, at equal distances in requests; when
//! 64 are noted every second one is dropped. The growth between notes over the *last half* of the
//! run is held against its own scatter. Noise without drift (a queue at its limit) gives a t of
//! about one, whatever the length of the run. A stable queue gives less: growth has to shrink
//! again. A drift gives a t that rises with the square root of the length: at a load of 1.02,
//! exponential gaps and services, it passes [`GROWS`] after some 250,000 requests.
//!
//! A run is called unstable when that happens at two successive doublings of its length, the first
//! after at least [`FIRST_LOOK`] requests, so that one burst, or a policy that wakes its cores
//! late, is no alarm.
//!
//! Not seen: instability within a few connections that is small beside all others, and a load that
//! changes slowly against the length of the run.

/// Watches the number in the system.
#[derive(Clone, Debug)]
pub(super) struct Stability {
    /// The number in the system at equal distances.
    notes: Vec<u64>,
    /// Number of observations from note to note.
    every: u64,
    left: u64,
    /// Doublings in a row that found growth.
    found: u32,
}

impl Stability {
    pub(super) fn new() -> Self {
        Self { notes: Vec::with_capacity(MOST), every: FIRST_EVERY, left: FIRST_EVERY, found: 0 }
    }

    /// So many are in the system; called once per request.
    #[inline]
    pub(super) fn observe(&mut self, in_system: u64) {
        self.left -= 1;
        if self.left == 0 {
            self.note(in_system);
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&mut self, in_system: u64) {
        self.notes.push(in_system);
        if self.notes.len() == MOST {
            if MOST as u64 * self.every >= FIRST_LOOK {
                self.found = if self.grows() { self.found + 1 } else { 0 };
            }
            let mut place = 0;
            self.notes.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.every *= 2;
        }
        self.left = self.every;
    }

    /// True once growth was found twice in a row.
    pub(super) fn is_unstable(&self) -> bool {
        self.found >= 2
    }

    /// True if the last half of the notes grew by more than chance: the verdict on a run that is
    /// over.
    pub(super) fn grows(&self) -> bool {
        let half = &self.notes[self.notes.len() / 2..];
        let (Some(first), Some(last)) = (half.first(), half.last()) else { return false };
        if half.len() < MOST / 4 || *last as f64 <= RISE * *first as f64 {
            return false;
        }
        let steps = (half.len() - 1) as f64;
        let mean = (*last as f64 - *first as f64) / steps;
        let variance =
            half.windows(2).map(|pair| (pair[1] as f64 - pair[0] as f64 - mean).powi(2)).sum::<f64>();
        mean * steps.sqrt() > GROWS * (variance / (steps - 1.0)).sqrt()
    }
}

/// The most notes [D].
const MOST: usize = 64;
/// Observations between the first notes [D]: a run of 2048 requests can be judged at its end.
const FIRST_EVERY: u64 = 64;
/// No verdict within a run before so many requests [D]: a hundredth of a second of simulation.
const FIRST_LOOK: u64 = 65_536;
/// Standard errors [D]: by chance, at a load of exactly one, less than once in 10,000 looks.
const GROWS: f64 = 5.0;
/// A straight line from zero doubles within the last half; by less than this factor nothing that
/// matters grows [D].
const RISE: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Random;

    /// Arrivals of an M/M/1 queue until it is called unstable, at most `most`.
    fn cries_after(load: f64, seed: u64, most: u64) -> Option<u64> {
        let mut random = Random::new(seed, 1);
        let mut stability = Stability::new();
        let mut in_system = 0u64;
        let mut arrivals = 0;
        while arrivals < most {
            if random.unit() < load / (1.0 + load) {
                in_system += 1;
                arrivals += 1;
                stability.observe(in_system);
                if stability.is_unstable() {
                    return Some(arrivals);
                }
            } else {
                // With no request there, no departure.
                in_system = in_system.saturating_sub(1);
            }
        }
        None
    }

    #[test]
    fn a_load_of_95_percent_is_no_alarm() {
        for seed in 1..=20 {
            assert_eq!(cries_after(0.95, seed, 1_100_000), None, "seed {seed}");
        }
    }

    #[test]
    fn two_percent_too_much_is_found_within_four_million_requests() {
        for seed in 1..=10 {
            assert!(cries_after(1.02, seed, 1 << 22).is_some(), "seed {seed}");
        }
    }

    #[test]
    fn half_too_much_is_found_at_the_second_look() {
        for seed in 1..=10 {
            assert_eq!(cries_after(1.5, seed, 1 << 20), Some(2 * FIRST_LOOK), "seed {seed}");
        }
    }

    #[test]
    fn a_short_run_is_judged_at_its_end() {
        let after = |growth: fn(u64) -> u64| {
            let mut stability = Stability::new();
            (0..5000).for_each(|n| stability.observe(growth(n)));
            stability.grows()
        };
        assert!(after(|n| n / 3));
        assert!(!after(|n| n % 7));
        assert!(!after(|_| 0));
        assert!(!after(|n| 100 - n / 100));
        assert!(!Stability::new().grows());
    }

    #[test]
    fn a_burst_that_drains_is_no_alarm() {
        let mut stability = Stability::new();
        for n in 0..1_000_000u64 {
            // Up for 120,000 requests, down again in as many, and quiet.
            stability.observe(if n < 120_000 { n } else { 240_000u64.saturating_sub(n) });
            assert!(!stability.is_unstable(), "{n}");
        }
    }
}
