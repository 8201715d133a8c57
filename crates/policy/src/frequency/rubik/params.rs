//! Every constant of Rubik.

use machine::Duration;
use serde::{Deserialize, Serialize};

/// The constants of one Rubik.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// L: what response times shall stay within. 300 us, the strictest of the Peafowl paper's Figures 9 and 10.
    #[serde(with = "machine::duration_text")]
    pub target: Duration,
    /// What share of requests shall; held between 0.5 and 0.9999. 0.99, as Figure 10 measures.
    pub quantile: f64,
    /// Time between two rebuilds of the tables. 100 ms \[R\].
    #[serde(with = "machine::duration_text")]
    pub rebuild_every: Duration,
    /// T_dvfs: from asking for a gear until it works. 10 us, what the Peafowl paper simulates (section 4.3); set it to
    /// the machine's delay and stall together.
    #[serde(with = "machine::duration_text")]
    pub dvfs_delay: Duration,
    /// Tables, and the tail that the feedback looks at, are made of no fewer requests; with fewer in a window, the
    /// window is extended. 1000: ten beyond a 99th percentile \[D\].
    pub samples_min: u32,
    /// The window of the feedback. 1 s \[R\].
    #[serde(with = "machine::duration_text")]
    pub feedback_every: Duration,
    /// By how much of the relative error L' moves at once. 0.1 \[D\]; zero, with the other gain, switches feedback off.
    pub proportional_gain: f64,
    /// By how much of it L' moves for good with each window. 0.2 \[D\]: most of a bias is gone after ten.
    pub integral_gain: f64,
    /// Least and most that L' may be, in L. Half to one and a half \[D\]: beyond, it is not the model that errs.
    pub factor_bounds: [f64; 2],
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: Duration::from_micros(300),
            quantile: 0.99,
            rebuild_every: Duration::from_millis(100),
            dvfs_delay: Duration::from_micros(10),
            samples_min: 1_000,
            feedback_every: Duration::from_secs(1),
            proportional_gain: 0.1,
            integral_gain: 0.2,
            factor_bounds: [0.5, 1.5],
        }
    }
}

impl Params {
    /// The quantile, where tables can be made for it.
    pub(in crate::frequency) fn quantile(&self) -> f64 {
        // What is no number asks for the most.
        if self.quantile.is_nan() { MOST_QUANTILE } else { self.quantile.clamp(0.5, MOST_QUANTILE) }
    }
}

/// Beyond it a window of a second has too few misses to speak of, on any machine.
const MOST_QUANTILE: f64 = 0.9999;
