//! Runs that are made once, whichever figures show them, and kept on disk as they finish.
//!
//! A run is known by the digest of the scenario it was made in, less its texts (title, assumptions,
//! caption). So Peafowl's Figures 4 and 5 are the same nine runs, and a run of all figures that was
//! killed goes on where it was. The file is that of `roost sim sweep`.

use anyhow::Result;
use report::exit::usage;
use rustix::time::{ClockId, clock_gettime};
use sim::outcome::Point;
use sim::runner::{self, Task};
use sim::scenario::ScenarioError;
use sim::{Outcome, Stop};
use std::cell::Cell as Kept;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use study::cells::{Cell, Cells, Key};
use study::grid::Planned;
use study::progress::Progress;
use study::results::Entry;
use workload::{Load, Shape};

/// A function that is told the name of a run.
pub type Told = Arc<dyn Fn(&str) + Send + Sync>;

/// Finished runs, on disk and in memory.
pub struct Runs {
    file: Cells,
    finished: BTreeMap<String, Outcome>,
    /// The time of a core that each took that was made here, and not by an earlier command.
    took: BTreeMap<String, Duration>,
    /// The caller's way to end all runs before their time.
    pub stop: Stop,
    /// Told the name of each run that is over, from any thread.
    pub told: Option<Told>,
}

impl Runs {
    pub fn open(folder: &Path) -> Result<Self> {
        let mut file = Cells::open(folder)?;
        let finished = file.read()?.into_iter().map(|cell| (cell.key.scenario, cell.run.outcome)).collect();
        Ok(Self { file, finished, took: BTreeMap::new(), stop: Stop::default(), told: None })
    }

    pub fn of(&self, planned: &Planned) -> Option<&Outcome> {
        self.finished.get(&planned.key.scenario)
    }

    /// The time of a core that it took; `None` if an earlier command made it, or none has.
    pub fn took(&self, planned: &Planned) -> Option<Duration> {
        self.took.get(&planned.key.scenario).copied()
    }

    /// Those that are still to be made, each once, the longest first: the last to end leave no
    /// thread idle for long.
    pub fn missing<'a>(&self, wanted: impl Iterator<Item = &'a Planned>) -> Vec<&'a Planned> {
        let mut seen = BTreeSet::new();
        let missing = wanted.filter(|planned| self.of(planned).is_none());
        let mut missing: Vec<&Planned> =
            missing.filter(|planned| seen.insert(&planned.key.scenario)).collect();
        missing.sort_by_cached_key(|planned| std::cmp::Reverse(requests(planned) as u64));
        missing
    }

    pub fn make(&mut self, missing: &[&Planned], threads: usize, progress: &Progress) -> Result<()> {
        let tasks: Vec<Task> = missing.iter().map(|planned| planned.run.task.clone()).collect();
        progress.begin_part();
        let (stop, told) = (self.stop.clone(), self.told.clone());
        let kept = Mutex::new((&mut *self, Ok(())));
        let results = runner::run_all(&tasks, threads, &stop, |place, result| {
            let planned = missing[place];
            let took = used_since_last();
            if let Ok(outcome) = result {
                let (runs, written) = &mut *kept.lock().unwrap_or_else(PoisonError::into_inner);
                runs.took.insert(planned.key.scenario.clone(), took);
                if written.is_ok() {
                    *written = runs.keep(planned, outcome.clone());
                }
            }
            progress.done_of(requests(planned), &planned.key.contestant);
            told.iter().for_each(|told| told(&planned.key.contestant));
        });
        kept.into_inner().unwrap_or_else(PoisonError::into_inner).1?;
        let failed: Option<ScenarioError> = results.into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |error| Err(usage(error)))
    }

    fn keep(&mut self, planned: &Planned, mut outcome: Outcome) -> Result<()> {
        // Steady runs are looked at as a whole; hundreds of time series of them would be most of
        // the file.
        if is_steady(planned) {
            outcome.points.clear();
        }
        if let Some(length) = planned.run.scenario.run.length {
            cut(&mut outcome.points, length.0.as_secs_f64());
        }
        let Key { seed, scenario, .. } = planned.key.clone();
        let contestant = outcome.policies.clone();
        let key = Key { axes: BTreeMap::new(), contestant, seed, scenario };
        let digest = key.scenario.clone();
        let run = Entry::new(&planned.run, outcome);
        self.file.append(&Cell { key, run: run.clone() })?;
        self.finished.insert(digest, run.outcome);
        Ok(())
    }
}

/// The time of a core that this thread has used since it was last asked, or began. Other programs on a
/// busy machine are no part of it.
fn used_since_last() -> Duration {
    thread_local! {
        static BEFORE: Kept<Duration> = const { Kept::new(Duration::ZERO) };
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let now = Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32);
    now.saturating_sub(BEFORE.replace(now))
}

/// Takes away samples that begin when the load has ended: they are of the queue that drains.
fn cut(points: &mut Vec<Point>, length_s: f64) {
    let mut begins = 0.0;
    let under_load = points.iter().take_while(|point| {
        let is_under_load = begins < length_s * (1.0 - 1e-9);
        begins = point.until_s;
        is_under_load
    });
    let kept = under_load.count();
    points.truncate(kept);
}

/// The load is the same all the time.
fn is_steady(planned: &Planned) -> bool {
    planned.run.scenario.workload.shape == Load::Shape(Shape::constant())
}

/// About how many requests a run simulates, all replications counted.
pub fn requests(planned: &Planned) -> f64 {
    let scenario = &planned.run.scenario;
    let most = scenario.run.requests as f64;
    let contestant = &planned.run.task.contestant;
    let setup = contestant.document.setup(&contestant.policies, planned.run.task.seed);
    let by_length = setup
        .ok()
        .and_then(|(setup, jobs)| Some(jobs.mean_rate().as_per_second() * setup.length?.as_secs_f64()));
    let replications = if is_steady(planned) { 1.0 } else { f64::from(scenario.run.replications) };
    by_length.map_or(most, |by_length| by_length.min(most)) * replications
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(until_s: f64) -> Point {
        Point {
            until_s,
            rate: 1.0,
            mean_ns: None,
            p95_ns: None,
            p99_ns: None,
            cpu_watts: 1.0,
            core_watts: 1.0,
            active: 1.0,
            awake: 1.0,
            mhz: None,
            asleep: Vec::new(),
            spread: None,
        }
    }

    #[test]
    fn a_sample_of_the_drained_queue_enters_no_figure() {
        let cut = |ends: &[f64]| {
            let mut points: Vec<Point> = ends.iter().map(|&end| point(end)).collect();
            super::cut(&mut points, 30.0);
            points.len()
        };
        assert_eq!(cut(&[10.0, 20.0, 30.0, 30.002]), 3, "the last begins as the load ends");
        assert_eq!(cut(&[10.0, 20.0, 30.002]), 3, "the last began under load");
        assert_eq!(cut(&[10.0, 20.0]), 2);
    }
}
