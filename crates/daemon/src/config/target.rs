//! The place of a service: a port, a process, a cgroup or a unit leads to its processes.

use linux::Root;
use linux::service::{self, Service, ServiceError};
use std::fmt;

/// Where a service is. Exactly one of them is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process that listens on this TCP port.
    Port(u16),
    Pid(u32),
    /// The processes of this cgroup; of their ports this one, where it is named.
    Cgroup(String, Option<u16>),
    Unit(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "port-{port}"),
            Self::Pid(pid) => write!(f, "pid-{pid}"),
            Self::Cgroup(folder, _) => {
                f.write_str(folder.trim_end_matches('/').rsplit('/').next().unwrap_or(folder))
            }
            Self::Unit(unit) => f.write_str(unit.strip_suffix(".service").unwrap_or(unit)),
        }
    }
}

impl Target {
    pub fn find(&self, root: &Root) -> Result<Service, ServiceError> {
        let found = match self {
            Self::Port(port) => service::of_port(root, *port)?,
            Self::Pid(pid) => service::of_process(root, *pid)?,
            Self::Cgroup(folder, None) => service::of_cgroup(root, folder)?,
            Self::Cgroup(folder, Some(port)) => service::of_cgroup_and_port(root, folder, *port)?,
            Self::Unit(unit) => service::of_unit(root, unit)?,
        };
        found.with_port()
    }
}
