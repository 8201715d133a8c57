//! Statistics that hold: estimates of mean and quantiles with intervals that contain the truth as
//! often as they say.
//!
//! Simulators that claim 95 % and mean 15 to 60 err in three ways: they take neighbouring requests
//! for independent, they take quantiles of short stretches for normal, and they stop when chance
//! makes an interval narrow. Here:
//!
//! | file | task |
//! |---|---|
//! | [`collector`](Collector) | the inputs of a run; when it may end |
//! | `batches` | 32 to 64 batches, each with sum and histogram, merged in pairs as the run goes on |
//! | `warm_up` | which batches to leave out |
//! | `sample` | mean and quantiles with intervals, from batches or runs |
//! | `ratio` | the one formula: a ratio of sums, adjusted for skewness and correlation |
//! | [`ratio_estimator`](RatioEstimator) | the same for power and energy per request |
//! | [`replications`](Replications) | several runs with other seeds; which method when |
//! | [`paired`](Portions) | differences of contestants on the same arrivals, services and noise |
//! | `stability` | whether the queue grows without end |
//! | [`precision`](Precision) | `1%@p99` |
//! | [`coverage`](coverage::coverage) | how often all this is right |
//!
//! Invariants: memory does not depend on the number of requests; nothing reported is NaN; the
//! result depends on the records and their order, and for replications on nothing but their seeds.
//!
//! Times are nanoseconds; intervals, being estimates, are floating-point numbers of them.

mod batches;
mod collector;
pub mod coverage;
mod interval;
mod paired;
mod precision;
mod ratio;
mod ratio_estimator;
#[cfg(test)]
mod recursion;
mod replications;
mod sample;
mod stability;
mod warm_up;

pub use collector::{Collector, Doubt, Shortfall};
pub use interval::Interval;
pub use paired::{Difference, Portion, Portions};
pub use precision::{ParsePrecisionError, Precision, Quantile, Quantity};
pub use ratio::across_runs;
pub use ratio_estimator::RatioEstimator;
pub use replications::{Horizon, Replications};
pub use sample::Sample;
