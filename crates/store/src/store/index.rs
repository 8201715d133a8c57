//! From a hash to locations: linear hashing over buckets of one cache line.
//!
//! Problem: a hash table that doubles by copying stops its shard for as long as the copy takes, and
//! needs the memory twice. Approach: linear hashing (W. Litwin, VLDB 1980). The table grows by one
//! bucket at a time: bucket `n - 2^k` is split, on one more bit of the hash, into itself and the
//! new bucket `n`. Nothing else moves. It shrinks the same way backwards.
//!
//! ```text
//!              one bucket = one cache line of 64 bytes
//!  +--------------------------+----------+-----------------------------------------+
//!  | 10 tags of 16 bits       | overflow | 10 locations of 32 bits                 |
//!  +--------------------------+----------+-----------------------------------------+
//! ```
//!
//! A *tag* is 16 bits of the hash that the bucket's number does not use, never 0; a tag of 0 is an
//! empty slot. Of 10 slots at most one in 6,500 look-ups meets a wrong tag, so nearly every look-up
//! touches one bucket and one record. At [`ITEMS_PER_BUCKET`] items for each bucket a slot costs
//! 9.5 to 10.1 bytes, overflow buckets included, depending on how far the current round of splits
//! has come, and 9 to 11 % of look-ups touch a second bucket.
//!
//! Buckets come in pieces of 16 KiB, so that nothing large is ever allocated, cleared or copied.
//!
//! Always true: a chain of buckets is filled from its front without holes, and each of its overflow
//! buckets holds at least one slot; `insert`, `remove`, `split` and `merge` each do work bounded by
//! one or two chains.

use super::memory::CHUNK_BYTES;
use std::ptr::NonNull;

/// Slots in a bucket: as many as fit a cache line beside the link to an overflow bucket.
const SLOTS: usize = 10;
/// Items for each primary bucket above which the table grows. At 7 an item costs 0.7 B more, at 9 a
/// tenth more of the look-ups touch a second line.
const ITEMS_PER_BUCKET: usize = 8;
/// Items for each primary bucket below which it shrinks: far enough from the other that it does not
/// swing.
const ITEMS_PER_BUCKET_MIN: usize = 2;
/// Buckets in one piece of the table.
const CHUNK_BUCKETS: usize = CHUNK_BYTES / size_of::<Bucket>();

#[repr(C, align(64))]
struct Bucket {
    tags: [u16; SLOTS],
    /// Number of the overflow bucket that continues this one, plus 1; 0 if none does.
    next: u32,
    locations: [u32; SLOTS],
}

const EMPTY: Bucket = Bucket { tags: [0; SLOTS], next: 0, locations: [0; SLOTS] };

impl Bucket {
    /// A bit for each slot that holds `tag`.
    fn matching(&self, tag: u16) -> u32 {
        let mut found = 0;
        for (slot, &other) in self.tags.iter().enumerate() {
            found |= u32::from(other == tag) << slot;
        }
        found
    }

    fn len(&self) -> usize {
        match self.matching(0) {
            0 => SLOTS,
            empty => empty.trailing_zeros() as usize,
        }
    }
}

/// Where an entry of the index lies. Good until the next insertion or removal.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    bucket: NonNull<Bucket>,
    number: u8,
}

/// The index of one shard. It owns pieces of memory that its shard acquired for it.
pub(super) struct Index {
    primary: Vec<NonNull<Bucket>>,
    overflow: Vec<NonNull<Bucket>>,
    buckets: usize,
    /// Unused overflow buckets, linked by `next`; a number plus 1, or 0.
    spare: u32,
    spares: usize,
    items: usize,
    /// The entries of the chain that is being split, kept for its allocation.
    splitting: Vec<(u16, u32)>,
}

impl Index {
    /// An empty index over its first piece.
    ///
    /// # Safety
    /// `chunk` spans [`CHUNK_BYTES`], is aligned to a page and is the index's alone until it is
    /// dropped.
    pub(super) unsafe fn new(chunk: NonNull<u8>) -> Self {
        let mut index = Self {
            primary: Vec::new(),
            overflow: Vec::new(),
            buckets: 0,
            spare: 0,
            spares: 0,
            items: 0,
            splitting: Vec::new(),
        };
        // SAFETY: as the caller promises.
        unsafe { index.add_primary(chunk) };
        index.buckets = CHUNK_BUCKETS;
        index
    }

