//! `roost quiesce`: background work stands still while what matters waits.
//!
//! ```text
//!   options.rs    what is asked for
//!   page.rs       the page of a run
//! ```

mod options;
mod page;

pub use options::Args;

use crate::exit::{Exit, coded, usage};
use crate::live::{Live, print_line};
use crate::metrics::quiesce::Board;
use crate::signals::EndSignals;
use crate::thinned::Thinned;
use anyhow::{Context as _, Result};
use governor::quiesce::{Ending, Quiesce, QuiesceError, QuiesceStatus};
use host::freezer::FreezerError;
use machine::{Duration, Instant};
use std::process::ExitCode;

/// A person reads no faster.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// A line of JSON, a point of the page's figures, and what Prometheus is shown.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let options = args.options()?;
    let started = crate::run_folder::started()?;
    let place = (args.out.is_some() || !args.json)
        .then(|| page::KIND.place(args.out.as_deref(), &started))
        .transpose()?;
    // Before anything is held: a signal that comes meanwhile must not end this without thawing.
    let signals = EndSignals::watch()?;
    let mut quiesce = Quiesce::open(options).map_err(refused)?;
    let stop = quiesce.stop();
    signals.call(move || stop.now())?;
    let served =
        args.metrics.map(|address| crate::metrics::quiesce::serve(address, &args.names)).transpose()?;
    if let Some((address, _)) = &served {
        eprintln!("metrics on http://{address}/metrics");
    }
    let until = args.length.map(|length| host::now() + length);
    let mut view = View::new(args.json, served.map(|(_, board)| board));
    let freeze = || {
        if args.realtime {
            match host::run_at_once() {
                Ok(()) => eprintln!("runs at real-time priority 1, at most 100 ms at a stretch"),
                Err(error) => eprintln!("runs as an ordinary thread: {error}"),
            }
        }
        quiesce.run(until, |quiesce| {
            quiesce.drain_notices().iter().for_each(|notice| view.live.say(notice));
            view.show(quiesce);
        })
    };
    // A thread of its own: what comes after, the page above all, is in no hurry.
    let ending = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("quiesce".to_owned()).spawn_scoped(scope, freeze);
        thread.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let ending = ending.context("cannot start a thread")?;
    let last = quiesce.status(host::now());
    let lines = quiesce.release();
    view.end(&last);
    quiesce.drain_notices().iter().chain(&lines).for_each(|line| eprintln!("{line}"));
    if let Some(place) = place {
        // What was done was done well: a full disk makes no failure of that.
        match page::write(&place, started, last, view.samples) {
            Ok(where_it_is) => eprintln!("{where_it_is}"),
            Err(error) => eprintln!("no page was written: {error:#}"),
        }
    }
    match ending {
        Ok(Ending::Stopped) => Ok(ExitCode::SUCCESS),
        Ok(Ending::CriticalEnded) => {
            Err(coded(Exit::Failed, "no critical process is left; everything goes on"))
        }
        Err(error) => Err(coded(Exit::Failed, format!("{error}; everything goes on"))),
    }
}

fn refused(error: QuiesceError) -> anyhow::Error {
    match &error {
        QuiesceError::Freezer(FreezerError::NotOurs { .. } | FreezerError::Held { .. }) => {
            coded(Exit::Refused, error)
        }
        QuiesceError::Freezer(FreezerError::Unavailable(lock)) if lock.is_refusal() => {
            coded(Exit::Refused, error)
        }
        QuiesceError::Blind(_)
        | QuiesceError::Watch(_)
        | QuiesceError::Freezer(
            FreezerError::Unavailable(_)
            | FreezerError::File(_)
            | FreezerError::Journal(_)
            | FreezerError::NoWay { .. },
        ) => coded(Exit::Unsupported, error),
        QuiesceError::Freezer(FreezerError::Unknown(_) | FreezerError::Critical { .. })
        | QuiesceError::Domain { .. }
        | QuiesceError::Trigger { .. }
        | QuiesceError::Record { .. } => usage(error),
    }
}

/// What a person sees meanwhile, or a program, or Prometheus.
struct View {
    json: bool,
    live: Live,
    sampled: Instant,
    board: Option<Board>,
    samples: Thinned<page::Sample>,
}

impl View {
    fn new(json: bool, board: Option<Board>) -> Self {
        let (live, samples) = (Live::new(json, DRAW_EVERY), Thinned::new(page::SAMPLES_MAX));
        Self { json, live, sampled: Instant::ZERO, board, samples }
    }

    fn show(&mut self, quiesce: &Quiesce) {
        let now = host::now();
        if now >= self.sampled + SAMPLE_EVERY {
            self.sampled = now;
            let status = quiesce.status(now);
            if self.json {
                print_line(&status);
            }
            self.samples.add(|| page::Sample::of(&status));
            if let Some(board) = &self.board {
                board.take(status);
            }
        }
        if self.live.is_due(now) {
            self.live.draw(&quiesce.status(now).text());
        }
    }

    fn end(&mut self, last: &QuiesceStatus) {
        if self.json {
            print_line(last);
        } else {
            self.live.draw(&last.text());
        }
    }
}
