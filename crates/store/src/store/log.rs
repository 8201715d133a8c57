//! The segments that items are appended to, and the two queues that they form.
//!
//! A location is 32 bits: the segment's number, then the place in the segment in units of 8 bytes.
//! A shard has two logs, *probation* and *main*; each has one active segment that is appended to,
//! and its sealed segments in the order in which they were sealed. Segments that hold nothing are
//! *free*: some are kept for the next opening, others go back to the shard's account.
//!
//! Dead records (replaced, removed, moved) stay where they are until their segment is cleaned. A
//! sealed segment whose last record dies is free at once; an active one is rewound.
//!
//! Always true: `live` of a segment is the sum of the lengths of its records that are not dead, and
//! the *weight* of a queue is the sum over its segments of `live` and of the pages of their large
//! values.

use super::{
    memory::Memory,
    record::{ALIGN, Record},
};
use std::ptr::NonNull;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// New items wait here to be used a second time.
    Probation = 0,
    Main = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No memory, or memory that nothing lives in.
    Free,
    Active(Queue),
    Sealed(Queue),
    /// Taken out of its queue to be cleaned.
    Victim(Queue),
}

struct Segment {
    base: NonNull<u8>,
    state: State,
    /// Bytes appended.
    used: u32,
    /// Bytes of records that are not dead.
    live: u32,
    /// Pages of the large values of records that are not dead, in bytes.
    large: usize,
    previous: u32,
    next: u32,
    /// No item here expires before this second; `u32::MAX` if none expires at all.
    pub soonest_expiry: u32,
    /// How many flushes had taken effect when the segment was last known to hold nothing flushed.
    pub flushes: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

pub(super) struct Log {
    segments: Vec<Segment>,
    /// Numbers whose segments have no memory.
    vacant: Vec<u32>,
    /// Segments with memory that nothing lives in.
    free: Vec<u32>,
    active: [u32; 2],
    sealed: [List; 2],
    weight: [usize; 2],
    segment_bytes: usize,
    /// Bits of a location that are the place in the segment.
    place_bits: u32,
    /// Pages of large values above which an active segment is sealed.
    large_max: usize,
}

impl Log {
    pub(super) fn new(segment_bytes: usize, large_max: usize) -> Self {
        Self {
            segments: Vec::new(),
            vacant: Vec::new(),
            free: Vec::new(),
            active: [NONE; 2],
            sealed: [List { head: NONE, tail: NONE }; 2],
            weight: [0; 2],
            segment_bytes,
            place_bits: (segment_bytes / ALIGN).ilog2(),
            large_max,
        }
    }

    /// The record at a location that the index or [`Self::records`] named.
    pub(super) fn record(&self, location: u32) -> Record {
        let segment = &self.segments[(location >> self.place_bits) as usize];
        let place = location as usize & ((1 << self.place_bits) - 1);
        // SAFETY: locations are made by `append` only, 8-aligned and within the segment; the log is
        // reached through the shard's lock alone.
        unsafe { Record::at(segment.base.add(place * ALIGN)) }
    }

    /// Whether the queue's active segment takes a record of `len` bytes.
    pub(super) fn has_room(&self, queue: Queue, len: usize) -> bool {
        let active = self.active[queue as usize];
        active != NONE && {
            let segment = &self.segments[active as usize];
            segment.used as usize + len <= self.segment_bytes && segment.large <= self.large_max
        }
    }

    /// Room for a record at the end of the queue, which must [have it](Self::has_room).
    pub(super) fn append(&mut self, queue: Queue, len: usize, large: usize) -> (u32, NonNull<u8>) {
        debug_assert!(self.has_room(queue, len) && len.is_multiple_of(ALIGN));
        let number = self.active[queue as usize];
        let segment = &mut self.segments[number as usize];
        let place = segment.used as usize;
        segment.used += len as u32;
        segment.live += len as u32;
        segment.large += large;
        self.weight[queue as usize] += len + large;
        // SAFETY: there is room for the record.
        let room = unsafe { segment.base.add(place) };
        ((number << self.place_bits) | (place / ALIGN) as u32, room)
    }

    /// Notes that the record at `location` died. Its segment may become free with that.
    pub(super) fn bury(&mut self, location: u32, len: usize, large: usize, memory: &mut Memory) {
        let number = location >> self.place_bits;
        let segment = &mut self.segments[number as usize];
        segment.live -= len as u32;
        segment.large -= large;
        match segment.state {
            State::Active(queue) | State::Sealed(queue) | State::Victim(queue) => {
                self.weight[queue as usize] -= len + large;
            }
            State::Free => unreachable!("a record died in a free segment"),
        }
        if segment.live == 0 {
            match segment.state {
                State::Active(_) => {
                    segment.used = 0;
                    segment.soonest_expiry = u32::MAX;
                }
                State::Sealed(queue) => {
                    self.unlink(number, queue);
                    self.retire(number, memory);
                }
                State::Victim(_) | State::Free => (),
            }
        }
    }