    pub(super) fn len(&self) -> usize {
        self.items
    }

    /// Buckets that a hash can fall into.
    pub(super) fn buckets(&self) -> usize {
        self.buckets
    }

    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> usize {
        (self.primary.len() + self.overflow.len()) * CHUNK_BYTES
    }

    /// Asks the processor to fetch the bucket of `hash`.
    pub(super) fn prefetch(&self, hash: u64) {
        super::prefetch(self.primary(self.number(hash)).as_ptr());
    }

    /// Calls `visit` with each location in the bucket of `hash` whose tag agrees, overflow left
    /// out.
    pub(super) fn candidates(&self, hash: u64, mut visit: impl FnMut(u32)) {
        let bucket = self.read(self.primary(self.number(hash)));
        let mut found = bucket.matching(tag(hash));
        while found != 0 {
            visit(bucket.locations[found.trailing_zeros() as usize]);
            found &= found - 1;
        }
    }

    /// The entry of `hash` whose location `accepts`.
    pub(super) fn find(&self, hash: u64, mut accepts: impl FnMut(u32) -> bool) -> Option<(Slot, u32)> {
        let tag = tag(hash);
        let mut place = self.primary(self.number(hash));
        loop {
            let bucket = self.read(place);
            let mut found = bucket.matching(tag);
            while found != 0 {
                let number = found.trailing_zeros() as usize;
                let location = bucket.locations[number];
                if accepts(location) {
                    return Some((Slot { bucket: place, number: number as u8 }, location));
                }
                found &= found - 1;
            }
            match bucket.next {
                0 => return None,
                next => place = self.overflow(next),
            }
        }
    }

    /// Visits the bucket of the hashes that begin with `from`, both read from their last bit, and returns
    /// where the next one's begin; `None` after the last. Read so, a bucket's hashes are one range, and
    /// splits and merges only cut and join ranges.
    pub(super) fn walk(&self, from: u32, mut visit: impl FnMut(u32)) -> Option<u32> {
        let number = self.number(u64::from(from.reverse_bits()));
        let mut place = self.primary(number);
        loop {
            let bucket = self.read(place);
            bucket.locations[..bucket.len()].iter().for_each(|&location| visit(location));
            match bucket.next {
                0 => break,
                next => place = self.overflow(next),
            }
        }
        let half = self.buckets.next_power_of_two() / 2;
        let is_split = number >= half || number + half < self.buckets;
        let range = (1 << 32) / if is_split { 2 * half as u64 } else { half as u64 };
        u32::try_from((u64::from(from) / range + 1) * range).ok()
    }

    pub(super) fn relocate(&mut self, slot: Slot, location: u32) {
        self.write(slot.bucket).locations[slot.number as usize] = location;
    }

    /// Whether the next [`Self::insert`] has the overflow bucket that it may need.
    pub(super) fn is_ready(&self) -> bool {
        self.spares > 0
    }

    /// Adds an entry. The index must be [ready](Self::is_ready).
    pub(super) fn insert(&mut self, hash: u64, location: u32) {
        self.append(self.number(hash), tag(hash), location);
        self.items += 1;
    }

    /// Removes the entry of `hash` at `slot`; the last entry of the chain takes its place.
    pub(super) fn remove(&mut self, hash: u64, slot: Slot) {
        let mut before = None;
        let mut last = self.primary(self.number(hash));
        while self.read(last).next != 0 {
            before = Some(last);
            last = self.overflow(self.read(last).next);
        }
        let bucket = self.write(last);
        let end = bucket.len() - 1;
        let (tag, location) = (bucket.tags[end], bucket.locations[end]);
        let hole = self.write(slot.bucket);
        hole.tags[slot.number as usize] = tag;
        hole.locations[slot.number as usize] = location;
        self.write(last).tags[end] = 0;
        if end == 0
            && let Some(before) = before
        {
            let number = self.read(before).next;
            self.write(before).next = 0;
            self.give_spare(number);
        }
        self.items -= 1;
    }

