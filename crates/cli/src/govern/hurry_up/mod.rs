//! `roost govern hurry-up`: clocks by who is in a service's hot function.
//!
//! ```text
//!   options.rs    what is asked for
//!   page.rs       the page of a run
//! ```

mod options;
mod page;

pub use options::Args;

use super::daemon::stand_back_from_clocks;
use crate::exit::{Exit, coded, usage};
use crate::live::{Live, print_line};
use crate::signals::EndSignals;
use ::observe::functions::FunctionError;
use anyhow::{Context as _, Result};
use daemon::hurry_up::{Ending, Hurry, HurryError};
use linux::{FrequencyError, Root};
use machine::Duration;
use std::process::ExitCode;

/// A person reads no faster.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let options = args.options()?;
    let started = crate::run_folder::started()?;
    let place = (args.out.is_some() || !args.json)
        .then(|| page::KIND.place(args.out.as_deref(), &started))
        .transpose()?;
    if !args.dry_run && !args.take_over {
        stand_back_from_clocks(&Root::system())?;
    }
    // Before anything is held: a signal that comes meanwhile must not end this without putting things back.
    let signals = EndSignals::watch()?;
    let mut hurry = Hurry::open(&options).map_err(refused)?;
    let stop = hurry.stop();
    signals.call(move || stop.now())?;
    let clocks = hurry.clocks();
    eprintln!("clocks: {} idle, {} at work, {} for heavy calls", clocks[0], clocks[1], clocks[2]);
    let until = args.length.map(|length| linux::now() + length);
    let mut view = View::new(args.json);
    let govern = || {
        if args.realtime {
            match linux::run_at_once() {
                Ok(()) => eprintln!("runs at real-time priority 1, at most 100 ms at a stretch"),
                Err(error) => eprintln!("runs as an ordinary thread: {error}"),
            }
        }
        hurry.run(until, |hurry| {
            hurry.drain_notices().iter().for_each(|notice| view.live.say(notice));
            view.show(hurry);
        })
    };
    // A thread of its own: what comes after, the page above all, is in no hurry.
    let ending = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("hurry-up".to_owned()).spawn_scoped(scope, govern);
        thread.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let ending = ending.context("cannot start a thread")?;
    let lines = hurry.release();
    view.live.end();
    hurry.drain_notices().iter().chain(&lines).for_each(|line| eprintln!("{line}"));
    if let Some(place) = place {
        // What was governed was governed well: a full disk makes no failure of that.
        match page::write(&place, started, &hurry) {
            Ok(where_it_is) => eprintln!("{where_it_is}"),
            Err(error) => eprintln!("no page was written: {error:#}"),
        }
    }
    ended(ending)
}

/// What the end means for who started it.
fn ended(ending: Result<Ending, HurryError>) -> Result<ExitCode> {
    match ending {
        Ok(Ending::Stopped) => Ok(ExitCode::SUCCESS),
        Ok(Ending::ServiceEnded { inside: 0 }) => {
            eprintln!("the service has ended; the clocks are as they were");
            Ok(ExitCode::SUCCESS)
        }
        Ok(Ending::ServiceEnded { inside }) => Err(coded(
            Exit::Failed,
            format!(
                "the service died with {inside} of its threads in the hot function; the clocks are as they were"
            ),
        )),
        Ok(Ending::Contested { what }) => Err(coded(
            Exit::Refused,
            format!(
                "somebody else sets these clocks: {what}\nhint: stop it, or leave it these CPUs with --cpus; theirs stays in force"
            ),
        )),
        Err(error) => Err(coded(Exit::Failed, format!("{error}; the clocks are as they were"))),
    }
}

fn refused(error: HurryError) -> anyhow::Error {
    match &error {
        HurryError::NoClocks(_)
        | HurryError::Clocks(FrequencyError::Unsupported { .. } | FrequencyError::Lacking { .. }) => {
            coded(Exit::Unsupported, error)
        }
        HurryError::Clocks(FrequencyError::Lock(linux::LockError::Unavailable { .. }))
        | HurryError::Watch { .. }
        | HurryError::Functions(FunctionError::Bpf(_)) => coded(Exit::Unsupported, error),
        HurryError::Clocks(FrequencyError::Lock(_)) => coded(Exit::Refused, error),
        _ => usage(error),
    }
}

/// What a person sees meanwhile, or a program.
struct View {
    json: bool,
    live: Live,
}

impl View {
    fn new(json: bool) -> Self {
        Self { json, live: Live::new(json, DRAW_EVERY) }
    }

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
