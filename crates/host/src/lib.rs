//! Linux, as Roost needs it: which CPUs and idle states there are, how deep each may sleep, where the time and the
//! energy went.
//!
//! One kernel interface, one module, and no policy: what *should* be is decided elsewhere and comes in as `machine`'s
//! types. Everything lies below a movable [`Root`], so that a folder can stand in for any machine.
//!
//! ```text
//!   IdleControl --- CpuLocks     one holder per CPU         run/roost/cpuN.lock
//!       |-- Journal              written before each change  run/roost/*.journal  --> restore()
//!       `-- pm_qos | disable     the kernel's files          sys/devices/system/cpu/cpuN/...
//! ```
//!
//! What always holds:
//! - Nothing is changed that was not journalled first, and what was changed is put back: on drop, so also on a panic,
//!   and by [`restore`] after a SIGKILL.
//! - A kernel feature that is missing is a reported state with its reason. Nothing here ends the process.
//! - What could not be read is an error or `None`, never zero.

mod affinity;
pub mod bpf;
mod clock;
mod cpuidle;
mod energy;
#[cfg(test)]
mod fake;
mod idle_control;
mod journal;
mod knob;
mod lock;
pub mod perf;
mod pm_qos;
mod process;
mod root;
pub mod service;
mod topology;
mod usage;

pub use affinity::{
    AffinityError, allowed_cpus, check_allowed, name_current_thread, pin_current_thread,
    pin_current_thread_to,
};
pub use clock::now;
pub use cpuidle::{IdleDriver, Residency, StateCounts, idle_driver, idle_table, state_counts};
pub use energy::{EnergyMeter, processor};
pub use idle_control::{IdleActuator, IdleControl, IdleOptions, LimitState};
pub use journal::{Checkpoint, RestoreError, Restored, Step, restore};
pub use lock::{CpuLocks, LockError};
pub use pm_qos::global_limit;
pub use process::{CpuTime, cpu_time, resident_bytes};
pub use root::{FileError, Root};
pub use topology::{online_cpus, topology};
pub use usage::{CpuUsage, UsageMeter};