    /// Whether there are so many entries that a bucket should be split.
    pub(super) fn wants_split(&self) -> bool {
        self.items > self.buckets * ITEMS_PER_BUCKET && self.buckets < u32::MAX as usize
    }

    /// Whether a split needs another [piece](Self::add_primary) first.
    pub(super) fn split_needs_chunk(&self) -> bool {
        self.buckets == self.primary.len() * CHUNK_BUCKETS
    }

    /// Splits the next bucket. `prefetch` is told every location whose hash will be asked for.
    pub(super) fn split(&mut self, prefetch: impl Fn(u32), hash_at: impl Fn(u32) -> u64) {
        let source = self.buckets & (floor_power_of_two(self.buckets) - 1);
        let mut entries = std::mem::take(&mut self.splitting);
        self.drain(source, &mut entries);
        entries.iter().for_each(|&(_, location)| prefetch(location));
        let target = self.primary(self.buckets);
        *self.write(target) = EMPTY;
        self.buckets += 1;
        // Two chains need no more overflow buckets than the one that was drained, so none is
        // lacking.
        for (tag, location) in entries.drain(..) {
            self.append(self.number(hash_at(location)), tag, location);
        }
        self.splitting = entries;
    }

    /// Whether there are so few entries that two buckets should be merged.
    pub(super) fn wants_merge(&self) -> bool {
        self.items < self.buckets * ITEMS_PER_BUCKET_MIN && self.buckets > CHUNK_BUCKETS && self.spares > 1
    }

    /// Undoes the last split. Returns a piece of memory that is no longer needed, if there is one.
    pub(super) fn merge(&mut self) -> Option<NonNull<u8>> {
        let mut entries = std::mem::take(&mut self.splitting);
        self.drain(self.buckets - 1, &mut entries);
        self.buckets -= 1;
        let target = self.buckets & (floor_power_of_two(self.buckets) - 1);
        for (tag, location) in entries.drain(..) {
            self.append(target, tag, location);
        }
        self.splitting = entries;
        // One empty piece stays, lest a table at the edge of a piece take and give it for ever.
        let idle = self.primary.len() * CHUNK_BUCKETS - self.buckets;
        if idle >= 2 * CHUNK_BUCKETS { self.primary.pop().map(NonNull::cast) } else { None }
    }

    /// Adds a piece for primary buckets.
    ///
    /// # Safety
    /// As [`Self::new`].
    pub(super) unsafe fn add_primary(&mut self, chunk: NonNull<u8>) {
        self.primary.push(Self::cleared(chunk));
    }

    /// Adds a piece for overflow buckets.
    ///
    /// # Safety
    /// As [`Self::new`].
    pub(super) unsafe fn add_overflow(&mut self, chunk: NonNull<u8>) {
        let first = self.overflow.len() * CHUNK_BUCKETS;
        self.overflow.push(Self::cleared(chunk));
        for number in (first..first + CHUNK_BUCKETS).rev() {
            self.give_spare(number as u32 + 1);
        }
    }

    fn cleared(chunk: NonNull<u8>) -> NonNull<Bucket> {
        let buckets = chunk.cast::<Bucket>();
        assert!(buckets.is_aligned());
        for i in 0..CHUNK_BUCKETS {
            // SAFETY: the piece has room for so many buckets and is the index's alone.
            unsafe { buckets.add(i).write(EMPTY) };
        }
        buckets
    }

    /// The bucket that `hash` belongs to: one bit of it less where this round's splits have not
    /// come by yet.
    fn number(&self, hash: u64) -> usize {
        let mask = self.buckets.next_power_of_two() - 1;
        let number = hash as u32 as usize & mask;
        if number < self.buckets { number } else { number & (mask >> 1) }
    }

