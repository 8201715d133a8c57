//! A timer on each CPU that the kernel sets for us while that CPU goes idle, in place of a thread
//! that has to run there to set its own.
//!
//! A thread's timer is set on the CPU where the thread goes to sleep. So to wake a CPU at another
//! time than planned, its thread has to be woken first, run, and sleep again, mostly just after an
//! event, when that CPU could go back to sleep. Here the time is a word in shared memory, and a
//! program on the kernel's switch to the idle task sets the CPU's own timer by it: a CPU that is
//! awake needs no message.
//!
//! Terms:
//! - *Due*: the time at which the waiting thread ([`KernelAlarm::waiter`]) shall run.
//! - *To notify*: to wake that thread from elsewhere.
//!
//! Invariants:
//! - A CPU that sleeps past the due time is known as one that must be notified
//!   ([`KernelAlarm::sleeps_past`]), in any state at that write (each side writes first and then
//!   reads).
//! - A time that comes while the CPU is busy is reported as soon as it goes idle.
//! - All timers end with the program.
//!
//! Needs `BPF_F_TIMER_CPU_PIN` (Linux 6.7, `kernel/bpf/helpers.c`).

use super::mapped::MappedWords;
use super::needs::Need;
use super::{Attachment, BpfError, Fields, Running, run};
use libbpf_rs::{MapHandle, ProgramInput, RingBufferBuilder};
use machine::{CpuId, Duration, Instant};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OBJECT: &[u8] = include_bytes!("alarms.bpf.o");
/// Words of `struct cpu`.
const WORDS: usize = 9;
const DUE: usize = 0;
const ARMED: usize = 1;
const IDLE: usize = 2;
const SET: usize = 5;
const REFUSED: usize = 8;
/// In place of a time.
const NEVER: u64 = u64::MAX;
/// A CPU's ring: room for records that its thread has not read yet. The least that a kernel has.
const RING_BYTES: u32 = 1 << 16;

#[derive(Debug)]
pub struct AlarmProgram(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    words: MappedWords,
    running: Running,
}

/// The alarm of one CPU, for the thread that sets it and for the thread that it wakes.
#[derive(Debug)]
pub struct KernelAlarm {
    cpu: CpuId,
    program: Arc<Inner>,
    ring: MapHandle,
    calls: OwnedFd,
}

/// The thread that waits for an alarm.
pub struct AlarmWaiter<'a> {
    alarm: &'a KernelAlarm,
    ring: libbpf_rs::RingBuffer<'static>,
    fell_due: Rc<Cell<Option<FellDue>>>,
}

/// An alarm went off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FellDue {
    /// Its time.
    pub due: Instant,
    /// False if the CPU was busy at that time: then nothing had to wake.
    pub was_asleep: bool,
}

impl fmt::Debug for AlarmWaiter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlarmWaiter").field("alarm", &self.alarm).finish_non_exhaustive()
    }
}

impl AlarmProgram {
    /// Begins to set timers; none, until a time is due.
    pub fn load() -> Result<Self, BpfError> {
        let running = run("alarms", OBJECT, &[], |_| {}, &Attachment::Own)?;
        let map = running.map("cpus").ok_or_else(|| refused("it has no words".to_owned()))?;
        let inner = Inner { words: MappedWords::of(&map)?, running };
        for cpu in 0..inner.running.cpus {
            inner.word(cpu as usize, DUE)?.store(NEVER, Ordering::SeqCst);
            inner.prepare(cpu)?;
        }
        Ok(Self(Arc::new(inner)))
    }

    pub fn alarm(&self, cpu: CpuId) -> Result<KernelAlarm, BpfError> {
        self.0.word(cpu.index(), DUE)?;
        let rings = self.0.running.map("helpers").ok_or_else(|| refused("it has no rings".to_owned()))?;
        let ring = super::give_ring(&rings, cpu, "helper", RING_BYTES).map_err(refused)?;
        let calls = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| refused(error.to_string()))?;
        Ok(KernelAlarm { cpu, program: Arc::clone(&self.0), ring, calls })
    }
}

fn refused(reason: String) -> BpfError {
    BpfError::Refused { program: "alarms".to_owned(), reason }
}

impl Inner {
    fn word(&self, cpu: usize, word: usize) -> Result<&AtomicU64, BpfError> {
        self.words.word(cpu * WORDS + word).ok_or_else(|| refused(format!("there is no CPU {cpu}")))
    }

