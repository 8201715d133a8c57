use crate::{Error, Http, Items};
use machine::{CpuList, Duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use workload::{ArrivalKind, Profile};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Tcp(String),
    Unix(PathBuf),
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(Error::Target(text.to_owned()))
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Ok(Self::Tcp(text.to_owned()))
            }
            _ => Err(Error::Target(text.to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// When the next request is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// When it is due, whatever the server does: arrivals along a profile. The rate before the
    /// profile begins, during the warm-up, is the profile's first.
    Open {
        /// How arrivals are spread around their rate.
        arrivals: ArrivalKind,
        profile: Profile,
    },
    /// When an earlier one was answered: `depth` requests are under way on each connection at all
    /// times. Such a generator slows down with its server and hides the latency that waiting
    /// clients would have seen.
    Closed { depth: u32 },
}

/// One run: of a memcached server, or of whatever `A` is asked.
#[derive(Clone, Debug)]
pub struct Plan<A = Items> {
    pub target: Target,
    /// Speak TLS with it; not with servers whose connections are made anew.
    pub tls: Option<tls::Client>,
    /// Connections, shared evenly among the threads.
    pub connections: u32,
    /// Threads, each with connections of its own.
    pub threads: u16,
    /// CPUs to which the threads are pinned in turn; not pinned if none.
    pub cpus: Option<CpuList>,
    pub length: Duration,
    /// How long load is sent before that without being counted.
    pub warmup: Duration,
    pub pace: Pace,
    pub asks: A,
    pub interval: Duration,
    /// How long before a request is due the thread stops sleeping and polls instead: longer than
    /// the system needs to wake it, or it will send late.
    pub spin: Duration,
    /// The threads send at real-time priority 1, the lowest, ahead of all ordinary threads. This is
    /// for a generator that shares its CPUs with the server and has to send while the server runs.
    /// The server then sees the load of a generator on another machine, except for the CPU time.
    pub realtime: bool,
    /// Unanswered requests on one connection beyond which further ones wait (open loop). They are
    /// counted as backlogged, and their latency still from when they were due.
    pub outstanding_max: u32,
    /// Give a request up, and its connection with it, when the server owes its answer for this
    /// long.
    pub timeout: Option<Duration>,
    /// How long to wait for the last answers after the last request.
    pub drain: Duration,
    /// Give up when requests are under way and nothing was heard for this long, while connecting
    /// too.
    pub patience: Duration,
    /// The percentile of latency that the run is for, as a share between 0 and 1: the run is
    /// invalid if it, or the median, is the generator's own.
    pub judged: f64,
}

impl Plan {
    /// A plan with the defaults; `roost load --help` states them.
    pub fn new(target: Target, pace: Pace) -> Self {
        Self::of(target, pace, Items::default())
    }
}

impl Plan<Http> {
    /// A plan with the defaults; `roost load --help` states them. One request at a time on
    /// each connection, as HTTP clients do it.
    pub fn http(asks: Http, pace: Pace) -> Self {
        let (timeout, patience) = (Some(Duration::from_secs(10)), Duration::from_secs(30));
        Self { outstanding_max: 1, timeout, patience, ..Self::of(asks.url.target(), pace, asks) }
    }
}

impl<A> Plan<A> {
    fn of(target: Target, pace: Pace, asks: A) -> Self {
        Self {
            target,
            tls: None,
            connections: 32,
            threads: 1,
            cpus: None,
            length: Duration::from_secs(10),
            warmup: Duration::from_secs(1),
            pace,
            asks,
            interval: Duration::from_secs(1),
            spin: SPIN_DEFAULT,
            realtime: false,
            outstanding_max: 1024,
            timeout: None,
            drain: Duration::from_secs(2),
            patience: Duration::from_secs(10),
            judged: 0.99,
        }
    }

    /// The first fault of the plan, if there is one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refused = |fix: String| Err(Error::Plan(fix));
        if !(self.judged > 0.0 && self.judged < 1.0) {
            return refused(format!("judge a percentile between 0 and 100, not {}", self.judged * 100.0));
        }
        if self.connections == 0 || self.connections > CONNECTIONS_MAX {
            return refused(format!("use 1 to {CONNECTIONS_MAX} connections, not {}", self.connections));
        }
        if self.threads == 0 || u32::from(self.threads) > self.connections {
            return refused(format!(
                "use 1 to {} threads, not {}: each needs a connection of its own",
                self.connections, self.threads
            ));
        }
        if self.cpus.as_ref().is_some_and(|cpus| cpus.0.is_empty()) {
            return refused("name at least one CPU, or none to run unpinned".to_owned());
        }
        if self.length.is_zero() || self.length > LENGTH_MAX {
            return refused(format!("let the run last between 1ms and {LENGTH_MAX}"));
        }
        if self.interval < INTERVAL_MIN {
            return refused(format!(
                "report progress every {INTERVAL_MIN} or less often, not every {}",
                self.interval
            ));
        }
        if self.outstanding_max == 0 {
            return refused("let at least one request be unanswered".to_owned());
        }
        if self.timeout.is_some_and(|timeout| timeout < TIMEOUT_MIN) {
            return refused(format!("wait at least {TIMEOUT_MIN} for an answer"));
        }
        match self.pace {
            Pace::Closed { depth } if depth == 0 || depth > DEPTH_MAX => {
                refused(format!("use a depth of 1 to {DEPTH_MAX}, not {depth}"))
            }
            _ => Ok(()),
        }
    }
}

/// Waking from a timer takes up to about this long on virtual machines; measured in
/// docs/journal/2026-11-20-loadgen.md.
pub const SPIN_DEFAULT: Duration = Duration::from_micros(50);
/// The connections that one process can have to one address, with room for its other descriptors.
const CONNECTIONS_MAX: u32 = 20_000;
/// Deeper pipelines than this measure the buffers of the sockets.
const DEPTH_MAX: u32 = 4096;
const LENGTH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a lane looks for requests that are over their time.
pub(crate) const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Below this, reporting disturbs the measurement.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_as_written_and_others_are_refused() {
        for text in ["127.0.0.1:11211", "[::1]:80", "localhost:1", "unix:/run/x.sock"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "localhost", "localhost:", ":11211", "h:70000", "h:0", "unix:", "11211"] {
            let message = text.parse::<Target>().unwrap_err().to_string();
            assert!(message.contains("127.0.0.1:11211"), "{message}");
        }
    }

    #[test]
    fn impossible_plans_name_the_fix() {
        let good = || Plan::new(Target::Tcp("h:1".into()), Pace::Closed { depth: 1 });
        good().check().unwrap();
        let refused = |change: fn(&mut Plan)| {
            let mut plan = good();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert!(refused(|p| p.connections = 0).contains("1 to 20000 connections"));
        assert!(refused(|p| p.connections = 20_001).contains("connections"));
        assert!(refused(|p| p.threads = 33).contains("1 to 32 threads"));
        assert!(refused(|p| p.pace = Pace::Closed { depth: 0 }).contains("depth of 1"));
        assert!(refused(|p| p.length = Duration::ZERO).contains("last between"));
        assert!(refused(|p| p.interval = Duration::ZERO).contains("progress"));
        assert!(refused(|p| p.cpus = Some(CpuList::default())).contains("at least one CPU"));
    }
}