    /// Seals the queue's active segment and opens another, on memory that is free beyond `keep`
    /// segments or that the shard may still acquire. `flushes` is the count of flushes so far.
    pub(super) fn open(&mut self, queue: Queue, keep: usize, flushes: u32, memory: &mut Memory) -> bool {
        let number = if self.free.len() > keep {
            self.free.pop().expect("more than `keep`")
        } else {
            match self.acquire(memory) {
                Some(number) => number,
                None => return false,
            }
        };
        self.seal(queue, memory);
        let segment = &mut self.segments[number as usize];
        segment.state = State::Active(queue);
        segment.used = 0;
        segment.soonest_expiry = u32::MAX;
        segment.flushes = flushes;
        self.active[queue as usize] = number;
        true
    }

    /// Acquires memory for one more free segment.
    pub(super) fn stock(&mut self, memory: &mut Memory) -> bool {
        match self.acquire(memory) {
            Some(number) => {
                self.free.push(number);
                true
            }
            None => false,
        }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Gives a free segment beyond `keep` back to the shard's account.
    pub(super) fn yield_free(&mut self, keep: usize, memory: &mut Memory) -> bool {
        if self.free.len() <= keep {
            return false;
        }
        let number = self.free.pop().expect("more than `keep`");
        // SAFETY: acquired by `acquire` with this size; nothing lives in a free segment.
        unsafe { memory.release(self.segments[number as usize].base, self.segment_bytes) };
        self.vacant.push(number);
        true
    }

    /// Bytes that the items of a queue occupy.
    pub(super) fn weight(&self, queue: Queue) -> usize {
        self.weight[queue as usize]
    }

    /// Segments, with memory or without, that were ever numbered.
    pub(super) fn numbered(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Of `count` segments after number `from`, the sealed one with the smallest part alive, if
    /// that is below `percent` of its appended bytes.
    pub(super) fn sparsest(&self, from: u32, count: u32, percent: u64) -> Option<u32> {
        let numbers = (0..count.min(self.numbered())).map(|i| (from + i) % self.numbered());
        numbers
            .filter(|&number| matches!(self.segments[number as usize].state, State::Sealed(_)))
            .map(|number| {
                let segment = &self.segments[number as usize];
                (u64::from(segment.live) * 100 / u64::from(segment.used), number)
            })
            .min()
            .filter(|&(alive, _)| alive < percent)
            .map(|(_, number)| number)
    }

    /// The oldest segment of the queue; its active one if none is sealed.
    pub(super) fn oldest(&mut self, queue: Queue, memory: &mut Memory) -> Option<u32> {
        if self.sealed[queue as usize].head == NONE {
            self.seal(queue, memory);
        }
        let head = self.sealed[queue as usize].head;
        (head != NONE).then_some(head)
    }

    /// Takes a sealed segment out of its queue, to be cleaned. Returns the queue.
    pub(super) fn take(&mut self, number: u32) -> Queue {
        let State::Sealed(queue) = self.segments[number as usize].state else {
            unreachable!("only sealed segments are cleaned");
        };
        self.unlink(number, queue);
        self.segments[number as usize].state = State::Victim(queue);
        queue
    }

    pub(super) fn finish(&mut self, number: u32, memory: &mut Memory) {
        debug_assert!(matches!(self.segments[number as usize].state, State::Victim(_)));
        debug_assert_eq!(self.segments[number as usize].live, 0);
        self.retire(number, memory);
    }

    /// Whether the segment is sealed.
    pub(super) fn is_sealed(&self, number: u32) -> bool {
        matches!(self.segments[number as usize].state, State::Sealed(_))
    }

    /// Bytes appended to the segment, and of those the bytes alive.
    pub(super) fn fill(&self, number: u32) -> (u32, u32) {
        let segment = &self.segments[number as usize];
        (segment.used, segment.live)
    }

    /// The location of the record at byte `offset` of a segment.
    pub(super) fn location(&self, number: u32, offset: u32) -> u32 {
        (number << self.place_bits) | (offset / ALIGN as u32)
    }

    /// Locations of the records of a segment, dead ones included, in order.
    pub(super) fn records(&self, number: u32) -> impl Iterator<Item = u32> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            (offset < self.segments[number as usize].used).then(|| {
                let location = self.location(number, offset);
                offset += self.record(location).shape().record_len() as u32;
                location
            })
        })
    }

    /// Notes that the record at `location` expires at `exptime`, if that is not 0.
    pub(super) fn note_expiry(&mut self, location: u32, exptime: u32) {
        if exptime != 0 {
            let soonest = &mut self.segments[(location >> self.place_bits) as usize].soonest_expiry;
            *soonest = exptime.min(*soonest);
        }
    }

