//! Estimates with their intervals, from batches or from independent runs.
//!
//! The *mean* is the ratio of the sums of response times to the numbers of requests (see
//! [`ratio`](super::ratio)).
//!
//! A *quantile* q is read off the histogram of all batches together, with interpolation within a
//! bucket. Its interval comes by way of the share of requests above it, which is a mean, and of
//! which batches are unbiased: how the share above the estimate varies from batch to batch says
//! that the true share is `1 - q`, give or take so much; the values that the histogram has at these
//! shares are the ends (Heidelberger and Lewis, "Quantile estimation in dependent sequences", Oper.
//! Res. 32, 1984, do the same with spectra). The quantiles of the batches themselves are not used:
//! with some hundred requests above the p99 in a few congested spells per batch they are biased and
//! skew, and their interval covered the truth in 43 to 83 of 100 runs, or in 84 to 93 when centred
//! on the common quantile (sectioning; journal).
//!
//! The two ends of an interval lie at different distances. [`Interval`] states the larger.
//!
//! *Too few to tell.* Of a run that holds only a few congested spells, those without any look
//! precise and are wrong. So no interval is given of a run of fewer than 10,000 requests, of one
//! that remembers most of a stretch ([`REMEMBERED`]), where a batch has few requests beyond the
//! quantile ([`BEYOND_MIN`]), and where the share beyond it is known to no more than a fifth
//! ([`SHARE_ERROR`]). This cannot find a run that is short against its queue's memory and by chance
//! has no congested spell at all: nothing in it says that there are any. Runs that end when they
//! are precise are protected from that by their length ([`Collector`](super::Collector)); a
//! scenario that fixes the length should allow for it.

use super::batches::{Batch, stretch_correlation};
use super::ratio::{Parts, spread};
use super::{Interval, Quantity};
use hdrhistogram::Histogram;

/// The measurements of a run, or of several together, after the warm-up.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    batches: Vec<&'a Batch>,
    parts: Parts,
    pooled: Batch,
    short: bool,
}

impl<'a> Sample<'a> {
    pub(super) fn new(batches: Vec<&'a Batch>, parts: Parts) -> Self {
        let mut pooled = Batch::new();
        batches.iter().for_each(|batch| pooled.add(batch));
        let short = parts == Parts::Successive
            && (pooled.count() < REQUESTS_MIN || stretch_correlation(batches.iter().copied()) > REMEMBERED);
        Self { batches, parts, pooled, short }
    }

    /// How many requests it stands on.
    pub fn requests(&self) -> u64 {
        self.pooled.count()
    }

