//! The live view of a governed service, and its page at the end.

use super::history::History;
use super::options::GovernArgs;
use super::page;
use super::trace::ServiceTrace;
use crate::daemon::{Epochs, View};
use crate::run_folder::Ending;
use ::daemon::{ControllerReport, Governed, Status};
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Epochs as lines, and kept for the page.
pub struct Services {
    epochs: Epochs,
    told: BTreeSet<(String, String)>,
    ending: Ending,
    history: Option<History>,
    trace: Option<ServiceTrace>,
    is_lease: bool,
}

impl Services {
    /// Nothing has been seen yet. A folder that cannot be made is told now.
    pub fn begin(args: &GovernArgs) -> Result<Self> {
        let ending = page::KIND.ending(args.out.as_deref(), args.json)?;
        let history = ending.is_wanted().then(|| History::begin(linux::now()));
        let open = |path: &PathBuf| {
            ServiceTrace::create(path, linux::now()).map_err(|error| crate::exit::usage(format!("{error:#}")))
        };
        let trace = args.perfetto.as_ref().map(open).transpose()?;
        Ok(Self {
            epochs: Epochs { json: args.json },
            told: BTreeSet::new(),
            ending,
            history,
            trace,
            is_lease: false,
        })
    }

    /// How a service is kept on its CPUs, the first time that it is seen and whenever that changes.
    fn actuator(&mut self, status: &Status) {
        let line = match &status.actuator {
            Some(actuator) => format!("{}: kept on its CPUs by {actuator}", status.name),
            None => format!("{}: watched only; nothing is touched", status.name),
        };
        if self.told.insert((status.name.clone(), line.clone())) {
            self.say(&line);
        }
    }
}

impl View for Services {
    fn say(&mut self, line: &str) {
        self.epochs.say(line);
    }

    fn epoch(&mut self, governed: &Governed) {
        if let Some(history) = &mut self.history {
            history.take(linux::now(), governed);
        }
        if let Some(trace) = &mut self.trace {
            trace.take(linux::now(), governed, true);
        }
        self.actuator(&governed.status());
        self.epochs.epoch(governed);
    }

    fn polled(&mut self, governed: &[Status], controllers: &[ControllerReport]) {
        self.is_lease = true;
        governed.iter().for_each(|status| self.actuator(status));
        self.epochs.polled(governed, controllers);
    }

    fn end(&mut self) {
        self.epochs.end();
        if let Some(trace) = self.trace.take() {
            eprintln!("{}", trace.end());
        }
        if let Some(history) = self.history.take().filter(|history| !history.is_empty()) {
            self.ending.leave(|place, started| page::write(place, started, &history));
        }
    }
}
