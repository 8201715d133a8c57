//! The measurements of a run, and its end.

use super::batches::{Batch, Batches, MOST, stretch_correlation};
use super::paired::{Portion, Portions};
use super::ratio::{PARTS_MIN, Parts};
use super::sample::Sample;
use super::stability::Stability;
use super::warm_up;
use super::{Interval, Precision, Quantity};
use std::fmt;

/// The response times of one run, watched while they come.
#[derive(Clone, Debug)]
pub struct Collector {
    batches: Batches,
    stability: Stability,
    precisions: Vec<Precision>,
    /// How many requests were recorded when stretches of a batch had come to have nothing to do
    /// with each other.
    forgets_from: Option<u64>,
    precise: bool,
}

impl Collector {
    /// Nothing recorded yet. The run is to go on until all of `precisions` hold; with none, as long
    /// as the caller likes.
    pub fn new(precisions: impl IntoIterator<Item = Precision>) -> Self {
        let precisions = precisions.into_iter().collect();
        let (batches, stability) = (Batches::new(), Stability::new());
        Self { batches, stability, precisions, forgets_from: None, precise: false }
    }

    /// A request is done. Requests are told in the order in which they complete (or arrive: it only
    /// matters that neighbours in time are neighbours here).
    #[inline]
    pub fn record(&mut self, response_ns: u64) {
        if self.batches.record(response_ns) {
            self.look();
        }
    }

    /// A request has come, and so many are in the system now. Without it an unstable queue is not
    /// found.
    #[inline]
    pub fn observe(&mut self, in_system: u64) {
        self.stability.observe(in_system);
    }

    /// Whether the run may end.
    ///
    /// A look at every request would find, sooner or later, a moment in which chance makes the
    /// interval narrow. So there are two looks for each doubling of the length: at 64 batches, and
    /// at 45, which is half way. And a run without congested spells looks precise because it has
    /// none. So the run is to be four times as long as it was when stretches of its batches ceased
    /// to correlate: most of the reported requests came after that was found. By then a batch is
    /// some fifty times as long as the autocorrelation of response times adds up to.
    fn look(&mut self) {
        let closed = self.batches.closed();
        if self.precise || self.precisions.is_empty() || !(closed.len() == MOST || closed.len() == HALF_WAY) {
            return;
        }
        let recorded = self.batches.recorded();
        if stretch_correlation(&closed[1..]) > FORGOTTEN {
            self.forgets_from = None;
            return;
        }
        let forgets_from = *self.forgets_from.get_or_insert(recorded);
        if recorded >= FIRST_LOOK.max(PILOTS * forgets_from) && self.shortfalls().is_empty() {
            self.precise = true;
            // Requests that come until the caller looks would change the intervals that were found
            // to hold.
            self.batches.seal();
        }
    }

    /// True once every precision that was asked for holds: the run may end, and nothing recorded
    /// later counts.
    #[inline]
    pub fn is_precise(&self) -> bool {
        self.precise
    }

    /// True once the queue was found to grow without end: the run may as well end.
    #[inline]
    pub fn is_unstable(&self) -> bool {
        self.stability.is_unstable()
    }

    /// Number of requests that were recorded.
    pub fn recorded(&self) -> u64 {
        self.batches.recorded()
    }

