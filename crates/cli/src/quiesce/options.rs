//! What `roost quiesce` is asked for.

use ::daemon::quiesce::{QuiesceConfig, Trigger};
use clap::ValueEnum;
use linux::freezer::FreezerWay;
use machine::Duration;
use std::path::PathBuf;

/// Let background work stand still while what matters waits, so that all CPUs sleep together
///
/// While every critical thread is blocked in a network or disk wait that is expected to last for
/// more than 20 times what freezing and thawing take, as measured on these groups, the background
/// units are frozen. They go on as soon as a critical thread does or blocks on anything else, and
/// after --max-pause at the latest. A unit that itself woke a critical thread is left alone for a
/// second.
///
/// Whether that pays is tried out in turns with freezing and without, of half a second and
/// more: for some seconds, or for minutes where waits are long. It stays on only if all CPUs
/// are idle for at least 2 % of the time more, and if what was seen excludes that the cycles or
/// waits of critical threads are longer by more than 1 %. Else it is left off. It is tried
/// again after a minute, then, while the answer stays the same, after two, four, up to an hour.
/// Critical work that needs a background unit through a third process is found out by that
/// trial alone: no graph of waits is drawn, and while the trial lasts that work is slower.
///
/// Never frozen, whatever is asked: what others wait for (log, bus, sshd, logind, udevd,
/// kubelet, container runtimes), system.slice, init.scope, a tree's root, and any unit from
/// which this command was started.
///
/// A unit is frozen by its cgroup (version 2 or 1), a process whose cgroup holds others too by
/// SIGSTOP; tasks that are stopped already stay so. The frozen may notice: epoll_wait returns EINTR
/// once. Everything is journalled first and thawed in whatever way this ends; after a SIGKILL
/// `roost restore` does it.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/quiesce.txt"))]
pub struct Args {
    /// What matters
    #[arg(long, value_name = "UNIT", required = true, num_args = 1..)]
    pub critical: Vec<String>,
    /// What may stand still meanwhile
    #[arg(long, value_name = "UNIT", required = true, num_args = 1..)]
    pub background: Vec<String>,
    /// The CPUs that are to sleep together: all, socket:N, cluster:N, or a list such as 0-3
    #[arg(long, value_name = "CPUS", default_value = "all")]
    pub domain: String,
    /// Nothing is frozen for longer at a time
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    pub max_pause: Duration,
    /// Nor, in the long run, for more than this share of the time
    #[arg(long, value_name = "SHARE", default_value_t = 0.75)]
    pub max_share: f64,
    /// Follow what each request causes, through wake-ups, forks and sockets, instead of taking
    /// critical units as a whole
    #[arg(long, value_enum, value_name = "EVENT")]
    pub trigger: Option<TriggerName>,
    /// Freeze by this alone
    /// [default: cgroup.freeze where the unit has it, else freezer.state, else SIGSTOP]
    #[arg(long, value_enum, value_name = "WAY")]
    pub freezer: Option<FreezerName>,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Freeze whenever critical work waits, without trying out whether the machine sleeps more by
    /// that
    #[arg(long)]
    pub always: bool,
    /// Folder for a log of all that was decided upon, for `roost replay`
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Show what would be frozen, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Run as soon as it is woken, however busy the CPUs are: SCHED_FIFO at priority 1, at most 100
    /// ms at a stretch (RLIMIT_RTTIME)
    #[arg(long)]
    pub realtime: bool,
    #[command(flatten)]
    pub names: crate::metrics::Names,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Folder for the page and its numbers [default: runs/quiesce-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print a line of JSON each second instead of the live view
    #[arg(long)]
    pub json: bool,
}

/// What begins an interaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TriggerName {
    /// A request that a critical unit reads from a connection to a port on which it listens
    Accept,
    /// A critical unit's thread goes on after waiting for a character device
    Input,
}

/// By what is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FreezerName {
    /// cgroup.freeze
    V2,
    /// freezer.state
    V1,
    /// SIGSTOP to each process
    Signal,
}

impl Args {
    /// The table of the configuration that says the same.
    pub fn table(&self) -> QuiesceConfig {
        QuiesceConfig {
            name: None,
            critical: self.critical.clone(),
            background: self.background.clone(),
            domain: self.domain.clone(),
            max_pause: self.max_pause,
            max_share: self.max_share,
            trigger: self.trigger.map(|name| match name {
                TriggerName::Accept => Trigger::Accept,
                TriggerName::Input => Trigger::Input,
            }),
            freezer: self.freezer.map(|name| match name {
                FreezerName::V2 => FreezerWay::V2,
                FreezerName::V1 => FreezerWay::V1,
                FreezerName::Signal => FreezerWay::Signal,
            }),
            always: self.always,
            realtime: self.realtime,
        }
    }

    /// Options that a daemon which runs has decided for itself.
    pub fn whole(&self) -> Vec<&'static str> {
        let given = [
            ("--record", self.record.is_some()),
            ("--metrics", self.names.address().is_some()),
            ("--out", self.out.is_some()),
        ];
        given.into_iter().filter_map(|(flag, is_given)| is_given.then_some(flag)).collect()
    }
}
