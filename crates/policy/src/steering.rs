//! Interrupts go where the work goes.
//!
//! A device answers to the CPU that its interrupt belongs to. Where that one is parked, it wakes from
//! its deepest state, on the path of the request, and then wakes the thread that waits; of a parked
//! CPU that is woken often neither the sleep nor the power of its plan is true. With steering an
//! interrupt keeps its CPU while that is active, and goes to an active one while it is parked.
//!
//! Live it is `move_interrupts` of the daemon, by the masks of interrupts and the indirection tables
//! of network cards. The masks of some are not to be moved: the queue for each CPU of an NVMe disk
//! answers to the CPU that asked.

use crate::registry::{Entry, Maturity, Question, Runs, Word};

pub static ENTRY: Entry = Entry {
    words: &[Word::bare("steer", "interrupts of parked CPUs go to active ones")],
    question: Question::Interrupts,
    help: "An interrupt of a device or of the network card keeps its CPU while that is active, and goes to \
           an active one while it is parked: a parked CPU sleeps, and an answer waits for no deep \
           state. Live: move_interrupts = true.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "ours",
    ..Entry::PLAIN
};
