//! Response times in batches whose number is bounded.
//!
//! A batch keeps the sum of its response times and their histogram (three digits: a bucket is 0.1 %
//! wide). When [`MOST`] batches are full and the next one is too, neighbours are merged and batches
//! are from then on twice as long. So there are always between half of [`MOST`] and [`MOST`] of
//! them, of the same length, whatever the length of the run; memory is that of so many histograms.
//!
//! Whether batches are long enough cannot be seen from 32 to 64 of them: their correlation is only
//! known to +-0.15. So each also keeps the sums of its eight *stretches*. The correlation from
//! stretch to stretch shows how far the process remembers; a correlation r of stretches of length b
//! means a memory of about b / 3 at r = 0.2, and of b at r = 0.5.

use hdrhistogram::Histogram;

#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// Exact sum of the response times.
    pub sum_ns: u128,
    /// Each response time to three digits.
    pub responses: Histogram<u64>,
    /// The sums over successive stretches of equal length.
    stretches_ns: [f64; STRETCHES],
}

impl Batch {
    pub(super) fn new() -> Self {
        let responses = Histogram::new(3).expect("three digits are allowed");
        Self { sum_ns: 0, responses, stretches_ns: [0.0; STRETCHES] }
    }

    pub(super) fn count(&self) -> u64 {
        self.responses.len()
    }

    /// The mean; zero if there are none.
    pub(super) fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64
    }

    /// Takes up another's, without regard to which comes first.
    pub(super) fn add(&mut self, other: &Self) {
        self.sum_ns += other.sum_ns;
        self.responses.add(&other.responses).expect(GROWS);
    }

    /// Takes up the one that follows it.
    fn append(&mut self, next: &Self) {
        self.add(next);
        self.halve();
        let pairs = next.stretches_ns.chunks_exact(2).map(|pair| pair[0] + pair[1]);
        self.stretches_ns[STRETCHES / 2..].iter_mut().zip(pairs).for_each(|(stretch, sum)| *stretch = sum);
    }

    /// Its stretches, two by two, become the first half of those of a batch twice as long.
    fn halve(&mut self) {
        for place in 0..STRETCHES / 2 {
            self.stretches_ns[place] = self.stretches_ns[2 * place] + self.stretches_ns[2 * place + 1];
        }
    }

    fn reset(&mut self) {
        self.sum_ns = 0;
        self.responses.reset();
    }
}

/// The correlation of successive stretches of successive batches; zero if nothing varies.
pub(super) fn stretch_correlation<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> f64 {
    let sums: Vec<f64> = batches.into_iter().flat_map(|batch| batch.stretches_ns).collect();
    let mean = sums.iter().sum::<f64>() / sums.len().max(1) as f64;
    let square: f64 = sums.iter().map(|sum| (sum - mean).powi(2)).sum();
    let neighbours: f64 = sums.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if square > 0.0 { neighbours / square } else { 0.0 }
}

#[derive(Clone, Debug)]
pub(super) struct Batches {
    closed: Vec<Batch>,
    open: Batch,
    /// Emptied by a merger, to be filled again.
    spare: Vec<Batch>,
    /// Number of requests in a closed batch.
    size: u64,
    /// The stretch of the open one that is being filled, the sums of the open one before it, and
    /// until the stretch is full.
    stretch: usize,
    before_ns: u128,
    left: u64,
    /// True if nothing more is taken up.
    sealed: bool,
}

impl Batches {
    pub(super) fn new() -> Self {
        let closed = Vec::with_capacity(MOST);
        Self {
            closed,
            open: Batch::new(),
            spare: Vec::new(),
            size: FIRST_SIZE,
            stretch: 0,
            before_ns: 0,
            left: FIRST_SIZE / STRETCHES as u64,
            sealed: false,
        }
    }

    /// A request is done. True if that closed a batch.
    #[inline]
    pub(super) fn record(&mut self, response_ns: u64) -> bool {
        self.open.responses.record(response_ns).expect(GROWS);
        self.open.sum_ns += u128::from(response_ns);
        self.left -= 1;
        self.left == 0 && self.end_stretch()
    }

    #[cold]
    #[inline(never)]
    fn end_stretch(&mut self) -> bool {
        self.open.stretches_ns[self.stretch] = (self.open.sum_ns - self.before_ns) as f64;
        self.stretch += 1;
        let closed = self.stretch == STRETCHES && self.end_batch();
        self.before_ns = self.open.sum_ns;
        self.left = self.size / STRETCHES as u64;
        closed
    }

