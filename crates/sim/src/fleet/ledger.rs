//! The servers' figures, added up in the order of their numbers.
//!
//! Sums of floating-point numbers depend on the order of their parts, and threads deliver servers
//! in any. So a server that is ready early waits until all before it have come: a handful at a
//! time, since servers are begun in order.

use crate::engine::{End, Ended};
use crate::scenario::ScenarioError;
use crate::statistics::{Doubt, Horizon};
use std::collections::BTreeMap;

/// The figures of one server's run.
#[derive(Debug)]
pub(super) struct Served {
    group: usize,
    unstable: bool,
    requests: u64,
    /// Mean power of cores, uncore and the rest.
    watts: [f64; 3],
    /// Share of CPU time that was work, and mean number of CPUs awake.
    working: f64,
    awake: f64,
    /// Mean power of cores and uncore at each point.
    cpu_watts: Vec<f64>,
}

impl Served {
    /// A leaf of this group is done.
    pub fn new(group: usize, ended: &Ended, points: u32) -> Self {
        let metrics = ended.metrics();
        let length_ns = ended.length_ns() as f64;
        let cpu_ns = length_ns * ended.setup().platform.cpus() as f64;
        let joules = [ended.core_joules(), ended.uncore_joules(), ended.rest_joules()];
        let is_steady = ended.setup().horizon == Horizon::Steady;
        let grew = || matches!(metrics.responses.sample(), Err(Doubt::Unstable));
        let working_ns: u64 = ended.residency.working_ns.iter().sum();
        let asleep_ns: u64 = ended.residency.asleep_ns.iter().sum();
        // The requests that a leaf still served after the end of the fleet's time are in its sums
        // and in no point.
        let samples = metrics.samples.iter().take(points as usize);
        let cpu_watts = samples.map(|sample| {
            (ended.core_joules_of(sample) + ended.uncore_joules_of(sample)) / (sample.length_ns as f64 * 1e-9)
        });
        Self {
            group,
            unstable: ended.end == End::Unstable || (is_steady && grew()),
            requests: metrics.left(),
            watts: joules.map(|joules| joules / (length_ns * 1e-9)),
            working: working_ns as f64 / cpu_ns,
            awake: (cpu_ns - asleep_ns as f64) / length_ns,
            cpu_watts: cpu_watts.collect(),
        }
    }
}

/// The servers of one group together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub servers: u32,
    /// Of them, those to which more came than they can do.
    pub unstable: u32,
    /// Number of requests that they answered.
    pub requests: u64,
    /// Power of cores, uncore and the rest.
    pub watts: [f64; 3],
    /// Sum of the shares of CPU time that were work.
    pub working: f64,
    /// Number of CPUs that are awake.
    pub awake: f64,
    /// Power of cores and uncore at each point.
    pub cpu_watts: Vec<f64>,
}

impl Sums {
    /// These servers stand for so many: every sum in proportion.
    pub fn stand_for(&mut self, servers: u32) {
        let factor = f64::from(servers) / f64::from(self.servers.max(1));
        let scaled = |count: f64| (count * factor).round();
        self.servers = servers;
        self.unstable = scaled(f64::from(self.unstable)) as u32;
        self.requests = scaled(self.requests as f64) as u64;
        self.working *= factor;
        self.awake *= factor;
        self.watts.iter_mut().chain(&mut self.cpu_watts).for_each(|watts| *watts *= factor);
    }

    pub fn add(&mut self, other: &Self) {
        self.servers += other.servers;
        self.unstable += other.unstable;
        self.requests += other.requests;
        self.watts.iter_mut().zip(other.watts).for_each(|(sum, watts)| *sum += watts);
        self.working += other.working;
        self.awake += other.awake;
        if self.cpu_watts.len() < other.cpu_watts.len() {
            self.cpu_watts.resize(other.cpu_watts.len(), 0.0);
        }
        self.cpu_watts.iter_mut().zip(&other.cpu_watts).for_each(|(sum, watts)| *sum += watts);
    }
}

/// Takes servers in any order, adds them up in theirs.
#[derive(Debug)]
pub(super) struct Ledger {
    next: u32,
    early: BTreeMap<u32, Result<Served, ScenarioError>>,
    groups: Vec<Sums>,
    failed: Option<ScenarioError>,
}

impl Ledger {
    pub fn new(groups: usize) -> Self {
        Self { next: 0, early: BTreeMap::new(), groups: vec![Sums::default(); groups], failed: None }
    }

    pub fn add(&mut self, server: u32, served: Result<Served, ScenarioError>) {
        self.early.insert(server, served);
        while let Some(served) = self.early.remove(&self.next) {
            self.next += 1;
            match served {
                Ok(served) => self.groups[served.group].add(&served.into()),
                Err(error) => _ = self.failed.get_or_insert(error),
            }
        }
    }

    /// The sums by group, or the error at the server of the lowest number.
    pub fn sums(self) -> Result<Vec<Sums>, ScenarioError> {
        self.failed.map_or(Ok(self.groups), Err)
    }
}

impl From<Served> for Sums {
    fn from(served: Served) -> Self {
        Self {
            servers: 1,
            unstable: u32::from(served.unstable),
            requests: served.requests,
            watts: served.watts,
            working: served.working,
            awake: served.awake,
            cpu_watts: served.cpu_watts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn served(group: usize, watts: f64) -> Served {
        let (working, awake, cpu_watts) = (0.5, 3.0, vec![watts; 4]);
        Served { group, unstable: false, requests: 10, watts: [watts, 0.1, 0.2], working, awake, cpu_watts }
    }

    proptest! {
        #[test]
        fn the_order_of_delivery_changes_nothing(
            watts in prop::collection::vec(0.0..1e3f64, 1..40), shift in 0usize..40,
        ) {
            let all = watts.len();
            let (mut straight, mut turned) = (Ledger::new(2), Ledger::new(2));
            for at in 0..all {
                straight.add(at as u32, Ok(served(at % 2, watts[at])));
                let other = (at + shift) % all;
                turned.add(other as u32, Ok(served(other % 2, watts[other])));
            }
            let sums = straight.sums().unwrap();
            prop_assert_eq!(&sums, &turned.sums().unwrap());
            prop_assert_eq!(sums.iter().map(|sums| sums.servers as usize).sum::<usize>(), all);
            prop_assert_eq!(sums.iter().map(|sums| sums.requests).sum::<u64>(), 10 * all as u64);
        }
    }
}
