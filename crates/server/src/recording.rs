//! Policies as the server drives them, with every input and output recorded when `--record` asks for it.

use machine::{Command, ConnId, Instant, Reading, WorkerId, WorkerReading};
use policy::peafowl::{Answer, ConnectionLoad, Departure, LearnedLimit, Order, Sample, Transfer, Verdict};
use policy::{Guidance, Movable, Moved, Placement, Scheduling};

/// A worker's policy.
pub(crate) struct RecordedWorker {
    policy: policy::peafowl::Worker,
}

impl RecordedWorker {
    pub(crate) fn new(policy: policy::peafowl::Worker) -> Self {
        Self { policy }
    }

    pub(crate) fn handle_arrival(&mut self, now: Instant, slot: u32, conn: ConnId, home: WorkerId, load: ConnectionLoad) {
        self.policy.handle_arrival(now, slot, conn, home, load);
    }

    pub(crate) fn handle_departure(&mut self, now: Instant, slot: u32, sent: bool) -> Departure {
        self.policy.handle_departure(now, slot, sent)
    }

    #[inline]
    pub(crate) fn handle_served(&mut self, now: Instant, slot: u32, requests: u32) -> Verdict {
        self.policy.handle_served(now, slot, requests)
    }

    pub(crate) fn handle_order(&mut self, now: Instant, order: Order) -> Answer {
        self.policy.handle_order(now, order)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.policy.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.policy.handle_timeout(now);
    }

    pub(crate) fn poll_transfer(&mut self, now: Instant) -> Option<Transfer> {
        self.policy.poll_transfer()
    }

    pub(crate) fn handle_report(&mut self, now: Instant, sample: Sample) -> WorkerReading {
        self.policy.handle_report(now, &sample)
    }

    pub(crate) fn movable(&self) -> Option<Movable> {
        self.policy.movable()
    }

    pub(crate) fn learned(&self) -> &LearnedLimit {
        self.policy.learned()
    }
}

/// The scheduler's policy.
pub(crate) struct RecordedScheduler {
    policy: Scheduling,
}

impl RecordedScheduler {
    pub(crate) fn new(policy: Scheduling) -> Self {
        Self { policy }
    }

    pub(crate) fn handle_reading(&mut self, now: Instant, reading: Reading) {
        self.policy.handle_reading(now, &reading);
    }

    pub(crate) fn handle_movable(&mut self, _now: Instant, worker: WorkerId, movable: Option<Movable>) {
        self.policy.handle_movable(worker, movable);
    }

    pub(crate) fn handle_moved(&mut self, now: Instant, moved: Moved) {
        self.policy.handle_moved(now, &moved);
    }

    pub(crate) fn handle_refused(&mut self, now: Instant, worker: WorkerId) {
        self.policy.handle_refused(worker);
    }

    pub(crate) fn handle_released(&mut self, now: Instant, worker: WorkerId) {
        self.policy.handle_released(now, worker);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.policy.handle_timeout(now);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.policy.poll_timeout()
    }

    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.policy.poll_command()
    }

    pub(crate) fn place(&mut self, now: Instant) -> Placement {
        self.policy.place(now)
    }

    pub(crate) fn guidance(&self) -> Guidance {
        self.policy.guidance()
    }
}
