//! The arguments of `roost quiesce`.

use crate::config_file::{self, Written};
use anyhow::Result;
use linux::Root;
use machine::Duration;
use std::path::PathBuf;
use toml::{Table, Value};

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
    /// Its other keys, and those of the daemon, in the words of roost.toml
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    pub config: Option<PathBuf>,
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
    /// The configuration that says the same, and the part of it that a daemon which runs has decided
    /// for itself.
    pub fn configuration(&self) -> Result<Written> {
        let mut own = Table::new();
        own.insert("critical".to_owned(), Value::try_from(&self.critical)?);
        own.insert("background".to_owned(), Value::try_from(&self.background)?);
        let (file, socket) = (self.config.as_deref(), self.socket.as_ref());
        let mut written = config_file::configuration(file, "quiesce", own, socket, &Root::system())?;
        let config = &mut written.config;
        config.metrics = self.names.address().or(config.metrics);
        let given = [("--metrics", self.names.address().is_some()), ("--out", self.out.is_some())];
        written.whole.extend(config_file::given(&given));
        Ok(written)
    }
}
