//! How many cores are on, and when the whole machine may nap: rules that look at no latency.
//!
//! They count requests, or how busy the cores are, and so need neither a model of the service nor a
//! measured tail. That makes them the baseline of more careful policies.
//!
//! - [`auto_scale`]: some cores on, the others off; on at once when needed, off after a while
//!   without need.
//! - [`lavd`]: as many on as are half busy, as a scheduler of sched_ext has it.
//! - [`power_nap`]: the whole machine sleeps whenever there is nothing to do at all.
//! - [`dream_weaver`]: the whole machine sleeps whenever any core has nothing to do, and the
//!   requests of the others are stalled, each for a bounded time.
//!
//! The driver carries out their orders: keeps a queue, lets cores that are switched off finish
//! their requests, stops and resumes requests.

pub mod auto_scale;
pub mod dream_weaver;
pub mod lavd;
pub mod power_nap;

pub use policy::kind::NapOrder as Order;
