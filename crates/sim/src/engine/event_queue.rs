//! The events that come next.
//!
//! Nearly every event belongs to a core, and a core waits for one thing at a time: the end of its
//! work, of its wake-up, or of a sleep that a timer ends. So there is one slot per core, and a
//! *tournament* over the slots: a tree, in an array, in which every node is the least of the four
//! below it. The next event is the one at its top. Moving an event is overwriting its slot and
//! playing again the matches on the way up, two for ten cores: no branch depends on the winners,
//! and nothing is cancelled lazily. An event that is rare, or has no core, lies in a heap.
//!
//! A slot holds the time with the core's number in its lowest bits, so that the least slot names
//! its core and equal times fall due in order of number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::select_unpredictable;

/// Later than every time, 52 days in nanoseconds: the slot is empty.
pub const NEVER: u64 = (1 << 52) - 1;
/// So many bits of a slot name the core: 1024 CPUs.
const CORE_BITS: u32 = 10;
/// As many as the largest machine needs, 1024 slots above 256 and so on: indices masked to it need
/// no check.
const NODES: usize = 2 << CORE_BITS;

#[derive(Clone, Debug)]
pub struct EventQueue<R> {
    /// The tournament: below node n are 4 n to 4 n + 3, at the top is node 1. The slots are the
    /// lowest row.
    nodes: Box<[u64; NODES]>,
    /// The first slot's node, a power of four.
    slots: usize,
    rare: BinaryHeap<Reverse<Rare<R>>>,
    /// When the first of them is due.
    rare_at: u64,
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

impl<R> EventQueue<R> {
    /// Nothing ahead for any of `cores` cores.
    ///
    /// # Panics
    /// If there are more than 1024.
    pub fn new(cores: usize) -> Self {
        assert!(cores <= 1 << CORE_BITS, "{cores} CPUs are more than a slot can name");
        let slots = (0..).map(|row| 4usize << (2 * row)).find(|slots| *slots >= cores).unwrap_or(NODES / 2);
        let mut events = Self {
            nodes: Box::new([u64::MAX; NODES]),
            slots,
            rare: BinaryHeap::new(),
            rare_at: NEVER,
            sequence: 0,
        };
        (0..cores).for_each(|core| events.clear(core));
        events
    }

    /// The core's next event is at `at` from now on.
    #[inline]
    pub fn set(&mut self, core: usize, at: u64) {
        let mut least = at.min(NEVER) << CORE_BITS | core as u64;
        let mut node = self.node(core);
        self.nodes[node] = least;
        while node > 1 {
            let others = [node ^ 1, node ^ 2, node ^ 3].map(|other| self.nodes[other]);
            least = lesser(least, lesser(others[0], lesser(others[1], others[2])));
            node /= 4;
            self.nodes[node] = least;
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
        self.nodes[self.node(core)] >> CORE_BITS
    }

    #[inline]
    fn node(&self, core: usize) -> usize {
        (self.slots + core) % NODES
    }

    /// The earliest event of a core: when, and whose. [`NEVER`] if there is none.
    #[inline]
    pub fn next_core(&self) -> (u64, usize) {
        let least = self.nodes[1];
        (least >> CORE_BITS, (least & ((1 << CORE_BITS) - 1)) as usize)
    }

    /// Adds a rare event, which happens at `at`.
    pub fn add(&mut self, at: u64, what: R) {
        self.sequence += 1;
        self.rare_at = self.rare_at.min(at);
        self.rare.push(Reverse(Rare { at, sequence: self.sequence, what }));
    }

    /// When the next rare event is due.
    #[inline]
    pub fn next_rare(&self) -> u64 {
        self.rare_at
    }

    /// The next rare event; those of equal time in the order in which they were added.
    pub fn pop_rare(&mut self) -> Option<R> {
        let next = self.rare.pop();
        self.rare_at = self.rare.peek().map_or(NEVER, |Reverse(rare)| rare.at);
        next.map(|Reverse(rare)| rare.what)
    }
}

/// Which it is cannot be foreseen: a branch would cost more than all the rest.
#[inline]
fn lesser(one: u64, other: u64) -> u64 {
    select_unpredictable(one < other, one, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_earliest_event_is_found_whatever_is_moved(
            cores in prop_oneof![1usize..70, Just(1024)],
            moves in prop::collection::vec((0usize..1024, 0u64..1000), 1..200),
        ) {
            let mut events = EventQueue::<()>::new(cores);
            let mut plain = vec![NEVER; cores];
            for (core, at) in moves {
                let core = core % cores;
                // Now and then a slot is emptied.
                let at = if at % 7 == 0 { NEVER } else { at };
                events.set(core, at);
                plain[core] = at;
                let least = plain.iter().copied().min().unwrap();
                let (found, whose) = events.next_core();
                prop_assert_eq!(found, least);
                prop_assert!(least == NEVER || plain.iter().position(|&due| due == least) == Some(whose));
                prop_assert_eq!(events.due(core), at);
            }
        }
    }

    #[test]
    fn rare_events_of_equal_time_keep_their_order() {
        let mut events = EventQueue::new(1);
        for (at, what) in [(5, 'b'), (3, 'a'), (5, 'c'), (5, 'd')] {
            events.add(at, what);
        }
        let order: String = std::iter::from_fn(|| events.pop_rare()).collect();
        assert_eq!(order, "abcd");
        assert_eq!(events.next_rare(), NEVER);
    }
}