    /// Histogram of their response times, in nanoseconds.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.pooled.responses
    }

    /// The estimate alone, in nanoseconds; `None` of no requests.
    pub fn estimate(&self, quantity: Quantity) -> Option<f64> {
        if self.requests() == 0 {
            return None;
        }
        Some(match quantity {
            Quantity::Mean => self.pooled.mean_ns(),
            Quantity::Quantile(quantile) => {
                Place::below(&self.pooled.responses, quantile.tail() * self.requests() as f64).value_ns
            }
        })
    }

    /// The estimate with its interval, in nanoseconds; `None` if the requests are too few to tell.
    pub fn interval(&self, quantity: Quantity) -> Option<Interval> {
        match quantity {
            _ if self.short => None,
            Quantity::Mean => self.mean(),
            Quantity::Quantile(quantile) => self.quantile(quantile.tail()),
        }
    }

    fn mean(&self) -> Option<Interval> {
        let pairs: Vec<_> =
            self.batches.iter().map(|batch| (batch.sum_ns as f64, batch.count() as f64)).collect();
        let mean = spread(&pairs, self.parts)?;
        Some(Interval { estimate: self.pooled.mean_ns(), half_width: mean.above.max(mean.below) })
    }

    fn quantile(&self, tail: f64) -> Option<Interval> {
        self.located(tail).map(|located| located.interval)
    }

    /// The values of portions for a figure whose interval is known: their mean is the estimate (see
    /// [`paired`](super::paired)).
    pub(super) fn values(&self, quantity: Quantity, portions: &[&Batch]) -> Option<Vec<f64>> {
        let interval = self.interval(quantity)?;
        let Quantity::Quantile(quantile) = quantity else {
            return Some(portions.iter().map(|portion| portion.mean_ns()).collect());
        };
        let tail = quantile.tail();
        let Located { place, per_share, .. } = self.located(tail)?;
        let value = |portion: &&Batch| {
            let above = place.above(&portion.responses) / portion.count().max(1) as f64;
            interval.estimate + (above - tail) * per_share
        };
        Some(portions.iter().map(value).collect())
    }

    fn located(&self, tail: f64) -> Option<Located> {
        let requests = self.requests() as f64;
        let smaller = tail.min(1.0 - tail);
        if smaller * requests < BEYOND_MIN * self.batches.len() as f64 {
            return None;
        }
        let pooled = &self.pooled.responses;
        let place = Place::below(pooled, tail * requests);
        let pairs: Vec<_> =
            self.batches.iter().map(|batch| (place.above(&batch.responses), batch.count() as f64)).collect();
        let share = spread(&pairs, self.parts)?;
        if share.error > SHARE_ERROR * smaller {
            return None;
        }
        // More above than expected: the quantile lies higher than estimated, where fewer of ours
        // are.
        let (most, least) = (tail + share.below, tail - share.above);
        if most >= 1.0 || least * requests < 1.0 {
            return None;
        }
        let (low, high) = (Place::below(pooled, most * requests), Place::below(pooled, least * requests));
        // All of the buckets at the ends: a constant may lie anywhere in its own.
        let low_ns = pooled.lowest_equivalent(low.bucket_ns) as f64;
        let high_ns = pooled.highest_equivalent(high.bucket_ns) as f64;
        let estimate = place.value_ns;
        let interval = Interval { estimate, half_width: (high_ns - estimate).max(estimate - low_ns) };
        let per_share = if most > least { (high.value_ns - low.value_ns) / (most - least) } else { 0.0 };
        Some(Located { place, interval, per_share })
    }
}

#[derive(Clone, Copy, Debug)]
struct Located {
    place: Place,
    interval: Interval,
    /// How much longer the quantile is for a share of the requests more above it, in nanoseconds:
    /// one over the density there.
    per_share: f64,
}

/// A value, as a place within a bucket of a histogram.
#[derive(Clone, Copy, Debug)]
struct Place {
    value_ns: f64,
    bucket_ns: u64,
    /// The share of the bucket's requests that lie above.
    above: f64,
}

impl Place {
    /// The value that `tail` requests of the histogram lie above; requests lie evenly within a
    /// bucket.
    fn below(histogram: &Histogram<u64>, tail: f64) -> Self {
        let mut bucket_ns = histogram.max();
        let mut passed = 0.0;
        loop {
            let count = histogram.count_at(bucket_ns) as f64;
            let (low, high) =
                (histogram.lowest_equivalent(bucket_ns), histogram.highest_equivalent(bucket_ns));
            if low == 0 || passed + count >= tail {
                let above = if count > 0.0 { ((tail - passed) / count).clamp(0.0, 1.0) } else { 0.0 };
                return Self { value_ns: high as f64 - above * (high - low) as f64, bucket_ns, above };
            }
            passed += count;
            bucket_ns = low - 1;
        }
    }

    /// How many requests of another histogram lie above.
    fn above(&self, histogram: &Histogram<u64>) -> f64 {
        let max = histogram.max();
        let next = histogram.next_non_equivalent(self.bucket_ns);
        // Beyond its end a histogram counts its last bucket.
        let higher = if next <= max { histogram.count_between(next, max) } else { 0 };
        let here = if self.bucket_ns <= max { histogram.count_at(self.bucket_ns) } else { 0 };
        higher as f64 + self.above * here as f64
    }
}

