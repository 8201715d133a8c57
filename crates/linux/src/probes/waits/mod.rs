//! The waits of critical threads, their wakers, and the times when all CPUs of a domain sleep
//! together, from the scheduler's own events (`waits.bpf.c`).
//!
//! ```text
//!   scheduler, sockets --> waits.bpf.c --> ring --------> take()       one event after the other
//!                               |           `- wakes its reader only when all critical threads wait, or, once
//!                               |              armed, as soon as one goes on
//!                               +--------> desk --------> all_idle()   mapped: no system call
//! ```
//!
//! Terms:
//! - A *role* is a process's: it belongs to a group, which is critical or background; children have
//!   their parent's.
//! - A *place* tells apart waits of one kind, such as the port at the other end.
//!
//! The calls' kinds follow from the system call's number, in the table of this architecture
//! ([`calls`]), and from the kind of its descriptor.
//!
//! Invariants:
//! - No record is sent of threads that are not critical, except the waker of a critical one.
//! - When more happens than the ring holds, [`WaitProgram::lost`] says so.
//! - Thread numbers are those of the first pid namespace; [`WaitProgram::load`] refuses elsewhere.

mod all_idle;
mod calls;
mod now;
mod told;

pub use all_idle::AllIdle;
pub use told::{WaitChannel, WaitEvent, WaitHappened, WaitKind, WaitRole, WaitTask};

use super::mapped::MappedWords;
use super::{Attachment, BpfError, Running, run};
use crate::processes::threads;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use machine::{CpuList, Duration, Instant};
use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex};
use told::event_in;

pub struct WaitProgram {
    running: Running,
    is_causal: bool,
    desk: MappedWords,
    roles: MapHandle,
    threads: MapHandle,
    ports: MapHandle,
    ring: RingBuffer<'static>,
    heard: Arc<Mutex<Vec<WaitEvent>>>,
}

impl fmt::Debug for WaitProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitProgram").field("running", &self.running).finish_non_exhaustive()
    }
}

const OBJECT: &[u8] = include_bytes!("waits.bpf.o");
/// Words of `struct desk`.
const BUSY: usize = 0;
const ARMED: usize = 1;
const NOT_BEFORE: usize = 2;
const LOST: usize = 3;
const AWAKE: usize = 4;
const RINGS: usize = 8;
/// Words of CPUs in `struct config`.
const DOMAIN_WORDS: usize = 16;
/// The programs that follow causes, and the events without which they are left out.
const CAUSAL: [(&str, &str); 4] = [
    ("received", "sock_recv_length"),
    ("sent", "sock_send_length"),
    ("entered", "sys_enter"),
    ("returned", "sys_exit"),
];
/// Inode of the first pid namespace in the kernel's own file system of namespaces
/// (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