    /// The measurements after the warm-up, up to the last full batch. Of fewer than ten batches
    /// (640 requests) all is taken, and no interval comes of it.
    pub fn sample(&self) -> Result<Sample<'_>, Doubt> {
        if self.stability.is_unstable() || self.stability.grows() {
            return Err(Doubt::Unstable);
        }
        let closed = self.batches.closed();
        if closed.len() < PARTS_MIN {
            return Ok(Sample::new(closed.iter().chain([self.batches.open()]).collect(), Parts::Successive));
        }
        Ok(Sample::new(closed[self.left_out()?..].iter().collect(), Parts::Successive))
    }

    /// The figures batch by batch, for comparisons; those of `quantities` whose interval is known.
    /// `None` of a run that is too short or had not settled.
    pub fn portions(&self, quantities: &[Quantity]) -> Option<Portions> {
        let sample = self.sample().ok()?;
        let closed: Vec<&Batch> = self.batches.closed().iter().collect();
        (closed.len() >= PARTS_MIN).then_some(())?;
        let left_out = self.left_out().ok()?;
        Some(portions(&sample, &closed, quantities, Portion::Batch, left_out))
    }

    /// The estimate with its interval, in nanoseconds; `None` if that cannot be told. To ask for
    /// several, ask the [`sample`](Self::sample), which is made once.
    pub fn interval(&self, quantity: Quantity) -> Option<Interval> {
        self.sample().ok()?.interval(quantity)
    }

    /// How many requests at the beginning are left out as warm-up.
    pub fn warm_up(&self) -> u64 {
        let closed = self.batches.closed();
        self.left_out().map_or(0, |batches| closed.iter().take(batches).map(Batch::count).sum())
    }

    fn left_out(&self) -> Result<usize, Doubt> {
        let closed = self.batches.closed();
        if closed.len() < PARTS_MIN {
            return Ok(0);
        }
        warm_up::batches(&closed.iter().map(Batch::mean_ns).collect::<Vec<_>>()).ok_or(Doubt::Unsettled)
    }

    /// The precisions that do not hold, and how far they are from it: for a run that ended before
    /// it was precise.
    pub fn shortfalls(&self) -> Vec<Shortfall> {
        let sample = self.sample().ok();
        let shortfall = |precision: &Precision| {
            let reached = sample.as_ref().and_then(|sample| sample.interval(precision.quantity()));
            let reached = reached.map(|interval| interval.relative());
            let holds = reached.is_some_and(|reached| reached <= precision.relative());
            (!holds).then_some(Shortfall { precision: *precision, reached, requests: self.recorded() })
        };
        self.precisions.iter().filter_map(shortfall).collect()
    }

    /// All of a run, warm-up included.
    pub(super) fn whole(&self) -> Batch {
        let mut whole = self.batches.open().clone();
        self.batches.closed().iter().for_each(|batch| whole.add(batch));
        whole
    }

    /// A run after its warm-up.
    pub(super) fn settled(&self) -> Result<Batch, Doubt> {
        if self.stability.is_unstable() || self.stability.grows() {
            return Err(Doubt::Unstable);
        }
        let mut settled = self.batches.open().clone();
        self.batches.closed()[self.left_out()?..].iter().for_each(|batch| settled.add(batch));
        Ok(settled)
    }
}

/// The figures of a sample, portion by portion.
pub(super) fn portions(
    sample: &Sample<'_>,
    of: &[&Batch],
    quantities: &[Quantity],
    portion: Portion,
    left_out: usize,
) -> Portions {
    let figure = |quantity: &Quantity| Some((quantity.to_string(), sample.values(*quantity, of)?));
    let weights = of.iter().map(|batch| batch.count() as f64).collect();
    Portions { portion, left_out, weights, figures: quantities.iter().filter_map(figure).collect() }
}

/// Why a run has no figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// More work came than was done.
    #[error("unstable: the number of requests in the system grows without end; lower the load or add cores")]
    Unstable,
    /// The second half of the run still differs from the first.
    #[error("not settled: response times still changed in the middle of the run; simulate more requests")]
    Unsettled,
}

/// A precision that was not reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortfall {
    pub precision: Precision,
    /// The half-width as a share of the estimate; `None` if the requests are too few to tell.
    pub reached: Option<f64>,
    /// After so many requests.
    pub requests: u64,
}

impl Shortfall {
    /// About how many requests would do: a half-width shrinks with the square root of their number.
    pub fn requests_needed(&self) -> Option<u64> {
        self.reached.map(|reached| {
            (self.requests as f64 * (reached / self.precision.relative()).powi(2)).ceil() as u64
        })
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was not reached with {} requests: ", self.precision, self.requests)?;
        match (self.reached, self.requests_needed()) {
            (Some(reached), Some(needed)) => {
                write!(f, "+-{:.2} %; about {needed} requests would do", 100.0 * reached)
            }
            _ => write!(f, "they are too few to tell how far {} is known", self.precision.quantity()),
        }
    }
}

