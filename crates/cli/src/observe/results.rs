//! The results of an observation: one JSON document, and the folder that keeps it with its page.

use super::answers::Answers;
use super::page::{self, RequestPoint};
use super::record::RECORDING;
use crate::plan::SCENARIO;
use crate::run_folder::{self, Kind, REPORT};
use ::observe::sleep::Findings;
use ::observe::verdict::{Comparison, Verdict};
use anyhow::Result;
use linux::perf::{CpuWork, StateShare};
use machine::{CpuId, Duration, Microwatts, Ratio};
use observe::scrape::Scraped;
use report::run::RunInfo;
use serde::Serialize;
use sim::plan::Recording;
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Observation {
    pub title: String,
    /// Who wrote the recording, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// The machine that was watched, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Remarks on the observation for the reader.
    pub notes: Vec<String>,
    /// How the CPUs slept.
    pub findings: Findings,
    pub verdict: Verdict,
    /// The same in sentences.
    pub words: Vec<String>,
    /// Requests over time, where they were watched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestPoint>,
    /// The same over the whole time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    /// The service's own telemetry, for comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scraped: Option<Scraped>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// How much work the CPUs did for their cycles, where the processor counts (Tradeoffs paper,
    /// Figure 9).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<Work>,
    /// States that cores were really in, where the processor counts them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hardware: Vec<HardwareState>,
    /// Both extremes of sleep, tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
}

/// The verdict's bounds, put to the test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verified {
    pub pairs: u32,
    /// The tail with sleep as shallow as it goes, mean of the blocks.
    pub shallow_p99: Duration,
    /// The tail with sleep as deep as the kernel likes.
    pub deep_p99: Duration,
    /// Where power would be from; modelled power is not compared.
    pub power_source: String,
    /// Whether the change is within the prediction.
    pub comparison: Comparison,
}

/// Power on average, with its source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Power {
    pub mean: Microwatts,
    /// The meter, or the model.
    pub source: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    pub cpu: CpuId,
    pub per_cycle: Option<f64>,
    /// Share of its cycles in which it waited for memory or another far unit.
    pub stalled: Option<Ratio>,
}

/// A state of the hardware's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HardwareState {
    pub cpu: CpuId,
    /// As the hardware calls it.
    pub state: String,
    /// Of the time watched.
    pub share: Ratio,
}

pub fn work(counted: &[CpuWork]) -> Vec<Work> {
    let one =
        |work: &CpuWork| Work { cpu: work.cpu, per_cycle: work.per_cycle(), stalled: work.stall_ratio() };
    counted.iter().map(one).collect()
}

pub fn hardware(counted: &[StateShare]) -> Vec<HardwareState> {
    let one =
        |share: &StateShare| HardwareState { cpu: share.cpu, state: share.state.clone(), share: share.share };
    counted.iter().map(one).collect()
}

/// Share of all cycles that were stalled; `None` if the processor does not tell.
pub fn stalled(counted: &[CpuWork]) -> Option<Ratio> {
    let cycles: u64 = counted.iter().map(|work| work.cycles).sum();
    let stalled = counted.iter().map(|work| work.stalled).sum::<Option<u64>>()?;
    (cycles > 0).then(|| Ratio::new(stalled as f64 / cycles as f64))
}

/// Writes the run's folder, and returns where its page is.
pub fn write(
    out: Option<&Path>,
    observation: &Observation,
    recording: Option<&Recording>,
) -> Result<PathBuf> {
    let started = run_folder::started()?;
    let place = KIND.place(out, &started)?.make()?;
    // Until the page is there, an older one must not be taken for it.
    // A scenario of an earlier recording is not of this one.
    run_folder::clear(&place, &[RECORDING, SCENARIO])?;
    if let Some(recording) = recording {
        let json = serde_json::to_string_pretty(recording)?;
        run_folder::write(&place, RECORDING, |file| writeln!(file, "{json}"))?;
    }
    let json = serde_json::to_string_pretty(observation)?;
    run_folder::write(&place, SLEEPS, |file| writeln!(file, "{json}"))?;
    let info = RunInfo {
        name: run_folder::name_of(&place),
        ..KIND.info(started, observation.title.clone(), &page::METHOD)
    };
    run_folder::write_info(&place, &info)?;
    run_folder::write_report(&place, &page::page(&info, observation))?;
    Ok(place.join(REPORT))
}

const SLEEPS: &str = "sleeps.json";
const KIND: Kind = Kind { name: "observe", mark: SLEEPS };
