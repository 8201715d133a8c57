//! Learning the load limit (section 3.3): the highest load that a worker has carried for its own connections.
//!
//! Without the scheduler every connection would be served at home, and users accept what that gives. So the running
//! maximum of the load of a worker's *resident* connections is a load that it may also carry for guests. A sample
//! with a Z-score above 2.5 is an outlier and does not become the maximum.
//!
//! The paper leaves open whether outliers enter mean and variance. They must, or a lasting rise would stay an outlier
//! for ever; and the sample count must be capped, or after a long life a lasting rise would take up 13 % of that life
//! before it is believed. The sample is entered first and judged afterwards, so that the first eight samples of a
//! worker cannot be outliers: a start is never mistaken for a peak.
//!
//! **Incomplete samples.** While some of a worker's own connections are served elsewhere, the sum over those that are
//! here is too small. Too small a sum can do no harm as a maximum, but it would pull the mean down and make the return
//! of the ordinary look like an outlier. Such a sample is entered only if it lies above the mean.
//!
//! What always holds: the limit never falls but by [`LearnedLimit::reset`]; a rise that lasts is learned after
//! [`Params::learn_after`], after 10 or 10^7 samples; no sample marked saturated leaves a trace.

use super::Params;
use machine::Rate;
use serde::{Deserialize, Serialize};

/// A worker's limit and the statistics behind it. Kept across restarts by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnedLimit {
    limit: Option<Rate>,
    samples: u64,
    mean_per_s: f64,
    variance: f64,
}

impl LearnedLimit {
    /// The limit, if any load was measured yet.
    pub fn limit(&self) -> Option<Rate> {
        self.limit
    }

    /// How many samples stand behind mean and variance, up to the cap.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Forgets everything: the next sample is the first.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// One sample of the load of the resident connections. `complete`: all of the worker's own connections are here.
    /// The caller leaves out saturated samples and those without any resident.
    pub fn observe(&mut self, load: Rate, complete: bool, params: &Params) {
        let sample = load.as_per_second();
        if complete || sample >= self.mean_per_s {
            // Welford's update; with the count held at the cap it becomes an exponential average of that length.
            self.samples = (self.samples + 1).min(params.sample_cap());
            let count = self.samples as f64;
            let deviation = sample - self.mean_per_s;
            self.mean_per_s += deviation / count;
            self.variance += (deviation * (sample - self.mean_per_s) - self.variance) / count;
        }
        let above = sample - self.mean_per_s;
        let outlier = above > 0.0 && above * above > params.outlier_z * params.outlier_z * self.variance;
        match self.limit {
            None => self.limit = Some(load),
            Some(limit) if !outlier => self.limit = Some(limit.max(load)),
            Some(_) => {}
        }
    }
}
