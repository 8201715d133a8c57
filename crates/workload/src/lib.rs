//! Which requests arrive, and when: the same ones from the same seed, for a simulator and for
//! sockets.
//!
//! A workload has two halves that never meet until a driver joins them:
//!
//! - **The requests.** [`Workload`] describes keys, their popularity, the sizes and the mix of
//!   reads and writes. [`Requests`] gives request number n as a pure function of the seed and n, so
//!   any thread may ask for any request in any order and none need agree on a generator's state.
//!   [`Queries`] is the same for a search service: how many keywords, and which words.
//! - **When** it is asked: a [`Profile`] is a rate over time, [`Arrivals`] turns it into instants
//!   with gaps of the chosen distribution. A [`Shape`] is the profile as people write it:
//!   `ramp:50k..1M`, `etc`, `csv:day.csv`.
//!
//! A simulator needs a third part: the cost of each request. A [`Demand`] is a scenario's
//! description of all that (classes of requests with a [`Distribution`] of service times each,
//! connections, or a trace from a file), and [`Jobs`] is its stream: request by request the same
//! ones that the load generator sends.
//!
//! Terms: a *rank* is a key's place in the order of popularity (0 the hottest), a *key* its number
//! in the key space (ranks are scattered over it), its *text* the bytes on the wire. An *event
//! count* is the integral of the rate, the time in which arrivals of every profile look alike.
//!
//! Invariants: no clock, no socket, no unseeded random number; the whole request stream depends on
//! the seed alone, never on how many threads or connections share it; every size and every key is
//! within the limits of the memcached protocol. Files are read by
//! [`Shape::from_str`](std::str::FromStr) for `csv:`, whose trace is in memory afterwards, by
//! [`Distribution::sampler`], by [`Words::read`] and by [`Demand::jobs`], whose trace never is.

mod alias;
mod arrivals;
mod autoregressive;
mod batches;
mod connections;
mod demand;
mod distribution;
mod either;
mod error;
mod job_trace;
mod jobs;
mod popularity;
mod profile;
mod queries;
mod random;
pub mod rate_text;
mod requests;
mod shape;
pub mod shape_played;
mod sizes;
mod text;
mod trace;
mod ziggurat;

pub use arrivals::{Arrival, ArrivalKind, Arrivals};
pub use autoregressive::{Autoregressive, Burst};
pub use batches::Batch;
pub use connections::Connections;
pub use demand::{Class, Demand, Load};
pub use distribution::{Distribution, Sampler, ServicePreset, TimeUnit, two_branches};
pub use error::SpecError;
pub use jobs::{Job, JobClass, Jobs};
pub use popularity::{Popularity, Ranks};
pub use profile::{Profile, Segment};
pub use queries::{Keywords, Queries, Query, Words};
pub use random::Random;
pub use requests::{Op, Request, Requests, Workload};
pub use shape::{Shape, parse_rate};
pub use sizes::{KeySize, ValueSize};
pub use text::{fill_value, value_matches, write_key};