impl WaitProgram {
    /// Watches the CPUs of `domain`, and, once they have a role, processes. With `is_causal`, also
    /// the effects of requests.
    pub fn load(domain: &CpuList, is_causal: bool) -> Result<Self, BpfError> {
        let refused =
            |reason: &str| BpfError::Refused { program: "waits".to_owned(), reason: reason.to_owned() };
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino());
        if namespace != FIRST_PID_NAMESPACE {
            return Err(refused(
                "this process runs in a pid namespace of its own, where threads have other numbers \
                 than in the kernel; \
                 hint: run it on the host, or its container with hostPID",
            ));
        }
        let mut words = [0u64; DOMAIN_WORDS];
        for cpu in domain.0.iter().map(|cpu| cpu.index()) {
            *words.get_mut(cpu / 64).ok_or_else(|| refused("it counts CPUs up to number 1023"))? |=
                1 << (cpu % 64);
        }
        let mut config = Vec::new();
        config.extend(std::process::id().to_ne_bytes());
        config.extend(u32::from(is_causal).to_ne_bytes());
        config.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let prepare = |open: &mut libbpf_rs::OpenObject| super::configure(open, &config);
        let optional: &[(&str, &str)] = if is_causal { &CAUSAL } else { &[] };
        let running = run("waits", OBJECT, optional, prepare, &Attachment::Own)?;
        let map = |name: &str| running.map(name).expect("the program has this map");
        let told = |error: libbpf_rs::Error| super::refusal("waits", &error);
        let table = map("calls");
        for (number, class) in calls::table() {
            table.update(&number.to_ne_bytes(), &class.to_ne_bytes(), MapFlags::ANY).map_err(told)?;
        }
        let desk = MappedWords::of(&map("desk"))?;
        // Added to, not set: a CPU may have gone idle since.
        desk.word(AWAKE).expect("a word of the desk").fetch_add(domain.0.len() as u64, Relaxed);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ears = heard.clone();
        let events = map("events");
        let mut builder = RingBufferBuilder::new();
        let hear = move |bytes: &[u8]| {
            if let Some(event) = event_in(bytes) {
                ears.lock().expect("no thread panics while holding it").push(event);
            }
            0
        };
        builder.add(&events, hear).map_err(told)?;
        let ring = builder.build().map_err(told)?;
        Ok(Self {
            is_causal,
            desk,
            roles: map("roles"),
            threads: map("threads"),
            ports: map("ports"),
            ring,
            heard,
            running,
        })
    }

    /// From now on the process has this role. The threads of a critical one are followed; their
    /// present waits come from `/proc`, as events.
    pub fn assign(&self, process: u32, role: WaitRole) -> Result<Vec<WaitEvent>, BpfError> {
        let bits = role.bits();
        let told = |error: libbpf_rs::Error| super::refusal("waits", &error);
        self.roles.update(&process.to_ne_bytes(), &bits.to_ne_bytes(), MapFlags::ANY).map_err(told)?;
        let mut events = Vec::new();
        if !role.is_critical {
            return Ok(events);
        }
        for thread in threads::of_process(process).unwrap_or_default() {
            let seen = now::wait_of(process, thread);
            let is_busy = !matches!(seen, Some((kind, _)) if kind.may_be_slept_through());
            // `struct thread`: no waker yet.
            let words = [u32::from(is_busy), u32::from(seen.is_some()), 0, 0];
            let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            // Where an event came first, it knows better.
            if self.threads.update(&thread.to_ne_bytes(), &value, MapFlags::NO_EXIST).is_err() {
                continue;
            }
            if is_busy {
                self.word(BUSY).fetch_add(1, Relaxed);
            }
            events.push(event_now(thread, role, seen));
        }
        Ok(events)
    }

    /// The present activity of each thread of a critical process, by `/proc` alone: after events
    /// were lost.
    pub fn look(&self, process: u32, role: WaitRole) -> Vec<WaitEvent> {
        let threads = threads::of_process(process).unwrap_or_default();
        threads.into_iter().map(|thread| event_now(thread, role, now::wait_of(process, thread))).collect()
    }

    /// The process has ended, or is no longer of any group.
    pub fn dismiss(&self, process: u32) {
        // It may not have been known.
        let _ = self.roles.delete(&process.to_ne_bytes());
    }

    /// A thread that a request had reached does not matter any more.
    pub fn unmark(&self, thread: u32) {
        let key = thread.to_ne_bytes();
        let is_busy =
            self.threads.lookup(&key, MapFlags::ANY).ok().flatten().is_some_and(|value| value[0] != 0);
        if self.threads.delete(&key).is_ok() && is_busy {
            self.word(BUSY).fetch_sub(1, Relaxed);
        }
    }

    /// True if this kernel reports reads from sockets and writes to them, and the caller asked for
    /// it.
    pub fn sees_requests(&self) -> bool {
        self.is_causal && super::has_event("sock_recv_length") && super::has_event("sock_send_length")
    }

    /// Requests that come to these ports are followed.
    pub fn follow_ports(&self, ports: &BTreeSet<u16>) -> Result<(), BpfError> {
        for port in ports {
            let (key, one) = (u32::from(*port).to_ne_bytes(), 1u32.to_ne_bytes());
            let updated = self.ports.update(&key, &one, MapFlags::ANY);
            updated.map_err(|error| super::refusal("waits", &error))?;
        }
        Ok(())
    }

    /// The events since the last call, in their order.
    pub fn take(&self) -> Vec<WaitEvent> {
        // A record that cannot be consumed now stays for the next time.
        let _ = self.ring.consume();
        std::mem::take(&mut *self.heard.lock().expect("no thread panics while holding it"))
    }

    /// Readable when there is an event worth waking for.
    pub fn notifier(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's own descriptor, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// With this, it rings as soon as a critical thread goes on.
    pub fn arm(&self, is_armed: bool) {
        self.word(ARMED).store(is_armed.into(), Relaxed);
    }

    /// If it does not ring before then, all critical threads wait.
    pub fn hold(&self, until: Instant) {
        self.word(NOT_BEFORE).store(until.as_nanos(), Relaxed);
    }

    /// Events for which there was no room, so far.
    pub fn lost(&self) -> u64 {
        self.word(LOST).load(Relaxed)
    }

    /// How often it rang.
    pub fn rings(&self) -> u64 {
        self.word(RINGS).load(Relaxed)
    }

    /// The time of [`Self::all_idle`] alone.
    pub fn all_idle_time(&self) -> Duration {
        Duration::from_nanos(self.word(all_idle::TIME).load(Relaxed))
    }

    /// The time that all CPUs of the domain were idle at once, since it was loaded.
    pub fn all_idle(&self) -> AllIdle {
        AllIdle::read(|number| self.word(number).load(Acquire))
    }

    fn word(&self, number: usize) -> &std::sync::atomic::AtomicU64 {
        self.desk.word(number).expect("a word of the desk")
    }
}

fn event_now(thread: u32, role: WaitRole, seen: Option<(WaitKind, u64)>) -> WaitEvent {
    let happened = match seen {
        Some((on, place)) => WaitHappened::Blocked { on, place },
        None => WaitHappened::Unblocked { by: None },
    };
    WaitEvent { at: crate::now(), task: WaitTask { id: thread, role }, happened }
}

#[cfg(test)]
mod tests;
