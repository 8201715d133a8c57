//! How fast the cores run.
//!
//! A frequency policy is told what a core did and answers with a gear of its [`GearTable`], by value and without
//! allocating. Whoever drives it applies the answer, and knows what the machine makes of it: the delay until a new
//! gear is in effect, and cores that share a clock, of which the fastest request wins.
//!
//! - [`gears`]: what all of them speak in.
//! - [`fixed`]: one gear, whatever happens.
//! - [`ondemand`]: by how busy the core was.
//! - [`schedutil`]: by the scheduler's average of how much it has to do.
//! - [`sensitivity`]: as slow as costs no more than a share of the core's own progress.
//! - [`pegasus`]: as little power as keeps the measured latency just inside its target.

pub mod fixed;
pub mod gears;
pub mod ondemand;
pub mod pegasus;
pub mod schedutil;
pub mod sensitivity;

pub use fixed::Fixed;
pub use gears::{GearIndex, GearTable, GearTableError};
pub use ondemand::Ondemand;
pub use pegasus::Pegasus;
pub use schedutil::Schedutil;
pub use sensitivity::Sensitivity;
