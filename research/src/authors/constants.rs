//! The constants of the authors' machine and queries, all from their baselines.
//!
//! [`calibrated`](super::calibrated) makes `constants.toml` out of the baselines' runs; a test
//! compares the two where the runs are at hand. Nothing in it comes from a run that is held out.

use anyhow::{Context as _, Result};
use report::exit::usage;
use serde::{Deserialize, Serialize};
use std::path::Path;
use workload::Random;

/// The machine's powers and the queries' work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// A socket that sleeps, in watts.
    pub asleep_watts: f64,
    /// Watts of a socket beside its cores while one is awake, asleep included.
    pub awake_watts: f64,
    /// Share by which each watt beyond sleep raises the power (leakage).
    pub warming: f64,
    /// Deviation of the shards' work around their query's.
    pub shard_cv: f64,
    /// The counters run this much longer than the log, in seconds.
    pub beyond_log_s: f64,
    /// The operating points below turbo, slow to fast.
    pub point: Vec<OperatingPoint>,
    pub turbo: Vec<Bin>,
    /// Work by number of keywords, from 1.
    pub work: Vec<Work>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatingPoint {
    pub khz: u64,
    pub watts: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bin {
    pub cores: u16,
    pub khz: u64,
    pub watts: f64,
}

/// Work of one shard for a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    pub keywords: u32,
    /// Of work x a faster clock does not shorten M (1 - exp(-x / M)): nearly all of little work, and of
    /// much hardly more than M, these milliseconds.
    pub memory_ms: f64,
    /// Milliseconds at 2.6 GHz that are not exceeded with the probabilities [`PROBABILITIES`].
    pub ms: Vec<f64>,
}

/// The quantiles that a table of work has; between them it is read on a logarithmic scale.
pub const PROBABILITIES: [f64; 15] =
    [0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995];
/// Queries with more keywords count as of so many: hardly any has more.
pub const KEYWORDS_MAX: u32 = 16;
/// The last operating point's name in `cpufreq`, which stands for turbo.
pub const TURBO_KHZ: u64 = 2_601_000;
pub const BASE_KHZ: u64 = 2_600_000;

impl Constants {
    pub fn kept() -> Result<Self> {
        toml::from_str(KEPT).context("research/src/authors/constants.toml")
    }

    /// Those of a file, or else of this repository.
    pub fn of(file: Option<&Path>) -> Result<Self> {
        let Some(path) = file else { return Self::kept() };
        let text = std::fs::read_to_string(path).map_err(|cause| {
            usage(format!("{}: {cause}\n\nhint: `roost-papers calibrate DIR` prints one", path.display()))
        })?;
        toml::from_str(&text).map_err(|cause| usage(format!("{}: {cause}", path.display())))
    }

    /// Watts of a core at work in the operating point of this clock.
    pub fn watts(&self, khz: u64) -> f64 {
        self.point.iter().find(|point| point.khz == khz).map_or(f64::NAN, |point| point.watts)
    }

    /// The work of queries with so many keywords.
    pub fn work(&self, keywords: u32) -> &Work {
        let place = keywords.clamp(1, self.work.len() as u32) - 1;
        &self.work[place as usize]
    }
}

impl Work {
    /// Work of one query in milliseconds at 2.6 GHz.
    pub fn draw(&self, random: &mut Random) -> f64 {
        let at = random.unit();
        let last = PROBABILITIES.len() - 1;
        let place = PROBABILITIES.iter().position(|probability| *probability >= at).unwrap_or(last).max(1);
        let (low, high) = (PROBABILITIES[place - 1], PROBABILITIES[place]);
        let part = (at - low) / (high - low);
        (self.ms[place - 1].ln() * (1.0 - part) + self.ms[place].ln() * part).exp()
    }

    /// The share of `ms` of work that a faster clock does not shorten.
    pub fn memory(&self, ms: f64) -> f64 {
        -(-ms / self.memory_ms).exp_m1() * self.memory_ms / ms
    }
}

/// The constants as this repository keeps them.
pub const KEPT: &str = include_str!("constants.toml");
