//! The nouns of Roost: units, identities, the machine's tables, readings and commands.
//!
//! Everything else in the workspace speaks in these types, and they depend on nothing. There is no
//! I/O here and no clock: an [`Instant`] is a number of nanoseconds since an epoch that the driver
//! chose, so a simulator can start at zero and a live server at boot.
//!
//! Invariants:
//! - A unit is a type. A latency cannot be added to a load, nor a worker's number index a CPU.
//! - A reading that is missing is `None`, never zero.
//! - Every energy figure carries its [`EnergySource`]: measured is not modelled.

mod command;
mod cstate;
pub mod duration_text;
mod goal;
mod ids;
mod lengths;
mod platform;
mod power;
mod presets;
mod reading;
mod time;
mod topology;
mod waking;

pub use command::{Command, FrequencyLimit, IdleLimit, Pick};
pub use cstate::{Cstate, CstateKind, CstateTable};
pub use goal::Goal;
pub use ids::{ConnId, CpuId, CstateIndex, WorkerId};
pub use lengths::LengthHistogram;
pub use platform::{
    ClockDomain, FrequencyTable, OperatingPoint, PackageState, Platform, PlatformError, PointKind, PowerCap,
    TurboBin, UncoreClock,
};
pub use power::{EnergySource, Kilohertz, Microjoules, Microwatts, PowerModel};
pub use presets::Processor;
pub use reading::{CpuReading, EnergyReading, Reading, ServiceReading, WorkerReading};
pub use time::{Duration, Instant, ParseDurationError, Rate, Ratio};
pub use topology::{Cpu, CpuList, ParseCpuListError, Topology};
pub use waking::Waking;