    /// Adds an entry at the end of a chain.
    fn append(&mut self, number: usize, tag: u16, location: u32) {
        let mut place = self.primary(number);
        while self.read(place).next != 0 {
            place = self.overflow(self.read(place).next);
        }
        let mut len = self.read(place).len();
        if len == SLOTS {
            let next = self.take_spare();
            self.write(place).next = next;
            place = self.overflow(next);
            len = 0;
        }
        let bucket = self.write(place);
        bucket.tags[len] = tag;
        bucket.locations[len] = location;
    }

    /// Moves all entries of a chain to `entries` and frees its overflow buckets.
    fn drain(&mut self, number: usize, entries: &mut Vec<(u16, u32)>) {
        let mut place = self.primary(number);
        let mut overflow = 0;
        loop {
            let bucket = self.read(place);
            let len = bucket.len();
            entries.extend(bucket.tags[..len].iter().copied().zip(bucket.locations[..len].iter().copied()));
            let next = bucket.next;
            match overflow {
                0 => *self.write(place) = EMPTY,
                number => self.give_spare(number),
            }
            if next == 0 {
                return;
            }
            overflow = next;
            place = self.overflow(next);
        }
    }

    fn take_spare(&mut self) -> u32 {
        let number = self.spare;
        assert!(number != 0, "inserting into an index that was not ready");
        let place = self.overflow(number);
        self.spare = std::mem::take(&mut self.write(place).next);
        self.spares -= 1;
        number
    }

    fn give_spare(&mut self, number: u32) {
        let spare = std::mem::replace(&mut self.spare, number);
        let place = self.overflow(number);
        *self.write(place) = Bucket { next: spare, ..EMPTY };
        self.spares += 1;
    }

    fn primary(&self, number: usize) -> NonNull<Bucket> {
        // SAFETY: the offset is within the piece.
        unsafe { self.primary[number / CHUNK_BUCKETS].add(number % CHUNK_BUCKETS) }
    }

    fn overflow(&self, number_plus_1: u32) -> NonNull<Bucket> {
        let number = number_plus_1 as usize - 1;
        // SAFETY: the offset is within the piece.
        unsafe { self.overflow[number / CHUNK_BUCKETS].add(number % CHUNK_BUCKETS) }
    }

    fn read(&self, place: NonNull<Bucket>) -> &Bucket {
        // SAFETY: places come from `primary` and `overflow`; their buckets were initialised when
        // the piece was added and are borrowed together with the index.
        unsafe { place.as_ref() }
    }

    fn write(&mut self, mut place: NonNull<Bucket>) -> &mut Bucket {
        // SAFETY: as `read`, and the index is borrowed for writing.
        unsafe { place.as_mut() }
    }
}

/// Which shard-independent 16 bits of the hash stand in the bucket. Never 0.
fn tag(hash: u64) -> u16 {
    ((hash >> 40) as u16).max(1)
}

