//! Everything that a run counts and measures.

use crate::statistics::Collector;
use hdrhistogram::{Counter, Histogram};
use literature::idle::IdleTable;
use machine::Duration;

/// A histogram of response times with so many digits, from a nanosecond to an hour; longer times
/// count as an hour. Its bounds are given, because one that grows by itself does not do so for
/// `saturating_record`.
pub(crate) fn histogram<T: Counter>(digits: u8) -> Histogram<T> {
    const HOUR_NS: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, HOUR_NS, digits).expect("the bounds and up to five digits are allowed")
}

/// Lengths of idle or active periods, in buckets that double: bucket b holds lengths from 2^b to
/// 2^(b+1) - 1 ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleLengths {
    pub counts: [u64; 64],
    /// Their sum.
    pub time_ns: [u64; 64],
}

impl Default for IdleLengths {
    fn default() -> Self {
        Self { counts: [0; 64], time_ns: [0; 64] }
    }
}

impl IdleLengths {
    #[inline]
    fn record(&mut self, length_ns: u64) {
        let bucket = (63 - (length_ns | 1).leading_zeros()) as usize;
        self.counts[bucket] += 1;
        self.time_ns[bucket] += length_ns;
    }
}

/// Counts of the sleeps in one idle state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepCounts {
    pub sleeps: u64,
    /// Shorter than the state's target residency.
    pub premature: u64,
    /// Long enough for a deeper state.
    pub missed_deep: u64,
}

/// Response times of a stretch of time: 128 buckets per doubling, so that a quantile is off by less
/// than half a per cent. Figures rest on them, such as the mean of the epochs' percentiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    counts: Vec<u32>,
    total: u64,
}

/// Buckets per doubling, as a power of two.
const BUCKET_BITS: u32 = 7;

impl Times {
    #[inline]
    fn record(&mut self, length_ns: u64) {
        let length = length_ns.max(1 << BUCKET_BITS);
        let octave = 63 - length.leading_zeros();
        let bucket = ((octave << BUCKET_BITS) as u64 + (length >> (octave - BUCKET_BITS))
            - (1 << BUCKET_BITS)) as usize;
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
    }

    /// The `q`-quantile; `None` if there was no request.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let wanted = (q * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= wanted
        })? as u64;
        let (octave, step) = (bucket >> BUCKET_BITS, bucket & ((1 << BUCKET_BITS) - 1));
        let width = 1u64 << octave.saturating_sub(u64::from(BUCKET_BITS));
        Some(Duration::from_nanos(((1 << BUCKET_BITS) + step) * width + width / 2))
    }

    fn absorb(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        self.total += other.total;
    }
}

/// One stretch of the run, for plots and for the interval of the power.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// End of the stretch, in nanoseconds.
    pub until_ns: u64,
    pub length_ns: u64,
    pub core_joules: f64,
    /// Time asleep, summed over the sockets.
    pub package_asleep_ns: u64,
    /// Joules that the sockets' uncore took less than at its fastest clock.
    pub uncore_spared_joules: f64,
    /// Number of requests that left in it.
    pub left: u64,
    /// Sum of the response times of those requests.
    pub response_ns: u64,
    pub responses: Times,
    /// CPUs that new work may go to, times length.
    pub active_ns: u64,
    /// Time awake, summed over the CPUs.
    pub awake_ns: u64,
    /// Time at work, by operating point, summed over the CPUs.
    pub working_ns: Vec<u64>,
    /// Time asleep, by idle state, summed over the CPUs.
    pub asleep_ns: Vec<u64>,
}

impl Sample {
    fn absorb(&mut self, next: &Self) {
        self.until_ns = next.until_ns;
        self.length_ns += next.length_ns;
        self.core_joules += next.core_joules;
        self.package_asleep_ns += next.package_asleep_ns;
        self.uncore_spared_joules += next.uncore_spared_joules;
        self.left += next.left;
        self.response_ns += next.response_ns;
        self.responses.absorb(&next.responses);
        self.active_ns += next.active_ns;
        self.awake_ns += next.awake_ns;
        self.working_ns.iter_mut().zip(&next.working_ns).for_each(|(sum, ns)| *sum += ns);
        self.asleep_ns.iter_mut().zip(&next.asleep_ns).for_each(|(sum, ns)| *sum += ns);
    }
}

#[derive(Clone, Copy, Debug)]
struct ClassBook {
    deadline_ns: u64,
    left: u64,
    missed: u64,
}

pub struct Metrics {
    pub responses: Collector,
    /// Lengths of the idle periods of all CPUs.
    pub idle: IdleLengths,
    /// Lengths of the periods between two idle periods.
    pub active: IdleLengths,
    /// Indexed by the number of the idle state.
    pub sleeps: Vec<SleepCounts>,
    pub samples: Vec<Sample>,
    /// Requests that came, and that left.
    entered: u64,
    left: u64,
    /// Integral over time of the number in the system, in ns.
    area_ns: u128,
    area_since: u64,
    response_sum_ns: u128,
    classes: Vec<ClassBook>,
    most_in_system: u64,
    worked_ns: u64,
    interrupted_ns: u64,
    open: Sample,
    /// Every answer, where the caller wants them one by one.
    pub(super) visits: Option<Vec<Visit>>,
}

/// One request that was answered, for callers that want each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Nanoseconds after the beginning of the run.
    pub left_ns: u64,
    pub response_ns: u64,
    /// A place in the list of classes.
    pub class: u8,
}

/// So many samples are kept; when there are twice as many, neighbours are merged.
const SAMPLES: usize = 256;

