//! How long the cycles and the waits of each critical thread are, with freezing and without.
//!
//! A *cycle* is from the beginning of one wait of a thread to the beginning of its next one: wait
//! and work. A wait may get longer by freezing though the work after it does not: where a third
//! party that is waited for itself waits for the background. So both are compared, thread by
//! thread; differences between threads are no noise then.
//!
//! Not seen are waits that begin in one turn and end in another, threads beyond [`THREADS_MAX`],
//! and effects that lengthen fewer cycles than one in the number of those that were compared.

use super::super::TaskId;
use machine::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Threads at a time of which lengths are kept.
const THREADS_MAX: usize = 64;
/// Lengths of a thread, with freezing and as many without.
const LENGTHS_MAX: usize = 256;
/// Of fewer lengths nothing is told.
const LENGTHS_MIN: usize = 4;
/// Chance that the longest cycles all lie on one side, below which that is no chance.
const RARE: f64 = 0.01;

/// A mean, and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub mean: f64,
    pub error: f64,
}

impl Estimate {
    pub fn at_least(self, errors: f64) -> f64 {
        self.mean - errors * self.error
    }

    pub fn at_most(self, errors: f64) -> f64 {
        self.mean + errors * self.error
    }
}

/// Seconds, first without freezing, then with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sides([Vec<f64>; 2]);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Thread {
    cycles: Sides,
    waits: Sides,
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Now {
    cycle: Option<Instant>,
    wait: Option<Instant>,
}

/// The records of each thread since the last look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Evidence {
    threads: BTreeMap<TaskId, Thread>,
    now: BTreeMap<TaskId, Now>,
    /// The longest wait that has ended.
    longest: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compared {
    /// With freezing against without, as a share.
    pub cycle: Estimate,
    pub wait: Estimate,
    /// The 99th percentile of the cycles, each of its thread's mean: with against without, as a
    /// share.
    pub tail: f64,
    /// More of the longest cycles lie on the side with freezing than chance explains.
    pub is_tail_longer: bool,
    /// Numbers of cycles, without freezing and with it.
    pub cycles: [usize; 2],
}

impl Evidence {
    /// A wait begins. `turn` is the turn's side and since when it counts.
    pub fn blocks(&mut self, now: Instant, task: TaskId, turn: Option<(bool, Instant)>) {
        let known = self.now.get(&task).copied().unwrap_or_default();
        // A second word of a wait that goes on.
        if known.wait.is_some() {
            return;
        }
        if let (Some(began), Some((is_on, since))) = (known.cycle, turn)
            && began >= since
        {
            self.add(task, |thread| &mut thread.cycles, is_on, now.since(began));
        }
        if self.now.len() < THREADS_MAX || self.now.contains_key(&task) {
            self.now.insert(task, Now { cycle: Some(now), wait: Some(now) });
        }
    }

    pub fn goes_on(&mut self, now: Instant, task: TaskId, turn: Option<(bool, Instant)>) {
        let Some(began) = self.now.get_mut(&task).and_then(|now| now.wait.take()) else { return };
        self.longest = self.longest.max(now.since(began));
        if let Some((is_on, since)) = turn
            && began >= since
        {
            self.add(task, |thread| &mut thread.waits, is_on, now.since(began));
        }
    }

    /// Its place is unknown.
    pub fn forget(&mut self, task: TaskId) {
        self.now.remove(&task);
    }

    pub fn forget_all(&mut self) {
        self.now.clear();
    }

    /// The records so far count no more.
    pub fn begin(&mut self) {
        self.threads.clear();
    }

    /// The longest wait that has ended.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    fn add(&mut self, task: TaskId, of: fn(&mut Thread) -> &mut Sides, is_on: bool, length: Duration) {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&task) {
            return;
        }
        let lengths = &mut of(self.threads.entry(task).or_default()).0[usize::from(is_on)];
        if lengths.len() == LENGTHS_MAX {
            lengths.remove(0);
        }
        lengths.push(length.as_secs_f64());
    }

    /// `None` while there is too little of both sides.
    pub fn compared(&self, slack: f64) -> Option<Compared> {
        let cycle = estimate(self.threads.values().map(|thread| &thread.cycles))?;
        let wait = estimate(self.threads.values().map(|thread| &thread.waits))?;
        let mut sides = [Vec::new(), Vec::new()];
        for thread in self.threads.values().filter(|thread| thread.cycles.is_enough()) {
            let (usual, _) = mean_and_variance(&thread.cycles.0[0]);
            for (side, lengths) in sides.iter_mut().zip(&thread.cycles.0) {
                side.extend(lengths.iter().map(|length| length / usual.max(f64::MIN_POSITIVE)));
            }
        }
        sides.iter_mut().for_each(|side| side.sort_by(f64::total_cmp));
        let [off, on] = &sides;
        let rank = |side: &Vec<f64>| side[((side.len() as f64 * 0.99).ceil() as usize).max(1) - 1];
        let longest_off = off.last()? * (1.0 + slack);
        let longer = on.iter().filter(|&&length| length > longest_off).count();
        // All of the so many longest cycles are with freezing (Rosenbaum's test).
        let chance = (on.len() as f64 / (on.len() + off.len()) as f64).powi(longer as i32);
        // Of a single thread among many, too.
        let is_one_longer = self.threads.values().any(|thread| thread.cycles.is_longer(slack));
        Some(Compared {
            cycle,
            wait,
            tail: rank(on) / rank(off) - 1.0,
            is_tail_longer: chance < RARE || is_one_longer,
            cycles: [off.len(), on.len()],
        })
    }
}

impl Sides {
    fn is_enough(&self) -> bool {
        self.0.iter().all(|lengths| lengths.len() >= LENGTHS_MIN)
    }

    /// Clearly, and by more than this share.
    fn is_longer(&self, slack: f64) -> bool {
        if !self.is_enough() {
            return false;
        }
        let ((off, off_variance), (on, on_variance)) =
            (mean_and_variance(&self.0[0]), mean_and_variance(&self.0[1]));
        let error = (off_variance / self.0[0].len() as f64 + on_variance / self.0[1].len() as f64).sqrt();
        // Four errors: one of 64 threads is longer by chance once in hundreds of trials.
        on - off - 4.0 * error > slack * off
    }
}

/// How much longer with freezing, as a share: the threads together, each compared with itself.
fn estimate<'a>(threads: impl Iterator<Item = &'a Sides>) -> Option<Estimate> {
    let (mut more, mut usual, mut variance) = (0.0, 0.0, 0.0);
    for sides in threads.filter(|sides| sides.is_enough()) {
        let [off, on] = &sides.0;
        let count = off.len() as f64;
        let ((off_mean, off_variance), (on_mean, on_variance)) =
            (mean_and_variance(off), mean_and_variance(on));
        more += count * (on_mean - off_mean);
        usual += count * off_mean;
        variance += count * count * (off_variance / count + on_variance / on.len() as f64);
    }
    (usual > 0.0).then(|| Estimate { mean: more / usual, error: variance.sqrt() / usual })
}

fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0).max(1.0))
}