/// Batches at the second look of a doubling: 64 / sqrt 2.
const HALF_WAY: usize = 45;
/// No run ends before so many requests [D]: they are simulated in a hundredth of a second.
const FIRST_LOOK: u64 = 65_536;
/// A correlation of stretches that is none [D: below 0.2].
const FORGOTTEN: f64 = 0.2;
/// How many times the length at which the process was found to forget [D]. With one, the p99 of
/// M/M/10 at 0.9 was covered in 89.5 of 100 runs, with four in 96.9 (journal).
const PILOTS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::recursion::Queue;

    #[test]
    fn a_run_ends_when_it_is_precise_and_not_before() {
        let mut collector = Collector::new(["5%@mean".parse().unwrap()]);
        let mut queue = Queue::mm1(0.8, 1);
        while !collector.is_precise() {
            collector.record(queue.next_response_ns());
        }
        let mean = collector.interval(Quantity::Mean).unwrap();
        assert!(mean.relative() <= 0.05, "{mean:?}");
        assert!((FIRST_LOOK..2_000_000).contains(&collector.recorded()), "{}", collector.recorded());
        assert!(collector.shortfalls().is_empty());
        assert!(collector.warm_up() >= collector.recorded() / 65);
        (0..100_000).for_each(|_| collector.record(queue.next_response_ns()));
        assert_eq!(collector.interval(Quantity::Mean), Some(mean));
    }

    #[test]
    fn a_run_that_is_too_short_says_how_long_it_should_have_been() {
        let mut collector = Collector::new(["1%@mean".parse().unwrap(), "1%@p99.9".parse().unwrap()]);
        let mut queue = Queue::mm1(0.5, 1);
        (0..100_000).for_each(|_| collector.record(queue.next_response_ns()));
        let [mean, tail] = collector.shortfalls()[..] else { panic!("both are missed") };
        assert!((200_000..2_000_000).contains(&mean.requests_needed().unwrap()), "{mean}");
        assert!(tail.to_string().starts_with("1%@p99.9 was not reached with 100000 requests: "), "{tail}");
    }

    #[test]
    fn an_unstable_queue_has_no_figures() {
        let mut collector = Collector::new([]);
        for n in 0..200_000u64 {
            collector.observe(n / 2);
            collector.record(1000 * n);
        }
        assert!(collector.is_unstable());
        assert_eq!(collector.sample().err(), Some(Doubt::Unstable));
        assert_eq!(collector.interval(Quantity::Mean), None);
    }

    #[test]
    fn a_handful_of_requests_has_estimates_without_intervals() {
        let mut collector = Collector::new([]);
        assert_eq!(collector.sample().unwrap().estimate(Quantity::Mean), None);
        (1..=3u64).for_each(|n| collector.record(1000 * n));
        let sample = collector.sample().unwrap();
        assert_eq!(sample.estimate(Quantity::Mean), Some(2000.0));
        assert_eq!(sample.interval(Quantity::Mean), None);
    }

    #[test]
    fn a_run_that_is_short_against_what_its_queue_remembers_has_no_interval() {
        let told = |load: f64, requests: u32| {
            let mut collector = Collector::new([]);
            let mut queue = Queue::mm1(load, 1);
            (0..requests).for_each(|_| collector.record(queue.next_response_ns()));
            let sample = collector.sample().unwrap();
            assert!(sample.estimate(Quantity::Mean).is_some());
            sample.interval(Quantity::Mean).is_some()
        };
        assert!(!told(0.1, 9_000) && told(0.1, 20_000));
        // At 0.95 it remembers some 1500 requests.
        assert!(!told(0.95, 20_000) && told(0.95, 1_000_000));
    }

    #[test]
    fn a_run_that_drifts_from_end_to_end_has_not_settled() {
        let mut collector = Collector::new([]);
        (0..100_000u64).for_each(|n| collector.record(1000 + n));
        assert_eq!(collector.sample().err(), Some(Doubt::Unsettled));
    }
}
