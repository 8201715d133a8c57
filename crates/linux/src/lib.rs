//! Linux, as Roost needs it: which CPUs and idle states there are, how deep each may sleep, where the time and the
//! energy went.
//!
//! One kernel interface, one module, and no policy: what *should* be is decided elsewhere and comes in as `machine`'s
//! types. Everything lies below a movable [`Root`], so that a folder can stand in for any machine.
//!
//! ```text
//!   holder                   others ask for idle limits, clocks and active CPUs   run/roost/holder-*.sock
//!   IdleControl --- CpuLocks     one holder per CPU          run/roost/cpuN.lock
//!       |-- Journal              written before each change  run/roost/*.journal  --> restore()
//!       `-- pm_qos | disable     the kernel's files          sys/devices/system/cpu/cpuN/...
//!   FrequencyControl --- CpuLocks   one holder per clock     run/roost/cpuN.clock.lock
//!       |-- Journal              the same
//!       |-- setspeed | bounds | preference                   sys/devices/system/cpu/cpufreq/policyN/...
//!       |-- duty cycle           a register, where allowed   dev/cpu/N/msr
//!       `-- power cap            of a socket                 sys/class/powercap/intel-rapl:N/...
//!   holder::ActiveCpus       which CPUs are needed           run/roost/active.lock
//!       |-- Surroundings     everybody else, off parked CPUs run/roost/surroundings.lock
//!       `-- Hotplug          parked CPUs, offline            run/roost/hotplug.lock
//!   Freezer --- a lock per group                             run/roost/frozen-DEVICE-INODE.lock
//!       |-- Journal              the same
//!       `-- freezers | SIGSTOP   sys/fs/cgroup/.../cgroup.freeze, freezer.state; processes
//!   Confiner --- ServiceLocks    one holder per process      run/roost/processN.lock
//!       |-- Journal              the same
//!       `-- affinity | cpuset | systemd                      threads, sys/fs/cgroup/..., units
//! ```
//!
//! What always holds:
//! - Nothing is changed that was not journalled first, and what was changed is put back: on drop, so also on a panic,
//!   and by [`restore`] after a SIGKILL.
//! - A kernel feature that is missing is a reported state with its reason. Nothing here ends the process.
//! - What could not be read is an error or `None`, never zero.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write into folders of their own"))]

mod affinity;
pub mod bpf;
mod brief;
mod cache;
mod cgroups;
mod clock;
mod confine;
mod counters;
mod cpufreq;
mod cpuidle;
mod energy;
#[cfg(test)]
mod fake;
pub mod freezer;
mod frequency_control;
pub mod holder;
mod hotplug;
mod idle_control;
mod inner_threads;
mod interrupts;
mod journal;
mod kept_file;
mod kernel_command_line;
mod knob;
mod lock;
pub mod mapped;
mod offspring;
pub mod perf;
mod platform;
mod pm_qos;
mod premature;
mod printable;
mod privileges;
mod process;
mod programs;
mod realtime;
mod root;
mod run_place;
mod safe_files;
mod segments;
pub mod service;
pub mod signals;
mod surroundings;
pub mod symbols;
mod thread_places;
mod threads;
mod topology;
mod tracepoints;
mod usage;

pub use affinity::{
    AffinityError, allowed_cpus, check_allowed, name_current_thread, pin_current_thread,
    pin_current_thread_to,
};
pub use brief::lock_soon;
pub use cache::{Cache, caches};
pub use cgroups::{CgroupPlace, CgroupVersion, Cgroups, cgroups};
pub use clock::{now, sleep_until, want_exact_timers};
pub use confine::{
    ConfineActuator, ConfineError, ConfineOptions, Confined, Confiner, Drift, Foreign, cpus_of,
};
pub use counters::{CounterUnit, counter_units};
pub use cpufreq::{FrequencyDomain, frequency_domains, pstate_mode, turbo};
pub use cpuidle::{
    IdleDriver, Residency, StateCounts, StateSettings, c1_demotion, idle_driver, idle_parameters, idle_table,
    state_counts, state_settings,
};
pub use energy::{EnergyMeter, MeterZone, meter_zones, processor};
pub use frequency_control::{
    FrequencyActuator, FrequencyControl, FrequencyDrift, FrequencyError, FrequencyOptions, FrequencyState,
    Speeds, speeds, speeds_by,
};
pub use hotplug::{Hotplug, HotplugError};
pub use idle_control::{IdleActuator, IdleControl, IdleOptions, LimitState};
pub use inner_threads::{InnerThreads, OuterThread};
pub use journal::{Account, Checkpoint, Held, RestoreError, Restored, Step, restore};
pub use kernel_command_line::{BootWord, boot_words, meaningful};
pub use lock::{CpuHolder, CpuLocks, LockError, cpu_holders, end_of_waiting};
pub use offspring::Offspring;
pub use platform::{Identity, identity};
pub use pm_qos::{cpu_limit, global_limit, may_limit, try_global_limit};
pub use premature::PrematureSleeps;
pub use printable::{printable, printable_name};
pub use privileges::{Capability, Privileges, privileges};
pub use process::{CpuTime, cpu_time, resident_bytes};
pub use programs::{Contested, LatencyHolders, Program, Rival, latency_holders, rivals};
pub use realtime::{RealtimeError, run_at_once, run_before_others, run_where_idle};
pub use root::{FileError, Gaps, Root};
pub use run_place::run_place;
pub use safe_files::{SafeError, SafeFolder};
pub use segments::{SegmentBounds, Segments};
pub use surroundings::Scope;
pub use thread_places::{Kick, Occupant, PlaceState, ThreadPlace, ThreadPlaces};
pub use threads::cpus_of_process;
pub use topology::{NumaNode, clusters, numa_nodes, online_cpus, smt_active, topology, topology_of};
pub use tracepoints::{TRACEPOINTS, Tracepoint, Tracing, described, tracing};
pub use usage::{CpuUsage, UsageMeter};
