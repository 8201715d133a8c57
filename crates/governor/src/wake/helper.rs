//! A thread on each CPU that wakes it: a timer of its own fires there, whatever state the CPU sleeps in, and opens the window.
//!
//! A write of the idle limit wakes nobody; a timer does, if it is armed on the CPU that shall wake. So each CPU has a thread pinned to
//! it, asleep until the next window of that CPU begins. When that time moves nearer it is called and arms its timer anew; when it
//! moves away the timer fires for nothing, once.
//!
//! By [`Act::Spin`] the thread stays on its CPU through the window instead of limiting the idle states, for kernels without the limit, and gives
//! way to every other. Another thread's wake-up then has to interrupt it. A low priority would not do for that: one wake-up in a hundred then
//! waits for the end of the window (`host::run_where_idle`).

use super::Act;
use super::plan::Shared;
use machine::{CpuId, Instant};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// What a helper and those who call it share.
#[derive(Debug)]
pub(super) struct Helper {
    pub cpu: CpuId,
    pub act: Act,
    /// When it shall wake, in ns; [`NEVER`].
    due: AtomicU64,
    /// Changes with each call.
    calls: AtomicU32,
    has_ended: AtomicBool,
    /// Until when the window lasts, in ns; 0: it is closed.
    pub spin_until: AtomicU64,
}

const NEVER: u64 = u64::MAX;

/// How a helper's time is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// By itself, so that it need not be called.
    Itself,
    /// Only if it would wake later: one that wakes too soon looks, and sleeps again.
    IfSooner,
    /// In any case.
    Anew,
}

impl Helper {
    pub fn new(cpu: CpuId, act: Act) -> Arc<Self> {
        Arc::new(Self {
            cpu,
            act,
            due: AtomicU64::new(NEVER),
            calls: AtomicU32::new(0),
            has_ended: AtomicBool::new(false),
            spin_until: AtomicU64::new(0),
        })
    }

    /// It shall wake then.
    pub fn set(&self, due: Option<Instant>, how: Set) {
        let due = due.map_or(NEVER, Instant::as_nanos);
        let before = self.due.load(Ordering::Relaxed);
        if how != Set::IfSooner || due < before {
            self.due.store(due, Ordering::Release);
            if how != Set::Itself && due != before {
                self.ring();
            }
        }
    }

    /// It shall wake now.
    pub fn call(&self, now: Instant) {
        self.due.store(now.as_nanos(), Ordering::Release);
        self.ring();
    }

    /// It shall end.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        self.calls.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.calls, futex::Flags::PRIVATE, 1);
    }

    /// True if its own timer fell due, and not a call.
    fn wait(&self) -> Option<Instant> {
        let calls = self.calls.load(Ordering::Acquire);
        let due = self.due.load(Ordering::Acquire);
        if self.has_ended.load(Ordering::Acquire) || host::now().as_nanos() >= due {
            return None;
        }
        let until = (due != NEVER).then(|| Timespec {
            tv_sec: (due / 1_000_000_000).try_into().unwrap_or(i64::MAX),
            tv_nsec: (due % 1_000_000_000) as _,
        });
        // Absolute, on the monotonic clock.
        let waited =
            futex::wait_bitset(&self.calls, futex::Flags::PRIVATE, calls, until.as_ref(), NonZeroU32::MAX);
        (waited == Err(rustix::io::Errno::TIMEDOUT)).then(|| Instant::from_nanos(due))
    }
}

/// Starts the thread; the reason why it is an ordinary one, if so.
pub(super) fn start(helper: Arc<Helper>, shared: Shared) -> Result<(JoinHandle<()>, Option<String>), String> {
    let (ready, is_ready) = channel();
    let cpu = helper.cpu;
    let thread = std::thread::Builder::new()
        .name(format!("wake/{}", cpu.0))
        .spawn(move || run(&helper, &shared, &ready))
        .map_err(|cause| format!("no thread for {cpu}: {cause}"))?;
    match is_ready.recv() {
        Ok(Ok(notice)) => Ok((thread, notice)),
        Ok(Err(reason)) => Err(reason),
        Err(_) => Err(format!("the thread of {cpu} has ended")),
    }
}

fn run(helper: &Helper, shared: &Shared, ready: &Sender<Result<Option<String>, String>>) {
    host::want_exact_timers();
    if let Err(error) = host::pin_current_thread(helper.cpu) {
        let _ = ready.send(Err(error.to_string()));
        return;
    }
    // Who spins must not keep anybody from running.
    let notice = match helper.act {
        Act::Polling => host::run_at_once().err().map(|error| error.to_string()),
        Act::Spin => host::run_where_idle().err().map(|error| error.to_string()),
    };
    let _ = ready.send(Ok(notice));
    while !helper.has_ended.load(Ordering::Acquire) {
        let due = helper.wait();
        let now = host::now();
        if helper.has_ended.load(Ordering::Acquire) {
            break;
        }
        shared.plan().attend(now, helper.cpu, due);
        if helper.act == Act::Spin {
            while helper.spin_until.load(Ordering::Acquire) > host::now().as_nanos() {
                std::hint::spin_loop();
            }
        }
    }
}
