//! One shard: an index, a log and the means to keep both within a quota. Reached through its lock
//! alone.

use super::{
    OutOfRoom, StoreStats, Summary,
    clean::Cleaning,
    events::{Event, Events},
    geometry::Geometry,
    ghost::Ghost,
    hash::KeyHasher,
    index::Index,
    log::{Log, Queue},
    memory::{CHUNK_BYTES, Memory, whole_pages},
    record::{FETCHED, Fresh, Header, Record, Shape},
    stats::class_of,
};
use memcache::Topics;
use std::ptr::NonNull;
use std::sync::Arc;

pub(super) struct Shard {
    pub geometry: Geometry,
    pub hasher: KeyHasher,
    pub memory: Memory,
    pub index: Index,
    pub log: Log,
    pub ghost: Option<Ghost>,
    pub cleaning: Option<Cleaning>,
    events: Arc<Events>,
    /// The segment that the next sweep for expired items looks at.
    pub sweep_at: u32,
    /// The newest second that any request came with.
    latest: u32,
    flush: Flush,
    /// The last CAS id given out.
    cas: u64,
    /// Counters; the sizes are filled in when asked.
    pub counts: StoreStats,
}

#[derive(Default)]
struct Flush {
    /// Items stored under another generation are gone.
    generation: u16,
    /// Items last touched before this second are gone.
    before: u32,
    /// `before` becomes this once it is reached; 0 if no flush is due.
    due: u32,
    count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// A client removed or replaced it.
    Removed,
    Gone,
    Evicted,
}

// SAFETY: the pointers that index, log and ghost hold stand for memory that the shard owns; nothing
// is tied to a thread.
unsafe impl Send for Shard {}

impl Shard {
    /// An empty shard. Fails if the kernel refuses the few pages to begin with.
    pub(super) fn new(
        geometry: Geometry,
        hasher: KeyHasher,
        mut memory: Memory,
        events: Arc<Events>,
    ) -> Result<Self, OutOfRoom> {
        let chunk = memory.acquire(CHUNK_BYTES).ok_or(OutOfRoom)?;
        // SAFETY: the chunk was acquired for the index alone.
        let index = unsafe { Index::new(chunk) };
        let mut log = Log::new(geometry.segment_bytes, geometry.quota / LARGE_SEGMENTS);
        for _ in 0..SPARE_SEGMENTS {
            if !log.stock(&mut memory) {
                return Err(OutOfRoom);
            }
        }
        Ok(Self {
            geometry,
            hasher,
            memory,
            index,
            log,
            ghost: None,
            cleaning: None,
            events,
            sweep_at: 0,
            latest: 0,
            flush: Flush::default(),
            cas: 0,
            counts: StoreStats::default(),
        })
    }

    /// Takes note of the time and returns the shard's own, which never goes back: each worker reads
    /// the clock for itself, and one that lags must not store an item that a flush just reached
    /// would take.
    pub(super) fn tick(&mut self, now: u32) -> u32 {
        self.latest = self.latest.max(now);
        if self.flush.due != 0 && self.flush.due <= self.latest {
            self.flush.before = self.flush.before.max(std::mem::take(&mut self.flush.due));
            self.flush.count += 1;
        }
        self.latest
    }

    /// The newest second that any request came with.
    pub(super) fn latest(&self) -> u32 {
        self.latest
    }

    /// Where the live item of `key` is; an item that is gone leaves on sight.
    pub(super) fn lookup(&mut self, key: &[u8], hash: u64, now: u32) -> Option<u32> {
        let location = self.locate(key, hash)?;
        let header = self.log.record(location).header();
        if self.is_gone(header, now) {
            let is_expired = header.exptime != 0 && header.exptime <= now;
            let count = if is_expired { &mut self.counts.get_expired } else { &mut self.counts.get_flushed };
            *count += 1;
            self.remove(location, hash, Leaving::Gone);
            return None;
        }
        Some(location)
    }

    /// Where the item of `key` is, gone or not.
    pub(super) fn locate(&self, key: &[u8], hash: u64) -> Option<u32> {
        self.index.find(hash, |location| self.log.record(location).key() == key).map(|(_, location)| location)
    }

    /// Whether an item has expired or was flushed.
    pub(super) fn is_gone(&self, header: &Header, now: u32) -> bool {
        (header.exptime != 0 && header.exptime <= now)
            || header.generation != self.flush.generation
            || header.last_access < self.flush.before
    }

