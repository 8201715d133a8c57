//! Address space in power-of-two slots, and each shard's account of the pages it holds.
//!
//! Everything large that the store owns (log segments, pieces of the index, large values) is a slot
//! from [`Pages`]. A slot of class `c` spans `16 KiB << c` of address space, but only the pages
//! asked for are ever touched, so its cost in memory is exact to the page while its neighbours
//! never fragment. Slots are cut from spans that are mapped once and stay mapped. Giving a slot
//! back drops its pages (`MADV_DONTNEED`) and leaves the mapping alone, so the number of kernel
//! mappings stays a handful for any values (`vm.max_map_count` is 65530 by default, which one
//! mapping per large value would meet).
//!
//! Transparent huge pages are refused for the spans. With them the kernel may back a few touched
//! pages by 2 MiB, and resident memory would no longer equal the charge.

use super::Budget;
use std::{
    ptr::NonNull,
    sync::{Arc, Mutex},
};

/// The smallest slot, and the size of one piece of the index.
pub(super) const CHUNK_BYTES: usize = 16 << 10;

/// The granule of residence. Machines with larger pages round further up, which the limit's slack
/// covers.
pub(super) const PAGE_BYTES: usize = 4 << 10;

/// `bytes` rounded up to whole pages.
pub(super) fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// Slots of address space, shared by all shards.
pub(super) struct Pages {
    classes: Vec<Mutex<Class>>,
}

struct Class {
    slot_bytes: usize,
    spans: Vec<Span>,
    free: Vec<NonNull<u8>>,
    /// Bytes of the newest span that were never handed out.
    untouched: usize,
}

struct Span {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointers stand for address space that the class owns; nothing is tied to a thread.
unsafe impl Send for Class {}

impl Pages {
    /// Slots for anything up to `largest` bytes.
    pub(super) fn new(largest: usize) -> Self {
        let classes = class_of(largest) + 1;
        let classes = (0..classes)
            .map(|class| {
                Mutex::new(Class {
                    slot_bytes: CHUNK_BYTES << class,
                    spans: Vec::new(),
                    free: Vec::new(),
                    untouched: 0,
                })
            })
            .collect();
        Self { classes }
    }

    /// A slot that `bytes` fit in, 4 KiB aligned, its contents arbitrary; `None` if the kernel
    /// refuses to map.
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let mut class = self.classes[class_of(bytes)].lock().expect("no panic while slots change hands");
        if let Some(slot) = class.free.pop() {
            return Some(slot);
        }
        if class.untouched == 0 {
            let bytes = SPAN_BYTES.max(class.slot_bytes);
            let base = map(bytes)?;
            class.spans.push(Span { base, bytes });
            class.untouched = bytes;
        }
        let span = class.spans.last().expect("a span with untouched bytes");
        // SAFETY: `untouched` is at most the span's length.
        let slot = unsafe { span.base.add(span.bytes - class.untouched) };
        class.untouched -= class.slot_bytes;
        Some(slot)
    }

    /// Gives back a slot of which the first `bytes` may have been touched; their pages are dropped.
    ///
    /// # Safety
    /// `slot` came from [`Self::take`] with the same `bytes`, and nothing refers to it any more.
    unsafe fn put(&self, slot: NonNull<u8>, bytes: usize) {
        // SAFETY: the slot is ours and unreferenced, by the caller's promise.
        unsafe { drop_pages(slot, whole_pages(bytes)) };
        self.classes[class_of(bytes)].lock().expect("no panic while slots change hands").free.push(slot);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for class in &mut self.classes {
            let class = class.get_mut().expect("no panic while slots change hands");
            for span in class.spans.drain(..) {
                // SAFETY: the shards, which hold the only pointers into the span, share ownership
                // of `self`.
                unsafe { unmap(span) };
            }
        }
    }
}

/// The class whose slots `bytes` fit in.
fn class_of(bytes: usize) -> usize {
    let slots = bytes.div_ceil(CHUNK_BYTES).max(1);
    slots.next_power_of_two().ilog2() as usize
}

/// Address space mapped at a time. Untouched address space costs nothing.
const SPAN_BYTES: usize = if cfg!(miri) { 1 << 20 } else { 64 << 20 };

#[cfg(not(miri))]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
    // exists.
    let base =
        unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
    let base = base.ok()?;
    // A kernel without huge pages refuses the advice and needs none.
    // SAFETY: the range is the mapping just made.
    let _ = unsafe { madvise(base, bytes, Advice::LinuxNoHugepage) };
    NonNull::new(base.cast())
}

/// # Safety
/// `slot..slot + bytes` lies in a mapping of ours and nothing refers to it.
#[cfg(not(miri))]
unsafe fn drop_pages(slot: NonNull<u8>, bytes: usize) {
    // SAFETY: as the caller promises.
    let dropped =
        unsafe { rustix::mm::madvise(slot.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxDontNeed) };
    dropped.expect("the kernel drops pages of a private anonymous mapping");
}

/// # Safety
/// Nothing refers to the span any more.
#[cfg(not(miri))]
unsafe fn unmap(span: Span) {
    // SAFETY: the span was mapped by `map` with this length. A failure leaks address space, no
    // more.
    let _ = unsafe { rustix::mm::munmap(span.base.as_ptr().cast(), span.bytes) };
}

/// Miri knows no `madvise`: it gets spans from the allocator.
#[cfg(miri)]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let layout = std::alloc::Layout::from_size_align(bytes, PAGE_BYTES).ok()?;
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

