//! The words that a worker's policy and its driver exchange.

use super::ConnectionLoad;
use crate::{Guidance, Why};
use machine::{ConnId, Duration, Pick, Rate, Ratio, WorkerId};
use serde::{Deserialize, Serialize};

/// The decision about the connection whose requests were just served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Stay,
    Send { target: WorkerId, why: Why },
}

/// An order of the scheduler (through the driver) to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Send one connection to `target`. A second order takes the place of the first.
    Move {
        /// The worker that shall have it.
        target: WorkerId,
        pick: Pick,
    },
    /// Forget a pending move.
    Cancel,
    /// Figures of the whole store that this worker needs.
    Guidance(Guidance),
    /// Forget the learned limit (an operator's wish; section 3.3).
    ResetLimit,
    /// A connection that is home here closed at another worker. A driver that cannot tell may leave
    /// it out: the limit is then learned from fewer samples.
    ClosedAway,
}

/// A worker's answer to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Accepted,
    /// It cannot be done: there is no such connection. Tell the scheduler with `handle_refused`.
    Refused,
}

/// A connection that shall be sent although it was not just served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    pub slot: u32,
    /// The worker that shall have it.
    pub target: WorkerId,
    pub why: Why,
}

/// The state that travels with a connection that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Departure {
    pub conn: ConnId,
    /// Its home; a connection moved to relieve an imbalance has a new one.
    pub home: WorkerId,
    pub load: ConnectionLoad,
    /// Its load now.
    pub rate: Rate,
}

/// The driver's counts of a worker in the last report period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Share of the period in which it was working.
    pub busy: Ratio,
    /// 99th percentile of the time from ready to replied.
    pub tail: Option<Duration>,
    /// How many requests `tail` was computed from.
    pub requests: u32,
}
