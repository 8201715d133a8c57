//! `roost wake`: anticipatory wake-ups on a live machine.
//!
//! ```text
//!   options.rs   what is asked for
//!   at.rs        a request from the shell, and the status of a running planner
//!   http.rs      remote callers over HTTP, and the page of metrics
//!   page.rs      the page of a run
//! ```

mod at;
mod http;
mod options;
mod page;

pub use options::{ActName, AlarmName};

use crate::exit::{Exit, coded, usage};
use crate::live::Live;
use crate::signals::EndSignals;
use anyhow::Result;
use clap::Subcommand;
use daemon::wake::{Calibration, WakeDaemon, WakeError};
use linux::bpf::AlarmProgram;
use linux::holder::IdleHolder;
use linux::{IdleActuator, Root};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};

/// Wake CPUs just before the event that needs them: the planner, and its clients
///
/// Programs say when a CPU will be needed (over shared memory, a Unix socket, UDP or HTTP); the planner wakes it that much earlier as waking
/// was measured to take, keeps it from sleeping until the event came or its window is over, and says who pays. Idle limits are journalled first and put
/// back at the end, in whatever way that comes; after a SIGKILL `roost restore` does it.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  roost wake                                                      plan for all CPUs; callers connect to /run/roost/wake.sock
  roost wake --calibrate                                          what waking takes here, and by what CPUs are best kept awake
  roost wake --udp 127.0.0.1:7800 --http 127.0.0.1:7801 --token-file /etc/roost/wake.token --remote-cpus 1
  roost wake at --cpus 1 --in 400us --stay 1ms                    from the shell: CPU 1 shall be ready then
  roost wake status                                               who asked, who paid, what was late
  echo '{\"wake\":{\"cpus\":\"1\",\"in\":\"400us\",\"stay\":\"1ms\"}}' | nc -U /run/roost/wake.sock      from anything

Clients: include/roost_wake.h (C, C++), crate slots (Rust), a line of JSON over the socket (all others; docs/formats.md).

Exit codes: 0 it was told to stop, 2 something named is wrong, 3 no CPU can be kept awake here, 4 somebody else holds the knob and shares it not."
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
    Status(at::Status),
}

/// A person reads no faster.
const DRAW_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.client {
        Some(Client::At(at)) => return at::at(at),
        Some(Client::Status(status)) => return at::status(status),
        None => {}
    }
    let options = &args.options;
    if options.calibrate {
        return calibrate(options);
    }
    let wake = options.options()?;
    let started = crate::run_folder::started()?;
    let place = (options.out.is_some() || !options.json)
        .then(|| page::place(options.out.as_deref(), &started))
        .transpose()?;
    // Before anything is held: a signal that comes meanwhile must not end this without putting things back.
    let signals = EndSignals::watch()?;
    if wake.exit_latency.is_none() {
        eprintln!("measuring what waking takes: four seconds");
    }
    let (mut daemon, notices) = WakeDaemon::open(&wake).map_err(refused)?;
    notices.iter().for_each(|notice| eprintln!("{notice}"));
    let handle = daemon.handle();
    let addresses = http::serve(options, &handle)?;
    addresses.iter().for_each(|line| eprintln!("{line}"));
    if let Some(address) = daemon.udp_address() {
        eprintln!("datagrams at {address}");
    }
    let (sender, signal) = channel();
    signals.call(move || {
        let _ = sender.send(());
    })?;
    eprint!("{}", handle.status().calibration.text());
    eprintln!("listening at {}", wake.socket.display());
    sd_notify::notify(&[sd_notify::NotifyState::Ready]).ok();
    let until = options.length.map(|length| linux::now() + length);
    let mut view = Live::new(options.json, DRAW_EVERY.into());
    let mut history = page::History::default();
    loop {
        let left = until.map_or(DRAW_EVERY, |until| DRAW_EVERY.min(until.since(linux::now()).into()));
        match signal.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) if until.is_none_or(|until| linux::now() < until) => {}
            _ => break,
        }
        daemon.look_after().iter().for_each(|notice| view.say(notice));
        let status = handle.status();
        history.add(&status);
        if view.is_due(linux::now()) {
            view.draw(&status.text());
        }
    }
    let last = handle.status();
    drop(daemon);
    view.end();
    if options.json {
        println!("{}", serde_json::to_string(&last)?);
    } else if !view.is_live() {
        print!("{}", last.text());
    }
    if let Some(place) = place {
        match page::write(&place, started, &last, &history) {
            Ok(where_it_is) => eprintln!("{where_it_is}"),
            // What was planned was planned well: a full disk makes no failure of that.
            Err(error) => eprintln!("no page was written: {error:#}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn calibrate(options: &options::Options) -> Result<ExitCode> {
    let wake = options.options()?;
    crate::signals::put_back_at_end()?;
    let holder = IdleHolder::open(&Root::system(), &wake.cpus, "roost wake --calibrate", IdleActuator::PmQos)
        .map_err(|error| refused(error.into()))?;
    let alarms = AlarmProgram::load();
    if let Err(error) = &alarms {
        eprintln!("timers that the kernel sets are left out: {error}");
    }
    let found = Calibration::measure(&wake.cpus, &holder, alarms.as_ref().ok()).map_err(usage)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print!("{}", found.text());
    }
    Ok(ExitCode::SUCCESS)
}

fn refused(error: WakeError) -> anyhow::Error {
    match &error {
        WakeError::Lock(lock) if lock.is_refusal() => coded(Exit::Refused, error),
        WakeError::Lock(_) | WakeError::Unsupported(_) => coded(Exit::Unsupported, error),
        WakeError::Affinity(_) | WakeError::Taken { .. } => usage(error),
        WakeError::Failed(_) => coded(Exit::Failed, error),
    }
}
