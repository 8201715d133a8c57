//! The abilities of a machine, and the real sleep of a service on it.
//!
//! The IISWC 2014 study (the "Tradeoffs" paper) characterised fifteen services by their idle and
//! active periods, and could say from them which would gain or suffer from deeper sleep. This crate
//! does that for any service on any Linux: it watches, and concludes, and changes nothing (but in
//! probes that are asked for, which `linux` journals and puts back).
//!
//! ```text
//!   linux (files, BPF, perf) -----> sleep: periods by length,   --> verdict: the cost of sleep here,
//!   a recording (perf script) ---->        state, waker                      the first thing to try
//! ```
//!
//! Invariants:
//! - An unseen figure is missing, with the reason, never zero. A figure names its source.
//! - Nothing here decides for a machine: a verdict is words for people.

pub mod doctor;
pub mod functions;
pub mod hot;
pub mod probe;
pub mod recording;
pub mod requests;
pub mod scrape;
pub mod sleep;
pub mod verdict;
pub mod verify;
