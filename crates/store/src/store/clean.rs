//! Making room: cleaning segments, and S3-FIFO's choice of the records to keep.
//!
//! When a shard may not grow any further, a segment is cleaned: the records worth keeping are
//! appended to a log again and the segment is free. The choice of the segment, and of those
//! records:
//!
//! 1. A segment of which less than [`SPARSE_PERCENT`] is alive, because clients replaced or removed
//!    the rest, is *compacted*: all live records stay, at the end of their own log. While there is
//!    such a segment nothing live is dropped.
//! 2. Else, if probation outweighs [`PROBATION_PERCENT`] of the shard, its oldest segment is
//!    *sifted*: records that were used meanwhile go to the main log, the others are dropped and the
//!    ghost remembers them.
//! 3. Else the oldest segment of the main log is *recirculated*: records with a frequency go round
//!    again with one less, the others are dropped. If more than [`KEEP_PERCENT`] of it would stay,
//!    only those of the higher frequencies do, so that every cleaned segment of the main log yields
//!    room.
//!
//! Items that have expired or were flushed are dropped whatever the purpose.
//!
//! Cleaning goes in small steps paid for by the puts, [`PACE`] records each, that start while there
//! is still room: no put does much more than its share. Only where that is not enough (large
//! values, an index that must grow in a full shard) one put cleans several segments.

use super::{
    OutOfRoom,
    ghost::Ghost,
    log::Queue,
    memory::{CHUNK_BYTES, whole_pages},
    record::Shape,
    shard::{LargeSlot, Leaving, SPARE_SEGMENTS, Shard},
};

/// A segment on its way to be free.
pub(super) struct Cleaning {
    victim: u32,
    /// Bytes of it that are done.
    done: u32,
    purpose: Purpose,
}

#[derive(Clone, Copy)]
enum Purpose {
    Compact(Queue),
    Sift,
    /// Records of this frequency or above are kept.
    Recirculate(u8),
}

impl Shard {
    /// Sees to it that the index takes another entry and `queue` a record of this shape, and
    /// acquires the slot of a large value.
    pub(super) fn make_room(
        &mut self,
        queue: Queue,
        shape: &Shape,
        now: u32,
    ) -> Result<LargeSlot, OutOfRoom> {
        if self.log.free() <= SPARE_SEGMENTS && !self.memory.fits(self.geometry.segment_bytes) {
            self.clean(PACE, now);
        }
        if !self.index.is_ready() {
            let chunk = self.acquire(CHUNK_BYTES, now)?;
            // SAFETY: the piece was acquired for the index alone.
            unsafe { self.index.add_overflow(chunk) };
        }
        let large = match shape.large_len() {
            0 => None,
            len => Some(self.acquire(len, now)?),
        };
        // Last, because cleaning appends to the logs too.
        while !self.log.has_room(queue, shape.record_len()) {
            if self.log.open(queue, SPARE_SEGMENTS, self.flushes(), &mut self.memory) {
                self.start_ghost();
                self.sweep(now);
            } else if !self.clean(BATCH, now) {
                if let Some(slot) = large {
                    // SAFETY: just acquired with this length.
                    unsafe { self.memory.release(slot, shape.large_len()) };
                }
                return Err(OutOfRoom);
            }
        }
        Ok(large)
    }

    /// Splits a bucket of the index if it is due and there is memory to be had.
    pub(super) fn grow_index(&mut self, now: u32) {
        if !self.index.wants_split() {
            return;
        }
        if self.index.split_needs_chunk() {
            // Without memory the chains grow instead, until there is some.
            let Ok(chunk) = self.acquire(CHUNK_BYTES, now) else { return };
            // SAFETY: the piece was acquired for the index alone.
            unsafe { self.index.add_primary(chunk) };
        }
        let (log, hasher) = (&self.log, &self.hasher);
        self.index.split(
            |location| log.record(location).prefetch(),
            |location| hasher.hash(log.record(location).key()),
        );
    }

    /// Acquires memory, cleaning as much as that takes.
    fn acquire(&mut self, bytes: usize, now: u32) -> Result<std::ptr::NonNull<u8>, OutOfRoom> {
        if whole_pages(bytes) > self.memory.quota() / 2 {
            // It would cost half of the shard and might still fail.
            return Err(OutOfRoom);
        }
        loop {
            if let Some(slot) = self.memory.acquire(bytes) {
                return Ok(slot);
            }
            if !self.log.yield_free(SPARE_SEGMENTS, &mut self.memory) && !self.clean(BATCH, now) {
                return Err(OutOfRoom);
            }
        }
    }

