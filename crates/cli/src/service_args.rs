//! The service that a command is about, as every command names it.

/// One of them at most. In a command's own options `service` is all of them.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(id = "service", multiple = false)]
pub struct ServiceArgs {
    /// The service that listens on this TCP port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// The service is this process and its children
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,

    /// The service is all processes of this cgroup
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<String>,

    /// The service is this systemd unit
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
}

impl ServiceArgs {
    /// True if one is named.
    pub fn is_given(&self) -> bool {
        self.port.is_some() || self.pid.is_some() || self.cgroup.is_some() || self.unit.is_some()
    }
}
