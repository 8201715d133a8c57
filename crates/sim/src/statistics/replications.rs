//! Several runs of the same scenario with other seeds.
//!
//! Which method when:
//!
//! - *Batch means* of one long run wherever load and machine stay the same ([`Horizon::Steady`]).
//!   One warm-up is paid instead of ten, and the run can go on until it is precise.
//! - *Replications* where the load changes with time: a trace, a ramp, a compressed day
//!   ([`Horizon::Whole`]). Stretches of such a run differ for other reasons than chance; only whole
//!   runs are alike. At least ten; nothing is left out as warm-up, because the beginning is part of
//!   the question.
//! - Replications of a steady scenario are possible too, where threads are plenty and time is not.
//!   Each run loses its own warm-up. The number of runs is part of the scenario, never of the
//!   machine, or results would depend on where they were made.
//!
//! Runs are kept by seed: the result is the same in whatever order threads deliver them.

use super::Quantity;
use super::batches::Batch;
use super::collector::{Collector, Doubt, portions};
use super::paired::{Portion, Portions};
use super::ratio::Parts;
use super::sample::Sample;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole of which a run is a stretch, and with it the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Horizon {
    /// A process that goes on as it is, and its beginning is no part of the question: batch means
    /// of one run.
    Steady,
    /// A story with beginning and end: replications.
    Whole,
}

/// The response times of several runs.
#[derive(Clone, Debug)]
pub struct Replications {
    horizon: Horizon,
    runs: BTreeMap<u64, Batch>,
}

impl Replications {
    pub fn new(horizon: Horizon) -> Self {
        Self { horizon, runs: BTreeMap::new() }
    }

    /// A run is over. A seed that comes twice counts once: it is the same run.
    pub fn add(&mut self, seed: u64, run: &Collector) -> Result<(), Doubt> {
        let batch = match self.horizon {
            Horizon::Steady => run.settled()?,
            Horizon::Whole => run.whole(),
        };
        self.runs.insert(seed, batch);
        Ok(())
    }

    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Their measurements together; fewer than ten runs have estimates without intervals.
    pub fn sample(&self) -> Sample<'_> {
        Sample::new(self.runs.values().collect(), Parts::Independent)
    }

    /// The figures run by run, in the order of their seeds, for comparisons.
    pub fn portions(&self, quantities: &[Quantity]) -> Portions {
        let runs: Vec<&Batch> = self.runs.values().collect();
        portions(&self.sample(), &runs, quantities, Portion::Replication, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::ResponseTime;
    use crate::statistics::Quantile;
    use crate::statistics::recursion::{NS, Queue};

    fn run(seed: u64, requests: u32) -> Collector {
        let mut collector = Collector::new([]);
        let mut queue = Queue::mm1(0.5, seed);
        (0..requests).for_each(|_| collector.record(queue.next_response_ns()));
        collector
    }

    #[test]
    fn ten_runs_cover_the_truth_as_often_as_promised() {
        let exact = ResponseTime::mm1(0.5, 1.0);
        let p95 = Quantity::Quantile(Quantile::P95);
        let (mut mean, mut tail) = (0, 0);
        for group in 0..60 {
            let mut runs = Replications::new(Horizon::Steady);
            (0..12).for_each(|seed| runs.add(seed, &run(100 * group + seed, 5000)).unwrap());
            let sample = runs.sample();
            mean += u32::from(sample.interval(Quantity::Mean).unwrap().covers(exact.mean() * NS));
            tail += u32::from(sample.interval(p95).unwrap().covers(exact.quantile(0.95) * NS));
        }
        assert!(mean >= 52 && tail >= 52, "{mean} and {tail} of 60");
    }

    #[test]
    fn the_order_of_delivery_changes_nothing() {
        let seeds: Vec<u64> = (1..=11).collect();
        let (mut up, mut down) = (Replications::new(Horizon::Steady), Replications::new(Horizon::Steady));
        seeds.iter().for_each(|seed| up.add(*seed, &run(*seed, 3000)).unwrap());
        seeds.iter().rev().for_each(|seed| down.add(*seed, &run(*seed, 3000)).unwrap());
        for quantity in Quantity::SHOWN {
            assert_eq!(up.sample().interval(quantity), down.sample().interval(quantity));
            assert_eq!(up.sample().estimate(quantity), down.sample().estimate(quantity));
        }
    }

    #[test]
    fn nine_runs_are_too_few_and_the_same_run_twice_is_one() {
        let mut runs = Replications::new(Horizon::Whole);
        (0..9).for_each(|seed| runs.add(seed, &run(seed, 1000)).unwrap());
        runs.add(8, &run(8, 1000)).unwrap();
        assert_eq!(runs.runs(), 9);
        assert_eq!(runs.sample().interval(Quantity::Mean), None);
        assert_eq!(runs.sample().requests(), 9000);
    }

    #[test]
    fn a_story_keeps_its_beginning_and_a_steady_run_loses_it() {
        let collector = run(1, 10_000);
        let (mut story, mut steady) = (Replications::new(Horizon::Whole), Replications::new(Horizon::Steady));
        story.add(1, &collector).unwrap();
        steady.add(1, &collector).unwrap();
        assert_eq!(story.sample().requests(), 10_000);
        assert_eq!(steady.sample().requests(), 10_000 - collector.warm_up());
    }
}
