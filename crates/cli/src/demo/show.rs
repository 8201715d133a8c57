//! The demo's outputs during the run and after it: the terminal or plain lines, the run's folder.

use super::recorder::Recorder;
use super::{Args, Treatment};
use crate::run_folder::{REPORT, write_report};
use anyhow::{Context as _, Result};
use machine::Duration;
use report::run::{Frame, Phase, Run, RunInfo, Summary};
use report::terminal::{DemoView, Planned, Screen, Wish};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Plain progress is printed for every so manyth frame.
const PLAIN_EVERY: usize = 10;

pub struct Show {
    title: String,
    plan: Vec<Planned>,
    frames: Vec<Frame>,
    summary: Summary,
    recorder: Recorder,
    screen: Option<Screen>,
    /// Set when the reader or a signal wants the end.
    stopped: Arc<AtomicBool>,
    /// The files that could not be written, said once at the end.
    trouble: Option<String>,
}

impl Show {
    /// Makes the folder, takes the terminal.
    pub fn begin(
        args: &Args,
        info: RunInfo,
        folder: &Path,
        treatments: &[Treatment],
        stopped: Arc<AtomicBool>,
    ) -> Result<Self> {
        let recorder = Recorder::begin(folder, &info)?;
        let title = info.title.clone();
        let plan = treatments
            .iter()
            .map(|treatment| Planned {
                name: treatment.name.to_owned(),
                what: treatment.what.to_owned(),
                length: args.phase_length,
            })
            .collect();
        let on_terminal = std::io::stdout().is_terminal() && !args.json;
        let screen = on_terminal
            .then(Screen::open)
            .transpose()
            .context("cannot draw on this terminal; pipe the output through `cat`")?;
        Ok(Self {
            title,
            plan,
            frames: Vec::new(),
            summary: Summary::default(),
            recorder,
            screen,
            stopped,
            trouble: None,
        })
    }

    /// Whether it is to end now.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub fn frame(&mut self, frame: Frame) {
        if let Err(error) = self.recorder.frame(&frame) {
            self.trouble.get_or_insert_with(|| error.to_string());
        }
        self.frames.push(frame);
        let view = DemoView {
            title: &self.title,
            plan: &self.plan,
            frames: &self.frames,
            summary: &self.summary,
            hint: "q quits",
        };
        match &mut self.screen {
            Some(screen) => {
                let drawn = screen.draw(|area| view.draw(area));
                if drawn.is_err() || matches!(screen.wish(Duration::ZERO), Ok(Wish::Quit)) {
                    self.stopped.store(true, Ordering::Relaxed);
                }
            }
            None if self.frames.len() % PLAIN_EVERY == 1 => eprintln!("{}", view.progress_line()),
            None => {}
        }
    }

    pub fn phase_over(&mut self, phase: Phase) {
        self.summary.phases.push(phase);
    }

    /// Gives the terminal back, and writes summary and report: the phases, and the findings.
    pub fn end(mut self, folder: &Path, found: Summary) -> Result<(Summary, PathBuf)> {
        drop(self.screen.take());
        self.summary = Summary { phases: std::mem::take(&mut self.summary.phases), ..found };
        self.recorder.summary(&self.summary)?;
        let run = Run::read(folder)?;
        write_report(folder, &run.page())?;
        let page = folder.join(REPORT);
        if let Some(trouble) = self.trouble.take() {
            eprintln!("roost demo: {trouble}");
        }
        Ok((std::mem::take(&mut self.summary), page))
    }
}