/// # Safety
/// As the kernel's version.
#[cfg(miri)]
unsafe fn drop_pages(slot: NonNull<u8>, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { slot.as_ptr().write_bytes(0, bytes) };
}

/// # Safety
/// As the kernel's version.
#[cfg(miri)]
unsafe fn unmap(span: Span) {
    let layout = std::alloc::Layout::from_size_align(span.bytes, PAGE_BYTES).expect("as in `map`");
    // SAFETY: the span came from `map` with this layout.
    unsafe { std::alloc::dealloc(span.base.as_ptr(), layout) };
}

/// The memory of one shard, against its quota and the common budget.
pub(super) struct Memory {
    pages: Arc<Pages>,
    budget: Arc<Budget>,
    quota: usize,
    /// Bytes charged once and for all when the store opened: the shard always gets these.
    guaranteed: usize,
    held: usize,
}

impl Memory {
    /// The account of a shard that may hold `quota` bytes, of which `guaranteed` are charged here
    /// already.
    pub(super) fn new(pages: Arc<Pages>, budget: Arc<Budget>, quota: usize, guaranteed: usize) -> Self {
        assert!(budget.try_charge(guaranteed), "the geometry promised more than the limit");
        Self { pages, budget, quota, guaranteed, held: 0 }
    }

    /// Bytes held, each piece rounded up to whole pages.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Bytes that the shard may hold at most.
    pub(super) fn quota(&self) -> usize {
        self.quota
    }

    /// Another bound on the shard's memory. The surplus goes when it next wants more.
    pub(super) fn set_quota(&mut self, quota: usize) {
        self.quota = quota;
    }

    /// Whether `bytes` more are within the quota and, as far as can be told now, within the budget.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        let sum = self.held + whole_pages(bytes);
        let free = self.budget.limit().saturating_sub(self.budget.used());
        sum <= self.quota && sum.saturating_sub(self.held.max(self.guaranteed)) <= free
    }

    /// A slot of at least `bytes`, charged, its contents arbitrary.
    pub(super) fn acquire(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let sum = self.held + whole_pages(bytes);
        let extra = sum.saturating_sub(self.held.max(self.guaranteed));
        if sum > self.quota || !self.budget.try_charge(extra) {
            return None;
        }
        let Some(slot) = self.pages.take(bytes) else {
            self.budget.release(extra);
            return None;
        };
        self.held = sum;
        Some(slot)
    }

    /// Gives a slot back to the other shards and its pages to the kernel.
    ///
    /// # Safety
    /// `slot` came from [`Self::acquire`] with the same `bytes`, and nothing refers to it any more.
    pub(super) unsafe fn release(&mut self, slot: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.pages.put(slot, bytes) };
        let sum = self.held - whole_pages(bytes);
        self.budget.release(self.held.max(self.guaranteed) - sum.max(self.guaranteed));
        self.held = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_writable_to_its_last_byte_and_comes_back_empty() {
        let budget = Arc::new(Budget::new(1 << 20));
        let pages = Arc::new(Pages::new(100_000));
        let mut memory = Memory::new(pages, budget.clone(), 1 << 20, 0);
        let slot = memory.acquire(100_000).unwrap();
        // SAFETY: the slot is ours for 100,000 bytes.
        unsafe { slot.as_ptr().write_bytes(0xAA, 100_000) };
        assert_eq!((memory.held(), budget.used()), (102_400, 102_400));
        // SAFETY: acquired above, not used any more.
        unsafe { memory.release(slot, 100_000) };
        assert_eq!((memory.held(), budget.used()), (0, 0));
        let again = memory.acquire(70_000).unwrap();
        assert_eq!(again, slot, "slots of one class are used again");
        // SAFETY: the slot is ours for 70,000 bytes.
        assert_eq!(unsafe { again.as_ptr().read() }, 0);
    }

    #[test]
    fn neighbouring_slots_do_not_overlap() {
        let mut memory =
            Memory::new(Arc::new(Pages::new(1 << 16)), Arc::new(Budget::new(1 << 24)), 1 << 24, 0);
        let count = if cfg!(miri) { 2 } else { 40 };
        let slots: Vec<_> = (0..count).map(|_| memory.acquire(1 << 16).unwrap()).collect();
        for (i, slot) in slots.iter().enumerate() {
            // SAFETY: each slot is ours for 64 KiB.
            unsafe { slot.as_ptr().write_bytes(i as u8, 1 << 16) };
        }
        for (i, slot) in slots.iter().enumerate() {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(slot.as_ptr(), 1 << 16) };
            assert!(bytes.iter().all(|&b| b == i as u8));
        }
    }

    #[test]
    fn what_is_guaranteed_is_charged_once_and_always_there() {
        let budget = Arc::new(Budget::new(100_000));
        let mut memory = Memory::new(Arc::new(Pages::new(1 << 16)), budget.clone(), 1 << 20, 65_536);
        assert!(budget.try_charge(100_000 - 65_536), "another charge takes all the rest");
        let slot = memory.acquire(65_536).unwrap();
        assert!(!memory.fits(1));
        assert!(memory.acquire(1).is_none());
        assert_eq!(budget.used(), 100_000);
        // SAFETY: acquired above, not used any more.
        unsafe { memory.release(slot, 65_536) };
        assert_eq!(budget.used(), 100_000);
        assert!(memory.fits(65_536));
    }
}
