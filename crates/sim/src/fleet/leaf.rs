//! One server of a fleet: its share of the root's requests, and how it tells the root how long each
//! took.
//!
//! Every leaf draws the root's whole stream for itself and keeps the requests that ask it, so that
//! leaves need not wait for each other and no leaf's share is ever stored. When a request comes, of
//! which class and on which connection are the root's; how much work it is here comes from a stream
//! of the leaf's own. Only a trace's times are every leaf's.

use super::answers::Answers;
use super::choice::Choice;
use std::sync::Arc;
use workload::{Job, Jobs, Random};

/// A server's part in a fleet, for the [`Engine`](crate::Engine) that runs it.
#[derive(Debug)]
pub(crate) struct Leaf {
    server: u32,
    choice: Choice,
    /// A key for every request of the root.
    keys: Random,
    work: Random,
    thinning: Thinning,
    /// Requests of the root that it has not looked at yet.
    left: u64,
    /// Number of those it has looked at that the sample keeps.
    kept: u64,
    until_ns: u64,
    answers: Arc<Answers>,
}

/// One run of a fleet, as all of its leaves see it.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub choice: Choice,
    pub seed: u64,
    pub requests: u64,
    pub until_ns: u64,
    /// Those that the sampled servers answer.
    pub thinning: Thinning,
    pub answers: Arc<Answers>,
}

/// Which requests of the root a sample of the servers answers: each with the sample's share of
/// the servers as its chance, so that a sampled server gets requests as it does in the whole fleet.
#[derive(Clone, Debug)]
pub(super) struct Thinning {
    /// Absent without a sample: every request.
    chance: Option<(Random, f64)>,
}

impl Thinning {
    pub fn new(seed: u64, share: f64) -> Self {
        Self { chance: (share < 1.0).then(|| (Random::new(seed, SAMPLE), share)) }
    }

    /// Whether the next request is kept.
    #[inline]
    pub fn keeps(&mut self) -> bool {
        self.chance.as_mut().is_none_or(|(random, share)| random.unit() < *share)
    }
}

impl Root {
    /// The keys of all requests, in order.
    pub fn keys(&self) -> Random {
        Random::new(self.seed, KEYS)
    }

    /// The seed of a server's engine.
    pub fn seed_of(&self, server: u32) -> u64 {
        Random::new(self.seed, SEEDS + u64::from(server)).bits()
    }

    pub fn leaf(&self, server: u32) -> Leaf {
        Leaf {
            server,
            choice: self.choice,
            keys: self.keys(),
            work: Random::new(self.seed, WORK + u64::from(server)),
            thinning: self.thinning.clone(),
            left: self.requests,
            kept: 0,
            until_ns: self.until_ns,
            answers: self.answers.clone(),
        }
    }
}

impl Leaf {
    /// The next request that asks this server; its index is the ticket to answer with.
    pub fn next(&mut self, jobs: &mut Jobs) -> Option<Job> {
        while self.left > 0 {
            self.left -= 1;
            let job = jobs.next()?;
            let key = self.keys.bits();
            if !self.thinning.keeps() {
                continue;
            }
            self.kept += 1;
            let place = self.choice.place(key, self.server);
            let Some(ticket) = self.answers.ticket(self.kept - 1, place) else { continue };
            let class = &jobs.classes()[usize::from(job.class)];
            let index = u64::from(ticket);
            let Some(service) = &class.service else { return Some(Job { index, ..job }) };
            let whole = service.draw(&mut self.work);
            let memory = class.memory_of(whole);
            return Some(Job { index, compute: whole - memory, memory, ..job });
        }
        None
    }

    /// The request of this ticket is answered.
    #[inline]
    pub fn answered(&self, ticket: u32, response_ns: u64) {
        self.answers.answered(ticket, response_ns);
    }

    /// When the fleet's run is over.
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }
}

/// Streams of a fleet's seed, far apart.
const KEYS: u64 = 0x6b65_7973 << 32;
const SEEDS: u64 = 0x7365_6564 << 32;
const WORK: u64 = 0x776f_726b << 32;
const SAMPLE: u64 = 0x7361_6d70 << 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_server_has_chance_of_its_own_and_the_same_keys() {
        let answers = Arc::new(Answers::new(1, 1));
        let thinning = Thinning::new(7, 1.0);
        let root = Root { choice: Choice::new(100), seed: 7, requests: 1, until_ns: 1, thinning, answers };
        let seeds: BTreeSet<u64> = (0..100).map(|server| root.seed_of(server)).collect();
        let work: BTreeSet<u64> = (0..100).map(|server| root.leaf(server).work.bits()).collect();
        let keys: BTreeSet<u64> = (0..100).map(|server| root.leaf(server).keys.bits()).collect();
        assert_eq!((seeds.len(), work.len(), keys.len()), (100, 100, 1));
        assert_eq!(keys.first(), Some(&root.keys().bits()));
    }
}
