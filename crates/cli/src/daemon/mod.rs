//! `roost daemon`, and the shared body of every governing command. A command runs the daemon with
//! the service that it names. Where a daemon runs already, the command has that daemon govern the
//! service for as long as it is connected.
//!
//! ```text
//!   mod.rs       signals, the daemon in this process, its end
//!   lease.rs     the same through a daemon that runs
//!   status.rs    `roost status`, `set`, `pause`, `resume`
//!   wakeups.rs   the wake-ups of parked CPUs
//! ```

mod lease;
pub mod status;
mod wakeups;

use crate::exit::{Exit, coded, usage};
use crate::live::Live;
use crate::metrics::{self, Names};
use crate::print::over;
use crate::signals::EndSignals;
use ::daemon::{
    Config, ControllerReport, Daemon, Event, Governed, Options, Part, Refusal, RefusalKind, Seen, Status,
    running,
};
use anyhow::Result;
use linux::{Contested, Gaps, Root, rivals};
use machine::Duration;
use policy::governing::{FrequencyMode, IdleMode, Mode};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGXCPU};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Run the daemon that governs this machine
///
/// One daemon runs all controllers: cores, idle limits and frequency of services, Hurry-up,
/// quiescence, wake-ups ahead of events. Its configuration names services and controllers. A
/// command such as `roost govern --port 11211` adds its service for as long as it runs. Every
/// change is journalled first and put back at the end, however that comes; after a SIGKILL
/// `roost restore` does it.
#[derive(clap::Args)]
#[command(after_long_help = include_str!("../../help/daemon.txt"))]
pub struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/roost/roost.toml")]
    config: PathBuf,
    /// The control socket [default: that of the configuration, /run/roost/roost.sock]
    #[arg(long, value_name = "PATH", help_heading = "Advanced", hide_short_help = true)]
    socket: Option<PathBuf>,
    #[command(flatten)]
    names: Names,
    /// Decide, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Govern beside another program that sets the same knobs
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    take_over: bool,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Duration>,
    /// Print the configuration in force as TOML, and end
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    print_config: bool,
    /// Print a line of JSON for each epoch of each service
    #[arg(long)]
    json: bool,
    /// The machine's files lie below this folder: for benches on machines that are not there
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut config = Config::load(&args.config).map_err(usage)?;
    config.socket = args.socket.clone().unwrap_or(config.socket);
    config.metrics = args.names.address().or(config.metrics);
    if args.print_config {
        crate::table::print(&toml::to_string(&config)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let request = Request {
        config,
        file: Some(args.config.clone()),
        root: args.root.clone().map_or_else(Root::system, Root::at),
        dry_run: args.dry_run,
        take_over: args.take_over,
        names: &args.names,
        length: args.length,
        whole: Vec::new(),
    };
    govern(request, Arc::new(Mutex::new(Epochs { json: args.json })))
}

/// The service or controller that a command has governed.
pub struct Request<'a> {
    pub config: Config,
    /// The file that the configuration comes from; `None`: the command line.
    pub file: Option<PathBuf>,
    /// The folder below which `/sys`, `/proc` and `/run` lie.
    pub root: Root,
    pub dry_run: bool,
    /// Do not look for other programs that set the same knobs.
    pub take_over: bool,
    /// Names under which the page of metrics is asked for.
    pub names: &'a Names,
    /// The time after which the command ends.
    pub length: Option<Duration>,
    /// Flags on the command line that a daemon which runs already has decided for itself.
    pub whole: Vec<String>,
}

/// The output for a person or a program meanwhile.
pub trait View: Send {
    fn say(&mut self, line: &str);
    /// An epoch of a service is over.
    fn epoch(&mut self, _governed: &Governed) {}
    /// A controller has something new. `is_last` is set before it puts its changes back.
    fn seen(&mut self, _seen: Seen<'_>, _is_last: bool) {}
    /// The state of a lease, once a second.
    fn polled(&mut self, governed: &[Status], controllers: &[ControllerReport]);
    /// The page of the run, where there is one, and the end of the view.
    fn end(&mut self) {}
}

pub fn locked<V: View + ?Sized>(view: &Mutex<V>) -> MutexGuard<'_, V> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Governs the requested services until a signal, the given time or the end of the service.
pub fn govern<V: View + 'static>(request: Request<'_>, view: Arc<Mutex<V>>) -> Result<ExitCode> {
    let names_its_own = request.file.is_none();
    if names_its_own
        && !request.dry_run
        && let Some(daemon) = running(&request.config.socket)
    {
        return lease::govern(&request, &daemon, &view);
    }
    let length = request.length;
    if !request.dry_run && !request.take_over {
        stand_back(&request.root, &request.config)?;
    }
    // Before anything is held: a signal that comes meanwhile must not end this without putting
    // things back.
    let (sender, events) = channel();
    watch_signals(sender.clone(), !names_its_own)?;
    if let Some(address) = request.config.metrics {
        let address = metrics::daemon::serve(address, request.names, sender.clone())?;
        eprintln!("metrics on http://{address}/metrics");
    }
    crate::govern::warn_of_nothing(&request.config);
    let is_empty = request.config.part().is_empty();
    let mut daemon = begin(request, &view, sender)?;
    if is_empty {
        eprintln!(
            "nothing is configured, so nothing is governed yet\nhint: see config/roost.toml, or name a \
             service: roost govern --port 11211 --goal 500us@p99"
        );
    }
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    if let Some(patience) = sd_notify::watchdog_enabled() {
        // Two may come late or be lost.
        daemon.keep_alive((patience / 3).into(), || {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        });
    }
    let finished = daemon.run(&events, length, |governed| locked(&*view).epoch(governed));
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    let mut view = locked(&*view);
    view.end();
    finished.lines.iter().for_each(|line| eprintln!("{line}"));
    finished.outcome.map(|()| ExitCode::SUCCESS).map_err(refused)
}

