//! `roost quiesce`: background work stands still while what matters waits.
//!
//! ```text
//!   options.rs    what is asked for
//!   page.rs       the page of a run
//!   text.rs       how things stand, for a person
//! ```

mod options;
mod page;
mod text;

pub use options::Args;

use crate::exit::{Exit, coded, usage};
use crate::live::{Live, print_line};
use crate::metrics::quiesce::Board;
use crate::signals::EndSignals;
use crate::thinned::Thinned;
use anyhow::{Context as _, Result};
use daemon::quiesce::{Ending, Quiesce, QuiesceError, QuiesceStatus};
use linux::freezer::FreezerError;
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
    let until = args.length.map(|length| linux::now() + length);
    let mut view = View::new(args.json, served.map(|(_, board)| board));
    let freeze = || {
        if args.realtime {
            match linux::run_at_once() {
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
    let last = quiesce.status(linux::now());
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
        let now = linux::now();
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
            self.live.draw(&text::of(&quiesce.status(now)));
        }
    }

    fn end(&mut self, last: &QuiesceStatus) {
        if self.json {
            print_line(last);
        } else {
            self.live.draw(&text::of(last));
        }
    }
}

#[cfg(test)]
mod tests {
    use daemon::quiesce::{BackgroundStatus, CriticalStatus, EnergyStatus, PayoffStatus, QuiesceStatus};
    use linux::freezer::FreezerWay;
    use machine::{CpuId, CpuList, LengthHistogram};
    use policy::quiescence::{Outlook, Reason, Record};

    /// After a trial that found that freezing does not pay.
    pub fn status() -> QuiesceStatus {
        let background = BackgroundStatus {
            unit: "updater.service".to_owned(),
            name: "updater.service".to_owned(),
            way: FreezerWay::V2,
            processes: 12,
            is_frozen: false,
            freezes: 123_456,
            frozen_s: 1234.5,
            frozen_share: 0.75,
            longest_ms: 250.0,
            unconfirmed: 0,
            foreign: 0,
            gone: 0,
            cost_us: Some(31.0),
            spared: None,
        };
        QuiesceStatus {
            at_ms: 123_456_789.0,
            outlook: Outlook::LeftOff,
            is_dry: false,
            trigger: None,
            critical: vec![CriticalStatus {
                unit: "4711".to_owned(),
                name: "search".to_owned(),
                processes: 3,
            }],
            background: vec![background],
            domain: "all".to_owned(),
            cpus: CpuList([CpuId(0), CpuId(1)].into()),
            all_idle_s: 5.0,
            all_idle_share: 0.598,
            all_idle_times: 12_345_678,
            all_idle: LengthHistogram::default(),
            cost_us: 123.4,
            cost_is_measured: true,
            min_wait_us: 2468.0,
            thaw_us: Some([12.0, 345.0, 6789.0]),
            record: Record::default(),
            payoff: PayoffStatus {
                pays: Some(false),
                is_trying: false,
                gain: Some(0.201),
                gain_at_most: Some(0.4),
                why: Some(Reason::Longer),
                slowdown: Some(0.0),
                cycle: Some(1.623),
                cycle_at_most: Some(1.701),
                wait: Some(1.711),
                wait_at_most: Some(1.8),
                tail: Some(1.6),
                cycles: [256, 128],
                pairs: 12,
                trials: 1,
                again_s: Some(59.6),
            },
            energy: EnergyStatus { source: "modelled".to_owned(), watts_without: None, watts_with: None },
            requests: 0,
            looks: 7,
            rings: 7,
            lost: 0,
            sites: Vec::new(),
            graph: Vec::new(),
        }
    }
}
