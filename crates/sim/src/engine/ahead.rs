//! Requests drawn ahead, and their cores with them, for the clairvoyant policies: only a dispatch
//! that does not depend on the queues allows that.

use super::Engine;
use super::event_queue::NEVER;
use super::setup::Dispatch;
use std::collections::VecDeque;
use workload::Job;

/// Requests drawn ahead, with their cores, for policies that know the future.
pub(super) struct Ahead {
    on: bool,
    waiting: VecDeque<(Job, u16)>,
    per_core: Vec<VecDeque<u64>>,
    /// Number of cores that have none.
    unknown: usize,
    /// The core of the request that comes next, and of the one that has just come.
    next: u16,
    arriving: u16,
}

impl Ahead {
    pub fn new(on: bool, workers: usize) -> Self {
        Self {
            on,
            waiting: VecDeque::new(),
            per_core: vec![VecDeque::new(); workers],
            unknown: workers,
            next: 0,
            arriving: 0,
        }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// The next request arrives: it is no longer ahead.
    #[inline]
    pub fn arrives(&mut self) {
        if self.on {
            self.arriving = self.next;
            let ahead = &mut self.per_core[usize::from(self.next)];
            ahead.pop_front();
            self.unknown += usize::from(ahead.is_empty());
        }
    }

    /// The core will have a request at this time.
    #[inline]
    fn note(&mut self, core: u16, at_ns: u64) {
        let ahead = &mut self.per_core[usize::from(core)];
        self.unknown -= usize::from(ahead.is_empty());
        ahead.push_back(at_ns);
    }

    #[inline]
    pub fn core_of_arrival(&self) -> usize {
        usize::from(self.arriving)
    }
}

impl Engine {
    /// Takes the next of the requests drawn ahead, and draws until every core's next one is known.
    pub(super) fn fetch_ahead(&mut self) -> Option<Job> {
        const FURTHEST: usize = 1 << 16;
        let (job, core) = match self.ahead.waiting.pop_front() {
            Some(next) => next,
            None => {
                let job = self.next_of_load()?;
                let core = self.draw_core(&job);
                self.ahead.note(core, job.at.as_nanos());
                (job, core)
            }
        };
        self.ahead.next = core;
        while self.ahead.unknown > 0 && self.ahead.waiting.len() < FURTHEST {
            let Some(job) = self.next_of_load() else { break };
            let core = self.draw_core(&job);
            self.ahead.note(core, job.at.as_nanos());
            self.ahead.waiting.push_back((job, core));
        }
        Some(job)
    }

    fn draw_core(&mut self, job: &Job) -> u16 {
        let workers = self.setup.workers as u64;
        match self.setup.dispatch {
            Dispatch::RoundRobin => {
                self.turn = self.turn.wrapping_add(1);
                (self.turn as u64 % workers) as u16
            }
            Dispatch::Connections => (u64::from(job.connection) % workers) as u16,
            _ => self.chance.dispatch.below(workers) as u16,
        }
    }

    /// The true next event of the CPU; [`NEVER`] if none is known.
    pub(super) fn next_event(&self, cpu: usize) -> u64 {
        self.ahead.per_core.get(cpu).and_then(VecDeque::front).copied().unwrap_or(NEVER)
    }
}
