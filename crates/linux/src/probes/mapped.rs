//! An array of the kernel's, in our memory: a program's writes are read without a system call.

use super::BpfError;
use libbpf_rs::{MapCore as _, MapHandle};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The words of a mapped array; unmapped when dropped. The array lives as long as its map or this.
#[derive(Debug)]
pub(super) struct MappedWords {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and all access to it is atomic.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Maps all of `map`, which must be an array that may be mapped, for reading and writing.
    pub(super) fn of(map: &MapHandle) -> Result<Self, BpfError> {
        // The kernel keeps entries at multiples of eight bytes.
        let bytes = map.value_size().next_multiple_of(8) as usize * map.max_entries() as usize;
        let length = bytes.next_multiple_of(rustix::param::page_size());
        let refused = |error: rustix::io::Errno| BpfError::Refused {
            program: map.name().to_string_lossy().into_owned(),
            reason: format!("its memory cannot be mapped: {error}"),
        };
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choosing overlaps nothing of ours.
        let start = unsafe { mmap(std::ptr::null_mut(), length, flags, MapFlags::SHARED, map.as_fd(), 0) };
        let start = NonNull::new(start.map_err(refused)?).expect("the kernel maps nothing at zero");
        Ok(Self { start, length: bytes })
    }

    /// The word of that number; `None` beyond the end.
    pub(super) fn word(&self, number: usize) -> Option<&AtomicU64> {
        if number >= self.length / size_of::<u64>() {
            return None;
        }
        // SAFETY: inside the mapping by the line above, and aligned, since it begins with a page;
        // it lives as long as `self`, and all access to it is atomic.
        Some(unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u64>().add(number)) })
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        let length = self.length.next_multiple_of(rustix::param::page_size());
        // SAFETY: this very mapping; every reference into it borrows from `self`. A failure leaks
        // it, no more.
        let _ = unsafe { munmap(self.start.as_ptr(), length) };
    }
}
