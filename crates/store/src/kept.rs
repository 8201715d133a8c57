//! Items that outlive the process (`--items FILE`): written at its end, read at the next start.
//!
//! ```text
//!   magic "roostit1" | clock: now u32, flush u32, Unix offset i64 | highest CAS u64 | hash of these u64
//!   block: length u32, hash u64, records      ... and so on; a block of length 0 is the end
//!   record: value len u32, flags u32, exptime u32, last access u32, CAS u64, key len u8, marks u8
//!           | key | value
//! ```
//! Numbers are little-endian; times are seconds of the server's clock.
//!
//! The file is taken away when all of it is in memory and before the first client is served, and comes back
//! when the last one has gone. So a run that is killed leaves none, a start that fails takes none away, and
//! no start finds items that have changed since. A lock beside it keeps two servers from one file.
//!
//! Always true:
//! - An item comes back with the value, flags, expiry, CAS id, marks and time of its last access that it
//!   had, or it does not come back. A block whose hash is wrong ends the reading. Which items are evicted
//!   first is not kept: they come back in the order of their hashes.
//! - The server's clock goes on where it stood, plus the time in between; so expiries mean the same.
//! - CAS ids given out later are above all that were given out before.
//! - A flush that was still due comes at its time.
//! - A file that is none of this version's, or is another user's, is refused and left as it is.

use crate::config::Log;
use crate::store::{Carried, KEY_MAX, Store, Summary};
use linux::{SafeError, SafeFolder};
use rapidhash::v3::rapidhash_v3;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind::{InvalidData, UnexpectedEof};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Another version has another one: its files are refused, for to replace them would lose the items.
const MAGIC: &[u8; 8] = b"roostit1";
/// A block is written when it has so many bytes; an item that is longer has a block of its own.
const BLOCK: usize = 1 << 20;

/// Why kept items cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ItemsError {
    #[error("cannot keep items in {}: {cause}\nhint: --items takes a file in a folder that exists and that \
             this user may write", .path.display())]
    Unusable { path: PathBuf, cause: io::Error },
    /// Another user could choose the items.
    #[error(
        "cannot keep items there: {0}\nhint: let --items name a file of this user's own, in a folder that \
             no other user may write"
    )]
    Unsafe(SafeError),
    #[error("the items of {} are another server's\nhint: end it first, or let --items name another file", .0.display())]
    Held(PathBuf),
    #[error("{} is no file of items of this version of roost serve: it is left as it is\nhint: remove it, or \
             let --items name another", .0.display())]
    Foreign(PathBuf),
}

/// The server's clock: the second of its start, and Unix time less its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) first: u32,
    pub(crate) unix_offset: i64,
}

impl Clock {
    /// Server time starts here, because 0 means "never" in an item and 1 "already past".
    const FIRST: u32 = 2;

    pub(crate) fn begun() -> Self {
        Self::new(unix_now())
    }

    fn new(unix_now: i64) -> Self {
        Self { first: Self::FIRST, unix_offset: unix_now - i64::from(Self::FIRST) }
    }

    /// The clock of a run that ended at second `now`, when Unix time was `unix_offset` more. It has gone on
    /// since; where the machine's clock went back, no time has passed.
    fn resumed(now: u32, unix_offset: i64, unix_now: i64) -> Self {
        let passed = u32::try_from(unix_now.saturating_sub(unix_offset).max(0)).unwrap_or(u32::MAX / 2);
        let first = passed.max(now).max(Self::FIRST);
        Self { first, unix_offset: unix_now - i64::from(first) }
    }
}

/// The place of the items, and the last run's file while it is not taken in.
#[derive(Debug)]
pub(crate) struct Items {
    folder: SafeFolder,
    name: OsString,
    pub(crate) path: PathBuf,
    /// Those of the last run, up to its first block.
    left: Option<(File, Head)>,
    /// Locked as long as this lives, so that no other server takes the file.
    _lock: File,
}

