//! How long requests kept a worker, and how long they took until they were answered: the counts that
//! `--policy joint` plans from.
//!
//! A worker counts with a load and a store; the director reads the sums once a report period and takes
//! the difference. Neither waits for the other, and a worker that rests is not woken.

use crate::shared::Port;
use machine::Duration;
use policy::joint::Answered;
use std::sync::atomic::{AtomicU32, Ordering};

/// The sums of one worker, by bucket of [`Answered`]; they wrap.
pub(crate) struct Tally {
    work: Vec<AtomicU32>,
    responses: Vec<AtomicU32>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let zeros = || (0..Answered::BUCKETS).map(|_| AtomicU32::new(0)).collect();
        Self { work: zeros(), responses: zeros() }
    }

    /// A turn answered so many requests, which kept the worker for `busy` together, each within `took`.
    pub(crate) fn count(&self, requests: u32, busy: Duration, took: Duration) {
        raise(&self.work[Answered::bucket(busy / u64::from(requests.max(1)))], requests);
        raise(&self.responses[Answered::bucket(took)], requests);
    }
}

fn raise(sum: &AtomicU32, by: u32) {
    // No other thread writes.
    sum.store(sum.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// The sums of all workers at the last report.
pub(crate) struct Tallied {
    work: Vec<u32>,
    responses: Vec<u32>,
}

impl Tallied {
    pub(crate) fn new() -> Self {
        Self { work: vec![0; Answered::BUCKETS], responses: vec![0; Answered::BUCKETS] }
    }

    /// The requests since the last time.
    pub(crate) fn answered(&mut self, ports: &[Port]) -> Answered {
        let tallies = || ports.iter().filter_map(|port| port.tally.as_ref());
        let work = grown(&mut self.work, |place| tallies().map(move |tally| &tally.work[place]));
        let responses =
            grown(&mut self.responses, |place| tallies().map(move |tally| &tally.responses[place]));
        // A worker sees a request when it is awake, and not when the request came.
        Answered::new(work.into_iter(), responses.into_iter(), false)
    }
}

/// By how much the sums of each bucket have grown.
fn grown<'a, S: Iterator<Item = &'a AtomicU32>>(before: &mut [u32], sums: impl Fn(usize) -> S) -> Vec<u32> {
    let grown = |(place, before): (usize, &mut u32)| {
        let sum = sums(place).fold(0_u32, |sum, one| sum.wrapping_add(one.load(Ordering::Relaxed)));
        sum.wrapping_sub(std::mem::replace(before, sum))
    };
    before.iter_mut().enumerate().map(grown).collect()
}
