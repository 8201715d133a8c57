//! The slow reference: a SimPy program, in an environment of its own.
//!
//! The first use makes a virtual environment in the user's cache and installs the pinned SimPy into
//! it. Where that is not possible (no Python, no network) the bars against SimPy are not judged,
//! and the table says why.

use crate::run_folder;
use anyhow::{Context as _, Result, bail};
use linux::SafeFolder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = include_str!("../../../benches/references/mmk.py");
const SLEEPING: &str = include_str!("../../../benches/references/sleeping.py");
const REQUIREMENTS: &str = include_str!("../../../benches/references/requirements.txt");

#[derive(Clone, Debug, Deserialize)]
pub struct Outcome {
    pub requests: u64,
    pub cpu_s: f64,
    /// The same by the clock on the wall.
    pub wall_s: f64,
    /// Mean response time, in mean service times.
    pub mean: f64,
    pub version: String,
}

/// One run of a queue whose servers sleep.
#[derive(Clone, Debug, Deserialize)]
pub struct Slept(BTreeMap<String, f64>);

impl Slept {
    /// A figure by its name; not a number if it was not told.
    pub fn of(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }
}

/// The answer of `sleeping.py`, seed by seed.
#[derive(Clone, Debug, Deserialize)]
struct Runs {
    runs: Vec<Slept>,
}

pub struct SimPy {
    python: PathBuf,
    version: String,
}

impl SimPy {
    /// With this interpreter, or one in an environment that is made if need be. The error says why
    /// there is none.
    pub fn find(python: Option<&Path>) -> Result<Self> {
        let python = match python {
            Some(python) => python.to_owned(),
            None => environment()?,
        };
        let simpy = Self { python, version: String::new() };
        // Also the first import, which writes its byte code.
        let version = simpy.run(100, 1)?.version;
        Ok(Self { version, ..simpy })
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn run(&self, requests: u64, seed: u64) -> Result<Outcome> {
        self.program(PROGRAM, &[requests.to_string(), seed.to_string()])
    }

    /// Runs of a queue whose servers sleep, one for each seed in the parameters.
    pub fn sleeping(&self, parameters: &serde_json::Value) -> Result<Vec<Slept>> {
        self.program(SLEEPING, &[parameters.to_string()]).map(|Runs { runs }| runs)
    }

    fn program<T: DeserializeOwned>(&self, text: &str, arguments: &[String]) -> Result<T> {
        let python = self.python.display();
        let output = Command::new(&self.python)
            .args(["-c", text])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{python} does not start"))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            bail!("{python}: {}", told.lines().last().unwrap_or("it failed without a word"));
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("what {python} printed"))
    }
}

fn environment() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set; name an interpreter with --python")?;
    let folder = cache.join("roost/bench-simpy");
    let (python, marker) = (folder.join("bin/python"), folder.join(MARKER));
    // Written last, so that an installation that was broken off is begun anew.
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == REQUIREMENTS) {
        return Ok(python);
    }
    eprintln!("installing SimPy into {}", folder.display());
    // The installed files are executed later.
    let place = SafeFolder::make(&folder, 0o755).and_then(SafeFolder::trusted);
    place.with_context(|| {
        format!("installing into {}; name an interpreter with --python", folder.display())
    })?;
    let requirements = folder.join("requirements.txt");
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    run_folder::write(&folder, "requirements.txt", |file| file.write_all(REQUIREMENTS.as_bytes()))?;
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r"];
    succeed(Command::new(&python).args(install).arg(&requirements))?;
    run_folder::write(&folder, MARKER, |file| file.write_all(REQUIREMENTS.as_bytes()))?;
    Ok(python)
}

/// Tells which packages the environment has.
const MARKER: &str = "installed.txt";

fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{name} does not start"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}", told.lines().last().unwrap_or("without a word"));
    }
    Ok(())
}
