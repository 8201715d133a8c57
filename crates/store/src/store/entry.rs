//! A key under its shard's lock: the building block of the protocol's commands.

use super::{
    Store, StoreError,
    record::{self, Record, Shape},
    shard::{Leaving, Shard, Storing, occupied},
    stats::class_of,
};
use std::sync::MutexGuard;

/// A key and, if there is a live one, its item. The key's shard is locked while this lives.
pub struct Entry<'s> {
    shard: MutexGuard<'s, Shard>,
    key: &'s [u8],
    hash: u64,
    now: u32,
    location: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The value's bytes.
    pub value: &'a [u8],
    pub flags: u32,
    /// The unique id of this version.
    pub cas: u64,
    /// Second of the server's clock at which it expires; 0 = never.
    pub exptime: u32,
    /// Second of the server's clock at which it was last stored or [bumped](Entry::bump).
    pub last_access: u32,
    /// It was read since it was stored.
    pub fetched: bool,
    /// A client marked it as outdated.
    pub stale: bool,
    /// A client was told to recache it.
    pub win_sent: bool,
}

/// An item as a [walk](Store::walk) over all of them comes by it.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    pub key: &'a [u8],
    pub item: Item<'a>,
    /// Bytes that it occupies, padding included.
    pub bytes: usize,
    /// The number of its size class, below [`CLASSES`](super::CLASSES).
    pub class: usize,
    marks: u8,
}

/// An item as it is carried from one run to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried<'a> {
    pub value: &'a [u8],
    pub flags: u32,
    pub cas: u64,
    /// Second of the server's clock at which it expires; 0 = never.
    pub exptime: u32,
    pub last_access: u32,
    /// How often it was used, whether it was read, and whether a client marked it.
    pub marks: u8,
}

impl<'a> Carried<'a> {
    pub fn of(listed: &Listed<'a>) -> Self {
        let Item { value, flags, cas, exptime, last_access, .. } = listed.item;
        Self { value, flags, cas, exptime, last_access, marks: listed.marks }
    }
}

impl Listed<'_> {
    pub(super) fn of(record: Record) -> Self {
        let bytes = occupied(&record.shape());
        let (item, marks) = (Item::of(record), record.header().carried());
        Self { key: record.key(), item, bytes, class: class_of(bytes), marks }
    }
}

impl Item<'_> {
    fn of(record: Record) -> Self {
        let header = record.header();
        Self {
            value: record.value(),
            flags: record.flags(),
            cas: header.cas,
            exptime: header.exptime,
            last_access: header.last_access,
            fetched: header.has(record::FETCHED),
            stale: header.has(record::STALE),
            win_sent: header.has(record::WIN_SENT),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NewItem<'a> {
    pub flags: u32,
    /// Second of the server's clock at which it expires; 0 = never.
    pub exptime: u32,
    /// The value, in pieces that are stored one after the other. None may come from the entry's own
    /// item.
    pub value: &'a [&'a [u8]],
    /// The id that a client insists on; else the next one.
    pub cas: Option<u64>,
}

impl<'s> Entry<'s> {
    pub(super) fn open(store: &'s Store, key: &'s [u8], now: u32) -> Self {
        assert!((1..=KEY_MAX).contains(&key.len()), "keys have 1 to {KEY_MAX} bytes, not {}", key.len());
        let hash = store.hasher.hash(key);
        let mut shard = store.shard(hash);
        let now = shard.tick(now);
        let location = shard.lookup(key, hash, now);
        Self { shard, key, hash, now, location }
    }

