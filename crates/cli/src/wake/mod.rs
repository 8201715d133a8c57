//! `roost wake`: anticipatory wake-ups on a live machine.
//!
//! ```text
//!   options.rs   the options
//!   at.rs        a request from the shell
//!   http.rs      remote callers over HTTP, and the page of metrics
//!   page.rs      the page of a run
//! ```

mod at;
mod http;
mod options;
pub mod page;

pub use http::Remote;

use crate::config_file::Written;
use crate::daemon::{Request, View, govern};
use crate::exit::usage;
use crate::live::Live;
use crate::run_folder::Ending;
use ::daemon::wake::{Calibration, WakeError, WakeStatus};
use ::daemon::{ControllerReport, Seen};
use anyhow::Result;
use clap::Subcommand;
use linux::Root;
use linux::arbiter::Arbiter;
use linux::probes::AlarmProgram;
use machine::Duration;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Wake CPUs just before the event that needs them: the planner, and its clients
///
/// Programs say when a CPU will be needed (over shared memory, a Unix socket, UDP or HTTP); the
/// planner wakes it that much earlier as waking was measured to take, keeps it from sleeping until
/// the event came or its window is over, and says who pays. Idle limits are journalled first and
/// put back at the end, in whatever way that comes; after a SIGKILL `roost restore` does it.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = include_str!("../../help/wake.txt")
)]
pub struct Args {
    #[command(subcommand)]
    client: Option<Client>,
    #[command(flatten)]
    options: options::Options,
}

#[derive(Subcommand)]
enum Client {
    At(at::At),
}

const DRAW_EVERY: Duration = Duration::from_millis(500);

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(Client::At(at)) = &args.client {
        return at::at(at);
    }
    let options = &args.options;
    if options.calibrate {
        return calibrate(options);
    }
    let Written { config, whole } = options.configuration()?;
    let wake = config.wake.clone().unwrap_or_default();
    // A wrong option is an error before any measurement.
    wake.options().map_err(crate::daemon::refused)?;
    let measures = wake.exit_latency.is_none();
    let ending = page::KIND.ending(options.out.as_deref(), options.json)?;
    if measures {
        eprintln!("measuring what waking takes: four seconds");
    }
    let view = Windows {
        json: options.json,
        live: Live::new(options.json, DRAW_EVERY),
        history: page::History::default(),
        ending,
    };
    let request = Request {
        config,
        file: None,
        root: Root::system(),
        dry_run: false,
        take_over: false,
        names: &options.names,
        length: options.length,
        whole,
    };
    govern(request, Arc::new(Mutex::new(view)))
}

/// The planner, live, and the page at the end.
struct Windows {
    json: bool,
    live: Live,
    history: page::History,
    ending: Ending,
}

impl Windows {
    fn end(&mut self, last: &WakeStatus) {
        self.live.end();
        if self.json {
            if let Err(error) = crate::json::print(1, last) {
                eprintln!("{error:#}");
            }
        } else if !self.live.is_live() {
            print!("{}", last.text());
        }
        self.ending.leave(|place, started| page::write(place, started, last, &self.history));
    }
}

impl View for Windows {
    fn say(&mut self, line: &str) {
        self.live.say(line);
    }

    fn seen(&mut self, seen: Seen<'_>, is_last: bool) {
        let Seen::Wake(handle) = seen else { return };
        let status = handle.status();
        if is_last {
            return self.end(&status);
        }
        self.history.add(&status);
        if self.live.is_due(linux::now()) {
            self.live.draw(&status.text());
        }
    }

    fn polled(&mut self, _governed: &[::daemon::Status], controllers: &[ControllerReport]) {
        crate::daemon::show_reports(&mut self.live, self.json, controllers);
    }
}

fn calibrate(options: &options::Options) -> Result<ExitCode> {
    let wake = options.configuration()?.config.wake.unwrap_or_default();
    let wake = wake.options().map_err(crate::daemon::refused)?;
    crate::signals::put_back_at_end(std::path::Path::new("/proc/self/exe"))?;
    let limits = Arbiter::new(&Root::system(), "roost wake --calibrate").idle;
    limits.hold("wake", &wake.cpus).map_err(|error| crate::daemon::refused(WakeError::from(error).into()))?;
    let alarms = AlarmProgram::load();
    if let Err(error) = &alarms {
        eprintln!("timers that the kernel sets are left out: {error}");
    }
    let found = Calibration::measure(&wake.cpus, &limits, alarms.as_ref().ok(), &AtomicBool::new(false))
        .map_err(usage)?;
    if options.json {
        crate::json::print(1, &found)?;
    } else {
        print!("{}", found.text());
    }
    Ok(ExitCode::SUCCESS)
}
