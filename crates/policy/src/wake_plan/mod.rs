//! Anticipatory wake-ups: a CPU begins to wake before the event that needs it (the CPU sleeps
//! paper, section 2).
//!
//! A sleeping CPU answers late by its exit latency: 20 us are a fifth of a fast disk's read, 100 us
//! double it. Never letting it sleep costs 2 to 5 times the power. But often a driver or a program
//! knows when the CPU will be needed: the disk's reads take the same time again and again, an
//! iteration of a kernel takes as long as the last, an application has set a timer, a client says
//! that it is about to send. Then the CPU can be up just in time and asleep until then.
//!
//! ```text
//!   io, kernels, timers, remote        planner                              driver
//!   when will it come?      request    merged windows per CPU  KeepAwake    wakes the CPU, keeps
//!   Prediction --------------------->  begun early by exit    ------------> it from sleeping
//!       ^                              latency and margin      MaySleep
//!       |        the events            payers: ledger
//!       +-------------------------------------------------------------------
//! ```
//!
//! Terms. A *principal* asks and pays. A *request* says: this CPU shall be ready from
//! `ready` on, and stay so for `stay`. The paper's request is the time to begin waking; the exit
//! latency is the machine's business and ours leaves it to the planner. A *window* is a length of
//! time for which a CPU is kept awake: all requests of the CPU, merged. An event whose notice
//! passes several CPUs (the one that takes the device's interrupt, and the one that waits) takes a
//! request for each.
//!
//! A *payer* is whose allowance is used: principals that are one user's share one ([`Payer`]).
//!
//! [`Planner`] makes the plan. The predictors answer when something will happen, each with the
//! [`Record`] of how often it was right: [`Device`] for disks, [`Kernels`] for repeated
//! computations, [`Timers`], [`Announcements`] of clients. A predictor keeps no table of the calls
//! under way: it hands out a slip that the driver gives back at the end.

mod account;
mod allowance;
mod anticipation;
mod band;
mod cpu_plan;
mod io;
mod kernels;
mod ledger;
mod line;
mod planner;
mod prediction;
mod predictor;
#[cfg(test)]
mod properties;
pub(crate) mod recent;
mod remote;
mod request;
mod table;
mod timers;

pub use account::Account;
pub use allowance::AllowanceParams;
pub use anticipation::{DEVICE_ENTRY, DeviceAnticipation, KERNELS_ENTRY, KernelAnticipation};
pub use band::BandParams;
pub use cpu_plan::CpuCosts;
pub use io::{Device, DeviceParams, Issued, Operation};
pub use kernels::{KernelId, KernelParams, Kernels, Launched};
pub use ledger::Ledger;
pub use planner::{Params, Planner};
pub use prediction::{Prediction, Record};
pub use predictor::{Call, Predictor};
pub use remote::{Announced, Announcements, ClientId, RemoteParams};
pub use request::{Payer, Principal, Refused, Request, RequestId, WakeCommand, Window};
pub use timers::{Armed, TimerParams, Timers};
