//! How many requests more than cores are usual in a steady load.
//!
//! The model knows chance, and none of the other work of the cores: a daemon that takes one for a
//! millisecond lengthens the queue fifty times a second. The plan's tail has that in it, as its correction
//! is measured. An alarm for each would wake cores that the goal does not need.
//!
//! Invariants: epochs in which the load changed teach nothing; a queue that is seen often enough is never
//! an alarm, and one that fills the goal always is (`guard`).

use serde::{Deserialize, Serialize};

/// Longer queues count as so long.
const LONGEST: usize = 31;
/// A queue that so much of the misses that the goal allows would find is usual \[D\].
const OF_MISSES: f64 = 0.1;
/// As many allowed misses as are remembered \[D\]: that many tenths tell a tenth from chance.
const REMEMBERED: f64 = 300.0;

/// Requests by how many more than the plan's cores they found, themselves included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Usual {
    epoch: [u32; LONGEST + 1],
    before: [f64; LONGEST + 1],
}

impl Usual {
    pub fn new() -> Self {
        Self { epoch: [0; LONGEST + 1], before: [0.0; LONGEST + 1] }
    }

    #[inline]
    pub fn record(&mut self, more: u32) {
        self.epoch[(more as usize).min(LONGEST)] += 1;
    }

    pub fn end_epoch(&mut self, has_changed: bool, quantile: f64) {
        let epoch = std::mem::take(&mut self.epoch);
        if has_changed {
            return;
        }
        for (before, count) in self.before.iter_mut().zip(epoch) {
            *before += f64::from(count);
        }
        let remembered = REMEMBERED / (1.0 - quantile);
        let kept = (remembered / self.before.iter().sum::<f64>()).min(1.0);
        self.before.iter_mut().for_each(|before| *before *= kept);
    }

    /// So many more than cores are found that often that they are no alarm.
    pub fn most(&self, quantile: f64) -> u32 {
        let rare = self.before.iter().sum::<f64>() * (1.0 - quantile) * OF_MISSES;
        let mut beyond = 0.0;
        let is_usual = |count: &f64| {
            beyond += count;
            beyond > rare
        };
        self.before.iter().rposition(is_usual).map_or(0, |most| most as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_queue_that_a_tenth_of_the_allowed_misses_finds_is_usual() {
        let mut usual = Usual::new();
        assert_eq!(usual.most(0.99), 0);
        (0..10_000).for_each(|_| usual.record(0));
        (0..20).for_each(|_| usual.record(3));
        (0..8).for_each(|_| usual.record(40));
        usual.end_epoch(false, 0.99);
        assert_eq!(usual.most(0.99), 3);
        assert_eq!(usual.most(0.999), 31);
    }

    #[test]
    fn a_load_that_changes_teaches_nothing_and_old_queues_are_forgotten() {
        let mut usual = Usual::new();
        let mut epoch = |more: u32, has_changed: bool| {
            (0..10_000).for_each(|_| usual.record(more));
            usual.end_epoch(has_changed, 0.99);
            usual.most(0.99)
        };
        assert_eq!([epoch(0, false), epoch(9, true), epoch(2, false)], [0, 0, 2]);
        let last = (0..60).map(|_| epoch(1, false)).last();
        assert_eq!(last, Some(1));
    }
}
