//! The options of `roost wake`.

use crate::config_file::{self, Written};
use anyhow::Result;
use linux::Root;
use machine::{CpuList, Duration};
use std::path::PathBuf;
use toml::Table;

#[derive(clap::Args)]
pub struct Options {
    /// Which CPUs may be kept awake, such as 0-3 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// Measure the time that waking takes, say it, and end
    #[arg(long)]
    pub calibrate: bool,
    /// Its other keys, and those of the daemon, in the words of roost.toml
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub names: crate::metrics::Names,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH", help_heading = "Advanced", hide_short_help = true)]
    pub socket: Option<PathBuf>,
    /// End after this time [default: when a signal comes]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Duration>,
    /// Folder for the page and its numbers [default: runs/wake-DATE-TIME, or none with --json]
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub out: Option<PathBuf>,
    /// Print the last status as JSON instead of the live view
    #[arg(long)]
    pub json: bool,
}

impl Options {
    /// The configuration that says the same, and the part of it that a daemon which runs has decided
    /// for itself.
    pub fn configuration(&self) -> Result<Written> {
        let mut own = Table::new();
        if let Some(cpus) = &self.cpus {
            own.insert("cpus".to_owned(), cpus.to_string().into());
        }
        let (file, socket) = (self.config.as_deref(), self.socket.as_ref());
        let mut written = config_file::configuration(file, "wake", own, socket, &Root::system())?;
        let config = &mut written.config;
        config.metrics = self.names.address().or(config.metrics);
        let http = config.wake.as_ref().is_some_and(|wake| wake.http.is_some());
        let given = [
            ("--metrics", self.names.address().is_some()),
            ("--out", self.out.is_some()),
            // The daemon's own page of HTTP is configured with it.
            ("http of [wake]", http),
        ];
        written.whole.extend(config_file::given(&given));
        Ok(written)
    }
}