impl Items {
    /// Looks for the file of the last run, and leaves it. Returns the clock to go on with.
    pub(crate) fn open(path: &Path) -> Result<(Self, Clock), ItemsError> {
        let unusable = |cause| unusable(path, cause);
        let (mut folder, name) = SafeFolder::of_file(path, None).map_err(unusable)?;
        if rustix::process::geteuid().is_root() {
            folder = folder.trusted().map_err(unusable)?;
        }
        // A file that is refused gets no lock beside it.
        last_run(&folder, &name, path)?;
        // A place that cannot be written is found now as well, and not when the items are in danger.
        let mut lock_name = name.clone();
        lock_name.push(".lock");
        let lock = folder.update(&lock_name, 0o600).map_err(unusable)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|cause| match cause {
            Errno::WOULDBLOCK => ItemsError::Held(path.to_owned()),
            _ => ItemsError::Unusable { path: path.to_owned(), cause: cause.into() },
        })?;
        let left = last_run(&folder, &name, path)?;
        let clock = match &left {
            Some((_, head)) => Clock::resumed(head.now, head.unix_offset, unix_now()),
            None => Clock::begun(),
        };
        Ok((Self { folder, name, path: path.to_owned(), left, _lock: lock }, clock))
    }

    /// Takes the file's items into `store`, and then the file away. Where it cannot be read it stays.
    pub(crate) fn load(&mut self, store: &Store, clock: Clock, log: &Log) -> Result<(), ItemsError> {
        let Some((mut file, head)) = self.left.take() else { return Ok(()) };
        let taken = head.take(&mut file, store, clock.first);
        let taken = taken.map_err(|cause| ItemsError::Unusable { path: self.path.clone(), cause })?;
        self.folder.remove_for_good(&self.name).map_err(|cause| unusable(&self.path, cause))?;
        let back = store.stats().items;
        let mut told = format!("{back} items are back from {}", self.path.display());
        if taken.items > back {
            told.push_str(&format!("; {} found no room", taken.items - back));
        }
        if let Some(cause) = taken.damage {
            told.push_str(&format!("; the rest is lost: {cause}"));
        }
        log.say(&told);
        Ok(())
    }

    /// Writes all items into the file, when no client is served any more.
    pub(crate) fn save(&self, store: &Store, now: u32) -> io::Result<u64> {
        let mut count = 0;
        // Not that of the start: the machine's clock may have been set since.
        let unix_offset = unix_now() - i64::from(now);
        let write = |file: &mut File| {
            count = write(file, store, now, unix_offset)?;
            Ok(())
        };
        self.folder.replace(&self.name, 0o600, write).map_err(SafeError::into_io)?;
        Ok(count)
    }
}

/// The last run's file, up to its first block, if there is one.
fn last_run(folder: &SafeFolder, name: &OsStr, path: &Path) -> Result<Option<(File, Head)>, ItemsError> {
    if !folder.has(name) {
        return Ok(None);
    }
    let owner = rustix::process::geteuid().as_raw();
    let mut file = folder.open_of(name, owner).map_err(|cause| unusable(path, cause))?;
    let head =
        Head::read(&mut file).map_err(|cause| ItemsError::Unusable { path: path.to_owned(), cause })?;
    head.map(|head| Some((file, head))).ok_or_else(|| ItemsError::Foreign(path.to_owned()))
}

fn unusable(path: &Path, cause: SafeError) -> ItemsError {
    match cause {
        SafeError::Io { .. } => ItemsError::Unusable { path: path.to_owned(), cause: cause.into_io() },
        SafeError::Unsafe { .. } => ItemsError::Unsafe(cause),
    }
}

/// The items that were read, but for those that have expired, and why no more were.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken {
    items: u64,
    damage: Option<String>,
}

fn write(to: &mut impl Write, store: &Store, now: u32, unix_offset: i64) -> io::Result<u64> {
    let summary = store.summary(now);
    let head = Head { now, flush_due: summary.flush_due, unix_offset, cas: summary.cas };
    to.write_all(&head.bytes())?;
    let mut block = Vec::with_capacity(BLOCK);
    let (mut cursor, mut count) = (Default::default(), 0);
    while store.walk(&mut cursor, now, |listed| {
        count += 1;
        push(&mut block, listed.key, &Carried::of(&listed));
    }) {
        if block.len() >= BLOCK {
            end_block(to, &mut block)?;
        }
    }
    if !block.is_empty() {
        end_block(to, &mut block)?;
    }
    end_block(to, &mut block)?;
    Ok(count)
}

fn end_block(to: &mut impl Write, block: &mut Vec<u8>) -> io::Result<()> {
    let length = u32::try_from(block.len()).map_err(|_| io::Error::other("an item of more than 4 GiB"))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&rapidhash_v3(block).to_le_bytes())?;
    to.write_all(block)?;
    block.clear();
    Ok(())
}

fn push(block: &mut Vec<u8>, key: &[u8], item: &Carried<'_>) {
    block.extend_from_slice(&(item.value.len() as u32).to_le_bytes());
    for number in [item.flags, item.exptime, item.last_access] {
        block.extend_from_slice(&number.to_le_bytes());
    }
    block.extend_from_slice(&item.cas.to_le_bytes());
    block.extend_from_slice(&[key.len() as u8, item.marks]);
    block.extend_from_slice(key);
    block.extend_from_slice(item.value);
}

