//! Governs until it is told to stop.

use super::history::History;
use super::options::Governing;
use super::page;
use crate::exit::{Exit, coded, usage};
use crate::live::{is_watched, print_line};
use crate::metrics;
use crate::print::over;
use crate::signals::EndSignals;
use anyhow::Result;
use daemon::{Config, Daemon, Event, Governed, OpenError, Options, StartError};
use linux::{Contested, FrequencyError, Gaps, HotplugError, LockError, Root, rivals};
use policy::governing::{FrequencyMode, IdleMode, Mode};
use sd_notify::NotifyState;
use signal_hook::consts::SIGHUP;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

/// Does it.
pub fn run(args: &Governing) -> Result<ExitCode> {
    let config = args.configuration()?;
    if args.print_config {
        crate::table::print(&toml::to_string(&config)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = crate::run_folder::started()?;
    let keeps = args.out.is_some() || (args.names_a_service() && !args.json);
    let place = keeps.then(|| page::KIND.place(args.out.as_deref(), &started)).transpose()?;
    let root = args.root.clone().map_or_else(Root::system, Root::at);
    if !args.dry_run && !args.take_over {
        stand_back(&root, &config)?;
    }
    // Before anything is held: a signal that comes meanwhile must not end this without putting things back.
    let (sender, events) = channel();
    hear_signals(sender.clone())?;
    let file = (!args.names_a_service()).then(|| args.config.clone());
    let strict = args.names_a_service();
    let is_empty = config.services.is_empty();
    let board = config.metrics.map(|address| metrics::govern::serve(address, &args.names)).transpose()?;
    if let Some((address, _)) = &board {
        eprintln!("metrics on http://{address}/metrics");
    }
    super::plan::warn_of_nothing(&config);
    let options = Options { root: root.clone(), config, file, dry_run: args.dry_run, strict };
    let mut daemon = Daemon::start(options, say).map_err(refused)?;
    if !args.dry_run && !args.take_over {
        daemon.object(move |config| stand_back(&root, config).err().map(|error| format!("{error:#}")));
    }
    daemon.hear_alarms(sender.clone());
    daemon.listen(move |ask, reply| sender.send(Event::Ask(ask, reply)).is_ok()).map_err(refused)?;
    if is_empty {
        eprintln!(
            "no service is configured, so nothing is governed\nhint: see config/roost.toml, or name one: roost govern --port 11211 --goal 500us@p99"
        );
    }
    ready();
    if let Some(patience) = sd_notify::watchdog_enabled() {
        // Two may come late or be lost.
        daemon.keep_alive((patience / 3).into(), || {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        });
    }
    let until = args.length.map(|length| linux::now() + length);
    let live = is_watched() && !args.json;
    let mut told = BTreeSet::new();
    let mut history = place.as_ref().map(|_| History::begin(linux::now()));
    let lines = daemon.run(&events, until, |governed| {
        if let Some((_, board)) = &board {
            board.take(governed.status());
        }
        if let Some(history) = &mut history {
            history.take(linux::now(), governed);
        }
        if let Some(line) = by_what(governed, &mut told) {
            say(&line);
        }
        show(governed, args.json, live && is_watched());
    });
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    if live {
        println!();
    }
    lines.iter().for_each(|line| eprintln!("{line}"));
    if let (Some(history), Some(place)) = (history.filter(|history| !history.is_empty()), place) {
        // What was governed was governed well: a full disk makes no failure of that.
        match page::write(&place, started, &history) {
            Ok(where_it_is) => eprintln!("{where_it_is}"),
            Err(error) => eprintln!("no page was written: {error:#}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses beside a program that sets the same knobs: two that correct each other help nobody.
fn stand_back(root: &Root, config: &Config) -> Result<()> {
    let mut wanted = vec![Contested::Cpus];
    if config.services.iter().any(|service| service.idle.any(|mode| mode != IdleMode::Stock)) {
        wanted.push(Contested::Idle);
    }
    if config.services.iter().any(|service| service.frequency != FrequencyMode::Stock) {
        wanted.push(Contested::Frequency);
    }
    if config.services.is_empty() {
        return Ok(());
    }
    stand_back_from(root, &wanted)
}

/// The same for who sets clocks and nothing else.
pub fn stand_back_from_clocks(root: &Root) -> Result<()> {
    stand_back_from(root, &[Contested::Frequency])
}

fn stand_back_from(root: &Root, wanted: &[Contested]) -> Result<()> {
    let found = rivals(root, &mut Gaps::default());
    let Some(rival) = found.iter().find(|rival| rival.contests.iter().any(|knob| wanted.contains(knob)))
    else {
        return Ok(());
    };
    Err(coded(
        Exit::Refused,
        format!(
            "{} (process {}) runs here and sets {}\nhint: stop it, or govern beside it with --take-over",
            rival.program.name, rival.program.pid, rival.sets
        ),
    ))
}

/// SIGHUP reads the configuration again, all others end it.
fn hear_signals(sender: Sender<Event>) -> Result<()> {
    EndSignals::watch_and_reload()?.call_with(move |signal| {
        let event = if signal == SIGHUP { Event::Reload } else { Event::Stop };
        // The daemon may have ended by itself.
        let _ = sender.send(event);
    })
}

/// Tells systemd, where it waits for that.
fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// Which exit code a refusal to start has.
pub fn refused(error: StartError) -> anyhow::Error {
    match &error {
        StartError::Service(OpenError::Blind { .. } | OpenError::Clocks { .. })
        | StartError::NoClocks { .. }
        | StartError::Clocks(FrequencyError::Unsupported { .. } | FrequencyError::Lacking { .. }) => {
            coded(Exit::Unsupported, error)
        }
        StartError::Clocks(FrequencyError::MsrNotAllowed) => usage(error),
        StartError::Clocks(FrequencyError::Lock(_)) => coded(Exit::Refused, error),
        StartError::Service(
            OpenError::Service(_)
            | OpenError::NoCpu { .. }
            | OpenError::Record { .. }
            | OpenError::Unheard { .. },
        ) => usage(error),
        // A user who may not keep locks, or not see the service's processes: root may.
        StartError::Service(OpenError::Confine(linux::ConfineError::Unavailable(lock)))
            if lock.is_refusal() =>
        {
            coded(Exit::Refused, error)
        }
        StartError::Held(LockError::Unavailable { .. })
        | StartError::Service(OpenError::Confine(
            linux::ConfineError::NoProcess { .. }
            | linux::ConfineError::Unavailable(LockError::Unavailable { .. }),
        )) => coded(Exit::Unsupported, error),
        StartError::Hotplug(
            HotplugError::Unsupported(_) | HotplugError::Lock(LockError::Unavailable { .. }),
        ) => coded(Exit::Unsupported, error),
        StartError::Held(_)
        | StartError::Hotplug(HotplugError::Lock(_))
        | StartError::Service(OpenError::Confine(linux::ConfineError::Held { .. })) => {
            coded(Exit::Refused, error)
        }
        StartError::Service(OpenError::Confine(linux::ConfineError::Unsupported { .. })) => {
            coded(Exit::Unsupported, error)
        }
        StartError::Control(_) | StartError::Audit { .. } => usage(error),
        StartError::Service(OpenError::Confine(_)) => coded(Exit::Failed, error),
    }
}

/// A line that stays, below the epoch's line and not in it.
fn say(line: &str) {
    if DRAWN.swap(false, Ordering::Relaxed) {
        println!();
    }
    eprintln!("{line}");
}

/// An epoch's line stands on the terminal and has no end yet.
static DRAWN: AtomicBool = AtomicBool::new(false);

/// By what a service is kept on its CPUs, the first time that it is seen and whenever that changes.
fn by_what(governed: &Governed, told: &mut BTreeSet<(String, String)>) -> Option<String> {
    let status = governed.status();
    let line = match &status.actuator {
        Some(actuator) => format!("{}: kept on its CPUs by {actuator}", status.name),
        None => format!("{}: watched only; nothing is touched", status.name),
    };
    told.insert((status.name, line.clone())).then_some(line)
}

/// An epoch of a service.
fn show(governed: &Governed, json: bool, live: bool) {
    let status = governed.status();
    if json {
        print_line(&status);
    } else if live {
        let rate = status
            .service
            .rate
            .map_or_else(|| "-".to_owned(), |rate| format!("{:.0}/s", rate.as_per_second()));
        let tail = status.service.tail.or(status.service.p95);
        let tail = tail.map_or_else(|| "-".to_owned(), |tail| tail.to_string());
        let (active, all) = status.cores;
        let mode = match status.mode {
            Mode::Searching => "",
            Mode::Open { .. } => " OPEN",
            Mode::Paused => " paused",
        };
        let name = &status.name;
        let line =
            format!("{name}: {rate}, tail {tail}, {active} of {all} cores (CPU {}){mode}", status.cpus);
        over(std::io::stdout(), &line);
        DRAWN.store(true, Ordering::Relaxed);
    }
}
