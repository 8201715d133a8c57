//! A worker's policy as the log records it: each call by name, with its answer.

use super::Recorded;
use crate::Movable;
use crate::peafowl::{Answer, ConnectionLoad, Departure, Order, Sample, Transfer, Verdict, Worker};
use machine::{ConnId, Duration, Instant, WorkerId, WorkerReading};
use serde::{Deserialize, Serialize};

/// The inputs of a worker's policy: its `handle_*` and `poll_*` by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerInput {
    Arrival {
        slot: u32,
        conn: ConnId,
        home: WorkerId,
        load: ConnectionLoad,
    },
    Departure {
        slot: u32,
        sent: bool,
    },
    Served {
        slot: u32,
        requests: u32,
        #[serde(default, skip_serializing_if = "crate::is_default")]
        busy: Duration,
    },
    Backlog {
        waiting: u32,
    },
    Order(Order),
    /// `Worker::handle_report`, then `Worker::movable`
    Report(Sample),
    Timeout,
    Transfer,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerOutput {
    /// Nothing: the call has no result.
    Done,
    Departure(Departure),
    /// Of requests served.
    Verdict(Verdict),
    /// Of an order.
    Answer(Answer),
    Report {
        reading: WorkerReading,
        /// For the scheduler, beside it.
        movable: Option<Movable>,
    },
    /// Of asking for a transfer.
    Transfer(Option<Transfer>),
}

impl Recorded for Worker {
    type Input = WorkerInput;
    type Output = WorkerOutput;

    fn apply(&mut self, now: Instant, input: &WorkerInput) -> WorkerOutput {
        match *input {
            WorkerInput::Arrival { slot, conn, home, load } => {
                self.handle_arrival(now, slot, conn, home, load);
                WorkerOutput::Done
            }
            WorkerInput::Departure { slot, sent } => {
                WorkerOutput::Departure(self.handle_departure(now, slot, sent))
            }
            WorkerInput::Served { slot, requests, busy } => {
                WorkerOutput::Verdict(self.handle_served(now, slot, requests, busy))
            }
            WorkerInput::Backlog { waiting } => {
                self.handle_backlog(now, waiting);
                WorkerOutput::Done
            }
            WorkerInput::Order(order) => WorkerOutput::Answer(self.handle_order(now, order)),
            WorkerInput::Report(sample) => {
                WorkerOutput::Report { reading: self.handle_report(now, &sample), movable: self.movable() }
            }
            WorkerInput::Timeout => {
                self.handle_timeout(now);
                WorkerOutput::Done
            }
            WorkerInput::Transfer => WorkerOutput::Transfer(self.poll_transfer()),
        }
    }
}
