//! The run folder: the files that a run writes, and reading them back.
//!
//! ```text
//! runs/<name>/
//!   run.toml        command, configuration in force, machine              RunInfo, written first
//!   frames.jsonl    one line per moment (about 200 ms) while it ran       Frame, appended
//!   summary.json    one entry per phase, the verdicts                     Summary, written last
//!   <phase>-<n>.hdr full latency histogram of round n, by the driver      not read here
//!   page.json       the page as data, of runs without frames            figures::Page
//!   report.html     the page made from the above                          html
//! ```
//!
//! Terms. A *phase* is one treatment of the same load (stock idle, limited idle, scheduler); times
//! in a frame count from its phase's start, so that phases lie on top of each other. Counters in a
//! frame are cumulative within the phase, so that a lost frame loses nothing.
//!
//! Invariants:
//! - Everything that could not be measured is absent from the file and `None` here, never zero.
//! - Units end the names in the files (`p99_ns`, `offered_per_s`), since a file has no types.
//! - A run that was cut short still reads: without `summary.json`, and without the line that was
//!   being written.
//! - Anything else that is wrong is an error that names the file, the line and the fix.

mod folder;
mod frame;
mod info;
mod page;
mod summary;

pub use folder::{FRAMES, ReadError, Run, SUMMARY};
pub use frame::{CpuFrame, Frame, StateShare, WorkerFrame};
pub use info::{Machine, RunInfo, utc};
pub(crate) use page::equally_long;
pub use summary::{Compared, CurvePoint, Phase, Summary, Verdict, times};
