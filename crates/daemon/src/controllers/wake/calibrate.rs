//! Measures how long waking a CPU takes on this machine, and how a CPU is best kept awake. Figures
//! from firmware are only promises.
//!
//! - *Exit latency*: the lateness of a thread's own timer after 10 ms of sleep, 99th percentile,
//!   per CPU. It contains the timer's lateness, the exit from that CPU's idle state, the host's
//!   share on a virtual machine, and the scheduler.
//! - *Alarm*: the same for a timer that the kernel sets as the CPU goes idle. All CPUs get the
//!   quicker one, and the thread's timer if the two differ by less than a tenth.
//! - *Doorbell*: the time from a wake-up by another CPU until the woken thread runs, median.
//! - *Act*: the same wake-up while the sleeper's CPU polls, and while a thread spins on it. The
//!   quicker one is taken. Polling is taken if they differ by less than a tenth, because it needs
//!   no interrupt. Quicker means quicker at the median *and* at the 90th percentile: the 99th
//!   percentile of a hundred wake-ups is a single one, and on a virtual machine the host affects
//!   it.

use super::{Act, Alarm};
use linux::AffinityError;
use linux::arbiter::IdleLimits;
use linux::probes::AlarmProgram;
use machine::{CpuId, CpuList, Duration};
use observe::probe::{percentile, timer_lateness, wake_latency};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Timer lateness on each CPU, after sleeps of [`SLEEP`].
    pub timers: BTreeMap<CpuId, Latency>,
    /// The same for timers that the kernel sets; empty if the kernel cannot, or was not asked.
    #[serde(default)]
    pub kernel_timers: BTreeMap<CpuId, Latency>,
    /// A wake-up from another CPU on the unchanged machine; `None` with a single CPU.
    pub stock: Option<Latency>,
    /// The same while the sleeper's CPU polls.
    pub polling: Option<Latency>,
    /// The same while a thread spins on it.
    pub spinning: Option<Latency>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    pub p50: Duration,
    pub p90: Duration,
    pub p99: Duration,
}

/// The sleep before each wake-up: long enough for a CPU to reach its usual idle state.
pub const SLEEP: Duration = Duration::from_millis(10);
/// A 99th percentile needs a hundred samples.
const SAMPLES: usize = 100;

impl Latency {
    fn of(sorted: &[Duration]) -> Option<Self> {
        let of = |percent| percentile(sorted, percent);
        (!sorted.is_empty()).then(|| Self { p50: of(50), p90: of(90), p99: of(99) })
    }

    /// True if quicker by more than a tenth, at the median and at the 90th percentile.
    fn is_quicker_than(self, other: Self) -> bool {
        self.p50.scale(1.1) < other.p50 && self.p90.scale(1.1) < other.p90
    }
}

impl Calibration {
    /// Measures timers on all of these CPUs at once, and wake-ups between two of them: about five
    /// seconds. Returns early, with a part of it, once `ends` is true.
    pub fn measure(
        cpus: &CpuList,
        limits: &IdleLimits,
        alarms: Option<&AlarmProgram>,
        ends: &AtomicBool,
    ) -> Result<Self, AffinityError> {
        let timers = on_each(cpus, |cpu| timer_lateness(cpu, SLEEP, SAMPLES))?;
        let kernel_timers = match alarms {
            Some(_) if ends.load(Ordering::Acquire) => BTreeMap::new(),
            Some(alarms) => on_each(cpus, |cpu| kernel_timer_lateness(cpu, alarms))?,
            None => BTreeMap::new(),
        };
        let mut found = Self { timers, kernel_timers, ..Self::default() };
        // The sleeper is the last CPU, because interrupts prefer the first.
        let (Some(&waker), Some(&sleeper)) = (cpus.0.first(), cpus.0.last()) else { return Ok(found) };
        if waker == sleeper || ends.load(Ordering::Acquire) {
            return Ok(found);
        }
        let wake = || Ok::<_, AffinityError>(Latency::of(&wake_latency(sleeper, waker, SLEEP, SAMPLES)?));
        found.stock = wake()?;
        if ends.load(Ordering::Acquire) {
            return Ok(found);
        }
        if let Ok(mut window) = limits.window(sleeper)
            && window.open().is_ok()
        {
            found.polling = wake()?;
        }
        if ends.load(Ordering::Acquire) {
            return Ok(found);
        }
        let has_ended = AtomicBool::new(false);
        found.spinning = std::thread::scope(|scope| {
            let spinning = scope.spawn(|| {
                linux::pin_current_thread(sleeper)?;
                // The woken thread shall run at once, as beside a helper that spins.
                let _ = linux::schedule_idle();
                while !has_ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                Ok::<_, AffinityError>(())
            });
            let found = wake();
            has_ended.store(true, Ordering::Relaxed);
            spinning.join().expect("it only spins")?;
            found
        })?;
        Ok(found)
    }

