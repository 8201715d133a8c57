//! Where everything is in a slot file: the one place that knows. Little endian, fixed offsets; only
//! how many slots and events there are varies, and both stand in the header.
//!
//! ```text
//!      0  header   4096 bytes      the writer; switches; failures
//!   4096  methods  64 x 512        id -> name
//!  36864  slots    slot_count x 64 one per thread
//!      .  events   event_count x 32, optional
//! ```

/// Raised by a change that an older reader or writer would misunderstand.
pub const FILE_VERSION: u32 = 1;
/// Methods that one file can name.
pub const METHODS_MAX: u32 = 64;
/// Threads that one file can hold at a time.
pub const SLOTS_MAX: u32 = 16_384;
/// Entries that an event ring can have.
pub(crate) const EVENTS_MAX: u32 = 1 << 20;

/// The first eight bytes of the file.
pub(crate) const MAGIC: [u8; 8] = *b"ROOSTHOT";
/// Bytes of the header.
pub(crate) const HEADER: usize = 4096;

pub(crate) mod header {
    pub const VERSION: usize = 8;
    pub const SLOT_COUNT: usize = 12;
    pub const EVENT_COUNT: usize = 16;
    pub const FLAGS: usize = 20;
    pub const PID: usize = 24;
    pub const METHOD_COUNT: usize = 28;
    pub const PROCESS_STARTED: usize = 32;
    pub const BOOT_ID: usize = 40;
    /// The fields that every enter reads lie in one cache line, which hardly ever changes.
    pub const ENABLE: usize = 64;
    pub const CHECK: usize = 68;
    pub const ASLEEP: usize = 72;
    pub const DOORBELL: usize = 76;
    pub const NO_SLOT: usize = 128;
    pub const NO_TID: usize = 136;
    pub const VIRTUAL_THREADS: usize = 144;
    pub const TOO_DEEP: usize = 152;
    pub const NOT_RUNG: usize = 160;
    pub const ERRORS: usize = 168;
    pub const EVENTS_LOST: usize = 176;
    pub const SLOTS_USED: usize = 184;
    /// A line of its own: with events on, every thread adds to it.
    pub const EVENT_HEAD: usize = 192;
    pub const WRITER: usize = 256;
    pub const WRITER_LENGTH: usize = 64;
}

/// `CHECK` never changes. A writer whose file was cut short reads something else there.
pub(crate) const CHECK: u32 = u32::from_le_bytes(*b"ROST");
/// In `FLAGS`: the writer has no way to ring, so a reader must look by itself now and then.
pub(crate) const FLAG_CANNOT_RING: u32 = 1;
pub(crate) const ENABLE_HOOK: u32 = 1;
/// In `ENABLE`: exits store their time too (one more reading of the clock).
pub(crate) const ENABLE_EXIT_TIMES: u32 = 2;

/// Bytes of a method's entry: state, length of the name, the name.
pub(crate) const METHOD: usize = 512;
/// Longest name of a method, in bytes.
pub(crate) const METHOD_NAME: usize = METHOD - 8;
pub(crate) const METHODS: usize = HEADER;
/// Bytes of a slot: one cache line.
pub(crate) const SLOT: usize = 64;
pub(crate) const SLOTS: usize = METHODS + METHODS_MAX as usize * METHOD;

pub(crate) mod slot {
    pub const STATE: usize = 0;
    pub const ENTERED_AT: usize = 8;
    pub const EXITED_AT: usize = 16;
    pub const NESTED: usize = 24;
    pub const TID: usize = 32;
    pub const CLAIMS: usize = 36;
}

/// Bytes of an event.
pub(crate) const EVENT: usize = 32;

pub(crate) mod event {
    pub const TICKET: usize = 0;
    pub const AT: usize = 8;
    /// Thread (low 32 bits), method, kind.
    pub const WHAT: usize = 16;
    /// Sequence (low 32 bits), depth.
    pub const STATE: usize = 24;
    /// In `TICKET`: a writer is filling this entry.
    pub const BUSY: u64 = u64::MAX;
    pub const ENTER: u16 = 1;
    pub const EXIT: u16 = 2;
}

pub(crate) const fn slot_offset(index: u32) -> usize {
    SLOTS + index as usize * SLOT
}

pub(crate) const fn method_offset(index: u32) -> usize {
    METHODS + index as usize * METHOD
}

pub(crate) const fn events_offset(slot_count: u32) -> usize {
    slot_offset(slot_count)
}

pub(crate) const fn file_length(slot_count: u32, event_count: u32) -> usize {
    events_offset(slot_count) + event_count as usize * EVENT
}

/// A slot's first word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Odd: inside.
    pub sequence: u32,
    /// Calls that the thread is in.
    pub depth: u16,
    pub method: u16,
}

impl State {
    pub const fn from_word(word: u64) -> Self {
        Self { sequence: word as u32, depth: (word >> 32) as u16, method: (word >> 48) as u16 }
    }

    pub const fn word(self) -> u64 {
        self.sequence as u64 | (self.depth as u64) << 32 | (self.method as u64) << 48
    }

    pub const fn is_inside(self) -> bool {
        self.sequence % 2 == 1
    }
}

/// Failures on the writer's side, counted since the file was made. None of them harmed the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Enters of threads that found no free slot.
    pub no_slot: u64,
    /// Threads whose kernel id could not be had: their slots tell -1.
    pub no_tid: u64,
    /// Enters of virtual threads: they change carriers inside a call, so no slot can tell where
    /// they run.
    pub virtual_threads: u64,
    /// Calls nested deeper than 65,534.
    pub too_deep: u64,
    /// Doorbells that could not be rung.
    pub not_rung: u64,
    /// Anything else; the hook has switched itself off.
    pub errors: u64,
    /// Events for which the ring had no place, because that entry's last writer had not finished.
    pub events_lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_state_reads_back_as_it_was_written(sequence: u32, depth: u16, method: u16) {
            let state = State { sequence, depth, method };
            prop_assert_eq!(State::from_word(state.word()), state);
        }
    }

    #[test]
    fn sections_follow_each_other_and_slots_are_cache_lines() {
        assert_eq!((SLOTS, SLOTS % SLOT, events_offset(2)), (36_864, 0, 36_992));
        assert_eq!(file_length(1024, 0), 102_400);
    }
}
