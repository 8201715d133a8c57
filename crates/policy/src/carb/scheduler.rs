//! CARB on a live store: readings in, commands out.
//!
//! Readings come more often than epochs end. Over an epoch the rate is the mean of the readings',
//! the tail their mean weighted by rate: percentiles cannot be averaged exactly, but they are
//! compared with ones made in the same way.

use super::{Controller, Epoch, Params};
use crate::spread::Spread;
use crate::{Moved, Placement};
use machine::{Command, CpuId, Duration, Instant, Rate, Reading, ServiceReading, WorkerId};
use serde::{Deserialize, Serialize};

/// Sums over the readings of one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    readings: u32,
    rated: u32,
    rate: f64,
    tail: Weighted,
    mean: Weighted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Weighted {
    sum_ns: f64,
    weight: f64,
}

impl Weighted {
    fn add(&mut self, value: Option<Duration>, weight: f64) {
        if let Some(value) = value
            && weight > 0.0
        {
            self.sum_ns += value.as_nanos() as f64 * weight;
            self.weight += weight;
        }
    }

    fn mean(self) -> Option<Duration> {
        (self.weight > 0.0).then(|| Duration::from_nanos((self.sum_ns / self.weight) as u64))
    }
}

impl Sums {
    fn add(&mut self, service: &ServiceReading) {
        self.readings += 1;
        let Some(rate) = service.rate else { return };
        self.rated += 1;
        self.rate += rate.as_per_second();
        self.tail.add(service.p95.or(service.p99), rate.as_per_second());
        self.mean.add(service.mean, rate.as_per_second());
    }

    fn epoch(self) -> Epoch {
        Epoch {
            rate: (self.rated > 0).then(|| Rate::per_second(self.rate / f64::from(self.rated))),
            tail: self.tail.mean(),
            mean: self.mean.mean(),
            busy: None,
        }
    }
}

/// The CARB controller and the connections that follow it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduler {
    params: Params,
    controller: Controller,
    spread: Spread,
    sums: Sums,
    epoch_ends: Option<Instant>,
}

impl Scheduler {
    /// The policy begins with all workers awake.
    pub fn new(params: Params, workers: &[(WorkerId, CpuId)]) -> Self {
        Self {
            params,
            controller: Controller::new(params, workers.len() as u16),
            spread: Spread::new(workers),
            sums: Sums::default(),
            epoch_ends: None,
        }
    }

    /// Reports arrived. The epoch ends with the first reading at or after its end.
    pub fn handle_reading(&mut self, now: Instant, reading: &Reading) {
        self.sums.add(&reading.service);
        let ends = *self.epoch_ends.get_or_insert(now + self.params.epoch);
        if ends <= now {
            let epoch = std::mem::take(&mut self.sums).epoch();
            let wanted = self.controller.handle_epoch(&epoch);
            self.spread.set_wanted(wanted);
            self.epoch_ends = Some(now + self.params.epoch);
        }
        self.spread.handle_reading(now, reading);
    }

    pub fn handle_moved(&mut self, now: Instant, moved: &Moved) {
        self.spread.handle_moved(now, moved);
    }

    /// `worker` could not carry out its order.
    pub fn handle_refused(&mut self, worker: WorkerId) {
        self.spread.handle_refused(worker);
    }

    /// The last connection of a worker closed.
    pub fn handle_released(&mut self, now: Instant, worker: WorkerId) {
        self.spread.handle_released(now, worker);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.spread.handle_timeout(now);
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.spread.poll_timeout()
    }

    pub fn poll_command(&mut self) -> Option<Command> {
        self.spread.poll_command()
    }

    pub fn place(&mut self, now: Instant) -> Placement {
        self.spread.place(now)
    }

    pub fn active(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.spread.active()
    }
}
