//! The writer for servers in Rust: make the file, give each thread a slot, say when it is inside.
//!
//! ```no_run
//! use slots::{Writer, WriterOptions};
//!
//! let writer = Writer::create("/dev/shm/search.slots".as_ref(), &["search::score"], WriterOptions::default())?;
//! let score = writer.method(0)?;
//! let mut slot = writer.register(); // once per thread; given back when it is dropped
//! for query in ["a", "b"] {
//!     let _inside = slot.enter(score); // until the end of the block, on every way out
//!     // ... score the query ...
//! #   let _ = query;
//! }
//! # Ok::<(), slots::WriterError>(())
//! ```
//!
//! The order of stores is the whole protocol. Enter: a store fence (so that nothing of this call is
//! seen before the last exit), `entered_at`, then the state with release. Exit: the state with
//! release. There is no full fence between the state and the look at `asleep`: the reader makes up
//! for it (see `Reader::sleep`), because it sleeps seldom and calls are many.

use crate::events::record;
use crate::identity::Identity;
use crate::layout::{self, State, event, header, slot};
use crate::map::Map;
use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::fence;

/// A slot file that this process writes.
#[derive(Clone, Debug)]
pub struct Writer {
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Threads that can be inside at a time.
    pub slots: u32,
    /// Entries of the event ring, a power of two; 0: no ring.
    pub events: u32,
    /// The writer's name: stands in the file, for people.
    pub writer: String,
    pub identity: Identity,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            slots: 256,
            events: 0,
            writer: concat!("roost-slots ", env!("CARGO_PKG_VERSION"), " rust").into(),
            identity: Identity::own(),
        }
    }
}

/// A method of the file, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodId(u16);

/// Why a file could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// The file could not be written.
    #[error("{path}: {source}; the folder must exist and be writable by the service's user")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is in use by process {pid}: give each process a file of its own")]
    InUse { path: PathBuf, pid: u32 },
    #[error("{what} must be {bound}, not {found}")]
    OutOfRange { what: &'static str, bound: &'static str, found: usize },
}

#[derive(Debug)]
pub(crate) struct Shared {
    map: Map,
    slots: u32,
    /// Where the event ring is, and how many entries it has.
    ring: usize,
    events: u32,
    methods: u16,
}

