//! A server in simulated time, driven by the policies that run live.

pub mod engine;
pub mod exact;
pub mod fleet;
pub mod floor;
pub mod outcome;
pub mod plan;
pub mod policies;
pub mod recorded_waits;
pub mod runner;
pub mod scenario;
pub mod statistics;
mod stop;

pub use engine::{Engine, Setup};
pub use machine::Goal;
pub use outcome::Outcome;
pub use scenario::{Document, Scenario, ScenarioError};
pub use stop::Stop;
