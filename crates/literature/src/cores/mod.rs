//! How many cores are on, and when the whole machine may nap: three rules from the literature that
//! count requests.
//!
//! They look at nothing but the number of requests in the system, and so need neither a model of
//! the service nor a measured tail. That makes them the baseline of more careful policies.
//!
//! - [`auto_scale`]: some cores on, the others off; on at once when needed, off after a while
//!   without need.
//! - [`power_nap`]: the whole machine sleeps whenever there is nothing to do at all.
//! - [`dream_weaver`]: the whole machine sleeps whenever any core has nothing to do, and the
//!   requests of the others are stalled, each for a bounded time.
//!
//! The driver carries out their orders: keeps a queue, lets cores that are switched off finish
//! their requests, stops and resumes requests.

pub mod auto_scale;
pub mod dream_weaver;
pub mod power_nap;

pub use policy::kind::NapOrder as Order;