fn floor_power_of_two(n: usize) -> usize {
    1 << n.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        alloc::{Layout, alloc_zeroed, dealloc},
        collections::BTreeMap,
    };

    /// An index with memory of its own, whose locations are hashed by a fixed mixing function.
    struct Fixture {
        index: Option<Index>,
        chunks: Vec<NonNull<u8>>,
    }

    fn layout() -> Layout {
        Layout::from_size_align(CHUNK_BYTES, 4096).unwrap()
    }

    fn hash(location: u32) -> u64 {
        let mut hash = (u64::from(location) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        hash ^ hash >> 31
    }

    impl Fixture {
        fn new() -> Self {
            let mut fixture = Self { index: None, chunks: Vec::new() };
            let chunk = fixture.chunk();
            // SAFETY: the chunk is fresh and lives as long as the fixture.
            fixture.index = Some(unsafe { Index::new(chunk) });
            fixture
        }

        fn chunk(&mut self) -> NonNull<u8> {
            // SAFETY: the layout is not empty.
            let chunk = NonNull::new(unsafe { alloc_zeroed(layout()) }).unwrap();
            self.chunks.push(chunk);
            chunk
        }

        fn index(&mut self) -> &mut Index {
            self.index.as_mut().unwrap()
        }

        fn insert(&mut self, location: u32) {
            if !self.index().is_ready() {
                let chunk = self.chunk();
                // SAFETY: as in `new`.
                unsafe { self.index().add_overflow(chunk) };
            }
            self.index().insert(hash(location), location);
            if self.index().wants_split() {
                if self.index().split_needs_chunk() {
                    let chunk = self.chunk();
                    // SAFETY: as in `new`.
                    unsafe { self.index().add_primary(chunk) };
                }
                self.index().split(|_| (), hash);
            }
        }

        fn find(&mut self, location: u32) -> Option<(Slot, u32)> {
            self.index().find(hash(location), |found| found == location)
        }

        fn remove(&mut self, location: u32) {
            let (slot, _) = self.find(location).unwrap();
            self.index().remove(hash(location), slot);
            if self.index().wants_merge() {
                self.index().merge();
            }
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            self.index = None;
            for chunk in &self.chunks {
                // SAFETY: allocated in `chunk` with this layout; the index is gone.
                unsafe { dealloc(chunk.as_ptr(), layout()) };
            }
        }
    }

    const MANY: u32 = if cfg!(miri) { 3_000 } else { 60_000 };

    #[test]
    fn grows_and_shrinks_without_losing_an_entry() {
        let mut fixture = Fixture::new();
        for location in 0..MANY {
            fixture.insert(location);
        }
        assert_eq!(fixture.index().len(), MANY as usize);
        assert!((0..MANY).all(|location| fixture.find(location).is_some()));
        assert!(fixture.find(MANY).is_none());
        let grown = fixture.index().buckets();
        assert!(grown >= MANY as usize / ITEMS_PER_BUCKET);
        for location in (0..MANY).filter(|location| location % 16 != 0) {
            fixture.remove(location);
        }
        assert!(fixture.index().buckets() < grown / 2 || cfg!(miri));
        assert!((0..MANY).all(|location| fixture.find(location).is_some() == (location % 16 == 0)));
        for location in (0..MANY).filter(|location| location % 16 == 0) {
            fixture.remove(location);
        }
        assert_eq!(fixture.index().len(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs many entries")]
    fn an_entry_costs_about_ten_bytes() {
        let mut fixture = Fixture::new();
        for location in 0..1_000_000 {
            fixture.insert(location);
            if location > 200_000 && location % 10_000 == 0 {
                let each = fixture.index().bytes() as f64 / f64::from(location);
                assert!((9.0..10.5).contains(&each), "{each} bytes for each of {location}");
            }
        }
    }

    #[test]
    fn a_relocated_entry_is_found_at_its_new_place_only() {
        let mut fixture = Fixture::new();
        fixture.insert(5);
        let (slot, _) = fixture.find(5).unwrap();
        fixture.index().relocate(slot, 99);
        assert!(fixture.find(5).is_none());
        let found = fixture.index().find(hash(5), |location| location == 99);
        assert_eq!(found.unwrap().1, 99);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 64 },
            failure_persistence: None,
            ..Default::default()
        })]

        /// Few distinct hashes, so that chains grow long and holes are filled from other buckets of
        /// the chain.
        #[test]
        fn agrees_with_a_map_even_where_hashes_collide(
            steps in proptest::collection::vec((proptest::bool::weighted(0.6), 0u32..400), 1..1500)
        ) {
            let colliding = |location: u32| hash(location % 7);
            let mut fixture = Fixture::new();
            let mut model = BTreeMap::new();
            for (insert, location) in steps {
                let found = fixture.index().find(colliding(location), |found| found == location);
                assert_eq!(found.is_some(), model.contains_key(&location));
                match (insert, found) {
                    (true, None) => {
                        if !fixture.index().is_ready() {
                            let chunk = fixture.chunk();
                            // SAFETY: as in `new`.
                            unsafe { fixture.index().add_overflow(chunk) };
                        }
                        fixture.index().insert(colliding(location), location);
                        model.insert(location, ());
                    }
                    (false, Some((slot, _))) => {
                        fixture.index().remove(colliding(location), slot);
                        model.remove(&location);
                    }
                    _ => (),
                }
                assert_eq!(fixture.index().len(), model.len());
            }
        }
    }
}