    /// The best way to keep a CPU awake.
    pub fn act(&self) -> Act {
        match (self.polling, self.spinning) {
            (Some(polling), Some(spinning)) if spinning.is_quicker_than(polling) => Act::Spin,
            (None, Some(_)) => Act::Spin,
            _ => Act::Polling,
        }
    }

    /// The best way to wake a CPU.
    pub fn alarm(&self) -> Alarm {
        let is_quicker = |(cpu, kernel): (&CpuId, &Latency)| {
            self.timers.get(cpu).is_some_and(|own| kernel.is_quicker_than(*own))
        };
        let is_complete = !self.timers.is_empty() && self.kernel_timers.len() == self.timers.len();
        if is_complete && self.kernel_timers.iter().all(is_quicker) { Alarm::Kernel } else { Alarm::Thread }
    }

    /// The time that `alarm` takes to wake `cpu`.
    pub fn exit_latency(&self, cpu: CpuId, alarm: Alarm) -> Option<Duration> {
        let of = match alarm {
            Alarm::Thread => &self.timers,
            Alarm::Kernel => &self.kernel_timers,
        };
        Some(of.get(&cpu)?.p99)
    }

    /// The time from a doorbell until the planner runs.
    pub fn doorbell(&self) -> Duration {
        self.stock.map_or(Duration::ZERO, |stock| stock.p50)
    }

    pub fn text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (name, timers) in [(Alarm::Thread, &self.timers), (Alarm::Kernel, &self.kernel_timers)] {
            for (cpu, Latency { p50, p99, .. }) in timers {
                let _ = writeln!(
                    text,
                    "{cpu}: {name} after {SLEEP} of sleep is late by {p50} (p50), {p99} (p99)"
                );
            }
        }
        for (name, latency) in
            [("as it is", self.stock), ("polling", self.polling), ("a thread spins there", self.spinning)]
        {
            if let Some(Latency { p50, p99, .. }) = latency {
                let _ =
                    writeln!(text, "woken by another CPU after {SLEEP}, {name}: {p50} (p50), {p99} (p99)");
            }
        }
        let _ = writeln!(text, "CPUs are best woken by {}, and kept awake by {}", self.alarm(), self.act());
        text
    }
}

/// Runs `measure` for all CPUs at once.
fn on_each(
    cpus: &CpuList,
    measure: impl Fn(CpuId) -> Result<Vec<Duration>, AffinityError> + Sync,
) -> Result<BTreeMap<CpuId, Latency>, AffinityError> {
    std::thread::scope(|scope| {
        let measure = &measure;
        let threads: Vec<_> = cpus.0.iter().map(|&cpu| (cpu, scope.spawn(move || measure(cpu)))).collect();
        let mut found = BTreeMap::new();
        for (cpu, thread) in threads {
            let sorted = thread.join().expect("a sleeper does not panic")?;
            found.extend(Latency::of(&sorted).map(|latency| (cpu, latency)));
        }
        Ok(found)
    })
}