/// The beginning of a file, before its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    now: u32,
    /// The second of a flush that is due; 0 if none is.
    flush_due: u32,
    unix_offset: i64,
    cas: u64,
}

impl Head {
    const LENGTH: usize = 40;

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [self.now, self.flush_due] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.unix_offset.to_le_bytes());
        bytes.extend_from_slice(&self.cas.to_le_bytes());
        let hash = rapidhash_v3(&bytes);
        bytes.extend_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// `None` where the file begins otherwise, or the hash is wrong.
    fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; Self::LENGTH];
        if !filled(from, &mut bytes)? {
            return Ok(None);
        }
        let mut fields = Fields(&bytes[MAGIC.len()..]);
        let mut head = || {
            let (now, flush_due) = (fields.u32()?, fields.u32()?);
            Some(Self { now, flush_due, unix_offset: fields.u64()? as i64, cas: fields.u64()? })
        };
        Ok(head().filter(|head| head.bytes() == bytes))
    }

    /// Takes the items of the blocks behind it into `store`.
    fn take(&self, from: &mut impl Read, store: &Store, now: u32) -> io::Result<Taken> {
        // All that was stored is gone by it.
        let is_flushed = self.flush_due != 0 && self.flush_due <= now;
        let taken = if is_flushed { Taken::default() } else { Self::take_blocks(from, store, now)? };
        let flush_due = if is_flushed { 0 } else { self.flush_due };
        store.resume(Summary { cas: self.cas, flush_due });
        Ok(taken)
    }

    fn take_blocks(from: &mut impl Read, store: &Store, now: u32) -> io::Result<Taken> {
        let mut items = 0;
        let mut block = Vec::new();
        let damage = loop {
            match next_block(from, &mut block) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(cause) if [UnexpectedEof, InvalidData].contains(&cause.kind()) => {
                    break Some(cause.to_string());
                }
                Err(cause) => return Err(cause),
            }
            let is_sound = records(&block, &mut |key, item| {
                let is_over = item.exptime != 0 && item.exptime <= now;
                let item = Carried { last_access: item.last_access.min(now), ..*item };
                if !is_over {
                    items += 1;
                    // One that finds no room is as one that was evicted.
                    let _ = store.entry(key, now).carry(&item);
                }
            });
            if !is_sound {
                break Some("a record that cannot be".to_owned());
            }
        };
        Ok(Taken { items, damage })
    }
}

/// Reads a block; `false` for the last, which is empty.
fn next_block(from: &mut impl Read, block: &mut Vec<u8>) -> io::Result<bool> {
    let mut head = [0; 12];
    from.read_exact(&mut head)?;
    let mut fields = Fields(&head);
    let (length, hash) = (fields.u32().unwrap_or_default(), fields.u64().unwrap_or_default());
    block.clear();
    // It grows with the bytes that are there, whatever its length says.
    from.by_ref().take(u64::from(length)).read_to_end(block)?;
    if block.len() != length as usize {
        return Err(UnexpectedEof.into());
    }
    if rapidhash_v3(block) != hash {
        return Err(io::Error::new(InvalidData, "the hash of a block is wrong"));
    }
    Ok(length > 0)
}

/// Calls `each` with the records of a block; `false` at the first that cannot be one.
pub fn records(block: &[u8], each: &mut dyn FnMut(&[u8], &Carried<'_>)) -> bool {
    let mut fields = Fields(block);
    while !fields.0.is_empty() {
        let Some((key, item)) = fields.record() else { return false };
        each(key, &item);
    }
    true
}

/// The fields of some bytes, taken from their beginning.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn record(&mut self) -> Option<(&'a [u8], Carried<'a>)> {
        let value_len = self.u32()? as usize;
        let (flags, exptime, last_access, cas) = (self.u32()?, self.u32()?, self.u32()?, self.u64()?);
        let [key_len, marks] = *self.bytes(2)? else { return None };
        if !(1..=KEY_MAX).contains(&usize::from(key_len)) || cas == 0 {
            return None;
        }
        let key = self.bytes(key_len.into())?;
        let value = self.bytes(value_len)?;
        Some((key, Carried { value, flags, cas, exptime, last_access, marks }))
    }
}

fn unix_now() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

/// False where the bytes end before `room` is full.
fn filled(from: &mut impl Read, room: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(room) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