    /// Cleans up to `records` records. False if there is nothing left to clean.
    fn clean(&mut self, records: usize, now: u32) -> bool {
        if self.cleaning.is_none() {
            self.cleaning = self.choose();
        }
        let Some(mut cleaning) = self.cleaning.take() else { return false };
        let (used, _) = self.log.fill(cleaning.victim);
        // Twice over each batch: first to have the buckets fetched, then to act.
        let mut batch = [(0, 0); BATCH];
        let mut len = 0;
        while len < records.min(BATCH) && cleaning.done < used {
            let location = self.log.location(cleaning.victim, cleaning.done);
            let record = self.log.record(location);
            cleaning.done += record.shape().record_len() as u32;
            if !record.header().is_dead() {
                let hash = self.hasher.hash(record.key());
                self.index.prefetch(hash);
                batch[len] = (location, hash);
                len += 1;
            }
        }
        for &(location, hash) in &batch[..len] {
            self.judge(location, hash, cleaning.purpose, now);
        }
        if cleaning.done < used && self.log.fill(cleaning.victim).1 > 0 {
            self.cleaning = Some(cleaning);
        } else {
            self.log.finish(cleaning.victim, &mut self.memory);
        }
        true
    }

    fn choose(&mut self) -> Option<Cleaning> {
        let from = self.sweep_at;
        if let Some(victim) = self.log.sparsest(from, SPARSE_WINDOW, SPARSE_PERCENT) {
            let purpose = Purpose::Compact(self.log.take(victim));
            return Some(Cleaning { victim, done: 0, purpose });
        }
        let (probation, main) = (self.log.weight(Queue::Probation), self.log.weight(Queue::Main));
        let sift = probation * 100 >= (probation + main) * PROBATION_PERCENT;
        let order = if sift { [Queue::Probation, Queue::Main] } else { [Queue::Main, Queue::Probation] };
        let victim = order.into_iter().find_map(|queue| self.log.oldest(queue, &mut self.memory))?;
        let purpose = match self.log.take(victim) {
            Queue::Probation => Purpose::Sift,
            Queue::Main => Purpose::Recirculate(self.keep_from(victim)),
        };
        Some(Cleaning { victim, done: 0, purpose })
    }

    /// The lowest frequency, not below 1, that can be kept while the victim still yields room.
    fn keep_from(&self, victim: u32) -> u8 {
        let mut weights = [0; 4];
        for location in self.log.records(victim) {
            let record = self.log.record(location);
            if !record.header().is_dead() {
                let shape = record.shape();
                weights[record.header().frequency() as usize] +=
                    shape.record_len() + whole_pages(shape.large_len());
            }
        }
        let large = weights.iter().sum::<usize>().saturating_sub(self.geometry.segment_bytes);
        let room = (self.geometry.segment_bytes + large) * KEEP_PERCENT / 100;
        (1..=3).find(|&from| weights[from..].iter().sum::<usize>() <= room).unwrap_or(4) as u8
    }

    fn judge(&mut self, location: u32, hash: u64, purpose: Purpose, now: u32) {
        let header = self.log.record(location).header();
        if self.is_gone(header, now) {
            return self.remove(location, hash, Leaving::Gone);
        }
        let frequency = header.frequency();
        match purpose {
            Purpose::Compact(queue) => self.relocate(location, hash, queue, frequency),
            Purpose::Sift if frequency >= PROMOTE_FREQUENCY => self.relocate(location, hash, Queue::Main, 0),
            Purpose::Sift => {
                if let Some(ghost) = &mut self.ghost {
                    ghost.remember(hash);
                }
                self.remove(location, hash, Leaving::Evicted);
            }
            Purpose::Recirculate(from) if frequency >= from => {
                self.relocate(location, hash, Queue::Main, frequency - 1);
            }
            Purpose::Recirculate(_) => self.remove(location, hash, Leaving::Evicted),
        }
    }

