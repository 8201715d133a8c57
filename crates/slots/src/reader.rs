//! The governor's side: which threads are inside now, and a sleep that ends when a thread enters.
//!
//! A slot file belongs to the service's user, and the governor may be root: so the file is an
//! enemy's. It is opened without following a link, must be a regular file, and is read by `pread`,
//! so that cutting it short is an error and not a SIGBUS. Its header is mapped as well, for the
//! futex's address alone: the kernel looks there, this code never does. Every number is bounded
//! before it is used, and no loop is as long as the file says.
//!
//! How a slot is read without a lock ([`Reader::look`]): twice. Sequences only grow, and an enter's
//! time is written while its sequence is even. If both copies show the same odd sequence, the same
//! claim and the same time, the thread was in that one call from the first copy to the second, and
//! the time is that call's. Words of 64 bits are copied whole by every kernel that Roost runs on; a
//! word that were not would differ between the copies.

use crate::events::{Event, Events, parse as parse_event};
use crate::identity::Identity;
use crate::layout::{self, EVENT, Failures, SLOT, SLOTS, State, header, slot};
use crate::memory::{FileMemory, Memory};
use machine::{Duration, Instant};
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a slot that changes between two copies is copied again before it is called moving.
const LOOKS: usize = 4;
/// A store that a writer has made is visible to all threads long before.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// A sleep that is no longer needs no look in between.
const SOON_ENOUGH: Duration = Duration::from_millis(2);
/// How long to sleep at a time where the writer has no way to ring.
const UNRUNG_LOOK: Duration = Duration::from_millis(5);

/// A method's entry: the class that has it was not loaded yet.
pub(crate) const WAITING: u32 = 0;
/// A method's entry: its enters and exits are told.
pub(crate) const WATCHED: u32 = 1;

/// Reads a slot file of another process.
#[derive(Debug)]
pub struct Reader {
    source: Arc<Source>,
    slot_count: u32,
    event_count: u32,
    can_ring: bool,
    identity: Identity,
    writer: String,
    /// Two copies of the slots, and the calls found in them.
    copies: [Vec<u8>; 2],
    slots: Vec<Slot>,
    next_event: u64,
    /// An event that was not there last time.
    awaited: Option<u64>,
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    memory: Box<dyn Memory>,
    /// A [`Bell`] rang, and no sleep has ended of it yet.
    called: AtomicBool,
}

/// Why a file is not read, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a slot file: {why}; name the file that the agent's `file=` option names")]
    NotOne { path: PathBuf, why: String },
    #[error(
        "{path} has format {found} and was written by \"{writer}\", but this Roost reads format \
         {expected}: use the agent that came with it"
    )]
    Version { path: PathBuf, found: u32, expected: u32, writer: String },
    #[error("{path} was cut short: byte {at} is missing; restart the service, its agent makes a new file")]
    Truncated {
        path: PathBuf,
        /// The first byte that is not there.
        at: u64,
    },
}

/// A thread and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub index: u32,
    /// The thread, in the writer's pid namespace; `None` if the writer could not tell.
    pub tid: Option<u32>,
    /// How often the slot was taken, modulo 2^32: another number, another thread.
    pub claims: u32,
    /// Odd inside, 2N after N calls, modulo 2^32.
    pub sequence: u32,
    /// Calls from inside, since the thread began.
    pub nested: u64,
    pub activity: Activity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Inside {
        /// Which of [`Reader::methods`]; the outermost. A hostile file may name one that it has
        /// not.
        method: u16,
        /// Since when, on the monotonic clock.
        since: Instant,
        depth: u16,
    },
    Outside {
        /// How long the last call took, if exit times are asked for ([`Enable::OnWithExitTimes`]).
        last: Option<Duration>,
    },
    /// It enters and leaves so fast that no two looks met the same call. It is not long in any.
    Moving,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// `package.Class::method(descriptor)`, or whatever a native server called it.
    pub name: String,
    pub state: MethodState,
}

/// Whether enters and exits of a method are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodState {
    /// Not yet: the JVM has not loaded its class.
    Waiting,
    Watched,
    /// The agent found no such method, or several: the service's standard error says which.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enable {
    /// Nothing: two loads and a branch a call.
    Off,
    On,
    /// They also tell how long the last call took, for one more reading of the clock.
    OnWithExitTimes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A thread entered, or was inside already. [`Reader::look`] says which.
    Entered,
    /// A [`Bell`] was rung.
    Called,
    TimedOut,
}

