//! `roost govern hurry-up`: frequency by the calls of a service's hot function.
//!
//! ```text
//!   options.rs    the arguments
//!   page.rs       the page of a run
//! ```

mod options;
mod page;

pub use options::Args;

use crate::config_file::Written;
use crate::daemon::{Request, View, govern};
use crate::live::{Live, print_line};
use crate::run_folder::Ending;
use ::daemon::hurry_up::Hurry;
use ::daemon::{ControllerReport, Seen, Status};
use anyhow::Result;
use linux::Root;
use machine::Duration;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

const DRAW_EVERY: Duration = Duration::from_millis(100);

pub fn run(args: &Args) -> Result<ExitCode> {
    let root = args.root.clone().map_or_else(Root::system, Root::at);
    let Written { config, whole } = args.configuration(&root)?;
    for table in config.part().tables() {
        table.check().map_err(crate::daemon::refused)?;
    }
    let ending = page::KIND.ending(args.out.as_deref(), args.json)?;
    let view = Hot { json: args.json, live: Live::new(args.json, DRAW_EVERY), ending };
    let names = crate::metrics::Names::default();
    let request = Request {
        config,
        file: None,
        root,
        dry_run: args.dry_run,
        take_over: args.take_over,
        names: &names,
        length: args.length,
        whole,
    };
    govern(request, Arc::new(Mutex::new(view)))
}

/// The threads in the hot function, live, and the page at the end.
struct Hot {
    json: bool,
    live: Live,
    ending: Ending,
}

impl Hot {
    fn show(&mut self, hurry: &Hurry) {
        let now = linux::now();
        let is_due = self.live.is_due(now);
        if self.json {
            print_line(&hurry.status(now));
        } else if is_due {
            self.live.draw(&hurry.status(now).text());
        }
    }
}

impl View for Hot {
    fn say(&mut self, line: &str) {
        self.live.say(line);
    }

    fn seen(&mut self, seen: Seen<'_>, is_last: bool) {
        let Seen::HurryUp(hurry) = seen else { return };
        if !is_last {
            return self.show(hurry);
        }
        self.live.end();
        self.ending.leave(|place, started| page::write(place, started, hurry));
    }

    fn polled(&mut self, _governed: &[Status], controllers: &[ControllerReport]) {
        crate::daemon::show_reports(&mut self.live, self.json, controllers);
    }
}
