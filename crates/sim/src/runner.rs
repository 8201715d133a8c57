//! Many runs, each on one thread.
//!
//! A run depends on its scenario, its policies and its seed alone, so results are the same whatever
//! the number of threads, and come back in the order in which they were asked for.

use crate::engine::{End, Ended, Engine};
use crate::outcome::Outcome;
use crate::scenario::{Contestant, ScenarioError};
use crate::statistics::Horizon;
use crate::stop::Stop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[derive(Clone, Debug)]
pub struct Task {
    pub contestant: Contestant,
    pub seed: u64,
}

impl Task {
    pub fn run(&self) -> Result<Outcome, ScenarioError> {
        self.run_unless(&Stop::default())
    }

    fn run_unless(&self, stop: &Stop) -> Result<Outcome, ScenarioError> {
        let first = self.run_once(self.seed, stop)?;
        if first.setup().horizon == Horizon::Steady || first.end == End::Unstable {
            return Ok(Outcome::new(&self.contestant.name, &first));
        }
        let replications = u64::from(self.contestant.document.scenario()?.run.replications);
        let mut runs = vec![first];
        for more in 1..replications {
            // Far from the seeds of other cells, which people number from one.
            runs.push(self.run_once(self.seed.wrapping_add(more << 32), stop)?);
        }
        let outcome = Outcome::of_all(&self.contestant.name, &runs);
        Ok(outcome.unwrap_or_else(|| Outcome::new(&self.contestant.name, &runs[0])))
    }

    /// The first replication alone, told request by request: of so many.
    pub fn tell(&self, requests: u64) -> Result<Ended, ScenarioError> {
        let (setup, jobs) = self.contestant.document.setup(&self.contestant.policies, self.seed)?;
        self.checked(Engine::new(setup, jobs).with_chronicle(requests).run())
    }

    fn run_once(&self, seed: u64, stop: &Stop) -> Result<Ended, ScenarioError> {
        if stop.is_set() {
            return Err(ScenarioError::Stopped);
        }
        let (setup, jobs) = self.contestant.document.setup(&self.contestant.policies, seed)?;
        let ended = Engine::new(setup, jobs).until(stop).run();
        if stop.is_set() {
            return Err(ScenarioError::Stopped);
        }
        self.checked(ended)
    }

    fn checked(&self, mut ended: Ended) -> Result<Ended, ScenarioError> {
        if let Some(problem) = ended.fault() {
            let (policies, problem) = (self.contestant.policies.clone(), problem.to_owned());
            return Err(ScenarioError::Policy { policies, problem });
        }
        ended.check_load(&self.contestant.document)?;
        Ok(ended)
    }
}

/// Runs all of them on `threads` threads, until `stop` is set: those that have not ended by then are
/// [`ScenarioError::Stopped`]. `done` is told of each as it ends, with its place, from any thread.
pub fn run_all(
    tasks: &[Task],
    threads: usize,
    stop: &Stop,
    done: impl Fn(usize, &Result<Outcome, ScenarioError>) + Sync,
) -> Vec<Result<Outcome, ScenarioError>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Outcome, ScenarioError>>>> =
        tasks.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, tasks.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(place) else { break };
                    let result = task.run_unless(stop);
                    done(place, &result);
                    *results[place].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
                }
            });
        }
    });
    let taken =
        results.into_iter().map(|slot| slot.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()));
    taken.map(|result| result.expect("every task was run")).collect()
}
