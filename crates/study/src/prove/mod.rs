//! Proof of a saving on a live service: governed and ungoverned blocks in turn, compared in pairs.
//!
//! **The problem.** A service's load and its machine drift. A day with governing and a day without
//! differ by more than the saving that is sought. A person who watches the figures stops when they
//! look good, and then an interval of 95 % errs far more often than in 5 of 100 cases.
//!
//! **The approach.** Two neighbouring blocks are a *pair*: one governed, one not, in an order drawn
//! from a seed. The beginning of each block, in which the treatment settles, does not count. A pair
//! counts if both blocks had *like load*. Of each figure the logarithm of the ratio of the pair is
//! taken. Under no effect the drawn order gives each of these an even chance of either sign,
//! whatever the drift: so they are not correlated, and their mean is 0.
//!
//! ```text
//!   schedule.rs   the order of the blocks
//!   block.rs      a finished block, and the pairs of like load
//!   student.rs    Student's t
//!   looks.rs      intervals for a stated end, and intervals that hold at any end
//!   compare.rs    each figure: governed against ungoverned, with its interval
//!   outcome.rs    when to stop, and the verdict in one sentence
//!   trial.rs      all of it on simulated servers
//! ```
//!
//! **Two kinds of interval.** A run that ends as planned has Student's interval. A run that ends
//! earlier, or may end earlier by `--until`, has *repeated intervals*: at each look, Student's
//! interval at a level that all looks of the run share, set so that in 95 of 100 runs **all** of
//! them contain the truth. So they hold whatever made the run stop. Sources: Jennison and Turnbull,
//! "Interim analyses: the repeated confidence interval approach", J. R. Statist. Soc. B 51 (1989)
//! 305-361; one level for all looks: Pocock, Biometrika 64 (1977) 191-199. The same idea without a
//! last look is a confidence sequence (Howard et al., Ann. Statist. 49 (2021) 1055-1080). It is
//! wider, since it allows for looks that a run of planned length never takes.
//!
//! **Assumptions.** The mean of the logarithms is near enough to normal for Student's
//! t. The level of the looks is exact for normal logarithms, as a simulated table (see
//! [`looks::Looks`]); `roost-bench prove` counts how often all of it errs on simulated servers.

pub mod block;
pub mod compare;
pub mod looks;
pub mod outcome;
pub mod schedule;
pub mod student;
pub mod trial;

pub use block::{Block, Figure, LikeLoad, Pairs, Treatment};
pub use compare::{Change, compare};
pub use looks::{Ending, Looks};
pub use outcome::{End, Outcome, Until, Verdict, tenths};
pub use schedule::schedule;

/// Fewer pairs than this give no interval: with two or three, the estimate of the scatter is chance.
pub const PAIRS_LEAST: usize = 4;

/// The share of runs in which an interval may miss the truth.
pub const ERROR: f64 = 0.05;
