//! A thread on each CPU that wakes it: a timer of its own fires there, whatever state the CPU sleeps in, and opens the window.
//!
//! A write of the idle limit wakes nobody; a timer does, if it is armed on the CPU that shall wake. So each CPU has a thread pinned to
//! it, asleep until the next window of that CPU begins. When that time moves nearer it is called and arms its timer anew; when it
//! moves away the timer fires for nothing, once.
//!
//! Its own timer is one way to wake it, [`super::Alarm::Thread`]; the other is a timer that the kernel sets when the CPU goes idle, [`super::Alarm::Kernel`]: then a
//! helper is called only for a CPU that would sleep past the new time, and a CPU that is busy gets its window when it goes idle.
//!
//! By [`Act::Spin`] the thread stays on its CPU through the window instead of limiting the idle states, for kernels without the limit, and gives
//! way to every other. Another thread's wake-up then has to interrupt it. A low priority would not do for that: one wake-up in a hundred then
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

/// What a helper and those who call it share.
#[derive(Debug)]
pub(super) struct Helper {
    pub cpu: CpuId,
    pub act: Act,
    /// When it shall wake, in ns; [`NEVER`].
    due: AtomicU64,
    /// Changes with each call.
    calls: AtomicU32,
    /// What wakes it then; `None`: a timer of its own.
    alarm: Option<KernelAlarm>,
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
    /// Called only if it would wake later: one that wakes too soon looks, and sleeps again.
    IfSooner,
    /// Called in any case: its CPU is kept awake until it has run.
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

    /// It shall wake then. True if it has to be rung for that.
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
            // Who runs there now is followed by the idle task, and with it by the timer.
            Set::Anew => alarm.is_idle(),
        }
    }

    /// It shall end.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.ring();
    }

    /// Its time has come, and it has not looked at the plan since.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.load(Ordering::Acquire) <= now.as_nanos()
    }

    /// It sleeps until another time than it should.
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

    /// For when it was to wake, if the time had come while its CPU slept; not if it was called.
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
    // Who spins must not keep anybody from running.
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