impl Metrics {
    pub(super) fn new(responses: Collector, deadlines_ns: Vec<u64>, states: usize) -> Self {
        Self {
            responses,
            idle: IdleLengths::default(),
            active: IdleLengths::default(),
            sleeps: vec![SleepCounts::default(); states],
            samples: Vec::new(),
            entered: 0,
            left: 0,
            area_ns: 0,
            area_since: 0,
            response_sum_ns: 0,
            classes: (deadlines_ns.into_iter())
                .map(|deadline_ns| ClassBook { deadline_ns, left: 0, missed: 0 })
                .collect(),
            most_in_system: 0,
            worked_ns: 0,
            interrupted_ns: 0,
            open: Sample::default(),
            visits: None,
        }
    }

    #[inline]
    pub(super) fn enter(&mut self, now: u64) {
        self.pass(now);
        self.entered += 1;
        self.most_in_system = self.most_in_system.max(self.in_system());
    }

    #[inline(always)]
    pub(super) fn leave(&mut self, now: u64, response_ns: u64, outside_ns: u64, class: u8) {
        self.pass(now);
        self.left += 1;
        // Little's law is about the time spent here; the time outside, which clients see, comes on
        // top.
        self.response_sum_ns += u128::from(response_ns);
        let response_ns = response_ns + outside_ns;
        if let Some(visits) = &mut self.visits {
            visits.push(Visit { left_ns: now, response_ns, class });
        }
        let class = &mut self.classes[usize::from(class)];
        class.left += 1;
        class.missed += u64::from(response_ns > class.deadline_ns);
        self.open.left += 1;
        self.open.response_ns += response_ns;
        self.open.responses.record(response_ns);
        self.responses.record(response_ns);
    }

    #[inline]
    fn pass(&mut self, now: u64) {
        self.area_ns += u128::from(now - self.area_since) * u128::from(self.in_system());
        self.area_since = now;
    }

    #[inline]
    pub(super) fn idle(&mut self, length_ns: u64) {
        self.idle.record(length_ns);
    }

    #[inline]
    pub(super) fn active(&mut self, length_ns: u64) {
        self.active.record(length_ns);
    }

    #[inline]
    pub(super) fn slept(&mut self, state: u8, length_ns: u64, table: &IdleTable) {
        let state = usize::from(state);
        let counts = &mut self.sleeps[state];
        counts.sleeps += 1;
        counts.premature += u64::from(length_ns < table.target_residency(state).as_nanos());
        let deeper = state + 1 < table.len() && length_ns >= table.target_residency(state + 1).as_nanos();
        counts.missed_deep += u64::from(deeper);
    }

    #[inline]
    pub(super) fn worked(&mut self, compute_ns: u64, memory_ns: u64) {
        self.worked_ns += compute_ns + memory_ns;
    }

    pub(super) fn interrupted(&mut self, cost_ns: u64) {
        self.interrupted_ns += cost_ns;
    }

    /// The stretch that ends now: the engine fills in the machine's figures.
    pub(super) fn sample(&mut self, filled: Sample) {
        let mut sample = std::mem::take(&mut self.open);
        let measured = (sample.left, sample.response_ns, std::mem::take(&mut sample.responses));
        sample = Sample { left: measured.0, response_ns: measured.1, responses: measured.2, ..filled };
        self.samples.push(sample);
    }

    /// If there are too many samples: merges neighbours; true if the next ones shall be twice as
    /// long.
    pub(super) fn thin(&mut self) -> bool {
        if self.samples.len() < 2 * SAMPLES {
            return false;
        }
        let merged = self.samples.chunks(2).map(|pair| {
            let mut one = pair[0].clone();
            pair[1..].iter().for_each(|next| one.absorb(next));
            one
        });
        self.samples = merged.collect();
        true
    }

    /// Number of requests that came so far.
    #[inline]
    pub fn entered(&self) -> u64 {
        self.entered
    }
    /// Number of requests that were answered.
    #[inline]
    pub fn left(&self) -> u64 {
        self.left
    }
    /// Number of requests in the system now.
    #[inline]
    pub fn in_system(&self) -> u64 {
        self.entered - self.left
    }
    /// The most that were ever here.
    pub fn most_in_system(&self) -> u64 {
        self.most_in_system
    }
    /// By class: requests that were answered, and those of them that missed its deadline.
    pub fn by_class(&self) -> impl Iterator<Item = (u64, u64)> {
        self.classes.iter().map(|class| (class.left, class.missed))
    }
    /// Work done on requests, at the nominal clock.
    pub fn worked_ns(&self) -> u64 {
        self.worked_ns
    }
    /// CPU time spent on anything but requests.
    pub fn interrupted_ns(&self) -> u64 {
        self.interrupted_ns
    }
    /// Mean response time over all requests, warm-up included.
    pub fn mean_response_ns(&self) -> f64 {
        self.response_sum_ns as f64 / self.left.max(1) as f64
    }

    /// Little's law over the whole run: the mean number in the system against rate times mean
    /// response. Both are sums over the same visits, so with no request left inside they are equal.
    pub(super) fn littles_law_holds(&self) -> bool {
        self.in_system() > 0 || self.area_ns == self.response_sum_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_of_a_stretch_are_fine_enough_for_figures(
            lengths in prop::collection::vec(128u64..1 << 40, 1..200),
            q in 0.01..1.0f64,
        ) {
            let mut times = Times::default();
            lengths.iter().for_each(|&length| times.record(length));
            let mut sorted = lengths.clone();
            sorted.sort_unstable();
            let exact = sorted[((q * sorted.len() as f64).ceil() as usize).max(1) - 1] as f64;
            let found = times.quantile(q).unwrap().as_nanos() as f64;
            prop_assert!((found / exact - 1.0).abs() < 0.005, "{found} for {exact}");
        }
    }
}
