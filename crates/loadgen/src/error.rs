//! The reasons why a run has no outcome; every message names the fix.

use crate::Target;
use machine::Duration;
use thiserror::Error;

/// A run that could not be done.
#[derive(Debug, Error)]
pub enum Error {
    /// A text that is no server.
    #[error("`{0}` is no server: write HOST:PORT such as 127.0.0.1:11211, or unix:PATH")]
    Target(String),
    /// A text that is no URL.
    #[error(
        "`{0}` is no URL that can be loaded: write http://HOST:PORT/PATH, such as \
         http://127.0.0.1:9200/index/_search (plain HTTP: TLS is not spoken, so no https; no user name, \
         blanks as %20)"
    )]
    Url(String),
    #[error("the plan cannot be run: {0}")]
    Plan(String),
    #[error(transparent)]
    Workload(#[from] workload::SpecError),
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Cpus(#[from] linux::AffinityError),
    /// Real-time priority that cannot be had.
    #[cfg(target_os = "linux")]
    #[error("the load cannot be sent at real-time priority: {0}")]
    Realtime(#[from] linux::RealtimeError),
    /// A host name that leads nowhere.
    #[error("cannot find {target}: {cause}; check the host name, or give its address")]
    Resolve { target: Target, cause: std::io::Error },
    /// The limit on open files is too low for the connections.
    #[error(
        "{connections} connections need {needed} open files and the limit is {limit}: raise it (ulimit -Hn, \
         LimitNOFILE=), or use fewer connections"
    )]
    Descriptors {
        connections: u32,
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// The server does not take connections.
    #[error(
        "cannot connect to {target} ({connected} connections stand): {cause}; is the server running there, \
         and does it take that many connections?"
    )]
    Connect {
        target: Target,
        /// Connections of this thread that were made before.
        connected: usize,
        cause: std::io::Error,
    },
    /// The server refuses a value while it is filled.
    #[error(
        "{target} refused a value while its keys were stored: `{answer}`; use fewer keys or smaller \
         values, or give the server more memory"
    )]
    PreloadRefused { target: Target, answer: String },
    #[error(
        "{target} closed every connection ({answered} requests had been answered): {reason}; see its log"
    )]
    Closed { target: Target, answered: u64, reason: String },
    #[error(
        "{target} has answered nothing for {silence} with {waiting} requests under way; see whether it hangs"
    )]
    Stalled {
        target: Target,
        silence: Duration,
        /// Requests that wait for an answer.
        waiting: u64,
    },
    /// The system refused something that a generator cannot do without.
    #[error("{doing}: {cause}")]
    System { doing: &'static str, cause: std::io::Error },
}

impl Error {
    /// True if the request itself was wrong, rather than the run: bad usage, exit code 2.
    pub fn is_usage(&self) -> bool {
        #[cfg(target_os = "linux")]
        if matches!(self, Self::Cpus(_) | Self::Realtime(_)) {
            return true;
        }
        matches!(
            self,
            Self::Target(_)
                | Self::Url(_)
                | Self::Plan(_)
                | Self::Workload(_)
                | Self::Resolve { .. }
                | Self::Descriptors { .. }
        )
    }
}