    /// Whether a sealed segment may hold items that expired by `now` or were flushed since its last
    /// sweep.
    pub(super) fn may_hold_gone(&self, number: u32, now: u32, flushes: u32) -> bool {
        let segment = &self.segments[number as usize];
        self.is_sealed(number) && (segment.soonest_expiry <= now || segment.flushes != flushes)
    }

    /// Notes that a segment was swept: nothing in it expires before `soonest` or was flushed.
    pub(super) fn swept(&mut self, number: u32, soonest: u32, flushes: u32) {
        let segment = &mut self.segments[number as usize];
        segment.soonest_expiry = soonest;
        segment.flushes = flushes;
    }

    fn seal(&mut self, queue: Queue, memory: &mut Memory) {
        let number = std::mem::replace(&mut self.active[queue as usize], NONE);
        if number == NONE {
            return;
        }
        let list = &mut self.sealed[queue as usize];
        let tail = std::mem::replace(&mut list.tail, number);
        if tail == NONE {
            list.head = number;
        } else {
            self.segments[tail as usize].next = number;
        }
        let segment = &mut self.segments[number as usize];
        segment.state = State::Sealed(queue);
        segment.previous = tail;
        segment.next = NONE;
        if segment.live == 0 {
            self.unlink(number, queue);
            self.retire(number, memory);
        }
    }

    fn unlink(&mut self, number: u32, queue: Queue) {
        let Segment { previous, next, .. } = self.segments[number as usize];
        let list = &mut self.sealed[queue as usize];
        if previous == NONE {
            list.head = next;
        } else {
            self.segments[previous as usize].next = next;
        }
        if next == NONE {
            list.tail = previous;
        } else {
            self.segments[next as usize].previous = previous;
        }
    }

    /// Keeps an empty segment for the next opening, or gives its memory back if enough are kept.
    fn retire(&mut self, number: u32, memory: &mut Memory) {
        self.segments[number as usize].state = State::Free;
        self.free.push(number);
        self.yield_free(FREE_MAX, memory);
    }

    fn acquire(&mut self, memory: &mut Memory) -> Option<u32> {
        let numbers_max = 1 << (u32::BITS - self.place_bits);
        if self.vacant.is_empty() && self.segments.len() >= numbers_max {
            return None;
        }
        let base = memory.acquire(self.segment_bytes)?;
        let fresh = Segment {
            base,
            state: State::Free,
            used: 0,
            live: 0,
            large: 0,
            previous: NONE,
            next: NONE,
            soonest_expiry: u32::MAX,
            flushes: 0,
        };
        match self.vacant.pop() {
            Some(number) => {
                self.segments[number as usize] = fresh;
                Some(number)
            }
            None => {
                self.segments.push(fresh);
                Some(self.segments.len() as u32 - 1)
            }
        }
    }
}

/// Free segments kept for the next opening: one for the cleaner, one for new items and one to
/// spare.
const FREE_MAX: usize = 3;

#[cfg(test)]
impl Log {
    /// Recounts everything that the log keeps count of. Returns the locations of all live records
    /// and the bytes of memory that the segments take.
    pub(super) fn audit(&self) -> (Vec<u32>, usize) {
        let (mut alive, mut weight, mut sealed) = (Vec::new(), [0; 2], [0; 2]);
        for (number, segment) in self.segments.iter().enumerate() {
            let number = number as u32;
            let queue = match segment.state {
                State::Free => {
                    assert!(self.free.contains(&number) != self.vacant.contains(&number));
                    continue;
                }
                State::Active(queue) => {
                    assert_eq!(self.active[queue as usize], number);
                    queue
                }
                State::Sealed(queue) => {
                    assert!(segment.live > 0, "an empty segment is free");
                    sealed[queue as usize] += 1;
                    queue
                }
                State::Victim(queue) => queue,
            };
            let records = self.records(number).filter(|&location| !self.record(location).header().is_dead());
            let (mut live, mut large) = (0, 0);
            for location in records {
                let shape = self.record(location).shape();
                live += shape.record_len();
                large += super::memory::whole_pages(shape.large_len());
                alive.push(location);
            }
            assert_eq!((segment.live as usize, segment.large), (live, large));
            weight[queue as usize] += live + large;
        }
        assert_eq!(self.weight, weight);
        for queue in [Queue::Probation, Queue::Main] {
            let mut number = self.sealed[queue as usize].head;
            while number != NONE {
                assert_eq!(self.segments[number as usize].state, State::Sealed(queue));
                sealed[queue as usize] -= 1;
                number = self.segments[number as usize].next;
            }
        }
        assert_eq!(sealed, [0, 0], "every sealed segment is in its queue once");
        (alive, (self.segments.len() - self.vacant.len()) * self.segment_bytes)
    }
}
