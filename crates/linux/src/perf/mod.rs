//! perf: the kernel's events read one by one, and the processor's own counters.
//!
//! Every descriptor lives with the process, so nothing outlives it. Virtual machines rarely have
//! counters, and then there is a reason and no figure.

mod counters;
mod idle_events;
mod rings;
mod switches;

pub use counters::{CpuWork, HardwareResidency, StateShare, WorkCounters};
pub use idle_events::{IdleEvent, IdleEvents};
pub use rings::PerfError;
pub use switches::{Switch, Switches};
