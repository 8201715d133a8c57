//! The folder of a run, written while it goes on: what is there after a SIGKILL is true.

use super::page;
use crate::exit::usage;
use crate::machine_facts::this_machine;
use crate::run_folder::{self, INFO, REPORT};
use ::stage::{Burst, Config, Status};
use anyhow::{Context as _, Result};
use report::run::RunInfo;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// How the figures are got.
const METHOD: [&str; 4] = [
    "Latencies run from the arrival of a request's head at the proxy until the last byte of the answer came from the server; what the client's network takes \
     is not in them.",
    "Holding times run from the arrival on the stage until the request went; both are to three figures, in microseconds.",
    "A burst's size counts what was in service when it went; its tail is learned from the answers, by doubling sizes.",
    "Nothing here is an energy: no meter is read. How the server's CPUs slept is what `roost observe` sees, and `roost bench stage` compares.",
];

/// Seconds and what was seen then.
pub const READINGS: &str = "readings.jsonl";
/// Each burst that went.
pub const COMMANDS: &str = "commands.jsonl";
/// What came out.
const SUMMARY: &str = "summary.json";

/// One moment, as the page needs it.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// Since the beginning.
    pub at_s: f64,
    /// All that was seen.
    #[serde(flatten)]
    pub status: Status,
}

/// A burst and its server.
#[derive(Clone, Debug, Serialize)]
pub struct Went {
    /// Since the beginning.
    pub at_s: f64,
    /// The server's place in the configuration.
    pub server: usize,
    /// The rest.
    #[serde(flatten)]
    pub burst: Burst,
}

/// A run's folder.
pub struct Folder {
    place: PathBuf,
    info: RunInfo,
    began: machine::Instant,
    readings: BufWriter<File>,
    commands: BufWriter<File>,
    /// For the page; every second one goes when there are too many.
    kept: Vec<Reading>,
    every: usize,
    seen: usize,
    /// For the page: the first ones.
    bursts: Vec<Went>,
}

impl Folder {
    /// Begins it; an error costs nothing yet.
    pub fn begin(place: &Path, config: &Config) -> Result<Self> {
        if place.join(INFO).exists() && !place.join(READINGS).exists() {
            return Err(usage(format!(
                "{} has another kind of run\n\nhint: name another folder with --out",
                place.display()
            )));
        }
        run_folder::create(place)?;
        run_folder::remove(place, &[REPORT, SUMMARY])?;
        let started = run_folder::started()?;
        let servers: Vec<&str> = config.servers.iter().map(::stage::Server::shown).collect();
        let info = RunInfo {
            format: RunInfo::FORMAT,
            name: format!("stage-{}", started.replace(" UTC", "").replace([' ', ':'], "-")),
            title: format!("Staged bursts before {}", servers.join(", ")),
            command: std::env::args().collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            method: METHOD.map(str::to_owned).to_vec(),
            machine: this_machine(),
            config: toml::Table::try_from(config).context("run.toml")?,
        };
        run_folder::write_info(place, &info)?;
        Ok(Self {
            readings: file(place, READINGS)?,
            commands: file(place, COMMANDS)?,
            place: place.to_owned(),
            info,
            began: host::now(),
            kept: Vec::new(),
            every: 1,
            seen: 0,
            bursts: Vec::new(),
        })
    }

    /// One more moment.
    pub fn reading(&mut self, status: &Status) -> Result<()> {
        let at_s = host::now().since(self.began).as_secs_f64();
        let reading = Reading { at_s, status: status.clone() };
        line(&mut self.readings, &reading)?;
        if self.seen.is_multiple_of(self.every) {
            self.kept.push(reading);
        }
        self.seen += 1;
        if self.kept.len() >= KEPT_MAX {
            let mut odd = false;
            self.kept.retain(|_| {
                odd = !odd;
                odd
            });
            self.every *= 2;
        }
        Ok(())
    }

    /// The bursts since the last call, by server.
    pub fn bursts(&mut self, bursts: &[VecDeque<Burst>]) -> Result<()> {
        for (server, bursts) in bursts.iter().enumerate() {
            for &burst in bursts {
                let at_s = burst.at.since(self.began).as_secs_f64();
                let went = Went { at_s, server, burst };
                line(&mut self.commands, &went)?;
                if self.bursts.len() < KEPT_MAX {
                    self.bursts.push(went);
                }
            }
        }
        Ok(())
    }

    /// The end: summary and page. Says where the page is.
    pub fn end(mut self, status: &Status) -> Result<String> {
        self.reading(status)?;
        self.readings.flush().context("writing the readings")?;
        self.commands.flush().context("writing the bursts")?;
        let json = serde_json::to_string_pretty(status)?;
        run_folder::write(&self.place, SUMMARY, |file| writeln!(file, "{json}"))?;
        let page = page::page(&self.info, &self.kept, &self.bursts);
        run_folder::write_report(&self.place, &page.html())
    }
}

fn file(place: &Path, name: &str) -> Result<BufWriter<File>> {
    let path = place.join(name);
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::new(file))
}

/// A line is whole in the file, or not there, whenever this dies.
fn line(file: &mut BufWriter<File>, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value)?;
    writeln!(file, "{text}").and_then(|()| file.flush()).context("writing the run's folder; free some space")
}

/// More points than these no figure shows.
const KEPT_MAX: usize = 2048;
