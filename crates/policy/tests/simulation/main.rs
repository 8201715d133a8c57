//! Several workers, their scheduler and many clients in simulated time: the joint effect of the
//! policies.
//!
//! `store` is the fixture: it drives the policies exactly as the live server does, by messages that
//! take time, and keeps its own record of the worker of each connection, so that a lost or doubled
//! connection is seen at once.

mod bursts;
mod carb;
mod convergence;
mod faults;
mod limit;
mod replay;
mod store;
