//! How long requests take in bursts, by the size of the burst: learned from completions.
//!
//! The *size* of a burst is the number of requests in service just after its release, those of an
//! earlier burst included: they compete with these. Sizes are taken together in classes that double
//! (1, 2, 3-4, 5-8, ...). The *tail* of a class is the longest of its last completions. The next
//! one of n is longer than all before with probability 1/(n + 1), whatever the distribution; and
//! old completions are forgotten.
//!
//! A class that is not known is taken to be slower than the next smaller known one in proportion to
//! its size, as if requests queued for a single CPU; where no smaller one is known, as slow as the
//! next larger. The memory of a class fades while others are in use: or a class that was slow once
//! would be avoided, never seen again, and slow for ever.
//!
//! Invariants: something is known of every size as soon as it is of any.

use crate::wake_plan::recent::Recent;
use machine::Duration;
use serde::{Deserialize, Serialize};

/// Classes of size: the last begins at 2^14 + 1.
const CLASSES: usize = 16;

/// Every so many completions each class but the one in use forgets its oldest. 16 (ours): a class
/// out of use is forgotten after some thousands.
const FADING: u64 = 16;

/// Completions by the size of their burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tails {
    first: u16,
    completions: u64,
    classes: Vec<Recent>,
}

impl Tails {
    /// Remembers `history` completions of each class, and knows a class after `first`.
    pub fn new(history: u16, first: u16) -> Self {
        let first = first.clamp(1, history.max(1));
        Self { first, completions: 0, classes: vec![Recent::new(history); CLASSES] }
    }

    /// A request of a burst of `size` took `latency` from its release.
    pub fn handle_completed(&mut self, size: u32, latency: Duration) {
        let class = class(size);
        self.classes[class].push(i64::try_from(latency.as_nanos()).unwrap_or(i64::MAX));
        self.completions += 1;
        if self.completions.is_multiple_of(FADING) {
            let others = self.classes.iter_mut().enumerate().filter(|&(other, _)| other != class);
            others.for_each(|(_, class)| class.forget_oldest());
        }
    }

    /// How long the slowest request of a burst of `size` is expected to take; `None` while no class
    /// is known.
    pub fn tail(&self, size: u32) -> Option<Duration> {
        let class = class(size);
        let longest = |class: usize| Some(Duration::from_nanos(self.classes[class].max()?.max(0) as u64));
        if self.knows_class(class) {
            return longest(class);
        }
        if let Some(smaller) = (0..class).rev().find(|&class| self.knows_class(class)) {
            return Some(longest(smaller)?.scale(f64::from(size) / f64::from(1_u32 << smaller)));
        }
        longest((class + 1..CLASSES).find(|&class| self.knows_class(class))?)
    }

    /// True if bursts of this size have been seen often enough.
    pub fn knows(&self, size: u32) -> bool {
        self.knows_class(class(size))
    }

    fn knows_class(&self, class: usize) -> bool {
        self.classes[class].len() >= usize::from(self.first)
    }
}

/// Class n reaches to 2^n.
fn class(size: u32) -> usize {
    let class = (size.max(1) - 1).checked_ilog2().map_or(0, |log| log + 1);
    (class as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_tail_is_the_longest_of_the_last() {
        let mut tails = Tails::new(10, 3);
        [5, 90, 7].into_iter().for_each(|latency| tails.handle_completed(4, ms(latency)));
        assert_eq!((tails.tail(4), tails.tail(3), tails.tail(2)), (Some(ms(90)), Some(ms(90)), Some(ms(90))));
        (0..10).for_each(|_| tails.handle_completed(3, ms(8)));
        assert_eq!(tails.tail(4), Some(ms(8)));
    }

    #[test]
    fn an_unknown_class_is_slower_in_proportion() {
        let mut tails = Tails::new(10, 3);
        (0..3).for_each(|_| tails.handle_completed(4, ms(20)));
        assert!(tails.knows(4) && !tails.knows(5));
        assert_eq!((tails.tail(5), tails.tail(16)), (Some(ms(25)), Some(ms(80))));
        (0..3).for_each(|_| tails.handle_completed(16, ms(30)));
        assert_eq!(tails.tail(16), Some(ms(30)));
    }

    #[test]
    fn of_several_smaller_classes_the_next_one_tells() {
        let mut tails = Tails::new(10, 3);
        for _ in 0..3 {
            tails.handle_completed(1, ms(10));
            tails.handle_completed(4, ms(30));
        }
        assert_eq!((tails.tail(2), tails.tail(8)), (Some(ms(20)), Some(ms(60))));
    }

    #[test]
    fn sizes_beyond_the_last_class_are_in_it() {
        assert_eq!([1, 2, 3, 4, 5, 16_384, 16_385, u32::MAX].map(class), [0, 1, 2, 2, 3, 14, 15, 15]);
    }

    #[test]
    fn what_is_known_of_a_class_out_of_use_fades() {
        let mut tails = Tails::new(10, 3);
        (0..10).for_each(|_| tails.handle_completed(16, ms(900)));
        assert_eq!((tails.tail(16), tails.tail(2)), (Some(ms(900)), Some(ms(900))));
        (0..200).for_each(|_| tails.handle_completed(8, ms(10)));
        assert_eq!(tails.tail(16), Some(ms(20)));
    }
}
