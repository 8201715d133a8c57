//! Many servers behind one root: the tail at scale (Dean and Barroso, CACM 56, 2013).
//!
//! ```text
//!                 root: requests of the scenario's load, each asks `fanout` of the servers
//!                   |         |                |
//!                leaf 0     leaf 1   ...    leaf N-1       each a whole simulated server under its policies
//!                   |         |                |
//!                 root: answered when the slowest of those asked has answered
//! ```
//!
//! Leaves do not influence each other, so each is a run of the [`Engine`] on its own share of the
//! root's stream, on any thread, and the answers that the root would have waited for are put
//! together afterwards. Time and requests are the root's; service times are each leaf's own.
//! Requests come to a leaf at the instant at which they come to the root: the network's time is
//! `server.outside`, a constant.
//!
//! Two passes over the root's stream belong to a run, beside one for each leaf: the first finds how
//! many requests there are and when the last comes, the second takes the root's response times in
//! order, for [statistics](crate::statistics) and for the figures over time. *One leaf's* response
//! time stands beside the root's: of each request that of one leaf, drawn evenly from those asked.
//! Its figures have intervals as honest as the root's, though leaves hang together by the instants
//! at which they are asked.
//!
//! A fleet of many more servers is *sampled* (`fleet.sample`): so many servers stand for all. Each
//! request of the root is kept with the sample's share as its chance, and asks `fanout` of the
//! sampled servers. A server is asked by the same share of the root's requests as in the whole
//! fleet, so its arrivals have the same law, whatever the root's are; power and counts are scaled.
//! Two sampled servers are asked together more often than two of the whole fleet, which makes the
//! root a little faster (docs/scenarios.md has the measured error).
//!
//! Invariants: the result is the same whatever the number of threads; memory grows with the
//! root's requests (see `answers`) and with the threads, not with servers times requests; every
//! request asks exactly `fanout` servers; the power of a fleet is the sum of that of its servers,
//! over the same time.
//!
//! Files: `choice` which servers a request asks, `leaf` a server's part, `answers` the answers that
//! the root waits for, `ledger` the sum over servers, `story` the root's response times in order,
//! `outcome` the figures.

mod answers;
mod choice;
mod leaf;
mod ledger;
mod outcome;
mod story;
#[cfg(test)]
mod tests;

pub(crate) use leaf::Leaf;
pub use outcome::{FleetOutcome, Group, Point, Waited};

use crate::engine::{Engine, Setup};
use crate::scenario::{Contestant, Document, Scenario, ScenarioError};
use crate::statistics::Horizon;
use crate::stop::Stop;
use answers::{Answers, REQUESTS_MAX};
use choice::Choice;
use leaf::{Root, Thinning};
use ledger::{Ledger, Served, Sums};
use machine::Duration;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use story::Story;
use toml::Value;
use workload::Jobs;

/// A fleet that can run: nothing about it can be wrong any more.
#[derive(Debug)]
pub struct Fleet {
    name: String,
    document: Document,
    servers: u32,
    /// Those that are simulated.
    sample: u32,
    fanout: u32,
    /// One for each different line of policies, and which of them each server in turn has.
    setups: Vec<Setup>,
    turns: Vec<usize>,
    /// The root's.
    jobs: Jobs,
    requests: u64,
    length: Option<Duration>,
    replications: u32,
    seed: u64,
    /// The caller's way to end it before its time.
    pub stop: Stop,
}

struct Run {
    requests: u64,
    /// Those of them that the sampled servers answered.
    kept: u64,
    until_ns: u64,
    sums: Vec<Sums>,
    story: Story,
}

