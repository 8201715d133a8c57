//! Long waits of the recorded run that no part of the model makes.
//!
//! A thread of the service may be ready and get no CPU: it is queued behind a program while another
//! CPU is idle, or the host has taken its CPU away. A recording does not say why. Its response times
//! say how often and for how long: beyond the p99 such waits are all that is left, so their mean is the
//! time in which the rest of the tail halves, over ln 2. Their share follows from the model: with it
//! the model's p99 of the recorded run is the recorded one.

use super::recording::{Bucket, Recording};

/// Times in which a thread of the service is held, of exponential lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    pub mean_us: f64,
    /// Share of the time in which a thread is held.
    pub share: f64,
}

/// So many requests beyond the p99.5 tell where it is.
const FEWEST: f64 = 100.0;
/// A greater share is no rare wait, and the model lacks something else.
const MOST: f64 = 0.05;
/// The share is found to a 256th of the most.
const STEPS: u32 = 8;

impl Tail {
    /// `p99_us` is the model's p99 of the recorded run with so much of it. Absent where the recording
    /// has too few requests, where the model's own tail is as long, and where no rare wait explains it.
    pub fn of(recording: &Recording, p99_us: impl Fn(Option<Self>) -> Option<f64>) -> Option<Self> {
        let recorded = recording.responses.p99_us.as_ref()?.value;
        let mean_us = (quantile(&recording.responses.histogram, 0.995)? - recorded) / 2f64.ln();
        let is_short = |tail: Option<Self>| Some(p99_us(tail)? < recorded);
        let of = |share: f64| Self { mean_us, share };
        if mean_us <= 0.0 || !is_short(None)? || is_short(Some(of(MOST)))? {
            return None;
        }
        let (mut less, mut more) = (0.0, MOST);
        for _ in 0..STEPS {
            let share = f64::midpoint(less, more);
            *(if is_short(Some(of(share)))? { &mut less } else { &mut more }) = share;
        }
        Some(of(f64::midpoint(less, more)))
    }

    /// Mean time between two such times of a thread.
    pub fn every_us(&self) -> f64 {
        self.mean_us * (1.0 - self.share) / self.share
    }
}

/// Requests lie evenly within a bucket.
fn quantile(histogram: &[Bucket], share: f64) -> Option<f64> {
    let all = histogram.iter().map(|bucket| bucket.count).sum::<u64>() as f64;
    if all * (1.0 - share) < FEWEST {
        return None;
    }
    let (mut below, mut from_us) = (0.0, 0.0);
    for bucket in histogram {
        let count = bucket.count as f64;
        if below + count >= share * all {
            return Some(from_us + (bucket.to_us - from_us) * (share * all - below) / count.max(1.0));
        }
        (below, from_us) = (below + count, bucket.to_us);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::recording::Known;
    use super::super::recording::tests::sample;
    use super::*;

    /// The p99 of requests of 10 us, of which a share waits for an exponential time.
    fn p99_us(tail: Option<Tail>) -> Option<f64> {
        let beyond = |tail: Tail| 10.0 + (tail.mean_us * (tail.share / 0.01).ln()).max(0.0);
        Some(tail.map_or(10.0, beyond))
    }

    /// The same as a recording, in buckets of 2 %.
    fn recorded(tail: Tail, requests: f64) -> Recording {
        let mut recording = sample();
        let beyond = |t: f64| tail.share * (-(t - 10.0) / tail.mean_us).exp().min(1.0);
        let mut edge = 10.0;
        let mut histogram = vec![Bucket { to_us: edge, count: ((1.0 - tail.share) * requests) as u64 }];
        while edge < 20.0 * tail.mean_us {
            let next = edge * 1.02;
            let count = ((beyond(edge) - beyond(next)) * requests) as u64;
            histogram.push(Bucket { to_us: next, count });
            edge = next;
        }
        recording.responses.p99_us = Some(Known::measured(p99_us(Some(tail)).unwrap(), "the law"));
        recording.responses.histogram = histogram;
        recording
    }

    #[test]
    fn the_share_and_the_mean_of_rare_waits_are_found() {
        for tail in [Tail { mean_us: 500.0, share: 0.02 }, Tail { mean_us: 150.0, share: 0.03 }] {
            let found = Tail::of(&recorded(tail, 1e8), p99_us).unwrap();
            assert!((found.mean_us / tail.mean_us - 1.0).abs() < 0.02, "{found:?}");
            assert!((found.share / tail.share - 1.0).abs() < 0.03, "{found:?}");
            let every = tail.mean_us * (1.0 / tail.share - 1.0);
            assert!((found.every_us() / every - 1.0).abs() < 0.05, "{found:?}");
        }
    }

    #[test]
    fn a_tail_that_the_model_has_is_not_made_again() {
        let tail = Tail { mean_us: 500.0, share: 0.02 };
        let recording = recorded(tail, 1e8);
        assert_eq!(Tail::of(&recording, |_| Some(1e3)), None);
        // No share of such waits makes it.
        assert_eq!(Tail::of(&recording, |_| Some(10.0)), None);
        assert_eq!(Tail::of(&recording, |_| None), None);
        // Of 10,000 requests no tail is known.
        assert_eq!(Tail::of(&recorded(tail, 1e4), p99_us), None);
        assert_eq!(Tail::of(&sample(), p99_us), None);
    }
}
