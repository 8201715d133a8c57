//! Connection buffers, charged to the memory limit.
//!
//! An idle connection holds no buffer at all: workers read into, and compose in, scratch space of
//! their own. The connection keeps only the rest (half a request, an answer that the client does
//! not read). The rest is charged to the store's [`Budget`] by capacity, so that ten thousand
//! clients which each send nine tenths of a megabyte cannot push the process above its limit.

use crate::store::Budget;

/// The smallest capacity kept, bytes.
const MIN_CAPACITY: usize = 512;

/// Bytes left over on a connection.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Bytes before this were used already.
    start: usize,
    charged: usize,
}

impl Buffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Makes room for `more` bytes behind those there; `false` if the budget has none.
    #[must_use]
    pub(crate) fn reserve(&mut self, more: usize, budget: &Budget) -> bool {
        if self.start > 0 && self.bytes.capacity() - self.bytes.len() < more {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let needed = self.bytes.len() + more;
        if needed <= self.bytes.capacity() {
            return true;
        }
        let capacity = needed.next_power_of_two().max(MIN_CAPACITY);
        let growth = capacity - self.charged;
        if !budget.try_charge_connection(growth) {
            return false;
        }
        self.charged += growth;
        self.bytes.reserve_exact(capacity - self.bytes.len());
        true
    }

    /// Appends `bytes`; `false`, and nothing appended, if the budget has no room.
    #[must_use]
    pub(crate) fn append(&mut self, bytes: &[u8], budget: &Budget) -> bool {
        let fits = self.reserve(bytes.len(), budget);
        if fits {
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    /// The vector itself, for reading into its spare capacity. Bytes may be appended within the
    /// capacity only.
    pub(crate) fn spare(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Drops the first `count` bytes; an emptied buffer gives its memory back.
    pub(crate) fn consume(&mut self, count: usize, budget: &Budget) {
        self.start += count;
        debug_assert!(self.start <= self.bytes.len());
        if self.is_empty() {
            self.release(budget);
        }
    }

    pub(crate) fn release(&mut self, budget: &Budget) {
        budget.release_connection(std::mem::take(&mut self.charged));
        self.bytes = Vec::new();
        self.start = 0;
    }
}