/// The daemon of a request, which has taken hold and can run. It tells its events to `sender`.
pub fn begin<V: View + 'static>(
    request: Request<'_>,
    view: &Arc<Mutex<V>>,
    sender: Sender<Event>,
) -> Result<Daemon> {
    let Request { config, file, root, dry_run, take_over, .. } = request;
    let observer = {
        let (view, http) = (Arc::clone(view), crate::wake::Remote::new(&config)?);
        Arc::new(Mutex::new(move |seen: Seen<'_>, is_last: bool| {
            let mut view = locked(&*view);
            if let Seen::Wake(handle) = &seen {
                http.serve(handle).iter().for_each(|line| view.say(line));
            }
            view.seen(seen, is_last);
        }))
    };
    let strict = file.is_none();
    let options = Options {
        root: root.clone(),
        config,
        file,
        dry_run,
        strict,
        events: sender.clone(),
        observer: Some(observer),
    };
    let says = Arc::clone(view);
    let mut daemon = Daemon::start(options, move |line| locked(&*says).say(line))
        .map_err(|error| refused(error.into()))?;
    if !dry_run && !take_over {
        daemon.object(move |config| stand_back(&root, config).err().map(|error| format!("{error:#}")));
    }
    daemon.hear_alarms(sender);
    Ok(daemon)
}

/// The control socket: as named, or in the run folder of this user where a daemon listens there or
/// root runs none, or else that of root's daemon.
pub fn socket_or(named: Option<&PathBuf>, root: &Root) -> PathBuf {
    if let Some(named) = named {
        return named.clone();
    }
    let own = linux::run_place(root).join("roost.sock");
    let of_root = root.path("run/roost/roost.sock");
    if own != of_root && running(&own).is_none() && running(&of_root).is_some() { of_root } else { own }
}

/// Shows controllers of a lease as their own commands do.
pub fn show_reports(live: &mut Live, json: bool, controllers: &[ControllerReport]) {
    let is_due = live.is_due(linux::now());
    for report in controllers.iter().filter(|report| !report.status.is_null()) {
        if json {
            crate::live::print_line(&report.status);
        } else if is_due {
            live.draw(&report.text);
        }
    }
}

/// The exit code of a refusal.
pub fn refused(refusal: Refusal) -> anyhow::Error {
    let exit = match refusal.kind {
        RefusalKind::Failed => Exit::Failed,
        RefusalKind::Usage => Exit::Usage,
        RefusalKind::Unsupported => Exit::Unsupported,
        RefusalKind::Held => Exit::Refused,
    };
    coded(exit, refusal.message)
}

/// Refuses beside a program that sets the same knobs.
pub fn stand_back(root: &Root, config: &Config) -> Result<()> {
    let Part { services, hurry_up, .. } = config.part();
    let mut wanted = Vec::new();
    if !services.is_empty() {
        wanted.push(Contested::Cpus);
    }
    if services.iter().any(|service| service.idle.any(|mode| mode != IdleMode::Stock)) {
        wanted.push(Contested::Idle);
    }
    if !hurry_up.is_empty() || services.iter().any(|service| service.frequency != FrequencyMode::Stock) {
        wanted.push(Contested::Frequency);
    }
    if wanted.is_empty() {
        return Ok(());
    }
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

/// SIGHUP reads a configuration file again; without one it ends the command as all others do.
fn watch_signals(sender: Sender<Event>, has_file: bool) -> Result<()> {
    let watched = if has_file { EndSignals::watch_and_reload()? } else { EndSignals::watch()? };
    watched.call_with(move |signal| {
        let event = match signal {
            SIGHUP if has_file => Event::Reload,
            SIGXCPU => Event::Overrun,
            _ => Event::Stop,
        };
        // The daemon may have ended by itself.
        let _ = sender.send(event);
    })?;
    Ok(())
}

pub struct Epochs {
    pub json: bool,
}

/// An epoch's line stands on the terminal and has no end yet.
static DRAWN: AtomicBool = AtomicBool::new(false);

impl View for Epochs {
    fn say(&mut self, line: &str) {
        if DRAWN.swap(false, Ordering::Relaxed) {
            println!();
        }
        eprintln!("{line}");
    }

    fn epoch(&mut self, governed: &Governed) {
        self.show(&governed.status());
    }

    fn polled(&mut self, governed: &[Status], _controllers: &[ControllerReport]) {
        governed.iter().for_each(|status| self.show(status));
    }

    fn end(&mut self) {
        if DRAWN.swap(false, Ordering::Relaxed) {
            println!();
        }
    }
}

impl Epochs {
    fn show(&self, status: &Status) {
        if self.json {
            crate::live::print_line(status);
        } else if crate::live::is_watched() {
            over(std::io::stdout(), &line(status));
            DRAWN.store(true, Ordering::Relaxed);
        }
    }
}

fn line(status: &Status) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rate = or_dash(status.service.rate.map(|rate| format!("{:.0}/s", rate.as_per_second())));
    let tail = or_dash(status.service.tail.or(status.service.p95).map(|tail| tail.to_string()));
    let (active, all) = status.cores;
    let mode = match status.mode {
        Mode::Searching => "",
        Mode::Open { .. } => " OPEN",
        Mode::Paused => " paused",
    };
    let (name, cpus) = (&status.name, &status.cpus);
    format!("{name}: {rate}, tail {tail}, {active} of {all} cores (CPU {cpus}){mode}")
}