impl Writer {
    /// Makes the file at `path`, with the methods' names. It appears whole: it is written under
    /// another name and renamed, so a reader never meets half a header. An older file of a process
    /// that has ended is replaced.
    pub fn create(path: &Path, methods: &[&str], options: WriterOptions) -> Result<Self, WriterError> {
        check("slots", "1 to 16384", options.slots as usize, |n| {
            (1..=layout::SLOTS_MAX as usize).contains(&n)
        })?;
        check("events", "0 or a power of two up to 1048576", options.events as usize, |n| {
            n == 0 || n.is_power_of_two() && n <= layout::EVENTS_MAX as usize
        })?;
        check("the number of methods", "1 to 64", methods.len(), |n| {
            (1..=layout::METHODS_MAX as usize).contains(&n)
        })?;
        let failed = |source| WriterError::Io { path: path.to_owned(), source };
        if let Some(pid) = used_by(path) {
            return Err(WriterError::InUse { path: path.to_owned(), pid });
        }
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}.new", options.identity.pid));
        // A file may be left from an earlier process of this number; a fresh name also refuses
        // another user's symbolic link.
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new);
        let file = file.map_err(failed)?;
        // Not brought to the disk first: it is memory that this process shares, and after a crash
        // of the machine it says nothing whatever it holds.
        let made = image_onto(&file, methods, &options).and_then(|map| {
            fs::rename(&new, path)?;
            Ok(map)
        });
        let map = made.map_err(|source| {
            let _ = fs::remove_file(&new);
            failed(source)
        })?;
        let (slots, events) = (options.slots, options.events);
        let ring = layout::events_offset(slots);
        Ok(Self { shared: Arc::new(Shared { map, slots, ring, events, methods: methods.len() as u16 }) })
    }

    /// The method of that place in the list that the file was made with.
    pub fn method(&self, index: usize) -> Result<MethodId, WriterError> {
        check("a method's number", "that of a method of this file", index, |n| {
            n < usize::from(self.shared.methods)
        })?;
        Ok(MethodId(index as u16))
    }

    /// A slot for the calling thread. Where all are taken, enters are counted and nothing more.
    pub fn register(&self) -> ThreadSlot {
        self.register_as(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// As [`register`](Self::register), for a thread whose number is known: tests, and servers that
    /// act for others.
    pub fn register_as(&self, tid: i32) -> ThreadSlot {
        let map = &self.shared.map;
        let index = (0..self.shared.slots).find(|&index| {
            let word = map.word32(layout::slot_offset(index) + slot::TID);
            word.compare_exchange(0, tid as u32, AcqRel, Relaxed).is_ok()
        });
        if let Some(index) = index {
            map.word32(layout::slot_offset(index) + slot::CLAIMS).fetch_add(1, Release);
            map.word32(header::SLOTS_USED).fetch_max(index + 1, Release);
        }
        ThreadSlot {
            shared: self.shared.clone(),
            offset: index.map(layout::slot_offset),
            tid,
            _one_thread: PhantomData,
        }
    }
}

/// A thread's slot. It stays with its thread, and is free for another when it is dropped.
#[derive(Debug)]
pub struct ThreadSlot {
    shared: Arc<Shared>,
    offset: Option<usize>,
    tid: i32,
    /// Not `Send`: two threads in one slot would not be told apart.
    _one_thread: PhantomData<*const ()>,
}

impl ThreadSlot {
    /// Inside, until the returned guard is dropped.
    #[must_use = "the thread is outside again when this is dropped"]
    pub fn enter(&self, method: MethodId) -> Inside<'_> {
        let depth = if self.shared.enable() & layout::ENABLE_HOOK == 0 {
            None
        } else {
            self.enter_at(method, now_ns())
        };
        Inside { slot: self, method, depth }
    }

    /// As [`enter`](Self::enter), at a given time; the depth before it, for
    /// [`exit_at`](Self::exit_at). `None` if the call is not recorded, and then its exit must not
    /// be either.
    pub fn enter_at(&self, method: MethodId, now_ns: u64) -> Option<u16> {
        let shared = &*self.shared;
        let Some(offset) = self.offset else {
            shared.count(header::NO_SLOT);
            return None;
        };
        let word = shared.map.word64(offset + slot::STATE);
        // Only this thread writes it.
        let before = State::from_word(word.load(Relaxed));
        let after = if before.depth == 0 {
            fence(Release);
            shared.map.word64(offset + slot::ENTERED_AT).store(now_ns, Relaxed);
            State { sequence: before.sequence.wrapping_add(1), depth: 1, method: method.0 }
        } else if before.depth < u16::MAX - 1 {
            let nested = shared.map.word64(offset + slot::NESTED);
            nested.store(nested.load(Relaxed).wrapping_add(1), Relaxed);
            State { depth: before.depth + 1, ..before }
        } else {
            shared.count(header::TOO_DEEP);
            return None;
        };
        word.store(after.word(), Release);
        if shared.events > 0 {
            record(&shared.map, shared.ring, shared.events, now_ns, self.tid, method.0, event::ENTER, after);
        }
        if shared.map.word32(header::ASLEEP).load(Relaxed) != 0 {
            shared.ring();
        }
        Some(before.depth)
    }

    /// The call is over that began at depth `depth`. Calls inside it that never told their end are
    /// over too.
    pub fn exit_at(&self, method: MethodId, depth: u16, now_ns: impl FnOnce() -> u64) {
        let shared = &*self.shared;
        let Some(offset) = self.offset else { return };
        let word = shared.map.word64(offset + slot::STATE);
        let before = State::from_word(word.load(Relaxed));
        let wants_time = shared.enable() & layout::ENABLE_EXIT_TIMES != 0 && depth == 0;
        // The clock is read only for readers that want it.
        let now_ns = if wants_time || shared.events > 0 { now_ns() } else { 0 };
        let sequence = before.sequence.wrapping_add(u32::from(depth == 0));
        if wants_time {
            shared.map.word64(offset + slot::EXITED_AT).store(now_ns, Relaxed);
        }
        let after = State { sequence, depth, method: before.method };
        word.store(after.word(), Release);
        if shared.events > 0 {
            record(&shared.map, shared.ring, shared.events, now_ns, self.tid, method.0, event::EXIT, after);
        }
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        let Some(offset) = self.offset else { return };
        let map = &self.shared.map;
        for word in [slot::STATE, slot::ENTERED_AT, slot::EXITED_AT, slot::NESTED] {
            map.word64(offset + word).store(0, Release);
        }
        map.word32(offset + slot::TID).store(0, Release);
    }
}

