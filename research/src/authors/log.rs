//! The log of a run's queries: `start_ms,keywords,service_ms`, compressed by gzip.

use anyhow::{Context as _, Result};
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::path::Path;

/// A query as it came, without its service time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Arrival {
    /// Milliseconds after the first query of the log.
    pub start_ms: u64,
    pub keywords: u32,
}

/// A query and the time that the search engine took for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Work {
    pub start_ms: u64,
    pub keywords: u32,
    pub service_ms: u64,
}

pub(super) fn arrivals(path: &Path) -> Result<Vec<Arrival>> {
    rows(path)
}

pub(super) fn work(path: &Path) -> Result<Vec<Work>> {
    rows(path)
}

fn rows<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let told = || format!("{}: no log of queries", path.display());
    let file = File::open(path).with_context(told)?;
    let mut reader = csv::Reader::from_reader(GzDecoder::new(file));
    reader.deserialize().collect::<Result<_, _>>().with_context(told)
}
