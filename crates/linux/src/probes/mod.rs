//! Programs that Roost runs inside the kernel, to see facts that no file shows: the length of each
//! sleep, the time of each request of an unchanged server, and the place of a server's threads at
//! this moment.
//!
//! Each kind of sight has one folder: its C, its compiled object, its reader. The objects are
//! committed, so a machine that builds Roost needs no clang. They are CO-RE, so one object suits
//! every kernel that has the events. `scripts/bpf` makes them anew, and a test refuses objects that
//! are older than their sources.
//!
//! ```text
//!   kernel event --> program --> map, one struct per CPU          nothing is sent, nothing is locked
//!                                 |
//!                        read() --+--> IdleCounts, RequestCounts  one system call per CPU and reading
//!                        loads  --+--> ThreadPlace, Occupant      mapped: no system call
//! ```
//!
//! Terms:
//! - A *way* is one of several programs that see the same thing, better or worse, dearer or
//!   cheaper. Kernels lack some events and refuse some programs, so ways are tried in order, and
//!   each that failed is reported with its reason.
//!
//! Invariants:
//! - Nothing of this outlives the process: links and maps go when their descriptors close, so also
//!   after a SIGKILL.
//! - Programs only watch, and one sets timers of its own (`alarms`). None changes the kernel or a
//!   packet.
//! - A refusal of the kernel is a [`BpfError`] with the remedy; nothing panics over it.

mod activity;
mod alarms;
mod block;
mod functions;
mod idle;
mod mapped;
mod needs;
mod notifier;
mod requests;
mod threads;
pub(crate) mod tracepoints;
mod waits;

pub use activity::{Activity, ActivityProgram, IdleSpans, Whose};
pub use alarms::{AlarmProgram, AlarmWaiter, FellDue, KernelAlarm};
pub use block::{BlockEvent, BlockProgram};
pub use functions::{
    FUNCTIONS_MAX, FunctionProgram, FunctionTally, ImageRings, Probe, SLOT_COUNT, stack_of_sleeper,
};
pub use idle::{IdleCounts, IdleNow, IdleProgram};
pub use notifier::Notifier;
pub use requests::{
    ALARM_WINDOW, Pulse, RequestAlarm, RequestCounts, RequestProgram, RequestTimes, RequestWay, Watched,
    WindowCounts,
};
pub use threads::{KICK_PATIENCE, ThreadProgram, knows_thread_numbers};
pub use waits::{AllIdle, WaitChannel, WaitEvent, WaitHappened, WaitKind, WaitProgram, WaitRole, WaitTask};

use crate::processes::threads::kernel_release;
use crate::root::Root;
use libbpf_rs::btf::{Btf, BtfType, TypeId};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramInput,
    ProgramMut, ProgramType, UprobeOpts, libbpf_sys,
};
use machine::CpuId;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Mutex, OnceLock};
use thiserror::Error;

/// Why a program does not watch.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BpfError {
    /// The kernel does not describe its own types, which programs need to find their way.
    #[error(
        "this kernel has no /sys/kernel/btf/vmlinux\nhint: boot one built with \
         CONFIG_DEBUG_INFO_BTF, as all of Debian's \
         since 11 are"
    )]
    NoTypes,
    #[error(
        "not permitted to load BPF programs\nhint: run as root, or let a group do it: chgrp GROUP \
         FILE, chmod 0750 FILE, then setcap \
         cap_bpf,cap_perfmon,cap_net_admin+ep FILE, where FILE is $(command -v roost); without the \
         first two every user may"
    )]
    NotPermitted,
    /// This user may, and the kernel's verifier refuses the program: it is of another time.
    #[error(
        "this kernel ({release}) does not take the program {program}, which {needs}: \
         {reason}\nhint: this is no matter of permission; \
         docs/kernels.md has what each kernel can do"
    )]
    Unverified {
        program: String,
        release: String,
        /// The releases known to accept it.
        needs: &'static str,
        reason: String,
    },
    /// The kernel reports that it lacks a feature of the program.
    #[error(
        "this kernel ({release}) lacks what the program {program} needs: {lacks}\nhint: this is no matter of \
         permission; docs/kernels.md has what each kernel can do"
    )]
    Lacking {
        program: String,
        release: String,
        /// The missing features, and the release of Linux that brought each.
        lacks: String,
    },
    /// The kernel lacks the event.
    #[error("this kernel has no event {0}")]
    NoEvent(&'static str),
    #[error("the kernel refused the program {program}: {reason}")]
    Refused {
        program: String,
        /// The report of libbpf or the kernel.
        reason: String,
    },
}