impl Fleet {
    /// The fleet of a contestant's scenario.
    pub fn new(contestant: &Contestant, seed: u64) -> Result<Self, ScenarioError> {
        let scenario = contestant.document.scenario()?;
        let path = contestant.document.path();
        let wrong = |key: &str, problem: String, fix: &str| ScenarioError::Wrong {
            path: path.to_owned(),
            key: key.to_owned(),
            problem,
            fix: fix.to_owned(),
        };
        let Some(fleet) = &scenario.fleet else {
            let fix = "add a table [fleet] with servers = 100 and fanout = 100, or use `roost sim run`";
            return Err(wrong("fleet", "the scenario has no fleet".into(), fix));
        };
        if !(1..=SERVERS_MAX).contains(&fleet.servers) {
            let fix = format!("from 1 to {SERVERS_MAX}");
            return Err(wrong("fleet.servers", fleet.servers.to_string(), &fix));
        }
        if !(1..=fleet.servers).contains(&fleet.fanout) {
            let fix = format!("from 1 to the number of servers, {}", fleet.servers);
            return Err(wrong("fleet.fanout", fleet.fanout.to_string(), &fix));
        }
        if scenario.server.clients.is_some() {
            let fix = "leave them out: the root's requests come from `workload`";
            return Err(wrong("server.clients", "clients of one server in a fleet".into(), fix));
        }
        if scenario.run.precision.is_some() {
            let fix = "leave it out and set run.requests: every leaf has to serve the same requests";
            return Err(wrong("run.precision", "a precision to reach in a fleet".into(), fix));
        }
        let (name, lines) = policies(contestant, &scenario, &fleet.policies).ok_or_else(|| {
            let fix = "leave one out; fleets are compared as [[variant]]s, each with \
                       set = { \"fleet.policies\" = [..] }";
            wrong("fleet.policies", "stand beside `policies`: who shall run?".into(), fix)
        })?;
        let mut document = contestant.document.clone();
        if let Some(utilisation) = scenario.run.utilisation {
            // It is meant of the servers, each of which gets its share of the root's requests.
            let share = f64::from(fleet.fanout) / f64::from(fleet.servers);
            document = document.with("run.utilisation", &Value::Float(utilisation / share))?;
        }
        let mut names: Vec<&str> = Vec::new();
        let mut turns = Vec::new();
        for line in &lines {
            let known = names.iter().position(|name| name == line);
            turns.push(known.unwrap_or(names.len()));
            if known.is_none() {
                names.push(line);
            }
        }
        let sample = fleet.sample.unwrap_or(fleet.servers);
        let least = fleet.fanout.max(lines.len() as u32);
        if !(least..=fleet.servers).contains(&sample) {
            let fix = format!(
                "from {least} (fleet.fanout, one for each of fleet.policies) to the number of servers, {}",
                fleet.servers
            );
            return Err(wrong("fleet.sample", sample.to_string(), &fix));
        }
        let (_, jobs) = document.setup(names[0], seed)?;
        let kept = scenario.run.requests as f64 * f64::from(sample) / f64::from(fleet.servers);
        if kept > REQUESTS_MAX as f64 && scenario.run.length.is_none() && jobs.profile().is_some() {
            return Err(too_many(path));
        }
        let setup = |line: &&str| document.setup(line, seed).map(|(setup, _)| setup);
        let setups: Vec<Setup> = names.iter().map(setup).collect::<Result<_, _>>()?;
        // Ten runs of a whole fleet are more than most have in mind: only a scenario that asks for
        // replications gets them.
        let run = contestant.document.table().get("run").and_then(Value::as_table);
        let asked = run.is_some_and(|run| run.contains_key("replications"));
        let is_story = setups[0].horizon == Horizon::Whole;
        Ok(Self {
            name,
            servers: fleet.servers,
            sample,
            fanout: fleet.fanout,
            setups,
            turns,
            jobs,
            requests: scenario.run.requests,
            length: scenario.run.length.map(|length| length.0),
            replications: if is_story && asked { scenario.run.replications.max(1) } else { 1 },
            seed,
            document,
            stop: Stop::default(),
        })
    }

    /// As tables and plots call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine that its servers are.
    pub fn platform(&self) -> &machine::Platform {
        &self.setups[0].platform
    }

    /// Runs of single servers that [`run`](Self::run) will do at most.
    pub fn servings(&self) -> u64 {
        u64::from(self.sample) * u64::from(self.replications)
    }

    /// Runs it on `threads` threads. `done` is told of every run of a server as it ends, from any
    /// thread.
    pub fn run(&self, threads: usize, done: impl Fn() + Sync) -> Result<FleetOutcome, ScenarioError> {
        let mut runs = Vec::new();
        for replication in 0..u64::from(self.replications) {
            let run = self.run_once(self.seed.wrapping_add(replication << 32), threads, &done)?;
            let is_unstable = run.sums.iter().any(|sums| sums.unstable > 0);
            runs.push(run);
            if is_unstable {
                break;
            }
        }
        Ok(outcome::outcome(self, &runs))
    }

    fn run_once(&self, seed: u64, threads: usize, done: &(impl Fn() + Sync)) -> Result<Run, ScenarioError> {
        let (requests, kept, until_ns) = self.extent(seed)?;
        let answers = Arc::new(Answers::new(kept, self.fanout));
        let (choice, thinning) = (Choice::new(self.sample), self.thinning(seed));
        let root = Root { choice, seed, requests, until_ns, thinning, answers };
        let mut sums = self.serve(&root, threads, done)?;
        for (group, sums) in sums.iter_mut().enumerate() {
            sums.stand_for((0..self.servers).filter(|&server| self.group_of(server) == group).count() as u32);
        }
        let story = Story::tell(self, &root, self.jobs(seed)?);
        if self.stop.is_set() {
            return Err(ScenarioError::Stopped);
        }
        Ok(Run { requests, kept, until_ns, sums, story })
    }

