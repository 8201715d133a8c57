//! A shared mapping of a file, seen as atomic words.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Mapped memory; unmapped when dropped.
#[derive(Debug)]
pub struct Map {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and all access to it is atomic.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `length` bytes of `file`, for reading and writing, shared with all that map
    /// it.
    pub fn new(file: &File, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choosing overlaps nothing of ours.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
        };
        let start = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, length })
    }

    /// Copies bytes from `offset` on, in words of 64 bits, each whole. Both must be multiples of
    /// four, and inside.
    pub fn copy(&self, bytes: &mut [u8], offset: usize) {
        let mut at = offset;
        for word in bytes.chunks_mut(8) {
            if word.len() == 8 && at.is_multiple_of(8) {
                word.copy_from_slice(&self.word64(at).load(Acquire).to_le_bytes());
            } else {
                for half in word.chunks_mut(4) {
                    half.copy_from_slice(&self.word32(at).load(Acquire).to_le_bytes()[..half.len()]);
                    at += 4;
                }
                continue;
            }
            at += 8;
        }
    }

    /// The word of 32 bits at `offset`.
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < self.length && self.length - offset >= 4);
        // SAFETY: inside the mapping and aligned by the line above; it lives as long as `self`; all
        // access is atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast::<u8>().add(offset).cast()) }
    }

    /// The word of 64 bits at `offset`.
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.length && self.length - offset >= 8);
        // SAFETY: inside the mapping and aligned by the line above; it lives as long as `self`; all
        // access is atomic.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u8>().add(offset).cast()) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this very mapping; every reference into it borrows from `self`. A failure leaks
        // it, no more.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}