/// A thread is inside a watched method for as long as this lives.
#[derive(Debug)]
pub struct Inside<'a> {
    slot: &'a ThreadSlot,
    method: MethodId,
    depth: Option<u16>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if let Some(depth) = self.depth {
            self.slot.exit_at(self.method, depth, now_ns);
        }
    }
}

impl Shared {
    fn enable(&self) -> u32 {
        self.map.word32(header::ENABLE).load(Relaxed)
    }

    fn count(&self, what: usize) {
        self.map.word64(what).fetch_add(1, Relaxed);
    }

    /// The writer that clears `asleep` rings; the others find it cleared.
    #[cold]
    fn ring(&self) {
        if self.map.word32(header::ASLEEP).swap(0, AcqRel) == 0 {
            return;
        }
        let doorbell = self.map.word32(header::DOORBELL);
        doorbell.fetch_add(1, Release);
        if futex::wake(doorbell, futex::Flags::empty(), 1).is_err() {
            self.count(header::NOT_RUNG);
        }
    }
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Both fields are never negative for this clock.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn check(
    what: &'static str,
    bound: &'static str,
    found: usize,
    is_good: impl FnOnce(usize) -> bool,
) -> Result<(), WriterError> {
    if is_good(found) { Ok(()) } else { Err(WriterError::OutOfRange { what, bound, found }) }
}

/// The living process, not this one, whose file it is.
fn used_by(path: &Path) -> Option<u32> {
    let mut bytes = [0; 64];
    File::open(path).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    if bytes[..8] != layout::MAGIC {
        return None;
    }
    let identity = crate::reader::identity(&bytes);
    (identity.pid != std::process::id() && identity.is_alive()).then_some(identity.pid)
}

/// Every byte is written, so that a full disk is an error now and not a SIGBUS later.
fn image_onto(file: &File, methods: &[&str], options: &WriterOptions) -> io::Result<Map> {
    let image = image(methods, options);
    file.write_all_at(&image, 0)?;
    Map::new(file, image.len())
}

/// A new file's bytes. Methods beyond [`METHODS_MAX`](crate::METHODS_MAX) are left out.
pub fn image(methods: &[&str], options: &WriterOptions) -> Vec<u8> {
    let methods = &methods[..methods.len().min(layout::METHODS_MAX as usize)];
    let length = layout::file_length(options.slots, options.events);
    let mut image = vec![0u8; length];
    let mut put = |offset: usize, bytes: &[u8]| image[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &layout::MAGIC);
    put(header::VERSION, &layout::FILE_VERSION.to_le_bytes());
    put(header::SLOT_COUNT, &options.slots.to_le_bytes());
    put(header::EVENT_COUNT, &options.events.to_le_bytes());
    put(header::PID, &options.identity.pid.to_le_bytes());
    put(header::METHOD_COUNT, &(methods.len() as u32).to_le_bytes());
    put(header::PROCESS_STARTED, &options.identity.started.to_le_bytes());
    put(header::BOOT_ID, &options.identity.boot_id);
    put(header::ENABLE, &layout::ENABLE_HOOK.to_le_bytes());
    put(header::CHECK, &layout::CHECK.to_le_bytes());
    put(header::WRITER, cut(&options.writer, header::WRITER_LENGTH).as_bytes());
    for (index, name) in (0..).zip(methods) {
        let (offset, name) = (layout::method_offset(index), cut(name, layout::METHOD_NAME));
        put(offset, &(crate::reader::WATCHED).to_le_bytes());
        put(offset + 4, &(name.len() as u32).to_le_bytes());
        put(offset + 8, name.as_bytes());
    }
    image
}

/// At most `length` bytes of `text`, whole characters.
fn cut(text: &str, length: usize) -> &str {
    let mut end = text.len().min(length);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
