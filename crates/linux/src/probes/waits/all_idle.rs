//! The time that all CPUs of the domain were idle at once, as the program counts it: read while it
//! counts.
//!
//! A CPU that begins to work adds to four words one after the other, and may be held up in between,
//! while another one reads. Each sum is kept twice, in a word of its own and over the buckets. The
//! program adds to the words first and this reads them last, so where both sums agree, nothing lay
//! in between.

use machine::{Duration, LengthHistogram};
use std::thread;

/// The time that all CPUs of the domain were idle at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllIdle {
    /// The sum, up to the last time that one of them began to work.
    pub time: Duration,
    pub times: u64,
    pub lengths: LengthHistogram,
}

/// Words of `struct desk`.
pub(super) const TIME: usize = 6;
const TIMES: usize = 7;
const LENGTHS: usize = 10;
/// A hypervisor that takes a CPU away in the middle gives it back by then, almost always.
const PATIENCE: Duration = Duration::from_millis(20);

impl AllIdle {
    /// A whole state, from words that change meanwhile. If the counting CPU is held up for longer
    /// than 20 ms, the state of the buckets, of which the last length may have no time yet.
    pub(super) fn read(word: impl Fn(usize) -> u64) -> Self {
        let patience = crate::now() + PATIENCE;
        Self::read_until(|| crate::now() > patience, word)
    }

    fn read_until(is_over: impl Fn() -> bool, word: impl Fn(usize) -> u64) -> Self {
        loop {
            let mut lengths = LengthHistogram::default();
            for (at, count) in lengths.counts.iter_mut().enumerate() {
                *count = word(LENGTHS + at);
            }
            for (at, time) in lengths.times.iter_mut().enumerate() {
                *time = Duration::from_nanos(word(LENGTHS + LengthHistogram::BUCKETS + at));
            }
            let read = Self { time: lengths.time(), times: lengths.count(), lengths };
            let is_whole = read.times == word(TIMES) && read.time.as_nanos() == word(TIME);
            if is_whole || is_over() {
                return read;
            }
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    const WORDS: usize = LENGTHS + 2 * LengthHistogram::BUCKETS;
    /// The program's steps for one length, a word at a time.
    const STEPS: usize = 4;

    fn add(words: &mut [u64], step: usize, length: Duration) {
        let bucket = LengthHistogram::bucket_of(length);
        let (word, more) = match step {
            0 => (TIME, length.as_nanos()),
            1 => (TIMES, 1),
            2 => (LENGTHS + bucket, 1),
            _ => (LENGTHS + LengthHistogram::BUCKETS + bucket, length.as_nanos()),
        };
        words[word] += more;
    }

    /// One length is added while the words are read: its first steps at one moment, the others at a
    /// later one.
    #[test]
    fn what_is_read_is_whole_whenever_it_is_added_to() {
        let reads = WORDS - LENGTHS + 2;
        let length = Duration::from_micros(5);
        for held_up_after in 1..=STEPS {
            for (first, gap) in (0..reads).flat_map(|first| [(first, 1), (first, 60), (first, 500)]) {
                let words = RefCell::new([0; WORDS]);
                let asked = Cell::new(0);
                // Without an end: a busy host may hold up this thread for longer than the patience.
                let never = || false;
                let read = AllIdle::read_until(never, |number| {
                    let moment = asked.replace(asked.get() + 1);
                    let steps = if moment == first {
                        0..held_up_after
                    } else if moment == first + gap {
                        held_up_after..STEPS
                    } else {
                        0..0
                    };
                    steps.for_each(|step| add(&mut *words.borrow_mut(), step, length));
                    words.borrow()[number]
                });
                let mut before = LengthHistogram::default();
                let state = (read.time, read.times, read.lengths.clone());
                if read.times > 0 {
                    before.record(length);
                }
                assert_eq!(state, (before.time(), before.count(), before), "{held_up_after} {first} {gap}");
            }
        }
    }

    #[test]
    fn who_is_held_up_for_ever_holds_up_nobody() {
        let mut words = [0; WORDS];
        add(&mut words, 0, Duration::from_millis(1));
        assert_eq!(AllIdle::read(|number| words[number]), AllIdle::default());
    }
}