/// Ends a reader's sleep from another thread.
#[derive(Clone, Debug)]
pub struct Bell {
    source: Arc<Source>,
}

impl Reader {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self, ReaderError> {
        // NONBLOCK: a FIFO of that name must not hold the governor up.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty());
        let file = file.map_err(|error| ReaderError::Io { path: path.to_owned(), source: error.into() })?;
        Self::from_file(File::from(file), path)
    }

    /// Reads an open file; errors call it `path`.
    pub fn from_file(file: File, path: &Path) -> Result<Self, ReaderError> {
        let failed = |source| ReaderError::Io { path: path.to_owned(), source };
        let not_one = |why: String| ReaderError::NotOne { path: path.to_owned(), why };
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(not_one("it is no regular file".into()));
        }
        if about.len() < SLOTS as u64 {
            return Err(not_one(format!(
                "it has {} bytes, and the smallest has more than {SLOTS}",
                about.len()
            )));
        }
        // Root writes into it: a file of root's must not lie there by another name.
        if about.nlink() > 1 {
            return Err(not_one("it has several names".into()));
        }
        let memory = FileMemory::new(file).map_err(failed)?;
        let reader = Self::from_memory(Box::new(memory), about.len(), path)?;
        // In a folder like /dev/shm any user may have taken the name first, and would then speak
        // for the service.
        let written_by = reader.identity;
        if let (Some(user), true) = (user_of(written_by.pid), written_by.is_alive())
            && about.uid() != user
            && about.uid() != 0
        {
            return Err(not_one(format!(
                "it belongs to user {}, and process {}, which it says it is written by, to user {user}",
                about.uid(),
                written_by.pid
            )));
        }
        Ok(reader)
    }

    /// Reads memory of `length` bytes in which a slot file lies; errors call it `path`.
    pub fn from_memory(memory: Box<dyn Memory>, length: u64, path: &Path) -> Result<Self, ReaderError> {
        let not_one = |why: String| ReaderError::NotOne { path: path.to_owned(), why };
        let mut bytes = [0; layout::HEADER];
        memory.read(&mut bytes, 0).map_err(|source| ReaderError::Io { path: path.to_owned(), source })?;
        if bytes[..8] != layout::MAGIC {
            return Err(not_one("it does not begin with ROOSTHOT".into()));
        }
        let writer = text(&bytes[header::WRITER..][..header::WRITER_LENGTH]);
        let found = u32_at(&bytes, header::VERSION);
        if found != layout::FILE_VERSION {
            let (path, expected) = (path.to_owned(), layout::FILE_VERSION);
            return Err(ReaderError::Version { path, found, expected, writer });
        }
        let (slot_count, event_count) =
            (u32_at(&bytes, header::SLOT_COUNT), u32_at(&bytes, header::EVENT_COUNT));
        if !(1..=layout::SLOTS_MAX).contains(&slot_count) {
            return Err(not_one(format!("it claims {slot_count} slots, of 1 to {}", layout::SLOTS_MAX)));
        }
        if event_count != 0 && (!event_count.is_power_of_two() || event_count > layout::EVENTS_MAX) {
            let most = layout::EVENTS_MAX;
            return Err(not_one(format!("it claims {event_count} events, not a power of two up to {most}")));
        }
        if length < layout::file_length(slot_count, event_count) as u64 {
            return Err(ReaderError::Truncated { path: path.to_owned(), at: length });
        }
        Ok(Self {
            slot_count,
            event_count,
            can_ring: u32_at(&bytes, header::FLAGS) & layout::FLAG_CANNOT_RING == 0,
            identity: identity(&bytes),
            writer,
            copies: [Vec::new(), Vec::new()],
            slots: Vec::new(),
            next_event: u64_at(&bytes, header::EVENT_HEAD),
            awaited: None,
            source: Arc::new(Source { path: path.to_owned(), memory, called: AtomicBool::new(false) }),
        })
    }

    /// The process that writes the file, by its own account. Whether it lives is to be asked
    /// elsewhere: a reader that sleeps is not woken by its death.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The file's writer, by its own account: name, version, language.
    pub fn writer(&self) -> &str {
        &self.writer
    }

    /// Threads that the file has room for.
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// Whether an enter can end [`sleep`](Self::sleep). Where it cannot, sleep looks every 5 ms.
    pub fn can_be_rung(&self) -> bool {
        self.can_ring
    }

    /// The methods that the file names, by number.
    pub fn methods(&self) -> Result<Vec<Method>, ReaderError> {
        let count = self.source.word32(header::METHOD_COUNT)?.min(layout::METHODS_MAX);
        let mut bytes = vec![0; count as usize * layout::METHOD];
        self.source.read(&mut bytes, layout::METHODS)?;
        let methods = bytes.chunks_exact(layout::METHOD).map(|entry| {
            let length = (u32_at(entry, 4) as usize).min(layout::METHOD_NAME);
            let state = match u32_at(entry, 0) {
                WAITING => MethodState::Waiting,
                WATCHED => MethodState::Watched,
                _ => MethodState::Refused,
            };
            Method { name: text(&entry[8..8 + length]), state }
        });
        Ok(methods.collect())
    }

    /// Failures on the writer's side.
    pub fn failures(&self) -> Result<Failures, ReaderError> {
        let mut bytes = [0; header::SLOTS_USED];
        self.source.read(&mut bytes, 0)?;
        Ok(Failures {
            no_slot: u64_at(&bytes, header::NO_SLOT),
            no_tid: u64_at(&bytes, header::NO_TID),
            virtual_threads: u64_at(&bytes, header::VIRTUAL_THREADS),
            too_deep: u64_at(&bytes, header::TOO_DEEP),
            not_rung: u64_at(&bytes, header::NOT_RUNG),
            errors: u64_at(&bytes, header::ERRORS),
            events_lost: u64_at(&bytes, header::EVENTS_LOST),
        })
    }

    /// Sets the writers' switches: which calls they record. A call that is under way keeps the
    /// earlier setting.
    pub fn enable(&self, enable: Enable) -> Result<(), ReaderError> {
        let word = match enable {
            Enable::Off => 0,
            Enable::On => layout::ENABLE_HOOK,
            Enable::OnWithExitTimes => layout::ENABLE_HOOK | layout::ENABLE_EXIT_TIMES,
        };
        self.source.write32(header::ENABLE, word)
    }

    /// Every thread that has a slot, and where it is. Two system calls, some more where a thread
    /// moves meanwhile.
    pub fn look(&mut self) -> Result<&[Slot], ReaderError> {
        let used = self.source.word32(header::SLOTS_USED)?.min(self.slot_count);
        let length = used as usize * SLOT;
        self.slots.clear();
        let [first, second] = &mut self.copies;
        first.resize(length, 0);
        second.resize(length, 0);
        self.source.read(first, SLOTS)?;
        let mut unsettled: Vec<u32> = (0..used).collect();
        for _ in 0..LOOKS {
            self.source.read(second, SLOTS)?;
            unsettled.retain(|&index| {
                let at = index as usize * SLOT;
                match settled(&first[at..at + SLOT], &second[at..at + SLOT], index) {
                    Settled::Free => false,
                    Settled::Taken(slot) => {
                        self.slots.push(slot);
                        false
                    }
                    Settled::No => true,
                }
            });
            if unsettled.is_empty() {
                break;
            }
            std::mem::swap(first, second);
        }
        for index in unsettled {
            let at = index as usize * SLOT;
            self.slots.push(Slot { activity: Activity::Moving, ..slot_from(&second[at..at + SLOT], index) });
        }
        self.slots.sort_unstable_by_key(|slot| slot.index);
        Ok(&self.slots)
    }

    /// Sleeps until a thread enters, at most for `timeout`. Returns at once if one is inside.
    ///
    /// An enter looks at `asleep` without a fence after its state: it may miss an `asleep` that was
    /// set in the same instant, and then this side may not have seen its state either. So the slots
    /// are looked at again after the first millisecond, when that state has long been seen; after
    /// that nothing can be missed.
    pub fn sleep(&mut self, timeout: Option<Duration>) -> Result<Woken, ReaderError> {
        self.sleep_beside(|_| false, timeout)
    }

    /// The same, but threads that `is_known` holds for cause no wake-up: a call that the caller has
    /// seen already, or a thread that died inside and left its slot so.
    pub fn sleep_beside(
        &mut self,
        is_known: impl Fn(&Slot) -> bool,
        timeout: Option<Duration>,
    ) -> Result<Woken, ReaderError> {
        let doorbell = self.source.word32(header::DOORBELL)?;
        self.source.write32(header::ASLEEP, 1)?;
        let woken = self.sleep_from(doorbell, is_known, timeout);
        // Where the writer rang it is cleared already; where it did not, no writer should ring.
        self.source.write32(header::ASLEEP, 0)?;
        woken
    }

    fn sleep_from(
        &mut self,
        doorbell: u32,
        is_known: impl Fn(&Slot) -> bool,
        timeout: Option<Duration>,
    ) -> Result<Woken, ReaderError> {
        // A moment, not a sum of all requests: a wait may end early, by a signal or for no reason.
        let began = now();
        let over = timeout.map(|timeout| began + timeout);
        // A reader that sleeps for hardly longer looks again soon enough by itself.
        let mut step = timeout.is_none_or(|timeout| timeout > SOON_ENOUGH).then_some(FIRST_LOOK);
        loop {
            // After the doorbell was read: a ring from now on changes it, and a ring before
            // has left word.
            if self.source.called.swap(false, Ordering::Acquire) {
                return Ok(Woken::Called);
            }
            let is_inside = self
                .look()?
                .iter()
                .any(|slot| !matches!(slot.activity, Activity::Outside { .. }) && !is_known(slot));
            if is_inside {
                return Ok(Woken::Entered);
            }
            let left = over.map(|over| over.since(now()));
            if left.is_some_and(Duration::is_zero) {
                return Ok(Woken::TimedOut);
            }
            let wait = match (step, left) {
                (Some(step), Some(left)) => Some(step.min(left)),
                (step, left) => step.or(left),
            };
            if self.source.wait(doorbell, wait)? {
                let is_own = self.source.called.swap(false, Ordering::Acquire);
                return Ok(if is_own { Woken::Called } else { Woken::Entered });
            }
            // The first look is due a millisecond after falling asleep, also where that wait was
            // cut short.
            if step == Some(FIRST_LOOK) && now().since(began) < FIRST_LOOK {
                continue;
            }
            step = (!self.can_ring).then_some(UNRUNG_LOOK);
        }
    }

    /// A way to end [`sleep`](Self::sleep) from another thread.
    pub fn bell(&self) -> Bell {
        Bell { source: self.source.clone() }
    }

    /// The event ring's events from number `first` on: 0 for all that it still has.
    pub fn events_from(&mut self, first: u64) -> Result<Events, ReaderError> {
        self.next_event = first;
        self.events()
    }

    /// The event ring's events since the last call, or since the file was opened. A file without
    /// one has none.
    pub fn events(&mut self) -> Result<Events, ReaderError> {
        let mut found = Events::default();
        if self.event_count == 0 {
            return Ok(found);
        }
        let length = u64::from(self.event_count);
        let head = self.source.word64(header::EVENT_HEAD)?;
        // A head that runs backwards or away is a hostile one; at most a ring's worth is ever read.
        let oldest = head.saturating_sub(length);
        if self.next_event < oldest || self.next_event > head {
            found.lost += oldest.saturating_sub(self.next_event);
            self.next_event = oldest;
        }
        let (mut first, mut second) =
            (vec![0; self.event_count as usize * EVENT], vec![0; self.event_count as usize * EVENT]);
        let ring = layout::events_offset(self.slot_count);
        self.source.read(&mut first, ring)?;
        self.source.read(&mut second, ring)?;
        while self.next_event < head {
            let at = (self.next_event & (length - 1)) as usize * EVENT;
            let (one, two) = (&first[at..at + EVENT], &second[at..at + EVENT]);
            match (one == two).then(|| event_at(one, self.next_event)).flatten() {
                Some(event) => found.events.push(event),
                // Its writer may be at it still; that is waited for once.
                None if self.awaited != Some(self.next_event) && !is_overwritten(two, self.next_event) => {
                    self.awaited = Some(self.next_event);
                    break;
                }
                None => found.lost += 1,
            }
            self.next_event += 1;
        }
        Ok(found)
    }
}