    fn prepare(&self, cpu: u32) -> Result<(), BpfError> {
        let mut asked = [cpu.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
        let input = ProgramInput { context_in: Some(&mut asked), ..ProgramInput::default() };
        let program = self.running.object.progs_mut().find(|program| program.name() == OsStr::new("prepare"));
        program
            .ok_or_else(|| refused("it cannot be prepared".to_owned()))?
            .test_run(input)
            .map_err(|error| refused(format!("{error:#}")))?;
        match i32::from_ne_bytes(asked[4..].try_into().expect("four bytes")) {
            0 => Ok(()),
            // The kernel's error for an unknown flag.
            code if Errno::from_raw_os_error(-code) == Errno::INVAL => {
                Err(super::lacking("alarms", &[Need::PinnedTimers]))
            }
            code => Err(refused(format!("no timer: {}", Errno::from_raw_os_error(-code)))),
        }
    }
}

impl KernelAlarm {
    /// Sets when the waiting thread shall run. It wakes no thread: a CPU that [`Self::sleeps_past`]
    /// it must be notified.
    pub fn set(&self, due: Option<Instant>) {
        // Before `idle` and `armed` are read, as the program writes `idle` before it reads this.
        self.word(DUE).store(due.map_or(NEVER, Instant::as_nanos), Ordering::SeqCst);
    }

    /// The CPU sleeps, and its timer comes later than `due`.
    pub fn sleeps_past(&self, due: Option<Instant>) -> bool {
        due.is_some_and(|due| self.is_idle() && self.word(ARMED).load(Ordering::SeqCst) > due.as_nanos())
    }

    /// No task runs there; once one has, the timer is set anew.
    pub fn is_idle(&self) -> bool {
        self.word(IDLE).load(Ordering::SeqCst) != 0
    }

    /// The waiting thread shall run now.
    pub fn notify(&self) {
        // A full counter holds notices that were not read yet.
        let _ = rustix::io::write(&self.calls, &1_u64.to_ne_bytes());
    }

    /// How often the kernel has set the CPU's timer, and how often it refused.
    pub fn counted(&self) -> [u64; 2] {
        [SET, REFUSED].map(|word| self.word(word).load(Ordering::Relaxed))
    }

    /// For the thread on that CPU.
    pub fn waiter(&self) -> Result<AlarmWaiter<'_>, BpfError> {
        let fell_due = Rc::new(Cell::new(None));
        let heard = Rc::clone(&fell_due);
        let mut builder = RingBufferBuilder::new();
        let hear = move |bytes: &[u8]| {
            if bytes.len() == 2 * size_of::<u64>() {
                let mut fields = Fields(bytes);
                let (due, since) = (fields.u64(), fields.u64());
                heard.set(Some(FellDue { due: Instant::from_nanos(due), was_asleep: since < due }));
            }
            0
        };
        let told = |error: libbpf_rs::Error| refused(error.to_string());
        builder.add(&self.ring, hear).map_err(told)?;
        Ok(AlarmWaiter { alarm: self, ring: builder.build().map_err(told)?, fell_due })
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        self.program.word(self.cpu.index(), word).expect("its words were there when it was made")
    }
}

impl Drop for KernelAlarm {
    fn drop(&mut self) {
        self.set(None);
    }
}

impl AlarmWaiter<'_> {
    /// Waits until the alarm goes off, a notice comes, or `patience` is over: on a CPU that never
    /// goes idle no alarm goes off.
    pub fn wait(&mut self, patience: Option<Duration>) -> Option<FellDue> {
        let mut ends =
            [PollFd::new(&self.alarm.ring, PollFlags::IN), PollFd::new(&self.alarm.calls, PollFlags::IN)];
        let timeout = patience.map(|patience| Timespec {
            tv_sec: (patience.as_nanos() / 1_000_000_000).try_into().unwrap_or(i64::MAX),
            tv_nsec: (patience.as_nanos() % 1_000_000_000) as _,
        });
        // A signal is a reason to look, too.
        let _ = poll(&mut ends, timeout.as_ref());
        let _ = rustix::io::read(&self.alarm.calls, &mut [0; 8]);
        // A record that cannot be consumed now stays for the next time.
        let _ = self.ring.consume();
        self.fell_due.take()
    }
}

#[cfg(test)]
mod tests;
