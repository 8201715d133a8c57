//! Peafowl: scheduling connections inside the store so that idle cores sleep (the Peafowl paper, section 3).
mod connection;
mod limit;
mod overload;
mod params;
mod scheduler;
mod worker;

pub use connection::ConnectionLoad;
pub use limit::LearnedLimit;
pub use params::Params;
pub use scheduler::Scheduler;
pub use worker::{Answer, Departure, Order, Sample, Transfer, Verdict, Worker};
