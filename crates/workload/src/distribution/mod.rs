//! How long something takes, at random.
//!
//! A [`Distribution`] is the user's description: a law and its parameters. A [`Sampler`] is the
//! same made ready: its constants worked out, its file read. The sampler draws in a few
//! nanoseconds, and states its own mean.
//!
//! Terms. *cv* is the coefficient of variation, deviation over mean; *scv* its square. Invariants:
//! a drawn time is finite and never negative, the mean is the described one, and the draws depend
//! on the given stream of random numbers alone.

mod empirical;
mod law;
#[cfg(test)]
mod normal;
mod presets;
mod sampler;
mod written;

pub(crate) use law::{KEYWORDS_MAX, keyword_weight};
pub use presets::ServicePreset;
pub use sampler::Sampler;
pub(crate) use sampler::stretch;

use crate::SpecError;
use machine::Duration;
use std::path::PathBuf;

/// A law of times with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    Deterministic {
        mean: Duration,
    },
    Exponential {
        mean: Duration,
    },
    /// The sum of so many equal exponential stages: scv 1 / stages.
    Erlang {
        mean: Duration,
        stages: u32,
    },
    /// One of two exponential branches, each of which brings half of the work (balanced means; see
    /// [`two_branches`]).
    Hyperexponential {
        mean: Duration,
        /// Its squared coefficient of variation, at least 1.
        scv: f64,
    },
    /// The exponential of a normal number.
    Lognormal {
        mean: Duration,
        cv: f64,
    },
    /// Generalized Pareto: above the minimum, a tail that falls like x^(-1/shape).
    Gpareto {
        /// The least that is drawn.
        minimum: Duration,
        mean: Duration,
        /// From 0 (exponential) to below 1 (from 0.5 on the variance is infinite).
        shape: f64,
    },
    Uniform {
        from: Duration,
        to: Duration,
    },
    Bimodal {
        short: Duration,
        long: Duration,
        long_share: f64,
    },
    /// A search query of k keywords: (base + k x each), times a lognormal number of mean one. k
    /// follows Zipf's law with exponent 1 on 1 to 8 for 95 % of queries and on 9 to 18 for the
    /// others (Hurry-up, section II-C; the exponent is ours). Of these, the numbers from `fewest`
    /// to `most` are taken.
    Keywords {
        /// A query's time before its first keyword.
        base: Duration,
        each: Duration,
        /// Queries of fewer keywords are left out.
        fewest: u8,
        /// Queries of more keywords are left out.
        most: u8,
        /// Coefficient of variation of the lognormal number.
        cv: f64,
    },
    /// From a file of `x F` lines: the share F of times is at most x; straight lines between.
    Empirical {
        file: PathBuf,
        unit: TimeUnit,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl TimeUnit {
    /// How many nanoseconds one of it has.
    pub const fn nanos(self) -> f64 {
        match self {
            Self::Seconds => 1e9,
            Self::Milliseconds => 1e6,
            Self::Microseconds => 1e3,
            Self::Nanoseconds => 1.0,
        }
    }
}

impl Distribution {
    /// Made ready to draw from. Fails if a parameter is out of range or the file is none.
    pub fn sampler(&self) -> Result<Sampler, SpecError> {
        Sampler::new(self)
    }

    /// As it is called in a scenario.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Deterministic { .. } => "deterministic",
            Self::Exponential { .. } => "exponential",
            Self::Erlang { .. } => "erlang",
            Self::Hyperexponential { .. } => "hyperexponential",
            Self::Lognormal { .. } => "lognormal",
            Self::Gpareto { .. } => "gpareto",
            Self::Uniform { .. } => "uniform",
            Self::Bimodal { .. } => "bimodal",
            Self::Keywords { .. } => "keywords",
            Self::Empirical { .. } => "empirical",
        }
    }

    /// Fails if a parameter is out of range; says which.
    pub fn check(&self) -> Result<(), SpecError> {
        let within = |key: &'static str, holds: bool, fix: &'static str| {
            let name = self.name();
            if holds { Ok(()) } else { Err(SpecError::Distribution { name, key, fix }) }
        };
        let time = |key: &'static str, time: &Duration| {
            let fix = "write a time above zero and below 12 days, such as \"10us\"";
            within(key, !time.is_zero() && *time <= TIME_MAX, fix)
        };
        let cv_within = |cv: &f64| {
            let fix = "write a deviation in means, above 0 and up to 100, such as 0.5";
            within("cv", *cv > 0.0 && *cv <= CV_MAX, fix)
        };
        match self {
            Self::Deterministic { mean } | Self::Exponential { mean } => time("mean", mean),
            Self::Erlang { mean, stages } => {
                within("stages", (1..=STAGES_MAX).contains(stages), "write a whole number from 1 to 100")?;
                time("mean", mean)
            }
            Self::Hyperexponential { mean, scv } => {
                let fix = "write a number from 1 (exponential) to 10000, such as 4";
                within("scv", (1.0..=CV_MAX * CV_MAX).contains(scv), fix)?;
                time("mean", mean)
            }
            Self::Lognormal { mean, cv } => {
                cv_within(cv)?;
                time("mean", mean)
            }
            Self::Gpareto { minimum, mean, shape } => {
                within("shape", (0.0..SHAPE_MAX).contains(shape), "write a number from 0 to below 0.99")?;
                within("minimum", minimum < mean, "write a time below the mean")?;
                time("mean", mean)
            }
            Self::Uniform { from, to } => {
                within("from", from < to, "write a time below `to`")?;
                time("to", to)
            }
            Self::Bimodal { short, long, long_share } => {
                let fix = "write the chance of the long time, above 0 and below 1, such as 0.05";
                within("long_share", *long_share > 0.0 && *long_share < 1.0, fix)?;
                within("short", short < long, "write a time below `long`")?;
                time("long", long)
            }
            Self::Keywords { base, each, fewest, most, cv } => {
                let fix = "write whole numbers, 1 <= fewest <= most <= 18";
                within("fewest", 1 <= *fewest && fewest <= most && *most <= law::KEYWORDS_MAX, fix)?;
                within("base", *base <= TIME_MAX, "write a time below 12 days")?;
                time("each", each)?;
                cv_within(cv)
            }
            Self::Empirical { .. } => Ok(()),
        }
    }
}

/// The two branches of a hyperexponential law of mean one with balanced means: the chance of the
/// first, and the mean of each.
///
/// p = (1 + sqrt((scv - 1) / (scv + 1))) / 2, means 1 / (2 p) and 1 / (2 (1 - p)): each branch
/// brings half of the work.
pub fn two_branches(scv: f64) -> (f64, [f64; 2]) {
    let first = (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt()) / 2.0;
    (first, [0.5 / first, 0.5 / (1.0 - first)])
}

/// No request takes longer: 2^50 ns, so that sums of squares stay exact enough in 53 bits.
const TIME_MAX: Duration = Duration::from_nanos(1 << 50);
/// Beyond this a run of any length consists of its longest draws.
const CV_MAX: f64 = 100.0;
/// Beyond this a sum of stages is a fixed time but for a tenth of its mean.
const STAGES_MAX: u32 = 100;
/// At 1 the mean is infinite.
const SHAPE_MAX: f64 = 0.99;
