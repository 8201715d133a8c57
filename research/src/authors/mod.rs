//! Real runs of the Hurry-up authors: a search engine with a power meter (Medeiros et al. 2020; the
//! paper's section "Source code availability", raijenki/elastic-hurryup).
//!
//! A folder holds `runs.csv`, one line for each run, and `queries/RUN.csv.gz`, the log of each run's
//! queries, with `__` in place of `/` in a run's name. Nothing of the folder is part of this
//! repository.
//!
//! Terms:
//! - *baseline*: a run at a fixed frequency, without the authors' policy. Constants may be taken from
//!   it.
//! - *held out*: every other run. A simulation gets its arrivals and its keywords, and nothing else:
//!   its service times, energy, frequencies and percentiles are only compared with the prediction.
//!
//! Properties: [`Run::arrivals`] reads no column of service times, so that a log without that
//! column gives the same arrivals. A run that the rule of [`Exclusion`] names counts nowhere.

mod calibrate;
mod constants;
mod exclusion;
mod list;
mod log;
mod predicted;
#[cfg(test)]
mod set_up;
mod shown;
mod treatment;
mod validated;

pub use calibrate::{calibrated, calibrated_text};
pub use constants::Constants;
pub use exclusion::Exclusion;
pub use list::{Listed, json, listed, text};
pub use log::{Arrival, Work};
pub use predicted::{Predicted, predicted};
pub use shown::{validation_json, validation_page, validation_text};
pub use treatment::Treatment;
pub use validated::{Compared, Judged, Pair, Validation, validated, validated_baselines};

use anyhow::{Context as _, Result};
use report::exit::usage;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A run of the authors: its length, its clients, and the meters that ran beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Treatment, load and number, as in the authors' folders.
    pub name: String,
    /// Closed clients, each with a request outstanding.
    pub users: u32,
    /// Seconds of the run, by the clients' summary.
    pub length_s: f64,
    /// Operations that the clients count: those after the first minute or two.
    pub operations: u64,
    pub measured: Measured,
    log: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Baseline,
    HeldOut,
}

/// The meters' values of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Pairs of the package's energy counter, before and after, in microjoules.
    energy_uj: Vec<u64>,
    /// Seconds at each frequency in kHz; 2,601,000 stands for turbo.
    pub seconds_at_khz: BTreeMap<u32, f64>,
    /// The clients' 99th percentile in seconds; `None` beyond the end of their histogram.
    pub p99_s: Option<f64>,
}

/// The counter of energy begins again after this value, in microjoules.
const ENERGY_WRAP_UJ: u64 = 262_143_328_850;

impl Measured {
    /// Seconds that the counters of frequency cover, which is the time between the two readings of
    /// the energy counter.
    pub fn seconds(&self) -> f64 {
        self.seconds_at_khz.values().sum()
    }

    /// Average power of the package in watts. `None` without one pair of its counter, or with
    /// readings that no counter can have.
    pub fn watts(&self) -> Option<f64> {
        let [before, after] = self.energy_uj[..] else { return None };
        let is_reading = before.max(after) < ENERGY_WRAP_UJ;
        let are_times = self.seconds_at_khz.values().all(|&seconds| seconds >= 0.0) && self.seconds() > 0.0;
        if !is_reading || !are_times {
            return None;
        }
        let used = if after >= before { after - before } else { after + ENERGY_WRAP_UJ - before };
        Some(used as f64 / 1e6 / self.seconds())
    }
}

/// All runs of a folder, in the order of its table.
pub fn runs(folder: &Path) -> Result<Vec<Run>> {
    let table = folder.join("runs.csv");
    let mut reader = csv::Reader::from_path(&table).map_err(|cause| {
        usage(format!(
            "{}: {cause}\n\nhint: name a folder with runs.csv and queries/, as the authors' runs lie",
            table.display()
        ))
    })?;
    let mut runs = Vec::new();
    for (row, line) in reader.deserialize().enumerate() {
        let told = || format!("{}, line {}", table.display(), row + 2);
        runs.push(
            line.map_err(anyhow::Error::from).and_then(|line| Run::of(&line, folder)).with_context(told)?,
        );
    }
    Ok(runs)
}

/// A column's value of one line.
fn field<'a>(line: &'a BTreeMap<String, String>, column: &str) -> Result<&'a str> {
    line.get(column).map(|text| text.trim()).with_context(|| format!("there is no column {column}"))
}

fn number<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(text: &str, column: &str) -> Result<T> {
    text.parse().with_context(|| format!("{column} is {text:?}"))
}

impl Run {
    fn of(line: &BTreeMap<String, String>, folder: &Path) -> Result<Self> {
        let mut seconds_at_khz = BTreeMap::new();
        for (column, hundredths) in line.iter().filter(|(_, text)| !text.trim().is_empty()) {
            if let Some(khz) = column.strip_prefix("kHz_") {
                seconds_at_khz.insert(number(khz, column)?, number::<f64>(hundredths, column)? / 100.0);
            }
        }
        let counters = field(line, "energy_counter")?.split_ascii_whitespace();
        let p99 = field(line, "p99_s")?;
        let name = field(line, "run")?.to_owned();
        Ok(Self {
            log: folder.join("queries").join(name.replace('/', "__") + ".csv.gz"),
            name,
            users: number(field(line, "users")?, "users")?,
            length_s: number(field(line, "faban_s")?, "faban_s")?,
            operations: number(field(line, "operations")?, "operations")?,
            measured: Measured {
                energy_uj: counters.map(|text| number(text, "energy_counter")).collect::<Result<_>>()?,
                seconds_at_khz,
                p99_s: if p99.starts_with('>') { None } else { Some(number(p99, "p99_s")?) },
            },
        })
    }

    pub fn role(&self) -> Role {
        let is_baseline = BASELINES
            .iter()
            .any(|folder| self.name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')));
        if is_baseline { Role::Baseline } else { Role::HeldOut }
    }

    /// The queries as they came: all that a simulation may know of a run that is held out.
    pub fn arrivals(&self) -> Result<Vec<Arrival>> {
        log::arrivals(&self.log)
    }

    /// The queries with their service times. The error names the rule where the run is held out.
    pub fn work(&self) -> Result<Vec<Work>> {
        match self.role() {
            Role::Baseline => log::work(&self.log),
            Role::HeldOut => Err(usage(format!("{}: service times of a run that is held out", self.name))),
        }
    }

    /// The reason why this run counts nowhere, if there is one.
    pub fn exclusion(&self) -> Result<Option<Exclusion>> {
        Exclusion::of(self)
    }
}

/// The results of a function for each, in their order, on as many threads as there are CPUs.
fn in_parallel<T: Sync, R: Send>(all: &[T], made: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<R>>>> = Mutex::new(all.iter().map(|_| None).collect());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let place = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = all.get(place)
                {
                    let result = made(item);
                    results.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().map(|result| result.context("a run was not made")?).collect()
}

/// Runs at fixed frequencies: the folders of the authors from which constants may be taken.
const BASELINES: [&str; 5] = ["mixed", "high", "low", "governors/performance", "governors/powersave"];

#[cfg(test)]
mod tests;