    /// Flushes that took effect so far.
    pub(super) fn flushes(&self) -> u32 {
        self.flush.count
    }

    /// Items stored before second `at` are gone once it is reached; at once if it was.
    pub(super) fn flush_all(&mut self, at: u32) {
        if at > self.latest {
            self.flush.due = at;
            return;
        }
        self.flush.due = 0;
        self.flush.count += 1;
        match self.flush.generation.checked_add(1) {
            Some(next) => self.flush.generation = next,
            None => {
                // The generations begin again: nothing of an earlier one may be left. All of it is
                // flushed already, so this loses nothing; it is the one flush in 65,536 that takes
                // time.
                self.drop_everything();
                self.flush.generation = 0;
            }
        }
    }

    /// The next CAS id, or `explicit`. Never 0, and above all ids before it unless a client
    /// insists.
    pub(super) fn next_cas(&mut self, explicit: Option<u64>) -> u64 {
        match explicit {
            None | Some(0) => self.cas += 1,
            // Beyond this a client's number would use up the counter.
            Some(cas) if cas > u64::MAX / 2 => return cas,
            Some(cas) => {
                self.cas = self.cas.max(cas);
                return cas;
            }
        }
        self.cas
    }

    pub(super) fn summary(&self) -> Summary {
        Summary { cas: self.cas, flush_due: self.flush.due }
    }

    pub(super) fn resume(&mut self, earlier: Summary) {
        self.cas = self.cas.max(earlier.cas);
        self.flush.due = earlier.flush_due;
    }

    /// Stores an item in place of the one at `old`. Its value is still to be filled in.
    pub(super) fn store(
        &mut self,
        key: &[u8],
        hash: u64,
        old: Option<u32>,
        new: &Storing,
    ) -> Result<u32, OutOfRoom> {
        if let Some(location) = old
            && new.shape.fits_over(&self.log.record(location).shape())
        {
            self.overwrite(location, key, new);
            return Ok(location);
        }
        let (queue, frequency) = match old.map(|location| self.log.record(location).header().frequency()) {
            // A client that replaces an item uses it.
            Some(frequency) => (Queue::Probation, frequency + 1),
            None if self.ghost.as_mut().is_some_and(|ghost| ghost.recall(hash)) => (Queue::Main, 0),
            None => (Queue::Probation, 0),
        };
        let room = match self.make_room(queue, &new.shape, new.now) {
            Ok(room) => room,
            Err(error) => {
                if let Some(location) = self.locate(key, hash) {
                    self.remove(location, hash, Leaving::Removed);
                }
                self.counts.out_of_memory += 1;
                return Err(error);
            }
        };
        let large_bytes = whole_pages(new.shape.large_len());
        let (location, place) = self.log.append(queue, new.shape.record_len(), large_bytes);
        // SAFETY: the log gave out this room for a record of this shape.
        let record = unsafe { Record::at(place) };
        let cas = self.next_cas(new.cas);
        let fresh =
            Fresh { cas, exptime: new.exptime, now: new.now, generation: self.flush.generation, frequency };
        record.write(&new.shape, key, new.flags, room, fresh);
        self.log.note_expiry(location, new.exptime);
        // Making room may have moved or evicted the present item, so it is looked up again.
        let there = self.index.find(hash, |location| self.log.record(location).key() == key);
        match there {
            Some((slot, old)) => {
                self.index.relocate(slot, location);
                self.bury(old);
            }
            None => {
                self.index.insert(hash, location);
                self.grow_index(new.now);
            }
        }
        self.count_in(&new.shape);
        self.counts.total_items += 1;
        Ok(location)
    }

    fn overwrite(&mut self, location: u32, key: &[u8], new: &Storing) {
        let record = self.log.record(location);
        let (large, frequency) = (record.large(), record.header().frequency());
        self.count_out(&record.shape());
        let cas = self.next_cas(new.cas);
        let generation = self.flush.generation;
        let fresh = Fresh { cas, exptime: new.exptime, now: new.now, generation, frequency: frequency + 1 };
        record.write(&new.shape, key, new.flags, large, fresh);
        self.log.note_expiry(location, new.exptime);
        self.count_in(&new.shape);
        self.counts.total_items += 1;
    }