/// Requests of a run that an interval stands on, at least [D]: a thousandth of a second of
/// simulation.
const REQUESTS_MIN: u64 = 10_000;
/// The correlation of stretches above which a run is too short [D]: with 48 batches, the run is
/// then some 250 times as long as the process remembers; at 50 times, six of ten intervals for a
/// mean at a load of 0.9 were wrong (journal).
const REMEMBERED: f64 = 0.7;
/// Requests that a batch must have above a quantile (and below it), on average [D: 10 / (1 - q)
/// requests per batch].
const BEYOND_MIN: f64 = 10.0;
/// The standard error of the share above a quantile, against that share [D]: 25 independent
/// requests above it have a fifth. Requests above it come in spells that count as one.
const SHARE_ERROR: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::Quantile;
    use super::*;
    use proptest::prelude::*;

    fn batches(values: impl IntoIterator<Item = u64>, size: usize) -> Vec<Batch> {
        let values: Vec<u64> = values.into_iter().collect();
        let batch = |chunk: &[u64]| {
            let mut batch = Batch::new();
            for value in chunk {
                batch.responses.record(*value).unwrap();
                batch.sum_ns += u128::from(*value);
            }
            batch
        };
        values.chunks(size).map(batch).collect()
    }

    fn p(percent: f64) -> Quantity {
        Quantity::Quantile(Quantile::from_percent(percent).unwrap())
    }

    #[test]
    fn a_constant_is_known_exactly() {
        let batches = batches([70_000; 40_000], 1000);
        let sample = Sample::new(batches.iter().collect(), Parts::Successive);
        let mean = sample.interval(Quantity::Mean).unwrap();
        assert_eq!(mean, Interval { estimate: 70_000.0, half_width: 0.0 });
        let median = sample.interval(p(50.0)).unwrap();
        assert!(median.covers(70_000.0) && median.relative() < 0.001, "{median:?}");
    }

    #[test]
    fn quantiles_are_interpolated_within_buckets() {
        // Every value between 10^6 and 2 10^6 in a scattered order.
        let batches = batches((0..1_000_000u64).map(|n| 1_000_000 + n * 7919 % 1_000_000), 20_000);
        let sample = Sample::new(batches.iter().collect(), Parts::Independent);
        for percent in [1.0, 50.0, 99.0, 99.9] {
            let exact = 1e6 + 1e4 * percent;
            let interval = sample.interval(p(percent)).unwrap();
            assert!((interval.estimate - exact).abs() < 0.0001 * exact, "p{percent}: {interval:?}");
        }
    }

    #[test]
    fn a_quantile_without_enough_above_it_is_not_told() {
        let batches = batches((0..40_000u64).map(|n| 1 + n * 7919 % 40_000), 1000);
        let sample = Sample::new(batches.iter().collect(), Parts::Successive);
        assert!(sample.interval(p(99.0)).is_some());
        assert_eq!(sample.interval(p(99.9)), None);
        assert!(sample.estimate(p(99.9)).is_some());
    }

    #[test]
    fn no_requests_no_estimate() {
        let sample = Sample::new(Vec::new(), Parts::Independent);
        assert_eq!(sample.estimate(Quantity::Mean), None);
        assert_eq!(sample.estimate(p(99.0)), None);
        assert_eq!(sample.interval(Quantity::Mean), None);
        assert_eq!(sample.interval(p(99.0)), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn intervals_are_numbers_and_quantiles_rise(
            values in prop::collection::vec(0u64..10_000_000_000, 500..2000),
        ) {
            let batches = batches(values, 40);
            let sample = Sample::new(batches.iter().collect(), Parts::Independent);
            let mut before = 0.0;
            for percent in [5.0, 25.0, 50.0, 75.0] {
                let estimate = sample.estimate(p(percent)).unwrap();
                prop_assert!(estimate >= before);
                before = estimate;
                if let Some(interval) = sample.interval(p(percent)) {
                    prop_assert!(interval.covers(estimate) && interval.half_width.is_finite(), "{interval:?}");
                }
            }
            if let Some(mean) = sample.interval(Quantity::Mean) {
                prop_assert!(mean.half_width.is_finite() && mean.half_width >= 0.0);
            }
        }

        #[test]
        fn runs_may_come_in_any_order(
            values in prop::collection::vec(1u64..1_000_000_000, 1000..1500), turn in 1usize..12,
        ) {
            let batches = batches(values, 80);
            let mut order: Vec<&Batch> = batches.iter().collect();
            let straight = Sample::new(order.clone(), Parts::Independent);
            order.rotate_left(turn);
            let turned = Sample::new(order, Parts::Independent);
            for quantity in [Quantity::Mean, p(50.0)] {
                let (a, b) = (straight.interval(quantity).unwrap(), turned.interval(quantity).unwrap());
                prop_assert!((a.estimate - b.estimate).abs() <= 1e-6 * a.estimate);
                prop_assert!((a.half_width - b.half_width).abs() <= 1e-3 * a.half_width + 2.0, "{a:?} {b:?}");
            }
        }
    }
}
