//! From a recorded service to a scenario, and from simulated policies to the best of them.
//!
//! The problem: an operator wants to know the effect of each policy on one real service before
//! anything is touched. So a recording of the service becomes a scenario, the scenario first
//! reproduces the recorded run, and only then every policy runs in it.
//!
//! ```text
//!   recording.rs    a recorded run: each value with its source, a missing one missing
//!   load.rs         burstiness from counts, and whether clients wait for replies
//!   generator.rs    how long a request keeps its generator awake
//!   calibration.rs  the model's error on the recorded run, taken out of its predictions
//!   written.rs      recording -> scenario.toml, each value commented with its source
//!   fidelity.rs     the simulated recorded run beside the measurement, and when it is worth little
//!   candidates.rs   the policies and core counts, each with the `roost govern` line
//!   ranking.rs      the best that keeps the goal, or the best that can be had
//! ```
//!
//! Pure: nothing here reads a file or a clock. `roost observe` fills a recording, `roost plan` reads
//! it. The formulas and their sources are in docs/plan.md.

pub mod calibration;
pub mod candidates;
pub mod fidelity;
pub mod generator;
pub mod load;
pub mod ranking;
pub mod recording;
pub mod written;

pub use calibration::Calibration;
pub use candidates::{Candidate, candidates};
pub use fidelity::{Compared, Fidelity};
pub use ranking::{Choice, Ranked, choose};
pub use recording::{Known, Recording, RecordingError, Source};
pub use written::scenario_text;