impl BpfError {
    /// True if this machine or this user lacks a feature, and nothing has failed.
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::NoTypes | Self::NotPermitted | Self::Lacking { .. } | Self::NoEvent(_))
    }
}

/// Loads each program for a moment, and returns which this kernel accepts, or why it refuses.
pub fn survey(root: &Root) -> Vec<(String, Result<(), String>)> {
    // A port without a listener, and ourselves.
    let watched = Watched { ports: vec![1], processes: vec![std::process::id()] };
    let told = |result: Result<(), BpfError>| result.map_err(|error| error.to_string());
    let idle = ("sleeps:cpu_idle".to_owned(), told(IdleProgram::load(true).map(drop)));
    let requests = RequestWay::ALL.map(|way| {
        let loaded = RequestProgram::load_way(root, way, &watched).map(drop);
        (format!("requests:{way}").replace(' ', "-"), told(loaded))
    });
    let threads =
        ("threads:sched_switch".to_owned(), told(ThreadProgram::load(std::process::id()).map(drop)));
    let alarms = ("alarms:bpf_timer".to_owned(), told(AlarmProgram::load().map(drop)));
    let cpus = crate::online_cpus(root).unwrap_or_default();
    let waits = ("waits:sched_switch".to_owned(), told(WaitProgram::load(&cpus, false).map(drop)));
    // This one attaches to another program's functions, so the kernel is asked for its features.
    let lacks = needs::lacking("functions");
    let calls = if lacks.is_empty() { Ok(()) } else { Err(lacking("functions", &lacks)) };
    let calls = ("calls:uprobe".to_owned(), told(calls));
    std::iter::once(idle).chain(requests).chain([threads, alarms, waits, calls]).collect()
}

/// A program that is at work until this is dropped.
struct Running {
    /// Closed before the object, so that no event comes to a map that is gone.
    links: Vec<Link>,
    counts: MapHandle,
    object: Object,
    cpus: u32,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

/// The place where a program is attached.
enum Attachment<'a> {
    /// The place that its section names.
    Own,
    /// To all processes below a cgroup.
    Cgroup(std::os::fd::BorrowedFd<'a>),
    /// To places in a process's program; programs without a section of their own.
    Places(&'a [Place]),
}

/// The place in a process's program where one of ours runs.
struct Place {
    program: &'static str,
    process: i32,
    binary: std::path::PathBuf,
    /// The offset in the binary's file.
    offset: usize,
    /// The value that `bpf_get_attach_cookie` returns there.
    cookie: u64,
}

/// The map with one struct per CPU that every program of ours has.
const COUNTS: &str = "cpus";

/// Maps with one struct for the whole machine.
const SINGLE: [&str; 6] = ["rules", "pulses", "image", "blank", "desk", "whole"];

/// Loads the object, with room for every possible CPU, and attaches its programs. Those of
/// `optional` whose event this kernel lacks are left out.
fn run(
    name: &str,
    object: &[u8],
    optional: &[(&str, &str)],
    prepare: impl FnOnce(&mut OpenObject),
    attachment: &Attachment<'_>,
) -> Result<Running, BpfError> {
    let refused = |error: libbpf_rs::Error| refusal(name, &error);
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(BpfError::NoTypes);
    }
    said().lock().expect("no thread panics while holding it").clear();
    let mut open = ObjectBuilder::default().open_memory(object).map_err(refused)?;
    let cpus = possible_cpus();
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy();
        let is_per_cpu = !name.contains('.') && !SINGLE.contains(&name.as_ref());
        drop(name);
        if map.max_entries() == 1 && is_per_cpu {
            map.set_max_entries(cpus).map_err(refused)?;
        }
    }
    for mut program in open.progs_mut() {
        if let Some((_, event)) = optional.iter().find(|(name, _)| program.name() == OsStr::new(name)) {
            program.set_autoload(has_event(event));
        }
    }
    prepare(&mut open);
    let object = open.load().map_err(refused)?;
    // A program that user space runs has no event.
    let hangs = |program: &ProgramMut<'_>| {
        program.autoload()
            && !matches!(program.prog_type(), ProgramType::Syscall | ProgramType::RawTracepoint)
    };
    let attached = object.progs_mut().filter(hangs).map(|program| match attachment {
        Attachment::Own => Ok(vec![program.attach()?]),
        Attachment::Cgroup(cgroup) => {
            Ok(vec![program.attach_cgroup(std::os::fd::AsRawFd::as_raw_fd(cgroup))?])
        }
        Attachment::Places(places) => attach_at(&program, places),
    });
    let links: Vec<Link> =
        attached.collect::<Result<Vec<_>, _>>().map_err(refused)?.into_iter().flatten().collect();
    let counts = object.maps().find(|map| map.name() == OsStr::new(COUNTS));
    let counts = counts.expect("every program of ours has this map");
    let counts = MapHandle::try_from(&counts).map_err(refused)?;
    Ok(Running { links, counts, object, cpus })
}

