//! How long the workers leave each CPU alone.
//!
//! A CPU rests from when the last of its workers goes to wait until one of them runs again. Other
//! programs may use it meanwhile; that is not the store's doing, so the kernel's own count of idle
//! time says less on a machine that others use. The workers read the clock around each wait anyway,
//! so that a rest costs two atomic operations and no privilege.
//!
//! Lengths are counted in eighths of a factor of two: a figure read from them is off by at most a
//! tenth.
//!
//! Invariants: a rest is counted by the worker that ended it, once; a wait in which its events were
//! there already is no rest; counts only grow.

use machine::{CpuId, Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets per factor of two, as a power of two.
const FINE: u32 = 3;
const BUCKETS: usize = 64 << FINE;

/// None rests: one of the CPU's workers runs.
const AWAKE: u64 = u64::MAX;

/// One CPU's rests, counted by its workers.
#[derive(Debug)]
#[repr(align(128))] // As `Counters`: two CPUs' workers never write to the same lines.
pub(crate) struct Rest {
    cpu: CpuId,
    alone_since: AtomicU64,
    counts: Box<[AtomicU64]>,
}

impl Rest {
    pub(crate) fn new(cpu: CpuId) -> Self {
        let counts = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { cpu, alone_since: AtomicU64::new(AWAKE), counts }
    }

    pub(crate) fn begin(&self, now: Instant) {
        self.alone_since.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// A worker runs again. A CPU's workers take turns on it, so the first that does takes the
    /// whole rest.
    pub(crate) fn end(&self, now: Instant, at_least: Duration) {
        let since = self.alone_since.swap(AWAKE, Ordering::Relaxed);
        if since == AWAKE {
            return;
        }
        let length = now.since(Instant::from_nanos(since));
        if length > at_least {
            self.counts[bucket(length.as_nanos())].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self, now: Instant) -> Rests {
        let since = self.alone_since.load(Ordering::Relaxed);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let open = (since != AWAKE).then(|| now.since(Instant::from_nanos(since)));
        Rests { cpu: self.cpu, counts, open }
    }
}

/// How often, and for how long, a CPU was left alone by the store's workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rests {
    pub cpu: CpuId,
    counts: Vec<u64>,
    open: Option<Duration>,
}

impl Rests {
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.counts.iter().zip(&earlier.counts);
        let counts = pairs.map(|(now, before)| now.saturating_sub(*before)).collect();
        Self { cpu: self.cpu, counts, open: self.open }
    }

    /// With the rest that goes on, as if it ended now. A CPU that was left alone all the time would
    /// have none otherwise.
    #[must_use]
    pub fn ended(mut self) -> Self {
        if let Some(open) = self.open.take() {
            self.counts[bucket(open.as_nanos())] += 1;
        }
        self
    }

    /// Adds another CPU's, or another time's.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            *sum += more;
        }
    }

    /// Rests that ended: so often the CPU was woken for the store.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn longest(&self) -> Option<Duration> {
        self.counts.iter().rposition(|&count| count > 0).map(middle)
    }

    /// So long is the rest in which an instant of rest lies, at this quantile: half of all time at
    /// rest is in rests that are no longer than that at 0.5. By count the many short rests of a
    /// busy hour would hide the few long ones, in which a CPU sleeps deeply.
    pub fn by_time(&self, quantile: f64) -> Option<Duration> {
        let time = |(at, &count): (usize, &u64)| count as f64 * middle(at).as_secs_f64();
        let whole: f64 = self.counts.iter().enumerate().map(time).sum();
        let mut sum = 0.0;
        self.counts.iter().enumerate().find_map(|(at, count)| {
            sum += time((at, count));
            (*count > 0 && sum >= quantile * whole * (1.0 - 1e-9)).then(|| middle(at))
        })
    }
}

/// Where a length is counted: the octave, and the eighth within it.
fn bucket(nanos: u64) -> usize {
    let octave = nanos.max(1).ilog2();
    let fine = if octave >= FINE { nanos >> (octave - FINE) } else { nanos << (FINE - octave) };
    ((octave as usize) << FINE) + (fine as usize & ((1 << FINE) - 1))
}

/// The length that stands for a bucket.
fn middle(bucket: usize) -> Duration {
    let (octave, fine) = (bucket >> FINE, bucket & ((1 << FINE) - 1));
    let eighths = 2.0 * (((1 << FINE) + fine) as f64 + 0.5);
    Duration::from_nanos((eighths * 2f64.powi(octave as i32 - FINE as i32 - 1)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn rested(lengths: &[u64]) -> Rests {
        let rest = Rest::new(CpuId(1));
        let mut now = 1_000;
        for length in lengths {
            rest.begin(at(now));
            now += length;
            rest.end(at(now), Duration::ZERO);
        }
        rest.read(at(now))
    }

    fn is_about(found: Option<Duration>, micros: f64) -> bool {
        found.is_some_and(|found| (found.as_secs_f64() * 1e6 / micros - 1.0).abs() < 0.1)
    }

    #[test]
    fn two_workers_of_a_cpu_rest_only_together() {
        let rest = Rest::new(CpuId(0));
        rest.begin(at(100));
        rest.end(at(600), Duration::ZERO);
        // The second is woken while the first runs: no rest ended.
        rest.end(at(650), Duration::ZERO);
        rest.begin(at(700));
        rest.begin(at(800));
        rest.end(at(1_800), Duration::ZERO);
        let rests = rest.read(at(1_900));
        assert_eq!(rests.count(), 2);
        assert!(is_about(rests.longest(), 1_000.0), "since the last went to wait: {rests:?}");
    }

    #[test]
    fn events_that_were_there_already_end_no_rest() {
        let rest = Rest::new(CpuId(0));
        rest.begin(at(100));
        rest.end(at(101), Duration::from_micros(5));
        let rests = rest.read(at(200));
        assert_eq!((rests.count(), rests.longest(), rests.by_time(0.5)), (0, None, None));
    }

    #[test]
    fn a_rest_that_goes_on_is_no_wake_up_and_may_be_the_longest() {
        let rest = Rest::new(CpuId(0));
        rest.begin(at(100));
        rest.end(at(300), Duration::ZERO);
        rest.begin(at(400));
        let rests = rest.read(at(90_400));
        assert!(is_about(rests.longest(), 200.0) && rests.count() == 1, "{rests:?}");
        let rests = rests.ended();
        assert!(is_about(rests.longest(), 90_000.0), "{rests:?}");
        assert_eq!(rests.clone().ended(), rests, "once");
    }

    #[test]
    fn a_few_long_rests_weigh_what_they_last() {
        let mut lengths = vec![100; 1_000];
        lengths.extend([100_000; 3]);
        let rests = rested(&lengths);
        assert!(is_about(rests.by_time(0.2), 100.0), "a quarter of the time");
        assert!(is_about(rests.by_time(0.5), 100_000.0), "the rest of it");
        let mut twice = rests.since(&rested(&[100; 1_000]));
        assert_eq!(twice.count(), 3);
        twice.add(&rests);
        assert_eq!(twice.count(), 1_006);
    }

    proptest! {
        #[test]
        fn a_length_is_known_to_a_tenth(nanos in 1_u64..1 << 60) {
            let stands_for = middle(bucket(nanos)).as_nanos() as f64;
            prop_assert!((stands_for / nanos as f64 - 1.0).abs() < 0.1 || nanos < 8, "{} for {}", stands_for, nanos);
        }
    }
}
