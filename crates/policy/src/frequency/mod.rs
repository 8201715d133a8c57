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
//! - [`rubik`]: at every arrival and completion, the slowest gear at which the whole queue keeps its goal.

pub mod fixed;
pub mod gears;
mod log_histogram;
pub mod ondemand;
pub mod rubik;
pub mod schedutil;

pub use fixed::Fixed;
pub use gears::{GearIndex, GearTable, GearTableError};
pub use ondemand::Ondemand;
pub use rubik::Rubik;
pub use schedutil::Schedutil;
