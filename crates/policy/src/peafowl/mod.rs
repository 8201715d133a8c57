//! Peafowl: scheduling connections inside the store, so that idle cores sleep (the Peafowl paper,
//! section 3).
//!
//! **The problem.** A key-value store that spreads its load over all cores gives each of them
//! pauses too short to sleep deeply, and a core that does sleep deeply makes the next request pay
//! for its exit. So the load is packed onto few workers, which do not sleep deeply, and the others
//! sleep for long. How full may a worker be? As full as it has been at the user's own peak, when
//! every connection was served at home: that load was acceptable then.
//!
//! **The terms.** A connection has a *home*, given round robin, and is *served* by one worker at a
//! time. Served at home it is a *resident*, elsewhere a *guest*. Its *load* is its request rate. A
//! worker's *limit* is the highest load that its residents have put on it, as the paper has it; the
//! live store counts busy time (`capacity.rs`). The *scale-down worker* is the one being emptied;
//! a *destination* receives from it. Workers that took part in sending a guest home are *barred*
//! for a while.
//!
//! ```text
//!   connection.rs   the load of one connection: n requests in the time they took
//!   limit.rs        the highest load of the residents, outliers left out
//!   capacity.rs     the capacity of a worker, where load is busy time
//!   overload.rs     an overload between two reports, seen within some tens of requests
//!   worker.rs       Algorithm 1: the fate of the connection just served
//!                   (scale up, at once, by each worker alone)
//!   scheduler.rs    workers to empty, their targets, workers to rest, places of new connections
//!                   (scale down, slowly, for all)
//!   exchange.rs     the messages between driver and worker
//!   params.rs       every constant
//! ```
//!
//! **Points that the paper leaves open, and the rule here.**
//! - *n and the report period*: 64 requests, and at least 50 ms, so that a sum over connections is
//!   known to a few per cent; 100 ms.
//! - *"Approaches its limit"*: above 0.9 of it by more than the noise of its own measurement; and,
//!   between two reports, by two leaky buckets.
//! - *Packing*: up to 0.8, and only if that would have been possible for half a second; the gap to
//!   0.9 keeps a packed worker from sending its guests home by chance.
//! - *Connections that send nothing* are moved when an order's patience ends, quietest first; their
//!   load decays by time.
//! - *Workers that are home to no connection*, or have learned nothing yet, take the mean of the
//!   others' limits. If no worker has learned anything, none can be overloaded and new connections
//!   are served at home, which is where limits come from.
//! - *A new connection whose home sleeps, while all active workers are near their limits*, wakes
//!   its home.
//! - *Do outliers enter mean and variance?* Yes, with a capped count: see `limit.rs`.
//! - *The scheduler's core*: any; it is never on a request's path.

mod backlog;
mod capacity;
mod connection;
mod exchange;
mod limit;
mod overload;
mod params;
mod scheduler;
mod worker;

pub use connection::ConnectionLoad;
pub use exchange::{Answer, Departure, Order, Sample, Transfer, Verdict};
pub use limit::LearnedLimit;
pub use params::{ENTRY, Load, Params};
pub use scheduler::Scheduler;
pub use worker::Worker;
