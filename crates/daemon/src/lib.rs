//! The daemon that governs unchanged services: it observes, asks a policy, and carries out the
//! decisions.
//!
//! ```text
//!   observe::requests, scrape --+                                    +--> linux::Confiner
//!   linux::UsageMeter ----------+--> Reading --> policy::governing --+--> linux::arbiter
//!   signals, set, alarms -------+       |              |             +--> audit, status
//!                                       +---- record --+
//! ```
//!
//! One thread does all of it, woken once an epoch and when something happens; it runs on the CPUs
//! that are awake anyway, so that it wakes none that is parked.
//!
//! - [`Config`]: `/etc/roost/roost.toml` and its `conf.d`. After loading, no value can be wrong.
//! - [`Telemetry`]: a service's activity, as a `ServiceReading`.
//! - [`Governed`]: one service, its policy and its confiner.
//! - [`Clocks`]: the requests of several services for one CPU's clock; and [`Pace`], the speed of
//!   their work.
//! - [`hurry_up`]: the other way to govern: clocks by the threads in a service's hot function.
//! - [`quiesce`]: background work stands still while critical work waits.
//! - [`wake`]: anticipatory wake-ups, a daemon of its own.
//! - [`Daemon`]: all of them, and the requests of clients in between.
//! - [`Replay`]: a recorded run again, or under another policy.
//!
//! What always holds:
//! - Nothing is changed but through `linux`, which journals it first; when the daemon ends, in
//!   whatever way, everything goes back, by itself or by `roost restore`.
//! - The policy's inputs and answers are written before they are carried out, where a recording was
//!   asked for.
//! - A service that disappears is released, and looked for again; the others are not disturbed.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write into folders of their own"))]

mod audit;
mod clocks;
mod config;
mod control;
pub mod controllers;
mod log;
mod own_policy;
mod park;
mod replay;
mod run;
mod socket;

pub use audit::{Audit, Entry};
pub use clocks::{Clocks, Pace, Repair, missing, points};
pub use config::{Borrower, Config, ConfigError, Part, ServiceConfig, Target};
pub use control::{
    Answer, Ask, Asker, ControlError, Heard, Lease, LeaseRequest, Reply, Running, Set, ask, question, running,
};
pub use controllers::cores::{
    AlarmSink, EpochReport, Governed, LastChange, OpenError, Prospect, Status, Telemetry, TelemetrySource,
    UncoreStatus, Window,
};
pub use controllers::{
    ControllerReport, ControllerState, ControllerStatus, Observer, Refusal, RefusalKind, Seen, Table,
    hurry_up, quiesce, wake,
};
pub use log::Log;
pub use own_policy::{OwnPolicy, Policy};
pub use park::{Lent, Parking};
pub use replay::{Divergence, Replay, ReplayError};
pub use run::{Daemon, Event, Finished, Options, Snapshot, StartError};
