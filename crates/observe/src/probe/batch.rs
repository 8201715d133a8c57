//! The threads of one batch: the sleeper and the waker.
//!
//! The sleeper says that it is about to sleep (`ready`), and parks. The waker lets the sleep's
//! length go by, writes down the time, says that it is over (`over`), and unparks. Each turn has a
//! number, so that a spurious wake-up is no sample. Short lengths go by spinning, because a sleep
//! of the waker's own would be late by more than them.
//!
//! Invariants: each thread ends when the other could not begin; a batch has at least one sample
//! unless it is stopped; the first turn, in which everything is cold, is not counted.

use linux::{AffinityError, now, sleep_until};
use machine::{CpuId, Duration, Instant};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

pub(super) struct Limits<'a> {
    pub until: Instant,
    pub samples_max: usize,
    pub stop: &'a AtomicBool,
}

impl Limits<'_> {
    fn reached(&self, samples: usize) -> bool {
        let enough = samples >= self.samples_max || now() >= self.until;
        (enough && samples > 0) || self.stop.load(Ordering::Relaxed)
    }
}

/// A waker that sleeps itself would be late for shorter lengths than this.
const SPIN_MAX: Duration = Duration::from_micros(200);

/// A number of turn that is never reached: the batch is over.
const END: u64 = u64::MAX;

#[derive(Default)]
struct Turns {
    /// The turn for which the sleeper goes to sleep.
    ready: AtomicU64,
    /// The turn that is over, or [`END`].
    over: AtomicU64,
    /// When the waker ended it, in nanoseconds.
    stamp: AtomicU64,
    failed: AtomicBool,
}

/// Wake-ups by another CPU: how late the sleeper was, and how long the call took the waker.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    pub latencies: Vec<Duration>,
    pub calls: Vec<Duration>,
}

/// Wake-ups from `waker` to `sleeper`, each after a sleep of this length.
pub(super) fn by_other_cpu(
    sleeper: CpuId,
    waker: CpuId,
    sleep: Duration,
    limits: &Limits<'_>,
) -> Result<Wakes, AffinityError> {
    let turns = Turns::default();
    thread::scope(|scope| {
        let sleeping = scope.spawn(|| {
            let pinned = begin(sleeper, "probe-sleeper");
            turns.failed.store(pinned.is_err(), Ordering::Release);
            pinned.map(|()| sleep_in_turns(&turns, limits.samples_max))
        });
        let (thread, turns) = (sleeping.thread().clone(), &turns);
        let waking = scope.spawn(move || {
            let pinned = begin(waker, "probe-waker");
            let calls = pinned.map(|()| wake_in_turns(turns, &thread, sleep, limits));
            turns.over.store(END, Ordering::Release);
            thread.unpark();
            calls
        });
        let calls = waking.join().expect("the waker does not panic");
        let latencies = sleeping.join().expect("the sleeper does not panic");
        Ok(Wakes { calls: calls?, latencies: latencies? })
    })
}

fn sleep_in_turns(turns: &Turns, samples_max: usize) -> Vec<Duration> {
    // Room before the first sleep: growing would be measured.
    let mut latencies = Vec::with_capacity(samples_max + 1);
    for turn in 1.. {
        turns.ready.store(turn, Ordering::Release);
        while turns.over.load(Ordering::Acquire) < turn {
            thread::park();
        }
        let awake = now();
        if turns.over.load(Ordering::Acquire) == END {
            break;
        }
        if turn > 1 {
            latencies.push(awake.since(Instant::from_nanos(turns.stamp.load(Ordering::Acquire))));
        }
    }
    latencies
}

/// How long each call took, but the first.
fn wake_in_turns(
    turns: &Turns,
    sleeper: &thread::Thread,
    sleep: Duration,
    limits: &Limits<'_>,
) -> Vec<Duration> {
    let mut calls = Vec::with_capacity(limits.samples_max + 2);
    for turn in 1.. {
        while turns.ready.load(Ordering::Acquire) < turn {
            if turns.failed.load(Ordering::Acquire) {
                return calls;
            }
            std::hint::spin_loop();
        }
        // Two turns behind: the first does not count, and this one is not over.
        if limits.reached((turn as usize).saturating_sub(2)) {
            return calls;
        }
        let due = now() + sleep;
        if sleep > SPIN_MAX {
            sleep_until(due);
        }
        while now() < due {
            std::hint::spin_loop();
        }
        let stamp = now();
        turns.stamp.store(stamp.as_nanos(), Ordering::Release);
        turns.over.store(turn, Ordering::Release);
        sleeper.unpark();
        if turn > 1 {
            calls.push(now().since(stamp));
        }
    }
    calls
}

/// Latencies of the timer of `sleeper`.
pub(super) fn by_timer(
    sleeper: CpuId,
    sleep: Duration,
    limits: &Limits<'_>,
) -> Result<Vec<Duration>, AffinityError> {
    let sleeping = || {
        begin(sleeper, "probe-sleeper")?;
        let mut latencies = Vec::with_capacity(limits.samples_max + 1);
        sleep_until(now() + sleep);
        while !limits.reached(latencies.len()) {
            let due = now() + sleep;
            sleep_until(due);
            latencies.push(now().since(due));
        }
        Ok(latencies)
    };
    thread::scope(|scope| scope.spawn(sleeping).join().expect("the sleeper does not panic"))
}

fn begin(cpu: CpuId, name: &str) -> Result<(), AffinityError> {
    linux::name_current_thread(name);
    linux::want_exact_timers();
    linux::pin_current_thread(cpu)
}

/// The cost of reading the clock, as the median of many.
pub(super) fn clock_cost() -> Duration {
    let mut costs: Vec<Duration> = (0..1001)
        .map(|_| {
            let before = now();
            now().since(before)
        })
        .collect();
    costs.sort_unstable();
    costs[500]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_cannot_be_had_ends_the_batch_with_the_reason() {
        let stop = AtomicBool::new(false);
        let limits = Limits { until: now() + Duration::from_secs(60), samples_max: 10, stop: &stop };
        let (here, nowhere) = (*linux::allowed_cpus().unwrap().0.first().unwrap(), CpuId(u16::MAX));
        let sleep = Duration::from_micros(10);
        assert!(by_other_cpu(nowhere, here, sleep, &limits).is_err());
        assert!(by_other_cpu(here, nowhere, sleep, &limits).is_err());
        assert!(by_timer(nowhere, sleep, &limits).is_err());
    }

    #[test]
    fn a_batch_ends_with_its_samples_or_with_its_time_but_not_without_one() {
        let stop = AtomicBool::new(false);
        let cpus = linux::allowed_cpus().unwrap().0;
        let (first, last) = (*cpus.first().unwrap(), *cpus.last().unwrap());
        let sleep = Duration::from_micros(10);
        let enough = Limits { until: now() + Duration::from_secs(60), samples_max: 3, stop: &stop };
        assert_eq!(by_timer(last, sleep, &enough).unwrap().len(), 3);
        let late = Limits { until: now(), samples_max: 1000, stop: &stop };
        assert_eq!(by_timer(last, sleep, &late).unwrap().len(), 1);
        if first != last {
            for (limits, samples) in [(&enough, 3), (&late, 1)] {
                let wakes = by_other_cpu(last, first, sleep, limits).unwrap();
                assert_eq!((wakes.latencies.len(), wakes.calls.len()), (samples, samples));
            }
        }
    }
}