    /// The live item, if there is one: neither expired nor flushed.
    pub fn item(&self) -> Option<Item<'_>> {
        self.record().map(Item::of)
    }

    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// The size class of its item, as `stats items` numbers them; 0 if there is none.
    pub fn class(&self) -> usize {
        self.record().map_or(0, |record| class_of(occupied(&record.shape())))
    }

    /// Counts an access: recency, frequency, fetched.
    pub fn bump(&mut self) {
        if let Some(record) = self.record() {
            let header = record.header_mut();
            header.set_frequency(header.frequency() + 1);
            header.mark(record::FETCHED, true);
            header.last_access = self.now;
        }
    }

    /// Stores an item in place of the present one, and returns its CAS id. If it cannot be stored,
    /// the present one is removed all the same: the client meant to replace it.
    pub fn put(&mut self, new: NewItem<'_>) -> Result<u64, StoreError> {
        let value_len = new.value.iter().map(|piece| piece.len()).sum();
        let geometry = &self.shard.geometry;
        let shape = Shape::new(self.key.len(), new.flags, value_len, geometry.inline_max);
        if shape.item_len() > geometry.max_item_size {
            self.remove();
            return Err(StoreError::TooLarge);
        }
        let storing = Storing { shape, flags: new.flags, exptime: new.exptime, cas: new.cas, now: self.now };
        match self.shard.store(self.key, self.hash, self.location, &storing) {
            Ok(location) => {
                self.location = Some(location);
                let record = self.shard.log.record(location);
                record.fill(new.value);
                Ok(record.header().cas)
            }
            Err(_) => {
                self.location = None;
                Err(StoreError::OutOfMemory)
            }
        }
    }

    /// Stores an item of an earlier run as it was.
    pub fn carry(&mut self, item: &Carried<'_>) -> Result<(), StoreError> {
        let Carried { value, flags, cas, exptime, .. } = *item;
        self.put(NewItem { flags, exptime, value: &[value], cas: Some(cas) })?;
        if let Some(record) = self.record() {
            let header = record.header_mut();
            header.last_access = item.last_access;
            header.carry(item.marks);
        }
        Ok(())
    }

    /// Stores `before`, the present value and `after` as the new value, with the item's flags and
    /// time of expiry: append and prepend. `None` if there is no item.
    pub fn put_around(
        &mut self,
        before: &[u8],
        after: &[u8],
        cas: Option<u64>,
    ) -> Option<Result<u64, StoreError>> {
        let item = self.item()?;
        let (flags, exptime) = (item.flags, item.exptime);
        // A copy, because making room may evict or move the item.
        let middle = item.value.to_vec();
        Some(self.put(NewItem { flags, exptime, value: &[before, &middle, after], cas }))
    }

    /// The value, to be changed in place. Call [`Self::fresh_cas`] with it.
    pub fn value_mut(&mut self) -> Option<&mut [u8]> {
        self.record().map(Record::value_mut)
    }

    /// Gives the item a new CAS id and returns it; 0 if there is no item.
    pub fn fresh_cas(&mut self, explicit: Option<u64>) -> u64 {
        let Some(record) = self.record() else { return 0 };
        let cas = self.shard.next_cas(explicit);
        record.header_mut().cas = cas;
        cas
    }

    /// Changes when the item expires: a second of the server's clock, 0 = never.
    pub fn set_exptime(&mut self, exptime: u32) {
        if let Some(location) = self.location {
            self.shard.log.record(location).header_mut().exptime = exptime;
            self.shard.log.note_expiry(location, exptime);
        }
    }

    /// Marks the item as outdated, or not.
    pub fn set_stale(&mut self, stale: bool) {
        self.mark(record::STALE, stale);
    }

    /// Notes that a client was told to recache the item, or not.
    pub fn set_win_sent(&mut self, win_sent: bool) {
        self.mark(record::WIN_SENT, win_sent);
    }

    /// Removes the item. Whether there was one.
    pub fn remove(&mut self) -> bool {
        match self.location.take() {
            Some(location) => {
                self.shard.remove(location, self.hash, Leaving::Removed);
                true
            }
            None => false,
        }
    }

    fn record(&self) -> Option<Record> {
        self.location.map(|location| self.shard.log.record(location))
    }

    fn mark(&mut self, mark: u8, on: bool) {
        if let Some(record) = self.record() {
            record.header_mut().mark(mark, on);
        }
    }
}

/// The longest key, as in memcached.
pub const KEY_MAX: usize = 250;
