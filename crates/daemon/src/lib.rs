//! The daemon that governs services which were not changed: it looks, asks a policy, and does what
//! it says.
//!
//! ```text
//!   observe::requests, scrape --+                                         +--> linux::Confiner       the service's CPUs
//!   linux::UsageMeter           +--> Reading --> policy::governing --> Decided --> linux::arbiter (leases ask it too)
//!   signals, set, alarms     --+        |              |                  |
//!                                       +---- record --+                  +--> audit, status
//! ```
//!
//! One thread does all of it, woken once an epoch and when something happens; it runs on the CPUs
//! that are awake anyway, so that it wakes none that is parked.
//!
//! - [`Config`]: what `/etc/roost/roost.toml` and its `conf.d` say. After loading, no value can be
//!   wrong.
//! - [`Telemetry`]: what a service does, as a `ServiceReading`.
//! - [`Governed`]: one service, its policy and what keeps it on its CPUs.
//! - [`Clocks`]: what several services ask of one CPU's clock; and [`Pace`], how fast they get on.
//! - [`hurry_up`]: the other way to govern: clocks by who is in a service's hot function.
//! - [`quiesce`]: background work stands still while what matters waits.
//! - [`wake`]: anticipatory wake-ups, a daemon of its own.
//! - [`Daemon`]: all of them, and who asks in between.
//! - [`Replay`]: what a run recorded, again, or under another policy.
//!
//! What always holds:
//! - Nothing is changed but through `linux`, which journals it first; when the daemon ends, in
//!   whatever way, everything goes back, by itself or by `roost restore`.
//! - What a policy was told and what it answered is written before it is done, where a recording
//!   was asked for.
//! - A service that disappears is released, and looked for again; the others are not disturbed.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write into folders of their own"))]

mod audit;
mod clocks;
mod config;
mod control;
pub mod controllers;
mod log;
mod park;
mod replay;
mod run;
mod socket;

pub use audit::{Audit, Entry};
pub use clocks::{Clocks, Pace, Repair, gears, missing};
pub use config::{Config, ConfigError, Parking, Part, Policy, ServiceConfig, Target};
pub use control::{
    Answer, Ask, Asker, ControlError, Heard, Lease, LeaseRequest, Reply, Running, Set, ask, question, running,
};
pub use controllers::cores::{
    AlarmSink, Governed, LastChange, News, OpenError, Outlook, Status, Telemetry, TelemetrySource, Window,
};
pub use controllers::{
    ControllerReport, ControllerState, ControllerStatus, Observer, Refusal, RefusalKind, Seen, Table,
    hurry_up, quiesce, wake,
};
pub use log::Log;
pub use replay::{Divergence, Replay, ReplayError};
pub use run::{Daemon, Event, Finished, Options, Snapshot, StartError};
