//! The folder of a run, written while it goes on: its files are true after a SIGKILL, and a page
//! can be made of them again.

use super::page;
use crate::exit::usage;
use crate::run_folder::{self, INFO, Kind};
use ::proxy::{Burst, Config, Status};
use anyhow::{Context as _, Result};
use report::figures::Page;
use report::run::RunInfo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

const METHOD: [&str; 4] = [
    "Latencies run from the arrival of a request's head at the proxy until the last byte of the \
     answer came from the server; what the client's network takes is not in them.",
    "Holding times run from the arrival on the stage until the request went; both are to three figures, in microseconds.",
    "A burst's size counts what was in service when it went; its tail is learned from the \
     answers, by doubling sizes.",
    "Nothing here is an energy: no meter is read. How the server's CPUs slept is what `roost \
     observe` sees, and `roost-bench stage` compares.",
];

const READINGS: &str = "readings.jsonl";
const COMMANDS: &str = "commands.jsonl";
const SUMMARY: &str = "summary.json";

/// One moment, as the page needs it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// Since the beginning.
    pub at_s: f64,
    #[serde(flatten)]
    pub status: Status,
}

/// A burst and its server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Went {
    /// Since the beginning.
    pub at_s: f64,
    /// The server's place in the configuration.
    pub server: usize,
    #[serde(flatten)]
    pub burst: Burst,
}

pub struct Folder {
    place: PathBuf,
    info: RunInfo,
    began: machine::Instant,
    readings: BufWriter<File>,
    commands: BufWriter<File>,
    kept: Kept,
}

/// The page's view of a run.
#[derive(Debug)]
struct Kept {
    /// Every second one goes when there are too many; the last one stays.
    readings: Vec<Reading>,
    every: usize,
    seen: usize,
    bursts: Vec<Went>,
}

impl Folder {
    /// Begins it; an error costs nothing yet.
    pub fn begin(place: &Path, config: &Config) -> Result<Self> {
        let started = run_folder::started()?;
        KIND.place(Some(place), &started)?;
        run_folder::clear(place, &[SUMMARY])?;
        let servers: Vec<&str> = config.servers.iter().map(::proxy::Server::shown).collect();
        let info = RunInfo {
            config: toml::Table::try_from(config).context("run.toml")?,
            ..KIND.info(started, format!("Staged bursts before {}", servers.join(", ")), &METHOD)
        };
        run_folder::write_info(place, &info)?;
        Ok(Self {
            readings: file(place, READINGS)?,
            commands: file(place, COMMANDS)?,
            place: place.to_owned(),
            info,
            began: linux::now(),
            kept: Kept::default(),
        })
    }

    pub fn reading(&mut self, status: &Status) -> Result<()> {
        let at_s = linux::now().since(self.began).as_secs_f64();
        let reading = Reading { at_s, status: status.clone() };
        line(&mut self.readings, &reading)?;
        self.kept.reading(reading);
        Ok(())
    }

