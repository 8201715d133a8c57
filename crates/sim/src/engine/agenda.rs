//! What happens next.
//!
//! Nearly every event belongs to a core, and a core waits for one thing at a time: the end of its work, of its wake-up,
//! or of a sleep that a timer ends. So there is one slot per core, scanned for the smallest; that beats a heap up to
//! some tens of cores, and for more the slots are grouped so that only one group and the groups' minima are looked at.
//! Moving an event is overwriting its slot: nothing is cancelled lazily. What is rare, or has no core, lies in a heap.
//!
//! A slot holds the time with the core's number in its lowest bits, so that the minimum names its core and equal times
//! fall due in order of number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No time: the slot is empty.
pub const NEVER: u64 = u64::MAX >> CORE_BITS;
/// So many bits of a slot name the core: 1024 CPUs, and 208 days in nanoseconds above them.
const CORE_BITS: u32 = 10;
const GROUP: usize = 16;
const EMPTY: u64 = u64::MAX;

/// The events ahead.
#[derive(Clone, Debug)]
pub struct Agenda<R> {
    slots: Vec<u64>,
    groups: Vec<u64>,
    rare: BinaryHeap<Reverse<Rare<R>>>,
    sequence: u64,
}

#[derive(Clone, Debug)]
struct Rare<R> {
    at: u64,
    sequence: u64,
    what: R,
}
impl<R> PartialEq for Rare<R> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl<R> Eq for Rare<R> {}
impl<R> PartialOrd for Rare<R> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<R> Ord for Rare<R> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<R> Agenda<R> {
    /// Nothing ahead for any of `cores` cores.
    ///
    /// # Panics
    /// If there are more than 1024.
    pub fn new(cores: usize) -> Self {
        assert!(cores <= 1 << CORE_BITS, "{cores} CPUs are more than a slot can name");
        let groups = cores.div_ceil(GROUP);
        Self {
            slots: vec![EMPTY; groups * GROUP],
            groups: vec![EMPTY; groups],
            rare: BinaryHeap::new(),
            sequence: 0,
        }
    }

    /// The core's next event is at `at` from now on.
    #[inline]
    pub fn set(&mut self, core: usize, at: u64) {
        let slot = if at >= NEVER { EMPTY } else { at << CORE_BITS | core as u64 };
        let old = std::mem::replace(&mut self.slots[core], slot);
        let least = &mut self.groups[core / GROUP];
        if slot <= *least {
            *least = slot;
        } else if old == *least {
            let begin = core / GROUP * GROUP;
            *least = self.slots[begin..begin + GROUP].iter().copied().fold(EMPTY, u64::min);
        }
    }

    /// The core waits for nothing.
    #[inline]
    pub fn clear(&mut self, core: usize) {
        self.set(core, NEVER);
    }

    /// When the core's event is due; [`NEVER`] if it waits for nothing.
    #[inline]
    pub fn due(&self, core: usize) -> u64 {
        self.slots[core] >> CORE_BITS
    }

    /// The earliest event of a core: when, and whose. [`NEVER`] if there is none.
    #[inline]
    pub fn next_core(&self) -> (u64, usize) {
        let slot = self.groups.iter().copied().fold(EMPTY, u64::min);
        (slot >> CORE_BITS, (slot & ((1 << CORE_BITS) - 1)) as usize)
    }

    /// Something rare happens at `at`.
    pub fn add(&mut self, at: u64, what: R) {
        self.sequence += 1;
        self.rare.push(Reverse(Rare { at, sequence: self.sequence, what }));
    }

    /// When the next rare event is due.
    #[inline]
    pub fn next_rare(&self) -> u64 {
        self.rare.peek().map_or(NEVER, |Reverse(rare)| rare.at)
    }

    /// The next rare event; those of equal time in the order in which they were added.
    pub fn pop_rare(&mut self) -> Option<R> {
        self.rare.pop().map(|Reverse(rare)| rare.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_earliest_event_is_found_whatever_is_moved(
            cores in 1usize..70,
            moves in prop::collection::vec((0usize..70, 0u64..1000), 1..200),
        ) {
            let mut agenda = Agenda::<()>::new(cores);
            let mut plain = vec![NEVER; cores];
            for (core, at) in moves {
                let core = core % cores;
                // Now and then a slot is emptied.
                let at = if at % 7 == 0 { NEVER } else { at };
                agenda.set(core, at);
                plain[core] = at;
                let least = plain.iter().copied().min().unwrap();
                let (found, whose) = agenda.next_core();
                prop_assert_eq!(found, least);
                prop_assert!(least == NEVER || plain.iter().position(|&due| due == least) == Some(whose));
                prop_assert_eq!(agenda.due(core), at);
            }
        }
    }

    #[test]
    fn rare_events_of_equal_time_keep_their_order() {
        let mut agenda = Agenda::new(1);
        for (at, what) in [(5, 'b'), (3, 'a'), (5, 'c'), (5, 'd')] {
            agenda.add(at, what);
        }
        let order: String = std::iter::from_fn(|| agenda.pop_rare()).collect();
        assert_eq!(order, "abcd");
        assert_eq!(agenda.next_rare(), NEVER);
    }
}
