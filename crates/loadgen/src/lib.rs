//! Open-loop load for memcached, Redis and HTTP servers, with latency counted from when each request
//! should have been sent.
//!
//! A generator that waits for an answer before it sends the next request slows down with its
//! server. The requests that would have suffered are never made. Here arrivals are scheduled ahead,
//! from a seed, and sent when due, independent of the server. An answer's latency runs from the due
//! time, so every request that a stall delayed shows the stall. The generator measures itself with
//! the same care: its lateness and its CPU time. If its own lateness would colour the result, it
//! declares the run invalid.
//!
//! ```text
//!                     schedule (seeded; every thread walks it, takes its own)
//!                        |
//!   lane (one thread) ---+--> due? compose --> connection.out --one write per batch--> server
//!    epoll + timerfd     |                                                               |
//!    sleeps until 50 us  +<-- latency = read - due <-- whole answers <-- one read <------+
//!    before the next due |
//!                        +--> interval tallies --> run(): merged, shown to the observer
//! ```
//!
//! A `Protocol` gives the bytes between the two arrows their meaning: memcached's, that of Redis, or HTTP's.
//!
//! Terms: a *lane* is a thread with connections of its own. A request is *due* at its scheduled
//! instant, *late* by the time from then until it was written, *backlogged* when its connection has too
//! many unanswered ones.
//!
//! Invariants:
//! - A request is never sent before it is due. Every request is in the latencies, or the run is
//!   declared invalid: an unanswered request counts at the end with its age.
//! - The requests depend on the seed alone, not on the number of threads.
//! - A run ends: a server that stalls, refuses or closes gives an error within the plan's patience.

mod connection;
mod error;
mod hdr_log;
mod judge;
mod lane;
mod outcome;
mod plan;
mod protocol;
mod run;
mod source;
mod system;
mod table;
mod tally;

pub use error::Error;
pub use hdr_log::HdrLog;
pub use judge::Stands;
pub use outcome::{Interval, Outcome, Part, Percentiles, Preload, Progress, ThreadCost};
pub use plan::{Pace, Plan, SPIN_DEFAULT, Target};
pub use protocol::{Asks, Dialect, Http, Items, RedisReply, Url, http_answer, redis_reply};
pub use run::{fill, run};
pub use tally::Counts;
