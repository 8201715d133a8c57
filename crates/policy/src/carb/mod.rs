//! CARB: how many workers shall be awake, found by trying (the CARB paper, section 3).
//!
//! Too few awake cores make requests queue; too many make each of them sleep more deeply and wake
//! more slowly. In between is an optimum that moves with the load. CARB looks for it once per epoch
//! with request rate and response time alone: it *holds* until one of them changes, then *scales
//! up* or *down* step by step while that does no harm.
//!
//! ```text
//!            rate or tail rose                     rate fell
//!        +---------------------- hold (S0) -----------------------+
//!        v                       ^      ^                         v
//!   scale up (S1) ---------------+      +---------------- scale down (S2) <--- start, or a jump of the rate:
//!        no better any more                  worse, or at the bound            all workers awake
//! ```
//!
//! Two presets. [`Params::paper`] is the paper's three algorithms as printed, with one rule added:
//! a step that the bounds forbid counts as settled (as printed, the controller stays in S1 at the
//! top or in S2 at the bottom for ever and never sees another change of load). The default also
//! mends the faults that measuring shows:
//! - compared is with the last *settled* epoch, the anchor, and not with the last epoch: a ramp
//!   slower than a threshold per epoch is seen, and a tail cannot creep up by less than a threshold
//!   at a time;
//! - thresholds are shares of the highest rate seen instead of 5 and 20 kRPS, and never below the
//!   chance variation of Poisson counts and of the tail;
//! - scaling up goes on while the tail is worse than at the anchor, instead of giving a worker back
//!   when the tail rises, and a worker that did not help is given back;
//! - after a minute of holding it looks again whether one worker less will do;
//! - a store with no requests has no tail: it scales down; a store that cannot measure wakes
//!   all workers.
//!
//! [`GoalSearch`] looks for the fewest workers within a latency goal instead. [`Controller`] is the
//! search by slope; [`Scheduler`] drives it with the store's readings and turns its number into
//! commands with [`crate::spread`].

mod controller;
mod goal;
mod params;
mod scheduler;
mod server;

pub use controller::{Controller, Epoch, State};
pub use goal::{GOAL_ENTRY, GoalParams, GoalSearch, Why};
pub use params::{ENTRY, Params, Threshold};
pub use scheduler::Scheduler;
pub use server::{Search, Server};

use machine::{Duration, Rate};

/// The standard deviation of the difference of two rates that add up to `both`, each of Poisson arrivals
/// that were counted for an epoch: a count has itself as its variance.
fn chance(both: Rate, epoch: Duration) -> Rate {
    Rate::per_second((both.as_per_second() / epoch.as_secs_f64().max(1e-9)).sqrt())
}