    fn end_batch(&mut self) -> bool {
        self.stretch = 0;
        if self.sealed {
            self.open.reset();
            return false;
        }
        if self.closed.len() == MOST {
            self.merge();
            self.open.halve();
            self.stretch = STRETCHES / 2;
            return false;
        }
        let next = self.spare.pop().unwrap_or_else(Batch::new);
        self.closed.push(std::mem::replace(&mut self.open, next));
        true
    }

    fn merge(&mut self) {
        for pair in 0..MOST / 2 {
            let (before, after) = self.closed.split_at_mut(2 * pair + 1);
            before[2 * pair].append(&after[0]);
            after[0].reset();
            self.closed.swap(pair, 2 * pair);
        }
        self.spare.extend(self.closed.drain(MOST / 2..));
        self.size *= 2;
    }

    /// The batches that are full now stay as they are; later records are dropped.
    pub(super) fn seal(&mut self) {
        self.sealed = true;
    }

    /// The full ones, in order.
    pub(super) fn closed(&self) -> &[Batch] {
        &self.closed
    }

    /// The one being filled.
    pub(super) fn open(&self) -> &Batch {
        &self.open
    }

    /// Number of requests that were recorded.
    pub(super) fn recorded(&self) -> u64 {
        self.closed.len() as u64 * self.size + self.open.count()
    }
}

const GROWS: &str = "histograms of this kind grow to any value";
/// Stretches of a batch [D].
const STRETCHES: usize = 8;
/// The most batches of a run. A quantile needs long ones, a variance many: 32 to 64 [D: at least
/// 32].
pub(super) const MOST: usize = 64;
/// Requests of the first batches [D]: a run of 2048 requests has intervals.
const FIRST_SIZE: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_are_between_32_and_64_once_there_were_32() {
        let mut batches = Batches::new();
        for n in 1..=100_000u64 {
            batches.record(n);
            assert!(batches.closed().len() <= MOST);
            assert!(n < 32 * FIRST_SIZE || batches.closed().len() >= MOST / 2);
        }
    }

    #[test]
    fn stretches_tell_how_far_a_process_remembers() {
        let correlation = |spell: u64| {
            let mut batches = Batches::new();
            let mut random = workload::Random::new(1, 1);
            let mut level = 0;
            for n in 0..65_536 {
                if n % spell == 0 {
                    level = random.below(1000);
                }
                batches.record(level);
            }
            stretch_correlation(batches.closed())
        };
        // Stretches of 128.
        assert!(correlation(1).abs() < 0.15, "{}", correlation(1));
        assert!((0.2..0.6).contains(&correlation(192)), "{}", correlation(192));
        assert!(correlation(2000) > 0.8, "{}", correlation(2000));
        assert_eq!(correlation(100_000), 0.0);
        assert_eq!(stretch_correlation([]), 0.0);
    }

    #[test]
    fn what_is_sealed_does_not_change() {
        let mut batches = Batches::new();
        (0..64 * FIRST_SIZE).for_each(|n| _ = batches.record(n));
        batches.seal();
        let sums = |batches: &Batches| batches.closed().iter().map(|batch| batch.sum_ns).collect::<Vec<_>>();
        let before = sums(&batches);
        (0..1000 * FIRST_SIZE).for_each(|n| _ = batches.record(n));
        assert_eq!(sums(&batches), before);
    }

    #[test]
    fn any_response_time_can_be_recorded() {
        let mut batches = Batches::new();
        [0, 1, 10_000_000, u64::MAX].iter().for_each(|ns| _ = batches.record(*ns));
        assert_eq!(batches.open().count(), 4);
        assert_eq!(batches.open().sum_ns, u128::from(u64::MAX) + 10_000_001);
    }

    #[test]
    fn memory_does_not_grow_with_the_run() {
        let mut batches = Batches::new();
        let held = |batches: &Batches| batches.closed.len() + batches.spare.len();
        (0..10_000_000u64).for_each(|n| _ = batches.record(n % 1000));
        assert!(held(&batches) <= MOST);
    }

    proptest! {
        #[test]
        fn batches_are_successive_stretches_of_equal_length_and_lose_nothing(count in 1u64..40_000) {
            let mut batches = Batches::new();
            for n in 0..count {
                batches.record(n);
            }
            prop_assert_eq!(batches.recorded(), count);
            let mut next = 0;
            for batch in batches.closed() {
                let stretch = batches.size / STRETCHES as u64;
                for (place, sum_ns) in (0..).zip(batch.stretches_ns) {
                    let from = next + place * stretch;
                    prop_assert_eq!(sum_ns, (from..from + stretch).sum::<u64>() as f64);
                }
                prop_assert_eq!(batch.count(), batches.size);
                prop_assert_eq!(batch.sum_ns, u128::from((next..next + batches.size).sum::<u64>()));
                next += batches.size;
            }
            prop_assert_eq!(batches.open().count(), count - next);
        }
    }
}
