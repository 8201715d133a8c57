//! A reader's source: another process's file, or memory that a program in the kernel writes.
//!
//! Both hold the same bytes. They differ in who may trust them, and in how a sleeper is woken that
//! waits for an enter.

use crate::layout::{self, header};
use crate::map::Map;
use machine::Duration;
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Memory in which a slot file lies.
pub trait Memory: Debug + Send + Sync {
    /// Copies bytes, words of 64 bits whole. A source that ends before is `UnexpectedEof`.
    fn read(&self, bytes: &mut [u8], offset: usize) -> io::Result<()>;
    /// Changes one word, in one store.
    fn write32(&self, offset: usize, word: u32) -> io::Result<()>;
    /// Sleeps while the doorbell's word is `doorbell`, at most for `timeout`. May end early.
    fn wait(&self, doorbell: u32, timeout: Option<Duration>) -> io::Result<()>;
    /// Ends a wait in another thread. Without a waiter there is nothing to wake, and no error.
    fn wake(&self) -> io::Result<()>;
    fn length(&self) -> io::Result<u64>;
}

/// A file, which its owner may cut short at any time: it is copied from by `pread`, never loaded
/// from.
#[derive(Debug)]
pub(crate) struct FileMemory {
    file: File,
    /// For the futex's address alone: the kernel looks there, this code never does.
    map: Map,
}

impl FileMemory {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let map = Map::new(&file, layout::HEADER)?;
        Ok(Self { file, map })
    }
}

impl Memory for FileMemory {
    fn read(&self, bytes: &mut [u8], offset: usize) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset as u64)
    }

    fn write32(&self, offset: usize, word: u32) -> io::Result<()> {
        self.file.write_all_at(&word.to_le_bytes(), offset as u64)
    }

    fn wait(&self, doorbell: u32, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: (timeout.as_nanos() / 1_000_000_000).try_into().unwrap_or(i64::MAX),
            tv_nsec: (timeout.as_nanos() % 1_000_000_000) as _,
        });
        let word = self.map.word32(header::DOORBELL);
        match futex::wait(word, futex::Flags::empty(), doorbell, timeout.as_ref()) {
            Ok(()) | Err(Errno::TIMEDOUT | Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(Errno::FAULT) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn wake(&self) -> io::Result<()> {
        let _ = futex::wake(self.map.word32(header::DOORBELL), futex::Flags::empty(), 1);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
