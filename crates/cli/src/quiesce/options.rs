//! The arguments of `roost quiesce`.

use crate::setting::{self, Setting};
use ::daemon::quiesce::QuiesceConfig;
use anyhow::Result;
use machine::Duration;
use std::path::PathBuf;

/// Let background work stand still while critical work waits, so that all CPUs sleep together
///
/// While every critical thread is blocked in a network or disk wait that is expected to last for
/// more than 20 times as long as freezing and thawing take, as measured on these groups, the background
/// units are frozen. They go on as soon as a critical thread does or blocks on anything else, and
/// after max_pause (250 ms) at the latest. A unit that itself woke a critical thread is left alone for a
/// second.
///
/// Whether that pays is tried out in turns with freezing and without, of half a second and
/// more: for some seconds, or for minutes where waits are long. It stays on only if all CPUs
/// are idle for at least 2 % of the time more, and if the trial excludes that the cycles or
/// waits of critical threads are longer by more than 1 %. Else it is left off. It is tried
/// again after a minute, then, while the answer stays the same, after two, four, up to an hour.
/// Critical work that needs a background unit through a third process is found out by that
/// trial alone: no graph of waits is drawn, and while the trial lasts that work is slower.
///
/// Never frozen, whatever is asked: services that others wait for (log, bus, sshd, logind, udevd,
/// kubelet, container runtimes), system.slice, init.scope, a tree's root, and any unit from
/// which this command was started.
///
/// A unit is frozen by its cgroup (version 2 or 1), a process whose cgroup holds others too by
/// SIGSTOP; tasks that are stopped already stay so. The frozen may notice: epoll_wait returns EINTR
/// once. Everything is journalled first and thawed in whatever way this ends; after a SIGKILL
/// `roost restore` does it.
#[derive(clap::Args, Debug)]
#[command(after_long_help = include_str!("../../help/quiesce.txt"))]
pub struct Args {
    /// Work that matters: its threads are never frozen
    #[arg(long, value_name = "UNIT", required = true, num_args = 1..)]
    pub critical: Vec<String>,
    /// Work that may stand still while critical work waits
    #[arg(long, value_name = "UNIT", required = true, num_args = 1..)]
    pub background: Vec<String>,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Set another key of a `[[quiesce]]` (domain, max_pause, max_share, trigger, freezer, always,
    /// realtime), as in roost.toml; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Advanced", hide_short_help = true)]
    pub settings: Vec<Setting>,
    /// Folder for a log of all that was decided upon, for `roost replay`
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub record: Option<PathBuf>,
    /// Show the groups that would be frozen, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub names: crate::metrics::Names,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH", help_heading = "Advanced", hide_short_help = true)]
    pub socket: Option<PathBuf>,
    /// Folder for the page and its numbers [default: runs/quiesce-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub out: Option<PathBuf>,
    /// Print a line of JSON each second instead of the live view
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// The table of the configuration that says the same.
    pub fn table(&self) -> Result<QuiesceConfig> {
        let (critical, background) = (self.critical.clone(), self.background.clone());
        let table = QuiesceConfig { critical, background, ..QuiesceConfig::default() };
        setting::set(table, &self.settings, &[])
    }

    /// Options that a daemon which runs has decided for itself.
    pub fn whole(&self) -> Vec<String> {
        let given = [
            ("--record", self.record.is_some()),
            ("--metrics", self.names.address().is_some()),
            ("--out", self.out.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag.to_owned()).collect()
    }
}