    fn thinning(&self, seed: u64) -> Thinning {
        Thinning::new(seed, f64::from(self.sample) / f64::from(self.servers))
    }

    /// How many requests come to the root, how many of them the sample keeps, and when it is over.
    fn extent(&self, seed: u64) -> Result<(u64, u64, u64), ScenarioError> {
        let (mut jobs, mut thinning) = (self.jobs(seed)?, self.thinning(seed));
        let end_ns = self.length.map_or(u64::MAX, Duration::as_nanos);
        let (mut requests, mut kept, mut last_ns) = (0, 0, 0);
        while requests < self.requests && !self.stop.is_set() {
            match jobs.next().map(|job| job.at.as_nanos()) {
                Some(at_ns) if at_ns <= end_ns => {
                    (requests, last_ns) = (requests + 1, at_ns);
                    kept += u64::from(thinning.keeps());
                }
                // The load ends by itself, or the time is over.
                Some(_) => {
                    last_ns = end_ns;
                    break;
                }
                None => break,
            }
            if kept > REQUESTS_MAX {
                return Err(too_many(self.document.path()));
            }
        }
        jobs.check().map_err(|error| self.document.wrong_load(&error))?;
        Ok((requests, kept, last_ns.max(1)))
    }

    /// The root's stream from its beginning.
    fn jobs(&self, seed: u64) -> Result<Jobs, ScenarioError> {
        self.jobs.with_seed(seed).map_err(|error| self.document.wrong_load(&error))
    }

    /// Every server, and the sum over them by policies.
    fn serve(
        &self,
        root: &Root,
        threads: usize,
        done: &(impl Fn() + Sync),
    ) -> Result<Vec<Sums>, ScenarioError> {
        let next = AtomicU32::new(0);
        let ledger = Mutex::new(Ledger::new(self.setups.len()));
        thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.sample as usize) {
                scope.spawn(|| {
                    loop {
                        let server = next.fetch_add(1, Ordering::Relaxed);
                        if server >= self.sample || self.stop.is_set() {
                            break;
                        }
                        let served = self.serve_one(root, server);
                        done();
                        ledger.lock().unwrap_or_else(PoisonError::into_inner).add(server, served);
                    }
                });
            }
        });
        ledger.into_inner().unwrap_or_else(PoisonError::into_inner).sums()
    }

    fn serve_one(&self, root: &Root, server: u32) -> Result<Served, ScenarioError> {
        let group = self.group_of(server);
        let plain = &self.setups[group];
        let setup = Setup {
            // The leaf's stream ends by itself.
            requests: u64::MAX,
            length: Some(Duration::from_nanos(root.until_ns)),
            samples: self.points(),
            seed: root.seed_of(server),
            ..plain.clone()
        };
        let jobs = self.jobs(root.seed)?;
        let mut ended = Engine::new(setup, jobs).until(&self.stop).into_leaf(root.leaf(server)).run();
        ended.check_load(&self.document)?;
        Ok(Served::new(group, &ended, self.points()))
    }

    /// Which of the setups a server has.
    fn group_of(&self, server: u32) -> usize {
        self.turns[server as usize % self.turns.len()]
    }

    /// Number of points of the time series.
    fn points(&self) -> u32 {
        self.setups[0].samples.clamp(1, POINTS_MAX)
    }
}

/// The fleet's name, and the policies of its servers in turn; `None` if the scenario names both the
/// fleet's and others.
fn policies(contestant: &Contestant, scenario: &Scenario, turns: &[String]) -> Option<(String, Vec<String>)> {
    if turns.is_empty() {
        return Some((contestant.name.clone(), vec![contestant.policies.clone()]));
    }
    let own = scenario.variant.iter().find(|variant| variant.name == contestant.name);
    if !scenario.policies.is_empty() || own.is_some_and(|variant| !variant.policies.is_empty()) {
        return None;
    }
    let name = if own.is_some() { contestant.name.clone() } else { turns.join(", ") };
    Some((name, turns.to_vec()))
}

/// A run that would need more memory than is good.
fn too_many(path: &Path) -> ScenarioError {
    ScenarioError::Wrong {
        path: path.to_owned(),
        key: "run.requests".into(),
        problem: format!("more than {REQUESTS_MAX} requests come to the fleet's root"),
        fix: "ask for fewer, or for a shorter run.length; more seeds make more runs".into(),
    }
}

/// The most servers [D]: with a thousand requests each they take some minutes.
const SERVERS_MAX: u32 = 1 << 20;
/// The most points of the time series: as many as the engine keeps without merging any.
const POINTS_MAX: u32 = 256;
