//! Files that are whole or not there: written under another name, then renamed.

use crate::exit::usage;
use crate::machine_facts::this_machine;
use anyhow::{Context as _, Result};
use report::run::{RunInfo, utc};
use sim::Document;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes the folder of a run, and its parents.
pub fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|cause| {
        usage(format!("cannot make {}: {cause}; name another folder with --out", folder.display()))
    })
}

/// Writes one file: until `content` is all there, the name is not taken.
pub fn write(
    folder: &Path,
    name: &str,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<()> {
    let (path, partial) = (folder.join(name), folder.join(format!(".{name}.partial")));
    let whole = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(&partial)?);
        content(&mut file)?;
        file.flush()?;
        fs::rename(&partial, &path)
    };
    let written = whole();
    if written.is_err() {
        // What is left of it helps nobody; that it cannot be removed either changes nothing about the error.
        let _ = fs::remove_file(&partial);
    }
    written
        .with_context(|| format!("cannot write {}; free some space or name another folder", path.display()))
}

/// Removes files of an earlier run, so that no reader mixes two.
pub fn remove(folder: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(cause)
                    .with_context(|| format!("cannot remove {} of an earlier run", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Now, as run folders write it.
pub fn started() -> Result<String> {
    Ok(utc(SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?.as_secs()))
}

/// What `run.toml` says: the command, the scenario in force with every default, the machine that simulated.
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
    Ok(RunInfo {
        format: RunInfo::FORMAT,
        name,
        title,
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        method: vec![
            "Everything is simulated; the machine below only did the computing.".to_owned(),
            "Response times: from a request's arrival to its reply; intervals are 95 % confidence intervals after the warm-up was removed.".to_owned(),
            "Power: modelled from what each core did and the powers of the simulated machine's table; see machines in outcomes.json.".to_owned(),
        ],
        machine: this_machine(),
        config,
    })
}

/// Where `run.toml` keeps the name of the scenario's file, below `config`.
pub const FILE: &str = "file";
/// Where `run.toml` keeps the scenario, below `config`.
pub const SCENARIO: &str = "scenario";

/// Writes `run.toml`.
pub fn write_info(folder: &Path, info: &RunInfo) -> Result<()> {
    let text = toml::to_string(info).context("run.toml")?;
    write(folder, INFO, |file| file.write_all(text.as_bytes()))
}

/// Writes the page, and says where.
pub fn write_report(folder: &Path, page: &str) -> Result<String> {
    write(folder, REPORT, |file| file.write_all(page.as_bytes()))?;
    Ok(format!("report: {}", folder.join(REPORT).display()))
}

/// Which `roost sim` command made a folder, if one did. Such a folder keeps figures and no recording.
pub fn maker(folder: &Path) -> Option<&'static str> {
    let has = |name: &str| folder.join(name).is_file();
    let Ok(text) = fs::read_to_string(folder.join(INFO)) else {
        return has(PAPERS).then_some("roost sim paper");
    };
    // A recording that was written over a simulation has a `run.toml` of its own.
    let info: toml::Table = text.parse().ok()?;
    let scenario = info.get("config")?.get(SCENARIO)?;
    Some(if has(super::cells::CELLS) {
        "roost sim sweep"
    } else if scenario.get("fleet").is_some() {
        "roost sim fleet"
    } else {
        "roost sim run"
    })
}

/// What was run.
pub const INFO: &str = "run.toml";
/// Every figure.
pub const OUTCOMES: &str = "outcomes.json";
/// One row per contestant.
pub const SUMMARY: &str = "summary.csv";
/// What became of papers' figures; `sim paper` writes it, and no `run.toml`.
const PAPERS: &str = "results.json";
/// Time series.
pub const POINTS: &str = "points.csv";
/// The page.
pub const REPORT: &str = "report.html";