/// Sets the program's `struct config` before it is loaded.
fn configure(open: &mut OpenObject, config: &[u8]) {
    for mut map in open.maps_mut() {
        // libbpf shortens the object's name before it, never the section's.
        if map.name().to_string_lossy().ends_with(".rodata.config") {
            map.set_initial_value(config).expect("as long as the struct `config`");
        }
    }
}

/// At its places; without any, at the place that its section names.
fn attach_at(program: &ProgramMut<'_>, places: &[Place]) -> Result<Vec<Link>, libbpf_rs::Error> {
    let mut own = places.iter().filter(|place| program.name() == OsStr::new(place.program)).peekable();
    if own.peek().is_none() {
        return Ok(vec![program.attach()?]);
    }
    own.map(|place| {
        let options = UprobeOpts { cookie: place.cookie, ..UprobeOpts::default() };
        program.attach_uprobe_with_opts(place.process, &place.binary, place.offset, options)
    })
    .collect()
}

impl Running {
    /// Another of its maps; `None` where the kernel cannot have it.
    fn map(&self, name: &str) -> Option<MapHandle> {
        let map = self.object.maps().find(|map| map.name() == OsStr::new(name))?;
        MapHandle::try_from(&map).ok()
    }

    /// Runs a program of the type `raw_tp` on each online CPU, once (Linux 5.10); where the kernel
    /// refuses, nothing happens.
    fn run_everywhere(&self, name: &str) {
        /// `BPF_F_TEST_RUN_ON_CPU`
        const ON_CPU: u32 = 1;
        let Some(program) = self.object.progs_mut().find(|program| program.name() == OsStr::new(name)) else {
            return;
        };
        for cpu in 0..self.cpus {
            // An offline CPU has nothing to report.
            let _ = program.test_run(ProgramInput { cpu, flags: ON_CPU, ..ProgramInput::default() });
        }
    }

    /// The struct of each CPU, as it lies in the kernel's memory at this moment.
    fn read(&self) -> impl Iterator<Item = (u32, Vec<u8>)> + '_ {
        (0..self.cpus).filter_map(|cpu| {
            let bytes = self.counts.lookup(&cpu.to_ne_bytes(), MapFlags::ANY).ok()??;
            Some((cpu, bytes))
        })
    }
}

