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
//! - [`rubik`]: at every arrival and completion, the slowest gear at which the whole queue keeps its goal.
//! - [`crescendo`]: speed that grows with the stay of a request, as the distribution of work makes it cheapest.
//! - [`hurry_up`]: speed for the threads in the hot function, full speed for those that are in it for long.
//! - [`adrenaline`]: a boost for requests that have waited for their class's threshold.

pub mod adrenaline;
pub mod crescendo;
pub mod fixed;
pub mod gears;
pub mod hurry_up;
mod log_histogram;
pub mod ondemand;
pub mod pegasus;
pub mod rubik;
pub mod schedutil;
pub mod sensitivity;

pub use adrenaline::Adrenaline;
pub use crescendo::Crescendo;
pub use fixed::Fixed;
pub use gears::{GearIndex, GearTable, GearTableError};
pub use hurry_up::HurryUp;
pub use ondemand::Ondemand;
pub use pegasus::Pegasus;
pub use rubik::Rubik;
pub use schedutil::Schedutil;
pub use sensitivity::Sensitivity;
