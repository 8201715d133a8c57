//! The rule by which a run counts nowhere, from its counters and its log's arrivals alone.

use super::{Measured, Run};
use anyhow::Result;
use serde::Serialize;
use std::fmt;

/// The reason for which a run counts nowhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// No pair of the energy counter, no time at any frequency, or readings that cannot be.
    NoCounters,
    /// More than one pair of the energy counter: two runs wrote to one file.
    TwoRunsInOne,
    NoLog,
    /// The log holds fewer queries than the clients counted.
    ShortLog {
        queries: u64,
        operations: u64,
    },
    /// Its first and last query are further apart, or nearer, than the run was long.
    OtherLength {
        log_s: f64,
        run_s: f64,
    },
    /// The 99th percentile lies beyond the end of the clients' histogram.
    CensoredTail,
}

/// The log's first and last query lie this much nearer than the run's ends at the most, in seconds:
/// a slow last query and the clients' own start and end fit in. All runs with one whole log lie
/// within 7.
const ENDS_S: f64 = 10.0;

impl Exclusion {
    pub(super) fn of(run: &Run) -> Result<Option<Self>> {
        let Measured { energy_uj, p99_s, .. } = &run.measured;
        if energy_uj.len() > 2 {
            return Ok(Some(Self::TwoRunsInOne));
        }
        if run.measured.watts().is_none() {
            return Ok(Some(Self::NoCounters));
        }
        if !run.log.exists() {
            return Ok(Some(Self::NoLog));
        }
        let arrivals = run.arrivals()?;
        let ends = arrivals.iter().map(|arrival| arrival.start_ms);
        let log_s = (ends.clone().max().unwrap_or(0) - ends.min().unwrap_or(0)) as f64 / 1e3;
        if !(run.length_s - ENDS_S..=run.length_s).contains(&log_s) {
            return Ok(Some(Self::OtherLength { log_s, run_s: run.length_s }));
        }
        let queries = arrivals.len() as u64;
        if queries < run.operations {
            return Ok(Some(Self::ShortLog { queries, operations: run.operations }));
        }
        Ok(p99_s.is_none().then_some(Self::CensoredTail))
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounters => f.write_str("no counters"),
            Self::TwoRunsInOne => f.write_str("counters of two runs"),
            Self::NoLog => f.write_str("no log of queries"),
            Self::ShortLog { queries, operations } => {
                write!(f, "{queries} queries in the log of {operations} operations")
            }
            Self::OtherLength { log_s, run_s } => {
                write!(f, "a log of {log_s:.0} s of a run of {run_s:.0} s")
            }
            Self::CensoredTail => f.write_str("p99 beyond the clients' histogram"),
        }
    }
}