fn refusal(program: &str, error: &libbpf_rs::Error) -> BpfError {
    // libbpf returns a number, and prints the explanation beside it.
    let told = said().lock().expect("no thread panics while holding it").join("; ");
    let own = crate::privileges(&Root::system(), &mut crate::Gaps::default());
    // The features are unknown to a user that may load no program.
    let lacks = if may_load(&own) { needs::lacking(program) } else { Vec::new() };
    if !lacks.is_empty() {
        return lacking(program, &lacks);
    }
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        return denied(program, &format!("{error:#}"), &told, &own, &kernel_release());
    }
    let reason = if told.is_empty() { format!("{error:#}") } else { format!("{error:#} ({told})") };
    BpfError::Refused { program: program.to_owned(), reason }
}

fn lacking(program: &str, lacks: &[needs::Need]) -> BpfError {
    let lacks: Vec<&str> = lacks.iter().map(|need| need.words()).collect();
    BpfError::Lacking { program: program.to_owned(), release: kernel_release(), lacks: lacks.join(", ") }
}

fn may_load(own: &crate::Privileges) -> bool {
    use crate::Capability;
    let holds = |capability| own.has(capability) == Some(true);
    holds(Capability::SysAdmin) || holds(Capability::Bpf) && holds(Capability::Perfmon)
}

/// EPERM and EACCES have one kind. The verifier answers EACCES to a forbidden read or call; a
/// missing capability is mostly EPERM, and a user with the capabilities does not lack them.
fn denied(program: &str, error: &str, told: &str, own: &crate::Privileges, release: &str) -> BpfError {
    if !may_load(own) || !error.contains("(os error 13)") {
        return BpfError::NotPermitted;
    }
    BpfError::Unverified {
        program: program.to_owned(),
        release: release.to_owned(),
        needs: known_to_work(program),
        reason: crate::printable_name(if told.is_empty() { error } else { told }),
    }
}

/// The first kernel that a program is known to work on: the oldest that the lab has booted with it.
fn known_to_work(program: &str) -> &'static str {
    match program {
        "threads" | "waits" | "alarms" | "functions" => "runs on Linux 6.1 and later",
        _ => "runs on Linux 5.10 and later",
    }
}

/// The last lines of libbpf, which would otherwise go to the terminal.
fn said() -> &'static Mutex<Vec<String>> {
    static SAID: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    SAID.get_or_init(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
            const LINES_KEPT: usize = 4;
            let mut said = said().lock().expect("no thread panics while holding it");
            // The verifier's log comes as one long message; its last lines hold the complaint.
            let lines = line.lines().map(str::trim).filter(|line| !line.is_empty());
            said.extend(lines.map(|line| line.trim_start_matches("libbpf: ").to_owned()));
            let surplus = said.len().saturating_sub(LINES_KEPT);
            said.drain(..surplus);
        })));
        Mutex::new(Vec::new())
    })
}

/// True if the running kernel has a tracepoint of this name, by its own description of types.
fn has_event(event: &str) -> bool {
    static EVENTS: OnceLock<BTreeSet<String>> = OnceLock::new();
    let of_kernel = || {
        let Ok(types) = Btf::from_vmlinux() else { return BTreeSet::new() };
        let name = |id: u32| {
            let name = types.type_by_id::<BtfType<'_>>(TypeId::from(id))?.name()?;
            Some(name.to_str()?.strip_prefix("btf_trace_")?.to_owned())
        };
        (1..types.len() as u32).filter_map(name).collect()
    };
    EVENTS.get_or_init(of_kernel).contains(event)
}

/// A ring buffer of this many bytes as the one of `cpu` in an array of them, or the reason that
/// there is none.
fn give_ring(rings: &MapHandle, cpu: CpuId, name: &str, bytes: u32) -> Result<MapHandle, String> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let ring = MapHandle::create(MapType::RingBuf, Some(name), 0, 0, bytes, &options)
        .map_err(|error| format!("a BPF ring buffer (Linux 5.8): {error}"))?;
    let descriptor = ring.as_fd().as_raw_fd();
    rings
        .update(&u32::from(cpu.0).to_ne_bytes(), &descriptor.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| error.to_string())?;
    Ok(ring)
}

