//! A thread on each CPU wakes that CPU: its timer fires there in any idle state, and the thread
//! opens the window.
//!
//! A write of the idle limit wakes no CPU. A timer does, if it is armed on the CPU that shall wake.
//! So each CPU has a thread pinned to it, which sleeps until the CPU's next window begins. When
//! that time moves nearer, the thread is called and arms its timer anew. When it moves away, the
//! timer fires once for nothing.
//!
//! The thread's own timer is one alarm, [`super::Alarm::Thread`]. The other is a timer that the
//! kernel sets when the CPU goes idle, [`super::Alarm::Kernel`]. Then a helper is called only for a
//! CPU that would sleep past the new time, and a busy CPU gets its window when it goes idle.
//!
//! With [`Act::Spin`] the thread stays on its CPU through the window instead of limiting the idle
//! states, for kernels without such a limit. It yields to every other thread: a wake-up of another
//! thread has to interrupt it. A low priority does not ensure that: one wake-up in a hundred then
//! waits for the end of the window (`linux::schedule_idle`).

use super::Act;
use super::plan::Shared;
use linux::probes::{AlarmWaiter, FellDue, KernelAlarm};
use machine::{CpuId, Instant};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// The state that a helper shares with its callers.
#[derive(Debug)]
pub(super) struct Helper {
    pub cpu: CpuId,
    pub act: Act,
    /// The time of its next wake-up in ns, or [`NEVER`].
    due: AtomicU64,
    /// Changes with each call.
    calls: AtomicU32,
    /// The alarm that wakes it then; `None`: its own timer.
    alarm: Option<KernelAlarm>,
    has_ended: AtomicBool,
    /// The end of the window in ns; 0: it is closed.
    pub spin_until: AtomicU64,
}

const NEVER: u64 = u64::MAX;

/// Whether a new time has to call the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// The helper itself sets it, so that it need not be called.
    Itself,
    /// It is called only if it would wake later. If it wakes too soon, it looks and sleeps again.
    IfSooner,
    /// It is called in any case: its CPU is kept awake until it has run.
    Anew,
}

impl Helper {
    pub fn new(cpu: CpuId, act: Act, alarm: Option<KernelAlarm>) -> Arc<Self> {
        Arc::new(Self {
            cpu,
            act,
            due: AtomicU64::new(NEVER),
            calls: AtomicU32::new(0),
            alarm,
            has_ended: AtomicBool::new(false),
            spin_until: AtomicU64::new(0),
        })
    }

    /// Sets the time of the next wake-up. True if the helper has to be called for that.
    #[must_use]
    pub fn set(&self, due: Option<Instant>, how: Set) -> bool {
        let nanos = due.map_or(NEVER, Instant::as_nanos);
        let before = self.due.load(Ordering::Relaxed);
        if self.alarm.is_none() && how == Set::IfSooner && nanos >= before {
            return false;
        }
        self.due.store(nanos, Ordering::Release);
        if nanos == before {
            return false;
        }
        let Some(alarm) = &self.alarm else { return how != Set::Itself };
        alarm.set(due);
        match how {
            Set::Itself => false,
            Set::IfSooner => alarm.sleeps_past(due),
            // The idle task follows the thread that runs there now, and sets the timer.
            Set::Anew => alarm.is_idle(),
        }
    }

    /// Tells the thread to end.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.ring();
    }

    /// True if its time has come and it has not looked at the plan since.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.load(Ordering::Acquire) <= now.as_nanos()
    }

    /// Wakes the helper to look at its time again.
    pub fn ring(&self) {
        self.calls.fetch_add(1, Ordering::Release);
        match &self.alarm {
            Some(alarm) => alarm.notify(),
            None => _ = futex::wake(&self.calls, futex::Flags::PRIVATE, 1),
        }
    }

    #[cfg(test)]
    pub fn rung(&self) -> u32 {
        self.calls.load(Ordering::Acquire)
    }

    /// Waits. Returns the time of the wake-up if it came while the CPU slept, and `None` after a
    /// call.
    fn wait(&self, waiter: Option<&mut AlarmWaiter<'_>>) -> Option<Instant> {
        let calls = self.calls.load(Ordering::Acquire);
        let due = self.due.load(Ordering::Acquire);
        if self.has_ended.load(Ordering::Acquire) || linux::now().as_nanos() >= due {
            return None;
        }
        if let Some(waiter) = waiter {
            return waiter.wait(None).filter(|fell| fell.was_asleep).map(|FellDue { due, .. }| due);
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

/// Starts the thread. The text says why it has no real-time or idle policy.
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
    linux::want_exact_timers();
    if let Err(error) = linux::pin_current_thread(helper.cpu) {
        let _ = ready.send(Err(error.to_string()));
        return;
    }
    let mut waiter = match helper.alarm.as_ref().map(KernelAlarm::waiter).transpose() {
        Ok(waiter) => waiter,
        Err(error) => {
            let _ = ready.send(Err(error.to_string()));
            return;
        }
    };
    // A thread that spins must not keep any other from running.
    let notice = match helper.act {
        Act::Polling => linux::schedule_fifo_bounded().err().map(|error| error.to_string()),
        Act::Spin => linux::schedule_idle().err().map(|error| error.to_string()),
    };
    let _ = ready.send(Ok(notice));
    while !helper.has_ended.load(Ordering::Acquire) {
        let due = helper.wait(waiter.as_mut());
        let now = linux::now();
        if helper.has_ended.load(Ordering::Acquire) {
            break;
        }
        shared.change(|plan| plan.attend(now, helper.cpu, due));
        if helper.act == Act::Spin {
            while helper.spin_until.load(Ordering::Acquire) > linux::now().as_nanos() {
                std::hint::spin_loop();
            }
        }
    }
}
