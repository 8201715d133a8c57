//! The run's folder while the demo goes on.

use crate::run_folder;
use anyhow::{Context as _, Result};
use report::run::{FRAMES, Frame, RunInfo, SUMMARY, Summary};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    frames: File,
}

impl Recorder {
    /// Makes the folder, with its parents, and writes `run.toml`. A folder that is there already
    /// loses the frames, summary and report of the run before, so that no report mixes two runs.
    pub fn begin(folder: &Path, info: &RunInfo) -> Result<Self> {
        run_folder::create(folder)?;
        run_folder::clear(folder, &[SUMMARY])?;
        run_folder::write_info(folder, info)?;
        Ok(Self { folder: folder.to_owned(), frames: run_folder::begin(folder, FRAMES)? })
    }

    /// Appends one moment. Each line reaches the system at once, so that a run that dies leaves its
    /// lines.
    pub fn frame(&mut self, frame: &Frame) -> Result<()> {
        let line = serde_json::to_string(frame)? + "\n";
        let written = self.frames.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write {}", self.folder.join(FRAMES).display()))
    }

    pub fn summary(&self, summary: &Summary) -> Result<()> {
        let text = serde_json::to_string_pretty(summary)?;
        run_folder::write(&self.folder, SUMMARY, |file| writeln!(file, "{text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::run::{Machine, Run};

    #[test]
    fn a_new_run_in_an_old_folder_keeps_nothing_of_the_old() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep/within");
        let info = RunInfo {
            format: RunInfo::FORMAT,
            name: "a".to_owned(),
            title: "A run".to_owned(),
            command: vec!["roost".to_owned()],
            version: "0".to_owned(),
            started: report::run::utc(0),
            method: Vec::new(),
            machine: Machine::default(),
            config: toml::Table::new(),
        };
        let mut recorder = Recorder::begin(&folder, &info).unwrap();
        let frame = Frame { phase: "a".to_owned(), ..Frame::default() };
        recorder.frame(&frame).unwrap();
        recorder.summary(&Summary::default()).unwrap();
        let read = Run::read(&folder).unwrap();
        run_folder::write_report(&folder, &read.page()).unwrap();
        assert_eq!((read.frames, read.summary), (vec![frame], Some(Summary::default())));
        Recorder::begin(&folder, &info).unwrap();
        let read = Run::read(&folder).unwrap();
        assert!(read.frames.is_empty() && read.summary.is_none());
        assert!(!folder.join(run_folder::REPORT).exists());
    }
}
