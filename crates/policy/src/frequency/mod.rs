//! How fast the cores run.
//!
//! A frequency policy gets the work of a core and answers with an operating point of its
//! [`PointTable`], by value and without allocating. The driver applies the answer, and knows its
//! effect on the machine: the delay until a new operating point is in effect, and cores that share
//! a clock, of which the fastest request wins.
//!
//! - [`points`]: the operating points that all of them speak in.
//! - [`sensitivity`]: as slow as costs no more than a share of the core's own progress.
//! - [`pegasus`]: as little power as keeps the measured latency just inside its target.
//! - [`hurry_up`]: speed for the threads in the hot function, full speed for those that are in it
//!   for long.

pub mod hurry_up;
pub mod log_histogram;
pub mod pegasus;
pub mod points;
pub mod sensitivity;

pub use hurry_up::HurryUp;
pub use pegasus::Pegasus;
pub use points::{PointIndex, PointTable, PointTableError};
pub use sensitivity::Sensitivity;
