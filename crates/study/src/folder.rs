//! The folder of a simulation, beside the files that every run's folder has.

pub use crate::run_folder::{
    INFO, Kind, Place, REPORT, clear, create, name_of, started, write, write_info, write_report,
};

use crate::columns::{self, Columns};
use crate::exit::usage;
use anyhow::{Context as _, Result};
use report::run::RunInfo;
use sim::Document;
use std::path::Path;

/// `run.toml`: the command, the scenario in force with every default, the machine that simulated.
pub fn info(document: &Document, name: String, title: String, started: String) -> Result<RunInfo> {
    let scenario = document.scenario().map_err(usage)?;
    let mut config = toml::Table::new();
    // From wherever the run is gone on with: files that it names lie beside it.
    let file = std::path::absolute(document.path()).unwrap_or_else(|_| document.path().to_owned());
    config.insert(FILE.to_owned(), file.display().to_string().into());
    let estimates = document.estimates().iter().cloned().map(toml::Value::String).collect();
    config.insert("estimates".to_owned(), toml::Value::Array(estimates));
    let scenario = toml::Table::try_from(&scenario).context("the scenario in force")?;
    config.insert(SCENARIO.to_owned(), scenario.into());
    Ok(RunInfo { name, config, ..KIND.info(started, title, &METHOD) })
}

/// Writes a table as a CSV file.
pub fn write_table(folder: &Path, name: &str, table: &Columns) -> Result<()> {
    write(folder, name, |file| columns::write(table, file))
}

const KIND: Kind = Kind { name: "sim", mark: OUTCOMES };
const METHOD: [&str; 3] = [
    "Everything is simulated; the machine below only did the computing.",
    "Response times: from a request's arrival to its reply; intervals are 95 % confidence intervals \
     after the warm-up was removed.",
    "Power: modelled from what each core did and the powers of the simulated machine's table; see \
     machines in outcomes.json.",
];

/// Where `run.toml` keeps the name of the scenario's file, below `config`.
pub const FILE: &str = "file";
/// Where `run.toml` keeps the scenario, below `config`.
pub const SCENARIO: &str = "scenario";

pub const OUTCOMES: &str = "outcomes.json";
/// One row per contestant.
pub const SUMMARY: &str = "summary.csv";
/// One row per contestant and figure: how it differs from the reference.
pub const DIFFERENCES: &str = "differences.csv";
/// The verdicts on papers' figures; `roost-papers` writes it, and no `run.toml`.
pub const PAPERS: &str = "results.json";
pub const POINTS: &str = "points.csv";
