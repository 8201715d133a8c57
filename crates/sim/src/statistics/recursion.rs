//! Queues in a few lines, without an engine: response times for tests, some fifty million a second
//! in release.
//!
//! With one server, Lindley's recursion for the work that a request finds. With k, the times at
//! which they become free, in order; the next request takes the first.

use super::coverage::{Cell, Service};
use workload::Random;

/// Nanoseconds of a time unit: the mean service takes a millisecond.
pub(crate) const NS: f64 = 1e6;

/// A first-come-first-served queue with Poisson arrivals that starts empty.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    random: Random,
    gap: f64,
    service: Service,
    /// Until each server is free, rising.
    busy: Vec<f64>,
}

impl Queue {
    pub(crate) fn new(cell: &Cell, seed: u64) -> Self {
        let busy = vec![0.0; cell.servers as usize];
        Self { random: Random::new(seed, 3), gap: 1.0 / cell.arrival_rate(), service: cell.service, busy }
    }

    pub(crate) fn mm1(load: f64, seed: u64) -> Self {
        Self::new(&Cell { name: "M/M/1", servers: 1, load, service: Service::Exponential }, seed)
    }

    pub(crate) fn next_response_ns(&mut self) -> u64 {
        let gap = self.gap * self.exponential();
        let service = match self.service {
            Service::Exponential => self.exponential(),
            Service::Constant => 1.0,
            Service::Erlang2 => 0.5 * (self.exponential() + self.exponential()),
            Service::Branches { first } => {
                let branch = if self.random.unit() < first { first } else { 1.0 - first };
                self.exponential() / (2.0 * branch)
            }
        };
        self.busy.iter_mut().for_each(|busy| *busy = (*busy - gap).max(0.0));
        let response = self.busy[0] + service;
        let place = self.busy.partition_point(|busy| *busy < response);
        self.busy[..place].rotate_left(1);
        self.busy[place - 1] = response;
        (response * NS) as u64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.random.unit()).ln()
    }
}
