//! Any words may lie in a ring, its header included, which both sides write: a visit takes a ring's
//! worth of entries at most, none names more CPUs than it may, and nothing that a client counts
//! stops the planner from counting.

use slots::Map;
use slots::wake::{CPUS_MAX, Ring, Said};
use std::sync::atomic::Ordering::Release;

const ENTRIES: u8 = 4;
/// Words of the entries, and of that part of the header in which anything stands.
const ENTRY_WORDS: u8 = ENTRIES * 8;
const HEADER_WORDS: u8 = 48;

pub fn run(bytes: &[u8]) {
    let mut ring = Ring::create(u32::from(ENTRIES)).expect("a ring");
    let memory = std::fs::File::from(ring.descriptor().try_clone_to_owned().expect("a descriptor"));
    let map = Map::new(&memory, 4096 + 64 * usize::from(ENTRIES)).expect("a mapping");
    for chunk in bytes.chunks_exact(9) {
        let word = u64::from_le_bytes(chunk[1..].try_into().expect("eight"));
        match chunk[0] {
            place @ ..ENTRY_WORDS => map.word64(4096 + 8 * usize::from(place)).store(word, Release),
            place if place < ENTRY_WORDS + HEADER_WORDS => {
                map.word64(8 * usize::from(place - ENTRY_WORDS)).store(word, Release);
            }
            // As a client fills an entry: else hardly one would ever be taken.
            _ => {
                let ticket = ring.tally().taken;
                let entry = 4096 + 64 * (ticket as usize % usize::from(ENTRIES));
                map.word64(entry).store(ticket + 1, Release);
            }
        }
        let (mut turn, before) = (0, ring.tally());
        while let Some(said) = ring.take(&mut turn) {
            match said {
                Said::Wake { cpus, .. }
                | Said::Began { cpus, .. }
                | Said::Armed { cpus, .. }
                | Said::Arrived { cpus, .. }
                | Said::Follows { cpus, .. } => assert!(cpus.iter().count() <= CPUS_MAX),
                Said::Came { .. } | Said::Withdrawn { .. } | Said::Ended { .. } => {}
            }
        }
        assert!(turn <= u32::from(ENTRIES));
        assert_eq!(ring.tally().taken, before.taken + u64::from(turn));
        ring.sleep();
        ring.wake();
        ring.tell(word, !word);
    }
}