    /// Appends a live record to `queue` and points the index there.
    fn relocate(&mut self, location: u32, hash: u64, queue: Queue, frequency: u8) {
        let record = self.log.record(location);
        let shape = record.shape();
        let (len, large) = (shape.record_len(), whole_pages(shape.large_len()));
        if !self.log.has_room(queue, len) && !self.log.open(queue, 0, self.flushes(), &mut self.memory) {
            return self.remove(location, hash, Leaving::Evicted);
        }
        let (slot, _) = self
            .index
            .find(hash, |other| other == location)
            .expect("every record that is not dead has its entry in the index");
        let (target, place) = self.log.append(queue, len, large);
        record.copy_to(place);
        self.log.record(target).header_mut().set_frequency(frequency);
        self.log.note_expiry(target, record.header().exptime);
        self.index.relocate(slot, target);
        record.kill();
        self.log.bury(location, len, large, &mut self.memory);
        self.counts.moved += 1;
    }

    /// Sets the ghost up while there is still memory for it, once the shard is about to fill.
    fn start_ghost(&mut self) {
        if self.ghost.is_none() && self.memory.held() / GHOST_STARTS.1 >= self.memory.quota() / GHOST_STARTS.0
        {
            let bytes = (self.index.len() * GHOST_BYTES_PER_ITEM).next_power_of_two().max(CHUNK_BYTES) / 2;
            if let Some(room) = self.memory.acquire(bytes) {
                // SAFETY: the room was acquired for the ghost alone.
                self.ghost = Some(unsafe { Ghost::new(room, bytes) });
            }
        }
    }

    /// Looks for a sealed segment that may hold expired or flushed items, and drops those of the
    /// first.
    fn sweep(&mut self, now: u32) {
        for _ in 0..SWEEP_WINDOW.min(self.log.numbered()) {
            let number = self.sweep_at % self.log.numbered();
            self.sweep_at = number + 1;
            if !self.log.may_hold_gone(number, now, self.flushes()) {
                continue;
            }
            let (used, _) = self.log.fill(number);
            let (mut offset, mut soonest) = (0, u32::MAX);
            while offset < used {
                let location = self.log.location(number, offset);
                let record = self.log.record(location);
                offset += record.shape().record_len() as u32;
                let header = record.header();
                if header.is_dead() {
                    continue;
                }
                if self.is_gone(header, now) {
                    self.remove(location, self.hasher.hash(record.key()), Leaving::Gone);
                    if !self.log.is_sealed(number) {
                        // That was its last record.
                        return;
                    }
                } else if header.exptime != 0 {
                    soonest = soonest.min(header.exptime);
                }
            }
            self.log.swept(number, soonest, self.flushes());
            return;
        }
    }

    pub(super) fn drop_everything(&mut self) {
        for number in 0..self.log.numbered() {
            let (used, _) = self.log.fill(number);
            let mut offset = 0;
            while offset < used && self.log.fill(number).1 > 0 {
                let location = self.log.location(number, offset);
                let record = self.log.record(location);
                offset += record.shape().record_len() as u32;
                if !record.header().is_dead() {
                    self.remove(location, self.hasher.hash(record.key()), Leaving::Gone);
                }
            }
        }
    }
}

/// A segment is compacted rather than anything live dropped if less than this part of it is alive.
const SPARSE_PERCENT: u64 = 60;
/// Segments looked at for the sparsest: a full shard of the usual geometry, bounded for larger
/// ones.
const SPARSE_WINDOW: u32 = 512;
/// The part of a shard that new items get before they must have been used: S3-FIFO's small queue is
/// a tenth.
const PROBATION_PERCENT: usize = 10;
/// Uses that take an item from probation to the main log. Two cost 1 % of the hits on Zipf(0.99),
/// and 2 % with a scan beside it.
const PROMOTE_FREQUENCY: u8 = 1;
/// At most this part of a main segment is kept, so that cleaning one always yields a quarter.
const KEEP_PERCENT: usize = 75;
/// Records that a put cleans while room is short: enough to stay ahead, as nearly every put adds
/// one record.
const PACE: usize = 8;
/// Records cleaned at a time where a put cannot go on without.
const BATCH: usize = 32;
/// Segments that the opening of a new one checks for expired items; one of them is swept.
const SWEEP_WINDOW: u32 = 32;
/// The ghost is set up when three quarters of the quota are held.
const GHOST_STARTS: (usize, usize) = (4, 3);
/// A ghost has at least one fingerprint of two bytes for every two items when it is made.
const GHOST_BYTES_PER_ITEM: usize = 2;