/// The lateness of a timer that the kernel sets, sorted. Empty if there is no such timer, or if
/// that CPU hardly ever sleeps.
fn kernel_timer_lateness(cpu: CpuId, alarms: &AlarmProgram) -> Result<Vec<Duration>, AffinityError> {
    linux::pin_current_thread(cpu)?;
    let Ok(alarm) = alarms.alarm(cpu) else { return Ok(Vec::new()) };
    let Ok(mut waiter) = alarm.waiter() else { return Ok(Vec::new()) };
    let mut found = Vec::with_capacity(SAMPLES);
    // No alarm goes off on a CPU that is busy all the time.
    let end = linux::now() + SLEEP * (3 * SAMPLES as u64);
    while found.len() < SAMPLES && linux::now() < end {
        alarm.set(Some(linux::now() + SLEEP));
        // A wake-up for another reason is no sample, and neither is an alarm while the CPU was
        // busy.
        if let Some(fell) = waiter.wait(Some(SLEEP * 10)).filter(|fell| fell.was_asleep) {
            found.push(linux::now().since(fell.due));
        }
    }
    found.sort_unstable();
    Ok(if found.len() == SAMPLES { found } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(p50: u64, p90: u64, p99: u64) -> Option<Latency> {
        let [p50, p90, p99] = [p50, p90, p99].map(Duration::from_micros);
        Some(Latency { p50, p90, p99 })
    }

    #[test]
    fn the_quicker_act_is_taken_and_polling_when_they_are_alike() {
        let act = |polling, spinning| Calibration { polling, spinning, ..Calibration::default() }.act();
        assert_eq!(act(us(5, 9, 12), us(21, 25, 31)), Act::Polling);
        assert_eq!(act(us(20, 25, 30), us(19, 24, 29)), Act::Polling, "within a tenth");
        assert_eq!(act(us(50, 80, 90), us(19, 25, 29)), Act::Spin);
        assert_eq!(act(None, us(19, 25, 29)), Act::Spin, "no idle limits here");
        assert_eq!(act(us(5, 9, 12), None), Act::Polling);
        assert_eq!(act(None, None), Act::Polling, "one CPU, and no other to wake it");
    }

    #[test]
    fn the_kernels_timer_is_taken_where_it_is_quicker_on_every_cpu() {
        let timers = |of: [Option<Latency>; 2]| -> BTreeMap<CpuId, Latency> {
            (0..).map(CpuId).zip(of).filter_map(|(cpu, latency)| Some((cpu, latency?))).collect()
        };
        let own = timers([us(50, 80, 90), us(50, 80, 90)]);
        let alarm = |kernel| {
            let (timers, kernel_timers) = (own.clone(), timers(kernel));
            Calibration { timers, kernel_timers, ..Calibration::default() }.alarm()
        };
        assert_eq!(alarm([us(40, 60, 500), us(40, 60, 70)]), Alarm::Kernel);
        assert_eq!(alarm([us(40, 60, 70), us(49, 79, 89)]), Alarm::Thread, "within a tenth on one");
        assert_eq!(alarm([us(40, 60, 70), None]), Alarm::Thread, "not measured on one");
        assert_eq!(alarm([None, None]), Alarm::Thread);
        assert_eq!(Calibration::default().alarm(), Alarm::Thread);
    }

    #[test]
    fn one_wake_up_in_a_hundred_that_the_host_disturbed_decides_nothing() {
        let act = |polling, spinning| Calibration { polling, spinning, ..Calibration::default() }.act();
        assert_eq!(act(us(7, 11, 238), us(23, 30, 34)), Act::Polling);
        // A way that is quicker for most wake-ups and slower for the rest is not taken as quicker.
        assert_eq!(act(us(20, 21, 22), us(10, 40, 50)), Act::Polling);
        assert_eq!(act(us(10, 40, 50), us(20, 21, 22)), Act::Polling);
    }
}
