//! How fast the cores run: the kernel's governors and those of the literature.
//!
//! They speak in operating points of a [`PointTable`], as `policy::frequency` says.
//!
//! - [`fixed`]: one operating point, whatever happens.
//! - [`fixed_pace`]: the same as a share of the nominal frequency.
//! - [`ondemand`]: by how busy the core was.
//! - [`schedutil`]: by the scheduler's average of how much it has to do.
//! - [`rubik`]: at every arrival and completion, the slowest operating point at which the whole
//!   queue keeps its goal.
//! - [`crescendo`]: speed that grows with the stay of a request, as the distribution of work makes
//!   it cheapest.
//! - [`predicted`]: the slowest operating point at which a request ends in time by a prediction, which
//!   errs.
//! - [`eco_faas`]: pools of cores, each at one operating point for a while.
//! - [`nmap`]: the fastest for a core at which requests queue up, else ondemand.
//! - [`adrenaline`]: a boost for requests that have waited for their class's threshold.

pub mod adrenaline;
pub mod crescendo;
pub mod eco_faas;
pub mod fixed;
pub mod fixed_pace;
pub mod nmap;
pub mod ondemand;
pub mod predicted;
pub mod rubik;
pub mod schedutil;

pub use adrenaline::Adrenaline;
pub use crescendo::Crescendo;
pub use fixed::Fixed;
pub use ondemand::Ondemand;
pub use rubik::Rubik;
pub use schedutil::Schedutil;

use policy::frequency::{PointIndex, PointTable};

#[cfg(test)]
pub(crate) mod points {
    pub(crate) mod tests {
        use machine::{Duration, Instant, Kilohertz, Microwatts, OperatingPoint, PointKind};
        use policy::frequency::PointTable;
        use policy::kind::{Ends, Request};

        /// A request of one piece, without memory.
        pub(crate) fn whole(arrived: Instant, compute: Duration) -> Request {
            Request { arrived, class: 0, compute, memory: Duration::ZERO, phase: 0, ends: Ends::Request }
        }

        /// Operating points at these clocks, and power that rises with the cube of the clock: 10 W
        /// at the fastest.
        pub(crate) fn points_at(mhz: &[u64]) -> PointTable {
            let fastest = mhz[mhz.len() - 1] as f64;
            let point = |&mhz: &u64| OperatingPoint {
                frequency: Kilohertz(mhz * 1_000),
                power: Microwatts::from_watts(10.0 * (mhz as f64 / fastest).powi(3)),
                kind: PointKind::Pstate,
            };
            PointTable::from_points(&mhz.iter().map(point).collect::<Vec<_>>()).unwrap()
        }

        /// 1.0 to 2.6 GHz in steps of 200 MHz.
        pub(crate) fn nine_points() -> PointTable {
            points_at(&[1_000, 1_200, 1_400, 1_600, 1_800, 2_000, 2_200, 2_400, 2_600])
        }
    }
}
