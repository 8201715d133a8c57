//! `roost doctor`: one page about one machine. It shows the machine's abilities, the limits of its
//! sleep, and the consequences for each of Roost's policies.
//!
//! ```text
//!   linux  readers --gather--> Facts --verdicts--> the working parts, and the remedy for the rest
//!        |                       `---page--------> text for people (the facts themselves are the JSON)
//!        `--record--> one text file --unpack--> a folder that is that machine, on any other
//! ```
//!
//! Terms. A *fact* comes from a file. A *gap* ([`Unseen`]) is a fact that could not be read, with
//! the reason and the remedy. A *verdict* is concluded from facts alone, so that it is the same for
//! a machine and for its recording.
//!
//! Invariants:
//! - Nothing is changed or disturbed: no lock is tried, no MSR is read, no CPU is woken on purpose.
//! - A missing fact is reported as missing, an unseen one as unseen; neither is ever a zero.
//! - Any folder may be looked at, even one full of nonsense: there is a page about it, and no
//!   panic.

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