fn possible_cpus() -> u32 {
    libbpf_rs::num_possible_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1).max(1)
}

/// Takes numbers out of a struct's bytes, in the order of its fields.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> u64 {
        let (bytes, rest) = self.0.split_first_chunk().expect("as long as the struct, which is checked");
        self.0 = rest;
        u64::from_ne_bytes(*bytes)
    }

    fn u32(&mut self) -> u32 {
        let (bytes, rest) = self.0.split_first_chunk().expect("as long as the struct, which is checked");
        self.0 = rest;
        u32::from_ne_bytes(*bytes)
    }
}

/// The loaded program; `None`, and a line with the reason, where this machine lacks a feature.
#[cfg(test)]
fn unless_lacking<T>(loaded: Result<T, BpfError>) -> Option<T> {
    match loaded {
        Ok(loaded) => Some(loaded),
        Err(error) if error.is_lack() => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// In the state idle since boot: the fourth number of the CPU's line in `/proc/stat`.
#[cfg(test)]
fn idle_ticks(cpu: CpuId) -> u64 {
    let text = std::fs::read_to_string("/proc/stat").expect("proc");
    let line = text.lines().find(|line| line.starts_with(&format!("{cpu} "))).expect("the CPU's line");
    line.split_ascii_whitespace().nth(4).and_then(|ticks| ticks.parse().ok()).expect("its idle time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_verifiers_refusal_is_not_a_missing_permission() {
        use crate::{Capability, Privileges};
        let with = |capabilities: &[Capability]| Privileges {
            capabilities: Some(capabilities.to_vec()),
            ..Privileges::default()
        };
        let eacces = "failed to load BPF object: Permission denied (os error 13)";
        let told = "func 'sched_switch' doesn't have 4-th argument; invalid bpf_context access off=24 size=8";
        let root = with(&Capability::ALL);
        let text = denied("threads", eacces, told, &root, "5.10.0-32").to_string();
        assert!(
            text.contains("6.1") && text.contains("5.10.0-32") && text.contains("4-th argument"),
            "{text}"
        );
        assert!(!text.contains("run as root") && text.contains("docs/kernels.md"), "{text}");
        let some = with(&[Capability::Bpf, Capability::Perfmon]);
        assert!(matches!(denied("waits", eacces, "", &some, "5.15"), BpfError::Unverified { .. }));
        assert_eq!(denied("waits", eacces, told, &with(&[]), "6.1"), BpfError::NotPermitted);
        let eperm = "Operation not permitted (os error 1)";
        assert_eq!(
            denied("waits", eperm, "", &root, "6.1"),
            BpfError::NotPermitted,
            "as in a user namespace"
        );
    }

    #[test]
    fn the_committed_objects_are_those_of_the_committed_sources() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/probes");
        let listed = std::fs::read_to_string(folder.join("SOURCES")).unwrap();
        let mut checked = 0;
        for line in listed.lines().filter(|line| !line.starts_with('#')) {
            let (sum, file) = line.split_once("  ").expect("sum and file");
            let text = std::fs::read(folder.join(file)).unwrap();
            // `cksum`'s CRC, so the script needs no tool of ours.
            assert_eq!(sum, crc(&text).to_string(), "{file} was changed: run scripts/bpf");
            checked += 1;
        }
        assert!(checked >= 8, "{listed}");
    }

    /// POSIX `cksum`: CRC-32 of the bytes and then of their number, most significant bit first.
    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = 0u32;
        let mut feed = |byte: u8| {
            crc ^= u32::from(byte) << 24;
            for _ in 0..8 {
                crc = if crc & 0x8000_0000 != 0 { (crc << 1) ^ 0x04C1_1DB7 } else { crc << 1 };
            }
        };
        bytes.iter().for_each(|&byte| feed(byte));
        let mut length = bytes.len();
        while length > 0 {
            feed(length as u8);
            length >>= 8;
        }
        !crc
    }
}