    /// Takes an item out of index and log.
    pub(super) fn remove(&mut self, location: u32, hash: u64, why: Leaving) {
        let (slot, _) = self
            .index
            .find(hash, |other| other == location)
            .expect("every record that is not dead has its entry in the index");
        self.index.remove(hash, slot);
        self.count_leaving(location, why);
        self.bury(location);
        if self.index.wants_merge()
            && let Some(chunk) = self.index.merge()
        {
            // SAFETY: the index acquired the piece with this size and just gave it up.
            unsafe { self.memory.release(chunk, CHUNK_BYTES) };
        }
    }

    fn count_leaving(&mut self, location: u32, why: Leaving) {
        let record = self.log.record(location);
        let fetched = record.header().has(FETCHED);
        let has_expiry = record.header().exptime != 0;
        let unused_s = self.latest.saturating_sub(record.header().last_access);
        let number = class_of(occupied(&record.shape()));
        let class = &mut self.counts.classes[number];
        match why {
            Leaving::Removed => (),
            Leaving::Gone => {
                self.counts.reclaimed += 1;
                self.counts.expired_unfetched += u64::from(!fetched);
                class.reclaimed += 1;
            }
            Leaving::Evicted => {
                self.counts.evictions += 1;
                self.counts.evicted_unfetched += u64::from(!fetched);
                class.evictions += 1;
                class.evicted_unfetched += u64::from(!fetched);
                class.evicted_nonzero += u64::from(has_expiry);
                class.evicted_time = u64::from(unused_s);
                if self.events.are_wanted(Topics::EVICTIONS) {
                    let ttl = i64::from(record.header().exptime) - i64::from(self.latest);
                    self.events.tell(&Event::Evicted {
                        key: record.key(),
                        fetched,
                        ttl: if has_expiry { ttl } else { -1 },
                        unused_s,
                        class: number,
                        size: record.value().len(),
                    });
                }
            }
        }
    }

    /// Declares the record dead and frees its large value. The index points elsewhere already.
    fn bury(&mut self, location: u32) {
        let record = self.log.record(location);
        let shape = record.shape();
        self.count_out(&shape);
        record.kill();
        if let Some(slot) = record.large() {
            // SAFETY: acquired in `make_room` with this length; a dead record's value is not read
            // any more.
            unsafe { self.memory.release(slot, shape.large_len()) };
        }
        self.log.bury(location, shape.record_len(), whole_pages(shape.large_len()), &mut self.memory);
    }

    fn count_in(&mut self, shape: &Shape) {
        let bytes = occupied(shape);
        let class = &mut self.counts.classes[class_of(bytes)];
        class.items += 1;
        class.bytes += bytes as u64;
    }

    fn count_out(&mut self, shape: &Shape) {
        let bytes = occupied(shape);
        let class = &mut self.counts.classes[class_of(bytes)];
        class.items -= 1;
        class.bytes -= bytes as u64;
    }

    /// The shard's counters with its present sizes.
    pub(super) fn stats(&self) -> StoreStats {
        StoreStats {
            items: self.counts.classes.iter().map(|class| class.items).sum(),
            bytes: self.counts.classes.iter().map(|class| class.bytes).sum(),
            index_bytes: self.index.bytes() as u64,
            ghost_bytes: self.ghost.as_ref().map_or(0, |ghost| ghost.bytes() as u64),
            index_buckets: self.index.buckets() as u64,
            held_bytes: self.memory.held() as u64,
            shards: 1,
            ..self.counts.clone()
        }
    }
}

/// An item to be stored, without its key and the bytes of its value.
pub(super) struct Storing {
    pub shape: Shape,
    pub flags: u32,
    pub exptime: u32,
    pub cas: Option<u64>,
    pub now: u32,
}

/// The slot of a large value, if the item has one.
pub(super) type LargeSlot = Option<NonNull<u8>>;

/// Bytes that an item occupies.
pub(super) fn occupied(shape: &Shape) -> usize {
    shape.record_len() + whole_pages(shape.large_len())
}

/// Free segments set aside for the cleaner, so that it always has room for the records that it
/// keeps.
pub(super) const SPARE_SEGMENTS: usize = 1;
/// Large values are spread over at least so many segments, however short their records are, so that
/// eviction proceeds in steps below 7 % of the shard.
const LARGE_SEGMENTS: usize = 16;
