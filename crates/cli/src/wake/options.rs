//! The options of `roost wake`.

use crate::setting::{self, Setting};
use ::daemon::wake::WakeConfig;
use anyhow::Result;
use machine::{CpuList, Duration};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// Which CPUs may be kept awake, such as 0-3 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// Measure the time that waking takes, say it, and end
    #[arg(long)]
    pub calibrate: bool,
    /// Hear announcements in datagrams here; needs --token-file
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = crate::exit::parse_address,
        help_heading = "Advanced",
        hide_short_help = true
    )]
    udp: Option<SocketAddr>,
    /// Hear announcements over HTTP here (POST /wake); needs --token-file
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = crate::exit::parse_address,
        help_heading = "Advanced",
        hide_short_help = true
    )]
    pub http: Option<SocketAddr>,
    /// The token that remote callers must show; readable by its owner alone
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    token_file: Option<PathBuf>,
    /// Set another key of `[wake]` (exit_latency, margin, act, alarm, max_stay, max_rate, max_share,
    /// max_share_of_all, users, remote, remote_cpus), as in roost.toml; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Advanced", hide_short_help = true)]
    settings: Vec<Setting>,
    /// Foresee the answers of disks, from the kernel's own events: no program need say anything
    #[arg(long)]
    disks: bool,
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
    /// The table of the configuration that says the same.
    pub fn table(&self) -> Result<WakeConfig> {
        let table = WakeConfig {
            cpus: self.cpus.as_ref().map(ToString::to_string),
            udp: self.udp,
            http: self.http,
            token_file: self.token_file.clone(),
            disks: self.disks,
            ..WakeConfig::default()
        };
        setting::set(table, &self.settings, &[])
    }

    /// Options that a daemon which runs has decided for itself.
    pub fn whole(&self) -> Vec<String> {
        let given = [
            ("--metrics", self.names.address().is_some()),
            ("--out", self.out.is_some()),
            // The daemon's own page of HTTP is configured with it.
            ("--http", self.http.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag.to_owned()).collect()
    }
}