    /// The bursts since the last call, by server.
    pub fn bursts(&mut self, bursts: &[VecDeque<Burst>]) -> Result<()> {
        for (server, bursts) in bursts.iter().enumerate() {
            for &burst in bursts {
                let at_s = burst.at.since(self.began).as_secs_f64();
                let went = Went { at_s, server, burst };
                line(&mut self.commands, &went)?;
                self.kept.burst(went);
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
        let page = self.kept.page(&self.info);
        run_folder::write_report(&self.place, &page)
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self { readings: Vec::new(), every: 1, seen: 0, bursts: Vec::new() }
    }
}

impl Kept {
    fn reading(&mut self, reading: Reading) {
        // The one before was the last, and need not be shown.
        if self.seen > 0 && !(self.seen - 1).is_multiple_of(self.every) {
            self.readings.pop();
        }
        self.readings.push(reading);
        self.seen += 1;
        if self.readings.len() >= KEPT_MAX {
            let last = self.readings.len() - 1;
            let mut place = 0_usize;
            self.readings.retain(|_| {
                place += 1;
                (place - 1).is_multiple_of(2) || place - 1 == last
            });
            self.every *= 2;
        }
    }

    fn burst(&mut self, went: Went) {
        if self.bursts.len() < KEPT_MAX {
            self.bursts.push(went);
        }
    }

    fn page(&self, info: &RunInfo) -> Page {
        page::page(info, &self.readings, &self.bursts)
    }
}

/// True if the folder is one of `roost stage`.
pub fn is_here(place: &Path) -> bool {
    info(place).is_ok_and(|info| info.name.split_once('-').is_some_and(|(kind, _)| kind == KIND.name))
}

/// Makes the page again from the files, into `to` or its usual place; returns the place, and the
/// last status of the run.
pub fn again(place: &Path, to: Option<&Path>) -> Result<(String, Status)> {
    let mut kept = Kept::default();
    lines(&place.join(READINGS), |reading| kept.reading(reading))?;
    lines(&place.join(COMMANDS), |went| kept.burst(went))?;
    let Some(last) = kept.readings.last() else {
        return Err(usage(format!(
            "{} has no reading: the run ended within its first second\n\nhint: run the command again",
            place.display()
        )));
    };
    let (status, page) = (last.status.clone(), kept.page(&info(place)?));
    let said = match to {
        None => run_folder::write_report(place, &page)?,
        Some(path) => {
            run_folder::write_named(path, "--out", &page.html())?;
            format!("report: {}", path.display())
        }
    };
    Ok((said, status))
}

fn info(place: &Path) -> Result<RunInfo> {
    let path = place.join(INFO);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not as it was written", path.display()))
}

/// Each line of a file; one without an end, which a run that was killed leaves, is none.
fn lines<T: DeserializeOwned>(path: &Path, mut each: impl FnMut(T)) -> Result<()> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| usage(format!("cannot read {}: {cause}", path.display())))?;
    for (number, line) in text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate() {
        each(serde_json::from_str(line).map_err(|problem| {
            usage(format!(
                "{}, line {}: {problem}; correct or delete that line, or run the command again",
                path.display(),
                number + 1
            ))
        })?);
    }
    Ok(())
}

fn file(place: &Path, name: &str) -> Result<BufWriter<File>> {
    run_folder::begin(place, name).map(BufWriter::new)
}

/// A line is whole in the file, or not there, whenever this dies.
fn line(file: &mut BufWriter<File>, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value)?;
    writeln!(file, "{text}").and_then(|()| file.flush()).context("writing the run's folder; free some space")
}

/// The names of its folders, and the file that no other kind's folder has.
const KIND: Kind = Kind { name: "stage", mark: READINGS };
/// More points than these no figure shows.
const KEPT_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_s: f64) -> Reading {
        let proxy = ::proxy::Proxy::start(Config {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            servers: vec![::proxy::Server::at("http://127.0.0.1:1")],
            ..Config::default()
        });
        Reading { at_s, status: proxy.unwrap().status() }
    }

    #[test]
    fn of_very_many_readings_some_are_kept_and_always_the_first_and_the_last() {
        let one = reading(0.0);
        let mut kept = Kept::default();
        for number in 0..5 * KEPT_MAX + 3 {
            kept.reading(Reading { at_s: number as f64, ..one.clone() });
            assert!(kept.readings.len() < KEPT_MAX && kept.readings[0].at_s == 0.0);
            assert_eq!(kept.readings.last().unwrap().at_s, number as f64);
        }
        assert!(kept.readings.len() > KEPT_MAX / 4);
        assert!(kept.readings.is_sorted_by(|one, next| one.at_s < next.at_s));
    }

    #[test]
    fn what_is_written_reads_back_and_half_a_line_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(READINGS);
        let text = serde_json::to_string(&reading(1.5)).unwrap();
        std::fs::write(&path, format!("{text}\n{text}\n{}", &text[..text.len() / 2])).unwrap();
        let mut read: Vec<Reading> = Vec::new();
        lines(&path, |reading| read.push(reading)).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(serde_json::to_string(&read[1]).unwrap(), text);
        std::fs::write(&path, format!("{text}\nnonsense\n")).unwrap();
        let error = lines(&path, |_: Reading| ()).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("delete that line"), "{error}");
    }
}
