//! The planner's end of a ring.

use super::layout::{self, CPUS_MAX, NO_CPU, entry, header};
use super::what;
use crate::map::Map;
use machine::{CpuId, Duration, Instant};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// A ring that this process made and reads.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    file: File,
    capacity: u32,
    /// The next ticket to read. It stands nowhere in the shared memory.
    next: u64,
    tally: RingTally,
}

/// A client's message. All numbers are its own: they were checked for being readable, and for
/// nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Wake {
        id: u64,
        cpus: Cpus,
        ready: Instant,
        stay: Duration,
    },
    /// The event of that request came.
    Came {
        id: u64,
    },
    Withdrawn {
        id: u64,
    },
    /// A computation began of which there were others like it.
    Began {
        id: u64,
        key: u64,
        /// The CPUs needed awake at its end.
        cpus: Cpus,
        at: Instant,
    },
    Ended {
        id: u64,
        at: Instant,
    },
    Armed {
        /// Its name; it is over with [`Said::Ended`] or [`Said::Withdrawn`].
        id: u64,
        expiry: Instant,
        /// The CPUs needed awake.
        cpus: Cpus,
        at: Instant,
    },
    /// Something that comes again and again came once more.
    Arrived {
        key: u64,
        /// The CPUs needed awake for the next.
        cpus: Cpus,
        at: Instant,
    },
    /// A client has announced that it will send: so far ahead, as well as it knows.
    Follows {
        /// Its name; the event is [`Said::Ended`], or [`Said::Withdrawn`] if it will not come.
        id: u64,
        key: u64,
        due: Instant,
        cpus: Cpus,
        at: Instant,
    },
}

/// Up to [`CPUS_MAX`] CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus([u16; CPUS_MAX]);

impl Cpus {
    /// The first [`CPUS_MAX`] of these.
    pub fn of(cpus: impl IntoIterator<Item = CpuId>) -> Self {
        let mut all = [NO_CPU; CPUS_MAX];
        all.iter_mut().zip(cpus).for_each(|(place, cpu)| *place = cpu.0);
        Self(all)
    }

    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        let named =
            self.0.iter().enumerate().filter(|&(nth, cpu)| *cpu != NO_CPU && !self.0[..nth].contains(cpu));
        named.map(|(_, cpu)| CpuId(*cpu))
    }

    pub(crate) fn word(self) -> u64 {
        self.0.iter().rev().fold(0, |word, &cpu| word << 16 | u64::from(cpu))
    }

    fn from_word(word: u64) -> Self {
        Self(std::array::from_fn(|nth| (word >> (16 * nth)) as u16))
    }
}

/// The counts of one ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingTally {
    pub taken: u64,
    /// Of these, such as say nothing that is known.
    pub nonsense: u64,
    /// Too near to be of use, by the client's own count.
    pub too_late: u64,
    /// The ring had no room, by the client's own count.
    pub full: u64,
    /// The doorbell could not be rung, by the client's own count.
    pub not_rung: u64,
    /// The doorbell was rung, by the client's own count.
    pub rung: u64,
}

impl Ring {
    /// A new ring of so many entries, rounded up to a power of two within bounds.
    pub fn create(entries: u32) -> io::Result<Self> {
        let capacity = entries.clamp(2, layout::RING_ENTRIES_MAX).next_power_of_two();
        let length = layout::ring_length(capacity);
        let file = File::from(memfd_create("roost-wake", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(length as u64)?;
        // Neither side can be hurt by the other's truncating it.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = Map::new(&file, length)?;
        for ticket in 0..u64::from(capacity) {
            map.word64(layout::entry_offset(ticket, capacity) + entry::SEQUENCE).store(ticket, Relaxed);
        }
        map.word32(header::CAPACITY).store(capacity, Relaxed);
        map.word32(header::VERSION).store(layout::RING_VERSION, Relaxed);
        map.word64(0).store(u64::from_le_bytes(layout::MAGIC), Release);
        Ok(Self { map, file, capacity, next: 0, tally: RingTally::default() })
    }

    /// To be handed to the client.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The next thing that the client has said; `None` if there is nothing more now, or after a
    /// ring's worth: `turn` counts those of one visit.
    pub fn take(&mut self, turn: &mut u32) -> Option<Said> {
        while *turn < self.capacity {
            let at = layout::entry_offset(self.next, self.capacity);
            let sequence = self.map.word64(at + entry::SEQUENCE);
            if sequence.load(Acquire) != self.next.wrapping_add(1) {
                return None;
            }
            let word = |offset: usize| self.map.word64(at + offset).load(Relaxed);
            let said = said(self.map.word32(at + entry::WHAT).load(Relaxed), word);
            sequence.store(self.next.wrapping_add(u64::from(self.capacity)), Release);
            self.next = self.next.wrapping_add(1);
            self.tally.taken += 1;
            *turn += 1;
            match said {
                Some(said) => return Some(said),
                None => self.tally.nonsense += 1,
            }
        }
        None
    }

    /// The planner is about to sleep; true if something was said meanwhile, so that it must not.
    pub fn sleep(&self) -> bool {
        self.map.word32(header::ASLEEP).store(1, SeqCst);
        fence(SeqCst);
        let at = layout::entry_offset(self.next, self.capacity);
        self.map.word64(at + entry::SEQUENCE).load(Acquire) == self.next.wrapping_add(1)
    }

    /// The planner is awake: no client need ring.
    pub fn wake(&self) {
        self.map.word32(header::ASLEEP).store(0, Release);
    }

    /// Nearer than this is too late.
    pub fn set_lead(&self, lead: Duration) {
        self.map.word64(header::LEAD).store(lead.as_nanos(), Release);
    }

    /// Reports to the client the outcome of its requests.
    pub fn tell(&self, accepted: u64, refused: u64) {
        self.map.word64(header::TAKEN).store(self.tally.taken, Release);
        self.map.word64(header::ACCEPTED).store(accepted, Release);
        self.map.word64(header::REFUSED).store(refused, Release);
    }

    /// The counts of both sides.
    pub fn tally(&self) -> RingTally {
        let word = |offset: usize| self.map.word64(offset).load(Relaxed);
        RingTally {
            too_late: word(header::TOO_LATE),
            full: word(header::FULL),
            not_rung: word(header::NOT_RUNG),
            rung: word(header::RUNG),
            ..self.tally
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.map.word32(header::CLOSED).store(1, Release);
    }
}

fn said(what: u32, word: impl Fn(usize) -> u64) -> Option<Said> {
    let (id, key) = (word(entry::ID), word(entry::KEY));
    let (time, stay) = (Instant::from_nanos(word(entry::READY)), word(entry::STAY));
    let cpus = Cpus::from_word(word(entry::CPUS));
    Some(match what {
        what::WAKE => Said::Wake { id, cpus, ready: time, stay: Duration::from_nanos(stay) },
        what::CAME => Said::Came { id },
        what::WITHDRAWN => Said::Withdrawn { id },
        what::BEGAN => Said::Began { id, key, cpus, at: time },
        what::ENDED => Said::Ended { id, at: time },
        what::ARMED => Said::Armed { id, expiry: time, cpus, at: Instant::from_nanos(stay) },
        what::ARRIVED => Said::Arrived { key, cpus, at: time },
        what::FOLLOWS => Said::Follows { id, key, due: time, cpus, at: Instant::from_nanos(stay) },
        _ => return None,
    })
}
