//! The memory of dropped keys: S3-FIFO's ghost queue (Yang et al., SOSP 2023) as a table of
//! fingerprints.
//!
//! A key that was evicted from probation and comes back soon was dropped too early: it goes to the
//! main log at once. The paper keeps the last dropped keys in a queue; here a hash picks one line
//! of 32 fingerprints of 16 bits, each line being a little queue of its own. A fingerprint costs 2
//! bytes, and in a full line a stranger's key is mistaken for a known one once in 2,000 look-ups,
//! which costs a little of the scan resistance and nothing else.

use std::ptr::NonNull;

/// Fingerprints in one line: 64 bytes.
const LINE: usize = 32;

/// Fingerprints of the keys that were dropped last.
pub(super) struct Ghost {
    lines: NonNull<[u16; LINE]>,
    count: usize,
}

impl Ghost {
    /// A ghost that remembers nothing yet, in `bytes` (a power of two, at least 64) of memory.
    ///
    /// # Safety
    /// `room` spans `bytes`, is aligned to a page and is the ghost's alone while it lives.
    pub(super) unsafe fn new(room: NonNull<u8>, bytes: usize) -> Self {
        // SAFETY: as the caller promises.
        unsafe { room.write_bytes(0, bytes) };
        let count = bytes / size_of::<[u16; LINE]>();
        assert!(count.is_power_of_two());
        Self { lines: room.cast(), count }
    }

    /// Bytes of memory that it lies in.
    pub(super) fn bytes(&self) -> usize {
        self.count * size_of::<[u16; LINE]>()
    }

    /// Remembers a dropped key; the line's oldest is forgotten.
    pub(super) fn remember(&mut self, hash: u64) {
        let line = self.line(hash);
        line.copy_within(..LINE - 1, 1);
        line[0] = fingerprint(hash);
    }

    /// Whether the key was dropped not long ago; it is forgotten with the answer.
    pub(super) fn recall(&mut self, hash: u64) -> bool {
        let line = self.line(hash);
        let wanted = fingerprint(hash);
        match line.iter().position(|&known| known == wanted) {
            Some(place) => {
                line.copy_within(place + 1.., place);
                line[LINE - 1] = 0;
                true
            }
            None => false,
        }
    }

    fn line(&mut self, hash: u64) -> &mut [u16; LINE] {
        // The low bits: a full table has at least as many lines as the index has bits to tell
        // apart.
        let number = hash as u32 as usize & (self.count - 1);
        // SAFETY: the number is below the count, and the room was zeroed by `new`.
        unsafe { self.lines.add(number).as_mut() }
    }
}

/// Bits of the hash that choose neither the line nor the shard. Never 0, which marks an unused
/// place.
fn fingerprint(hash: u64) -> u16 {
    ((hash >> 32) as u16).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_of_a_line_and_forgets_the_oldest() {
        let mut room = [0u64; 8];
        // SAFETY: the room outlives the ghost and is used by nothing else.
        let mut ghost = unsafe { Ghost::new(NonNull::new(room.as_mut_ptr().cast()).unwrap(), 64) };
        let hash = |n: u64| (n + 1) << 32;
        for n in 0..40 {
            ghost.remember(hash(n));
        }
        assert!((0..8).all(|n| !ghost.recall(hash(n))));
        assert!((8..40).all(|n| ghost.recall(hash(n))));
        assert!((0..40).all(|n| !ghost.recall(hash(n))), "a recalled key is forgotten");
    }
}
