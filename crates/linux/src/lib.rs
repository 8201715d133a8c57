//! Linux, as Roost needs it: CPUs and idle states, limits on sleep and speed, and where the time
//! and the energy went.
//!
//! Each kernel interface has one module. There is no policy here: decisions are made elsewhere and
//! come in as `machine`'s types. Everything lies below a movable [`Root`], so a folder can stand in
//! for any machine.
//!
//! ```text
//!   Arbiter                      requests of these knobs     run/roost/arbiter.lock
//!   IdleControl --- CpuLocks     one holder per CPU          run/roost/cpuN.lock
//!       |-- Journal              written before each change  run/roost/*.journal  --> restore()
//!       `-- pm_qos | disable     the kernel's files          sys/devices/system/cpu/cpuN/...
//!   FrequencyControl --- CpuLocks   one holder per domain    run/roost/cpuN.clock.lock
//!       |-- Journal              the same
//!       |-- setspeed | bounds | preference                   sys/devices/system/cpu/cpufreq/policyN/...
//!       |-- duty cycle           a register, where allowed   dev/cpu/N/msr
//!       |-- power cap            of a socket                 sys/class/powercap/intel-rapl:N/...
//!       `-- uncore               of a socket                 .../intel_uncore_frequency/...
//!   arbiter::ActiveCpus          the CPUs that are needed
//!       |-- CpuIsolation         the rest, off parked CPUs   run/roost/surroundings.lock
//!       `-- Hotplug          parked CPUs, offline            run/roost/hotplug.lock
//!   Freezer --- a lock per group                             run/roost/frozen-DEVICE-INODE.lock
//!       |-- Journal              the same
//!       `-- freezers | SIGSTOP   sys/fs/cgroup/.../cgroup.freeze, freezer.state; processes
//!   Lending --- Freezer          parked CPUs, for batch work
//!       |-- Journal              the same
//!       `-- cpu.idle, cpuset.cpus                            sys/fs/cgroup/...
//!   NicSuspension                interrupts of a network card   run/roost/nic-DEVICE.lock
//!       |-- Journal              the same
//!       `-- its queues (NAPI)    generic netlink
//!   Confiner --- ServiceLocks    one holder per process      run/roost/processN.lock
//!       |-- Journal              the same
//!       `-- affinity | cpuset | systemd                      threads, sys/fs/cgroup/..., units
//! ```
//!
//! Invariants:
//! - Every change is journalled first and put back: on drop, so also on a panic, and by [`restore`]
//!   after a SIGKILL.
//! - A kernel feature that is missing is a reported state with its reason. Nothing here ends the
//!   process.
//! - A value that cannot be read is an error or `None`, never zero.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write into folders of their own"))]

mod adaptive_lock;
pub mod arbiter;
mod cpufreq;
mod cpuidle;
mod cpuset;
mod energy;
#[cfg(test)]
mod fake;
mod files;
pub mod freezer;
mod hotplug;
mod journal;
mod knob;
mod lending;
mod lock;
mod nic;
pub mod perf;
pub mod probes;
mod processes;
mod root;
mod run_place;
mod system;

pub use adaptive_lock::lock_spinning;
pub use cpufreq::control::{
    FrequencyActuator, FrequencyControl, FrequencyDrift, FrequencyError, FrequencyOptions, FrequencyState,
    Speeds, speeds, speeds_by,
};
pub use cpufreq::uncore::{Elc, UncoreDomain, uncore_clock, uncore_domains};
pub use cpufreq::{FrequencyDomain, frequency_domains, pstate_mode, turbo};
pub use cpuidle::control::{IdleActuator, IdleControl, IdleOptions, LimitState};
pub use cpuidle::misprediction::IdleMisprediction;
pub use cpuidle::pm_qos::{cpu_limit, global_limit, latency_device, may_limit, try_global_limit};
pub use cpuidle::{
    IdleDriver, Residency, StateCounts, StateSettings, c1_demotion, idle_driver, idle_parameters, idle_table,
    state_counts, state_settings,
};
pub use cpuset::cgroups::{CgroupPlace, CgroupVersion, Cgroups, cgroups};
pub use cpuset::confine::{
    ConfineActuator, ConfineError, ConfineOptions, Confined, Confiner, Drift, Foreign, cpus_of, not_own,
};
pub use cpuset::isolation::Scope;
pub use energy::{EnergyMeter, MeterZone, PowerSensor, meter_zones, processor};
pub use files::rotating_log::{RotatingLog, SegmentBounds};
pub use hotplug::{Hotplug, HotplugError};
pub use journal::{Account, Checkpoint, Held, RestoreError, Restored, Step, restore, restore_pending};
pub use lending::{LendError, Lending, lendable};
pub use lock::{CpuHolder, CpuLocks, LockError, cpu_holders, end_of_waiting};
pub use nic::{NicError, NicSuspension, SuspendTimes, prefer_busy_poll};
pub use os::{SafeError, SafeFolder, connect_within, now, printable, printable_name};
pub use probes::tracepoints::{TRACEPOINTS, Tracepoint, Tracing, described, tracing};
pub use processes::affinity::{
    AffinityError, allowed_cpus, check_allowed, name_current_thread, pin_current_thread,
    pin_current_thread_to,
};
pub use processes::cpu_time::{CpuTime, cpu_time, resident_bytes};
pub use processes::ends_with_parent::EndsWithParent;
pub use processes::pid_namespace::{HostThread, NamespacedThreads};
pub use processes::pods::pod_cgroups;
pub use processes::privileges::{Capability, Privileges, privileges};
pub use processes::programs::{Contested, LatencyHolders, Program, Rival, latency_holders, rivals};
pub use processes::realtime::{
    RealtimeError, end_realtime, schedule_fifo, schedule_fifo_bounded, schedule_idle,
};
pub use processes::runs::{Peers, ThreadUse, peers, thread_uses};
pub use processes::thread_places::{Kick, Occupant, PlaceState, ThreadPlace, ThreadPlaces};
pub use processes::threads::{cpus_of_process, of_process as threads_of_process};
pub use processes::{code_files, service, signals, symbols};
pub use root::{FileError, Gaps, Root};
pub use run_place::{run_folder, run_place};
pub use system::cache::{Cache, caches};
pub use system::clock::{sleep_until, want_exact_timers};
pub use system::counters::{CounterUnit, counter_units};
pub use system::kernel_command_line::{BootWord, boot_words, meaningful};
pub use system::platform::{Identity, identity};
pub use system::sched_ext::{SchedExt, sched_ext};
pub use system::topology::{
    NumaNode, clusters, numa_nodes, online_cpus, smt_active, topology, topology_in_full, topology_of,
};
pub use system::usage::{CpuUsage, UsageMeter};
