//! The machine as the kernel describes it: processor, caches, interrupts, counters, boot
//! parameters, and where the time of each CPU went. Everything here only reads.

pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod interrupts;
pub(crate) mod kernel_command_line;
pub(crate) mod platform;
pub(crate) mod sched_ext;
pub(crate) mod topology;
pub(crate) mod usage;
