//! One item as it lies in the log.
//!
//! ```text
//!  0        8         12            16          20           22        23      24
//!  +--------+---------+-------------+-----------+------------+---------+-------+---------+-----+----------+
//!  |  cas   | exptime | last access | value len | generation | key len | marks | [flags] | key | value    |
//!  +--------+---------+-------------+-----------+------------+---------+-------+---------+-----+----------+
//!    u64      u32       u32           u32         u16          u8        u8      u32?            or pointer
//! ```
//!
//! Records start at multiples of 8 and are padded to one, so a location in a segment fits few bits.
//! Client flags are stored only when they are not zero, which they nearly always are not. A value
//! too long for its record lies in a slot of its own and the record ends with a pointer to it.

use std::ptr::NonNull;

/// Bytes before the optional flags.
pub(super) const HEADER: usize = size_of::<Header>();
/// The longest value: a `u32` length and 8-byte arithmetic hold it with room to spare.
pub(super) const VALUE_MAX: usize = 1 << 30;
/// The alignment and padding of records.
pub(super) const ALIGN: usize = 8;

/// How often an item was used since it was written or last moved: two bits, saturating, as S3-FIFO
/// has it.
const FREQUENCY: u8 = 0b11;
/// It was read since it was stored.
pub(super) const FETCHED: u8 = 1 << 2;
/// A client marked it as outdated (meta delete with `I`).
pub(super) const STALE: u8 = 1 << 3;
/// A client was told to recache it.
pub(super) const WIN_SENT: u8 = 1 << 4;
/// Those that outlive the process; kept files have them with these numbers.
const CARRIED: u8 = FREQUENCY | FETCHED | STALE | WIN_SENT;
const FLAGS: u8 = 1 << 5;
const LARGE: u8 = 1 << 6;
/// The index no longer points here.
const DEAD: u8 = 1 << 7;

#[repr(C)]
pub(super) struct Header {
    pub cas: u64,
    pub exptime: u32,
    pub last_access: u32,
    value_len: u32,
    /// The store's flush generation when the item was stored.
    pub generation: u16,
    key_len: u8,
    marks: u8,
}

impl Header {
    pub(super) fn frequency(&self) -> u8 {
        self.marks & FREQUENCY
    }

    pub(super) fn set_frequency(&mut self, frequency: u8) {
        self.marks = self.marks & !FREQUENCY | frequency.min(FREQUENCY);
    }

    pub(super) fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    pub(super) fn mark(&mut self, mark: u8, on: bool) {
        if on { self.marks |= mark } else { self.marks &= !mark }
    }

    pub(super) fn carried(&self) -> u8 {
        self.marks & CARRIED
    }

    pub(super) fn carry(&mut self, marks: u8) {
        self.marks = self.marks & !CARRIED | marks & CARRIED;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.has(DEAD)
    }
}

/// The sizes that determine an item's room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    key_len: usize,
    pub value_len: usize,
    flagged: bool,
    large: bool,
}

impl Shape {
    /// The shape of an item; its value moves out of the record if that would be longer than
    /// `inline_max`.
    pub(super) fn new(key_len: usize, flags: u32, value_len: usize, inline_max: usize) -> Self {
        debug_assert!((1..=250).contains(&key_len));
        let mut shape = Self { key_len, value_len, flagged: flags != 0, large: false };
        shape.large = shape.record_len() > inline_max;
        shape
    }

    /// Header, flags, key and value, wherever the value lies: the size that counts against
    /// `--max-item-size`.
    pub(super) fn item_len(&self) -> usize {
        self.value_offset() + self.value_len
    }

    /// Bytes in the log.
    pub(super) fn record_len(&self) -> usize {
        let tail = if self.large { size_of::<usize>() } else { self.value_len };
        (self.value_offset() + tail).next_multiple_of(ALIGN)
    }

    /// Bytes that the value needs outside of the log; 0 if it lies in the record.
    pub(super) fn large_len(&self) -> usize {
        if self.large { self.value_len } else { 0 }
    }

    /// Whether a new item of this shape can be written over `old`, room for room.
    pub(super) fn fits_over(&self, old: &Shape) -> bool {
        let pages = |shape: &Shape| super::memory::whole_pages(shape.large_len());
        self.large == old.large
            && self.flagged == old.flagged
            && self.record_len() == old.record_len()
            && pages(self) == pages(old)
    }

    fn key_offset(&self) -> usize {
        HEADER + if self.flagged { 4 } else { 0 }
    }

    fn value_offset(&self) -> usize {
        self.key_offset() + self.key_len
    }
}

/// A record's place in memory.
///
/// It is a bare pointer: all methods but [`Record::at`] rely on the promise of `at`, namely that a
/// written record lies there and that the shard's lock is held for as long as any answer is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(NonNull<u8>);

impl Record {
    /// # Safety
    /// `place` is 8-byte aligned and lies in a segment of a locked shard, where a record was or is
    /// about to be [written](Self::write). The caller keeps the shard locked while it uses the
    /// record, holds no reference obtained from it across a call that writes to it, and does not
    /// use it after its segment was reused.
    pub(super) unsafe fn at(place: NonNull<u8>) -> Self {
        debug_assert!(place.cast::<Header>().is_aligned());
        Self(place)
    }

