//! What happens next.
//!
//! Nearly every event belongs to a core, and a core waits for one thing at a time: the end of its work, of its wake-up,
//! or of a sleep that a timer ends. So there is one slot per core, scanned for the smallest; that beats a heap up to
//! some tens of cores, and for more the slots are grouped so that only the groups that changed and the groups' minima
//! are looked at. Moving an event is overwriting its slot: nothing is cancelled lazily. What is rare, or has no core, lies in a heap.
//!
//! A slot holds the time with the core's number in its lowest bits, so that the minimum names its core and equal times
//! fall due in order of number. It is kept as the floating-point number that has these bits: of positive numbers the
//! order of the bits is the order of the values, and every x86-64 has an instruction for the smaller of two pairs of
//! those, while for 64-bit integers only newer ones do. The exponent's highest bit is always set, which keeps them from
//! being denormal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No time: the slot is empty.
pub const NEVER: u64 = LARGEST >> CORE_BITS;
/// So many bits of a slot name the core: 1024 CPUs, and 52 days in nanoseconds above them.
const CORE_BITS: u32 = 10;
/// The exponent's highest bit.
const NORMAL: u64 = 1 << 62;
/// The largest that still is a finite number.
const LARGEST: u64 = (1 << 62) - (1 << 52) - 1;
const GROUP: usize = 16;
const EMPTY: f64 = f64::INFINITY;

/// The events ahead.
#[derive(Clone, Debug)]
pub struct Agenda<R> {
    slots: Vec<f64>,
    groups: Vec<f64>,
    /// Groups whose minimum is not known any more, as bits.
    changed: u64,
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
            changed: 0,
            rare: BinaryHeap::new(),
            rare_at: NEVER,
            sequence: 0,
        }
    }

    /// The core's next event is at `at` from now on.
    #[inline]
    pub fn set(&mut self, core: usize, at: u64) {
        self.slots[core] =
            if at >= NEVER { EMPTY } else { f64::from_bits(NORMAL | at << CORE_BITS | core as u64) };
        self.changed |= 1 << (core / GROUP);
    }

    /// The core waits for nothing.
    #[inline]
    pub fn clear(&mut self, core: usize) {
        self.set(core, NEVER);
    }

    /// When the core's event is due; [`NEVER`] if it waits for nothing.
    #[inline]
    pub fn due(&self, core: usize) -> u64 {
        time(self.slots[core])
    }

    /// The earliest event of a core: when, and whose. [`NEVER`] if there is none.
    #[inline]
    pub fn next_core(&mut self) -> (u64, usize) {
        let mut changed = std::mem::take(&mut self.changed);
        while changed != 0 {
            let group = changed.trailing_zeros() as usize;
            changed &= changed - 1;
            self.groups[group] = least_of(&self.slots[group * GROUP..][..GROUP]);
        }
        let least = if self.groups.len() == 1 { self.groups[0] } else { least_of(&self.groups) };
        (time(least), (least.to_bits() & ((1 << CORE_BITS) - 1)) as usize)
    }

    /// Something rare happens at `at`.
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

#[inline]
fn time(slot: f64) -> u64 {
    if slot == EMPTY { NEVER } else { (slot.to_bits() & !NORMAL) >> CORE_BITS }
}

/// The smallest, in strands that do not wait for each other.
#[inline]
fn least_of(slots: &[f64]) -> f64 {
    // Not `f64::min`, which looks for NaN.
    let smaller = |one: f64, other: f64| if one < other { one } else { other };
    let mut least = [EMPTY; 8];
    let eights = slots.chunks_exact(8);
    let rest = eights.remainder().iter().copied().fold(EMPTY, smaller);
    for eight in eights {
        for (least, &slot) in least.iter_mut().zip(eight) {
            *least = smaller(slot, *least);
        }
    }
    least.into_iter().fold(rest, smaller)
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
