//! `roost doctor`: one page about one machine. What it can do, who keeps it from sleeping, and what that means for
//! each of Roost's policies.
//!
//! ```text
//!   host's readers --gather--> Facts --verdicts--> what works here, and what to do about the rest
//!        |                       `---page--------> text for people (the facts themselves are the JSON)
//!        `--record--> one text file --unpack--> a folder that is that machine, on any other
//! ```
//!
//! Terms. A *fact* is what a file said. A *gap* ([`Unseen`]) is what could not be seen, with the reason and what to do.
//! A *verdict* is concluded from facts alone, so that it is the same for a machine and for its recording.
//!
//! What always holds:
//! - Nothing is changed, and nobody is disturbed: no lock is tried, no MSR is read, no CPU is woken on purpose.
//! - What is missing is said to be missing; what cannot be seen is said to be unseen; neither is ever a zero.
//! - Any folder may be looked at, even one full of nonsense: there is a page about it, and no panic.

mod facts;
pub(crate) mod page;
mod recording;
mod verdict;

pub use facts::{
    BpfProgram, Cpus, Facts, Frequency, Idle, IdleGroup, IdleState, LimitGroup, Limits, Unseen, gather,
};
pub use page::page;
pub use recording::{RecordingError, record, unpack};
pub use verdict::{Verdict, VerdictKind, verdicts};