    /// Writes a whole item except for its value. `large` is the slot for a value that lies
    /// elsewhere.
    pub(super) fn write(
        self,
        shape: &Shape,
        key: &[u8],
        flags: u32,
        large: Option<NonNull<u8>>,
        fresh: Fresh,
    ) {
        debug_assert_eq!((shape.key_len, shape.large), (key.len(), large.is_some()));
        let mut marks = fresh.frequency.min(FREQUENCY);
        marks |= if shape.flagged { FLAGS } else { 0 } | if shape.large { LARGE } else { 0 };
        let header = Header {
            cas: fresh.cas,
            exptime: fresh.exptime,
            last_access: fresh.now,
            value_len: shape.value_len as u32,
            generation: fresh.generation,
            key_len: key.len() as u8,
            marks,
        };
        // SAFETY: by the promise of `at` the record's room is ours and aligned; the offsets are
        // those that its length was computed from.
        unsafe {
            self.0.cast::<Header>().write(header);
            if shape.flagged {
                self.0.add(HEADER).cast::<u32>().write(flags);
            }
            self.0.add(shape.key_offset()).copy_from_nonoverlapping(bytes(key), key.len());
            if let Some(large) = large {
                self.0.add(shape.value_offset()).cast::<NonNull<u8>>().write_unaligned(large);
            }
        }
    }

    pub(super) fn header<'a>(self) -> &'a Header {
        // SAFETY: a record lies here and no thread writes to it meanwhile, by the promise of `at`.
        unsafe { self.0.cast::<Header>().as_ref() }
    }

    pub(super) fn header_mut<'a>(self) -> &'a mut Header {
        // SAFETY: as `header`; the caller holds no other reference into the record.
        unsafe { self.0.cast::<Header>().as_mut() }
    }

    pub(super) fn shape(self) -> Shape {
        let header = self.header();
        Shape {
            key_len: header.key_len as usize,
            value_len: header.value_len as usize,
            flagged: header.has(FLAGS),
            large: header.has(LARGE),
        }
    }

    pub(super) fn flags(self) -> u32 {
        if !self.header().has(FLAGS) {
            return 0;
        }
        // SAFETY: flagged records have four aligned bytes of flags after the header.
        unsafe { self.0.add(HEADER).cast::<u32>().read() }
    }

    pub(super) fn key<'a>(self) -> &'a [u8] {
        let shape = self.shape();
        // SAFETY: the key was written there with this length.
        unsafe { std::slice::from_raw_parts(self.0.add(shape.key_offset()).as_ptr(), shape.key_len) }
    }

    /// Where the value's own slot is, if it has one.
    pub(super) fn large(self) -> Option<NonNull<u8>> {
        let shape = self.shape();
        // SAFETY: large records end with a pointer.
        shape
            .large
            .then(|| unsafe { self.0.add(shape.value_offset()).cast::<NonNull<u8>>().read_unaligned() })
    }

    pub(super) fn value<'a>(self) -> &'a [u8] {
        let (place, len) = self.value_place();
        // SAFETY: the value was written there with this length, by the promise of `at`.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), len) }
    }

    pub(super) fn value_mut<'a>(self) -> &'a mut [u8] {
        let (place, len) = self.value_place();
        // SAFETY: as `value`; the caller holds no other reference into the record.
        unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), len) }
    }

    /// Writes the value, which comes in pieces.
    pub(super) fn fill(self, pieces: &[&[u8]]) {
        let (mut place, len) = self.value_place();
        debug_assert_eq!(len, pieces.iter().map(|piece| piece.len()).sum::<usize>());
        for piece in pieces {
            // SAFETY: the pieces together are as long as the value's room, and come from outside of
            // the store.
            unsafe {
                place.copy_from_nonoverlapping(bytes(piece), piece.len());
                place = place.add(piece.len());
            }
        }
    }

    /// Copies the record, and with it the ownership of a large value, to another place.
    pub(super) fn copy_to(self, place: NonNull<u8>) {
        // SAFETY: the log gave out `place` with this record's length, away from any other record.
        unsafe { place.copy_from_nonoverlapping(self.0, self.shape().record_len()) };
    }

    pub(super) fn kill(self) {
        self.header_mut().mark(DEAD, true);
    }

    /// Asks the processor to fetch the header and the start of the key.
    pub(super) fn prefetch(self) {
        super::prefetch(self.0.as_ptr());
    }

    fn value_place(self) -> (NonNull<u8>, usize) {
        let shape = self.shape();
        let place = match self.large() {
            Some(large) => large,
            // SAFETY: inline values follow the key.
            None => unsafe { self.0.add(shape.value_offset()) },
        };
        (place, shape.value_len)
    }
}

/// Where a slice's bytes are.
fn bytes(slice: &[u8]) -> NonNull<u8> {
    NonNull::from(slice).cast()
}

/// The header fields of a newly stored item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh {
    pub cas: u64,
    pub exptime: u32,
    pub now: u32,
    pub generation: u16,
    pub frequency: u8,
}

#[cfg(test)]
mod tests;
