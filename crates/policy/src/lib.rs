//! Every decision of Roost, as pure code: `now` and readings go in, commands come out.
//!
//! No clock, no file, no thread, no unordered map, no unseeded random number (a `clippy.toml` of
//! this crate forbids them). The same inputs give the same outputs, always; so a live run can be
//! replayed from its log, and a simulator drives the code that the live server runs.
//!
//! The world speaks through `handle_*`, a policy answers through `poll_*`, and `poll_timeout` says
//! when to come back. Timeouts that come late, early or twice do no harm. All state is plain data
//! that serde can write and read back exactly.
//!
//! - [`peafowl`]: how many workers of the store stay awake, decided by the load that each can carry
//!   in the CPU time that it gets.
//! - [`carb`]: the same question, answered by a search on measured response time.
//! - [`governing`]: both for a service that was not changed, as the daemon drives it.
//! - [`spread`]: how connections get onto the workers, when their number is decided elsewhere.
//! - [`all_awake`]: all of them, always.
//! - [`scheduling`]: one of them, or none, as the store drives it.
//! - [`active_idle`]: how deep the CPUs of active workers may sleep.
//! - [`frequency`]: how fast the cores run.
//! - [`error_budget`]: how near to its goal a policy may aim, by the requests that missed it.
//! - [`hot`]: which function of a service tells that a request is being worked on, and the clock
//!   that light requests are cheapest at.
//! - [`wake_plan`]: which CPUs are awake in time for work that can be foreseen.
//! - [`joint`]: cores, frequency and idle state chosen together, for the least power within a
//!   latency goal.
//! - [`staging`]: requests held back and released together, so that the CPUs sleep together in
//!   between.
//! - [`stealing`]: which of a worker's requests idle workers may serve.
//! - [`steering`]: where interrupts go while CPUs are parked.
//! - [`quiescence`]: background work stands still while the work that the user waits for is waiting
//!   itself.
//! - [`check`]: the bounds of parameters, held against the values of a file.
//! - [`kind`]: the traits that policies have, so that a driver knows none by its name.
//! - [`registry`]: the description of each policy: words, question, parameters, maturity.
//! - [`log`]: a policy's inputs and outputs as lines of text, and their replay.

pub mod active_idle;
pub mod all_awake;
pub mod carb;
pub mod check;
pub mod error_budget;
pub mod frequency;
pub mod governing;
pub mod hot;
pub mod joint;
pub mod kind;
pub mod log;
pub mod log_buckets;
pub mod own;
pub mod peafowl;
pub mod quiescence;
pub mod registry;
pub mod scheduling;
mod sleep_state;
pub mod spread;
pub mod staging;
pub mod stealing;
pub mod steering;
pub mod wake_plan;
mod worker_table;

pub static POLICIES: &registry::Registry = &[
    &all_awake::ENTRY,
    &carb::ENTRY,
    &carb::GOAL_ENTRY,
    &peafowl::ENTRY,
    &joint::ENTRY,
    &joint::STORE_ENTRY,
    &frequency::sensitivity::ENTRY,
    &frequency::pegasus::ENTRY,
    &frequency::hurry_up::ENTRY,
    &governing::UNCORE,
    &wake_plan::DEVICE_ENTRY,
    &wake_plan::KERNELS_ENTRY,
    &steering::ENTRY,
    &quiescence::ENTRY,
    &staging::ENTRY,
];

pub use scheduling::Scheduling;
pub use sleep_state::SleepState;
pub use worker_table::{Guidance, Movable, Moved, Placement, Why};

/// True for a value that a record leaves out: a figure that older ones do not have either.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