impl Bell {
    /// Ends the reader's sleep, or else the next one as soon as it begins.
    pub fn ring(&self) -> Result<(), ReaderError> {
        self.source.called.store(true, Ordering::Release);
        let doorbell = self.source.word32(header::DOORBELL)?;
        self.source.write32(header::DOORBELL, doorbell.wrapping_add(CALLED))?;
        self.source.memory.wake().map_err(|error| self.source.failed(error))
    }
}

fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    // Both fields are never negative for this clock.
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The amount that a [`Bell`] adds to the doorbell. The sum never equals the value that a sleeper
/// has read, also where rings from enters, one each, or other bells come between: none of them
/// takes away as much.
const CALLED: u32 = 1 << 16;

impl Source {
    fn failed(&self, source: io::Error) -> ReaderError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                ReaderError::Truncated { path, at: self.memory.length().unwrap_or(0) }
            }
            _ => ReaderError::Io { path, source },
        }
    }

    fn read(&self, bytes: &mut [u8], offset: usize) -> Result<(), ReaderError> {
        self.memory.read(bytes, offset).map_err(|error| self.failed(error))
    }

    fn word32(&self, offset: usize) -> Result<u32, ReaderError> {
        let mut bytes = [0; 4];
        self.read(&mut bytes, offset)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn word64(&self, offset: usize) -> Result<u64, ReaderError> {
        let mut bytes = [0; 8];
        self.read(&mut bytes, offset)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Refused where the file has ended before: writing must not make it longer.
    fn write32(&self, offset: usize, word: u32) -> Result<(), ReaderError> {
        self.word32(offset)?;
        self.memory.write32(offset, word).map_err(|error| self.failed(error))
    }

    /// Waits while the doorbell is `doorbell`; whether it rang.
    fn wait(&self, doorbell: u32, timeout: Option<Duration>) -> Result<bool, ReaderError> {
        self.memory.wait(doorbell, timeout).map_err(|error| self.failed(error))?;
        // Woken without a ring, or by a signal: the value is unchanged, and the following look
        // decides.
        Ok(self.word32(header::DOORBELL)? != doorbell)
    }
}

enum Settled {
    Free,
    Taken(Slot),
    No,
}

/// The part on which two copies of a slot agree.
fn settled(first: &[u8], second: &[u8], index: u32) -> Settled {
    let (one, two) = (slot_from(first, index), slot_from(second, index));
    if i32_at(first, slot::TID) == 0 && i32_at(second, slot::TID) == 0 {
        return Settled::Free;
    }
    let is_same = match (one.activity, two.activity) {
        // The depth may change within the call, and the newer one is as good.
        (Activity::Inside { since: a, .. }, Activity::Inside { since: b, .. }) => a == b,
        (Activity::Outside { .. }, Activity::Outside { .. }) => first[..24] == second[..24],
        _ => false,
    };
    if is_same && (one.tid, one.claims, one.sequence) == (two.tid, two.claims, two.sequence) {
        Settled::Taken(two)
    } else {
        Settled::No
    }
}

/// A slot as one copy shows it.
fn slot_from(bytes: &[u8], index: u32) -> Slot {
    let state = State::from_word(u64_at(bytes, slot::STATE));
    let (entered_at, exited_at) = (u64_at(bytes, slot::ENTERED_AT), u64_at(bytes, slot::EXITED_AT));
    let activity = if state.is_inside() {
        let since = Instant::from_nanos(entered_at);
        Activity::Inside { method: state.method, since, depth: state.depth }
    } else {
        // An older exit than the enter is another call's: exit times were off, or the next enter
        // has begun.
        let last = exited_at.checked_sub(entered_at).filter(|&length| length > 0 && entered_at > 0);
        Activity::Outside { last: last.map(Duration::from_nanos) }
    };
    Slot {
        index,
        tid: u32::try_from(i32_at(bytes, slot::TID)).ok().filter(|&tid| tid > 0),
        claims: u32_at(bytes, slot::CLAIMS),
        sequence: state.sequence,
        nested: u64_at(bytes, slot::NESTED),
        activity,
    }
}

fn event_at(bytes: &[u8], number: u64) -> Option<Event> {
    parse_event([0, 8, 16, 24].map(|at| u64_at(bytes, at)), number.wrapping_add(1))
}

/// Whether a later event has taken the entry of that number.
fn is_overwritten(bytes: &[u8], number: u64) -> bool {
    let ticket = u64_at(bytes, 0);
    ticket != layout::event::BUSY && ticket > number.wrapping_add(1)
}

/// The writer's identity as a header has it; `bytes` has at least 56.
pub(crate) fn identity(bytes: &[u8]) -> Identity {
    let mut boot_id = [0; 16];
    boot_id.copy_from_slice(&bytes[header::BOOT_ID..header::BOOT_ID + 16]);
    Identity { pid: u32_at(bytes, header::PID), started: u64_at(bytes, header::PROCESS_STARTED), boot_id }
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(word)
}

fn i32_at(bytes: &[u8], offset: usize) -> i32 {
    u32_at(bytes, offset) as i32
}

/// Text up to its first NUL, fit for a terminal whatever it was.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end])
        .chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}
/// The user that a process acts as; its folder's owner is root where it may not be looked into.
fn user_of(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().nth(1)?.parse().ok()
}
